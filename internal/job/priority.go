package job

import (
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Classes are the priority classes that a job may use: the classes of ClassNames, and the default.
type Classes struct {
	Workload map[string]*kueue.WorkloadPriorityClass
	Pod      map[string]*schedulingv1.PriorityClass
	// Default is the DefaultClass.
	Default *schedulingv1.PriorityClass
}

// DefaultClass returns the global default class, the one with the lowest value if there are several; nil if there is none.
func DefaultClass(classes []schedulingv1.PriorityClass) (found *schedulingv1.PriorityClass) {
	for i := range classes {
		if c := &classes[i]; c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found
}

// Priority is the priority of a Workload and where it came from. A nil Ref means no class.
type Priority struct {
	Ref   *kueue.PriorityClassRef
	Value int32
}

// MissingClassError means that a priority class does not exist.
type MissingClassError struct {
	Kind kueue.PriorityClassKind
	Name string
}

func (e *MissingClassError) Error() string {
	return fmt.Sprintf("%s %q does not exist: create it or name another one", e.Kind, e.Name)
}

// ClassNames returns the WorkloadPriorityClass of the job's label, and the PriorityClass that applies without one. Either may be
// empty.
func ClassNames(d *Descriptor, job Object, podSets []kueue.PodSet) (workload, pod string) {
	workload = job.GetLabels()[kueue.PriorityClassLabel]
	if d.PriorityClass != nil {
		pod = d.PriorityClass(job)
	}
	for i := 0; pod == "" && i < len(podSets); i++ {
		pod = podSets[i].Template.Spec.PriorityClassName
	}
	return workload, pod
}
