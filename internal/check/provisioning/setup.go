// Package provisioning runs the admission check that asks a cluster autoscaler for nodes: AdmissionChecks of
// kueue.x-k8s.io/provisioning-request. Package check/plan/provisioning decides; this one reads. Workloads are answered while the API server
// serves ProvisioningRequests, whose CRD may come and go. (spec: 20 §2.6, §4.18)
package provisioning

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check"
	plan "github.com/berth-project/berth/internal/check/plan/provisioning"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/reconcile"
)

// Options configure the check.
type Options struct {
	// DeleteOnEviction is the feature gate CleanupProvisioningRequestsOnEviction.
	DeleteOnEviction bool
	Events           reconcile.Events
	// Workers is how many Workloads are reconciled at once.
	Workers int
	Now     func() time.Time
	Log     logr.Logger
}

// crdName is the CRD of ProvisioningRequests.
const crdName = plan.Resource + "." + plan.Group

// The indexes of own objects: by the UID of the Workload.
const (
	byOwner    = "provisioning.owner"
	byWorkload = "provisioning.workload"
)

// provisioner is the check.
type provisioner struct {
	Options
	cache, live client.Reader

	mu sync.Mutex
	// version of the API that is served, "" before. byCRD: a CRD serves it, and no other API server.
	version string
	byCRD   bool
	read    crdFacts
}

// crdFacts are about the generation of the CRD that was read last.
type crdFacts struct {
	uid        types.UID
	generation int64
	serves     bool // the version in use
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;provisioningrequestconfigs;resourceflavors,verbs=get;list;watch,roleName=kueue-manager-provisioning-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks/status;workloads/status,verbs=patch,roleName=kueue-manager-provisioning-role
// +kubebuilder:rbac:groups=autoscaling.x-k8s.io,resources=provisioningrequests,verbs=get;list;watch;create;delete,roleName=kueue-manager-provisioning-role
// +kubebuilder:rbac:groups=autoscaling.x-k8s.io,resources=provisioningrequests/finalizers,verbs=update,roleName=kueue-manager-provisioning-role
// +kubebuilder:rbac:groups="",resources=podtemplates,verbs=get;list;watch;create;patch;delete,roleName=kueue-manager-provisioning-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/finalizers,verbs=update,roleName=kueue-manager-provisioning-role

// Setup adds the controllers to the manager. The one of Workloads starts once the API server serves ProvisioningRequests.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	p := &provisioner{Options: o, cache: mgr.GetCache(), live: mgr.GetAPIReader()}
	served := make(chan event.GenericEvent, 1)
	activity := &check.Activity{Controller: kueue.ProvisioningRequestControllerName, Active: p.active}
	err := activity.Setup(mgr, "provisioning_admissioncheck", func(b *builder.Builder) {
		b.Watches(&kueue.ProvisioningRequestConfig{}, handler.EnqueueRequestsFromMapFunc(p.checksOfConfig)).
			Watches(crd(), handler.EnqueueRequestsFromMapFunc(p.allChecks), builder.WithPredicates(isCRD)).
			WatchesRawSource(source.Channel(served, handler.EnqueueRequestsFromMapFunc(p.allChecks)))
	})
	if err != nil {
		return err
	}
	late := lookup.NewLatecomers(mgr, o.Log)
	version := func() (string, error) {
		for _, v := range plan.Versions {
			is, err := lookup.IsServed(mgr.GetRESTMapper(), schema.GroupVersionKind{Group: plan.Group, Version: v, Kind: plan.Kind})
			if err != nil || is {
				return v, err
			}
		}
		return "", nil
	}
	kind := lookup.Late{Name: "ProvisioningRequests", CRD: crdName, Served: func() (bool, error) {
		v, err := version()
		return err == nil && v != "", err
	}}
	err = late.StartLate(ctx, kind, func(ctx context.Context) error {
		v, err := version()
		if err == nil {
			err = p.start(ctx, mgr, v)
		}
		served <- event.GenericEvent{Object: &kueue.AdmissionCheck{}}
		return err
	})
	if err != nil {
		return err
	}
	return late.Setup(ctx)
}

