package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-project/berth/internal/plan/job"
)

// kinds are the kinds that are being reconciled.
type kinds struct {
	mu      sync.Mutex
	running []*reconciler
}

func (k *kinds) add(r *reconciler) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = append(k.running, r)
}

func (k *kinds) list() []*reconciler {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*reconciler(nil), k.running...)
}

// generations is how far below a Workload's owner its descendants are looked for.
const generations = 10

// below finds the jobs of one kind that descend from an object through jobs of any kind (spec: 30 §4.5).
func (k *kinds) below(ctx context.Context, of *reconciler, namespace string, uid types.UID) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	parents := []types.UID{uid}
	for range generations {
		var next []types.UID
		for _, parent := range parents {
			for _, r := range k.list() {
				r.each(ctx, namespace, func(o client.Object) {
					next = append(next, o.GetUID())
					if r == of {
						out = append(out, request(o.GetNamespace(), o.GetName()))
					}
				}, client.MatchingFields{byParent: string(parent)})
			}
		}
		if len(next) == 0 {
			break
		}
		parents = next
	}
	return out
}

// isServed asks whether the API server knows a kind.
func isServed(mapper apimeta.RESTMapper, gvk schema.GroupVersionKind) (bool, error) {
	_, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if apimeta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// Delays between two looks for a kind that the API server does not know. A new CRD starts over.
const (
	firstLook = time.Second
	lastLook  = 2 * time.Minute
)

// latecomers start the controllers of kinds whose CRD was not there when the manager started (spec: 30 §4.1).
type latecomers struct {
	mgr   ctrl.Manager
	log   logr.Logger
	kinds []*latecomer
}

// latecomer is one kind that is waited for.
type latecomer struct {
	*latecomers
	d     *job.Descriptor
	start func(context.Context) error
	news  chan struct{} // has an entry when its CRD changed
}

func (l *latecomers) wait(d *job.Descriptor, start func(context.Context) error) {
	l.kinds = append(l.kinds, &latecomer{latecomers: l, d: d, start: start, news: make(chan struct{}, 1)})
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// setup watches CRDs, if anything is waited for.
func (l *latecomers) setup(ctx context.Context) error {
	if len(l.kinds) == 0 {
		return nil
	}
	crds := &metav1.PartialObjectMetadata{}
	crds.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	informer, err := l.mgr.GetCache().GetInformer(ctx, crds)
	if err != nil {
		return fmt.Errorf("watching CRDs: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    l.changed,
		UpdateFunc: func(_, o any) { l.changed(o) },
	})
	if err != nil {
		return fmt.Errorf("watching CRDs: %w", err)
	}
	for _, k := range l.kinds {
		if err := l.mgr.Add(k); err != nil {
			return err
		}
	}
	return nil
}

// changed tells the kinds of a CRD.
func (l *latecomers) changed(o any) {
	crd, ok := o.(client.Object)
	if !ok {
		return
	}
	for _, k := range l.kinds {
		if crd.GetName() == k.d.Resource+"."+k.d.GVK.Group {
			select {
			case k.news <- struct{}{}:
			default:
			}
		}
	}
}

// Start waits until the kind is served, then starts its controller.
func (k *latecomer) Start(ctx context.Context) error {
	delay := firstLook
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.news:
			delay = firstLook / 10 // it takes a moment until a new kind is served
		case <-time.After(delay):
			delay = min(2*delay, lastLook)
		}
		served, err := isServed(k.mgr.GetRESTMapper(), k.d.GVK)
		if err != nil {
			k.log.Error(err, "It is not known whether the kind exists", "framework", k.d.Framework)
		}
		if !served {
			continue
		}
		if err := k.start(ctx); err != nil {
			return err
		}
		k.log.Info("The kind is there now, and is integrated", "framework", k.d.Framework)
		return nil
	}
}

// NeedLeaderElection is false: the controllers that are started wait for leadership themselves.
func (k *latecomer) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = (*latecomer)(nil)
