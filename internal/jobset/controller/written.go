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

// written remembers writes that the cache may not show yet: a plan on a cache that lags behind would repeat them.
type written struct {
	now      func() time.Time
	statuses *reconcile.Overlay[*jobsetv1alpha2.JobSet]

	mu   sync.Mutex
	sets map[types.NamespacedName]*setWrites
}

// setWrites are the writes of one JobSet and its Jobs.
type setWrites struct {
	uid    types.UID
	at     time.Time // of the last status
	jobs   *reconcile.Overlay[plan.Job]
	warned map[string]bool
}

func newWritten(now func() time.Time) *written {
	return &written{now: now, statuses: reconcile.NewOverlay[*jobsetv1alpha2.JobSet](now), sets: map[types.NamespacedName]*setWrites{}}
}

// of returns the writes of a JobSet, and drops the writes of an earlier JobSet of the same name.
func (w *written) of(js *jobsetv1alpha2.JobSet) *setWrites {
	key := client.ObjectKeyFromObject(js)
	s := w.sets[key]
	if s == nil || s.uid != js.UID {
		s = &setWrites{uid: js.UID, jobs: reconcile.NewOverlay[plan.Job](w.now)}
		w.sets[key] = s
	}
	return s
}

// jobs returns the writes of Jobs of a JobSet.
func (w *written) jobs(js *jobsetv1alpha2.JobSet) *reconcile.Overlay[plan.Job] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of(js).jobs
}

// jobsBeside returns the writes of Jobs of the JobSet that controls a Job, nil if there are none.
func (w *written) jobsBeside(job client.Object) *reconcile.Overlay[plan.Job] {
	ref := jobSetOf(job)
	if ref == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sets[types.NamespacedName{Namespace: job.GetNamespace(), Name: ref.Name}]; s != nil {
		return s.jobs
	}
	return nil
}

func (w *written) wroteStatus(js *jobsetv1alpha2.JobSet) {
	w.statuses.Updated(js)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(js).at = w.now()
}

// status returns when the status was last written.
func (w *written) status(js *jobsetv1alpha2.JobSet) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of(js).at
}

func (w *written) deletedJob(js *jobsetv1alpha2.JobSet, job *batchv1.Job) {
	going := *job
	going.DeletionTimestamp = new(metav1.NewTime(w.now()))
	w.jobs(js).Deleted(plan.NewJob(&going))
}

// gone drops a Job whose deletion the cache has seen.
func (w *written) gone(job client.Object) {
	if jobs := w.jobsBeside(job); jobs != nil {
		jobs.Gone(job.GetUID())
	}
}

// seen drops writes that the cache shows: otherwise thousands of created Jobs would be remembered.
func (w *written) seen(object client.Object) {
	job, ok := object.(*batchv1.Job)
	if jobs := w.jobsBeside(object); ok && jobs != nil {
		jobs.Saw(plan.Job{Object: job})
	}
}

// maxWarned is how many warnings are logged about one JobSet.
const maxWarned = 100

// isNews reports whether this process has not logged a warning yet.
func (w *written) isNews(js *jobsetv1alpha2.JobSet, warning string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of(js)
	if s.warned[warning] || len(s.warned) >= maxWarned {
		return false
	}
	if s.warned == nil {
		s.warned = map[string]bool{}
	}
	s.warned[warning] = true
	return true
}

func (w *written) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sets[key]; s != nil {
		w.statuses.Gone(s.uid)
		delete(w.sets, key)
	}
}