// start adds the controller of Workloads.
func (p *provisioner) start(ctx context.Context, mgr ctrl.Manager, version string) error {
	err := p.live.Get(ctx, client.ObjectKey{Name: crdName}, crd())
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the CRD of ProvisioningRequests: %w", err)
	}
	p.mu.Lock()
	p.version, p.byCRD = version, err == nil
	p.mu.Unlock()
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, request(version), byOwner, lookup.ControllerUID); err != nil {
		return fmt.Errorf("indexing ProvisioningRequests: %w", err)
	}
	err = indexer.IndexField(ctx, podTemplate(), byWorkload, func(o client.Object) []string {
		return []string{o.GetAnnotations()[plan.WorkloadUIDAnnotation]}
	})
	if err != nil {
		return fmt.Errorf("indexing PodTemplates: %w", err)
	}
	c := &check.Controller{
		Name: kueue.ProvisioningRequestControllerName, Observe: p.observe, Events: p.Events, Workers: p.Workers, Now: p.Now,
	}
	workloadsOf := func(checks handler.MapFunc) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (out []ctrlreconcile.Request) {
			for _, r := range checks(ctx, o) {
				out = append(out, c.OfCheck(ctx, r.Name)...)
			}
			return out
		})
	}
	owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &kueue.Workload{}, handler.OnlyControllerOwner())
	return c.Setup(mgr, "provisioning_workload", func(b *builder.Builder) {
		b.Watches(request(version), c.OwnEvents(owner)).
			Watches(&kueue.ProvisioningRequestConfig{}, workloadsOf(p.checksOfConfig), builder.WithPredicates(reconcile.Edited())).
			Watches(crd(), workloadsOf(p.allChecks), builder.WithPredicates(isCRD, created)). // its checks may have been active all the time
			Watches(podTemplate(), c.OwnEvents(handler.EnqueueRequestsFromMapFunc(p.workloadOf)), builder.WithPredicates(predicate.Funcs{
				CreateFunc: func(event.CreateEvent) bool { return false }, // ours
				UpdateFunc: func(event.UpdateEvent) bool { return false },
			}))
	})
}

func request(version string) *unstructured.Unstructured {
	return view.New(schema.GroupVersionKind{Group: plan.Group, Version: version, Kind: plan.Kind})
}

func podTemplate() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodTemplate"}}
}

func crd() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}}
}

// created passes objects that are there for the first time, also in place of one whose deletion was missed.
var created = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

var isCRD = predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == crdName })

// workloadOf returns the Workload of a PodTemplate that was deleted: another attempt may wait for its name.
func (p *provisioner) workloadOf(ctx context.Context, o client.Object) []ctrlreconcile.Request {
	uid := types.UID(o.GetAnnotations()[plan.WorkloadUIDAnnotation])
	return reconcile.Matching(ctx, p.cache, &kueue.WorkloadList{}, "Workloads", func(w *kueue.Workload) bool { return w.UID == uid },
		client.InNamespace(o.GetNamespace()))
}

func (p *provisioner) allChecks(ctx context.Context, _ client.Object) []ctrlreconcile.Request {
	return check.Of(ctx, p.cache, kueue.ProvisioningRequestControllerName, func(*kueue.AdmissionCheck) bool { return true })
}

func (p *provisioner) checksOfConfig(ctx context.Context, config client.Object) []ctrlreconcile.Request {
	return check.Of(ctx, p.cache, kueue.ProvisioningRequestControllerName, func(c *kueue.AdmissionCheck) bool {
		return c.Spec.Parameters != nil && c.Spec.Parameters.Name == config.GetName()
	})
}

// served returns the version of ProvisioningRequests that is served, or why none is: none can be created while the CRD is being deleted, and
// the controller of Workloads keeps the version that it started with.
func (p *provisioner) served(ctx context.Context) (version, why string, err error) {
	p.mu.Lock()
	version, byCRD := p.version, p.byCRD
	p.mu.Unlock()
	switch {
	case version == "":
		return "", notServed, nil
	case !byCRD:
		return version, "", nil
	}
	found := crd()
	err = p.cache.Get(ctx, client.ObjectKey{Name: crdName}, found)
	switch {
	case apierrors.IsNotFound(err) || found.DeletionTimestamp != nil:
		return "", notServed, nil
	case err != nil:
		return "", "", err
	}
	serves, err := p.crdServes(ctx, found, version)
	if err != nil || !serves {
		return "", fmt.Sprintf("the API server no longer serves ProvisioningRequests in version %s, with which Berth started: restart Berth", version), err
	}
	return version, "", nil
}

// crdServes reports whether the CRD serves a version. It is watched as metadata only, and read once for each generation.
func (p *provisioner) crdServes(ctx context.Context, shown *metav1.PartialObjectMetadata, version string) (bool, error) {
	p.mu.Lock()
	known := p.read
	p.mu.Unlock()
	if known.uid == shown.UID && known.generation == shown.Generation {
		return known.serves, nil
	}
	whole := view.New(shown.GroupVersionKind())
	if err := p.live.Get(ctx, client.ObjectKeyFromObject(shown), whole); err != nil {
		return false, fmt.Errorf("reading the CRD of ProvisioningRequests: %w", err)
	}
	known = crdFacts{uid: shown.UID, generation: shown.Generation}
	versions, _, _ := unstructured.NestedSlice(whole.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["name"] == version && v["served"] == true {
			known.serves = true
		}
	}
	p.mu.Lock()
	p.read = known
	p.mu.Unlock()
	return known.serves, nil
}
