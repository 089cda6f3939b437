package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/reconcile"
)

// TestMissingNamespace: three creations in a namespace that does not exist on a worker cluster are enough to skip that: each of them counts.
func TestMissingNamespace(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &workloads{shared: &shared{cache: &shows{}, records: newRecords(func() time.Time { return now })}}
	s := &observation{key: client.ObjectKeyFromObject(u), config: &kueue.MultiKueueConfig{}}
	s.observed.Local = u
	creates := 0
	for ; creates < 100; creates++ {
		if fault := w.records.fault(u, "w1", func() string { return w.inputs(s, "w1") }); fault != nil && fault.Skip {
			break
		}
		err := w.failed(s, "w1", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns"))
		later, ok := errors.AsType[*delayedError](err)
		if !ok {
			t.Fatalf("retried soon: %v", err)
		}
		now = now.Add(later.after)
	}
	if creates != maxCreates {
		t.Errorf("%d creations", creates)
	}
}

// TestJoinErrors: an error of a stale cache does not hide another one.
func TestJoinErrors(t *testing.T) {
	gone, plain := apierrors.NewNotFound(schema.GroupResource{}, "a"), errors.New("plain")
	for _, tc := range []struct {
		errs []error
		soon bool
		err  error
	}{
		{},
		{errs: []error{gone}, soon: true},
		{errs: []error{gone, gone}, soon: true},
		{errs: []error{gone, plain}, err: plain},
		{errs: []error{plain, gone}, err: plain},
	} {
		result, err := reconcile.Retry(joinErrors(tc.errs)).Result(t.Context())
		if (result.RequeueAfter > 0) != tc.soon || !errors.Is(err, tc.err) {
			t.Errorf("%v: after %s, %v", tc.errs, result.RequeueAfter, err)
		}
	}
}

// TestPauseAfterErrors: an error does not delay what is due earlier than its backoff.
func TestPauseAfterErrors(t *testing.T) {
	var requeued time.Duration
	w := &workloads{shared: &shared{requeue: func(_ types.NamespacedName, after time.Duration) { requeued = after }}}
	plain := errors.New("plain")
	for _, tc := range []struct {
		after, requeued, result time.Duration
		err                     error
	}{
		{},
		{after: time.Minute, result: time.Minute},
		{err: plain},
		{err: plain, after: time.Minute, requeued: time.Minute},
	} {
		requeued = 0
		result, err := w.result(t.Context(), types.NamespacedName{}, tc.after, tc.err)
		if requeued != tc.requeued || result.RequeueAfter != tc.result || !errors.Is(err, tc.err) {
			t.Errorf("%+v: requeued after %s, %+v, %v", tc, requeued, result, err)
		}
	}
}

// TestNoteForwarded: a worker cluster that does not permit to change a job keeps it, and is asked again after a while.
func TestNoteForwarded(t *testing.T) {
	plain, forbidden := errors.New("plain"), apierrors.NewForbidden(schema.GroupResource{Resource: "rayservices"}, "a", nil)
	for _, tc := range []struct {
		err, want error
		after     time.Duration
		writes    int
	}{
		{nil, nil, 0, 1},
		{plain, plain, 0, 0},
		{fmt.Errorf("as said: %w", forbidden), nil, againAfterRefusal, 0},
	} {
		var requeued time.Duration
		w := &workloads{shared: &shared{records: newRecords(time.Now), requeue: func(_ types.NamespacedName, after time.Duration) { requeued = after }}}
		s := &observation{key: client.ObjectKeyFromObject(u)}
		s.observed.Local = u
		err := w.noteForwarded(s, "w1", specInput{generation: 1}, tc.err)
		if writes := w.records.specsWritten(u, "w1", specInput{generation: 1}); !errors.Is(err, tc.want) || requeued != tc.after || writes != tc.writes {
			t.Errorf("%v: %v, after %s, %d writes", tc.err, err, requeued, writes)
		}
	}
}

// TestFollowsChildren: only services whose clusters are gated need the clusters of their copy.
func TestFollowsChildren(t *testing.T) {
	plain, elastic := u.DeepCopy(), u.DeepCopy()
	elastic.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true"}
	follow := func(job.Object, job.Object, *kueue.Workload, *job.Setting) (bool, bool, error) {
		return false, false, nil
	}
	service := &job.Descriptor{Remote: &job.Remote{Follow: follow}, ManagedChildren: &job.ManagedChildren{
		Upgrades: &job.Upgrades{GatesChildren: func(c *job.Config) bool { return c.ElasticJobs }},
	}}
	for name, tc := range map[string]struct {
		kind *job.Descriptor
		wl   *kueue.Workload
		on   bool
		want bool
	}{
		"gated":              {service, elastic, true, true},
		"not elastic":        {service, plain, true, false},
		"gating is off":      {service, elastic, false, false},
		"nothing to forward": {&job.Descriptor{Remote: &job.Remote{}}, elastic, true, false},
	} {
		w := &workloads{shared: &shared{Options: Options{Jobs: &job.Config{ElasticJobs: tc.on}}}}
		s := &observation{kind: tc.kind}
		s.observed.Local = tc.wl
		if got := w.followsChildren(s); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
