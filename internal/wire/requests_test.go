package wire

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

func limits(namespace, name string, item corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
}

// asked returns the requests in the status of a pending Workload.
func (s *seen) asked(room, name, want string) {
	s.Helper()
	wait.Until(s.T, fmt.Sprintf("%s/%s asks for %s", room, name, want), func() error {
		got := s.workload(room, name).Status.ResourceRequests
		if len(got) != 1 || text(got[0].Resources) != want {
			return fmt.Errorf("it asks for %+v", got)
		}
		return nil
	})
}

// limitRangeDefaults: pods without requests are charged the defaults of the LimitRange; the spec stays unchanged.
func (s *seen) limitRangeDefaults() {
	const room = "limit-defaults"
	s.room(room, "3")
	cq := s.clusterQueue(room)
	change(s, cq, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
	s.create(work(room, "four", 4, ""))
	s.waits(room, "four", kueue.ReasonSuspended)
	s.create(limits(room, "defaults", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: amounts("cpu=500m")}))
	s.asked(room, "four", "cpu=2")
	change(s, cq, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	if used := s.runs(room, "four"); used != "cpu=2" {
		s.Errorf("it uses %s", used)
	}
	if r := s.workload(room, "four").Spec.PodSets[0].Template.Spec.Containers[0].Resources; len(r.Requests)+len(r.Limits) > 0 {
		s.Errorf("its spec asks for %+v", r)
	}
}

// runtimeClass: a later overhead counts for pending Workloads, not for running ones.
func (s *seen) runtimeClass() {
	const room = "runtime-class"
	s.room(room, "1500m")
	sandboxed := func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Spec.RuntimeClassName = new("late-sandbox") }
	s.create(work(room, "first", 1, "cpu=1", sandboxed))
	s.runs(room, "first")
	s.create(work(room, "second", 1, "cpu=1", sandboxed))
	s.asked(room, "second", "cpu=1")
	s.create(&nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "late-sandbox"}, Handler: "sandbox", Overhead: &nodev1.Overhead{PodFixed: amounts("cpu=600m")},
	})
	s.waits(room, "second", kueue.ReasonExceedsMaxQuota) // 1600m of 1500m
	s.asked(room, "second", "cpu=1600m")
	if used := s.runs(room, "first"); used != "cpu=1" {
		s.Errorf("what runs uses %s", used)
	}
	s.remove(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "late-sandbox"}})
	s.waits(room, "second", kueue.ReasonWaitingForQuota)
	s.finish(room, "first")
	s.runs(room, "second")
}

// limitRangeChanges: added, changed and removed bounds apply without a change of the Workload.
func (s *seen) limitRangeChanges() {
	const room = "limit-changes"
	s.room(room, "2")
	s.create(work(room, "first", 1, "cpu=2"))
	s.runs(room, "first")
	s.create(work(room, "second", 1, "cpu=2"))
	s.waits(room, "second", kueue.ReasonWaitingForQuota)
	bounds := limits(room, "bounds", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: amounts("cpu=1")})
	s.create(bounds)
	s.waits(room, "second", kueue.ReasonMisconfigured, "spec.podSets[main].template.spec.containers[main].resources", "cpu 2 is above the maximum of 1")
	s.finish(room, "first") // now only the bounds prevent admission
	s.keepsWaiting(room, "second", kueue.ReasonMisconfigured)
	change(s, bounds, func(l *corev1.LimitRange) {
		l.Spec.Limits[0].Max, l.Spec.Limits[0].Default, l.Spec.Limits[0].DefaultRequest = amounts("cpu=4"), nil, nil
	})
	s.runs(room, "second")
	change(s, bounds, func(l *corev1.LimitRange) {
		l.Spec.Limits[0].Min, l.Spec.Limits[0].Default, l.Spec.Limits[0].DefaultRequest = amounts("cpu=3"), nil, nil
	})
	s.create(work(room, "third", 1, "cpu=1"))
	s.waits(room, "third", kueue.ReasonMisconfigured, "cpu 1 is below the minimum of 3")
	s.runs(room, "second") // a running one is not affected
	s.finish(room, "second")
	s.remove(bounds)
	s.runs(room, "third")
}

// misfits: pods that the API server would refuse are not admitted; they block a StrictFIFO queue, and not a BestEffortFIFO one.
// spec: 10 §6 #3.
func (s *seen) misfits() {
	high := func(w *kueue.Workload) { w.Spec.Priority = new(int32(10)) }
	tooMuch := func(w *kueue.Workload) {
		w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = amounts("cpu=500m")
	}
	s.room("misfits", "2")
	s.create(work("misfits", "bad", 1, "cpu=1", high, tooMuch), work("misfits", "good", 1, "cpu=1"))
	s.waits("misfits", "bad", kueue.ReasonMisconfigured, "the request of cpu 1 is above the limit of 500m")
	s.runs("misfits", "good")
	s.room("misfits-strict", "2", func(q *kueue.ClusterQueueSpec) { q.QueueingStrategy = kueue.StrictFIFO })
	s.create(work("misfits-strict", "bad", 1, "cpu=1", high, tooMuch))
	s.waits("misfits-strict", "bad", kueue.ReasonMisconfigured)
	s.create(work("misfits-strict", "good", 1, "cpu=1"))
	wait.Stays(s.T, 300*time.Millisecond, "a StrictFIFO queue blocks it", func() error {
		if w := s.workload("misfits-strict", "good"); w.Status.Admission != nil {
			return fmt.Errorf("%+v", w.Status)
		}
		return nil
	})
	change(s, s.workload("misfits-strict", "bad"), func(w *kueue.Workload) {
		w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = amounts("cpu=1")
	})
	s.runs("misfits-strict", "bad")
	s.runs("misfits-strict", "good")
}

// transformations: the transformed requests are charged.
func (s *seen) transformations() {
	const room = "transformations"
	covered := []string{"cpu", "acc/slots", "acc/mem", "example.com/x", "credits"}
	s.room(room, "8", func(q *kueue.ClusterQueueSpec) {
		g := &q.ResourceGroups[0]
		for _, name := range covered[1:] {
			quota := amounts(name + "=100Gi")[corev1.ResourceName(name)]
			g.CoveredResources = append(g.CoveredResources, corev1.ResourceName(name))
			g.Flavors[0].Resources = append(g.Flavors[0].Resources, kueue.ResourceQuota{Name: corev1.ResourceName(name), NominalQuota: quota})
		}
	})
	s.create(
		work(room, "mig", 2, "nvidia.com/mig-1g=2"),
		work(room, "credits", 1, "example.com/x=3 cpu=4 free.example.com/y=7"))
	if used := s.runs(room, "mig"); used != "acc/mem=21474836480 acc/slots=4" {
		s.Errorf("it uses %s", used)
	}
	if used := s.runs(room, "credits"); used != "cpu=4 credits=24 example.com/x=3" {
		s.Errorf("it uses %s", used)
	}
}
