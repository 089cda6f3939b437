package dash

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// workloadView is a Workload with derived data and its pods. spec: 70 §4.10.
type workloadView struct {
	kueue.Workload
	Preemption preemption `json:"preemption"`
	Pods       []podView  `json:"pods"`
	// ExpectedStart is when a pending one is expected to start. Views have it again within recheckEvery.
	ExpectedStart *berthv1alpha1.ExpectedStart `json:"expectedStart,omitempty"`
	// Position is the place in line of a pending one, likewise.
	Position *position `json:"position,omitempty"`
}

// preemption reports whether a Workload was preempted since its last quota reservation, and why.
type preemption struct {
	Preempted bool   `json:"preempted"`
	Reason    string `json:"reason"`
}

func preemptionOf(w *kueue.Workload) preemption {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPreempted); c != nil && c.Status == metav1.ConditionTrue {
		return preemption{true, c.Reason}
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue && c.Reason == kueue.ReasonPreempted {
		return preemption{true, c.Reason}
	}
	return preemption{}
}

// podView has the displayed fields of a pod at their usual paths.
type podView struct {
	Metadata podMeta   `json:"metadata"`
	Spec     podSpec   `json:"spec"`
	Status   podStatus `json:"status"`
}

type podMeta struct {
	Name              string      `json:"name"`
	Namespace         string      `json:"namespace"`
	UID               types.UID   `json:"uid"`
	CreationTimestamp metav1.Time `json:"creationTimestamp"`
}

type podSpec struct {
	NodeName string `json:"nodeName,omitempty"`
}

type podStatus struct {
	Phase   corev1.PodPhase `json:"phase,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

func viewOfPod(p *corev1.Pod) podView {
	return podView{
		Metadata: podMeta{p.Name, p.Namespace, p.UID, p.CreationTimestamp}, Spec: podSpec{p.Spec.NodeName},
		Status: podStatus{p.Status.Phase, p.Status.Reason, p.Status.Message},
	}
}

// found returns the Workloads that a caller may list, in no order. They must not be modified.
func (s *Server) found(ctx context.Context, a *ask, keep func(*kueue.Workload) bool) ([]*kueue.Workload, error) {
	return readable(ctx, s, a, workloadsResource, s.all.In(a.query.namespace, keep))
}

// views returns Workloads with their pods, as far as the caller may list the pods.
func (s *Server) views(ctx context.Context, a *ask, found []*kueue.Workload) ([]entry, error) {
	var all corev1.PodList
	if err := s.extra.List(ctx, &all, client.InNamespace(a.query.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("reading pods: %w", err)
	}
	in := map[string]bool{}
	for _, w := range found {
		in[w.Namespace] = true
	}
	var pods []*corev1.Pod
	for i := range all.Items {
		if p := &all.Items[i]; in[p.Namespace] {
			pods = append(pods, p)
		}
	}
	pods, err := readable(ctx, s, a, podsResource, pods)
	if err != nil {
		return nil, err
	}
	podsOf := s.owners.match(found, sorted(pods))
	out := make([]entry, 0, len(found))
	for _, w := range found {
		v := &workloadView{Workload: *w, Preemption: preemptionOf(w), Pods: []podView{}}
		v.SetGroupVersionKind(workloadsResource.gvk())
		if s.Starts != nil {
			v.ExpectedStart = s.Starts(w)
		}
		if s.Position != nil {
			if queue, before, known := s.Position(w); known {
				v.Position = &position{queue, before}
			}
		}
		for _, p := range podsOf[w.UID] {
			v.Pods = append(v.Pods, viewOfPod(p))
		}
		out = append(out, entry{w.Namespace + "/" + w.Name, v})
	}
	return out, nil
}

// pageOf returns the requested page of Workloads, in the requested order: the Workloads and their list.
func (s *Server) pageOf(ctx context.Context, a *ask, found []*kueue.Workload) (page []*kueue.Workload, out *list, err error) {
	until := a.end(len(found))
	if a.byState {
		page = leadingByState(found, until)
	} else {
		page = leading(found, until, byName)
	}
	page = cut(&a.query, page)
	entries, err := s.views(ctx, a, page)
	if err != nil {
		return nil, nil, err
	}
	out = a.paged(a.whole(entries), len(found))
	if a.byState && a.delta {
		for _, e := range entries {
			out.Order = append(out.Order, e.key)
		}
	}
	return page, out, nil
}

func (s *Server) workloads(ctx context.Context, a *ask) (any, error) {
	found, err := s.found(ctx, a, a.inState)
	if err != nil {
		return nil, err
	}
	_, page, err := s.pageOf(ctx, a, found)
	return page, err
}

func (s *Server) workloadsOfQueue(ctx context.Context, a *ask) (any, error) {
	if err := s.access.must(ctx, a.who, workloadsResource, a.namespace, ""); err != nil {
		return nil, err
	}
	found, err := s.found(ctx, a, func(w *kueue.Workload) bool { return string(w.Spec.QueueName) == a.name && a.inState(w) })
	if err != nil {
		return nil, err
	}
	_, page, err := s.pageOf(ctx, a, found)
	return page, err
}

func (s *Server) workload(ctx context.Context, a *ask) (any, error) {
	w, err := one[kueue.Workload](ctx, s, a, workloadsResource)
	if err != nil || w == nil {
		return none(workloadsResource, a), err
	}
	entries, err := s.views(ctx, a, []*kueue.Workload{w})
	if err != nil {
		return nil, err
	}
	return entries[0].value, nil
}

// overview is the content of the start page.
type overview struct {
	Flavors       *list `json:"flavors"`
	ClusterQueues *list `json:"clusterQueues"`
	Queues        *list `json:"queues"`
	Workloads     *list `json:"workloads"`
	// WorkloadsByUID maps the Workloads of the page to names such as red/train: messages of conditions name UIDs. Without a limit these are all.
	WorkloadsByUID map[types.UID]string `json:"workloads_by_uid"`
	Summary        summary              `json:"summary"`
}

// dashboard shows only objects that the caller may list.
func (s *Server) dashboard(ctx context.Context, a *ask) (any, error) {
	kinds, _, err := s.allFlavors(ctx, a)
	if err != nil {
		return nil, err
	}
	clusterQueues, _, err := s.allClusterQueues(ctx, a)
	if err != nil {
		return nil, err
	}
	queues, err := s.queues(ctx, a, func(*kueue.LocalQueue) bool { return true })
	if err != nil {
		return nil, err
	}
	found, err := s.found(ctx, a, func(*kueue.Workload) bool { return true })
	if err != nil {
		return nil, err
	}
	sum := summarize(found, time.Now())
	shown, page, err := s.pageOf(ctx, a, found)
	if err != nil {
		return nil, err
	}
	byUID := map[types.UID]string{}
	for _, w := range shown {
		byUID[w.UID] = w.Namespace + "/" + w.Name
	}
	return overview{
		a.whole(show(kinds, flavorsResource)), a.whole(show(clusterQueues, clusterQueuesResource)),
		a.whole(show(queues, localQueuesResource)), page, byUID, sum,
	}, nil
}

func (s *Server) events(ctx context.Context, a *ask) (any, error) {
	if err := s.access.must(ctx, a.who, workloadsResource, a.namespace, a.name); err != nil {
		return nil, err
	}
	if err := s.access.must(ctx, a.who, eventsResource, a.namespace, ""); err != nil {
		return nil, err
	}
	var all corev1.EventList
	if err := s.extra.List(ctx, &all, client.InNamespace(a.namespace), client.MatchingFields{aboutName: a.name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	return a.page(show(pointers(all.Items), eventsResource)), nil
}
