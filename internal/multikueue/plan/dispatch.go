// Package plan decides what happens to a Workload that is dispatched to worker clusters: where copies are created and removed, when the
// job is created on a worker cluster, and what its answer means on the manager.
//
//	local Workload, its job ─┐
//	clusters: connected?     ├─► Decide ─► steps, in order, and when to decide again
//	copies, remote jobs     ─┘
//
// A successful run, with the rule of each step (spec: 40 §4.4):
//
//	quota reserved ─► copies on the nominated clusters (9)
//	one is admitted ─► the others are removed, its job is created there, the
//	                   check is Ready (6b) ─► the local job is started
//	status changes ─► mirrored (6b) ─► finished there, finished here (3)
//	finished ─► everything is removed from worker clusters (2)
//
// The label of the origin and the annotation of the manager identify a copy. Objects without them are never touched.
package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Berth's own annotations. They are not copied from the local Workload (spec: 40 §2.6).
const (
	annotationPrefix = lifecycle.MultiKueuePrefix
	// SpecHashAnnotation, on a copy, is the hash of the local spec.
	SpecHashAnnotation = annotationPrefix + "spec-hash"
	// ManagerUIDAnnotation, on a copy, distinguishes managers with the same origin.
	ManagerUIDAnnotation = annotationPrefix + "manager-uid"
	// OriginUIDAnnotation, on a copy, is the UID of the local Workload.
	OriginUIDAnnotation = annotationPrefix + "origin-uid"
	// WithoutGateAnnotation, on a copy, says that it was created again on the chosen cluster, without the gate of MultiKueue.
	WithoutGateAnnotation = annotationPrefix + "without-preemption-gate"
	// RoundStartAnnotation, on the local Workload, is when the last round of nominations began, in RFC 3339.
	RoundStartAnnotation = annotationPrefix + "nomination-round-start"
	// GateOpenedAnnotation, on the local Workload, is the cluster whose preemption gate was opened last, a space, and when, in RFC 3339.
	GateOpenedAnnotation = annotationPrefix + "preemption-gate-opened"
	// RecreatedAnnotation, on the local Workload, is the cluster where its deleted copy was created again, when, in RFC 3339, and how
	// often in a row.
	RecreatedAnnotation = annotationPrefix + "copy-created-again"
)

// Mode is who nominates worker clusters.
type Mode int

// The modes, as in the configuration.
const (
	AllAtOnce Mode = iota
	Incremental
	External
)

// Config is the configuration of MultiKueue.
type Config struct {
	Lifecycle lifecycle.Machine
	// Origin is the label value of everything that is created on a worker cluster, ManagerUID the annotation beside it.
	Origin, ManagerUID string
	// WorkerLostTimeout is how long a Workload stays with a lost worker cluster.
	WorkerLostTimeout time.Duration
	Mode              Mode
	// StepSize is how many clusters a round of the incremental mode adds, RoundTimeout the length of a round. ConfigOrder takes the order
	// of the MultiKueueConfig, not of names.
	StepSize     int
	RoundTimeout time.Duration
	ConfigOrder  bool
	// Orchestrated opens the preemption gates of copies one at a time, each for PreemptionTimeout: feature gate
	// MultiKueueOrchestratedPreemption.
	Orchestrated      bool
	PreemptionTimeout time.Duration
	// Elastic permits resizing running jobs: feature gate ElasticJobsViaWorkloadSlices.
	Elastic bool
	// Annotations permits naming the Workload in an annotation of the job: feature gate WorkloadIdentifierAnnotations.
	Annotations bool
	// PreviousOrigins are former values of Origin.
	PreviousOrigins []string
	// Retention is how long a finished job stays on its worker cluster.
	Retention time.Duration
	// External are the external frameworks, by kind.
	External map[schema.GroupVersionKind]*external.Framework
}

// Observed is everything that decides about one Workload, read once.
type Observed struct {
	// Local is the local Workload, as last seen if Gone.
	Local *kueue.Workload
	Gone  bool
	// Check is our admission check, empty if the Workload has lost it.
	Check kueue.AdmissionCheckReference
	Job   JobFacts
	// Clusters are the clusters of the MultiKueueConfig in its order, then others with objects of the Workload.
	Clusters []Cluster
	Now      metav1.Time
	// SyncFailures is how often copying the final status failed.
	SyncFailures int
	// ReportedAt is when the message of the waiting check was last written; zero if it was not.
	ReportedAt time.Time
}

// JobFacts are observations of the local job.
type JobFacts struct {
	// Kind is that of the owner, empty if the Workload has none.
	Kind string
	// Adapter is true if jobs of the kind can be dispatched.
	Adapter bool
	// Missing is true if the job does not exist.
	Missing bool
	// Manager is the value of the job's managedBy, at Field, and Wanted the required one. Managed is true if the manager may dispatch it.
	Manager, Field, Wanted string
	Managed                bool
	// Err is why the job cannot be sent to a worker cluster as it is, which may change. What is there is still followed and removed.
	Err error
	// Refused is why the job cannot be dispatched to any cluster, nil if it can. RetryRefused retries such jobs, also after refusals by
	// transforms, instead of rejecting them.
	Refused      *external.Error
	RetryRefused bool
	// Alone is true if no controller on the worker clusters integrates the kind: this manager ends the copies. Carried is true if an
	// external controller creates the remote jobs.
	Alone, Carried bool
	// Transformed is true if copies differ from their jobs. OutOfSync is how often in a row a copy did not match its Workload.
	Transformed bool
	OutOfSync   int
	// Active is true if its pods seem to run, Over if it has ended by its status.
	Active, Over bool
	// Gated is true if local pods stay gated while their copies run. Silent is true if their status is not mirrored: then a condition of
	// the Workload reports whether pods seem to run.
	Gated, Silent bool
	// Others is true if another slice of the job is unfinished, ReplacedBy if one with a reservation replaces this one, Replaces if this
	// one replaces an unfinished one.
	Others, ReplacedBy, Replaces bool
	// Started is the local job of a slice, nil otherwise: what its start added to its pod templates is not for other clusters.
	Started metav1.Object
	// Siblings are the Workloads of a job with several, nil for other jobs.
	Siblings *Siblings
}

