package lookup

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Gate asks the hard gate about an object, and reads the owners that it needs.
type Gate struct {
	cfg         *job.Config
	rules       job.Ownership
	descriptors map[schema.GroupVersionKind]*job.Descriptor // of the kinds in the cache
	cache, live client.Reader
	// confirmed has the versions of stored objects and owners for which the API server has confirmed that an owner has not made the object.
	confirmed *lru.Cache
}

// maxConfirmed is the number of objects in Gate.confirmed.
const maxConfirmed = 1 << 16

// NewGate returns a Gate that reads namespaces, and owners of enabled kinds, from the cache, and everything else from the API
// server. The descriptors are of all kinds.
func NewGate(cfg *job.Config, descriptors []*job.Descriptor, cache, live client.Reader) *Gate {
	g := &Gate{
		cfg: cfg, rules: job.NewOwnership(cfg, descriptors), descriptors: map[schema.GroupVersionKind]*job.Descriptor{},
		cache: cache, live: live, confirmed: lru.New(maxConfirmed),
	}
	if g.rules != nil {
		g.rules[replicaSet] = replicaSets()
	}
	for _, d := range descriptors {
		if cfg.Kinds[d.GVK] && !d.Serving { // others are not watched
			g.descriptors[d.GVK] = d
		}
	}
	return g
}

// Judge judges an object of a described kind; namespace is for objects without one yet. The error means a failed read; a missing
// owner is part of the verdict. A verdict that an owner has not made the object is confirmed with owners from the API server.
func (g *Gate) Judge(ctx context.Context, d *job.Descriptor, namespace string, object metav1.Object) (job.Verdict, error) {
	return g.judge(ctx, d, namespace, object, false)
}

// judge is Judge. For a stored object, it confirms a verdict once for each version of the object and its owners: the owners were read after this
// version of the object was stored, so a newer version of an owner has not made it.
func (g *Gate) judge(ctx context.Context, d *job.Descriptor, namespace string, object metav1.Object, stored bool) (job.Verdict, error) {
	labels, err := g.namespaceLabels(ctx, namespace)
	if err != nil {
		return job.Verdict{}, err
	}
	v, chain, cached, err := g.climb(ctx, labels, d, namespace, object, g.cache)
	if err != nil || v.NotMade == nil || !cached {
		return v, err
	}
	if versions, ok := g.confirmed.Get(object.GetUID()); ok && stored && versions == versionsOf(object, chain) {
		return v, nil
	}
	v, chain, _, err = g.climb(ctx, labels, d, namespace, object, nil)
	if stored && err == nil && v.NotMade != nil {
		g.confirmed.Add(object.GetUID(), versionsOf(object, chain))
	}
	return v, err
}

// versionsOf identifies the versions of an object and of its owners, all of which exist.
func versionsOf(object metav1.Object, chain []job.Owner) string {
	out := []string{object.GetResourceVersion()}
	for i := range chain {
		out = append(out, string(chain[i].Object.GetUID()), chain[i].Object.GetResourceVersion())
	}
	return strings.Join(out, "/")
}

// IsManaged reports whether objects in a namespace may be touched.
func (g *Gate) IsManaged(ctx context.Context, namespace string) (bool, error) {
	labels, err := g.namespaceLabels(ctx, namespace)
	if err != nil {
		return false, err
	}
	return job.Judge(g.cfg, nil, labels, job.Owner{Object: &metav1.ObjectMeta{}}, nil).Mode != job.Unmanaged, nil
}

// climb judges with owners from the cache, if it is not nil, and the API server. It returns the owners, and whether one is from the cache.
func (g *Gate) climb(
	ctx context.Context, labels map[string]string, d *job.Descriptor, namespace string, object metav1.Object, cache client.Reader,
) (v job.Verdict, chain []job.Owner, cached bool, err error) {
	for {
		v = job.Judge(g.cfg, g.rules, labels, job.Owner{GVK: d.GVK, Object: object}, chain)
		again, err := g.readHeld(ctx, namespace, &v, chain)
		switch {
		case err != nil:
			return v, chain, cached, err
		case again:
			continue
		}
		if v.Need == nil {
			return v, chain, cached, nil
		}
		owner, from, err := g.owner(ctx, namespace, v.Need, cache)
		if err != nil {
			return v, chain, cached, err
		}
		if m := g.rules[owner.GVK]; len(chain) == 0 && m != nil && m.Kind != nil && m.Kind.Refers != nil {
			// Only for the object itself: its own children are held to it, whatever they name above it.
			if of, ok := owner.Object.(job.Object); ok && g.rules.Reads(owner.GVK) {
				if owner.Objects, err = g.Refer(ctx, m.Kind, of); err != nil {
					return v, chain, cached, err
				}
			}
		}
		cached = cached || from
		chain = append(chain, owner)
	}
}

// readHeld reads, once, what an owner holds quota for that cannot have made the object by its plan. It reports whether to judge again.
func (g *Gate) readHeld(ctx context.Context, namespace string, v *job.Verdict, chain []job.Owner) (again bool, err error) {
	if v.NotMade == nil || len(chain) != 1 || chain[0].Held != nil {
		return false, nil
	}
	chain[0].Held, err = g.held(ctx, namespace, &chain[0])
	return chain[0].Held != nil, err
}

