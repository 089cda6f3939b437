// Package job defines a job of any kind, and the operations on it.
//
// A kind of jobs is one value, [Descriptor]: how to read its pod sets, stop and
// start it, and when it is finished. The rest is common to all kinds: whether an
// object may be touched ([Judge], the hard gate), the name, classes and pod sets
// of its Workload, and the values for the pods of an admitted job
// ([InfosFromAdmission]).
//
// Package decide computes the next step: from an observation, [Observed], the
// one next write, an [Action].
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

// Descriptor describes one kind of jobs: a small core that every kind has, and optional capabilities. Functions must not keep the
// job that they are given. Functions that change the job are given a copy (spec: 30 §2.3).
type Descriptor struct {
	// Framework is the name of the kind in the configuration, such as batch/job.
	Framework string
	// GVK is the kind, and Resource its plural in URLs.
	GVK      schema.GroupVersionKind
	Resource string
	// Listing describes the kind in the configuration and the access rules.
	Listing Listing
	// New returns an empty job, and NewList an empty list of them.
	New     func() Object
	NewList func() runtime.Object

	// PodSets are the groups of pods that the job wants, before admission. An error means that the job cannot be queued as it is;
	// podset.ErrNotYet is temporary.
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
	// Restore resets the pod templates of the job to the given pod sets, and reports whether it changed anything. A different
	// number of pod sets is ignored.
	Restore func(Object, []kueue.PodSet) bool
	// Finished reports whether the job is over, how it went, and its own message.
	Finished func(Object) (message string, success, finished bool)
	// IsActive reports whether a pod of the job may still use resources.
	IsActive func(Object) bool
	// PodsReady reports whether as many pods as the job wants are ready or through.
	PodsReady func(job Object, in *Setting) bool

	// What follows is optional: nil, or false, for a kind that lacks it. Each capability is a struct of its own (capabilities.go).

	// Owns are the kinds of objects that the controller of the kind makes; they run with the Workload of the job. An object of
	// another kind, or one that a job cannot have made, is a job of its own, whatever owner it names.
	Owns []Child
	// Refers returns references to objects that affect the pods of a job. They are read into the Setting.
	Refers func(Object) []Reference
	// Reclaimable counts the pods that no longer need quota.
	Reclaimable func(job Object, in *Setting) []kueue.ReclaimablePod
	// PriorityClass names the PriorityClass of the job. Nil or empty: the first that a pod set names.
	PriorityClass func(Object) string
	// PodLabels are labels that select the pods of a job in its namespace. The job may be unstructured. The error says why they are
	// unknown, and what to do.
	PodLabels func(Object) (map[string]string, error)
	// Prebuilt lets jobs name an existing Workload.
	Prebuilt bool
	// ManagedBy reads the field that says which controller runs the job, empty if unset, SetManagedBy writes it, and
	// OwnManager is its value for the kind's own controller.
	ManagedBy    func(Object) string
	SetManagedBy func(Object, string)
	OwnManager   string

	Stops           *Stops           // a stop takes several writes
	Planned         *Planned         // the kind's controller plans the pods, and may refuse a start
	States          *States          // states that override the suspend field
	Once            *Once            // an object runs once, and is marked at creation
	Declared        *Declared        // the configuration declares the kind
	Groups          *Groups          // several objects can be one job
	Elastic         *Elastic         // jobs can be resized while they run
	ManagedChildren *ManagedChildren // children of a job, and pods that outlive them
	Guard           *Guard           // changes of a job are restricted
	Sets            *Sets            // pods of a kind that serves are queued together
	Open            *Open            // unmarked objects are stored while no manager answers
	Remote          *Remote          // jobs are copied to worker clusters

	// Serving reports that the object only makes other objects that are queued. It has no Workload, and so no PodSets and the like.
	// Its defaults are set on updates, too. Without Sets its pods are queued one by one.
	Serving bool
	// ServePods sets on a pod template what makes its pods wait for an object that serves. Its defaults do so with the templates of the object.
	ServePods func(t *corev1.PodTemplateSpec, owner metav1.Object)
	// Validate checks the rules of the kind for a new job (old is nil) or a changed one.
	Validate func(job, old Object, in *Setting) field.ErrorList
	// Sizes lists the objects that the kind's controller will make for the job, as far as the job states it. Its running time
	// depends on the size of the object, not on the numbers in it.
	Sizes func(job Object, in *Setting) []Size
	// Default sets the defaults of the kind on a new job in a managed namespace. managed reports that the job gets a Workload of
	// its own.
	Default func(job Object, managed bool, in *Setting)
	// Claimed reports that another controller queues the job: it gets no default queue or class, and its owners are not followed.
	Claimed func(Object) bool
	// LaxUpdates skips the rules for new jobs of any kind when a job changes.
	LaxUpdates bool
	// FreeUnmanaged skips all rules for a change of a job that is not queued before or after. With FreeLeaving it may have been
	// queued before.
	FreeUnmanaged, FreeLeaving bool
}

