package metrics

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// life is a world with one queue and a Workload of priority class "high".
func life(t *testing.T) (*world, *kueue.Workload) {
	t.Helper()
	w := newWorld(t, all())
	w.queue("q", "c", "cpu=9")
	w.localQueue("l", "q")
	wl := newWorkload("w", "l", "1", func(wl *kueue.Workload) {
		wl.Spec.PriorityClassRef = &kueue.PriorityClassRef{Name: "high"}
	})
	return w, w.put(wl)
}

const (
	ofQ = "{cluster_queue=q,priority_class=high} "
	ofL = "{name=l,namespace=ns,priority_class=high} "
)

// both expects the same series of the ClusterQueue and of the LocalQueue.
func (w *world) both(when, name, want string) {
	w.t.Helper()
	if want == "" {
		w.expect(when, "kueue_"+name)
		w.expect(when, "kueue_local_queue_"+name)
		return
	}
	w.expect(when, "kueue_"+name, "kueue_"+name+ofQ+want)
	w.expect(when, "kueue_local_queue_"+name, "kueue_local_queue_"+name+ofL+want)
}

func TestLife(t *testing.T) {
	w, wl := life(t)
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "c", State: kueue.CheckStatePending}}
	w.admit(wl, "q", "1", 10)
	w.both("reserved", "quota_reserved_workloads_total", "1")
	w.both("reserved", "quota_reserved_wait_time_seconds", "1/10")
	w.both("its check waits", "admitted_workloads_total", "")
	w.write(wl, func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		machine.SyncAdmitted(wl, at(17))
	})
	w.both("admitted", "quota_reserved_workloads_total", "1")
	w.both("admitted", "admitted_workloads_total", "1")
	w.both("admitted", "admission_wait_time_seconds", "1/17")
	w.both("admitted", "admission_checks_wait_time_seconds", "1/7")
	w.expect("", "kueue_cohort_subtree_admitted_workloads_total", "kueue_cohort_subtree_admitted_workloads_total{cohort=c,priority_class=high} 1")
	w.write(wl, func(wl *kueue.Workload) { machine.PodsReady(wl, false, at(18)) })
	w.write(wl, func(wl *kueue.Workload) { machine.PodsReady(wl, true, at(20)) })
	w.both("ready", "ready_wait_time_seconds", "1/20")
	w.both("ready", "admitted_until_ready_wait_time_seconds", "1/3")
	w.write(wl, func(wl *kueue.Workload) { machine.PodsReady(wl, false, at(22)) })
	w.write(wl, func(wl *kueue.Workload) { machine.PodsReady(wl, true, at(25)) })
	w.both("recovered, which is not the first time", "ready_wait_time_seconds", "1/20")
	w.finish(wl, 60)
	w.both("finished", "finished_workloads_total", "1")
	w.both("finished", "execution_time_seconds", "1/43")
	w.write(wl, func(wl *kueue.Workload) { wl.Status.ClusterName = "later" })
	w.both("a write after the end", "finished_workloads_total", "1")
	w.both("evicted never", "evicted_workloads_total", "")
}

// What ends after its ClusterQueue was deleted gives that no series again.
func TestDeletedQueue(t *testing.T) {
	w, wl := life(t)
	w.admit(wl, "q", "1", 10)
	other := w.put(newWorkload("other", "l", "1"))
	w.admit(other, "q", "1", 10)
	w.write(wl, func(wl *kueue.Workload) { machine.PodsReady(wl, true, at(20)) })
	w.deleteQueue("q")
	w.recorder.Recomputed("q", "succeeded")
	w.recorder.Preempted("q", "q", "InClusterQueue")
	w.recorder.GateRemoved("gate", "q", true, 1)
	w.write(wl, func(wl *kueue.Workload) { machine.Evict(wl, kueue.ReasonPreempted, "", "", at(30)) })
	w.write(wl, func(wl *kueue.Workload) { machine.Release(wl, false, at(40)) })
	w.write(other, func(wl *kueue.Workload) { machine.Finish(wl, kueue.ReasonWorkloadSliceReplaced, "", at(50)) })
	w.admit(w.put(newWorkload("late", "l", "1")), "never", "1", 60)
	for _, queue := range []string{"q", "never"} {
		if got := w.naming(queue); len(got) > 0 {
			t.Errorf("the ClusterQueue %s does not exist, but has %v", queue, got)
		}
	}
	w.expect("the LocalQueue is there", "kueue_local_queue_finished_workloads_total",
		"kueue_local_queue_finished_workloads_total{name=l,namespace=ns,priority_class=} 1")
}

