package controller

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

// remembered is how long a write is believed that the cache does not show. It is much longer than caches lag behind.
const remembered = 30 * time.Second

// written has what was written and may not be in the cache yet: a plan on a cache that lags behind would do it again.
type written struct {
	now func() time.Time

	mu   sync.Mutex
	sets map[types.NamespacedName]*setWrites
}

// setWrites is what was written about one JobSet and its Jobs.
type setWrites struct {
	uid types.UID
	// version is that of the last status written, at is when that was.
	version string
	at      time.Time
	jobs    map[types.UID]jobWrite
	warned  map[string]bool
}

// jobWrite is a Job as it was last written, at a time. It counts until the cache has another version that is as new.
type jobWrite struct {
	job      plan.Job
	at       time.Time
	deletion bool // it is being deleted
}

func newWritten(now func() time.Time) *written {
	return &written{now: now, sets: map[types.NamespacedName]*setWrites{}}
}

// of finds the writes about a JobSet. One of the same name that is gone is forgotten.
func (w *written) of(js *jobsetv1alpha2.JobSet) *setWrites {
	key := client.ObjectKeyFromObject(js)
	s := w.sets[key]
	if s == nil || s.uid != js.UID {
		s = &setWrites{uid: js.UID, jobs: map[types.UID]jobWrite{}}
		w.sets[key] = s
	}
	return s
}

// wroteStatus remembers a status.
func (w *written) wroteStatus(js *jobsetv1alpha2.JobSet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of(js)
	s.version, s.at = js.ResourceVersion, w.now()
}

// isNewer says whether a status was written after this version of the JobSet.
func (w *written) isNewer(js *jobsetv1alpha2.JobSet) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of(js)
	return s.version != "" && w.now().Sub(s.at) < remembered && reconcile.IsOlder(js.ResourceVersion, s.version)
}

// status is when the status was last written.
func (w *written) status(js *jobsetv1alpha2.JobSet) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of(js).at
}

// wroteJob remembers a Job as the API server returned it.
func (w *written) wroteJob(js *jobsetv1alpha2.JobSet, job *batchv1.Job) {
	compact(job)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(js).jobs[job.UID] = jobWrite{job: plan.NewJob(job), at: w.now()}
}

// deletedJob remembers that a Job is being deleted.
func (w *written) deletedJob(js *jobsetv1alpha2.JobSet, job *batchv1.Job) {
	going := *job
	going.DeletionTimestamp = new(metav1.NewTime(w.now()))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(js).jobs[job.UID] = jobWrite{job: plan.NewJob(&going), at: w.now(), deletion: true}
}

// gone forgets a Job that the cache has seen to be gone.
func (w *written) gone(job client.Object) {
	ref := jobSetOf(job)
	if ref == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sets[types.NamespacedName{Namespace: job.GetNamespace(), Name: ref.Name}]; s != nil {
		delete(s.jobs, job.GetUID())
	}
}

// seen forgets what the cache has by now. Jobs that are being made would otherwise be remembered by the thousand.
func (w *written) seen(object client.Object) {
	job, ok := object.(*batchv1.Job)
	ref := jobSetOf(object)
	if !ok || ref == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sets[types.NamespacedName{Namespace: job.Namespace, Name: ref.Name}]
	if s == nil {
		return
	}
	if write, ok := s.jobs[job.UID]; ok && !write.covers(job) {
		delete(s.jobs, job.UID)
	}
}

// isNews says whether a warning was not logged before, of this process.
func (w *written) isNews(js *jobsetv1alpha2.JobSet, warning string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of(js)
	if s.warned[warning] {
		return false
	}
	if s.warned == nil {
		s.warned = map[string]bool{}
	}
	s.warned[warning] = true
	return true
}

// forget drops a JobSet that is gone.
func (w *written) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sets, key)
}

// overlay is the Jobs of a JobSet in the cache with what was written since, and without what was forgotten by then.
func (w *written) overlay(js *jobsetv1alpha2.JobSet, cached []plan.Job) []plan.Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of(js)
	if len(s.jobs) == 0 {
		return cached
	}
	out := make([]plan.Job, 0, len(cached)+len(s.jobs))
	now := w.now()
	seen := make(map[types.UID]bool, len(s.jobs))
	for i := range cached {
		job := cached[i]
		uid := job.Object.UID
		write, ok := s.jobs[uid]
		switch {
		case !ok:
		case now.Sub(write.at) < remembered && write.covers(job.Object):
			job, seen[uid] = write.job, true
		default:
			delete(s.jobs, uid)
		}
		out = append(out, job)
	}
	for uid, write := range s.jobs {
		switch {
		case seen[uid]:
		case write.deletion || now.Sub(write.at) >= remembered:
			delete(s.jobs, uid)
		default: // created, and not in the cache yet
			out = append(out, write.job)
		}
	}
	return out
}

// covers says whether what was written is newer than what the cache has. A deletion is never taken back, so any version that does not
// know of it is older.
func (j *jobWrite) covers(cached *batchv1.Job) bool {
	if j.deletion {
		return cached.DeletionTimestamp == nil
	}
	return reconcile.IsOlder(cached.ResourceVersion, j.job.Object.ResourceVersion)
}
