package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job/topology"
	chain "github.com/berth-project/berth/internal/plan/slices"
)

// PodSetInfo is what the pods of one pod set get when they start.
type PodSetInfo struct {
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

// Ranks are the labels by which the pods of a pod set are told apart.
type Ranks = topology.Ranks

func (c *Config) topology() topology.Gates {
	return topology.Gates{Topology: c.Topology, Layers: c.TopologySliceConstraints}
}

// TopologyRequest derives the topology request of a pod set from its template and the labels of its pods; nil for none.
func (c *Config) TopologyRequest(template *metav1.ObjectMeta, ranks Ranks) *kueue.PodSetTopologyRequest {
	return c.topology().Request(template, ranks)
}

// ValidateTopology checks the annotations that topology requests are made of, for a pod set of count pods.
func (c *Config) ValidateTopology(template *metav1.ObjectMeta, path *field.Path, count int32) field.ErrorList {
	return c.topology().Validate(template, path, count)
}

// Flavors are the ResourceFlavors that are known, by name.
type Flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor

// InfosFromAdmission builds what the pods get from the admission of a Workload, one entry for each assignment. A flavor
// that is missing is an error to be retried; values that contradict each other are permanent (spec: 30 §4.7).
func InfosFromAdmission(cfg *Config, w *kueue.Workload, flavors Flavors) ([]PodSetInfo, error) {
	if w.Status.Admission == nil {
		return nil, fmt.Errorf("workload %s has no admission", w.Name)
	}
	infos := make([]PodSetInfo, 0, len(w.Status.Admission.PodSetAssignments))
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		info := PodSetInfo{Name: a.Name, Labels: cfg.podLabels(w, a.Name), Annotations: map[string]string{}, NodeSelector: map[string]string{}}
		switch {
		case a.Count != nil:
			info.Count = *a.Count
		case i < len(w.Spec.PodSets):
			info.Count = w.Spec.PodSets[i].Count
		}
		if err := info.addFlavors(a, flavors); err != nil {
			return nil, err
		}
		if cfg.Topology {
			info.Annotations[kueue.WorkloadAnnotation] = w.Name
		}
		if cfg.ElasticJobs && IsElastic(w) {
			info.Annotations[kueue.WorkloadSliceNameAnnotation] = chain.Chain(w)
		}
		if a.TopologyAssignment != nil {
			info.SchedulingGates = append(info.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
			if i < len(w.Spec.PodSets) && w.Spec.PodSets[i].TopologyRequest == nil {
				info.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation] = "true"
			}
		}
		if err := info.addChecks(w); err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// podLabels are the labels of every pod of a pod set.
func (c *Config) podLabels(w *kueue.Workload, podSet kueue.PodSetReference) map[string]string {
	out := map[string]string{kueue.PodSetLabel: string(podSet)}
	if w.Labels[kueue.MultiKueueOriginLabel] != "" {
		out[kueue.MultiKueueWorkerWorkloadPodLabel] = "true"
	}
	if !c.AssignQueueLabels {
		return out
	}
	if queue := string(w.Spec.QueueName); queue != "" && len(validation.IsValidLabelValue(queue)) == 0 {
		out[kueue.LocalQueueLabel] = queue
	}
	if queue := string(w.Status.Admission.ClusterQueue); len(validation.IsDNS1123Label(queue)) == 0 {
		out[kueue.ClusterQueueLabel] = queue
	}
	return out
}

// addFlavors adds the node labels and tolerations of the distinct flavors, in the order of their names.
func (i *PodSetInfo) addFlavors(a *kueue.PodSetAssignment, flavors Flavors) error {
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

// addChecks adds the changes that admission checks ask for.
func (i *PodSetInfo) addChecks(w *kueue.Workload) error {
	for _, check := range w.Status.AdmissionChecks {
		for _, update := range check.PodSetUpdates {
			if update.Name != i.Name {
				continue
			}
			err := i.merge(PodSetInfo{
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
func (i *PodSetInfo) merge(other PodSetInfo) error {
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
func (i *PodSetInfo) MergeInto(template *corev1.PodTemplateSpec) error {
	merged := PodSetInfo{
		Labels: cloneMap(template.Labels), Annotations: cloneMap(template.Annotations), NodeSelector: cloneMap(template.Spec.NodeSelector),
		Tolerations: template.Spec.Tolerations, SchedulingGates: template.Spec.SchedulingGates,
	}
	i.forget(merged.Labels, merged.Annotations)
	if err := merged.merge(*i); err != nil {
		return err
	}
	template.Labels, template.Annotations, template.Spec.NodeSelector = orNil(merged.Labels), orNil(merged.Annotations), orNil(merged.NodeSelector)
	template.Spec.Tolerations, template.Spec.SchedulingGates = merged.Tolerations, merged.SchedulingGates
	return nil
}

// RestoreTemplate gives a pod template back what a start may have changed: labels, annotations, node selector,
// tolerations and scheduling gates, as the Workload's template has them. It reports whether that changed anything. Labels
// in keep stay as they are.
func RestoreTemplate(template, from *corev1.PodTemplateSpec, keep ...string) bool {
	wanted := cloneMap(from.Labels)
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
	template.Labels, template.Annotations = orNil(wanted), orNil(cloneMap(from.Annotations))
	template.Spec.NodeSelector = orNil(cloneMap(from.Spec.NodeSelector))
	template.Spec.Tolerations = slices.Clone(from.Spec.Tolerations)
	template.Spec.SchedulingGates = slices.Clone(from.Spec.SchedulingGates)
	return true
}

// cloneMap copies a map; the copy is never nil.
func cloneMap(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	maps.Copy(out, m)
	return out
}

func orNil(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}