// A Workload may name any priority class: after many of them the rest have one series.
func TestManyPriorityClasses(t *testing.T) {
	w, _ := life(t)
	for i := range 2 * maxClasses {
		wl := w.put(newWorkload(fmt.Sprint("w", i), "l", "1", func(wl *kueue.Workload) {
			wl.Spec.PriorityClassRef = &kueue.PriorityClassRef{Name: fmt.Sprint("class-", i)}
		}))
		w.admit(wl, "q", "1", 10)
	}
	series := w.scrape("kueue_quota_reserved_workloads_total")
	if n := len(series); n != maxClasses+1 {
		t.Errorf("%d series", n)
	}
	if !slices.Contains(series, fmt.Sprintf("kueue_quota_reserved_workloads_total{cluster_queue=q,priority_class=%s} %d", untracked, maxClasses)) {
		t.Errorf("%s", series[len(series)-1])
	}
}

// spec: 70 §7 29, 30.
func TestEvictions(t *testing.T) {
	w, wl := life(t)
	w.queue("p", "", "cpu=1")
	preempt := func(when int) {
		w.write(wl, func(wl *kueue.Workload) { machine.Preempt(wl, kueue.ReasonInClusterQueue, "", at(when)) })
		w.recorder.Preempted("p", "q", kueue.ReasonInClusterQueue)
	}
	release := func(when int) {
		w.write(wl, func(wl *kueue.Workload) { machine.Release(wl, false, at(when)) })
	}
	w.admit(wl, "q", "1", 10)
	w.write(wl, func(wl *kueue.Workload) { machine.PodsReady(wl, true, at(12)) })
	preempt(40)
	w.expect("quota is still held", "kueue_workload_eviction_latency_seconds")
	release(46)
	w.expect("", "kueue_workload_eviction_latency_seconds", "kueue_workload_eviction_latency_seconds{cluster_queue=q,reason=Preempted} 1/6")
	w.expect("", "kueue_pods_ready_to_evicted", "kueue_pods_ready_to_evicted_time_seconds{cluster_queue=q,reason=Preempted,underlying_cause=} 1/28")
	w.admit(wl, "q", "1", 76)
	w.expect("waits count from the requeueing", "kueue_admission_wait_time_seconds", "kueue_admission_wait_time_seconds"+ofQ+"2/40")
	preempt(80)
	release(80)
	evicted := "{cluster_queue=q,priority_class=high,reason=Preempted,underlying_cause=} "
	w.expect("each counts", "kueue_evicted_workloads_total", "kueue_evicted_workloads_total"+evicted+"2")
	w.expect("the first counts", "kueue_evicted_workloads_once_total", "kueue_evicted_workloads_once_total"+evicted+"1")
	w.expect("", "kueue_local_queue_evicted", "kueue_local_queue_evicted_workloads_total{name=l,namespace=ns,priority_class=high,reason=Preempted,underlying_cause=} 2")
	w.expect("", "kueue_preempted", "kueue_preempted_workloads_total{preempting_cluster_queue=p,reason=InClusterQueue} 2")
	w.expect("", "berth_preempted", "berth_preempted_workloads_total{preempted_cluster_queue=q,preempting_cluster_queue=p,reason=InClusterQueue} 2")
	w.admit(wl, "q", "1", 90)
	w.finish(wl, 100)
	w.both("without the gaps", "execution_time_seconds", "1/50") // 10 to 46, 76 to 80, 90 to 100
}

// The reason and the cause of an eviction stay apart. spec: 10 §4.11.
func TestEvictionCauses(t *testing.T) {
	cases := map[string]struct {
		do            func(*kueue.Workload)
		reason, cause string
	}{
		"no pods in time": {func(wl *kueue.Workload) {
			machine.Evict(wl, kueue.ReasonPodsReadyTimeout, kueue.ReasonWaitForStart, "", at(9))
		}, "PodsReadyTimeout", "WaitForStart"},
		"deactivated for a cause": {func(wl *kueue.Workload) {
			machine.RequestDeactivation(wl, kueue.ReasonRequeuingLimitExceeded, "", at(9))
			machine.Deactivate(wl, at(9))
		}, "Deactivated", "RequeuingLimitExceeded"},
		"deactivated by a user": {func(wl *kueue.Workload) { machine.Deactivate(wl, at(9)) }, "Deactivated", ""},
		"counted by nobody": {func(wl *kueue.Workload) {
			machine.Evict(wl, kueue.ReasonDeactivated, "Other", "", at(9))
			wl.Status.SchedulingStats = nil
		}, "Deactivated", "Other"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, wl := life(t)
			w.admit(wl, "q", "1", 1)
			w.write(wl, tc.do)
			w.write(wl, func(wl *kueue.Workload) { machine.Release(wl, false, at(4)) })
			w.expect("", "kueue_evicted_workloads_total",
				"kueue_evicted_workloads_total{cluster_queue=q,priority_class=high,reason="+tc.reason+",underlying_cause="+tc.cause+"} 1")
			w.expect("not before the eviction, whatever the clocks say", "kueue_workload_eviction_latency_seconds",
				"kueue_workload_eviction_latency_seconds{cluster_queue=q,reason="+tc.reason+"} 1/0")
		})
	}
	w, wl := life(t)
	w.write(wl, func(wl *kueue.Workload) { machine.Deactivate(wl, at(9)) })
	w.expect("it never had quota", "kueue_evicted")
}

