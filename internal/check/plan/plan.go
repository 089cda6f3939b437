// Package plan is the contract of an admission check that package check runs. A check is three decisions, none of which reads or writes:
//
//	Active   is the AdmissionCheck usable: its condition Active
//	Plan     of a Workload that holds quota: writes to objects of the check, and the check's entry in status.admissionChecks
//	Cleanup  the objects of the check that the Workload does not need any more
//
// Plan and Cleanup are pure, and evaluated again after every write and every event. A plan may therefore be interrupted after any of its
// writes. (spec: 20 §4.17)
package plan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Verb is a kind of write.
type Verb string

// The verbs.
const (
	// Create stores Object.
	Create Verb = "create"
	// Patch changes Base to Object. It is pinned to the version of Base.
	Patch Verb = "patch"
	// Delete removes Object. It is pinned to its UID.
	Delete Verb = "delete"
)

// Event is an event about a Workload.
type Event = lifecycle.Event

// Write is one write to an object that belongs to a check.
type Write struct {
	Verb         Verb
	Object, Base Object
	// Event, unless its reason is empty, is emitted about the Workload after the write, and Failed with the error after a refused one.
	Event, Failed Event
}

// Plan is the decision about one check of one Workload.
type Plan struct {
	// Writes come first, in this order. An error ends the plan.
	Writes []Write
	// Entry is the entry of the check as it is to be once the writes are made. It keeps the name.
	Entry kueue.AdmissionCheckState
	// Err reports that the Workload cannot be decided about as the other objects are.
	Err error
}

// Holds reports whether a Workload has a quota reservation that its checks decide about. No other Workload gets an answer.
func Holds(w *kueue.Workload) bool {
	return lifecycle.IsReserved(w) && !lifecycle.IsEvicted(w) && !lifecycle.IsFinished(w) && w.DeletionTimestamp == nil
}

// Become returns an entry with another state and message. Only another state has another transition time.
func Become(entry kueue.AdmissionCheckState, state kueue.CheckState, message string, now metav1.Time) kueue.AdmissionCheckState {
	if entry.State != state {
		entry.State, entry.LastTransitionTime = state, now
	}
	entry.Message = lifecycle.Cut(message, lifecycle.MaxMessage)
	return entry
}
