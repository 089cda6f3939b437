package job

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ManagedChildren describes a kind whose jobs make other objects, with pods that may outlive them: its controller reports a job as
// finished as soon as those objects are deleted. Such a job keeps its quota until the pods are gone, too.
type ManagedChildren struct {
	// Child is the kind of the objects that a job controls. All their pods have the label PodLabel; PodLabels are further labels
	// that are read.
	Child     schema.GroupVersionKind
	PodLabel  string
	PodLabels []string
	// IsActive reports whether an object of the job, or a pod of one, may still use resources.
	IsActive func(job Object, in *Setting) bool
	// Others returns the labels of further pods of a job that none of its children controls. They are not watched: they are listed
	// while a suspended job holds quota. Nil: there are none.
	Others func(job Object) map[string]string
	// Upgrades gates the children of elastic jobs. Nil: children are never gated.
	Upgrades *Upgrades
}

// Upgrades describes a kind that replaces children while a job runs. The children of an elastic job are gated: the start changes no
// template, since that would make the kind's controller replace running children. Berth unsuspends the children, then ungates their
// pods, one by one as far as the admitted slice has room; ungated pods get the values of the admission. The names of the pod sets
// encode the requests of their pods, so that sets come and go with slices (spec: 30 §4.10.3).
type Upgrades struct {
	// Configured reports whether the configuration gates children, if the controller of the kind supports that.
	Configured func(*Config) bool
	// Learn gets the CRD of the kind when the manager starts, and again when the API server begins to serve the kind. It returns a
	// sentence about the controller's new capabilities, or "".
	Learn func(crd map[string]any) (news string)
	// GatesChildren reports whether the children of elastic jobs are gated, by the configuration and the result of Learn.
	GatesChildren func(*Config) bool
	// Repair restores the gates and suspend fields that hold the children and pods of a job. It reports whether it changed
	// anything.
	Repair func(job Object, in *Setting) bool
	// Start starts the job.
	Start func(job Object, in *Setting)
	// Step returns the next write to the children and pods of a job, nil for none.
	Step func(o *Observed, in *Setting) *Action
	// MayRun reports whether a gated pod of the job may be ungated now.
	MayRun func(job Object, pod *corev1.Pod, in *Setting) bool
	// Waits returns events about the children that wait for a new slice.
	Waits func(job Object, in *Setting) []Event
	// HoldsChildren reports whether the job itself lets no new child run. A suspended job that does not counts as running when a change
	// of it is checked.
	HoldsChildren func(job Object) bool
	// HoldsDeletion reports whether the controller of a deleted job still cleans up.
	HoldsDeletion func(job Object, in *Setting) bool
}

// CanGate reports whether jobs of the kind can have gated children; f may be nil.
func (f *ManagedChildren) CanGate() bool { return f != nil && f.Upgrades != nil }