// held returns the pod sets of the Workload that holds quota for an owner whose controller plans its pods; nil if there is none.
func (g *Gate) held(ctx context.Context, namespace string, owner *job.Owner) ([]kueue.PodSet, error) {
	d, o := g.descriptors[owner.GVK], owner.Object
	object, ok := o.(job.Object)
	if d == nil || d.Planned == nil || !ok {
		return nil, nil
	}
	names := job.WorkloadNames(owner.GVK, object)
	if prebuilt := g.cfg.PrebuiltName(object); prebuilt != "" {
		names = []string{prebuilt}
	}
	for _, name := range names {
		var w kueue.Workload
		err := g.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &w)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading workload %s/%s: %w", namespace, name, err)
		}
		if err == nil && metav1.IsControlledBy(&w, object) && lifecycle.IsReserved(&w) {
			return w.Spec.PodSets, nil
		}
	}
	return nil, nil
}

// JudgeExisting judges a stored job: by its mark if its kind runs once.
func (g *Gate) JudgeExisting(ctx context.Context, d *job.Descriptor, object job.Object) (job.Verdict, error) {
	if d.Once == nil {
		return g.judge(ctx, d, object.GetNamespace(), object, true)
	}
	labels, err := g.namespaceLabels(ctx, object.GetNamespace())
	return job.JudgeMarked(g.cfg, labels, d.Once.Marked(object, g.cfg)), err
}

// Runs reports whether an owner is a job that is neither suspended nor finished; false for kinds that are not cached.
func (g *Gate) Runs(owner *job.Owner) bool {
	d, o := g.descriptors[owner.GVK], owner.Object
	object, ok := o.(job.Object)
	if _, partial := o.(*metav1.PartialObjectMetadata); d == nil || !ok || partial {
		return false
	}
	return d.Runs(object)
}

// namespaceLabels reads the cache, then the API server for a new namespace.
func (g *Gate) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	var ns corev1.Namespace
	err := g.cache.Get(ctx, client.ObjectKey{Name: name}, &ns)
	if apierrors.IsNotFound(err) {
		err = g.live.Get(ctx, client.ObjectKey{Name: name}, &ns)
	}
	if err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return ns.Labels, nil
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Refer reads the objects that a job refers to. The job must have a namespace. References with impossible names are skipped: the
// API server, or the rules of the kind, refuse the job.
func (g *Gate) Refer(ctx context.Context, d *job.Descriptor, object job.Object) (map[job.Reference]job.Object, error) {
	if d.Refers == nil {
		return nil, nil
	}
	out := map[job.Reference]job.Object{}
	for _, ref := range d.Refers(object) {
		if ref.Name == "" || len(content.IsPathSegmentName(ref.Name)) > 0 {
			continue
		}
		key := client.ObjectKey{Name: ref.Name}
		if !ref.Cluster {
			key.Namespace = object.GetNamespace()
		}
		found := view.New(ref.GVK)
		reader := g.cache
		if ref.Uncached {
			reader = g.live
		}
		err := reader.Get(ctx, key, found)
		switch {
		case err == nil:
			out[ref] = found
		case !apierrors.IsNotFound(err) && !apimeta.IsNoMatchError(err): // no object exists of a kind that is not served
			return nil, fmt.Errorf("reading %s %s: %w", ref.GVK.Kind, key, err)
		}
	}
	return out, nil
}

// owner reads one owner, and reports whether it is from the cache, which must have the right UID. An owner that does not exist has
// no object.
func (g *Gate) owner(ctx context.Context, namespace string, ref *metav1.OwnerReference, cache client.Reader) (job.Owner, bool, error) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	key := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	if d := g.descriptors[gvk]; d != nil && cache != nil {
		object := d.New()
		if err := cache.Get(ctx, key, object); err == nil && object.GetUID() == ref.UID {
			return job.Owner{GVK: gvk, Object: object}, true, nil
		}
	}
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(gvk)
	var object client.Object = partial
	if g.rules.Reads(gvk) {
		object = g.rules[gvk].New()
	}
	switch err := g.live.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return job.Owner{GVK: gvk}, false, nil
	case err != nil:
		return job.Owner{}, false, fmt.Errorf("reading owner %s %s: %w", ref.Kind, key, err)
	}
	return job.Owner{GVK: gvk, Object: object}, false, nil
}

// replicaSets describes the ReplicaSets of Deployments.
func replicaSets() *job.Maker {
	return &job.Maker{
		New: func() job.Object { return &appsv1.ReplicaSet{} },
		Children: []job.Child{{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Made: func(k *job.OwnedBy) error {
			owner := k.Owner.(*appsv1.ReplicaSet)
			if !job.HasPrefix(k.Child, owner.Name) {
				return job.ErrOtherName
			}
			return job.MadePod(k.Child, &owner.Spec.Template.Spec)
		}}},
	}
}
