// Package view makes descriptors of job kinds whose Go types are not ours.
//
//	object (a tree of maps) ─► Roles: name, count, template ─► pod sets
//	                                            ▲
//	start, restore: five fields of each template ┘
//
// A [Kind] has the paths and functions to read the parts of an object. Only the
// fields that Berth sets are ever written, so that fields unknown to this version
// stay unchanged.
package view

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// Object is a job, as a tree of maps.
type Object = *unstructured.Unstructured

// Of converts a job of a kind of this package.
func Of(o job.Object) Object { return o.(Object) }

// Role is a group of pods of a job.
type Role struct {
	// Name is the name of the pod set.
	Name  string
	Count int32
	// Template is the pod template in the job itself, not a copy.
	Template map[string]any
	// Path is the path of the template, for messages; CountPath is the field with the number of pods, nil if there is none.
	Path, CountPath *field.Path
	// Jobs, if not nil, is the number of Jobs that make the pods; CountPath is then the number of Jobs.
	Jobs *int32
	// Ranks are the labels that number the pods.
	Ranks job.Ranks
	// Shape adapts the template in the Workload to the pods that are made from it. It may be nil.
	Shape func(*corev1.PodTemplateSpec)
}

// Kind describes one kind of jobs. Paths start at the top of the object.
type Kind struct {
	Framework string
	GVK       schema.GroupVersionKind
	Resource  string

	// Suspend is the field that suspends the job.
	Suspend []string
	// ManagedBy is the field for the controller that runs the job, empty if there is none, and OwnManager its usual value.
	ManagedBy  []string
	OwnManager string
	// TTL is the field for how long a finished job stays. Copies lack it: a worker must not delete one before its manager has observed the end.
	TTL []string

	// Roles are the groups of pods, in the order of their pod sets.
	Roles func(Object, *job.Setting) ([]Role, error)
	// Finished, IsActive and PodsReady are as in the descriptor.
	Finished  func(Object) (message string, success, finished bool)
	IsActive  func(Object) bool
	PodsReady func(Object, []Role) bool

	// The other fields are optional.

	// Begin changes the job at its start, before its templates are changed.
	Begin func(Object, *job.Setting)
	// Reclaimable counts pods that are no longer needed, for each role.
	Reclaimable func(Object, []Role) []kueue.ReclaimablePod
	// Validate adds to the rules of topology. The roles are nil if they cannot be found.
	Validate func(job, old Object, roles []Role, in *job.Setting) field.ErrorList
	// Groups allows pod sets to be placed together by podset-group-name (spec: 30 §3.3).
	Groups bool
	// NoPrebuilt refuses jobs that name a Workload.
	NoPrebuilt bool
}

// Descriptor returns the descriptor of the kind. Its parts may be replaced.
func (k Kind) Descriptor() *job.Descriptor {
	d := &job.Descriptor{
		Framework: k.Framework, GVK: k.GVK, Resource: k.Resource, Prebuilt: !k.NoPrebuilt,
		New:         func() job.Object { return New(k.GVK) },
		NewList:     func() runtime.Object { return NewList(k.GVK) },
		PodSets:     k.podSets,
		IsSuspended: func(o job.Object) bool { return Bool(Of(o).Object, k.Suspend...) },
		Suspend:     func(o job.Object) { Set(Of(o).Object, true, k.Suspend...) },
		Resume:      func(o job.Object) { Set(Of(o).Object, false, k.Suspend...) },
		Start:       k.start,
		Restore:     k.restore,
		Finished:    func(o job.Object) (string, bool, bool) { return k.Finished(Of(o)) },
		IsActive:    func(o job.Object) bool { return k.IsActive(Of(o)) },
		PodsReady: func(o job.Object, in *job.Setting) bool {
			roles, err := k.Roles(Of(o), in)
			return err == nil && k.PodsReady(Of(o), roles)
		},
		Validate: k.validate,
		Sizes:    k.sizes,
	}
	if k.Reclaimable != nil {
		d.Reclaimable = func(o job.Object, in *job.Setting) []kueue.ReclaimablePod {
			roles, err := k.Roles(Of(o), in)
			if err != nil {
				return nil
			}
			return k.Reclaimable(Of(o), roles)
		}
	}
	if k.ManagedBy != nil {
		d.OwnManager = k.OwnManager
		d.Remote = &job.Remote{ManagedBy: k.ManagedBy}
		if k.TTL != nil {
			d.Remote.Prepare = func(tree map[string]any) { unstructured.RemoveNestedField(tree, k.TTL...) }
		}
		d.ManagedBy = func(o job.Object) string { return String(Of(o).Object, k.ManagedBy...) }
		d.SetManagedBy = func(o job.Object, name string) { Set(Of(o).Object, name, k.ManagedBy...) }
	}
	return d
}