func TestTransitionsAreToldApart(t *testing.T) {
	w, wl := life(t)
	w.admit(wl, "q", "1", 10)
	w.write(wl, func(wl *kueue.Workload) { machine.Pending(wl, kueue.ReasonSuspended, "", at(20)) })
	w.expect("a reservation that was dropped is no eviction", "kueue_evicted")
	w.expect("", "kueue_workload_eviction")
	w.admit(wl, "q", "1", 30)
	w.both("", "admitted_workloads_total", "2")
	w.write(wl, func(wl *kueue.Workload) { machine.Finish(wl, kueue.ReasonWorkloadSliceReplaced, "", at(40)) })
	w.expect("", "kueue_replaced", "kueue_replaced_workload_slices_total{cluster_queue=q} 1")

	stray := w.put(newWorkload("stray", "nowhere", "1"))
	w.admit(stray, "gone", "1", 5)
	w.expect("queues that do not exist have no series", "kueue_admitted_workloads_total", "kueue_admitted_workloads_total"+ofQ+"2")
	lost := w.put(newWorkload("lost", "nowhere", "1"))
	w.finish(lost, 3)
	w.expect("neither have queues without a name", "kueue_finished_workloads_total", "kueue_finished_workloads_total"+ofQ+"1")
}

func TestCycles(t *testing.T) {
	w := newWorld(t, all())
	w.recorder.Cycles(0, 0, 5e9)
	w.expect("no cycle", "kueue_admission_attempt")
	w.recorder.Cycles(1, 3, 8e9)
	w.recorder.Phase(PhaseDecide, 2e9)
	w.expect("", "kueue_admission_attempt", "kueue_admission_attempts_total{result=success} 1", "kueue_admission_attempts_total{result=inadmissible} 3",
		"kueue_admission_attempt_duration_seconds{result=success} 1/2", "kueue_admission_attempt_duration_seconds{result=inadmissible} 3/6")
	w.expect("", "berth_scheduler", "berth_scheduler_phase_duration_seconds{phase=decide} 1/2")
	w.recorder.WorkloadCreated("Job", 2, "ns", "l", 1e9)
	w.expect("a later generation says nothing", "kueue_workload_creation")
	w.recorder.WorkloadCreated("Job", 0, "ns", "l", 1e9)
	w.expect("", "kueue_workload_creation", "kueue_workload_creation_latency_seconds{job_kind=Job} 1/1")
	w.recorder.RemotelyAdmitted("q", "east")
	w.expect("", "multikueue", "multikueue_workloads_admitted_total{cluster=east,cluster_queue=q} 1")
	w.recorder.WorkerLost("east")
	w.expect("", "multikueue_worker", "multikueue_worker_lost_total{cluster=east} 1")
	w.recorder.SetClusters(func() map[string]bool { return map[string]bool{"east": true, "west": false} })
	w.expect("", "multikueue_cluster", "multikueue_cluster_connected{cluster=east} 1", "multikueue_cluster_connected{cluster=west} 0")
	w.recorder.Transformed("F.v1.g", "creation", "error", 300, 2e9)
	w.expect("", "multikueue_external", "multikueue_external_transform_total{framework=F.v1.g,phase=creation,result=error} 1",
		"multikueue_external_transform_cost{framework=F.v1.g,phase=creation} 1/300", "multikueue_external_transform_duration_seconds{framework=F.v1.g,phase=creation} 1/2")
	w.recorder.Suspended("F.v1.g", "creation")
	w.expect("", "multikueue_external_transform_susp", "multikueue_external_transform_suspensions_total{framework=F.v1.g,phase=creation} 1")
	w.queue("q", "", "cpu=1")
	w.recorder.PreemptionSkips("q", 2)
	w.recorder.PreemptionSkips("q", 1)
	w.expect("the last cycle counts", "kueue_admission_cycle", "kueue_admission_cycle_preemption_skips{cluster_queue=q} 1")
}

