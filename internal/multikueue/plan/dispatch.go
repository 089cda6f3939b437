// Package plan decides what becomes of a Workload that is sent to worker
// clusters: where copies of it are made and removed, when its job is created on
// a worker, and what the worker's answer means on the manager.
//
//	local Workload, its job ─┐
//	clusters: connected?     ├─► Decide ─► steps, in order, and when to look again
//	copies, jobs on workers ─┘
//
// The life of one that goes well, with the rule that makes each step (spec: 40
// §4.4):
//
//	quota reserved ─► copies on the nominated workers (9)
//	one is admitted ─► the others are removed, its job is created there, the
//	                   check is Ready (6b) ─► the local job is started
//	status changes ─► mirrored (6b) ─► finished there, finished here (3)
//	finished ─► nothing of it stays on a worker (2)
//
// A copy is told from the Workload of a worker's own by the label of its origin
// and by the stamp of its manager. What has neither is never touched.
package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Annotations of our own. None of them is copied to a worker from the local Workload (spec: 40 §2.6).
const (
	annotationPrefix = "multikueue.berth.dev/"
	// SpecHashAnnotation, on a copy, is the hash of the local spec that it was made of.
	SpecHashAnnotation = annotationPrefix + "spec-hash"
	// ManagerUIDAnnotation, on a copy, tells managers with the same origin apart.
	ManagerUIDAnnotation = annotationPrefix + "manager-uid"
	// OriginUIDAnnotation, on a copy, is the UID of the Workload that it is a copy of.
	OriginUIDAnnotation = annotationPrefix + "origin-uid"
	// RoundStartAnnotation, on the local Workload, is when the last round of nominations began, in RFC 3339.
	RoundStartAnnotation = annotationPrefix + "nomination-round-start"
	// GateOpenedAnnotation, on the local Workload, is the cluster whose preemption gate was opened last, a space, and when, in RFC 3339.
	GateOpenedAnnotation = annotationPrefix + "preemption-gate-opened"
	// AgainAnnotation, on the local Workload, is the cluster where its copy was created again after it was deleted there, when, in RFC 3339, and
	// how often in a row.
	AgainAnnotation = annotationPrefix + "copy-created-again"
)

// Mode says who nominates workers.
type Mode int

// The modes (spec: 40 §4.5).
const (
	AllAtOnce Mode = iota
	Incremental
	External
)

// Config is what the configuration says about worker clusters.
type Config struct {
	Lifecycle lifecycle.Machine
	// Origin is the label value on everything that is made on a worker, ManagerUID the stamp beside it.
	Origin, ManagerUID string
	// WorkerLostTimeout is how long a Workload stays with a worker that cannot be reached.
	WorkerLostTimeout time.Duration
	Mode              Mode
	// StepSize is how many workers a round of the incremental mode adds, RoundTimeout how long a round is, and ConfigOrder
	// has them in the order of the MultiKueueConfig, not by name.
	StepSize     int
	RoundTimeout time.Duration
	ConfigOrder  bool
	// Orchestrated opens the preemption gates of copies one at a time, each for PreemptionTimeout: feature gate
	// MultiKueueOrchestratedPreemption.
	Orchestrated      bool
	PreemptionTimeout time.Duration
	// Elastic lets jobs be resized while they run: feature gate ElasticJobsViaWorkloadSlices.
	Elastic bool
	// Annotations lets the name of a Workload be an annotation of the job: feature gate WorkloadIdentifierAnnotations.
	Annotations bool
	// PreviousOrigins are values that Origin had before.
	PreviousOrigins []string
	// Retention is how long a job that has finished stays on its worker.
	Retention time.Duration
	// External are the kinds that something else integrates.
	External map[schema.GroupVersionKind]*external.Framework
}

// Observed is the world around one Workload, read once.
type Observed struct {
	// Local is the Workload on the manager, as it was last seen if Gone.
	Local *kueue.Workload
	Gone  bool
	// Check is the admission check that sends it to workers.
	Check kueue.AdmissionCheckReference
	Job   JobFacts
	// Clusters are those of the MultiKueueConfig in its order, then others that hold something of the Workload.
	Clusters []Cluster
	Now      metav1.Time
	// SyncFailures is how often the last look at the job failed since it had finished.
	SyncFailures int
	// ToldAt is when the message of the waiting check was last written; zero if it was not.
	ToldAt time.Time
}

// JobFacts say what is known of the local job.
type JobFacts struct {
	// Kind is that of the owner, empty if the Workload has none.
	Kind string
	// Adapter says that jobs of the kind can be copied to workers.
	Adapter bool
	// Missing says that the job does not exist.
	Missing bool
	// Manager is the value of the job's managedBy; Managed says that it is ours. Field is where it is, and Wanted what it should be.
	Manager, Field, Wanted string
	Managed                bool
	// Refused is why the job cannot be sent to any cluster, nil if it may. RetryRefused sends it again later, in the place of
	// rejecting it, and says the same of what its transforms refuse.
	Refused      *external.Error
	RetryRefused bool
	// Alone says that nothing on the workers integrates the kind: this manager ends the copies. Carried says that a controller of
	// its own carries the jobs.
	Alone, Carried bool
	// Transformed says that copies differ from their jobs, and OutOfSync how often in a row a worker found that they did not match
	// their Workload.
	Transformed bool
	OutOfSync   int
	// Active says that pods of it seem to run, Over that its status says that it has ended.
	Active, Over bool
	// Gated says that its pods wait behind their gates here while their copies run, Silent that no status of theirs comes back: then a
	// condition of the Workload says that pods of it seem to run.
	Gated, Silent bool
	// Others says that another slice of the job is not over, Heir that one with quota is to take the place of this one, and Forerunner
	// that this one is to take the place of one that is not over.
	Others, Heir, Forerunner bool
	// Started is the local job of a slice, nil of any other: what its start put into its pod templates is not for other clusters.
	Started metav1.Object
	// Siblings are about a job with several Workloads, nil if it has one.
	Siblings *Siblings
}

