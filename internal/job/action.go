package job

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Observed is the world around one job, read once.
type Observed struct {
	// Job is nil if it does not exist.
	Job Object
	// Verdict is the answer of Judge, final, for a job that exists.
	Verdict Verdict
	// Workloads are owned by a job of this kind and name, oldest first.
	Workloads []*kueue.Workload
	// Prebuilt is the existing Workload that the job names; nil for none.
	Prebuilt *kueue.Workload
	// AncestorWorkloads are the Workloads of the ancestor, with Follows. AncestorRuns reports that the ancestor is a job that is
	// neither suspended nor finished.
	AncestorWorkloads []*kueue.Workload
	AncestorRuns      bool
	// Objects are the objects that the job refers to.
	Objects map[Reference]Object
	// Children are the objects that a job with ManagedChildren controls. Pods are their pods, and the pods of deleted children.
	Children []Object
	Pods     []*corev1.Pod
	// Flavors are the ResourceFlavors in the admissions of the Workloads; Classes are the priority classes that the job names.
	Flavors Flavors
	Classes Classes
	// Started are the Workloads that run as a variant, as their pods are started (see variants.AsStarted), by their UID.
	Started map[types.UID]*kueue.Workload
	// Delegated are the admission checks of the Workloads that dispatch jobs to worker clusters. It is set only for kinds without
	// managedBy.
	Delegated map[kueue.AdmissionCheckReference]bool
	Now       metav1.Time

	derived any // Setting.Derived
}

// Verb is what an Action does.
type Verb int

const (
	// Nothing makes no write; the next event or After reconciles the job.
	Nothing Verb = iota
	// Fail reports Err, and retries with backoff.
	Fail
	// Stall reports Err, and waits for a change of the objects.
	Stall
	// CreateWorkload creates Workload.
	CreateWorkload
	// UpdateWorkload patches the Workload's metadata and spec to be as in Workload.
	UpdateWorkload
	// DeleteWorkload deletes Workload.
	DeleteWorkload
	// WriteStatus writes the status of Workload, after its transitions.
	WriteStatus
	// WriteReclaimable writes only reclaimablePods of Workload.
	WriteReclaimable
	// WritePodsReady writes only the PodsReady condition of Workload.
	WritePodsReady
	// WriteReplacements writes only the WaitingForReplacementPods condition of Workload.
	WriteReplacements
	// PatchJob patches the job to be as in Job.
	PatchJob
	// PatchJobStatus patches the status of the job, then deletes Children.
	PatchJobStatus
	// PatchChildren patches objects of the job to be as in Children.
	PatchChildren
	// DeleteChildren deletes Children.
	DeleteChildren
	// DeleteJob deletes the job, its children in the background. PatchJob, PatchJobStatus and DeleteJob write only the members in
	// Job of a Composite.
	DeleteJob
)

// Action is the next step: at most one write. A crash after it loses nothing.
type Action struct {
	Verb Verb
	// Workload is the desired Workload. Its metadata.resourceVersion is the observed one.
	Workload *kueue.Workload
	// Job is the desired job, likewise. A Composite has only the members that are written, or concerned.
	Job Object
	// Children are objects of the job: managed children, or pods.
	Children []Object
	// Events are recorded after the write. Without a write they describe a state, and are recorded when their text changes.
	Events []Event
	// Starts is the admitted Workload, with a PatchJob that starts the job.
	Starts *kueue.Workload
	// Err is the reason of Fail and Stall.
	Err error
	// After is the delay of the next reconcile, with Nothing. Zero: the next event.
	After time.Duration
}

// Event is an event on the job, or on the Workload with OnWorkload.
type Event struct {
	OnWorkload   bool
	Warning      bool
	Reason, Note string
}

// StopReason is why a job is stopped (spec: 30 §4.7).
type StopReason string

// The reasons for stopping a job.
const (
	WorkloadDeleted    StopReason = "WorkloadDeleted"
	WorkloadEvicted    StopReason = "WorkloadEvicted"
	NoMatchingWorkload StopReason = "NoMatchingWorkload"
	NotAdmitted        StopReason = "NotAdmitted"
	UserStopped        StopReason = "UserStopped"
)
