package admit

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// newWriter makes a writer that reads from cache and writes to the API server, and an
// engine that holds the workload as admitted by decision.
func newWriter(c client.WithWatch, cache client.Client) *Writer {
	w := &Writer{
		Client: cache, Reader: c, Status: reconcile.NewWorkloadStatus(c), Events: reconcile.NewEvents(nil, nil),
		Engine: engine.New(state.New(state.Options{}), time.Now), Now: time.Now,
	}
	w.Init()
	return w
}

func connect(t *testing.T) client.WithWatch {
	t.Helper()
	c := embeddedtest.Client(t, "../../../config/crd", kueue.AddToScheme)
	if err := c.Create(t.Context(), queueOf()); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	return c
}

// queueOf returns the ClusterQueue of all tests, with its admission checks.
func queueOf(checks ...kueue.AdmissionCheckStrategyRule) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}}
	if len(checks) > 0 {
		cq.Name = "cq-with-checks"
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: checks}
	}
	return cq
}

// frozen reads every Workload as w, like a cache that lags behind.
func frozen(c client.WithWatch, w *kueue.Workload) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if into, ok := o.(*kueue.Workload); ok {
				w.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	})
}

func create(t *testing.T, c client.Client, name string) *kueue.Workload {
	t.Helper()
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name: "c", Image: "any", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			}}},
		}}}},
	}
	if err := c.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), w) }) // the next test has another name
	return w
}

func admission(w *kueue.Workload) engine.Decision {
	return engine.Decision{
		Workload: engine.Workload{UID: string(w.UID), Namespace: w.Namespace, Name: w.Name},
		Queue:    "cq", Attempt: &trace.Attempt{Verdict: trace.Admitted, Queue: "cq"},
		Grant: &state.Grant{Queue: "cq", Generation: w.Generation, PodSets: []state.PodSetGrant{{
			Name: "main", Count: 2, Held: []state.Held{{Flavor: "f", Resource: "cpu", Amount: 2000}},
		}}},
	}
}

func waiting(w *kueue.Workload, reason trace.Reason, note string) engine.Decision {
	d := admission(w)
	d.Grant, d.Attempt = nil, &trace.Attempt{Verdict: trace.Waits, Queue: "cq", Reason: reason, Note: note}
	return d
}

