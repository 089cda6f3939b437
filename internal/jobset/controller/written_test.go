package controller

import (
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

// A deleted Job counts as being deleted although the cache lags behind: the event of the status that was written
// just before the deletion comes first.
func TestDeletionIsRemembered(t *testing.T) {
	js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ring", UID: "ring"}}
	version := func(resource string, going bool) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ring-a-0", UID: "a", ResourceVersion: resource}}
		j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet))}
		if going {
			j.DeletionTimestamp = new(metav1.Now())
		}
		return j
	}
	now := time.Now()
	w := newWritten(func() time.Time { return now })
	w.deletedJob(js, version("7", false))
	for _, step := range []struct {
		what     string
		cached   *batchv1.Job
		going    bool
		remember bool
	}{
		{"the one that was looked at", version("7", false), true, true},
		{"a status written meanwhile", version("8", false), true, true},
		{"the deletion", version("9", true), true, false},
	} {
		w.seen(step.cached)
		got := w.jobs(js).List([]plan.Job{plan.NewJob(step.cached)}, nil)
		if len(got) != 1 || (got[0].Object.DeletionTimestamp != nil) != step.going || (w.jobs(js).Len() == 1) != step.remember {
			t.Errorf("%s: %+v, %d remembered", step.what, got, w.jobs(js).Len())
		}
	}
	w.deletedJob(js, version("7", false))
	now = now.Add(time.Minute)
	if got := w.jobs(js).List([]plan.Job{plan.NewJob(version("8", false))}, nil); got[0].Object.DeletionTimestamp != nil {
		t.Error("a deletion of long ago is still believed, although the Job is there")
	}
}

// A Job that was created again under its name while the watch was broken replaces the earlier one, which comes as one update.
func TestJobCreatedAgain(t *testing.T) {
	js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ring", UID: "ring"}}
	job := func(uid types.UID) *batchv1.Job {
		owner := *metav1.NewControllerRef(js, jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet))
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ring-a-0", UID: uid, OwnerReferences: []metav1.OwnerReference{owner}}}
	}
	r := &reconciler{jobs: newJobs(), written: newWritten(time.Now)}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrlreconcile.Request]())
	defer q.ShutDown()
	h := r.jobHandler()
	h.Create(t.Context(), event.CreateEvent{Object: job("first")}, q)
	r.written.deletedJob(js, job("first"))
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: job("first"), ObjectNew: job("second")}, q)
	if got := r.jobs.of(js.UID); len(got) != 1 || got[0].Object.UID != "second" {
		t.Errorf("the JobSet has %+v, want the second alone", got)
	}
	if n := r.written.jobs(js).Len(); n != 0 {
		t.Errorf("%d writes of the first are remembered", n)
	}
}

// Any user can make Jobs that cause warnings.
func TestWarningsAreBounded(t *testing.T) {
	js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ring", UID: "ring"}}
	w, news := newWritten(time.Now), 0
	for i := range 10 * maxWarned {
		if w.isNews(js, strconv.Itoa(i)) {
			news++
		}
	}
	if news != maxWarned || len(w.of(js).warned) != maxWarned || w.isNews(js, "1") {
		t.Errorf("%d warnings are logged, %d kept", news, len(w.of(js).warned))
	}
}

// A Job that is created and deleted while a watch is broken has no event: a JobSet whose writes no cache has shown is decided again later.
func TestWritesThatNothingShows(t *testing.T) {
	js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ring", UID: "ring"}}
	now := time.Unix(1000, 0)
	r := &reconciler{written: newWritten(func() time.Time { return now }), turns: newTurns(), refusals: reconcile.NewRefusals(time.Minute, time.Now)}
	again := func(after time.Duration) time.Duration {
		p := &plan.Plan{After: after}
		result, err := r.carryOut(t.Context(), &plan.Observed{JobSet: js}, p).Result(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	if got := again(0); got != 0 {
		t.Errorf("without writes: after %s", got)
	}
	r.written.jobs(js).Created(plan.NewJob(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ring-a-0", UID: "a", ResourceVersion: "7"}}))
	for after, want := range map[time.Duration]time.Duration{0: reconcile.Believed, time.Second: time.Second, time.Hour: reconcile.Believed} {
		if got := again(after); got != want {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
	now = now.Add(reconcile.Believed)
	if got := r.written.jobs(js).List(nil, nil); len(got) > 0 {
		t.Errorf("still believed: %v", got)
	}
}
