// Package podset computes the values for the pods of an admitted pod set, merges them into pod templates and removes them again.
package podset

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Info has the values for the pods of one pod set at the start.
type Info struct {
	// Name is the pod set's name in the admission.
	Name kueue.PodSetReference
	// Count is the number of pods admitted.
	Count           int32
	Labels          map[string]string
	Annotations     map[string]string
	NodeSelector    map[string]string
	Tolerations     []corev1.Toleration
	SchedulingGates []corev1.PodSchedulingGate
}

// IsPlaced reports whether the pods get the gate that holds them until they have a domain of a topology.
func IsPlaced(i Info) bool {
	return slices.Contains(i.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
}

// ErrPermanent marks errors that a retry cannot resolve.
var ErrPermanent = errors.New("cannot be started as admitted")

// ErrNotYet marks errors that are resolved once other objects are up to date.
var ErrNotYet = errors.New("not yet")

// marked is an error that matches another one, with its own text alone.
type marked struct {
	text string
	as   error
}

func (m marked) Error() string { return m.text }

// Is makes errors.Is(err, ErrPermanent) true, or errors.Is(err, ErrNotYet).
func (m marked) Is(target error) bool { return target == m.as }

// Permanent returns an error that a retry cannot resolve.
func Permanent(format string, args ...any) error {
	return marked{fmt.Sprintf(format, args...), ErrPermanent}
}

// NotYet returns an error that is resolved once other objects are up to date.
func NotYet(format string, args ...any) error { return marked{fmt.Sprintf(format, args...), ErrNotYet} }

// Most is the maximum number of pod sets of a Workload.
const Most = 18

// WrongNumber is the error of a job with a number of pod sets that a Workload does not take.
func WrongNumber(podSets int) error {
	return fmt.Errorf("the job has %d pod sets: a workload takes 1 to %d", podSets, Most)
}

// Flavors are the known ResourceFlavors, by name.
type Flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor

// AddFlavors adds the node labels and tolerations of the distinct flavors, by name.
func (i *Info) AddFlavors(a *kueue.PodSetAssignment, flavors Flavors) error {
	names := slices.Sorted(maps.Values(a.Flavors))
	for _, name := range slices.Compact(names) {
		flavor := flavors[name]
		if flavor == nil {
			return fmt.Errorf("flavor %s of the admission does not exist: create it, or evict the workload", name)
		}
		if err := mergeMap(i.NodeSelector, flavor.Spec.NodeLabels, "node selector"); err != nil {
			return err
		}
		i.Tolerations = append(i.Tolerations, flavor.Spec.Tolerations...)
	}
	return nil
}

// AddChecks adds the pod set updates of admission checks.
func (i *Info) AddChecks(w *kueue.Workload) error {
	for _, check := range w.Status.AdmissionChecks {
		for _, update := range check.PodSetUpdates {
			if update.Name != i.Name {
				continue
			}
			err := i.merge(Info{
				Labels: update.Labels, Annotations: update.Annotations, NodeSelector: update.NodeSelector, Tolerations: update.Tolerations,
			})
			if err != nil {
				return Permanent("admission check %s: %s", check.Name, err)
			}
		}
	}
	return nil
}

// merge adds other to i. A key with a different value is a permanent error; equal tolerations and gates are added once.
func (i *Info) merge(other Info) error {
	for _, m := range []struct {
		what     string
		to, from map[string]string
	}{
		{"label", i.Labels, other.Labels},
		{"annotation", i.Annotations, other.Annotations},
		{"node selector", i.NodeSelector, other.NodeSelector},
	} {
		if err := mergeMap(m.to, m.from, m.what); err != nil {
			return err
		}
	}
	i.Tolerations = union(i.Tolerations, other.Tolerations, SameToleration)
	i.SchedulingGates = union(i.SchedulingGates, other.SchedulingGates, func(a, b corev1.PodSchedulingGate) bool { return a == b })
	return nil
}

// mergeMap adds from to to, which must not be nil.
func mergeMap(to, from map[string]string, what string) error {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		value := from[key]
		if old, ok := to[key]; ok && old != value {
			return Permanent("%s %s is %q already and would have to be %q: remove it from the job or choose another flavor", what, key, old, value)
		}
		to[key] = value
	}
	return nil
}

// union appends the elements of b that a does not have.
func union[T any](a, b []T, same func(T, T) bool) []T {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.ContainsFunc(a, func(y T) bool { return same(x, y) }) {
			out = append(out, x)
		}
	}
	return out
}

