package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestFailingWrites: a write that the API server does not accept has one event until a write succeeds. What passes soon has none, nor has a
// refused start, which has one when it is final.
func TestFailingWrites(t *testing.T) {
	workloads, pods := kueue.GroupVersion.WithResource("workloads").GroupResource(), corev1.Resource("pods")
	quota := apierrors.NewForbidden(workloads, "w", errors.New("exceeded quota: count, limited: count/workloads=5"))
	denied := apierrors.NewForbidden(pods, "train", nil)
	denied.ErrStatus.Message = `admission webhook "lock" denied the request`
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: "u"}}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "w"}}
	create, stop := job.Action{Verb: job.CreateWorkload, Workload: w}, job.Action{Verb: job.PatchJob, Job: o}
	start := job.Action{Verb: job.PatchJob, Job: o, Starts: w}
	for name, test := range map[string]struct {
		action job.Action
		err    error
		want   string
	}{
		"a creation without quota": {create, quota, "Warning WriteFailed creating workload ns/w: workloads.kueue.x-k8s.io"},
		"a refused stop":           {stop, denied, "Warning WriteFailed updating Pod ns/train: admission webhook"},
		"a start without quota":    {start, quota, "Warning WriteFailed updating Pod ns/train: workloads.kueue.x-k8s.io"},
		"a refused start":          {start, denied, ""},
		"a conflict":               {stop, apierrors.NewConflict(pods, "train", nil), ""},
		"it is deleted":            {stop, apierrors.NewNotFound(pods, "train"), ""},
		"the manager ends":         {create, context.Canceled, ""},
		"no answer":                {create, errors.New("connection refused"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			fails := test.err
			api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return fails },
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return fails
				},
			}).Build()
			recorder := events.NewFakeRecorder(10)
			r := &reconciler{
				d:      &job.Descriptor{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Framework: "pod"},
				client: api, events: reconcile.NewEvents(recorder, nil), refusals: reconcile.NewRefusals(0, time.Now), written: reconcile.NewOverlay[client.Object](time.Now),
			}
			attempt := func() (events []string) {
				a := test.action
				r.do(t.Context(), types.NamespacedName{Namespace: "ns", Name: "train"}, &job.Observed{Job: o, Now: metav1.Now()}, a)
				for len(recorder.Events) > 0 {
					events = append(events, <-recorder.Events)
				}
				return events
			}
			expect := func(attempt string, got []string, want bool) {
				t.Helper()
				if len(got) > 0 != want || want && !strings.HasPrefix(got[0], test.want) {
					t.Errorf("%s: events %q, want %q", attempt, got, test.want)
				}
			}
			expect("first", attempt(), test.want != "")
			expect("second", attempt(), false)
			fails = nil
			expect("success", attempt(), false)
			fails = test.err
			expect("fails again", attempt(), test.want != "")
		})
	}
}

// TestRefusedStarts: the refusals of a start are final once they last, counted from the first one of this admission.
func TestRefusedStarts(t *testing.T) {
	denied := apierrors.NewForbidden(corev1.Resource("pods"), "train", nil)
	denied.ErrStatus.Message = `admission webhook "lock" denied the request`
	began := time.Unix(1_800_000_000, 0)
	now := began
	r := &reconciler{d: &job.Descriptor{}, refusals: reconcile.NewRefusals(15*time.Second, func() time.Time { return now })}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{UID: "w"}}
	machine := lifecycle.Machine{}
	step := func(at time.Duration, want bool) {
		t.Helper()
		if now = began.Add(at); r.isFinal(w, denied) != want {
			t.Errorf("at %s: final %v", at, !want)
		}
	}
	machine.Reserve(w, &kueue.Admission{}, nil, metav1.NewTime(now))
	step(0, false)
	step(8*time.Second, false)
	machine.Preempt(w, kueue.ReasonInClusterQueue, "", metav1.NewTime(now))
	machine.Release(w, false, metav1.NewTime(now))
	machine.Reserve(w, &kueue.Admission{}, nil, metav1.NewTime(began.Add(2*time.Minute)))
	step(2*time.Minute, false)
	step(2*time.Minute+14*time.Second, false)
	step(2*time.Minute+15*time.Second, true)
}
