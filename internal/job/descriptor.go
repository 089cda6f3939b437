// Package job says what a job is, of whatever kind, and what may be done to it.
//
// A kind of jobs is one value, [Descriptor]: how to read pod sets from such a
// job, how to stop and start it, when it is finished. Everything else is the
// same for every kind: may the object be touched at all ([Judge], the hard
// gate), what is its Workload called, which classes and pod sets does it have,
// what do the pods of an admitted job need ([InfosFromAdmission]).
//
// What becomes of a job, package decide works out: from what was [Observed],
// the one next write, an [Action].
package job

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Object is a job of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Descriptor tells how to handle one kind of jobs. Functions that take a job must not keep it. Those that say so change
// the job they are given, which is then a copy (spec: 30 §2.3).
type Descriptor struct {
	// Framework is the name by which a configuration enables the kind, such as batch/job.
	Framework string
	// GVK is the kind, and Resource its plural in URLs.
	GVK      schema.GroupVersionKind
	Resource string
	// Listing is what the configuration and the access rules say about the kind.
	Listing Listing
	// New returns an empty job, and NewList an empty list of them.
	New     func() Object
	NewList func() runtime.Object

	// PodSets are the groups of pods that the job wants, before admission. An error means that the job cannot be queued
	// as it is; one that is podset.ErrNotYet goes away by itself.
	PodSets func(job Object, in *Setting) ([]kueue.PodSet, error)
	// IsSuspended says whether the job is stopped, completely.
	IsSuspended func(Object) bool
	// Suspend changes the job so that it does not run. It is the whole stop of a job that has not run yet.
	Suspend func(Object)
	// Resume undoes Suspend on a job that leaves management: it runs as its user wrote it. Of a pod it opens our gates.
	Resume func(Object)
	// Start changes the suspended job so that it runs with the given pods, one entry for each pod set. An error is
	// permanent: the job cannot be started this way.
	Start func(job Object, infos []PodSetInfo, in *Setting) error
	// Restore changes the pod templates of the job back to what the given pod sets say, and reports whether that changed
	// anything. A different number of pod sets changes nothing.
	Restore func(Object, []kueue.PodSet) bool
	// Finished says whether the job is over, how it went, and its own message.
	Finished func(Object) (message string, success, finished bool)
	// IsActive says whether a pod of the job may still use resources.
	IsActive func(Object) bool
	// PodsReady says whether as many pods as the job wants are ready or through.
	PodsReady func(job Object, in *Setting) bool

	// Groups describes the jobs that several objects of the kind are together, which are then no jobs by themselves. The
	// functions of that descriptor get a Composite, and leave only the objects in it that they changed.
	Groups *Descriptor
	// Member, of such a descriptor, names the job that an object is a part of, or is empty; and Join makes one job of all its
	// parts, as they are at a time.
	Member func(o Object, cfg *Config) string
	Join   func(name string, members []Object, cfg *Config, now time.Time) Object

	// All that follows may be nil.

	// Owns are the kinds of objects that the controller of the kind makes, which run with the Workload of the job that they are of.
	// An object of another kind, or one that a job cannot have made, is a job of its own, whatever owner it names.
	Owns []Child
	// Declared says that a configuration describes the kind. It may be called like another one, in another group.
	Declared bool

	// Refers names the other objects that decide about the pods of a job. They are looked up for the Setting.
	Refers func(Object) []Reference
	// Unreadable says why the job does not tell what the other functions ask of it. They answer then as is safe: it is not
	// finished, and it is active.
	Unreadable func(job Object, in *Setting) error
	// Stop finds the next step of a stop that takes several. podSets are what to restore, nil if nothing is known, and why is
	// the reason. Nil: suspend and restore in one write.
	Stop func(job Object, podSets []kueue.PodSet, why StopReason) (Step, Object)
	// StopByStatus changes the status of a job that is suspended so that its own controller stops it, where the controller does
	// not look at the switch. It reports whether there is anything to change. Without Stop only.
	StopByStatus func(Object) bool
	// Refused says whether the error of a start tells that the API server will always refuse it. Nil: it is tried again.
	Refused func(error) bool
	// Passes says whether the error of a start ends by itself, however long that takes. Nil: errors that last do not.
	Passes func(error) bool
	// Stopping says whether a stop was begun and must go on, whatever happened since.
	Stopping func(Object) bool
	// Reclaimable counts the pods whose quota is no longer needed.
	Reclaimable func(job Object, in *Setting) []kueue.ReclaimablePod
	// OnHold says whether the job itself asks not to run.
	OnHold func(Object) bool
	// Skip ends the reconcile at once, and keeps the webhook from suspending the job.
	Skip func(Object) bool
	// OnePod says that an evicted job does not go back into its queue, since it is gone: gate
	// SkipReassignmentForPodOwnedWorkloads.
	OnePod bool
	// Open lets objects of the kind that bear no mark of a queue be stored while no manager answers, as the cluster itself needs them to
	// run. The rules of such a kind concern labels and annotations of the object and of its pod templates only.
	Open bool
	// Templates are the paths of the pod templates of an open kind, such as spec.template.
	Templates []string
	// Marked says whether the job was marked to be queued when it was made. The mark decides in the place of the owners.
	Marked func(job Object, cfg *Config) bool
	// Finalize changes a job that is over, or deleted, so that it can go. It reports whether there is anything to change.
	Finalize func(Object) bool
	// PriorityClass names the PriorityClass of the job. Nil or empty: the first that a pod set names.
	PriorityClass func(Object) string
	// ManagedBy reads the field that says which controller runs the job, empty if unset, SetManagedBy writes it, and
	// OwnManager is its value for the kind's own controller.
	ManagedBy    func(Object) string
	SetManagedBy func(Object, string)
	OwnManager   string
	// Prebuilt lets jobs name a Workload that exists.
	Prebuilt bool
	// Elastic lets jobs carry the annotation elastic-job: they are resized while they run.
	Elastic bool
	// GatesPods says that the pod templates of an elastic job carry the gate for such pods.
	GatesPods bool
	// NameExtra adds to what the names of slices are made of, beside the generation of the job.
	NameExtra func(Object) string
	// Remote says how jobs of the kind are copied to worker clusters. Nil: they are not.
	Remote *Remote
	// Annotate keeps annotations of an elastic job that its slices depend on. It reports whether there is anything to change.
	Annotate func(job Object, in *Setting) bool
	// Family says how what belongs to a job is led. LedBy says of an ancestor of a job that it leads the job, so that the job
	// is neither stopped nor started by itself.
	Family *Family
	LedBy  func(*Config, *Owner) bool
	// Guard puts back what a change of a job takes away that holds it, and refuses the rest. The setting of a job that is led
	// is that of the one that leads it, which is the Ancestor.
	Guard func(job, old Object, in *Setting) (warnings []string, errs field.ErrorList)
	// Children are kinds of objects that an elastic job controls and refers to: a change of one brings the job back.
	Children []schema.GroupVersionKind

	// Validate checks what is special to the kind, for a new job (old is nil) and for a changed one.
	Validate func(job, old Object, in *Setting) field.ErrorList
	// Warn says what is odd about a new or a changed job, though it is allowed.
	Warn func(job, old Object, cfg *Config) []string
	// Sizes lists what the kind's controller is going to make for the job, as far as the job says it. It takes time by the size of the
	// object, and not by the numbers in it.
	Sizes func(job Object, in *Setting) []Size
	// Default changes a new job in a managed namespace in the ways that are special to the kind. managed says that it is
	// to have a Workload of its own.
	Default func(job Object, managed bool, in *Setting)
	// Claimed says that some other controller queues the job, so that it gets no default queue or class, and no owner of it
	// is asked.
	Claimed func(Object) bool
	// Serving says that the object only makes others that are queued. It has no Workload, and so no PodSets and the like. Its
	// defaults are set when it changes, too.
	Serving bool
	// Sets, of a kind that serves, has its pods queued together. Nil: they are queued one by one.
	Sets *Sets
	// LaxUpdates leaves the rules for new jobs of any kind out when a job changes.
	LaxUpdates bool
	// FreeUnmanaged leaves all rules out for a job that changes and that nobody queues, before and after.
	FreeUnmanaged bool
}

