package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

var t0 = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func config() *plan.Config {
	return &plan.Config{
		Origin: "hub", ManagerUID: "hub-uid", WorkerLostTimeout: time.Minute, StepSize: 1, RoundTimeout: 5 * time.Minute, ConfigOrder: true,
		Elastic: true, Annotations: true,
	}
}

// reserved returns a Workload with a reservation and a pending check.
func reserved(changes ...func(*kueue.Workload)) *kueue.Workload {
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "uid-a", Labels: map[string]string{kueue.JobUIDLabel: "x", "team": "t"},
			Annotations: map[string]string{"note": "n", plan.RoundStartAnnotation: ""}, Finalizers: []string{kueue.ResourceInUseFinalizer},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 2}}, Priority: new(int32(5)),
			PriorityClassRef: &kueue.PriorityClassRef{Group: kueue.WorkloadPriorityClassGroup, Kind: kueue.WorkloadPriorityClassKind, Name: "p"},
		},
	}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStatePending}}
	lifecycle.Machine{}.Reserve(w, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main"}}}, nil, t0)
	for _, change := range changes {
		change(w)
	}
	return w
}

func nominated(names ...string) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Status.NominatedClusterNames = names }
}

func ready(cluster string) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		c := &w.Status.AdmissionChecks[0]
		c.State, c.Message = kueue.CheckStateReady, fmt.Sprintf("The workload was admitted on %q", cluster)
		w.Status.ClusterName = cluster
	}
}

func check(state kueue.CheckState) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Status.AdmissionChecks[0].State = state }
}

func localEvicted(w *kueue.Workload) {
	lifecycle.Machine{}.Evict(w, kueue.ReasonPreempted, "", "another one is more urgent", t0)
}

// copyOf returns the copy of a Workload.
func copyOf(w *kueue.Workload, changes ...func(*kueue.Workload)) *kueue.Workload {
	out := config().NewCopy(w)
	out.CreationTimestamp = t0
	for _, change := range changes {
		change(out)
	}
	return out
}

func condition(kind string, after time.Duration, reason string) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: "says the worker", LastTransitionTime: metav1.NewTime(t0.Add(after)),
		})
	}
}

func admittedAt(after time.Duration) func(*kueue.Workload) {
	return condition(kueue.WorkloadAdmitted, after, "Admitted")
}

// up and down are clusters of the configuration.
func up(name string, w *kueue.Workload) plan.Cluster {
	return plan.Cluster{Name: name, Listed: true, Connected: true, Copy: w}
}

func down(name string, lost time.Duration) plan.Cluster {
	return plan.Cluster{Name: name, Listed: true, LostSince: t0.Add(-lost)}
}

func withJob(c plan.Cluster) plan.Cluster {
	c.HasJob = true
	return c
}

func unlisted(c plan.Cluster) plan.Cluster {
	c.Listed = false
	return c
}

func faulty(c plan.Cluster, code string) plan.Cluster {
	c.Fault = &plan.Fault{Code: code, Text: "no", Skip: code != plan.StatusSync}
	return c
}

// suspended is a cluster with suspended expressions of a framework, for half a minute.
func suspended(c plan.Cluster) plan.Cluster {
	c.Fault = &plan.Fault{Code: external.CostExceeded, Text: "suspended", Skip: true, Waits: true, Until: t0.Add(30 * time.Second)}
	return c
}

var verbs = map[plan.Verb]string{
	plan.RemoveCopy: "remove", plan.CreateCopy: "create", plan.UpdateCopy: "update", plan.UpdateCopyStatus: "copy status",
	plan.SyncJob: "sync", plan.MirrorJob: "mirror", plan.QuietJob: "quiet", plan.Annotate: "annotate", plan.WriteStatus: "status",
	plan.EndJob: "end",
}

// text summarizes a plan: its rule, its steps, the next attempt.
func text(o *plan.Observed, p plan.Plan) string {
	var parts []string
	for _, s := range p.Steps {
		part := verbs[s.Do]
		if s.Cluster != "" {
			part += " " + s.Cluster
		}
		if s.Plain {
			part += " as it is"
		}
		if s.Deactivated != "" {
			part += " (" + s.Deactivated + ")"
		}
		if s.Do == plan.WriteStatus {
			part += state(o, s.Workload)
		}
		for _, e := range s.Events {
			if e.Warning {
				part += " !"
			}
		}
		for _, w := range s.Warnings {
			part += " !" + w.Code
		}
		if s.Lost {
			part += " lost"
		}
		parts = append(parts, part)
	}
	if p.After > 0 {
		parts = append(parts, "after "+p.After.String())
	}
	return strings.TrimSpace(p.Rule + ": " + strings.Join(parts, ", "))
}

func state(o *plan.Observed, w *kueue.Workload) string {
	if lifecycle.IsFinished(w) {
		return " finished " + lifecycle.Condition(w, kueue.WorkloadFinished).Reason
	}
	c := w.Status.AdmissionChecks[0]
	out := ""
	if c.State != o.Local.Status.AdmissionChecks[0].State {
		out = " " + string(c.State)
	}
	if c.RequeueAfterSeconds != nil {
		out += " later"
	}
	if w.Status.ClusterName != o.Local.Status.ClusterName {
		out += " on " + w.Status.ClusterName
	}
	if !slices.Equal(w.Status.NominatedClusterNames, o.Local.Status.NominatedClusterNames) {
		out += fmt.Sprint(" ", w.Status.NominatedClusterNames)
	}
	if lifecycle.RunsRemotely(w) != lifecycle.RunsRemotely(o.Local) {
		out += map[bool]string{true: " runs", false: " rests"}[lifecycle.RunsRemotely(w)]
	}
	return out
}

