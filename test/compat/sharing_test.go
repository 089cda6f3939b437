package compat

import (
	"fmt"
	"math"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// A penalty is half of the requests, and nothing else changes much while a test lasts.
const slowSharing = "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1h}\n"

func byUsage(q *kueue.ClusterQueue) {
	q.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
}

// pastUsage is the usage of cpu in the status of a LocalQueue, and its time; -1 without any.
func (w *world) pastUsage(name string) (float64, time.Time) {
	lq := read(w, w.localQueue(name, ""))
	if lq.Status.FairSharing == nil || lq.Status.FairSharing.AdmissionFairSharingStatus == nil {
		return -1, time.Time{}
	}
	st := lq.Status.FairSharing.AdmissionFairSharingStatus
	return st.ConsumedResources.Cpu().AsApproximateFloat64(), st.LastUpdate.Time
}

// used waits until the status of a LocalQueue has an amount of cpu.
func (w *world) used(name string, want float64) {
	w.t.Helper()
	wait.Until(w.t, fmt.Sprintf("LocalQueue %s has used %v", name, want), func() error {
		if got, _ := w.pastUsage(name); math.Abs(got-want) > 0.02 {
			return fmt.Errorf("it has used %v", got)
		}
		return nil
	})
}

// weigh edits the weight of a LocalQueue, and waits until the manager knows.
func (w *world) weigh(name, weight string) {
	w.t.Helper()
	edit(w, w.localQueue(name, ""), func(lq *kueue.LocalQueue) {
		lq.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse(weight))}
	})
	wait.Until(w.t, "the manager knows the weight of "+name, func() error {
		now := read(w, w.localQueue(name, ""))
		active := apimeta.FindStatusCondition(now.Status.Conditions, kueue.LocalQueueActive)
		if active == nil || active.ObservedGeneration != now.Generation {
			return fmt.Errorf("generation %d, %+v", now.Generation, active)
		}
		return nil
	})
}

// TestAdmissionFairSharing: 20 §7.14 to 17, and edits that act at once: [B] 5, weights.
func TestAdmissionFairSharing(t *testing.T) {
	m := running(t, slowSharing)
	w := newWorld(t)
	q := w.queue("blue", "4", byUsage)
	w.create(w.localQueue("red", q.Name))
	small, large := w.workload("r1", "red", "1"), w.workload("b1", "blue", "3")
	w.admits(small, large)
	w.used("red", 0.5)
	w.used("blue", 1.5)
	urgent, plain := w.workload("b2", "blue", "3", priority(1000)), w.workload("r2", "red", "3")
	w.waits(kueue.ReasonWaitingForQuota, urgent, plain)
	w.finish(large)
	w.admits(plain) // §7.14: the priority does not matter
	w.used("red", 2)

	// §7.17: another manager begins with the status, and red has used more.
	if err := m.end(); err != nil {
		t.Fatal(err)
	}
	running(t, slowSharing)
	again := w.workload("r3", "red", "3", priority(2000))
	w.waits(kueue.ReasonWaitingForQuota, again, urgent)
	w.finish(plain)
	w.admits(urgent)
	w.used("red", 2)
	w.used("blue", 3)

	// §7.15: with weight 2 the usage of blue counts half, and is less than that of red.
	third := w.workload("b3", "blue", "3")
	w.waits(kueue.ReasonWaitingForQuota, third)
	w.weigh("blue", "2")
	w.finish(urgent)
	w.admits(third)
	w.used("blue", 4.5)

	// The mode may change at any time: then the priority decides.
	last := w.workload("r4", "red", "3", priority(3000))
	w.waits(kueue.ReasonWaitingForQuota, last)
	w.change(q, func(q *kueue.ClusterQueue) { q.Spec.AdmissionScope.AdmissionMode = kueue.NoAdmissionFairSharing })
	w.finish(third)
	w.admits(last)
}

// TestAdmissionFairSharingDecays: 20 §7.13, and what a LocalQueue forgets it gives up its place for.
func TestAdmissionFairSharingDecays(t *testing.T) {
	running(t, "admissionFairSharing: {usageHalfLifeTime: 200ms, usageSamplingInterval: 100ms}\n")
	w := newWorld(t)
	w.queue("q", "4", byUsage)
	one := w.workload("one", "q", "4")
	w.admits(one)
	w.used("q", 4)
	w.finish(one)
	w.used("q", 0)
}

// TestAdmissionFairSharingKilled: the manager dies at one of its writes, and the next one counts each admission once.
func TestAdmissionFairSharingKilled(t *testing.T) {
	for at := 1; at <= 6; at++ {
		t.Run(fmt.Sprintf("at write %d", at), func(t *testing.T) {
			s := newSaboteur()
			m := launch(t, cluster(t), configured(t, slowSharing), through(s.wrap))
			m.ready()
			w := newWorld(t)
			w.queue("q", "4", byUsage)
			var begun time.Time
			wait.Until(t, "the LocalQueue has a time", func() error {
				if _, begun = w.pastUsage("q"); begun.IsZero() || metav1.Now().Unix() <= begun.Unix()+1 {
					return fmt.Errorf("it is %v", begun)
				}
				return nil
			})
			s.plan(w.name, planned{at, killed})
			one, two := w.workload("one", "q", "1"), w.workload("two", "q", "2")
			wait.Until(t, "the manager dies, or has nothing more to write", func() error {
				if got, _ := w.pastUsage("q"); !s.isDead() && math.Abs(got-1.5) > 0.02 {
					return fmt.Errorf("it lives, and the usage is %v", got)
				}
				return nil
			})
			_ = m.end()
			running(t, slowSharing)
			w.admits(one, two)
			w.used("q", 1.5)
		})
	}
}