// Remote describes the copies of a job on worker clusters. Every field is optional (spec: 40 §4.6).
type Remote struct {
	// ManagedBy is the path of the field that is removed from the copy, so that the controller of the worker runs it. Gated reports
	// that the kind has no such field: its jobs are dispatched whenever their Workload has a MultiKueue check, and their local pods
	// keep their gates.
	ManagedBy []string
	Gated     bool
	// Prepare changes the copy of a suspended job, as a tree, before it is created.
	Prepare func(map[string]any)
	// Status returns the status for the local job; nil is the remote status. deferred requests another reconcile soon.
	Status func(local, remote Object) (status map[string]any, deferred bool, err error)
	// Final reports whether the status of a remote job that is being deleted is its final one. Nil: never.
	Final func(remote Object) bool
	// Silent reports that the remote status is not copied: a local controller writes the status of the local job.
	Silent bool
	// Quiet changes the status of the job so that none of its pods seems to run. Nil: the status is removed.
	Quiet func(Object)
	// Resize scales the copy of an elastic job to the pod sets, distributed as in the local job, and reports whether it changed
	// anything.
	Resize func(remote, local Object, podSets []kueue.PodSet) bool
	// Follow synchronizes a running job and its copy, and reports which of the two it changed. The Children of the setting belong
	// to the copy. by is the Workload that the worker has admitted; nil if there is none or it is about to be replaced: then the
	// copy gets only changes that cannot need quota.
	Follow func(local, remote Object, by *kueue.Workload, in *Setting) (localChanged, remoteChanged bool, err error)
	// OriginUID reports that the copy records the UID of the local job.
	OriginUID bool
	// Workloads is the number of Workloads of a job, which are all dispatched to one worker and found there by the origin of the
	// job, not by name. Nil: 1. Scale sets that number.
	Workloads func(Object) int32
	Scale     func(Object, int32)
}

// Patches reports whether the copy of a job is changed in place.
func (r *Remote) Patches() bool { return r.Resize != nil || r.Follow != nil || r.Scale != nil }

// Step is one of a stop.
type Step int

const (
	// Stopped means that the stop is complete.
	Stopped Step = iota
	// Wait means that the job itself has to change first.
	Wait
	// Change writes the job.
	Change
	// ChangeStatus writes the status of the job.
	ChangeStatus
	// Delete deletes the job.
	Delete
)

// Reference names an object in the namespace of the job, or a cluster-scoped one.
type Reference struct {
	GVK  schema.GroupVersionKind
	Name string
	// Cluster reports that the kind has no namespaces.
	Cluster bool
	// Uncached reports that the kind has too many objects for a cache.
	Uncached bool
}

// Setting is the context of a job: the configuration, and the objects that it refers to. Objects that do not exist are absent.
type Setting struct {
	*Config
	Objects map[Reference]Object
	// Mode is the management mode of the job, where its defaults are set; Ancestor is the owner that it follows.
	Mode     Mode
	Ancestor *Owner
	// Children and Pods are the dependents of a job with ManagedChildren; Workloads are the Workloads of the job.
	Children  []Object
	Pods      []*corev1.Pod
	Workloads []*kueue.Workload
	// Warnings are what Validate has to say to who creates the job, if it is queued and not refused.
	Warnings []string

	derived *any
}

// Derived returns a value that the kind has computed from the job in this setting, or in another one of the same observation, or
// nil. Expensive pod sets are so computed once a reconcile. The value records from which state of the job it was computed.
func (c *Setting) Derived() any {
	if c.derived == nil {
		return nil
	}
	return *c.derived
}

// Derive stores a value that the kind has computed from the job, if the setting is that of an observation.
func (c *Setting) Derive(value any) {
	if c.derived != nil {
		*c.derived = value
	}
}

// NewSetting returns the context of an observed job.
func NewSetting(cfg *Config, o *Observed) *Setting {
	return &Setting{Config: cfg, Objects: o.Objects, Children: o.Children, Pods: o.Pods, Workloads: o.Workloads, derived: &o.derived}
}
