package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Explanation is the decision trace of a Workload: the flavors that were tried, the amounts that
// are short, and the changes that would requeue it. The figures are computed at the time of the
// request.
//
// +kubebuilder:object:root=true
type Explanation struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata is the name, namespace, uid and creation time of the Workload.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Text is the whole trace in words, a line a fact.
	Text string `json:"text"`

	// ClusterQueue that it waits in or holds quota of; absent when it has no place.
	// +optional
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// LocalQueue that it names.
	// +optional
	LocalQueue string `json:"localQueue,omitempty"`
	// Priority that orders the queue.
	Priority int64 `json:"priority"`

	// Verdict is what became of the last look: admitted, preempts, waits or withdrawn;
	// absent for one that is in no queue.
	// +optional
	Verdict string `json:"verdict,omitempty"`
	// Reason why it waits, as in its condition QuotaReserved.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is one sentence: what is short and what would help.
	Message string `json:"message"`

	// PositionInClusterQueue counts from 0; absent for one that is not in line.
	// +optional
	PositionInClusterQueue *int32 `json:"positionInClusterQueue,omitempty"`

	// Flavors are the flavors that it holds or would get.
	// +optional
	Flavors []FlavorChoice `json:"flavors,omitempty"`
	// Shortfalls are what did not work out, flavor by flavor.
	// +optional
	Shortfalls []Shortfall `json:"shortfalls,omitempty"`
	// Preempts are the Workloads that it preempts.
	// +optional
	Preempts []Victim `json:"preempts,omitempty"`
	// WakesOn are the flavors and resources, as "flavor/resource", whose release requeues
	// it.
	// +optional
	WakesOn []string `json:"wakesOn,omitempty"`

	// Start is when it is expected to start; absent for one that is not in line, and where starts are not forecast.
	// +optional
	Start *ExpectedStart `json:"start,omitempty"`
	// RunTime is how long it is expected to run, and how that is known, in words; absent if it is unknown.
	// +optional
	RunTime string `json:"runTime,omitempty"`
}

// ExpectedRunSecondsKey is a label or annotation of a job, and the annotation of its Workload: the run time that its user expects, in
// seconds.
const ExpectedRunSecondsKey = "berth.dev/expected-run-seconds"

// MinRunSecondsKey is a label or annotation of a job, and the annotation of its Workload: for how many seconds after the reservation of its
// quota it is preempted last, when no other victims suffice. The configuration bounds it, and is 0 by default: preemption.maxMinRunTime.
const MinRunSecondsKey = "berth.dev/min-run-seconds"

// BackfillKey is an annotation of a ClusterQueue. With BackfillEasy its first blocked Workload gets a reserved start, and others start before
// it only if they do not move that; with BackfillConservative the first 16 do.
const BackfillKey = "berth.dev/backfill"

// The values of BackfillKey, and of scheduling.backfill in the configuration.
const (
	BackfillEasy         = "easy"
	BackfillConservative = "conservative"
)

// Backfills are the values of BackfillKey.
var Backfills = []string{BackfillEasy, BackfillConservative}

// ExpectedStart is when a pending Workload is expected to start.
type ExpectedStart struct {
	// P10, P50 and P90 are the times before which it starts with a probability of 10, 50 and 90 percent; absent if they are after Until.
	// +optional
	P10 *metav1.Time `json:"p10,omitempty"`
	// +optional
	P50 *metav1.Time `json:"p50,omitempty"`
	// +optional
	P90 *metav1.Time `json:"p90,omitempty"`
	// Until is how far the forecast looks ahead; absent before the first one.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// Endless is the number of Workloads in the cohorts whose run times are unknown, and that are taken to run on.
	// +optional
	Endless int32 `json:"endless,omitempty"`
	// Unknown says why the start is unknown; the times above are absent then.
	// +optional
	Unknown string `json:"unknown,omitempty"`
	// By is the start that its ClusterQueue has reserved for it (BackfillKey), in explanations: it starts by then if the Workloads that run end within
	// their time limits.
	// +optional
	By *metav1.Time `json:"by,omitempty"`
}

// FlavorChoice is a flavor for one resource of a pod set.
type FlavorChoice struct {
	PodSet   string            `json:"podSet"`
	Resource string            `json:"resource"`
	Flavor   string            `json:"flavor"`
	Amount   resource.Quantity `json:"amount"`
	// Mode tells how: held, or as the search for flavors found it.
	Mode string `json:"mode"`
	// BorrowingLevel is how far up the cohorts it borrows; 0 is not at all.
	BorrowingLevel int32 `json:"borrowingLevel"`
}

// Shortfall is a flavor that does not match, or that is short of a resource.
type Shortfall struct {
	PodSet string `json:"podSet"`
	// +optional
	Resource string `json:"resource,omitempty"`
	// Flavor is absent when none was to be had at all.
	// +optional
	Flavor string `json:"flavor,omitempty"`
	Reason string `json:"reason"`
	// Message is one clause.
	Message string `json:"message"`
	// Requested, Available now and Potential, which is the most that can ever be had;
	// absent where a flavor does not match.
	// +optional
	Requested *resource.Quantity `json:"requested,omitempty"`
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
	// +optional
	Potential *resource.Quantity `json:"potential,omitempty"`
	// LimitedBy is the ClusterQueue or Cohort that has no more to give.
	// +optional
	LimitedBy string `json:"limitedBy,omitempty"`
}

// Victim is a Workload that has to go for another.
type Victim struct {
	// Namespace and Name are empty for a caller who may not list Workloads in that namespace.
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	ClusterQueue string `json:"clusterQueue"`
	// Reason as in its condition Preempted.
	Reason string `json:"reason"`
	// RanSeconds is how long it had run when it was chosen, and MinRunSeconds the longer time that it asks for; absent for one that had run
	// that long, or that asks for none.
	// +optional
	RanSeconds *int64 `json:"ranSeconds,omitempty"`
	// +optional
	MinRunSeconds *int64 `json:"minRunSeconds,omitempty"`
}
