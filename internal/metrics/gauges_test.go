package metrics

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
)

// spec: 70 §7 27, 28, 31.
func TestQueueGauges(t *testing.T) {
	w := newWorld(t, all())
	w.queue("gpu-a", "", "cpu=4,memory=1Gi")
	w.localQueue("lq", "gpu-a")
	for i := range 6 {
		wl := w.put(newWorkload(fmt.Sprint("w", i), "lq", "1"))
		if i < 4 {
			w.admit(wl, "gpu-a", "1", i)
		}
	}
	w.put(newWorkload("big", "lq", "500m"))
	w.step()
	w.expect("six, four of them admitted, and a small one that is parked", "kueue_pending_workloads",
		"kueue_pending_workloads{cluster_queue=gpu-a,status=active} 0", "kueue_pending_workloads{cluster_queue=gpu-a,status=inadmissible} 3")
	w.expect("two classes", "kueue_pending_scheduling_hashes",
		"kueue_pending_scheduling_hashes{cluster_queue=gpu-a,status=active} 0", "kueue_pending_scheduling_hashes{cluster_queue=gpu-a,status=inadmissible} 2")
	w.expect("", "kueue_admitted_active", "kueue_admitted_active_workloads{cluster_queue=gpu-a} 4")
	w.expect("", "kueue_reserving_active", "kueue_reserving_active_workloads{cluster_queue=gpu-a} 4")
	w.expect("zeros count", "kueue_finished_workloads", "kueue_finished_workloads{cluster_queue=gpu-a} 0")
	w.expect("", "kueue_cluster_queue_status", "kueue_cluster_queue_status{cluster_queue=gpu-a,status=active} 1",
		"kueue_cluster_queue_status{cluster_queue=gpu-a,status=pending} 0", "kueue_cluster_queue_status{cluster_queue=gpu-a,status=terminating} 0")
	w.expect("cores, all that is pending, zeros as well", "kueue_cluster_queue_resource_pending",
		"kueue_cluster_queue_resource_pending{cluster_queue=gpu-a,resource=cpu} 2.5", "kueue_cluster_queue_resource_pending{cluster_queue=gpu-a,resource=memory} 0")
	w.expect("no limit", "kueue_cluster_queue_borrowing_limit",
		"kueue_cluster_queue_borrowing_limit{cluster_queue=gpu-a,cohort=,flavor=f,resource=cpu} +Inf",
		"kueue_cluster_queue_borrowing_limit{cluster_queue=gpu-a,cohort=,flavor=f,resource=memory} +Inf")
	w.expect("bytes", "kueue_cluster_queue_nominal_quota",
		"kueue_cluster_queue_nominal_quota{cluster_queue=gpu-a,cohort=,flavor=f,resource=cpu} 4",
		"kueue_cluster_queue_nominal_quota{cluster_queue=gpu-a,cohort=,flavor=f,resource=memory} 1.073741824e+09")
	w.expect("", "kueue_cluster_queue_info", "kueue_cluster_queue_info{cluster_queue=gpu-a,parent_cohort=,root_cohort=} 1")
	w.expect("", "kueue_cluster_queue_weighted_share", "kueue_cluster_queue_weighted_share{cluster_queue=gpu-a,cohort=} 0")

	w.queue("gpu-a", "", "cpu=4", func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
	w.step()
	w.expect("a stopped one", "kueue_cluster_queue_status", "kueue_cluster_queue_status{cluster_queue=gpu-a,status=active} 0",
		"kueue_cluster_queue_status{cluster_queue=gpu-a,status=pending} 1", "kueue_cluster_queue_status{cluster_queue=gpu-a,status=terminating} 0")
	w.expect("without memory", "kueue_cluster_queue_nominal_quota", "kueue_cluster_queue_nominal_quota{cluster_queue=gpu-a,cohort=,flavor=f,resource=cpu} 4")

	w.recorder.Dispatched("gpu-a", "east")
	w.recorder.Preempted("gpu-a", "other", kueue.ReasonInCohortReclamation)
	w.recorder.Recomputed("gpu-a", "new_targets")
	w.recorder.PreemptionSkips("gpu-a", 2)
	w.deleteQueue("gpu-a")
	w.recorder.PreemptionSkips("gpu-a", 2) // reported late
	want := []string{"kueue_cluster_queue_weighted_share", "multikueue_workloads_dispatched_total"}
	if got := w.naming("gpu-a"); !slices.Equal(got, want) {
		t.Errorf("after it is deleted, %v remain", got)
	}
	w.queue("gpu-a", "", "cpu=4")
	w.expect("another queue of the name has passed over none", "kueue_admission_cycle_preemption_skips")
}

// Every pod needs one of the resource pods, which it cannot request. spec: 10 §4.2, §4.4.
func TestPendingPods(t *testing.T) {
	w := newWorld(t, all())
	w.queue("cq", "", "cpu=1,pods=5")
	w.localQueue("lq", "cq")
	w.put(newWorkload("w1", "lq", "2", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 3 }))
	w.put(newWorkload("w2", "lq", "2"))
	const family = "kueue_cluster_queue_resource_pending"
	w.expect("", family, family+"{cluster_queue=cq,resource=cpu} 8", family+"{cluster_queue=cq,resource=pods} 4")
	w.put(newWorkload("w3", "lq", "2", func(wl *kueue.Workload) {
		wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Reason: kueue.ReasonPodsReadyTimeout}}
	}))
	w.expect("one backs off", family, family+"{cluster_queue=cq,resource=cpu} 10", family+"{cluster_queue=cq,resource=pods} 5")
}

