package wire

import (
	"fmt"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// classed names a priority class.
func classed(group kueue.PriorityClassGroup, kind kueue.PriorityClassKind, name string, value int32) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.Spec.PriorityClassRef = &kueue.PriorityClassRef{Group: group, Kind: kind, Name: name}
		w.Spec.Priority = &value
	}
}

func ofWorkloads(name string, value int32) func(*kueue.Workload) {
	return classed(kueue.WorkloadPriorityClassGroup, kueue.WorkloadPriorityClassKind, name, value)
}

func (s *seen) priority(room, name string, want int32) {
	s.Helper()
	wait.Until(s.T, fmt.Sprintf("%s/%s has priority %d", room, name, want), s.hasPriority(room, name, want))
}

func (s *seen) keepsPriority(room, name string, want int32) {
	s.Helper()
	wait.Stays(s.T, moment, fmt.Sprintf("%s/%s has priority %d", room, name, want), s.hasPriority(room, name, want))
}

func (s *seen) hasPriority(room, name string, want int32) func() error {
	return func() error {
		if p := s.workload(room, name).Spec.Priority; p == nil || *p != want {
			return fmt.Errorf("priority %v", p)
		}
		return nil
	}
}

// moment is how long a test waits for what must not happen.
const moment = 300 * time.Millisecond

// priorityClass: a new value reaches every Workload that names the class: pending ones move ahead, running ones can no longer be preempted.
func (s *seen) priorityClass() {
	const room = "priority-class"
	s.room(room, "1", func(q *kueue.ClusterQueueSpec) {
		q.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionLowerPriority}
	})
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "tier"}, Value: 60}
	s.create(class, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "tier"}, Value: 7})
	s.create(work(room, "done", 1, "cpu=1", ofWorkloads("tier", 40)))
	s.priority(room, "done", 60)
	time.Sleep(3500 * time.Millisecond) // a new class is reconciled twice
	s.runs(room, "done")
	s.finish(room, "done")
	s.create(work(room, "running", 1, "cpu=1", ofWorkloads("tier", 60)))
	s.runs(room, "running")
	s.create(
		work(room, "middle", 1, "cpu=1", func(w *kueue.Workload) { w.Spec.Priority = new(int32(50)) }),
		work(room, "named", 1, "cpu=1", ofWorkloads("tier", 40)), // by hand, until the class changes
		work(room, "of-pods", 1, "cpu=1", classed(kueue.PodPriorityClassGroup, kueue.PodPriorityClassKind, "tier", 7)))
	s.waits(room, "middle", kueue.ReasonWaitingForQuota)
	s.keepsPriority(room, "named", 40)
	change(s, class, func(c *kueue.WorkloadPriorityClass) { c.Description = "not a value" })
	s.keepsPriority(room, "named", 40)

	change(s, class, func(c *kueue.WorkloadPriorityClass) { c.Value = 100 })
	for _, name := range []string{"done", "running", "named"} {
		s.priority(room, name, 100)
	}
	s.priority(room, "of-pods", 7)
	s.create(work(room, "urgent", 1, "cpu=1", func(w *kueue.Workload) { w.Spec.Priority = new(int32(90)) }))
	s.waits(room, "urgent", kueue.ReasonWaitingForQuota) // running is no victim any more
	s.finish(room, "running")
	s.runs(room, "named")
	for _, name := range []string{"middle", "urgent"} {
		if w := s.workload(room, name); w.Status.Admission != nil {
			s.Errorf("%s runs before the one with the new priority", name)
		}
	}
	s.remove(class)
	s.keepsPriority(room, "named", 100)
	change(s, s.workload(room, "named"), func(w *kueue.Workload) { w.Spec.Priority = new(int32(1)) }) // and may be preempted now
	wait.Until(s.T, "the urgent one preempts it", func() error {
		return is(s.workload(room, "named").Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.ReasonPreempted)
	})
}

// boost: the annotation raises a priority where the queue is ordered.
func (s *seen) boost() {
	const room = "boost"
	s.room(room, "1")
	s.create(work(room, "running", 1, "cpu=1"))
	s.runs(room, "running")
	s.create(work(room, "second", 1, "cpu=1", func(w *kueue.Workload) { w.Spec.Priority = new(int32(5)) }), work(room, "third", 1, "cpu=1"))
	s.waits(room, "second", kueue.ReasonWaitingForQuota)
	change(s, s.workload(room, "third"), func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.PriorityBoostAnnotation: "10"} })
	time.Sleep(300 * time.Millisecond)
	s.finish(room, "running")
	s.runs(room, "third")
	if w := s.workload(room, "second"); w.Status.Admission != nil {
		s.Error("the boost had no effect")
	}
	bad := work(room, "bad", 1, "cpu=1")
	bad.Annotations = map[string]string{kueue.PriorityBoostAnnotation: "a lot"}
	if err := s.c.Create(s.Context(), bad); !apierrors.IsForbidden(err) {
		s.Errorf("a boost that is no number: %v, want 403", err)
	}
}
