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

// Descriptor tells how to handle one kind of jobs: a small core that every kind has, and capabilities that some have. Functions that take
// a job must not keep it. Those that say so change the job they are given, which is then a copy (spec: 30 §2.3).
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
	// IsSuspended reports whether the job is stopped, completely.
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
	// Finished reports whether the job is over, how it went, and its own message.
	Finished func(Object) (message string, success, finished bool)
	// IsActive reports whether a pod of the job may still use resources.
	IsActive func(Object) bool
	// PodsReady reports whether as many pods as the job wants are ready or through.
	PodsReady func(job Object, in *Setting) bool

	// What follows is optional: nil, or false, for a kind that lacks it. Each capability is a struct of its own (capabilities.go).

	// Owns are the kinds of objects that the controller of the kind makes, which run with the Workload of the job that they are of.
	// An object of another kind, or one that a job cannot have made, is a job of its own, whatever owner it names.
	Owns []Child
	// Refers names the other objects that decide about the pods of a job. They are looked up for the Setting.
	Refers func(Object) []Reference
	// Reclaimable counts the pods whose quota is no longer needed.
	Reclaimable func(job Object, in *Setting) []kueue.ReclaimablePod
	// PriorityClass names the PriorityClass of the job. Nil or empty: the first that a pod set names.
	PriorityClass func(Object) string
	// PodLabels are labels that the pods of a job have, and no others in its namespace. The job may be unstructured. The error says why
	// they are not known, and what to do.
	PodLabels func(Object) (map[string]string, error)
	// Prebuilt lets jobs name a Workload that exists.
	Prebuilt bool
	// ManagedBy reads the field that says which controller runs the job, empty if unset, SetManagedBy writes it, and
	// OwnManager is its value for the kind's own controller.
	ManagedBy    func(Object) string
	SetManagedBy func(Object, string)
	OwnManager   string

	Stops           *Stops           // a stop takes several writes
	StartErrors     *StartErrors     // errors of a start that the kind knows
	States          *States          // states in which a job does not run by itself
	Once            *Once            // an object runs once, and is marked when it is made
	Declared        *Declared        // a configuration describes the kind
	Groups          *Groups          // several objects can be one job
	Elastic         *Elastic         // jobs can be resized while they run
	ManagedChildren *ManagedChildren // objects of a job have pods that outlive them
	Guard           *Guard           // changes of a job are held back
	Sets            *Sets            // pods of a kind that serves are queued together
	Open            *Open            // unmarked objects are stored while no manager answers
	Remote          *Remote          // jobs are copied to worker clusters

	// Serving says that the object only makes others that are queued. It has no Workload, and so no PodSets and the like. Its
	// defaults are set when it changes, too. Without Sets its pods are queued one by one.
	Serving bool
	// Validate checks what is special to the kind, for a new job (old is nil) and for a changed one.
	Validate func(job, old Object, in *Setting) field.ErrorList
	// Sizes lists what the kind's controller is going to make for the job, as far as the job says it. It takes time by the size of the
	// object, and not by the numbers in it.
	Sizes func(job Object, in *Setting) []Size
	// Default changes a new job in a managed namespace in the ways that are special to the kind. managed says that it is
	// to have a Workload of its own.
	Default func(job Object, managed bool, in *Setting)
	// Claimed says that some other controller queues the job, so that it gets no default queue or class, and no owner of it
	// is asked.
	Claimed func(Object) bool
	// LaxUpdates leaves the rules for new jobs of any kind out when a job changes.
	LaxUpdates bool
	// FreeUnmanaged leaves all rules out for a job that changes and is not queued, neither before nor after. With FreeLeaving it may have
	// been queued before.
	FreeUnmanaged, FreeLeaving bool
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

// Patches reports whether the copy of a job is changed in place.
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
	Mode     Mode
	Ancestor *Owner
	// Children and Pods are what belongs to a job of a kind with a Family, and Workloads are those of the job.
	Children  []Object
	Pods      []*corev1.Pod
	Workloads []*kueue.Workload

	derived *any
}

// Derived returns what the kind has computed from the job in this setting, or in another one of the same observation, or nil. A kind whose
// pod sets are expensive computes them once a reconcile. The value says itself from which state of the job it was computed.
func (c *Setting) Derived() any {
	if c.derived == nil {
		return nil
	}
	return *c.derived
}

// Derive keeps what the kind has computed from the job, if the setting is that of an observation.
func (c *Setting) Derive(value any) {
	if c.derived != nil {
		*c.derived = value
	}
}

// NewSetting is what an observed job is read in.
func NewSetting(cfg *Config, o *Observed) *Setting {
	return &Setting{Config: cfg, Objects: o.Objects, Children: o.Children, Pods: o.Pods, Workloads: o.Workloads, derived: &o.derived}
}