// Inactive queues have no active Workloads, in both families. spec: 10 §4.4.
func TestPendingSplit(t *testing.T) {
	w := newWorld(t, all())
	w.queue("cq", "", "cpu=1")
	w.localQueue("a", "cq")
	w.localQueue("b", "cq")
	w.localQueue("stopped", "cq", func(l *kueue.LocalQueue) { l.Spec.StopPolicy = kueue.StopPolicyHold })
	w.put(newWorkload("w1", "a", "1"))
	w.put(newWorkload("w2", "b", "1"))
	w.put(newWorkload("w3", "stopped", "1"))
	split := func(queue, a, b [2]int) []string {
		var out []string
		for i, status := range []string{"active", "inadmissible"} {
			out = append(out, fmt.Sprintf("kueue_pending_workloads{cluster_queue=cq,status=%s} %d", status, queue[i]),
				fmt.Sprintf("kueue_local_queue_pending_workloads{name=a,namespace=ns,status=%s} %d", status, a[i]),
				fmt.Sprintf("kueue_local_queue_pending_workloads{name=b,namespace=ns,status=%s} %d", status, b[i]),
				fmt.Sprintf("kueue_local_queue_pending_workloads{name=stopped,namespace=ns,status=%s} 0", status))
		}
		return out
	}
	compare := func(when string, want []string) {
		t.Helper()
		slices.Sort(want)
		if got := w.scrape("kueue_pending_workloads", "kueue_local_queue_pending_workloads"); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	compare("before anybody is looked at", split([2]int{2, 0}, [2]int{1, 0}, [2]int{1, 0}))
	backedOff := newWorkload("w4", "b", "1", func(wl *kueue.Workload) {
		wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Reason: kueue.ReasonPodsReadyTimeout}}
	})
	w.put(backedOff)
	retried := newWorkload("w5", "a", "1", func(wl *kueue.Workload) {
		wl.Status.RequeueState = &kueue.RequeueState{RequeueAt: new(at(600))}
	})
	w.put(retried)
	compare("a check is retried later", split([2]int{2, 2}, [2]int{1, 1}, [2]int{1, 1}))
	if view, _ := w.state.Publish().Queue("cq"); view.Active+view.Inadmissible != 4 {
		t.Errorf("the status has %+v, the metrics 4", view.Counts)
	}
	w.remove(retried)
	compare("one waits for a time", split([2]int{2, 1}, [2]int{1, 0}, [2]int{1, 1}))
	w.expect("and asks as well", "kueue_cluster_queue_resource_pending", "kueue_cluster_queue_resource_pending{cluster_queue=cq,resource=cpu} 3")
	w.queue("cq", "", "cpu=1", func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
	compare("the ClusterQueue is stopped", split([2]int{0, 3}, [2]int{0, 1}, [2]int{0, 2}))
	w.remove(backedOff)
	compare("the one is gone", split([2]int{0, 2}, [2]int{0, 1}, [2]int{0, 1}))
}