// TestOnlyCheck: a write that changes nothing but the state of the check touches nothing else; the retry after an eviction on the worker is
// written like an admission (spec: 40 §4.4).
func TestOnlyCheck(t *testing.T) {
	gone := reserved(ready("w1"))
	for name, tc := range map[string]struct {
		local    *kueue.Workload
		cluster  plan.Cluster
		facts    plan.JobFacts
		want     kueue.CheckState
		onlyThat bool
	}{
		"rejected":             {reserved(), up("w1", nil), plan.JobFacts{}, kueue.CheckStateRejected, true},
		"lost":                 {gone, down("w1", time.Hour), plan.JobFacts{Adapter: true, Managed: true}, kueue.CheckStateRetry, true},
		"evicted there":        {gone, up("w1", copyOf(reserved(), condition(kueue.WorkloadEvicted, 0, "x"))), plan.JobFacts{Adapter: true, Managed: true}, kueue.CheckStateRetry, false},
		"admitted by a worker": {reserved(nominated("w1")), up("w1", copyOf(reserved(), admittedAt(0))), plan.JobFacts{Adapter: true, Managed: true}, kueue.CheckStateReady, false},
	} {
		tc.facts.Kind = "Job"
		o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: []plan.Cluster{tc.cluster}, Now: t0, Job: tc.facts}
		steps := plan.Decide(config(), o).Steps
		last := steps[len(steps)-1]
		if got := last.Workload.Status.AdmissionChecks[0].State; got != tc.want || last.OnlyCheck != tc.onlyThat {
			t.Errorf("%s: %s, only that %v", name, got, last.OnlyCheck)
		}
		if last.OnlyCheck {
			same := last.Workload.DeepCopy()
			same.Status.AdmissionChecks = tc.local.Status.AdmissionChecks
			if diff := cmp.Diff(tc.local, same); diff != "" {
				t.Errorf("%s: -want +got\n%s", name, diff)
			}
		}
	}
}

func others(o *plan.Observed) { o.Job.Others = true }

func on(cluster string) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Status.ClusterName = cluster }
}

