package admit

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestLostAnswer: an admission whose write has no answer is not given back until it is known that the Workload does not have it, and will
// not get it.
func TestLostAnswer(t *testing.T) {
	c := connect(t)
	lost, denied := fmt.Errorf("writing: %w", io.EOF), apierrors.NewForbidden(schema.GroupResource{Resource: "workloads"}, "w", nil)
	label := func(t *testing.T, w *kueue.Workload) {
		w.Labels = map[string]string{"a": "b"}
		update(t, c, w)
	}
	evict := func(t *testing.T, w *kueue.Workload) {
		w.Status.Admission, w.Status.Conditions = nil, nil
		if err := c.Status().Update(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		err     error // of the first write
		written bool  // by the first write
		then    func(*testing.T, *kueue.Workload)
		again   error // of the second write
		kept    bool  // after the first write
		want    bool  // it is reserved after the next attempts, and the last one has no error
	}{
		"written":                           {err: lost, written: true, kept: true, want: true},
		"written, and changed":              {err: lost, written: true, then: label, kept: true, want: true},
		"written, and lost again":           {err: lost, written: true, then: evict, kept: true},
		"not written":                       {err: lost, kept: true, want: true},
		"not written, and changed":          {err: lost, then: label, kept: true},
		"written, and the answer timed out": {err: apierrors.NewTimeoutError("slow", 1), written: true, kept: true, want: true},
		"not written twice":                 {err: lost, again: lost, kept: true, want: true},
		"not written, and then denied":      {err: lost, again: denied, kept: true},
		"an internal error":                 {err: apierrors.NewInternalError(io.EOF), kept: true},
		"an internal error after the write": {err: apierrors.NewInternalError(io.EOF), written: true, kept: true, want: true},
		"denied":                            {err: denied},
		"too many requests":                 {err: apierrors.NewTooManyRequests("busy", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := create(t, c, "answer")
			defer func() { _ = c.Delete(t.Context(), w) }()
			answers := []error{tc.err, tc.again}
			api := interceptor.NewClient(c, interceptor.Funcs{SubResourceApply: func(
				ctx context.Context, to client.Client, sub string, of runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
			) error {
				answer := answers[0]
				if answers = append(answers[1:], nil); answer == nil || tc.written {
					if err := to.SubResource(sub).Apply(ctx, of, opts...); err != nil {
						return err
					}
				}
				return answer
			}})
			writer, o := newWriter(api, frozen(api, w.DeepCopy())), &order{Decision: admission(w)} // the cache lags behind until the end
			if err := writer.write(t.Context(), o); err == nil {
				t.Fatal("the first write had no error")
			} else if again := writer.failed(o, err, time.Hour); (again > 0) != tc.kept || again > reconcile.UnansweredPause {
				t.Fatalf("it is tried again after %s, want %v", again, tc.kept)
			}
			if got := live(t, c, w); lifecycle.IsReserved(got) != tc.written {
				t.Fatalf("after the first write: %+v", got.Status)
			}
			if !tc.kept {
				return
			}
			if tc.then != nil {
				tc.then(t, live(t, c, w))
			}
			before := live(t, c, w)
			err := writer.write(t.Context(), o)
			if tc.again != nil {
				if err == nil || writer.failed(o, err, time.Second) == 0 {
					t.Fatalf("error %v of the second write", err)
				}
				err = writer.write(t.Context(), o)
			}
			if (err == nil) != tc.want {
				t.Fatalf("error of the last write: %v", err)
			}
			after := live(t, c, w)
			if lifecycle.IsReserved(after) != tc.want || (tc.written && after.ResourceVersion != before.ResourceVersion) {
				t.Errorf("after the last write, of version %s: version %s, %+v", before.ResourceVersion, after.ResourceVersion, after.Status)
			}
			if err != nil && writer.failed(o, err, time.Second) > 0 {
				t.Error("it is tried once more")
			}
		})
	}
}

// TestWrittenInPart: an admission takes two writes where another client has written a status before. If the second one is refused,
// the Workload still has the admission.
func TestWrittenInPart(t *testing.T) {
	c := connect(t)
	w := create(t, c, "part")
	apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Reason: kueue.ReasonInadmissible})
	if err := c.Status().Update(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	api := interceptor.NewClient(c, interceptor.Funcs{SubResourceUpdate: func(
		context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption,
	) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "workloads"}, "part", nil)
	}})
	writer, o := newWriter(api, api), &order{Decision: admission(w)}
	err := writer.write(t.Context(), o)
	if err == nil || !lifecycle.IsReserved(live(t, c, w)) {
		t.Fatalf("error %v, and the status is %+v; want an error after the reservation", err, live(t, c, w).Status)
	}
	if writer.failed(o, err, time.Second) == 0 {
		t.Errorf("the quota is given back after %v", err)
	}
	if err := writer.write(t.Context(), o); err != nil {
		t.Error(err)
	}
}