// spec: 70 §7 67, §5.3.
func TestLocalQueueGauges(t *testing.T) {
	w := newWorld(t, all())
	w.queue("cq", "", "cpu=4,memory=1Gi")
	ready := func(l *kueue.LocalQueue) {
		l.Status.Conditions = []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionTrue}}
	}
	w.localQueue("lq", "cq", ready)
	w.localQueue("other", "cq")
	wl := w.put(newWorkload("w", "lq", "2"))
	w.put(newWorkload("p", "lq", "3"))
	w.admit(wl, "cq", "2", 3)
	w.step()
	own := "{name=lq,namespace=ns"
	w.expect("", "kueue_local_queue_status", "kueue_local_queue_status{active=True,name=lq,namespace=ns} 1", "kueue_local_queue_status{active=False,name=lq,namespace=ns} 0",
		"kueue_local_queue_status{active=Unknown,name=lq,namespace=ns} 0", "kueue_local_queue_status{active=True,name=other,namespace=ns} 0",
		"kueue_local_queue_status{active=False,name=other,namespace=ns} 0", "kueue_local_queue_status{active=Unknown,name=other,namespace=ns} 1")
	w.expect("zeros included", "kueue_local_queue_resource_usage", "kueue_local_queue_resource_usage{flavor=f,name=lq,namespace=ns,resource=cpu} 2",
		"kueue_local_queue_resource_usage{flavor=f,name=lq,namespace=ns,resource=memory} 0", "kueue_local_queue_resource_usage{flavor=f,name=other,namespace=ns,resource=cpu} 0",
		"kueue_local_queue_resource_usage{flavor=f,name=other,namespace=ns,resource=memory} 0")
	w.expect("", "kueue_local_queue_admitted_active", "kueue_local_queue_admitted_active_workloads"+own+"} 1", "kueue_local_queue_admitted_active_workloads{name=other,namespace=ns} 0")
	w.expect("", "kueue_local_queue_unadmitted", "kueue_local_queue_unadmitted_workloads{cluster_queue=cq,name=lq,namespace=ns,reason=NoReservation,underlying_cause=PendingEvaluation} 1")

	w.finish(wl, 10)
	w.expect("", "kueue_local_queue_finished_workloads", "kueue_local_queue_finished_workloads"+own+"} 1", "kueue_local_queue_finished_workloads{name=other,namespace=ns} 0",
		"kueue_local_queue_finished_workloads_total{name=lq,namespace=ns,priority_class=} 1")
	w.remove(wl)
	w.deleteQueue("cq")
	w.localQueue("lq", "cq", func(l *kueue.LocalQueue) {
		l.Status.Conditions = []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionFalse}}
	})
	w.expect("its ClusterQueue is gone", "kueue_local_queue_pending", "kueue_local_queue_pending_workloads"+own+",status=active} 0",
		"kueue_local_queue_pending_workloads"+own+",status=inadmissible} 0", "kueue_local_queue_pending_workloads{name=other,namespace=ns,status=active} 0",
		"kueue_local_queue_pending_workloads{name=other,namespace=ns,status=inadmissible} 0")
	for _, gone := range []string{"reserving_active_workloads", "admitted_active_workloads", "unadmitted_workloads", "resource_usage"} {
		w.expect("its ClusterQueue is gone", "kueue_local_queue_"+gone)
	}
	w.expect("counters stay", "kueue_local_queue_finished_workloads_total", "kueue_local_queue_finished_workloads_total{name=lq,namespace=ns,priority_class=} 1")
	w.state.Apply(state.DeleteLocalQueue{Namespace: "ns", Name: "lq"})
	w.recorder.DeleteLocalQueue("ns", "lq")
	if got := w.naming("lq"); len(got) > 0 {
		t.Errorf("after it is deleted, %v remain", got)
	}
}