// SameToleration compares tolerations; no operator means Equal.
func SameToleration(a, b corev1.Toleration) bool {
	if a.Operator == "" {
		a.Operator = corev1.TolerationOpEqual
	}
	if b.Operator == "" {
		b.Operator = corev1.TolerationOpEqual
	}
	return a.Key == b.Key && a.Operator == b.Operator && a.Value == b.Value && a.Effect == b.Effect &&
		(a.TolerationSeconds == nil) == (b.TolerationSeconds == nil) &&
		(a.TolerationSeconds == nil || *a.TolerationSeconds == *b.TolerationSeconds)
}

// MergeInto adds the info to a pod template. It changes nothing if it fails, and the error is permanent.
func (i *Info) MergeInto(template *corev1.PodTemplateSpec) error {
	merged := Info{
		Labels: Clone(template.Labels), Annotations: Clone(template.Annotations), NodeSelector: Clone(template.Spec.NodeSelector),
		Tolerations: template.Spec.Tolerations, SchedulingGates: template.Spec.SchedulingGates,
	}
	i.forget(merged.Labels, merged.Annotations)
	if err := merged.merge(*i); err != nil {
		return err
	}
	template.Labels, template.Annotations, template.Spec.NodeSelector = OrNil(merged.Labels), OrNil(merged.Annotations), OrNil(merged.NodeSelector)
	template.Spec.Tolerations, template.Spec.SchedulingGates = merged.Tolerations, merged.SchedulingGates
	return nil
}

// Restore resets the fields of a pod template that a start may have changed to the Workload's template: labels, annotations, node
// selector, tolerations and scheduling gates. It reports whether it changed anything. Labels in keep are not changed.
func Restore(template, from *corev1.PodTemplateSpec, keep ...string) bool {
	wanted := Clone(from.Labels)
	for _, key := range keep {
		delete(wanted, key)
		if value, ok := template.Labels[key]; ok {
			wanted[key] = value
		}
	}
	same := maps.Equal(template.Labels, wanted) && maps.Equal(template.Annotations, from.Annotations) &&
		maps.Equal(template.Spec.NodeSelector, from.Spec.NodeSelector) &&
		slices.EqualFunc(template.Spec.Tolerations, from.Spec.Tolerations, SameToleration) &&
		slices.Equal(template.Spec.SchedulingGates, from.Spec.SchedulingGates)
	if same {
		return false
	}
	template.Labels, template.Annotations = OrNil(wanted), OrNil(Clone(from.Annotations))
	template.Spec.NodeSelector = OrNil(Clone(from.Spec.NodeSelector))
	template.Spec.Tolerations = slices.Clone(from.Spec.Tolerations)
	template.Spec.SchedulingGates = slices.Clone(from.Spec.SchedulingGates)
	return true
}

// Annotate sets an annotation of an object. The annotations are copied first, since the object may share them with a cache.
func Annotate(o metav1.Object, key, value string) {
	annotations := Clone(o.GetAnnotations())
	annotations[key] = value
	o.SetAnnotations(annotations)
}

// Unannotate removes an annotation of an object as Annotate sets it, and reports whether there was one.
func Unannotate(o metav1.Object, key string) bool {
	if _, ok := o.GetAnnotations()[key]; !ok {
		return false
	}
	annotations := Clone(o.GetAnnotations())
	delete(annotations, key)
	o.SetAnnotations(OrNil(annotations))
	return true
}

// Clone copies a map; the copy is never nil.
func Clone(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	maps.Copy(out, m)
	return out
}

// Merge copies entries into a map, and makes the map if there are any.
func Merge(to *map[string]string, from map[string]string) {
	if *to == nil && len(from) > 0 {
		*to = make(map[string]string, len(from))
	}
	maps.Copy(*to, from)
}

// OrNil returns nil for an empty map.
func OrNil(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

// ownKeys are the labels that only Berth sets on pods: values of an earlier start are overwritten, like the annotations that name
// the chain and the Workload.
var ownKeys = []string{kueue.PodSetLabel, kueue.LocalQueueLabel, kueue.ClusterQueueLabel}

// forget removes the values of an earlier start that the info sets again: the template of a slice that was made while the job ran
// contains them (spec: 30 §4.7).
func (i *Info) forget(labels, annotations map[string]string) {
	if i.Annotations[kueue.WorkloadSliceNameAnnotation] == "" {
		return
	}
	delete(annotations, kueue.WorkloadSliceNameAnnotation)
	if i.Annotations[kueue.WorkloadAnnotation] != "" {
		delete(annotations, kueue.WorkloadAnnotation)
	}
	for _, key := range ownKeys {
		delete(labels, key)
	}
}
