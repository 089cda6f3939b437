// Package standing finds the places that the pods of shrunk elastic jobs still have.
//
//	Workload, fewer pods than granted ─► Places ─► of its pods that are left, and the first others
//	a pod of it ends ──────────────────► Changed ─► the Workload is converted again
//
// It reads no pods before the first job shrinks with a topology assignment. Until it knows them, such a job keeps all of its places
// (spec: 20 §4.11).
package standing

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/placement/plan"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Watch is a runnable that knows the pods of shrunk jobs. Safe for concurrent use.
type Watch struct {
	Pods *reconcile.Pods
	// Changed is called with a Workload whose places may be others by now. It reports false if the Workload does not need to be
	// followed any more.
	Changed func(context.Context, client.ObjectKey) bool

	mu    sync.Mutex
	known bool                                          // the pods are
	asked map[types.NamespacedName]types.NamespacedName // shrunk Workloads, by chain
	wake  chan struct{}
}

// New returns a Watch of pods. Changed is to be set before it starts.
func New(pods *reconcile.Pods) *Watch {
	return &Watch{Pods: pods, asked: map[types.NamespacedName]types.NamespacedName{}, wake: make(chan struct{}, 1)}
}

// NeedLeaderElection is false: a new leader has to know the places.
func (*Watch) NeedLeaderElection() bool { return false }

// Places returns the places that a pod set of a reservation still needs.
func (s *Watch) Places(w *kueue.Workload, a *kueue.PodSetAssignment) ([]assignment.Domain, error) {
	if a.TopologyAssignment == nil || !chain.ScaledDown(w, a.Name) || !s.follow(w) {
		return assignment.Decode(a.TopologyAssignment)
	}
	pods, err := s.Pods.OfChain(context.Background(), types.NamespacedName{Namespace: w.Namespace, Name: chain.Chain(w)})
	if err != nil {
		return nil, err
	}
	return plan.Places(w, a, pods)
}

// follow makes the pods of a Workload call Changed, and reports whether they are known.
func (s *Watch) follow(w *kueue.Workload) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[types.NamespacedName{Namespace: w.Namespace, Name: chain.Chain(w)}] = client.ObjectKeyFromObject(w)
	if !s.known {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return s.known
}

// Forget ends the following of a Workload, which is deleted.
func (s *Watch) Forget(w *kueue.Workload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := (types.NamespacedName{Namespace: w.Namespace, Name: chain.Chain(w)}); s.asked[of] == client.ObjectKeyFromObject(w) {
		delete(s.asked, of)
	}
}

// Start waits for the first shrunk job, and then follows the pods until ctx ends.
func (s *Watch) Start(ctx context.Context) error {
	select {
	case <-s.wake:
	case <-ctx.Done():
		return nil
	}
	late := &reconcile.Late{Pods: s.Pods, Watch: func() error {
		informer, err := s.Pods.GetInformer(ctx, &corev1.Pod{})
		if err != nil {
			return err
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			UpdateFunc: func(old, o any) {
				before, pod := old.(*corev1.Pod), o.(*corev1.Pod)
				if plan.IsOver(before) != plan.IsOver(pod) || plan.IsUnplaced(before) != plan.IsUnplaced(pod) {
					s.changed(ctx, pod)
				}
			},
			DeleteFunc: func(o any) {
				if gone, missed := o.(toolscache.DeletedFinalStateUnknown); missed {
					o = gone.Obj
				}
				s.changed(ctx, o.(*corev1.Pod))
			},
		})
		return err
	}}
	if err := late.Ready(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	select {
	case <-ctx.Done(): // the cache may not be filled
		return nil
	default:
	}
	s.mu.Lock()
	s.known = true
	var all []types.NamespacedName
	for of := range s.asked { //berth:unordered each by itself
		all = append(all, of)
	}
	s.mu.Unlock()
	for _, of := range all {
		s.report(ctx, of)
	}
	<-ctx.Done()
	return nil
}

func (s *Watch) changed(ctx context.Context, pod *corev1.Pod) {
	s.report(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: plan.Chain(pod)})
}

// report calls Changed for the shrunk Workload of a chain, if there is one.
func (s *Watch) report(ctx context.Context, of types.NamespacedName) {
	s.mu.Lock()
	w, follows := s.asked[of]
	s.mu.Unlock()
	if !follows || s.Changed(ctx, w) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[of] == w {
		delete(s.asked, of)
	}
}