// spec: 70 §2.1.2.
func TestLocalQueueSelector(t *testing.T) {
	o := all()
	o.Metrics.LocalQueues = labels.SelectorFromSet(labels.Set{"show": "yes"})
	w := newWorld(t, o)
	w.queue("cq", "", "cpu=4")
	shown := func(l *kueue.LocalQueue) { l.Labels = map[string]string{"show": "yes"} }
	w.localQueue("lq", "cq")
	w.finish(w.put(newWorkload("w1", "lq", "1")), 1)
	if got := w.naming("lq"); len(got) > 0 {
		t.Errorf("not selected, but there are %v", got)
	}
	w.localQueue("lq", "cq", shown)
	w.finish(w.put(newWorkload("w2", "lq", "1")), 1)
	w.expect("selected", "kueue_local_queue_finished_workloads", "kueue_local_queue_finished_workloads{name=lq,namespace=ns} 2",
		"kueue_local_queue_finished_workloads_total{name=lq,namespace=ns,priority_class=} 1")
	w.localQueue("lq", "cq")
	if got := w.naming("lq"); len(got) > 0 {
		t.Errorf("no longer selected, but there are %v", got)
	}
}

// spec: 10 §5.4.
func TestUnadmitted(t *testing.T) {
	w := newWorld(t, all())
	w.queue("cq", "", "cpu=4")
	w.localQueue("lq", "cq")
	w.localQueue("nowhere", "missing")
	waits := func(reason string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) { machine.Pending(wl, reason, "", at(1)) }
	}
	w.put(newWorkload("new", "lq", "1"))
	w.put(newWorkload("short", "lq", "1", waits(kueue.ReasonWaitingForQuota)))
	w.put(newWorkload("off", "lq", "1", waits(kueue.ReasonWaitingForQuota), func(wl *kueue.Workload) { wl.Spec.Active = new(false) }))
	checked := func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "c", State: kueue.CheckStatePending}}
		machine.Reserve(wl, admission("cq", "1"), nil, at(1))
	}
	w.put(newWorkload("checked", "lq", "1", checked))
	w.put(newWorkload("lost", "nowhere", "1"))
	w.put(newWorkload("going", "lq", "1", func(wl *kueue.Workload) { wl.DeletionTimestamp = new(at(3)) }))
	w.put(newWorkload("variant", "lq", "1", func(wl *kueue.Workload) {
		wl.OwnerReferences = []metav1.OwnerReference{{Kind: "Workload", Name: "new", Controller: new(true)}}
	}))
	w.put(newWorkload("runs", "lq", "1", func(wl *kueue.Workload) { machine.Reserve(wl, admission("cq", "1"), nil, at(1)) }))
	w.put(newWorkload("done", "lq", "1", func(wl *kueue.Workload) { machine.Finish(wl, kueue.ReasonSucceeded, "", at(1)) }))
	w.expect("", "kueue_unadmitted",
		"kueue_unadmitted_workloads{cluster_queue=cq,reason=NoReservation,underlying_cause=PendingEvaluation} 1",
		"kueue_unadmitted_workloads{cluster_queue=cq,reason=NoReservation,underlying_cause=WaitingForQuota} 2",
		"kueue_unadmitted_workloads{cluster_queue=cq,reason=UnsatisfiedAdmissionChecks,underlying_cause=} 1")
}

