// Package podset says what the pods of an admitted pod set get, merges it into pod templates and takes it out again.
package podset

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Info is what the pods of one pod set get when they start.
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

// ErrPermanent marks errors that trying again cannot mend.
var ErrPermanent = errors.New("cannot be started as admitted")

// ErrNotYet marks errors that end once other objects have caught up.
var ErrNotYet = errors.New("not yet")

// marked is an error that is also another one, with the sentence alone as its text.
type marked struct {
	text string
	as   error
}

func (m marked) Error() string { return m.text }

// Is makes errors.Is(err, ErrPermanent) true, or errors.Is(err, ErrNotYet).
func (m marked) Is(target error) bool { return target == m.as }

// Permanent makes an error that trying again cannot mend.
func Permanent(format string, args ...any) error {
	return marked{fmt.Sprintf(format, args...), ErrPermanent}
}

// NotYet makes an error that ends once other objects have caught up.
func NotYet(format string, args ...any) error { return marked{fmt.Sprintf(format, args...), ErrNotYet} }

// Flavors are the ResourceFlavors that are known, by name.
type Flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor

// AddFlavors adds the node labels and tolerations of the distinct flavors, in the order of their names.
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

// AddChecks adds the changes that admission checks ask for.
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

// merge adds other to i. A key that has another value already is a permanent error; tolerations and gates that are there
// already are left out.
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

// union appends to a what of b it does not have.
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

// Restore gives a pod template back what a start may have changed: labels, annotations, node selector,
// tolerations and scheduling gates, as the Workload's template has them. It reports whether that changed anything. Labels
// in keep stay as they are.
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

// Clone copies a map; the copy is never nil.
func Clone(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	maps.Copy(out, m)
	return out
}

// OrNil is nil for a map without entries.
func OrNil(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

// ownKeys are the labels that only Berth gives to pods: those of an earlier start are overwritten, like the annotations that
// name the chain and the Workload.
var ownKeys = []string{kueue.PodSetLabel, kueue.LocalQueueLabel, kueue.ClusterQueueLabel}

// forget drops what an earlier start of an elastic job left in its template, and the info says anew. The template of a
// slice that was made while the job ran holds it for good (spec: 30 §4.7).
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