// New returns an empty object of a kind.
func New(gvk schema.GroupVersionKind) Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// NewList returns an empty list of a kind.
func NewList(gvk schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	gvk.Kind += "List"
	l.SetGroupVersionKind(gvk)
	return l
}

func (k Kind) podSets(o job.Object, in *job.Setting) ([]kueue.PodSet, error) {
	return PodSetsOf(Of(o), k.Roles, in)
}

// PodSetsOf returns the pod sets of the roles of a job.
func PodSetsOf(o Object, find func(Object, *job.Setting) ([]Role, error), in *job.Setting) ([]kueue.PodSet, error) {
	roles, err := find(o, in)
	if err != nil {
		return nil, err
	}
	out := make([]kueue.PodSet, 0, len(roles))
	for i := range roles {
		r := &roles[i]
		template, err := r.template()
		if err != nil {
			return nil, err
		}
		if r.Shape != nil {
			r.Shape(template)
		}
		out = append(out, kueue.PodSet{
			Name: kueue.PodSetReference(r.Name), Count: r.Count, Template: *template, TopologyRequest: in.TopologyRequest(&template.ObjectMeta, r.Ranks),
		})
	}
	return out, nil
}

// template reads the pod template into its Go type.
func (r *Role) template() (*corev1.PodTemplateSpec, error) {
	out := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.Template, out); err != nil {
		return nil, fmt.Errorf("%s is no pod template: %w", r.Path, err)
	}
	return out, nil
}

func (k Kind) start(o job.Object, infos []job.PodSetInfo, in *job.Setting) error {
	if k.Begin != nil {
		k.Begin(Of(o), in)
	}
	roles, err := k.Roles(Of(o), in)
	if err != nil {
		return err
	}
	if len(infos) != len(roles) {
		return podset.Permanent("the admission has %d pod sets and the %s has %d", len(infos), k.GVK.Kind, len(roles))
	}
	for i := range roles {
		if err := roles[i].merge(&infos[i]); err != nil {
			return err
		}
	}
	Set(Of(o).Object, false, k.Suspend...)
	return nil
}

func (r *Role) merge(info *job.PodSetInfo) error {
	template, err := r.template()
	if err != nil {
		return err
	}
	if err := info.MergeInto(template); err != nil {
		return err
	}
	return Directives(r.Template, template)
}

func (k Kind) restore(o job.Object, podSets []kueue.PodSet) bool {
	roles, err := k.Roles(Of(o), nil)
	if err != nil || len(roles) != len(podSets) {
		return false
	}
	changed := false
	for i := range roles {
		template, err := roles[i].template()
		if err == nil && podset.Restore(template, &podSets[i].Template) {
			changed = Directives(roles[i].Template, template) == nil || changed
		}
	}
	return changed
}

// Directives writes the fields of a template that Berth may change: labels, annotations, node selector, tolerations and scheduling
// gates.
func Directives(template map[string]any, from *corev1.PodTemplateSpec) error {
	tolerations, err := tree(from.Spec.Tolerations)
	if err != nil {
		return err
	}
	gates, err := tree(from.Spec.SchedulingGates)
	if err != nil {
		return err
	}
	put(template, stringMap(from.Labels), "metadata", "labels")
	put(template, stringMap(from.Annotations), "metadata", "annotations")
	put(template, stringMap(from.Spec.NodeSelector), "spec", "nodeSelector")
	put(template, tolerations, "spec", "tolerations")
	put(template, gates, "spec", "schedulingGates")
	return nil
}