// spec: 70 §5.3, §7 65, 66.
func TestCohortGauges(t *testing.T) {
	w := newWorld(t, all())
	w.cohort("root", "", "")
	w.cohort("c1", "root", "")
	w.queue("q1", "c1", "cpu=4")
	w.queue("q2", "c2", "cpu=6")
	w.localQueue("l1", "q1")
	wl := w.put(newWorkload("w", "l1", "3"))
	w.admit(wl, "q1", "3", 1)
	w.expect("implicit ones too", "kueue_cohort_info", "kueue_cohort_info{cohort=c1,parent_cohort=root,root_cohort=root} 1",
		"kueue_cohort_info{cohort=c2,parent_cohort=,root_cohort=c2} 1", "kueue_cohort_info{cohort=root,parent_cohort=,root_cohort=root} 1")
	w.expect("", "kueue_cluster_queue_info", "kueue_cluster_queue_info{cluster_queue=q1,parent_cohort=c1,root_cohort=root} 1",
		"kueue_cluster_queue_info{cluster_queue=q2,parent_cohort=c2,root_cohort=c2} 1")
	w.expect("", "kueue_cohort_subtree_quota", "kueue_cohort_subtree_quota{cohort=c1,flavor=f,resource=cpu} 4",
		"kueue_cohort_subtree_quota{cohort=c2,flavor=f,resource=cpu} 6", "kueue_cohort_subtree_quota{cohort=root,flavor=f,resource=cpu} 4")
	w.expect("whole usage, no zeros", "kueue_cohort_subtree_resource_reservations",
		"kueue_cohort_subtree_resource_reservations{cohort=c1,flavor=f,resource=cpu} 3", "kueue_cohort_subtree_resource_reservations{cohort=root,flavor=f,resource=cpu} 3")

	w.queue("q1", "c2", "cpu=4")
	w.expect("quota and reservations move at once", "kueue_cohort_subtree_resource", "kueue_cohort_subtree_resource_reservations{cohort=c2,flavor=f,resource=cpu} 3")
	w.expect("", "kueue_cohort_subtree_quota", "kueue_cohort_subtree_quota{cohort=c2,flavor=f,resource=cpu} 10")
	w.expect("under the new cohort only", "kueue_cluster_queue_resource_usage", "kueue_cluster_queue_resource_usage{cluster_queue=q1,cohort=c2,flavor=f,resource=cpu} 3",
		"kueue_cluster_queue_resource_usage{cluster_queue=q2,cohort=c2,flavor=f,resource=cpu} 0")
	w.expect("", "kueue_cluster_queue_weighted_share", "kueue_cluster_queue_weighted_share{cluster_queue=q1,cohort=c2} 0", "kueue_cluster_queue_weighted_share{cluster_queue=q2,cohort=c2} 0")
	w.deleteCohort("c1")
	if got := w.naming("c1"); len(got) > 0 {
		t.Errorf("after it is deleted, %v remain", got)
	}
	w.cohort("c2", "", "cpu=2")
	w.deleteCohort("c2")
	got := slices.DeleteFunc(w.naming("c2"), func(name string) bool { return strings.HasPrefix(name, "kueue_cluster_queue_") })
	if len(got) > 0 {
		t.Errorf("it is deleted and still named, but %v remain", got)
	}
	w.finish(wl, 9)
	w.expect("it is a cohort by name as soon as something happens below", "kueue_cohort_info", "kueue_cohort_info{cohort=c2,parent_cohort=,root_cohort=c2} 1",
		"kueue_cohort_info{cohort=root,parent_cohort=,root_cohort=root} 1")
	w.deleteQueue("q1")
	w.deleteQueue("q2")
	if got := w.naming("c2"); !slices.Equal(got, []string{"kueue_cluster_queue_weighted_share"}) {
		t.Errorf("implicit and childless, but %v remain", got)
	}

	o := all()
	o.Metrics.ClusterQueueResources = false
	w = newWorld(t, o)
	w.queue("q", "c", "cpu=4")
	w.expect("quota series are off", "kueue_cluster_queue_weighted_share")
	w.expect("cohorts have theirs", "kueue_cohort_weighted_share", "kueue_cohort_weighted_share{cohort=c} 0")
}