// Writers need not have a recorder.
func TestNil(*testing.T) {
	var r *Recorder
	wl := newWorkload("w", "l", "1")
	r.AddWorkload(wl)
	r.Cycles(1, 1, 1)
	r.Phase(PhaseWrite, 1)
	r.ObserveTurn(1)
	r.PreemptionSkips("q", 1)
	r.Recomputed("q", "skipped")
	r.Preempted("a", "b", "c")
	r.WorkloadCreated("Job", 1, "ns", "l", 1)
	r.GateRemoved("g", "q", false, 1)
	r.EventsShed("x", 1)
	r.Dispatched("q", "c")
	r.RemotelyAdmitted("q", "c")
	r.SetWorkloads(nil)
	r.SetClusterQueue(&kueue.ClusterQueue{})
	r.DeleteClusterQueue("q")
	r.SetLocalQueue(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "l"}})
	r.DeleteLocalQueue("ns", "l")
	r.SetCohort(&kueue.Cohort{})
	r.DeleteCohort("c")
	r.ObserveWorkload(nil, wl)
}

// A transition counts once for any writer, also if one write makes several. spec: 70 §5.3.
func TestTransitionsOfOthers(t *testing.T) {
	ended := func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "ByItsController", LastTransitionTime: at(30),
		})
	}
	w, wl := life(t)
	w.admit(wl, "q", "1", 10)
	w.write(wl, ended)
	w.put(wl) // an update without a change
	w.both("finished by another controller", "finished_workloads_total", "1")
	w.both("finished by another controller", "execution_time_seconds", "1/20")

	w, wl = life(t)
	w.admit(wl, "q", "1", 10)
	w.write(wl, func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Maintenance", LastTransitionTime: at(20),
		})
	})
	evicted := "{cluster_queue=q,priority_class=high,reason=Maintenance,underlying_cause=} 1"
	w.expect("evicted by another controller", "kueue_evicted", "kueue_evicted_workloads_total"+evicted, "kueue_evicted_workloads_once_total"+evicted)
	bare := wl.DeepCopy()
	w.write(wl, func(wl *kueue.Workload) {
		wl.Status.Admission = nil
		for i := range wl.Status.Conditions {
			if c := &wl.Status.Conditions[i]; c.Type == kueue.WorkloadQuotaReserved || c.Type == kueue.WorkloadAdmitted {
				c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionFalse, "Maintenance", at(27)
			}
		}
	})
	w.expect("released by another controller", "kueue_workload_eviction_latency_seconds",
		"kueue_workload_eviction_latency_seconds{cluster_queue=q,reason=Maintenance} 1/7")
	bare.Name, bare.UID = "bare", "bare"
	w.put(bare)
	w.write(bare, func(wl *kueue.Workload) { wl.Status.Admission, wl.Status.Conditions = nil, wl.Status.Conditions[2:] })
	w.expect("released with all that it says", "kueue_workload_eviction_latency_seconds",
		"kueue_workload_eviction_latency_seconds{cluster_queue=q,reason=Maintenance} 1/7")

	w, _ = life(t)
	all := newWorkload("all", "l", "1", func(wl *kueue.Workload) { wl.Spec.PriorityClassRef = &kueue.PriorityClassRef{Name: "high"} })
	machine.Reserve(all, admission("q", "1"), nil, at(10))
	machine.Evict(all, kueue.ReasonPodsReadyTimeout, "", "", at(20))
	ended(all)
	w.put(all)
	w.both("made, admitted and ended while the watch was down", "admitted_workloads_total", "1")
	w.both("made, admitted and ended while the watch was down", "execution_time_seconds", "1/20")
	w.expect("", "kueue_evicted_workloads_total", "kueue_evicted_workloads_total{cluster_queue=q,priority_class=high,reason=PodsReadyTimeout,underlying_cause=} 1")
}

// A replica does not count transitions before its start, or while another one leads.
func TestTransitionsCountOnce(t *testing.T) {
	w, wl := life(t)
	machine.Reserve(wl, admission("q", "1"), nil, at(10))
	ended := wl.DeepCopy()
	machine.Finish(ended, kueue.ReasonSucceeded, "", at(20))
	w.recorder.AddWorkload(ended)
	w.both("finished before the start", "finished_workloads_total", "")
	w.both("admitted before the start", "admitted_workloads_total", "")

	o, elected := all(), make(chan struct{})
	o.LeaderElection, o.Elected = true, elected
	w = newWorld(t, o)
	w.queue("q", "c", "cpu=9")
	w.localQueue("l", "q")
	first, second := w.put(newWorkload("first", "l", "1")), w.put(newWorkload("second", "l", "1"))
	w.admit(first, "q", "1", 1)
	w.admit(second, "q", "1", 1)
	w.finish(first, 2)
	w.expect("the leader counts", "kueue_finished_workloads_total")
	w.expect("a gauge is no count", "kueue_admitted_active_workloads", "kueue_admitted_active_workloads{cluster_queue=q} 1")
	close(elected)
	w.put(first)
	w.finish(second, 3)
	w.expect("as leader", "kueue_finished_workloads_total", "kueue_finished_workloads_total{cluster_queue=q,priority_class=} 1")
	w.expect("as leader", "kueue_admitted_workloads_total")
}