// tree converts a list of values to maps; nil for an empty one.
func tree[T any](list []T) (any, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make([]any, 0, len(list))
	for i := range list {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&list[i])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// stringMap converts a map to a tree; nil for an empty one.
func stringMap(m map[string]string) any {
	if len(m) == 0 {
		return nil
	}
	return Texts(m)
}

// Texts converts a map to a tree.
func Texts(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for key, value := range m { //berth:unordered copies a map
		out[key] = value
	}
	return out
}

// sizes returns the pods of each role, or the Jobs that make them. Roles that cannot be read have none.
func (k Kind) sizes(o job.Object, in *job.Setting) []job.Size {
	roles, err := k.Roles(Of(o), in)
	if err != nil {
		return nil
	}
	out := make([]job.Size, 0, len(roles))
	for i := range roles {
		r := &roles[i]
		part := job.Size{Path: cmp.Or(r.CountPath, r.Path), What: "pods", N: r.Count}
		if r.Jobs != nil {
			part.What, part.N = "Jobs", *r.Jobs
		}
		out = append(out, part)
	}
	return out
}

func (k Kind) validate(o, old job.Object, in *job.Setting) field.ErrorList {
	roles, err := k.Roles(Of(o), in)
	var errs field.ErrorList
	var templates []*corev1.PodTemplateSpec
	for i := range roles {
		template, err := roles[i].template()
		if err != nil {
			errs = append(errs, field.Invalid(roles[i].Path, nil, err.Error()))
			continue
		}
		templates = append(templates, template)
		errs = append(errs, in.ValidateTopology(&template.ObjectMeta, roles[i].Path.Child("metadata"), roles[i].Count)...)
	}
	if k.Groups && len(templates) == len(roles) {
		errs = append(errs, groups(roles, templates, in)...)
	}
	var before Object
	if old != nil {
		before = Of(old)
	}
	if invalid, ok := errors.AsType[*field.Error](err); ok {
		errs = append(errs, invalid)
	}
	if k.Validate != nil {
		errs = append(errs, k.Validate(Of(o), before, roles, in)...)
	}
	return errs
}

// groups checks that pod sets that are placed together are two with the same topology (spec: 30 §3.3).
func groups(roles []Role, templates []*corev1.PodTemplateSpec, in *job.Setting) field.ErrorList {
	if !in.Topology {
		return nil
	}
	var errs field.ErrorList
	members := map[string][]int{}
	for i, t := range templates {
		if name, ok := t.Annotations[kueue.PodSetGroupNameAnnotation]; ok {
			members[name] = append(members[name], i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		of := members[name]
		path := func(i int) *field.Path {
			return roles[i].Path.Child("metadata", "annotations").Key(kueue.PodSetGroupNameAnnotation)
		}
		if len(of) != 2 {
			errs = append(errs, field.Invalid(path(of[0]), name, fmt.Sprintf("must be on exactly 2 pod templates, not %d", len(of))))
			continue
		}
		a, b := templates[of[0]].Annotations, templates[of[1]].Annotations
		if roles[of[0]].Count != 1 && roles[of[1]].Count != 1 {
			errs = append(errs, field.Invalid(path(of[0]), name, "one of the two must have exactly 1 pod"))
		}
		if wish(a) != wish(b) {
			errs = append(errs, field.Invalid(path(of[1]), name, "the two must require or prefer the same topology"))
		}
	}
	return errs
}

// wish is the topology that a template requires or prefers.
func wish(annotations map[string]string) [2]string {
	return [2]string{annotations[kueue.PodSetRequiredTopologyAnnotation], annotations[kueue.PodSetPreferredTopologyAnnotation]}
}

// FinishedBy returns a Finished function that reads two conditions.
func FinishedBy(succeeded, failed string) func(Object) (string, bool, bool) {
	return func(o Object) (message string, success, finished bool) {
		for _, c := range Maps(o.Object, "status", "conditions") {
			kind := String(c, "type")
			if String(c, "status") == string(metav1.ConditionTrue) && (kind == succeeded || kind == failed) {
				return String(c, "message"), kind == succeeded, true
			}
		}
		return "", false, false
	}
}

// HasCondition reports whether a condition is true.
func HasCondition(o Object, kind string) bool {
	return slices.ContainsFunc(Maps(o.Object, "status", "conditions"), func(c map[string]any) bool {
		return String(c, "type") == kind && String(c, "status") == string(metav1.ConditionTrue)
	})
}
