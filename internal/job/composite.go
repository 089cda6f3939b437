package job

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Composite is a job of several objects. It has the namespace of its members, the name of the group, and the labels and annotations
// that apply to all members (spec: 30 §2.3, 4.9).
type Composite interface {
	Object
	Members() []Object
	// Of returns the job with some members; Freed returns the given members that have our finalizer, without it.
	Of(members []Object) Composite
	Freed(members []Object) Composite
	// Ended are the members that have ended or are being deleted.
	Ended() []Object
	// Standing compares the members with the Workload, or with their own annotations if w is nil.
	Standing(w *kueue.Workload) Standing
	// Check returns why the members do not make a Workload; Total is their number once Check is nil.
	Check() error
	Total() int32
	// Agrees reports whether the members name their queue, and all name the same.
	Agrees() bool
	// Labels are the labels of the given keys, merged over the members.
	Labels(keys []string) (map[string]string, error)
	// Agreed are the values of the given keys, of labels or annotations, on which all members that have the key agree.
	Agreed(keys []string, of func(metav1.Object) map[string]string) map[string]string
	// ActiveFor is how long the job stays active if nothing changes, or 0 for no limit.
	ActiveFor() time.Duration
}

// Standing compares the members of a job with its Workload.
type Standing struct {
	Kept       []Object // have a place in a pod set
	Releasable []Object // have ended, and have a finalizer that is no longer needed
	Surplus    []Object // have no place, and are to be deleted
	Exceeding  []Object // wait, ask for more than their pod set was charged for, and are to be deleted
	Absent     int      // number of empty places
}