// Remote is what is special about the copies of a job on worker clusters. All may be left out (spec: 40 §4.6).
type Remote struct {
	// ManagedBy is the path of the field that the copy goes without, so that the controller of the worker runs it. Gated
	// says that the kind has no such field: its jobs are sent whenever their Workload has the check for that, and their pods
	// keep their gates here.
	ManagedBy []string
	Gated     bool
	// Prepare changes the copy of a stopped job, as a tree, before it is created.
	Prepare func(map[string]any)
	// Status finds the status that the local job gets in the place of that of the remote one; nil is that one. deferred
	// asks for another look soon.
	Status func(local, remote Object) (status map[string]any, deferred bool, err error)
	// Final says of a remote job that is being deleted that its status is how it ended all the same. Nil: none does.
	Final func(remote Object) bool
	// Silent says that no status comes back: a controller here writes that of the local job.
	Silent bool
	// Quiet changes the status of the job so that no pod of it seems to run. Nil: the status is dropped as a whole.
	Quiet func(Object)
	// Resize gives the copy of an elastic job as many pods as its pod sets have, as the local job says it, and reports
	// whether that changed anything.
	Resize func(remote, local Object, podSets []kueue.PodSet) bool
	// Follow brings a job that runs and its copy up to date with each other, and reports which of the two it changed. The objects that the
	// copy controls are the Children of the setting. by is the Workload that the worker has admitted, nil if there is none, or it is about
	// to be replaced: then the copy gets only what cannot need quota.
	Follow func(local, remote Object, by *kueue.Workload, in *Setting) (told, changed bool, err error)
	// OriginUID says that the copy tells which local job it is of.
	OriginUID bool
	// Workloads is how many a job has, all of which go to one worker, where they are found by the origin of the job and
	// not by name. Nil: there is one. Scale gives a job another number of them.
	Workloads func(Object) int32
	Scale     func(Object, int32)
}

