package job

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Composite is a job that several objects are together. As an object it has the namespace of its members, the name of the
// whole, and the labels and annotations that count for all (spec: 30 §2.3, 4.9).
type Composite interface {
	Object
	// Members are the objects.
	Members() []Object
	// Of is the job with some members, Freed with those of them that have our finalizer, without it.
	Of(members []Object) Composite
	Freed(members []Object) Composite
	// Ended are the members that are over or being deleted.
	Ended() []Object
	// Standing compares the members with the Workload, or with what they say themselves if there is none.
	Standing(w *kueue.Workload) Standing
	// Check says why the members do not make a Workload, and Total how many they are once nothing is in the way.
	Check() error
	Total() int32
	// Agrees reports whether the members decide about their queue, all alike.
	Agrees() bool
	// Labels are those of the given keys that the members have together.
	Labels(keys []string) (map[string]string, error)
	// Agreed are the values of the given keys, of labels or annotations, for which the members
	// that have one have the same.
	Agreed(keys []string, of func(metav1.Object) map[string]string) map[string]string
	// ActiveFor is how long the job stays active if nothing happens, or 0 for without end.
	ActiveFor() time.Duration
}

// Standing is where the members of a job stand against its Workload.
type Standing struct {
	Kept       []Object // have a place in a pod set
	Releasable []Object // are over and have a finalizer that is not needed any more
	Surplus    []Object // are to be deleted: there is no place for them
	Absent     int      // is how many places are empty
}