// The number of Workloads admitted below a cohort lags behind edits of the tree. spec: 70 §5.3.
func TestAdmittedBelowLags(t *testing.T) {
	w := newWorld(t, all())
	w.queue("q1", "c1", "cpu=9")
	w.queue("stays", "c1", "cpu=9")
	w.queue("q2", "c2", "cpu=9")
	w.localQueue("l1", "q1")
	admitted := func(when string, want ...string) {
		t.Helper()
		for i := range want {
			cohort, n, _ := strings.Cut(want[i], " ")
			want[i] = fmt.Sprintf("kueue_cohort_subtree_admitted_active_workloads{cohort=%s} %s", cohort, n)
		}
		w.expect(when, "kueue_cohort_subtree_admitted_active_workloads", want...)
	}
	add := func(name string) *kueue.Workload {
		wl := w.put(newWorkload(name, "l1", "1"))
		w.admit(wl, "q1", "1", 1)
		return wl
	}
	first := add("w1")
	add("w2")
	w.queue("q1", "c2", "cpu=9")
	admitted("moved without a scrape in between", "c1 2")
	add("w3")
	admitted("one more admitted", "c1 2", "c2 3")
	w.cohort("c2", "top", "")
	admitted("a new root", "c1 2", "c2 3")
	w.finish(first, 5)
	admitted("one finished", "c1 2", "c2 2", "top 2")
	w.remove(first)
	admitted("it is deleted, which releases nothing more", "c1 2", "c2 2", "top 2")
	w.expect("admissions counted where they were made", "kueue_cohort_subtree_admitted_workloads_total",
		"kueue_cohort_subtree_admitted_workloads_total{cohort=c1,priority_class=} 2", "kueue_cohort_subtree_admitted_workloads_total{cohort=c2,priority_class=} 1")
	w.queue("stays", "lone", "cpu=9")
	if got := w.naming("c1"); len(got) > 0 {
		t.Errorf("the last queue left c1, but %v remain", got)
	}
	w.deleteQueue("stays")
	admitted("c1 is gone", "c2 2", "top 2")
	w.deleteCohort("c2")
	admitted("c2 is named only", []string{}...)
	add("w4")
	admitted("and has figures from the next admission on", "c2 3")
	w.expect("", "kueue_cohort_subtree_admitted_workloads_total", "kueue_cohort_subtree_admitted_workloads_total{cohort=c2,priority_class=} 1")
}

// spec: 20 §4.1, §7 example 2.
func TestInfiniteShares(t *testing.T) {
	w := newWorld(t, all())
	zero := &kueue.FairSharing{Weight: new(resource.MustParse("0"))}
	w.cohort("child", "top", "", func(c *kueue.Cohort) { c.Spec.FairSharing = zero })
	w.cohort("top", "", "cpu=10")
	w.queue("q", "child", "cpu=1", func(q *kueue.ClusterQueue) { q.Spec.FairSharing = zero })
	w.queue("r", "top", "cpu=5")
	w.localQueue("l", "q")
	wl := w.put(newWorkload("w", "l", "3"))
	w.admit(wl, "q", "3", 1)
	w.expect("NaN for queues", "kueue_cluster_queue_weighted_share", "kueue_cluster_queue_weighted_share{cluster_queue=q,cohort=child} NaN",
		"kueue_cluster_queue_weighted_share{cluster_queue=r,cohort=top} 0")
	w.expect("+Inf for cohorts", "kueue_cohort_weighted_share", "kueue_cohort_weighted_share{cohort=child} +Inf", "kueue_cohort_weighted_share{cohort=top} 0")
	w.finish(wl, 2)
	w.expect("", "kueue_cluster_queue_weighted_share", "kueue_cluster_queue_weighted_share{cluster_queue=q,cohort=child} 0",
		"kueue_cluster_queue_weighted_share{cluster_queue=r,cohort=top} 0")
}