func TestRules(t *testing.T) {
	plain := reserved()
	finished := reserved(func(w *kueue.Workload) { lifecycle.Machine{}.Finish(w, kueue.ReasonSucceeded, "", t0) })
	deactivating := copyOf(plain, admittedAt(0), func(w *kueue.Workload) { w.Spec.Active = new(false) })
	otherSpec := copyOf(plain, func(w *kueue.Workload) {
		w.Spec.PodSets[0].Count, w.Annotations[plan.SpecHashAnnotation] = 7, "old"
	})
	skewed := copyOf(plain, admittedAt(0), func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Spec.RestartPolicy = "Always" })
	oldPriority := copyOf(reserved(func(w *kueue.Workload) { w.Spec.Priority, w.Spec.PriorityClassRef.Name = new(int32(1)), "low" }))
	noClass := copyOf(reserved(func(w *kueue.Workload) { w.Spec.PriorityClassRef = nil }))
	elastic := func(w *kueue.Workload) { w.Annotations[kueue.ElasticJobAnnotation] = "true" }
	outOfSync := condition(kueue.WorkloadFinished, 0, kueue.ReasonOutOfSync)
	tests := map[string]struct {
		local    *kueue.Workload
		clusters []plan.Cluster
		change   func(*plan.Observed)
		want     string
	}{
		// The owner.
		"a kind without adapter": {plain, nil, func(o *plan.Observed) { o.Job.Adapter = false }, "owner: status Rejected"},
		"somebody else's job":    {plain, nil, func(o *plan.Observed) { o.Job.Managed = false }, "owner: status Rejected"},
		"the job is gone": {plain, []plan.Cluster{up("w1", copyOf(plain, admittedAt(0)))}, func(o *plan.Observed) {
			o.Job = plan.JobFacts{Kind: "Job", Adapter: true, Missing: true}
		}, "2:"},
		"rejected by somebody, waiting": {
			reserved(check(kueue.CheckStateRejected)), []plan.Cluster{up("w1", copyOf(plain))}, nil, "rejected: remove w1",
		},
		"rejected by somebody, running": {
			reserved(check(kueue.CheckStateRejected)), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0)))}, nil, "rejected:",
		},
		"gone": {plain, []plan.Cluster{withJob(up("w1", copyOf(plain))), down("w2", 0)}, func(o *plan.Observed) { o.Gone = true }, "deleted: remove w1"},
		// Rules 1 and 2.
		"a slice was replaced": {reserved(elastic, func(w *kueue.Workload) {
			lifecycle.Machine{}.Finish(w, kueue.ReasonWorkloadSliceReplaced, "", t0)
		}), []plan.Cluster{up("w1", copyOf(plain))}, others, "1:"},
		"a slice was replaced, and its job does not know": {reserved(elastic, ready("w1"), func(w *kueue.Workload) {
			lifecycle.Machine{}.Finish(w, kueue.ReasonWorkloadSliceReplaced, "", t0)
		}), []plan.Cluster{withJob(up("w1", copyOf(plain)))}, others, "1: mirror w1"},
		"a slice was replaced, and all are over": {reserved(elastic, func(w *kueue.Workload) {
			lifecycle.Machine{}.Finish(w, kueue.ReasonWorkloadSliceReplaced, "", t0)
		}), []plan.Cluster{up("w1", copyOf(plain))}, nil, "2: remove w1"},
		"a slice that waits for quota beside another": {
			reserved(elastic, func(w *kueue.Workload) { w.Status.Conditions = nil }),
			[]plan.Cluster{up("w1", copyOf(plain))},
			func(o *plan.Observed) { o.Job.Replaces = true }, "1:",
		},
		"a slice that failed beside another": {
			reserved(elastic, func(w *kueue.Workload) { w.Status.Conditions = nil }, condition(kueue.WorkloadEvicted, 0, kueue.ReasonAdmissionCheck)),
			[]plan.Cluster{up("w1", copyOf(plain))},
			func(o *plan.Observed) { o.Job.Replaces = true }, "2: remove w1",
		},
		"a slice that waits for quota again": {
			reserved(elastic, func(w *kueue.Workload) { w.Status.Conditions = nil }),
			[]plan.Cluster{up("w1", copyOf(plain))},
			nil, "2: remove w1",
		},
		"a slice that its worker has replaced": {
			reserved(elastic, ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadFinished, 0, kueue.ReasonWorkloadSliceReplaced)))},
			func(o *plan.Observed) { o.Job.ReplacedBy = true }, "3:",
		},
		"a slice that its worker has replaced by nothing of ours": {
			reserved(elastic, ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadFinished, 0, kueue.ReasonWorkloadSliceReplaced)))},
			nil, "3: status Retry !",
		},
		"a slice whose cluster is lost":            {reserved(elastic, on("w1")), []plan.Cluster{down("w1", 70*time.Second), up("w2", nil)}, nil, "6a: status Retry"},
		"a slice whose cluster is lost for a bit":  {reserved(elastic, on("w1")), []plan.Cluster{down("w1", 30*time.Second), up("w2", nil)}, nil, "6a: after 30s"},
		"a slice whose cluster is not in the list": {reserved(elastic, on("w1")), []plan.Cluster{up("w2", nil)}, nil, "6a: status Retry"},
		"finished":                {finished, []plan.Cluster{up("w1", copyOf(plain)), withJob(up("w2", nil)), up("w3", nil)}, nil, "2: remove w1, remove w2"},
		"finished, one is down":   {finished, []plan.Cluster{down("w1", 0)}, nil, "2: after 1m0s"},
		"no quota":                {reserved(func(w *kueue.Workload) { w.Status.Conditions = nil }), []plan.Cluster{up("w1", copyOf(plain))}, nil, "2: remove w1"},
		"left the configuration":  {finished, []plan.Cluster{unlisted(up("w9", copyOf(plain)))}, nil, "2: remove w9"},
		"a stale copy is removed": {reserved(ready("w1")), []plan.Cluster{down("w1", 0), up("w2", copyOf(plain, admittedAt(-time.Hour)))}, nil, "6a: remove w2, after 1m0s"},
		"a stale job goes before the other may run": {
			reserved(ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(0))), withJob(up("w2", copyOf(plain, admittedAt(-time.Hour))))},
			nil,
			"clusterName: remove w2, after 1s",
		},
		// Rule 3.
		"finished on the worker": {
			reserved(ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(0), condition(kueue.WorkloadFinished, 0, "Succeeded")))},
			nil, "3: mirror w1, status finished Succeeded",
		},
		"finished, and its status cannot be copied": {
			reserved(ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadFinished, 0, "Failed")))},
			func(o *plan.Observed) { o.SyncFailures = 5 }, "3: mirror w1, status finished Failed",
		},
		"finished, and its status cannot be copied at all": {
			reserved(ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadFinished, 0, "Failed")))},
			func(o *plan.Observed) { o.SyncFailures = 6 }, "3: mirror w1 as it is, status finished Failed !",
		},
		"out of sync":           {reserved(ready("w1")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0), outOfSync))}, nil, "3: status Retry !"},
		"out of sync, not ours": {plain, []plan.Cluster{up("w1", copyOf(plain, outOfSync))}, nil, "9: remove w1 (says the worker), status !RemoteDeactivated"},
		"out of sync before it was ready": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0), outOfSync))), up("w2", copyOf(plain))},
			nil, "9: remove w1 (says the worker), status [w2], status [w2] !RemoteDeactivated, after 30s",
		},
		"out of sync before it was ready, and another is admitted": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(0), outOfSync)), up("w2", copyOf(plain, admittedAt(0)))},
			nil, "6b: remove w1 (says the worker), sync w2, status Ready on w2 [], after 1m0s",
		},
		"out of sync before it was ready, and another has finished": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain, outOfSync)), up("w2", copyOf(plain, condition(kueue.WorkloadFinished, 1, kueue.ReasonSucceeded)))},
			nil, "3: remove w1 (says the worker), mirror w2, status finished Succeeded",
		},
		"out of sync, evicted for it":                  {reserved(localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0), outOfSync)))}, active, "3: mirror w1"},
		"out of sync, evicted for it, its job is gone": {reserved(localEvicted), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0), outOfSync))}, active, "3: quiet"},
		"out of sync, a retry is under way":            {reserved(ready("w1"), check(kueue.CheckStateRetry)), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0), outOfSync))}, nil, "3:"},
		"out of sync, evicted for it, and no word of it": {
			reserved(localEvicted),
			[]plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0), outOfSync)))},
			func(o *plan.Observed) { o.Job.Active, o.Job.Gated, o.Job.Silent = true, true, true }, "3: remove w1, after 1s",
		},
		"chosen, which is not written down yet, and another was earlier by its clock": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(-time.Minute))), withJob(up("w2", copyOf(plain, admittedAt(0))))},
			nil, "6b: remove w1, sync w2, status Ready on w2 [], after 1m0s",
		},
		"chosen, and not admitted any more": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(0))), withJob(up("w2", copyOf(plain)))},
			nil, "6b: remove w2, after 1s",
		},
		"finished elsewhere, with a cluster": {
			reserved(ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(0))), up("w2", copyOf(plain, condition(kueue.WorkloadFinished, 0, "Failed")))},
			nil, "6b: remove w2, sync w1, after 1m0s",
		},
		// Rule 4 and the release.
		"evicted on the worker": {reserved(ready("w1")), []plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadEvicted, 0, "Preempted")))}, nil, "4: status Retry"},
		"evicted on both sides": {
			reserved(ready("w1"), localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, condition(kueue.WorkloadEvicted, 0, "Preempted"))))}, nil, "4: mirror w1",
		},
		"evicted on both sides, and a stale run": {
			reserved(localEvicted),
			[]plan.Cluster{withJob(up("w1", copyOf(plain, condition(kueue.WorkloadEvicted, 0, "Preempted")))), withJob(up("w2", copyOf(plain, admittedAt(0))))},
			nil, "6b: remove w1, copy status w2",
		},
		"evicted, nothing of it left": {reserved(localEvicted), []plan.Cluster{up("w1", nil), up("w2", nil)}, active, "release: quiet"},
		"evicted, one just lost":      {reserved(localEvicted), []plan.Cluster{up("w1", nil), down("w2", 20*time.Second)}, active, "8: after 40s"},
		"evicted, one long lost":      {reserved(localEvicted), []plan.Cluster{up("w1", nil), down("w2", 61*time.Second)}, active, "release: quiet"},
		"evicted, a job without a copy on one": {
			reserved(localEvicted), []plan.Cluster{withJob(up("w1", nil)), up("w2", nil)}, active, "release: remove w1, after 1s",
		},
		"evicted, a copy that never ran on one": {
			reserved(localEvicted), []plan.Cluster{up("w1", nil), up("w2", copyOf(plain)), down("w3", 0)}, active, "release: remove w2, after 1s",
		},
		"evicted, running on one": {
			reserved(localEvicted),
			[]plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0)))), up("w2", copyOf(plain))},
			active, "6b: remove w2, copy status w1",
		},
		// Rule 5.
		"another spec": {reserved(nominated("w1")), []plan.Cluster{up("w1", otherSpec)}, nil, "9: remove w1, create w1, after 30s"},
		"a spec that only looks different": {
			reserved(ready("w1")), []plan.Cluster{up("w1", skewed)}, nil, "6b: sync w1, after 1m0s",
		},
		"another priority":  {reserved(nominated("w1")), []plan.Cluster{up("w1", oldPriority)}, nil, "9: update w1, after 30s"},
		"a class at last":   {reserved(nominated("w1")), []plan.Cluster{up("w1", noClass)}, nil, "9: remove w1, create w1, after 30s"},
		"only deactivating": {reserved(ready("w1")), []plan.Cluster{up("w1", deactivating)}, nil, "6b: sync w1, after 1m0s"},
		"an elastic job shrinks": {
			reserved(elastic, ready("w1")),
			[]plan.Cluster{up("w1", copyOf(reserved(elastic, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 4 }), admittedAt(0)))},
			nil, "6b: update w1, sync w1, after 1m0s",
		},
		// Rule 6a.
		"the cluster is lost":            {reserved(ready("w1")), []plan.Cluster{down("w1", 70*time.Second)}, nil, "6a: status Retry lost"},
		"the cluster is lost for a bit":  {reserved(ready("w1")), []plan.Cluster{down("w1", 30*time.Second)}, nil, "6a: after 30s"},
		"the copy is admitted no more":   {reserved(ready("w1")), []plan.Cluster{up("w1", copyOf(plain))}, nil, "6a: status Retry"},
		"the cluster is not in the list": {reserved(ready("w1")), []plan.Cluster{unlisted(up("w1", copyOf(plain, admittedAt(0)))), up("w2", nil)}, nil, "6a: status Retry"},
		"ready nowhere":                  {reserved(ready("")), []plan.Cluster{up("w1", nil)}, nil, "6a: status Retry"},
		"restarted again and again": {reserved(ready("w1")), []plan.Cluster{{
			Name: "w1", Listed: true, LostSince: t0.Add(-time.Second), FirstLost: t0.Add(-3 * time.Minute),
		}}, nil, "6a: status Retry lost"},
		"a repeat waits": {reserved(ready("w1"), func(w *kueue.Workload) { w.Status.AdmissionChecks[0].RetryCount = new(int32(1)) }), []plan.Cluster{up("w1", copyOf(plain))}, nil, "6a: status Retry later"},
		// Rule 6b.
		"the first that admits": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(2))), up("w2", copyOf(plain, admittedAt(1)))},
			nil,
			"6b: remove w1, sync w2, status Ready on w2 [], after 1m0s",
		},
		"only reserved": {
			reserved(nominated("w1", "w2")), []plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadQuotaReserved, 0, ""))), up("w2", copyOf(plain))}, nil, "9: after 30s",
		},
		"evicted on the manager":    {reserved(ready("w1"), localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0))))}, nil, "6b: copy status w1"},
		"a sync that fails":         {reserved(ready("w1")), []plan.Cluster{faulty(up("w1", copyOf(plain, admittedAt(0))), plan.StatusSync)}, nil, "6b: sync w1, status !StatusSyncFailed, after 1m0s"},
		"a retry is under way":      {reserved(ready("w1"), check(kueue.CheckStateRetry)), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0)))}, nil, "6b: sync w1"},
		"a job refused where it is": {reserved(nominated("w1", "w2")), []plan.Cluster{faulty(up("w1", copyOf(plain, admittedAt(0))), plan.CreateRejected), up("w2", copyOf(plain))}, nil, "9: remove w1, status [w2], status [w2] !RemoteCreateRejected, after 30s"},
		// Rules 8 and 9.
		"not pending":         {reserved(check(kueue.CheckStateRetry)), []plan.Cluster{up("w1", nil)}, nil, "8:"},
		"still being evicted": {reserved(localEvicted), []plan.Cluster{up("w1", nil)}, nil, "8:"},
		"others wait": {reserved(func(w *kueue.Workload) {
			w.Status.AdmissionChecks = append(w.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "z", State: kueue.CheckStatePending})
		}), []plan.Cluster{up("w1", nil)}, nil, "9:"},
		"all at once":          {plain, []plan.Cluster{up("w2", nil), up("w1", nil), down("w3", 0)}, nil, "9: status [w1 w2], create w2, create w1, after 30s"},
		"in another order":     {reserved(nominated("w2", "w1")), []plan.Cluster{up("w1", nil), up("w2", copyOf(plain))}, nil, "9: create w1, after 30s"},
		"a kind is not served": {plain, []plan.Cluster{{Name: "w1", Listed: true, Connected: true, Lacks: true}, up("w2", nil)}, nil, "9: status [w2], create w2, after 30s"},
		"left the list":        {reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(plain)), unlisted(up("w2", copyOf(plain)))}, nil, "9: remove w2, after 30s"},
		"all refuse":           {plain, []plan.Cluster{faulty(up("w1", nil), plan.CreateRejected), faulty(up("w2", nil), plan.CreateRejected)}, nil, "9: status Retry !"},
		"all refuse, again": {
			reserved(func(w *kueue.Workload) { w.Status.AdmissionChecks[0].RetryCount = new(int32(5)) }),
			[]plan.Cluster{faulty(up("w1", nil), plan.CreateRejected)},
			nil, "9: status Rejected !",
		},
		"one refuses, another is lost":       {plain, []plan.Cluster{faulty(up("w1", nil), plan.CreateRejected), down("w2", time.Hour)}, nil, "9: status !RemoteCreateRejected, after 30s"},
		"all refuse, one of them lost since": {plain, []plan.Cluster{faulty(up("w1", nil), plan.CreateRejected), faulty(down("w2", 0), plan.CreateRejected)}, nil, "9: status Retry !"},
		"a name is taken":                    {plain, []plan.Cluster{faulty(up("w1", nil), plan.NameConflict), up("w2", nil)}, nil, "9: status [w2], create w2, status [w2] !RemoteNameConflict, after 30s"},
		"an elastic slice with its cluster": {
			reserved(elastic, func(w *kueue.Workload) { w.Status.ClusterName = "w2" }), []plan.Cluster{up("w1", nil), up("w2", nil)}, nil, "9: create w2, after 30s",
		},
		// External frameworks.
		"a precondition is not true":              {plain, []plan.Cluster{up("w1", nil)}, refuse(external.Precondition, false), "external: status Rejected !PreconditionFailed"},
		"a precondition is not true, with a copy": {plain, []plan.Cluster{up("w1", copyOf(plain))}, refuse(external.Precondition, true), "external: remove w1, status Rejected !PreconditionFailed"},
		"a precondition costs too much":           {plain, []plan.Cluster{up("w1", nil)}, refuse(external.CostExceeded, false), "external: status Rejected !TransformCostExceeded"},
		"a precondition costs too much, retried":  {plain, []plan.Cluster{up("w1", nil)}, refuse(external.CostExceeded, true), "external: status Retry !"},
		"no copy can be made for one":             {plain, []plan.Cluster{faulty(up("w1", nil), external.Forbidden), up("w2", nil)}, nil, "9: status [w2], create w2, status [w2] !TransformForbiddenPath, after 30s"},
		"no copy can be made":                     {plain, []plan.Cluster{faulty(up("w1", nil), external.Forbidden)}, nil, "9: status Rejected !"},
		"no copy can be made for one, another is busy": {
			reserved(nominated("w2")), []plan.Cluster{faulty(up("w1", nil), external.Forbidden), {Name: "w2", Listed: true, Busy: true}}, nil, "9: status !TransformForbiddenPath, after 30s",
		},
		"no copy can be made, retried": {
			plain, []plan.Cluster{faulty(up("w1", nil), external.Forbidden)}, func(o *plan.Observed) { o.Job.RetryRefused = true }, "9: status Retry !",
		},
		"it is not known yet whether a copy can be made": {
			plain, []plan.Cluster{suspended(up("w1", nil))}, nil, "9: status !TransformCostExceeded, after 30s",
		},
		"it is not known yet whether a copy can be made for one": {
			plain, []plan.Cluster{suspended(up("w1", nil)), up("w2", nil)}, nil, "9: status [w2], create w2, status [w2] !TransformCostExceeded, after 30s",
		},
		"it is not known yet whether a copy can be made for one, and none can for the other": {
			plain, []plan.Cluster{suspended(up("w1", nil)), faulty(up("w2", nil), external.Forbidden)}, nil, "9: status !TransformCostExceeded !TransformForbiddenPath, after 30s",
		},
		"a controller gives up": {reserved(tells("Rejected", 5)), []plan.Cluster{up("w1", nil)}, carried, "external: status Rejected !ExternalController"},
		"a controller asks":     {reserved(tells("RetryRequested", 5)), []plan.Cluster{up("w1", nil)}, carried, "external: status Retry !"},
		"a controller asks in the second in which the check turned Ready": {
			reserved(ready("w1"), tells("RetryRequested", 0)), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0)))}, carried, "external: status Retry !",
		},
		"a controller has asked in the same second": {
			reserved(tells("RetryRequested", 0)), []plan.Cluster{up("w1", nil)}, carried, "9: status [w1], create w1, status [w1] !ExternalController, after 30s",
		},
		"a controller complains of a job that runs": {
			reserved(ready("w1"), tells("Slow", 5)), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0)))}, carried, "6b: sync w1, status !ExternalController, after 1m0s",
		},
		"a controller goes on complaining": {
			reserved(ready("w1"), tells("Slow", 5), func(w *kueue.Workload) {
				w.Status.AdmissionChecks[0].Message += ". [ExternalController] Slow: m"
			}), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0)))}, carried, "6b: sync w1, after 1m0s",
		},
		"a controller has asked": {reserved(tells("RetryRequested", -5)), []plan.Cluster{up("w1", nil)}, carried, "9: status [w1], create w1, status [w1] !ExternalController, after 30s"},
		"nobody asked the controller of a job that we carry": {
			reserved(tells("Rejected", 5)), []plan.Cluster{up("w1", nil)}, nil, "9: status [w1], create w1, status [w1] !ExternalController, after 30s",
		},
		"a copy of a carried job on its way out elsewhere": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain, going)), up("w2", copyOf(plain, admittedAt(0)))},
			carried, "6b: remove w1, sync w2, status Ready on w2 [], after 1m0s",
		},
		"a copy of a carried job on its way out elsewhere, while it runs": {
			reserved(ready("w2")),
			[]plan.Cluster{up("w1", copyOf(plain, going)), up("w2", copyOf(plain, condition(kueue.WorkloadFinished, 0, "Succeeded")))},
			carried, "3: remove w1, mirror w2, status finished Succeeded",
		},
		"a copy of a carried job on its way out": {
			reserved(nominated("w1", "w2")), []plan.Cluster{up("w1", copyOf(plain, going)), up("w2", nil)}, carried, "9: remove w1, create w2, after 2s",
		},
		"a copy on its way out elsewhere": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain, going)), up("w2", copyOf(plain, admittedAt(0)))},
			nil, "6b: remove w1, after 1s",
		},
		"a copy on its way out": {reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(plain, func(w *kueue.Workload) { w.DeletionTimestamp = &t0 }))}, nil, "9: remove w1, after 2s"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := &plan.Observed{
				Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0,
				Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true, Manager: kueue.MultiKueueControllerName},
			}
			if tc.change != nil {
				tc.change(o)
			}
			before := tc.local.DeepCopy()
			if got := text(o, plan.Decide(config(), o)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if diff := cmp.Diff(before, tc.local); diff != "" {
				t.Errorf("the input changed: %s", diff)
			}
		})
	}
}