func live(t *testing.T, c client.Client, w *kueue.Workload) *kueue.Workload {
	t.Helper()
	out := &kueue.Workload{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// One write reserves and admits. spec: 10 §7 example 47.
func TestAdmissionIsOneWrite(t *testing.T) {
	c := connect(t)
	w := create(t, c, "one-write")
	if err := newWriter(c, c).write(t.Context(), &order{Decision: admission(w)}); err != nil {
		t.Fatal(err)
	}
	got := live(t, c, w)
	if !apimeta.IsStatusConditionTrue(got.Status.Conditions, kueue.WorkloadAdmitted) ||
		!apimeta.IsStatusConditionTrue(got.Status.Conditions, kueue.WorkloadQuotaReserved) {
		t.Errorf("conditions %+v", got.Status.Conditions)
	}
	if q := got.Status.Admission.PodSetAssignments[0].ResourceUsage["cpu"]; got.Status.Admission.ClusterQueue != "cq" || q.String() != "2" {
		t.Errorf("admission %+v", got.Status.Admission)
	}
	for _, m := range got.ManagedFields {
		if m.Subresource == "status" && (m.Manager != "kueue-admission" || m.Operation != metav1.ManagedFieldsOperationApply) {
			t.Errorf("the status was written by %s with %s", m.Manager, m.Operation)
		}
	}
}

// With checks the first write reserves, lists them and nominates worker clusters; workload/follow admits it later. spec: 10 §4.9.
func TestReservationWithChecks(t *testing.T) {
	c := connect(t)
	if err := c.Create(t.Context(), queueOf(kueue.AdmissionCheckStrategyRule{Name: "check"})); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	w := create(t, c, "with-checks")
	d := admission(w)
	d.Queue, d.Grant.Queue = "cq-with-checks", "cq-with-checks"
	writer := newWriter(c, c)
	writer.Nominated = func(_ *kueue.Workload, required []kueue.AdmissionCheckReference) []string {
		return []string{"worker-for-" + string(required[0])}
	}
	if err := writer.write(t.Context(), &order{Decision: d}); err != nil {
		t.Fatal(err)
	}
	got := live(t, c, w)
	if names := got.Status.NominatedClusterNames; len(names) != 1 || names[0] != "worker-for-check" {
		t.Errorf("nominated %v", names)
	}
	if checks := got.Status.AdmissionChecks; len(checks) != 1 || checks[0].Name != "check" || checks[0].State != kueue.CheckStatePending {
		t.Errorf("checks %+v", checks)
	}
	if apimeta.IsStatusConditionTrue(got.Status.Conditions, kueue.WorkloadAdmitted) ||
		!apimeta.IsStatusConditionTrue(got.Status.Conditions, kueue.WorkloadQuotaReserved) {
		t.Errorf("conditions %+v", got.Status.Conditions)
	}
}

// A cache that lags behind costs another attempt, not the admission.
func TestAdmissionOnANewerObject(t *testing.T) {
	c := connect(t)
	w := create(t, c, "newer")
	changed := w.DeepCopy()
	changed.Labels = map[string]string{"new": "label"}
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := newWriter(c, frozen(c, w)).write(t.Context(), &order{Decision: admission(w)}); err != nil {
		t.Fatal(err)
	}
	if got := live(t, c, w); got.Status.Admission == nil || got.Labels["new"] != "label" {
		t.Errorf("admission %v, labels %v", got.Status.Admission, got.Labels)
	}
}

// An admission of an object that has changed is not written, even when
// only the API server has the change yet.
func TestAdmissionThatCameTooLate(t *testing.T) {
	cases := map[string]func(t *testing.T, c client.Client, w *kueue.Workload){
		"deactivated": func(t *testing.T, c client.Client, w *kueue.Workload) {
			w.Spec.Active = new(false)
			update(t, c, w)
		},
		// The engine may have granted its quota to another Workload meanwhile.
		"deactivated and activated again": func(t *testing.T, c client.Client, w *kueue.Workload) {
			for _, active := range []bool{false, true} {
				w.Spec.Active = new(active)
				update(t, c, w)
			}
		},
		"moved to another queue": func(t *testing.T, c client.Client, w *kueue.Workload) {
			w.Spec.QueueName = "other"
			update(t, c, w)
		},
		"grown": func(t *testing.T, c client.Client, w *kueue.Workload) {
			w.Spec.PodSets[0].Count = 3
			update(t, c, w)
		},
		"finished": func(t *testing.T, c client.Client, w *kueue.Workload) {
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded"})
			if err := c.Status().Update(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		},
		"deleted and made again": func(t *testing.T, c client.Client, w *kueue.Workload) {
			if err := c.Delete(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			w.ResourceVersion, w.UID = "", ""
			if err := c.Create(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		},
	}
	c := connect(t)
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			w := create(t, c, "late")
			d, cache := admission(w), frozen(c, w.DeepCopy())
			change(t, c, w)
			if err := newWriter(c, cache).write(t.Context(), &order{Decision: d}); err == nil {
				t.Error("the admission was written without an error")
			}
			if got := live(t, c, w); got.Status.Admission != nil {
				t.Errorf("admission %+v", got.Status.Admission)
			}
			if err := c.Delete(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAdmissionOfANewerVersion: a cache that still shows an earlier reservation does not stand for the Workload that was decided about.
func TestAdmissionOfANewerVersion(t *testing.T) {
	c := connect(t)
	w := create(t, c, "newer-version")
	if err := newWriter(c, c).write(t.Context(), &order{Decision: admission(w)}); err != nil {
		t.Fatal(err)
	}
	released := live(t, c, w)
	cache := frozen(c, released.DeepCopy())
	released.Status = kueue.WorkloadStatus{}
	if err := c.Status().Update(t.Context(), released); err != nil {
		t.Fatal(err)
	}
	d := admission(released)
	var err error
	if d.Grant.Version, err = strconv.ParseUint(released.ResourceVersion, 10, 64); err != nil {
		t.Fatal(err)
	}
	if err := newWriter(c, cache).write(t.Context(), &order{Decision: d}); err != nil {
		t.Fatal(err)
	}
	if got := live(t, c, w); got.Status.Admission == nil {
		t.Error("it is not admitted")
	}
}

func update(t *testing.T, c client.Client, w *kueue.Workload) {
	t.Helper()
	if err := c.Update(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// A new reason for waiting is written at once; a new message for the same
// reason can wait.
func TestWaiting(t *testing.T) {
	c := connect(t)
	w := create(t, c, "waiting")
	writer := newWriter(c, c)
	later := time.Now()
	writer.Now = func() time.Time { return later }
	steps := []struct {
		d     engine.Decision
		after time.Duration
		want  string // message, "" for no write
	}{
		{d: waiting(w, trace.WaitingForQuota, "4 short"), want: "4 short"},
		{d: waiting(w, trace.WaitingForQuota, "3 short"), after: time.Second},
		{d: waiting(w, trace.ExceedsMaxQuota, "too large"), after: time.Second, want: "too large; it can start only if quota is raised or its requests are lowered"},
		{d: waiting(w, trace.ExceedsMaxQuota, "far too large"), after: time.Minute, want: "far too large; it can start only if quota is raised or its requests are lowered"},
	}
	version := live(t, c, w).ResourceVersion
	for _, s := range steps {
		later = later.Add(s.after)
		if err := writer.write(t.Context(), &order{Decision: s.d}); err != nil {
			t.Fatal(err)
		}
		got := live(t, c, w)
		if wrote := got.ResourceVersion != version; wrote != (s.want != "") {
			t.Fatalf("%s: written is %v", s.d.Attempt.Note, wrote)
		}
		cond := apimeta.FindStatusCondition(got.Status.Conditions, kueue.WorkloadQuotaReserved)
		if s.want != "" && (cond.Message != s.want || cond.Reason != string(s.d.Attempt.Reason)) {
			t.Errorf("condition %+v, want %q", cond, s.want)
		}
		version = got.ResourceVersion
	}
	if requests := live(t, c, w).Status.ResourceRequests; len(requests) != 1 || requests[0].Name != "main" {
		t.Errorf("resourceRequests %+v", requests)
	}
}

// TestPutOff: a new message for the same reason, which no later attempt repeats, is written once the condition is old enough, unless another
// reason was written since.
func TestPutOff(t *testing.T) {
	c := connect(t)
	w := create(t, c, "put-off")
	writer := newWriter(c, c)
	var age atomic.Int64
	start := time.Now().Truncate(time.Second)
	writer.Now = func() time.Time { return start.Add(time.Duration(age.Load())) }
	shows := func(want string) error {
		if got := apimeta.FindStatusCondition(live(t, c, w).Status.Conditions, kueue.WorkloadQuotaReserved); got.Message != want {
			return fmt.Errorf("%q, want %q", got.Message, want)
		}
		return nil
	}
	writes := func(o *order, want string) {
		t.Helper()
		err := writer.write(t.Context(), o)
		if err == nil {
			err = shows(want)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	writes(&order{Decision: waiting(w, trace.WaitingForQuota, "4 short")}, "4 short")
	age.Store(int64(sameReason - 200*time.Millisecond))
	writes(&order{Decision: waiting(w, trace.WaitingForQuota, "3 short")}, "4 short")
	age.Store(int64(sameReason + time.Second))
	go func() { _ = writer.Start(t.Context()) }() // it ends with the test
	wait.Until(t, "the message is written", func() error { return shows("3 short") })
	writes(&order{Decision: waiting(w, trace.Suspended, "stopped")}, "stopped")
	writes(&order{Decision: waiting(w, trace.WaitingForQuota, "2 short"), putOff: true}, "stopped")
}

// An attempt before the reservation writes nothing into a reserved workload.
func TestNoWaitingOnAReservation(t *testing.T) {
	c := connect(t)
	w := create(t, c, "reserved")
	writer := newWriter(c, c)
	if err := writer.write(t.Context(), &order{Decision: admission(w)}); err != nil {
		t.Fatal(err)
	}
	if err := writer.write(t.Context(), &order{Decision: waiting(w, trace.WaitingForQuota, "late news")}); err != nil {
		t.Fatal(err)
	}
	if got := live(t, c, w); got.Status.Admission == nil {
		t.Error("the reservation is gone")
	}
}

// The older reasons: a queue that is not there makes a Workload inadmissible, a failed attempt leaves it pending. spec: 10 §4.10, 70 §5.1.
func TestLegacyReasons(t *testing.T) {
	legacy := &Writer{Machine: lifecycle.Machine{LegacyReasons: true}}
	for name, tc := range map[string]struct {
		queue  string
		reason trace.Reason
		want   string
	}{
		"no queue":                         {"", trace.Misconfigured, kueue.ReasonInadmissible},
		"a queue that is inactive":         {"cq", trace.Suspended, kueue.ReasonInadmissible},
		"a queue of other namespaces":      {"cq", trace.Misconfigured, kueue.ReasonPending},
		"no quota":                         {"cq", trace.WaitingForQuota, kueue.ReasonPending},
		"pods of others that are to start": {"cq", trace.WaitingForPodsReady, kueue.ReasonWaiting},
	} {
		attempt := &trace.Attempt{Workload: "ns/w", Queue: tc.queue, Verdict: trace.Waits, Reason: tc.reason}
		got, _ := legacy.pending(engine.Decision{Queue: tc.queue, Attempt: attempt})
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		w := &kueue.Workload{}
		legacy.Machine.Pending(w, got, "", metav1.Now())
		if c := lifecycle.Condition(w, kueue.WorkloadQuotaReserved); c.Reason != tc.want {
			t.Errorf("%s: the condition has %s, want %s", name, c.Reason, tc.want)
		}
		if (&Teller{Writer: legacy}).isNews(w, tc.reason, tc.queue != "") {
			t.Errorf("%s: it is written again", name)
		}
		if now, _ := (&Writer{}).pending(engine.Decision{Queue: tc.queue, Attempt: attempt}); now != string(tc.reason) {
			t.Errorf("%s: %s without the older reasons", name, now)
		}
	}
}

// All readers of the Workload see the condition: victims of other tenants are counted and not named.
func TestPendingNamesOnlyItsNamespace(t *testing.T) {
	attempt := &trace.Attempt{
		Workload: "red/high", Verdict: trace.Preempts, Reason: trace.WaitingForPreemptedWorkloads,
		Victims: []trace.Victim{{Key: "blue/low"}, {Key: "red/low"}},
	}
	_, message := (&Writer{}).pending(engine.Decision{Attempt: attempt})
	if want := "Waiting for 2 preempted workloads to stop: red/low, and 1 of other namespaces"; message != want {
		t.Errorf("%q, want %q", message, want)
	}
	if attempt.Victims[0].Key != "blue/low" {
		t.Error("the look of the engine, which is shared, was changed")
	}
}