// spec: 70 §7 33, §5.3.
func TestCustomLabels(t *testing.T) {
	o := all()
	o.Metrics.CustomLabels = []configv1beta2.CustomMetricLabel{
		{Name: "kind", SourceKind: fromWorkload, TrackedValues: []string{"train", "serve"}},
		{Name: "team", SourceKind: fromQueue},
		{Name: "owner", SourceKind: fromLocalQueue, SourceAnnotationKey: "example.com/owner"},
		{Name: "org", SourceKind: fromCohort, SourceLabelKey: "example.com/org"},
	}
	w := newWorld(t, o)
	team := func(name string) func(*kueue.ClusterQueue) {
		return func(q *kueue.ClusterQueue) { q.Labels = map[string]string{"team": name} }
	}
	owner := func(name string) func(*kueue.LocalQueue) {
		return func(l *kueue.LocalQueue) { l.Annotations = map[string]string{"example.com/owner": name} }
	}
	kind := func(name string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) { wl.Labels = map[string]string{"kind": name} }
	}
	w.cohort("c", "", "", func(c *kueue.Cohort) { c.Labels = map[string]string{"example.com/org": "acme"} })
	w.queue("q", "c", "cpu=9", team("red"))
	w.localQueue("l", "q", owner("ann"))
	train := w.put(newWorkload("w1", "l", "1", kind("train")))
	w.admit(train, "q", "1", 4)
	w.admit(w.put(newWorkload("w2", "l", "1", kind("secret"))), "q", "1", 4)
	plain := w.put(newWorkload("w3", "l", "1"))
	w.expect("by Workload, other values in one", "kueue_admitted_active_workloads", "kueue_admitted_active_workloads{cluster_queue=q,custom_kind=train,custom_team=red} 1",
		"kueue_admitted_active_workloads{cluster_queue=q,custom_kind=kueue.x-k8s.io/_UNTRACKED_VALUE_,custom_team=red} 1")
	w.expect("", "kueue_pending_workloads", "kueue_pending_workloads{cluster_queue=q,custom_kind=,custom_team=red,status=active} 1")
	w.expect("", "kueue_local_queue_admission_wait", "kueue_local_queue_admission_wait_time_seconds{custom_kind=kueue.x-k8s.io/_UNTRACKED_VALUE_,custom_owner=ann,name=l,namespace=ns,priority_class=} 1/4",
		"kueue_local_queue_admission_wait_time_seconds{custom_kind=train,custom_owner=ann,name=l,namespace=ns,priority_class=} 1/4")
	w.expect("Cohort labels only", "kueue_cohort_subtree_admitted", "kueue_cohort_subtree_admitted_active_workloads{cohort=c,custom_org=acme} 2",
		"kueue_cohort_subtree_admitted_workloads_total{cohort=c,custom_org=acme,priority_class=} 2")
	w.put(plain).Labels = map[string]string{"kind": "train"}
	w.finish(train, 9)
	w.expect("a combination without members is gone", "kueue_admitted_active_workloads", "kueue_admitted_active_workloads{cluster_queue=q,custom_kind=kueue.x-k8s.io/_UNTRACKED_VALUE_,custom_team=red} 1")

	w.recorder.GateRemoved("gate", "q", true, 3e9)
	w.recorder.WorkloadCreated("Job", 1, "ns", "l", 1e9)
	w.expect("spec: 70 §7 34", "kueue_pod_scheduling", "kueue_pod_scheduling_gate_removal_seconds{cluster_queue=q,custom_team=red,is_group=true,name=gate} 1/3")
	w.expect("", "kueue_workload_creation", "kueue_workload_creation_latency_seconds{custom_owner=ann,job_kind=Job} 1/1")

	// Gauges follow changed labels; counters and histograms start again.
	w.recorder.Preempted("q", "q", "InClusterQueue")
	w.queue("q", "c", "cpu=9", team("blue"))
	w.expect("a gauge", "kueue_reserving_active", "kueue_reserving_active_workloads{cluster_queue=q,custom_team=blue} 1")
	w.expect("a share", "kueue_cluster_queue_weighted_share", "kueue_cluster_queue_weighted_share{cluster_queue=q,cohort=c,custom_team=blue} 0")
	for _, name := range []string{"kueue_admitted_workloads_total", "kueue_admission_wait", "kueue_pod_scheduling", "kueue_preempted"} {
		w.expect("an earlier count", name)
	}
	if got := w.naming("red"); len(got) > 0 {
		t.Errorf("%v have the earlier value", got)
	}
	w.expect("without custom labels", "berth_preempted", "berth_preempted_workloads_total{preempted_cluster_queue=q,preempting_cluster_queue=q,reason=InClusterQueue} 1")
	w.admit(plain, "q", "1", 3)
	admitted := "kueue_admitted_workloads_total{cluster_queue=q,custom_team=blue,priority_class=} 1"
	w.expect("a later count", "kueue_admitted_workloads_total", admitted)
	w.queue("q", "c", "cpu=8", team("blue"))
	w.expect("another change", "kueue_admitted_workloads_total", admitted)
	reserved := "kueue_local_queue_quota_reserved_workloads_total{custom_owner=ann,name=l,namespace=ns,priority_class=} 3"
	w.localQueue("l", "q", owner("ann"))
	w.expect("no change", "kueue_local_queue_quota_reserved_workloads", reserved)
	w.localQueue("l", "q", owner("bob"))
	w.expect("a gauge", "kueue_local_queue_reserving", "kueue_local_queue_reserving_active_workloads{custom_owner=bob,name=l,namespace=ns} 2")
	w.expect("a counter", "kueue_local_queue_quota_reserved_workloads")
	w.cohort("c", "", "")
	w.expect("a gauge", "kueue_cohort_info", "kueue_cohort_info{cohort=c,custom_org=,parent_cohort=,root_cohort=c} 1")
	w.expect("a counter", "kueue_cohort_subtree_admitted_workloads_total")
	w.deleteQueue("q")
	if got := slices.Concat(w.naming("red"), w.naming("blue")); !slices.Equal(got, []string{"kueue_cluster_queue_weighted_share"}) {
		t.Errorf("the queue is deleted, but %v remain", got)
	}
}