// Patches says whether the copy of a job is changed in place.
func (r *Remote) Patches() bool { return r.Resize != nil || r.Follow != nil || r.Scale != nil }

// Step is one of a stop.
type Step int

const (
	// Stopped says that the stop is over.
	Stopped Step = iota
	// Wait says that the job itself has to move first.
	Wait
	// Change writes the job, ChangeStatus its status.
	Change
	// ChangeStatus writes the status of the job.
	ChangeStatus
	// Delete deletes the job.
	Delete
)

// Reference names an object in the namespace of the job, or outside of all namespaces.
type Reference struct {
	GVK  schema.GroupVersionKind
	Name string
	// Cluster says that the kind has no namespaces.
	Cluster bool
	// Uncached says that there are too many objects of the kind to keep them all in memory.
	Uncached bool
}

// Setting is what a job is read in: the configuration, and the objects that it refers to. Those that do not exist are
// absent.
type Setting struct {
	*Config
	Objects map[Reference]Object
	// Reach is how far Berth's hands go for the job, where its defaults are set, and Ancestor what it follows.
	Reach    Reach
	Ancestor *Owner
	// Children and Pods are what belongs to a job of a kind with a Family, and Workloads are those of the job.
	Children  []Object
	Pods      []*corev1.Pod
	Workloads []*kueue.Workload
}

// NewSetting is what an observed job is read in.
func NewSetting(cfg *Config, o *Observed) *Setting {
	return &Setting{Config: cfg, Objects: o.Objects, Children: o.Children, Pods: o.Pods, Workloads: o.Workloads}
}
