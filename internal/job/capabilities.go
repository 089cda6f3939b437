package job

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Stops describes a kind whose jobs are stopped in several writes. Without it a job is suspended and restored in one.
type Stops struct {
	// Next finds the next step. podSets are what to restore, nil if nothing is known, and why is the reason.
	Next func(job Object, podSets []kueue.PodSet, why StopReason) (Step, Object)
	// Begun reports whether a stop was begun and must go on, whatever happened since. Nil: that need not be known.
	Begun func(Object) bool
}

// IsStopping reports whether the stop of a job was begun and must go on.
func (d *Descriptor) IsStopping(o Object) bool {
	return d.Stops != nil && d.Stops.Begun != nil && d.Stops.Begun(o)
}

// StartErrors describes a kind that knows what errors of a start mean. Of other kinds an error is tried again, and one that lasts is final.
type StartErrors struct {
	// Refused reports whether the error tells that the API server will always refuse the start.
	Refused func(error) bool
	// Passes reports whether the error ends by itself, however long that takes.
	Passes func(error) bool
}

// States describes a kind whose jobs, or whose controller, decide in some states whether a job runs.
type States struct {
	// OnHold reports whether the job itself asks not to run.
	OnHold func(Object) bool
	// Skip ends the reconcile at once, and keeps the webhook from suspending the job.
	Skip func(Object) bool
	// Halt changes the status of a job that is suspended so that its own controller stops it, where the controller does not look at the
	// switch. It reports whether there is anything to change. Without Stops only.
	Halt func(Object) bool
}

// Skips reports whether a job is left alone.
func (d *Descriptor) Skips(o Object) bool { return d.States != nil && d.States.Skip(o) }

// Once describes a kind whose objects run once: they are judged and marked when they are made, and what is stopped is gone.
type Once struct {
	// Marked reports whether the job was marked to be queued when it was made. The mark decides in the place of the owners.
	Marked func(job Object, cfg *Config) bool
	// Finalize changes a job that is over, or deleted, so that it can go. It reports whether there is anything to change.
	Finalize func(Object) bool
	// Alone says that an evicted job does not go back into its queue, since it is gone: gate SkipReassignmentForPodOwnedWorkloads.
	Alone bool
	// StatusManager is the field manager of what the manager says in the status of an object.
	StatusManager string
	// Warn says what is odd about the marks of a new or a changed job, though it is allowed. It may be nil.
	Warn func(job, old Object, cfg *Config) []string
}

// Declared describes a kind that a configuration describes. It may be called like another one, in another group.
type Declared struct {
	// Unreadable says why the job does not tell what the functions of the descriptor ask of it. They answer then as is safe: it is not
	// finished, and it is active.
	Unreadable func(job Object, in *Setting) error
}

// Groups describes the jobs that several objects of a kind are together, which are then no jobs by themselves.
type Groups struct {
	// Jobs describes them. Its functions get a Composite, and leave only the objects in it that they changed.
	Jobs *Descriptor
	// Member names the job that an object is a part of, or is empty.
	Member func(o Object, cfg *Config) string
	// Join makes one job of all its parts, as they are at a time.
	Join func(name string, members []Object, cfg *Config, now time.Time) Object
}

// Elastic lets jobs carry the annotation elastic-job: they are resized while they run.
type Elastic struct {
	// GatesPods says that the pod templates of an elastic job carry the gate for such pods.
	GatesPods bool
	// Children are kinds of objects that an elastic job controls and refers to: a change of one brings the job back.
	Children []schema.GroupVersionKind
	// NameExtra adds to what the names of slices are made of, beside the generation of the job. It may be nil.
	NameExtra func(Object) string
	// Annotate keeps annotations of an elastic job that its slices depend on. It reports whether there is anything to change. It may be
	// nil.
	Annotate func(job Object, in *Setting) bool
}

// AnnotatesSlices changes the annotations of an elastic job that its slices depend on, and reports whether there was anything to change.
func (d *Descriptor) AnnotatesSlices(o Object, in *Setting) bool {
	return d.Elastic != nil && d.Elastic.Annotate != nil && d.Elastic.Annotate(o, in)
}

// Guard holds back changes of a job.
type Guard struct {
	// Check puts back what a change of a job takes away that holds it, and refuses the rest. The setting of a job that is led is that of
	// the one that leads it, which is the Ancestor.
	Check func(job, old Object, in *Setting) (warnings []string, errs field.ErrorList)
	// LedBy says of an ancestor of a job that it leads the job, so that the job is neither stopped nor started by itself. Nil: none does.
	GatedBy func(*Owner) bool
}

// IsLedBy reports whether an ancestor leads jobs of the kind.
func (d *Descriptor) IsGatedBy(ancestor *Owner) bool {
	return d.Guard != nil && d.Guard.GatedBy != nil && d.Guard.GatedBy(ancestor)
}

// Open lets objects of a kind that bear no mark of a queue be stored while no manager answers, as the cluster itself needs them to run.
// The rules of such a kind concern labels and annotations of the object and of its pod templates only.
type Open struct {
	// Templates are the paths of the pod templates, such as spec.template.
	Templates []string
}
