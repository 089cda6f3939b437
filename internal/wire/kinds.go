package wire

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/reconcile"
)

// Kinds returns the job kinds that a configuration enables.
func Kinds(o *options.Options) []*job.Descriptor { return managed(o, all.DescriptorsWith(o)) }

func managed(o *options.Options, list []*job.Descriptor) []*job.Descriptor {
	kinds := lookup.NewConfig(o).Kinds
	return slices.DeleteFunc(slices.Clone(list), func(d *job.Descriptor) bool { return !kinds[d.GVK] })
}

// jobKinds are the job kinds of a manager. Its controllers and webhooks share them, since descriptors record the capabilities of the
// controllers of their kinds.
type jobKinds struct {
	list   []*job.Descriptor
	reader client.Reader
	log    logr.Logger
	pods   *reconcile.Pods // of kinds with child gating
}

func newJobKinds(ctx context.Context, mgr ctrl.Manager, cfg *Config) (*jobKinds, error) {
	k := &jobKinds{list: all.DescriptorsWith(&cfg.Options), reader: mgr.GetAPIReader(), log: cfg.Log}
	cfg.shareRuntimes(k.list)
	for _, d := range k.list {
		if !d.ManagedChildren.CanGate() {
			continue
		}
		if k.pods == nil { // the jobs of all such kinds have pods with the same labels
			var err error
			if k.pods, err = reconcile.NewGatedPods(mgr, d.ManagedChildren.PodLabel, d.ManagedChildren.PodLabels...); err != nil {
				return nil, err
			}
			if err := lookup.IndexPods(ctx, k.pods); err != nil {
				return nil, err
			}
		}
		if err := k.ready(ctx, d); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// dependents is what the webhooks know of jobs with gated children: each ungated pod asks for all of its job.
func (k *jobKinds) dependents(ctx context.Context, c cache.Cache) (*lookup.Source, error) {
	list := func() client.ObjectList { return &kueue.WorkloadList{} }
	owned, err := reconcile.NewIndex(ctx, c, &kueue.Workload{}, list, "berth.owned", lookup.ControllerUID)
	if err != nil {
		return nil, err
	}
	workloads := func(ctx context.Context, of metav1.Object) (out []*kueue.Workload, _ error) {
		for _, w := range owned.Find(ctx, of.GetNamespace(), string(of.GetUID())) {
			out = append(out, w.(*kueue.Workload).DeepCopy())
		}
		return out, nil
	}
	return &lookup.Source{Children: c, Pods: lookup.CachedPods(k.pods), Workloads: workloads}, nil
}

// ready updates a kind from its CRD: at the start of the manager, and when the kind is served later.
func (k *jobKinds) ready(ctx context.Context, d *job.Descriptor) error {
	if !d.ManagedChildren.CanGate() {
		return nil
	}
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	err := k.reader.Get(ctx, client.ObjectKey{Name: d.Resource + "." + d.GVK.Group}, crd)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the CRD of %s: %w", d.Resource, err)
	}
	if news := d.ManagedChildren.Upgrades.Learn(crd.Object); news != "" {
		k.log.WithName(strings.ToLower(d.GVK.Kind)).Info(news)
	}
	return nil
}