func TestBuildInfo(t *testing.T) {
	o := all()
	o.Build = Build{Version: "v1", Commit: "abc", Date: "2026-01-02T03:04:05Z"}
	newWorld(t, o).expect("at the start", "kueue_build_info", fmt.Sprintf(
		"kueue_build_info{build_date=2026-01-02T03:04:05Z,compiler=%s,git_commit=abc,git_version=v1,go_version=%s,platform=%s/%s} 1",
		runtime.Compiler, runtime.Version(), runtime.GOOS, runtime.GOARCH))
}

// spec: 70 §4.3.
func TestRole(t *testing.T) {
	role := func(w *world) string {
		found, err := w.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		roles := map[string]bool{}
		for _, f := range found {
			for _, m := range f.GetMetric() {
				labeled := false
				for _, l := range m.GetLabel() {
					if l.GetName() == roleLabel {
						labeled, roles[l.GetValue()] = true, true
					}
				}
				if !labeled && f.GetName() != "kueue_build_info" {
					t.Errorf("%s has no role", f.GetName())
				}
			}
		}
		if len(roles) != 1 {
			t.Fatalf("%d roles at once: %v", len(roles), roles)
		}
		for r := range roles {
			return r
		}
		return ""
	}
	o := all()
	w := newWorld(t, o)
	w.queue("q", "", "cpu=1")
	if got := role(w); got != "standalone" {
		t.Errorf("without an election it is %s", got)
	}
	elected := make(chan struct{})
	o.LeaderElection, o.Elected = true, elected
	w = newWorld(t, o)
	w.queue("q", "", "cpu=1")
	if got := role(w); got != "follower" {
		t.Errorf("before it is elected it is %s", got)
	}
	close(elected)
	if got := role(w); got != "leader" {
		t.Errorf("once it is elected it is %s", got)
	}
}

// A scrape does not fail without an engine.
func TestNoAnswer(t *testing.T) {
	o := all()
	o.Model = func() *state.Model { return nil }
	w := newWorld(t, o)
	w.queue("q", "", "cpu=1")
	w.recorder.EventsShed("Pending", 3)
	w.expect("", "berth_", "berth_metrics_looks_failed_total{} 1", "berth_events_shed_total{reason=Pending} 3")
	w.expect("", "kueue_pending_workloads")
}

// The series of a ClusterQueue that moves go with it. spec: 70 §7 66.
func TestMovedQueue(t *testing.T) {
	w := newWorld(t, all())
	w.queue("q", "c1", "cpu=4")
	w.localQueue("lq", "q")
	w.admit(w.put(newWorkload("w", "lq", "1")), "q", "1", 0)
	of := func(cohort string) []string {
		return slices.DeleteFunc(w.scrape("kueue_cluster_queue_"), func(s string) bool { return !strings.Contains(s, "cohort="+cohort+",flavor") })
	}
	before := of("c1")
	if len(before) < 5 {
		t.Fatalf("only %v", before)
	}
	w.queue("q", "c2", "cpu=4")
	w.step()
	if got := of("c1"); len(got) > 0 {
		t.Errorf("the former cohort still has %v", got)
	}
	for i := range before {
		before[i] = strings.ReplaceAll(before[i], "cohort=c1", "cohort=c2")
	}
	if got := of("c2"); !slices.Equal(got, before) {
		t.Errorf("got %v, want %v", got, before)
	}
}
