package controller

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile/overlaytest"
)

func TestOverlayOfStatuses(t *testing.T) {
	set := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o"}}
	counters, err := registerMetrics()
	if err != nil {
		t.Fatal(err)
	}
	overlaytest.Run(t, overlaytest.User[*jobsetv1alpha2.JobSet]{
		Object: set, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[*jobsetv1alpha2.JobSet] {
			r := &reconciler{client: api, written: newWritten(now), metrics: counters, recorder: events.NewFakeRecorder(10), now: now}
			return overlaytest.Functions[*jobsetv1alpha2.JobSet]{
				Write: func(shown *jobsetv1alpha2.JobSet) error {
					return r.writeStatus(t.Context(), shown, &plan.Plan{Status: &jobsetv1alpha2.JobSetStatus{Restarts: 1}})
				},
				ActsOn: func(shown *jobsetv1alpha2.JobSet) (*jobsetv1alpha2.JobSet, bool) {
					return shown, !r.written.statuses.IsBehind(shown)
				},
				Len: r.written.statuses.Len,
			}
		},
	})
}

func TestOverlayOfJobs(t *testing.T) {
	set := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o", UID: "set"}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o-0"}}
	overlaytest.Run(t, overlaytest.User[*batchv1.Job]{Object: job, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[*batchv1.Job] {
		r := &reconciler{client: api, written: newWritten(now), now: now}
		return overlaytest.Functions[*batchv1.Job]{
			Write: func(shown *batchv1.Job) error {
				_, err := r.patch(t.Context(), set, plan.Patch{Job: shown, Data: []byte("{}")})
				return err
			},
			ActsOn: func(shown *batchv1.Job) (*batchv1.Job, bool) {
				return r.written.jobs(set).List([]plan.Job{plan.NewJob(shown)}, nil)[0].Object, true
			},
			Len: r.written.jobs(set).Len,
		}
	}})
}
