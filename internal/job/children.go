package job

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Family is about a kind whose jobs make other objects, which have pods that may outlive them: its controller says that a
// job is over as soon as those objects are gone. Such a job keeps its quota until the pods are gone, too.
type ManagedChildren struct {
	// Child is the kind of the objects that a job controls. All their pods have the label PodLabel; PodLabels are further
	// ones that are looked at.
	Child     schema.GroupVersionKind
	PodLabel  string
	PodLabels []string
	// IsActive reports whether an object of the job, or a pod of one, may still use resources.
	IsActive func(job Object, in *Setting) bool
	// Others are the labels of further pods of a job, which none of its objects controls. Nobody watches them: they are looked
	// for while a job that is stopped has quota. Nil: there are none.
	Others func(job Object) map[string]string
	// Upgrades has elastic jobs led. Nil: they never are.
	Upgrades *Upgrades
}

// Upgrades is about a kind that replaces the objects of a Family while a job runs. An elastic job of it is led: nothing is written into its
// templates, since that would make its controller replace what runs. Its objects, and then their pods, are let go one by one as far as the
// slice that is admitted has room for them, and the pods get what the admission says when they are. The names of its pod sets
// say what their pods ask for, so that sets come and go with slices (spec: 30 §4.10.3).
type Upgrades struct {
	// Configured reports whether elastic jobs are led, as things are configured, if their controller can do with that.
	Configured func(*Config) bool
	// Learn gets the CRD of the kind when the manager starts, and again when the kind begins to be served. It returns what is new of the
	// controller in a sentence, or nothing.
	Learn func(crd map[string]any) (news string)
	// Leads reports whether elastic jobs are led, as things are configured and as far as is learnt.
	GatesChildren func(*Config) bool
	// Mend puts back what holds the objects and pods of a job, if somebody took it away. It reports whether there is
	// anything to change.
	Repair func(job Object, in *Setting) bool
	// Start lets the job run.
	Start func(job Object, in *Setting)
	// Step finds the next write to what belongs to a job that is led, nil for none.
	Step func(o *Observed, in *Setting) *Action
	// MayRun reports whether a pod of the job that has a gate may lose it now.
	MayRun func(job Object, pod *corev1.Pod, in *Setting) bool
	// Waits tells of a new slice for which of the objects wait. It may be empty.
	Waits func(job Object, in *Setting) []Event
	// Lingers reports whether a job that is deleted still has something to do.
	HoldsDeletion func(job Object, in *Setting) bool
}

// CanLead reports whether there are jobs of the kind that are led; f may be nil.
func (f *ManagedChildren) CanGate() bool { return f != nil && f.Upgrades != nil }
