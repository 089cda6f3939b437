package declared

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
)

// passesGates returns an error unless the pods of a job can be placed: a start has to pass to the pods of each pod set the scheduling
// gates, and the label and the annotation by which they are found. It starts a copy of the job with values that occur nowhere else, and
// looks for them (spec: 20 §4.8).
func (k kind) passesGates(o plan.Object, sets []podSet) error {
	probe := o.DeepCopyObject().(plan.Object)
	infos := make([]plan.PodSetInfo, len(sets))
	mark := func(i int) string { return fmt.Sprintf("berth.dev/probe-%d", i) }
	for i := range sets {
		infos[i] = plan.PodSetInfo{
			Labels: map[string]string{kueue.PodSetLabel: "label " + mark(i)}, Annotations: map[string]string{kueue.WorkloadAnnotation: "annotation " + mark(i)},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: mark(i)}},
		}
	}
	if err := k.start(probe, infos, nil); err != nil {
		return err
	}
	has := map[string]bool{}
	collectTexts(tree(probe), has)
	for i := range sets {
		for _, part := range []struct{ field, mark string }{
			{"schedulingGates", mark(i)}, {"labels", "label " + mark(i)}, {"annotations", "annotation " + mark(i)},
		} {
			if !has[part.mark] {
				return fmt.Errorf("pods of pod set %s cannot be placed by topology: inject of declared kind %s does not pass podSets[%d].%s to them",
					sets[i].Name, k.name(), i, part.field)
			}
		}
	}
	return nil
}

// collectTexts adds all texts in a tree.
func collectTexts(at any, to map[string]bool) {
	switch at := at.(type) {
	case string:
		to[at] = true
	case []any:
		for _, child := range at {
			collectTexts(child, to)
		}
	case map[string]any:
		for _, child := range at { //berth:unordered a set
			collectTexts(child, to)
		}
	}
}