// Siblings are the Workloads of a job with several, which are all dispatched to one cluster (spec: 40 §4.9).
type Siblings struct {
	// Wanted is how many the job should have, and Present how many exist.
	Wanted, Present int32
	// First is true if this one is dispatched first.
	First bool
	// Clusters are the clusters that have admitted other Workloads of the job, sorted, each once.
	Clusters []string
}

// Cluster is one worker cluster with its objects of the Workload.
type Cluster struct {
	Name string
	// Listed is true if the MultiKueueConfig names it.
	Listed bool
	// Connected is true if it is connected. If not, its objects are unknown.
	Connected bool
	// Slow is true if it is not Connected only because an answer is late, Busy if only because a step of this Workload runs there. Then
	// HasJob is known, as it was last seen.
	Slow, Busy bool
	// Untried is true if the manager has just started and does not know yet whether it can connect to it.
	Untried bool
	// LostSince is since when it is not connected, FirstLost the same across restarts of the manager; zero if unknown.
	LostSince, FirstLost time.Time
	// Lacks is true if it does not serve the kind of the job.
	Lacks bool
	// Copy is the remote Workload, nil if there is none of ours; HasJob is true if there is a job of ours, or may be: its
	// creation was not answered.
	Copy   *kueue.Workload
	HasJob bool
	// Fault is the last fault there, nil if there is none.
	Fault *Fault
	// JobIsOver is how a job without an integration on the worker cluster, or without a copy, ended; nil if it did not. JobRuns is true
	// if pods of the former may run.
	JobIsOver *JobEnd
	JobRuns   bool
}

// JobEnd is the result of a finished job.
type JobEnd struct {
	Success bool
	Message string
}

// Fault is a failure on one cluster that keeps the Workload from it (spec: 40 §4.13.5).
type Fault struct {
	// Code is the text in brackets.
	Code, Text string
	// Skip avoids the cluster for a while, until Until if that is known.
	Skip  bool
	Until time.Time
	// Waits is true if it is unknown before Until whether the job can be dispatched: it is not refused.
	Waits bool
	// Located is true if the text names the cluster.
	Located bool
}

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
	WriteFailed    = "RemoteWriteFailed"
	NameConflict   = "RemoteNameConflict"
	Deactivated    = "RemoteDeactivated"
	StatusSync     = "StatusSyncFailed"
	CopyDeleted    = "RemoteCopyDeleted"
)

// Verb is the operation of a step.
type Verb int

const (
	// RemoveCopy removes the job, then the copy, from Cluster.
	RemoveCopy Verb = iota
	// CreateCopy creates Workload on Cluster.
	CreateCopy
	// UpdateCopy overwrites the spec and metadata of the copy.
	UpdateCopy
	// UpdateCopyStatus overwrites its status.
	UpdateCopyStatus
	// SyncJob creates the job on Cluster, or mirrors its status.
	SyncJob
	// MirrorJob only mirrors the status of the job on Cluster.
	MirrorJob
	// EndJob removes the job on Cluster, and its copy once the job is deleted or inactive.
	EndJob
	// QuietJob removes active pods from the status of the local job.
	QuietJob
	// Annotate writes the annotations of the local Workload.
	Annotate
	// WriteStatus writes the status of the local Workload.
	WriteStatus
)

// Step is one operation. After one that Blocks fails, only removals are carried out.
type Step struct {
	Do      Verb
	Cluster string
	Blocks  bool
	// Workload is the desired local one or copy. OnlyCheck is true if it differs in the check only, which is written under its own field manager.
	Workload  *kueue.Workload
	OnlyCheck bool
	// Events are emitted after the step, and Warnings at most once a minute for each code.
	Events   []lifecycle.Event
	Warnings []Warning
	// Admitted and Lost are for metrics.
	Admitted, Lost bool
	// OutOfSync is true if a copy did not match its job.
	OutOfSync bool
	// Last is true if the job has finished: failures count, and are retried after a pause. Plain copies the status without changes.
	Last, Plain bool
	// Reported is true if the step writes the message of a waiting check.
	Reported bool
	// Deactivated is why the worker cluster deactivated the copy that the step removes, or ended it without its job, empty if it did not.
	Deactivated string
}

// Warning is an event about a fault, which may recur.
type Warning struct{ Code, Text string }

// Event is the event of the warning.
func (w Warning) Event() lifecycle.Event {
	return lifecycle.Event{Warning: true, Reason: EventReason, Note: w.Text}
}

// Plan is what to do now.
type Plan struct {
	Steps []Step
	// After is when to decide again without an event; 0 is never.
	After time.Duration
	// Rule is the deciding rule, such as 6b.
	Rule string
	// Err is an error after which the decision is retried.
	Err error
}

// EventReason is that of all events (spec: 40 §5).
const EventReason = "MultiKueue"

// deferred is the delay before a status is copied again that was incomplete.
const deferred = 2 * time.Second
