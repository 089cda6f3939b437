package compat

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

func strict(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO }

// passed demands that a Workload which fits waits behind the head of its queue.
func (w *world) passed(wl *kueue.Workload) {
	w.t.Helper()
	w.keeps(wl, time.Second, "-QuotaReserved")
}

// TestStrictHead: the effect of a strict queue's head: one that could be evaluated again at any time blocks, for whatever reason it
// waits; one that waits for something else is not the head.
func TestStrictHead(t *testing.T) {
	running(t, "")
	scenes(t, map[string]func(*world){
		"10 §4.4 the head breaks a LimitRange": func(w *world) {
			limit := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: "limit"}}
			limit.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"cpu": cpus("2")}}}
			w.create(limit)
			w.queue("q", "4", strict)
			head := w.workload("head", "q", "3", priority(1))
			w.waits(kueue.ReasonMisconfigured, head)
			w.tells(head, "Warning Misconfigured")
			behind := w.workload("behind", "q", "1")
			w.passed(behind)
			w.must(w.c.Delete(w.ctx(), limit))
			w.admits(head, behind)
		},
		"10 §4.4 the head asks for more than its limit, and goes": func(w *world) {
			w.queue("q", "4", strict)
			head := w.workload("head", "q", "3", priority(1), func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": cpus("2")}
			})
			w.waits(kueue.ReasonMisconfigured, head)
			behind := w.workload("behind", "q", "1")
			w.passed(behind)
			w.must(w.c.Delete(w.ctx(), head))
			w.admits(behind)
		},
		"10 §4.4 the head can never fit, and is edited": func(w *world) {
			w.queue("q", "4", strict)
			head := w.workload("head", "q", "5", priority(1))
			w.waits(kueue.ReasonExceedsMaxQuota, head)
			behind := w.workload("behind", "q", "1")
			w.passed(behind)
			edit(w, head, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec = podSpec("cpu", "3") })
			w.admits(head, behind)
		},
		"10 §4.5 the head has a check that failed": func(w *world) {
			c := w.check("c")
			w.queue("q", "2", strict, checked(every(c)...))
			first := w.workload("first", "q", "1", priority(2))
			w.until(first, reserved)
			head := w.workload("head", "q", "2", priority(1))
			w.waits(kueue.ReasonWaitingForQuota, head)
			w.answer(head, c, kueue.CheckStateRejected)
			w.finish(first)
			w.waits(kueue.ReasonPendingEvaluation, head)
			behind := w.workload("behind", "q", "1")
			w.passed(behind)
			w.answer(head, c, kueue.CheckStateReady)
			w.admits(head)
		},
		"10 §4.4 a namespace that is not selected is in nobody's way": func(w *world) {
			q := w.queue("q", "4", strict, func(q *kueue.ClusterQueue) {
				q.Spec.NamespaceSelector.MatchLabels = map[string]string{"team": "red"}
			})
			red := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.own("red"), Labels: map[string]string{"team": "red"}}}
			lq := w.localQueue("q", q.Name)
			lq.Namespace = red.Name
			behind := workloadOf(red.Name, "behind", "q", "1")
			w.waits(kueue.ReasonMisconfigured, w.workload("head", "q", "3", priority(1)))
			w.create(red, lq, behind)
			w.admits(behind)
			w.must(w.c.Delete(w.ctx(), behind))
			w.must(w.c.Delete(w.ctx(), lq))
		},
		"10 §4.4 who waits for gates, a queue or its time is not the head": func(w *world) {
			q := w.queue("q", "2", strict)
			held := w.localQueue("held", q.Name)
			held.Spec.StopPolicy = kueue.StopPolicyHold
			w.create(held)
			gated := w.workload("gated", "q", "3", priority(3), func(wl *kueue.Workload) {
				wl.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "example.com/a"}
			})
			w.waits(kueue.ReasonAdmissionGated, gated)
			w.workload("stopped", "held", "3", priority(2))
			w.workload("inactive", "q", "3", priority(1), func(wl *kueue.Workload) { wl.Spec.Active = new(false) })
			behind := w.workload("behind", "q", "1")
			w.admits(behind)
			edit(w, gated, func(wl *kueue.Workload) { delete(wl.Annotations, kueue.AdmissionGatedByAnnotation) })
			w.waits(kueue.ReasonExceedsMaxQuota, gated)
			w.passed(w.workload("last", "q", "1"))
		},
		"10 §4.4 the head comes back later": func(w *world) {
			c := w.check("c")
			w.queue("q", "2", strict, checked(every(c)...))
			head := w.workload("head", "q", "2", priority(1))
			w.until(head, reserved)
			w.answer(head, c, kueue.CheckStateRetry, func(s *kueue.AdmissionCheckState) { s.RequeueAfterSeconds = new(int32(4)) })
			w.until(head, "Evicted=True/AdmissionCheck")
			w.release(head)
			meanwhile := w.workload("meanwhile", "q", "1")
			w.until(meanwhile, reserved)
			w.waits(kueue.ReasonWaitingForQuota, w.until(head, "Requeued=True/BackoffFinished"))
			w.passed(w.workload("behind", "q", "1"))
			w.finish(meanwhile)
			w.until(head, reserved)
		},
	})
}