// Siblings are the Workloads of a job that has several, all of which go to one worker (spec: 40 §4.9).
type Siblings struct {
	// Wanted is how many the job is to have, and Present how many there are.
	Wanted, Present int32
	// First says that this one goes first.
	First bool
	// Clusters are those that have admitted others, sorted, each once.
	Clusters []string
}

// Cluster is one worker, and what it holds of the Workload.
type Cluster struct {
	Name string
	// Listed says that the MultiKueueConfig names it.
	Listed bool
	// Connected says that it was reachable just now. If not, nothing is known of what it holds.
	Connected bool
	// Slow says that it is not Connected only because it has not answered for a moment, Busy that it is not only because something is
	// being made or removed there for this Workload right now; then HasJob is known.
	Slow, Busy bool
	// LostSince is since when it is not, FirstLost the same across restarts of the manager; zero if that is not known.
	LostSince, FirstLost time.Time
	// Lacks says that it does not serve the kind of the job.
	Lacks bool
	// Copy is the remote Workload, nil if there is none of ours; HasJob says that there is a job of ours.
	Copy   *kueue.Workload
	HasJob bool
	// Fault is what went wrong there last, nil if nothing did.
	Fault *Fault
	// JobIsOver says how the job there ended, nil if it did not: of kinds that nothing on the workers integrates, and of any other while there
	// is no copy that says so. JobRuns says that pods of it may run, of the former.
	JobIsOver *JobEnd
	JobRuns   bool
}

// JobEnd is how a job went.
type JobEnd struct {
	Success bool
	Message string
}

// Fault is a failure on one worker that keeps the Workload from it (spec: 40 §4.13.5).
type Fault struct {
	// Code is the text in brackets.
	Code, Text string
	// Skip keeps the Workload off the worker for a while, which ends at Until if that is known.
	Skip  bool
	Until time.Time
	// Waits says that it is no refusal of the job: it is not known before Until whether it can be sent.
	Waits bool
	// Located says that the text names the worker.
	Located bool
}

// on is the fault as the check tells it.
func (f *Fault) on(cluster string) string {
	if f.Located {
		return "[" + f.Code + "] " + f.Text
	}
	return "[" + f.Code + "] " + cluster + ": " + f.Text
}

// The codes of faults.
const (
	CreateRejected = "RemoteCreateRejected"
	CreateFailed   = "RemoteCreateFailed"
	NameConflict   = "RemoteNameConflict"
	Deactivated    = "RemoteDeactivated"
	StatusSync     = "StatusSyncFailed"
	CopyDeleted    = "RemoteCopyDeleted"
)

// Verb is what a step does.
type Verb int

// The verbs.
const (
	// RemoveCopy removes the job, then the Workload, from Cluster.
	RemoveCopy Verb = iota
	// CreateCopy creates Workload on Cluster, UpdateCopy overwrites its spec and metadata, UpdateCopyStatus its status.
	CreateCopy
	UpdateCopy
	UpdateCopyStatus
	// SyncJob creates the job on Cluster, or mirrors its status.
	SyncJob
	// MirrorJob only mirrors the status of the job on Cluster.
	MirrorJob
	// EndJob removes the job on Cluster, and its Workload once the job is gone or runs no more.
	EndJob
	// QuietJob takes what says that pods run out of the status of the local job.
	QuietJob
	// Annotate writes the annotations of the local Workload, WriteStatus its status.
	Annotate
	WriteStatus
)

// Step is one thing to do. If one that Blocks fails, only removals are still made.
type Step struct {
	Do      Verb
	Cluster string
	Blocks  bool
	// Workload is the local one or the copy, as it is to be.
	Workload *kueue.Workload
	// Events are told of the local Workload after the step, and so are Warnings, at most one a minute with the same code.
	Events   []lifecycle.Event
	Warnings []Warning
	// Dispatched, Admitted and Lost are for the figures.
	Dispatched, Admitted, Lost bool
	// OutOfSync says that the step answers a copy that does not match its job.
	OutOfSync bool
	// Last says that the job has finished: if the step fails that counts, and it is repeated after a while. Plain has the status copied as
	// it is, with nothing made of it.
	Last, Plain bool
	// Told says that the step writes the message of a waiting check.
	Told bool
	// Deactivated is why the worker deactivated the copy that the step removes, or ended it without its job, empty if it did not.
	Deactivated string
}

// Warning is an event about what is wrong, which may come back again and again.
type Warning struct{ Code, Text string }

// Event is the event.
func (w Warning) Event() lifecycle.Event {
	return lifecycle.Event{Warning: true, Reason: EventReason, Note: w.Text}
}

// Plan is what to do now.
type Plan struct {
	Steps []Step
	// After is when to look again if nothing happens; 0 is not.
	After time.Duration
	// Rule is the one that decided, such as 6b.
	Rule string
	// Err is why nothing better can be done, to be tried again.
	Err error
}

// EventReason is that of all events about worker clusters (spec: 40 §5).
const EventReason = "MultiKueue"

// deferred is how soon a job is looked at again whose status could not be copied yet.
const deferred = 2 * time.Second
