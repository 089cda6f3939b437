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

// memory is what the controller knows of TrainJobs beyond the cache. All of it can be lost at any time.
type memory struct {
	mu        sync.Mutex
	jobs      map[types.NamespacedName]*known
	recreated map[types.UID]bool // JobSets that the controller deletes to recreate them
}

type known struct {
	uid types.UID
	// snapshot is the UID of the snapshot, and hash the hash of its content, which never changes.
	snapshot types.UID
	hash     string
	applied  map[string]applied // by kind and name
	jobset   *appliedJobSet
	deleted  *deletedJobSet
	missed   time.Time // since when the JobSet is missing, and no event has reported its deletion

	pending       *pendingStatus
	statusWritten time.Time
	failure       string // of the last event about a failure
	failedAt      time.Time
}

// applied is the hash of the manifest that was applied last, and the resulting version. It is no reconcile.Overlay: that holds an object
// until the cache shows it, while this is kept as long as the TrainJob, since no cache ever shows a manifest. The API server adds defaults and
// the fields of other managers, so only the hash tells that the same manifest needs no second request. The version tells that no other
// client changed the object since; a cache that lags behind shows an older generation, which is no such change.
type applied struct {
	hash string
	// version is the version of a JobSet's spec. Other objects are compared by resourceVersion.
	version         version
	resourceVersion string
}

type appliedJobSet struct {
	uid    types.UID
	hashes map[string]string
	at     time.Time
}

type deletedJobSet struct {
	end *metav1.Condition // nil if it had not finished
}

func newMemory() *memory {
	return &memory{jobs: map[types.NamespacedName]*known{}, recreated: map[types.UID]bool{}}
}

// entry returns the entry of a TrainJob, and replaces the entry of an earlier TrainJob of the same name. The lock must be held.
func (m *memory) entry(namespace, name string, uid types.UID) *known {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	k := m.jobs[key]
	if k == nil || k.uid != uid {
		k = &known{uid: uid, applied: map[string]applied{}}
		m.jobs[key] = k
	}
	return k
}

func (m *memory) update(job *trainerv1alpha1.TrainJob, f func(*known)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.entry(job.Namespace, job.Name, job.UID))
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, key)
}

const failureInterval = 5 * time.Minute

// isNewFailure reports whether a failure differs from the last one that was reported, or is due to be reported again.
func (m *memory) isNewFailure(job *trainerv1alpha1.TrainJob, failure string, now time.Time) (isNew bool) {
	m.update(job, func(k *known) {
		if isNew = k.failure != failure || now.Sub(k.failedAt) >= failureInterval; isNew {
			k.failure, k.failedAt = failure, now
		}
	})
	return isNew
}

// noteDeleted remembers the end of a JobSet that was deleted.
func (m *memory) noteDeleted(jobset *jobsetv1alpha2.JobSet) {
	owner := metav1.GetControllerOf(jobset)
	if owner == nil || owner.APIVersion != trainerv1alpha1.GroupVersion.String() || owner.Kind != trainerv1alpha1.KindTrainJob {
		return // nothing would reconcile it, and forget it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	recreated := m.recreated[jobset.UID]
	delete(m.recreated, jobset.UID)
	if k := m.jobs[types.NamespacedName{Namespace: jobset.Namespace, Name: owner.Name}]; k != nil && k.uid != owner.UID {
		return // an earlier TrainJob's
	}
	k := m.entry(jobset.Namespace, owner.Name, owner.UID)
	if a, ok := k.applied[jobSetID]; ok && a.version.uid != jobset.UID {
		return // a newer one exists
	}
	delete(k.applied, jobSetID)
	k.missed = time.Time{}
	if !recreated {
		k.deleted = &deletedJobSet{end: plan.End(jobset)}
	}
}

// eventDelay is how long after a JobSet is gone the event of its deletion may arrive.
const eventDelay = 5 * time.Second

// noteMissing remembers that an applied JobSet does not exist. It counts as deleted after eventDelay: until then its deletion event may arrive,
// which has its end.
func (m *memory) noteMissing(job *trainerv1alpha1.TrainJob, now time.Time) {
	m.update(job, func(k *known) {
		if k.missed.IsZero() {
			k.missed = now
		}
		if now.Sub(k.missed) < eventDelay {
			return
		}
		k.missed = time.Time{}
		delete(k.applied, jobSetID)
		k.deleted = &deletedJobSet{}
	})
}

func (m *memory) noteRecreation(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recreated[uid] = true
}

func (m *memory) lastApplied(job *trainerv1alpha1.TrainJob, id string) (a applied, ok bool) {
	m.update(job, func(k *known) { a, ok = k.applied[id] })
	return a, ok
}

func (m *memory) noteApplied(job *trainerv1alpha1.TrainJob, id string, a applied) {
	m.update(job, func(k *known) { k.applied[id] = a })
}

func (m *memory) noteSnapshot(job *trainerv1alpha1.TrainJob, snapshot types.UID, hash string) {
	m.update(job, func(k *known) { k.snapshot, k.hash = snapshot, hash })
}

// snapshotHash returns the hash of a snapshot's content, or "" if the snapshot has to be read.
func (m *memory) snapshotHash(job *trainerv1alpha1.TrainJob, snapshot types.UID) (hash string) {
	m.update(job, func(k *known) {
		if k.snapshot == snapshot {
			hash = k.hash
		}
	})
	return hash
}

func (m *memory) appliedJobSet(job *trainerv1alpha1.TrainJob) (made *appliedJobSet) {
	m.update(job, func(k *known) { made = k.jobset })
	return made
}
