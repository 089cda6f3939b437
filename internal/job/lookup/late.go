package lookup

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/berth-project/berth/internal/job"
)

// IsServed reports whether the API server serves a kind. The error means a failed discovery.
func IsServed(mapper apimeta.RESTMapper, gvk schema.GroupVersionKind) (bool, error) {
	_, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if apimeta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// A kind that is not served is looked for every lastDelay: its API need not come from a CRD. A new or changed CRD is followed by looks after
// firstDelay, then twice that, and so on.
const (
	firstDelay = 100 * time.Millisecond
	lastDelay  = 2 * time.Minute
)

// Latecomers start the controllers of kinds whose CRD did not exist when the manager started (spec: 30 §4.1).
type Latecomers struct {
	mgr   ctrl.Manager
	log   logr.Logger
	kinds []*latecomer
}

// Late is a kind that may not be served yet.
type Late struct {
	Name   string // for the log: the framework
	CRD    string
	Served func() (bool, error)
}

// latecomer is one kind that is not served yet.
type latecomer struct {
	*Latecomers
	Late
	start func(context.Context) error
	news  chan struct{} // has an entry when its CRD changed
}

// NewLatecomers returns an empty list that logs to log.
func NewLatecomers(mgr ctrl.Manager, log logr.Logger) *Latecomers {
	return &Latecomers{mgr: mgr, log: log}
}

// StartOrWait calls start, now or once the API server serves the kind. A later error of start stops the manager.
func (l *Latecomers) StartOrWait(ctx context.Context, d *job.Descriptor, start func(context.Context) error) error {
	served := func() (bool, error) { return IsServed(l.mgr.GetRESTMapper(), d.GVK) }
	return l.StartLate(ctx, Late{"integration " + d.Framework, d.Resource + "." + d.GVK.Group, served}, start)
}

// StartLate is StartOrWait for kinds that are no job kinds.
func (l *Latecomers) StartLate(ctx context.Context, kind Late, start func(context.Context) error) error {
	served, err := kind.Served()
	switch {
	case err != nil:
		return err
	case served:
		return start(ctx)
	}
	l.kinds = append(l.kinds, &latecomer{Latecomers: l, Late: kind, start: start, news: make(chan struct{}, 1)})
	return nil
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// Setup watches CRDs, if a kind is missing. Call it after StartOrWait.
func (l *Latecomers) Setup(ctx context.Context) error {
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

// changed notifies the kinds of a CRD.
func (l *Latecomers) changed(o any) {
	crd, ok := o.(client.Object)
	if !ok {
		return
	}
	for _, k := range l.kinds {
		if crd.GetName() == k.CRD {
			select {
			case k.news <- struct{}{}:
			default:
			}
		}
	}
}

// Start waits until the kind is served, then starts its controller.
func (k *latecomer) Start(ctx context.Context) error {
	delay := lastDelay
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.news:
			delay = firstDelay // it takes a moment until a new kind is served
		case <-time.After(delay):
			delay = min(2*delay, lastDelay)
		}
		served, err := k.Served()
		if err != nil {
			k.log.Error(err, "It is not known whether the kind exists", "crd", k.CRD)
		}
		if !served {
			continue
		}
		k.log.Info("The kind is served now", "crd", k.CRD)
		if err := k.start(ctx); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		return nil
	}
}

// NeedLeaderElection is false: the started controllers wait for leadership themselves.
func (k *latecomer) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = (*latecomer)(nil)