// going is a terminating copy.
func going(w *kueue.Workload) { w.DeletionTimestamp = &t0 }

func active(o *plan.Observed) { o.Job.Active = true }

// TestIncremental is spec 40 §7.33 and the rules of §4.5 about rounds.
func TestIncremental(t *testing.T) {
	cfg := config()
	cfg.Mode = plan.Incremental
	since := func(ago time.Duration, names ...string) *kueue.Workload {
		w := waiting(ago, names...)
		w.Annotations[plan.RoundStartAnnotation] = t0.Add(-ago).UTC().Format(time.RFC3339)
		return w
	}
	all := func(copies ...string) []plan.Cluster {
		var out []plan.Cluster
		for _, name := range []string{"c", "a", "b"} {
			c := up(name, nil)
			if slices.Contains(copies, name) {
				c.Copy = copyOf(reserved())
			}
			out = append(out, c)
		}
		return out
	}
	tests := map[string]struct {
		local    *kueue.Workload
		clusters []plan.Cluster
		byName   bool
		want     string
	}{
		"the first round":                        {reserved(), all(), false, "9: annotate, status [c], create c, after 30s"},
		"by name":                                {reserved(), all(), true, "9: annotate, status [a], create a, after 30s"},
		"restarted at minute two":                {since(2*time.Minute, "c"), all("c"), false, "9: status, after 3m0s"},
		"the second round":                       {since(5*time.Minute, "c"), all("c"), false, "9: annotate, status [c a], create a, status [c a], after 5m0s"},
		"the last round":                         {since(6*time.Minute, "c", "a"), all("c", "a"), false, "9: annotate, status [c a b], create b, status [c a b]"},
		"exhausted":                              {since(time.Hour, "c", "a", "b"), all("c", "a", "b"), false, "9: status"},
		"none of them is reachable":              {since(time.Minute, "c"), append([]plan.Cluster{down("c", 0)}, all()[1:]...), false, "9: annotate, status [c a], create a, status [c a], after 5m0s"},
		"one left the configuration":             {since(2*time.Minute, "gone", "c"), all("c"), false, "9: status, after 3m0s"},
		"one left the configuration long before": {since(5*time.Minute, "gone", "c"), all("c"), false, "9: annotate, status [c a], create a, status [c a], after 5m0s"},
		"all left the configuration":             {since(time.Minute, "gone"), all(), false, "9: annotate, status [c], create c, status [c], after 5m0s"},
		// The first round starts with the reservation, and is not recorded.
		"in the first round":            {waiting(2*time.Minute, "c"), all("c"), false, "9: status, after 3m0s"},
		"after the first round":         {waiting(5*time.Minute, "c"), all("c"), false, "9: annotate, status [c a], create a, status [c a], after 5m0s"},
		"a note of before":              {noted(time.Hour, waiting(2*time.Minute, "c")), all("c"), false, "9: status, after 3m0s"},
		"a note of after":               {noted(time.Minute, waiting(time.Hour, "c")), all("c"), false, "9: status, after 4m0s"},
		"a later round without a note":  {waiting(time.Hour, "c", "a"), all("c", "a"), false, "9: annotate, status, after 5m0s"},
		"a later round, noted just now": {noted(time.Minute, waiting(time.Hour, "c", "a")), all("c", "a"), false, "9: status, after 4m0s"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := *cfg
			c.ConfigOrder = !tc.byName
			o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
			if got := text(o, plan.Decide(&c, o)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// waiting returns a Workload with nominations of that age.
func waiting(ago time.Duration, names ...string) *kueue.Workload {
	w := reserved(nominated(names...))
	lifecycle.Condition(w, kueue.WorkloadQuotaReserved).LastTransitionTime = metav1.NewTime(t0.Add(-ago))
	return w
}

// noted sets the record of a round that began that long ago.
func noted(ago time.Duration, w *kueue.Workload) *kueue.Workload {
	w.Annotations[plan.RoundStartAnnotation] = t0.Add(-ago).UTC().Format(time.RFC3339)
	return w
}

// longAgo sets the reservation an hour back.
func longAgo(w *kueue.Workload) *kueue.Workload {
	lifecycle.Condition(w, kueue.WorkloadQuotaReserved).LastTransitionTime = metav1.NewTime(t0.Add(-time.Hour))
	return w
}

// TestGates is spec 40 §7.42.
func TestGates(t *testing.T) {
	cfg := config()
	cfg.Orchestrated, cfg.PreemptionTimeout = true, 5*time.Minute
	asks := func(since time.Duration, opened time.Duration) *kueue.Workload {
		w := cfg.NewCopy(reserved())
		w.CreationTimestamp = t0
		if opened == 0 {
			condition(kueue.WorkloadBlockedOnPreemptionGates, -since, kueue.ReasonPreemptionGated)(w)
			return w
		}
		w.Status.PreemptionGates = []kueue.PreemptionGateState{{
			Name: kueue.MultiKueuePreemptionGate, Position: kueue.PreemptionGateOpen, LastTransitionTime: metav1.NewTime(t0.Add(-opened)),
		}}
		return w
	}
	fits := asks(0, 0)
	condition(kueue.WorkloadQuotaReserved, 0, "")(fits)
	quiet := cfg.NewCopy(reserved())
	quiet.CreationTimestamp = t0
	for name, tc := range map[string]struct {
		clusters []plan.Cluster
		want     string
	}{
		"the first that asks":              {[]plan.Cluster{up("w1", asks(time.Second, 0)), up("w2", asks(time.Minute, 0))}, "9: annotate, copy status w2, after 30s"},
		"one was let do so just now":       {[]plan.Cluster{up("w1", asks(time.Minute, 0)), up("w2", asks(0, 4*time.Minute+50*time.Second))}, "9: after 10s"},
		"that is over":                     {[]plan.Cluster{up("w1", asks(time.Minute, 0)), up("w2", asks(0, 5*time.Minute))}, "9: annotate, copy status w1, after 30s"},
		"nobody asks":                      {[]plan.Cluster{up("w1", quiet), up("w2", asks(0, time.Hour))}, "9: after 30s"},
		"not nominated any more":           {[]plan.Cluster{up("w3", asks(time.Hour, 0)), up("w1", quiet)}, "9: status [w1 w3], after 30s"},
		"not nominated, and has room":      {[]plan.Cluster{up("w3", fits), up("w1", asks(time.Second, 0))}, "9: status [w1 w3], after 30s"},
		"one has room, and its own checks": {[]plan.Cluster{up("w1", asks(time.Minute, 0)), up("w2", fits)}, "9: after 30s"},
	} {
		o := &plan.Observed{Local: reserved(nominated("w1", "w2")), Check: "mk", Clusters: tc.clusters, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
		if got := text(o, plan.Decide(cfg, o)); got != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
	if gates := quiet.Spec.PreemptionGates; len(gates) != 1 || gates[0].Name != kueue.MultiKueuePreemptionGate {
		t.Errorf("gates of a copy: %v", gates)
	}
}

// TestExternal is spec 40 §7.34: the nominations of an external dispatcher are followed.
func TestExternal(t *testing.T) {
	cfg := config()
	cfg.Mode = plan.External
	for name, tc := range map[string]struct {
		local    *kueue.Workload
		clusters []plan.Cluster
		want     string
	}{
		"nobody yet": {reserved(), []plan.Cluster{up("w1", nil)}, "9: after 30s"},
		"one":        {reserved(nominated("w2")), []plan.Cluster{up("w1", nil), up("w2", nil)}, "9: create w2, after 30s"},
		"another":    {reserved(nominated("w1")), []plan.Cluster{up("w1", nil), up("w2", copyOf(reserved()))}, "9: create w1, remove w2, after 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
			if got := text(o, plan.Decide(cfg, o)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestCopy is spec 40 §7.15.
func TestCopy(t *testing.T) {
	w := reserved()
	c := config().NewCopy(w)
	want := metav1.ObjectMeta{
		Namespace: "ns", Name: "a", Labels: map[string]string{"team": "t", kueue.MultiKueueOriginLabel: "hub"},
		Annotations: map[string]string{
			"note": "n", plan.ManagerUIDAnnotation: "hub-uid", plan.SpecHashAnnotation: c.Annotations[plan.SpecHashAnnotation],
			plan.OriginUIDAnnotation: "uid-a",
		},
	}
	if diff := cmp.Diff(want, c.ObjectMeta); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(w.Spec, c.Spec); diff != "" || c.Annotations[plan.SpecHashAnnotation] == "" {
		t.Errorf("spec -want +got:\n%s", diff)
	}
	foreign := c.DeepCopy()
	foreign.Annotations[plan.ManagerUIDAnnotation] = "another"
	if cfg := config(); !cfg.Owns(c) || cfg.Owns(foreign) || cfg.Owns(w) || !cfg.Foreign(foreign) {
		t.Error("whose a copy is")
	}
}

// TestMessages: the messages that clients parse and users read.
func TestMessages(t *testing.T) {
	decide := func(w *kueue.Workload, clusters ...plan.Cluster) kueue.AdmissionCheckState {
		o := &plan.Observed{Local: w, Check: "mk", Clusters: clusters, Now: metav1.NewTime(t0.Add(time.Minute)), Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true}}
		var last kueue.AdmissionCheckState
		for _, s := range plan.Decide(config(), o).Steps {
			if s.Do == plan.WriteStatus {
				last = s.Workload.Status.AdmissionChecks[0]
			}
		}
		return last
	}
	waiting := copyOf(reserved(), func(w *kueue.Workload) {
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Message: "no room for 2 GPUs"}}
	})
	for name, tc := range map[string]struct{ got, want string }{
		"admitted": {decide(reserved(nominated("east-1")), up("east-1", copyOf(reserved(), admittedAt(0)))).Message, `The workload was admitted on "east-1"`},
		"with an error": {
			decide(reserved(ready("east-1")), faulty(up("east-1", copyOf(reserved(), admittedAt(0))), plan.StatusSync)).Message,
			`The workload was admitted on "east-1". [StatusSyncFailed] no`,
		},
		"lost":    {decide(reserved(ready("w1")), up("w1", copyOf(reserved()))).Message, `Admitting remote no longer exists, Previously: "Ready"`},
		"waiting": {decide(reserved(nominated("w1")), up("w1", waiting)).Message, "w1: no room for 2 GPUs"},
		"failing": {
			decide(reserved(nominated("w1")), plan.Cluster{Name: "w1", Listed: true, Connected: true, Fault: &plan.Fault{Code: plan.CreateFailed, Text: "no namespace"}}).Message,
			"[RemoteCreateFailed] w1: no namespace",
		},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %q, want %q", name, tc.got, tc.want)
		}
	}
	seconds := func(retries int32) int32 {
		w := reserved(ready("w1"), func(w *kueue.Workload) { w.Status.AdmissionChecks[0].RetryCount = &retries })
		return *decide(w, up("w1", copyOf(w))).RequeueAfterSeconds
	}
	for n, want := range map[int32]int32{1: 10, 2: 20, 4: 80, 20: 600} {
		if got := seconds(n); got < want*8/10-1 || got > want*12/10+1 {
			t.Errorf("retry %d waits %ds, want about %ds", n, got, want)
		}
	}
}

// refuse sets a failed precondition.
func refuse(code string, retry bool) func(*plan.Observed) {
	return func(o *plan.Observed) {
		o.Job.Refused, o.Job.RetryRefused = &external.Error{Code: code, Text: "no"}, retry
	}
}

// carried is a job of an external controller.
func carried(o *plan.Observed) { o.Job.Carried = true }

// tells sets a condition of that controller, some seconds after the last write of the check.
func tells(reason string, after int) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.Status.AdmissionChecks[0].LastTransitionTime = t0
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: plan.ExternalSyncCondition, Status: metav1.ConditionFalse, Reason: reason, Message: "m",
			LastTransitionTime: metav1.NewTime(t0.Add(time.Duration(after) * time.Second)),
		})
	}
}
