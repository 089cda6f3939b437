package job

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Observed is the world around one job, read once.
type Observed struct {
	// Job is nil if it does not exist.
	Job Object
	// Verdict is the answer of Judge, final, for a job that exists.
	Verdict Verdict
	// Workloads are those that a job of this kind and name owns, oldest first.
	Workloads []*kueue.Workload
	// Prebuilt is the Workload that the job names, if there is one of that name.
	Prebuilt *kueue.Workload
	// AncestorWorkloads are those of the ancestor, with Follows. AncestorRuns reports that the ancestor is a job that is neither suspended nor
	// finished.
	AncestorWorkloads []*kueue.Workload
	AncestorRuns      bool
	// Objects are those that the job refers to.
	Objects map[Reference]Object
	// Children are the objects that a job of a kind with a Family controls, and Pods those of them, and of earlier ones.
	Children []Object
	Pods     []*corev1.Pod
	// Flavors are those of the admissions of the Workloads; Classes those that the job names.
	Flavors Flavors
	Classes Classes
	// Delegated are the checks that send jobs to worker clusters, as far as the Workloads have them. Only kinds without a
	// managedBy are told.
	Delegated map[kueue.AdmissionCheckReference]bool
	Now       metav1.Time

	derived any // Setting.Derived
}

// Verb is what an Action does.
type Verb int

const (
	// Nothing writes nothing; the next event or After brings the job back.
	Nothing Verb = iota
	// Fail ends with Err, which is tried again with backoff.
	Fail
	// Stall ends with Err, which only a change of the objects can mend.
	Stall
	// CreateWorkload creates Workload.
	CreateWorkload
	// UpdateWorkload patches the Workload's metadata and spec to be as in Workload.
	UpdateWorkload
	// DeleteWorkload deletes Workload.
	DeleteWorkload
	// WriteStatus writes the status of Workload as its transitions left it.
	WriteStatus
	// WriteReclaimable writes only reclaimablePods of Workload.
	WriteReclaimable
	// WritePodsReady writes only the PodsReady condition of Workload.
	WritePodsReady
	// WriteReplacements writes only the WaitingForReplacementPods condition of Workload.
	WriteReplacements
	// PatchJob patches the job to be as in Job; PatchJobStatus does so with its status.
	PatchJob
	// PatchJobStatus patches the status of the job, then deletes the objects in Family.
	PatchJobStatus
	// PatchFamily patches the objects in Family, which belong to the job, to be as they are there.
	PatchChildren
	// DeleteFamily deletes the objects in Family.
	DeleteChildren
	// DeleteJob deletes the job, its children in the background. Of a Composite these three write the members that are in
	// Job.
	DeleteJob
)

// Action is what to do next: at most one write, and what it leaves for others to finish should Berth die.
type Action struct {
	Verb Verb
	// Workload is the Workload as it is to be. Its metadata.resourceVersion is the one that was observed.
	Workload *kueue.Workload
	// Job is the job as it is to be, likewise. A Composite has only the members that are written, or concerned.
	Job Object
	// Family are objects that belong to the job: its children, or pods.
	Children []Object
	// Events are to be recorded once the write is made. Without a write they tell of a state, and are recorded when
	// their text changes.
	Events []Event
	// Starts is, with a PatchJob that starts the job, the Workload that was admitted.
	Starts *kueue.Workload
	// Err is the reason of Fail and Stall.
	Err error
	// After is when to look again, with Nothing. Zero: on the next event.
	After time.Duration
}

// Event is something to tell, on the job unless OnWorkload.
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
