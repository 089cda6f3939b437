package controller

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
)

// memory is what is known of TrainJobs beyond the cache. All of it can be lost at any time.
type memory struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]*known
	ours map[types.UID]bool // JobSets that are deleted to be made again
}

// known is about one TrainJob.
type known struct {
	uid types.UID
	// snapshot is the UID of the snapshot, and hash that of its content, which never changes.
	snapshot types.UID
	hash     string
	applied  map[string]applied // by kind and name
	gone     *gone              // its JobSet was deleted
	told     time.Time          // when its status was written last
	held     *held              // what its status will be
	built    *builtSet          // what its JobSet was built from
	missed   bool               // its JobSet was found missing once, and no event has told so
	failure  string             // what an event last told about it, at failedAt
	failedAt time.Time
}

// tellAgain is how long the same failure is not told again.
const tellAgain = 5 * time.Minute

// isNews reports whether a failure of a TrainJob is another one than was last told, or is told again after some time.
func (m *memory) isNews(job *trainerv1alpha1.TrainJob, failure string, now time.Time) (news bool) {
	m.use(job, func(k *known) {
		if news = k.failure != failure || now.Sub(k.failedAt) >= tellAgain; news {
			k.failure, k.failedAt = failure, now
		}
	})
	return news
}

// applied is what was applied last, and what that made.
type applied struct {
	hash string
	// version is that of a JobSet's spec; of other objects resourceVersion is looked at.
	version         version
	resourceVersion string
}

// gone says how a JobSet was when it was deleted.
type gone struct {
	end *metav1.Condition // nil if it had not finished
}

func newMemory() *memory {
	return &memory{jobs: map[types.NamespacedName]*known{}, ours: map[types.UID]bool{}}
}

// of finds what is known of a TrainJob; an earlier one of its name counts for nothing. The lock must be held.
func (m *memory) of(namespace, name string, uid types.UID) *known {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	k := m.jobs[key]
	if k == nil || k.uid != uid {
		k = &known{uid: uid, applied: map[string]applied{}}
		m.jobs[key] = k
	}
	return k
}

// use calls f with what is known of a TrainJob.
func (m *memory) use(job *trainerv1alpha1.TrainJob, f func(*known)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.of(job.Namespace, job.Name, job.UID))
}

// forget drops what is known of a TrainJob.
func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, key)
}

// deleted remembers how a JobSet was when it went.
func (m *memory) deleted(jobset *jobsetv1alpha2.JobSet) {
	owner := metav1.GetControllerOf(jobset)
	if owner == nil || owner.Kind != trainerv1alpha1.KindTrainJob {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	remade := m.ours[jobset.UID]
	delete(m.ours, jobset.UID)
	if k := m.jobs[types.NamespacedName{Namespace: jobset.Namespace, Name: owner.Name}]; k != nil && k.uid != owner.UID {
		return // an earlier TrainJob's
	}
	k := m.of(jobset.Namespace, owner.Name, owner.UID)
	if a, ok := k.applied[jobSetID]; ok && a.version.uid != jobset.UID {
		return // there is a newer one
	}
	delete(k.applied, jobSetID)
	k.missed = false
	if !remade {
		k.gone = &gone{end: plan.End(jobset)}
	}
}

// missing notes that a JobSet that was made does not exist. Its event may be on its way, and knows how it ended, so only
// the second time counts.
func (m *memory) missing(job *trainerv1alpha1.TrainJob) {
	m.use(job, func(k *known) {
		if k.missed = !k.missed; k.missed {
			return
		}
		delete(k.applied, jobSetID)
		k.gone = &gone{}
	})
}

// remaking notes that a JobSet is deleted to be made again.
func (m *memory) remaking(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ours[uid] = true
}

// lastApplied says how an object of the TrainJob was left.
func (m *memory) lastApplied(job *trainerv1alpha1.TrainJob, id string) (a applied, ok bool) {
	m.use(job, func(k *known) { a, ok = k.applied[id] })
	return a, ok
}

func (m *memory) noteApplied(job *trainerv1alpha1.TrainJob, id string, a applied) {
	m.use(job, func(k *known) { k.applied[id] = a })
}

// noteSnapshot remembers the hash of a snapshot's content.
func (m *memory) noteSnapshot(job *trainerv1alpha1.TrainJob, snapshot types.UID, hash string) {
	m.use(job, func(k *known) { k.snapshot, k.hash = snapshot, hash })
}

// snapshotHash returns the hash of a snapshot's content, or "" if the snapshot was not read yet.
func (m *memory) snapshotHash(job *trainerv1alpha1.TrainJob, snapshot types.UID) (hash string) {
	m.use(job, func(k *known) {
		if k.snapshot == snapshot {
			hash = k.hash
		}
	})
	return hash
}

// builtSet is the last JobSet of the TrainJob that was applied, or nil.
func (m *memory) builtSet(job *trainerv1alpha1.TrainJob) (made *builtSet) {
	m.use(job, func(k *known) { made = k.built })
	return made
}
