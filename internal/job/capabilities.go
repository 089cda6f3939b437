package job

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Stops describes a kind whose jobs are stopped in several writes. Without it a job is suspended and restored in one.
type Stops struct {
	// Next finds the next step. podSets are the pod sets to restore, nil if they are unknown, and why is the reason of the stop.
	Next func(job Object, podSets []kueue.PodSet, why StopReason) (Step, Object)
	// Begun reports whether a stop was begun and must be completed, whatever happened since. Nil: not needed.
	Begun func(Object) bool
}

// IsStopping reports whether the stop of a job was begun and must be completed.
func (d *Descriptor) IsStopping(o Object) bool {
	return d.Stops != nil && d.Stops.Begun != nil && d.Stops.Begun(o)
}

// Runs reports whether a job that does not serve may have pods: it is neither suspended nor finished.
func (d *Descriptor) Runs(o Object) bool {
	_, _, finished := d.Finished(o)
	return !finished && !d.IsSuspended(o) && !d.IsStopping(o)
}

// Planned describes a kind whose controller plans the pods of a job before it starts, refuses starts that it cannot plan, and does not
// change the pods of a job that runs. Without it an error of a start is retried, and a lasting one is final.
type Planned struct {
	// Runs returns the pod sets with which a job runs, nil if it does not run. A Workload that holds quota for them describes the job,
	// although another version of the controller planned them, so that PodSets differ.
	Runs func(job Object, in *Setting) []kueue.PodSet
	// Refused reports whether the API server will always refuse the start.
	Refused func(error) bool
	// Passes reports whether the error is temporary, however long it lasts.
	Passes func(error) bool
}

// States describes a kind in which states of a job override its suspend field.
type States struct {
	// OnHold reports whether the job itself asks not to run.
	OnHold func(Object) bool
	// Skip ends the reconcile at once, and keeps the webhook from suspending the job.
	Skip func(Object) bool
	// Halt changes the status of a suspended job whose controller ignores the suspend field in this state, so that the controller
	// stops the job. It reports whether it changed anything. Without Stops only.
	Halt func(Object) bool
}

// Skips reports whether a job is left alone.
func (d *Descriptor) Skips(o Object) bool { return d.States != nil && d.States.Skip(o) }

// Once describes a kind whose objects run once: the hard gate judges and marks them at creation, and a stopped object is deleted.
type Once struct {
	// Marked reports whether the job was marked for queueing at creation. The mark replaces the walk up the owners.
	Marked func(job Object, cfg *Config) bool
	// Finalize removes the finalizer of a finished or deleted job. It reports whether it changed anything.
	Finalize func(Object) bool
	// Alone reports that an evicted job does not return to its queue, since it is deleted. Requeues reports that its Workload does
	// all the same.
	Alone, Requeues bool
	// OnlyMarked reports that a job of several objects uses no Workload that is not marked as that of a group.
	OnlyMarked bool
	// StatusManager is the field manager of writes to the status of an object.
	StatusManager string
	// Warn returns warnings about the marks of a new or a changed job that is allowed. It may be nil.
	Warn func(job, old Object, cfg *Config) []string
}

// Declared describes a kind of the configuration. It may have the name of another kind, in another group.
type Declared struct {
	// Unreadable returns why the expressions of the descriptor fail for the job. The descriptor's functions then return safe
	// answers: not finished, and active.
	Unreadable func(job Object, in *Setting) error
}

// Groups describes jobs that consist of several objects of a kind. The members are not jobs themselves.
type Groups struct {
	// Jobs describes the group. Its functions take a Composite, and leave only the changed members in it.
	Jobs *Descriptor
	// Member returns the job that an object is a part of, or "".
	Member func(o Object, cfg *Config) string
	// Join makes one job of its members, as of now.
	Join func(name string, members []Object, cfg *Config, now time.Time) Object
}

// Elastic lets jobs have the annotation elastic-job: they are resized while they run.
type Elastic struct {
	// GatesPods reports that the pod templates of an elastic job have the gate for elastic pods.
	GatesPods bool
	// Children are kinds of objects that an elastic job controls and refers to: a change of one reconciles the job.
	Children []schema.GroupVersionKind
	// NameExtra is a part of the names of slices, beside the generation of the job. It may be nil.
	NameExtra func(Object) string
	// Annotate updates annotations of an elastic job that its slices depend on. It reports whether it changed anything. It may be
	// nil.
	Annotate func(job Object, in *Setting) bool
}

// AnnotatesSlices updates the annotations of an elastic job that its slices depend on, and reports whether it changed anything.
func (d *Descriptor) AnnotatesSlices(o Object, in *Setting) bool {
	return d.Elastic != nil && d.Elastic.Annotate != nil && d.Elastic.Annotate(o, in)
}

// Guard restricts changes of a job.
type Guard struct {
	// Check restores gates and suspend fields that a change of a job removed, and refuses other changes. The setting of a gated job
	// is that of its Ancestor.
	Check func(job, old Object, in *Setting) (warnings []string, errs field.ErrorList)
	// GatedBy reports whether an ancestor gates the job, so that the job is neither stopped nor started separately. Nil: false.
	GatedBy func(*Owner) bool
}

// IsGatedBy reports whether an ancestor gates jobs of the kind.
func (d *Descriptor) IsGatedBy(ancestor *Owner) bool {
	return d.Guard != nil && d.Guard.GatedBy != nil && d.Guard.GatedBy(ancestor)
}

// Open lets objects without a queue mark be stored while no manager answers, because the cluster itself needs them. The rules of
// such a kind concern labels and annotations of the object and of its pod templates only.
type Open struct {
	// Templates are the paths of the pod templates, such as spec.template.
	Templates []string
}
