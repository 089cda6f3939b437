package decide_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestEvictedPodIsReleasedFirst: a pod is deleted to end its eviction. Its Workload records the outcome and releases its quota
// before it is treated as an orphan; the finalizer of the pod is removed last.
func TestEvictedPodIsReleasedFirst(t *testing.T) {
	const released = "status: QuotaReserved=False/PendingEvaluation Admitted=False/NoReservation Requeued=%s/Preempted"
	const orphaned = "status: Finished=True/OwnerNotFound"
	for name, tc := range map[string]struct {
		change func(*scene)
		want   []string
	}{
		"evicted":                     {func(s *scene) { s.evict(s.o.Workloads[0]) }, []string{fmt.Sprintf(released, "False"), orphaned}},
		"evicted, and may come again": {func(s *scene) { s.evict(s.o.Workloads[0]); s.d.Once.Requeues = true }, []string{fmt.Sprintf(released, "True"), orphaned}},
		"evicted, and gone":           {func(s *scene) { s.evict(s.o.Workloads[0]); s.o.Job = nil }, []string{fmt.Sprintf(released, "False"), orphaned}},
		"deleted by its user":         {func(*scene) {}, []string{orphaned}},
		"its workload is deleted":     {func(s *scene) { s.evict(s.o.Workloads[0]); s.o.Workloads[0].DeletionTimestamp = new(at(40)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.running()
			s.d.Once = &job.Once{Marked: func(job.Object, *job.Config) bool { return true }, Finalize: func(job.Object) bool { return false }, Alone: true}
			s.job.DeletionTimestamp = new(at(50))
			tc.change(s)
			var got []string
			for {
				a := s.decide()
				if a.Verb != job.WriteStatus {
					if a.Verb != job.UpdateWorkload || len(a.Workload.Finalizers) > 0 {
						t.Errorf("then %s", describeAction(a))
					}
					break
				}
				got = append(got, describeAction(a))
				for i := range a.Workload.Status.Conditions { // so that only what changes next is described
					if c := &a.Workload.Status.Conditions[i]; c.LastTransitionTime.Equal(new(at(100))) {
						c.LastTransitionTime = at(99)
					}
				}
				s.o.Workloads[0] = a.Workload
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestFailedToStart: the Workload of a job that cannot start is finished. That of a group of which a pod runs is deactivated, so that
// the pod is stopped as in any eviction.
func TestFailedToStart(t *testing.T) {
	member := func(name string, gates ...corev1.PodSchedulingGate) job.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{kueue.ManagedLabel: "true", kueue.PodGroupNameLabel: "g"}},
			Spec:       corev1.PodSpec{SchedulingGates: gates},
		}
	}
	gate := corev1.PodSchedulingGate{Name: kueue.AdmissionSchedulingGate}
	groups := pod.Descriptor().Groups
	cfg := &job.Config{}
	join := func(members ...job.Object) job.Object { return groups.Join("g", members, cfg, at(100).Time) }
	for name, tc := range map[string]struct {
		of   job.Object
		want string
	}{
		"a job":                     {newScene().job, kueue.WorkloadFinished},
		"a group that waits":        {join(member("a", gate), member("b", gate)), kueue.WorkloadFinished},
		"a group of which one runs": {join(member("a", gate), member("b")), kueue.WorkloadDeactivationTarget},
	} {
		a := decide.FailedToStart(cfg, tc.of, &kueue.Workload{}, errors.New("it is invalid"), at(100))
		c := lifecycle.Condition(a.Workload, tc.want)
		if a.Verb != job.WriteStatus || c == nil || c.Reason != kueue.ReasonFailedToStart || c.Message != "it is invalid" {
			t.Errorf("%s: %s, %+v", name, describeAction(a), a.Workload.Status.Conditions)
		}
	}
}
