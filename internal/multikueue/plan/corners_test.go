package plan_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// placed sets a delayed placement of a Workload's pod set in the given state.
func placed(state kueue.DelayedTopologyRequestState) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", DelayedTopologyRequest: &state}}}
	}
}

// placement is a worker cluster's assignment of the pod set of that name.
func placement(name string, made bool) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		a := kueue.PodSetAssignment{Name: kueue.PodSetReference(name)}
		if made {
			a.TopologyAssignment = &kueue.TopologyAssignment{Levels: []string{"rack"}}
		}
		w.Status.Admission = &kueue.Admission{ClusterQueue: "r", PodSetAssignments: []kueue.PodSetAssignment{a}}
	}
}

func toldBefore(ago time.Duration) func(*plan.Observed) {
	return func(o *plan.Observed) { o.ReportedAt = t0.Add(-ago) }
}

// outFor is a cluster that deactivated a copy, and is skipped for a while.
func outFor(c plan.Cluster, left time.Duration) plan.Cluster {
	c.Fault = &plan.Fault{Code: plan.Deactivated, Text: "no", Skip: true, Until: t0.Add(left)}
	return c
}

func deactivated(w *kueue.Workload) { w.Spec.Active = new(false) }

// TestCorners: the rules in combined situations.
func TestCorners(t *testing.T) {
	plain := reserved()
	elastic := func(w *kueue.Workload) { w.Annotations[kueue.ElasticJobAnnotation] = "true" }
	notOurs := func(o *plan.Observed) { o.Job.Managed, o.Job.Active = false, true }
	noQuota := func(w *kueue.Workload) { w.Status.Conditions = nil }
	finished := reserved(func(w *kueue.Workload) { lifecycle.Machine{}.Finish(w, kueue.ReasonSucceeded, "", t0) })
	before := func(is func(*kueue.Workload)) *kueue.Workload {
		return copyOf(reserved(func(w *kueue.Workload) { w.UID = "uid-before" }), is)
	}
	admitted := copyOf(plain, admittedAt(0))
	evictedCopy := condition(kueue.WorkloadEvicted, 0, "Preempted")
	tookBack := condition(kueue.WorkloadEvicted, 0, kueue.ReasonDeactivatedDueToEvictedOnManagerCluster)
	quota := condition(kueue.WorkloadQuotaReserved, 0, "R")
	alone := func(o *plan.Observed) { o.Job.Alone = true }
	ownerGone := condition(kueue.WorkloadFinished, 0, kueue.ReasonOwnerNotFound)
	busy := down("w1", 0)
	busy.Busy = true
	busyWithJob := withJob(busy)
	untried, dropped := down("w1", 0), down("w1", 0)
	untried.Untried, dropped.Untried, dropped.Listed = true, true, false
	boosted := copyOf(plain)
	boosted.Annotations[kueue.PriorityBoostAnnotation] = "7"
	for name, tc := range map[string]struct {
		local    *kueue.Workload
		clusters []plan.Cluster
		change   func(*plan.Observed)
		want     string
	}{
		"finished, and what had its name before": {
			reserved(nominated("w1")), []plan.Cluster{withJob(up("w1", before(condition(kueue.WorkloadFinished, 0, kueue.ReasonSucceeded))))}, nil, "9: remove w1, after 2s",
		},
		"admitted, and what had its name before": {
			reserved(), []plan.Cluster{withJob(up("w1", before(admittedAt(0)))), up("w2", nil)}, nil, "9: remove w1, status [w1 w2], create w2, after 2s",
		},
		"no quota yet, and what had its name before": {
			reserved(noQuota), []plan.Cluster{up("w1", before(admittedAt(0)))}, nil, "2: remove w1",
		},
		"admitted, and made by a manager that did not say of what": {
			reserved(nominated("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(0), func(w *kueue.Workload) { delete(w.Annotations, plan.OriginUIDAnnotation) }))},
			nil, "6b: sync w1, status Ready on w1 [], after 1m0s",
		},
		"it is being deleted": {
			reserved(ready("w1"), func(w *kueue.Workload) { w.DeletionTimestamp = &t0 }), []plan.Cluster{withJob(up("w1", admitted))}, nil, "deleted: remove w1",
		},
		"a stale job goes, and a copy beside it, before the one may run": {
			reserved(ready("w1")),
			[]plan.Cluster{up("w1", admitted), withJob(up("w2", copyOf(plain))), up("w3", copyOf(plain))},
			nil, "clusterName: remove w2, remove w3, after 1s",
		},
		"a stale job goes, and the one that runs goes on": {
			reserved(ready("w1")), []plan.Cluster{withJob(up("w1", admitted)), withJob(up("w2", copyOf(plain)))}, nil, "6b: remove w2, sync w1, after 1m0s",
		},
		"a stale job goes, and the one that ran has finished": {
			reserved(ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, admittedAt(0), condition(kueue.WorkloadFinished, 0, kueue.ReasonSucceeded))), withJob(up("w2", nil))},
			nil, "3: remove w2, mirror w1, status finished Succeeded",
		},
		"a stale job goes, and the one that runs is evicted there": {
			reserved(ready("w1")), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0), evictedCopy))), withJob(up("w2", nil))}, nil, "4: remove w2, status Retry",
		},
		"a stale job goes, and the one that runs is lost": {
			reserved(ready("w1")), []plan.Cluster{down("w1", time.Hour), withJob(up("w2", nil))}, nil, "6a: remove w2, status Retry lost",
		},
		"a stale job goes, and the one that runs is evicted here": {
			reserved(localEvicted), []plan.Cluster{withJob(up("w1", admitted)), withJob(up("w2", copyOf(plain)))}, nil, "6b: remove w2, copy status w1",
		},
		"a stale job goes, and the one that runs ends on both sides": {
			reserved(localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedCopy))), withJob(up("w2", nil))}, nil, "4: remove w2, mirror w1",
		},
		"a stale job is going, slowly, and the one that is admitted runs": {
			reserved(nominated("w1", "w2")), []plan.Cluster{busyWithJob, withJob(up("w2", admitted))}, nil, "6b: sync w2, status Ready on w2 [], after 1m0s",
		},
		"a stale job goes before the one that is admitted is made": {
			reserved(nominated("w1", "w2")), []plan.Cluster{up("w1", admitted), withJob(up("w2", copyOf(plain)))}, nil, "6b: remove w2, after 1s",
		},
		"rejected, and its quota is gone":                         {reserved(check(kueue.CheckStateRejected), noQuota), []plan.Cluster{up("w1", admitted)}, nil, "rejected: remove w1"},
		"evicted, and its job is somebody else's by now":          {reserved(localEvicted), []plan.Cluster{withJob(up("w1", admitted))}, notOurs, "6b: copy status w1"},
		"evicted, ended, and its job is somebody else's by now":   {reserved(localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedCopy)))}, notOurs, "4: mirror w1"},
		"evicted, left nothing, and its job is somebody else's":   {reserved(localEvicted), []plan.Cluster{up("w1", nil)}, notOurs, "release: quiet"},
		"evicted, and nothing here knows the kind any more":       {reserved(localEvicted), []plan.Cluster{up("w1", admitted)}, func(o *plan.Observed) { o.Job = plan.JobFacts{Kind: "Job"} }, "6b: copy status w1"},
		"evicted, and rejected since":                             {reserved(localEvicted, check(kueue.CheckStateRejected)), []plan.Cluster{withJob(up("w1", admitted))}, active, "6b: copy status w1"},
		"evicted, and rejected since, with a copy that has ended": {reserved(localEvicted, check(kueue.CheckStateRejected)), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedCopy)))}, active, "4: mirror w1"},
		"evicted, and rejected since, with a copy that never ran": {reserved(localEvicted, check(kueue.CheckStateRejected)), []plan.Cluster{up("w1", copyOf(plain))}, active, "release: remove w1, after 1s"},
		"evicted, and rejected since, with nothing left":          {reserved(localEvicted, check(kueue.CheckStateRejected)), []plan.Cluster{up("w1", nil)}, active, "release: quiet"},
		"finished, and its job is somebody else's by now": {
			finished, []plan.Cluster{up("w1", copyOf(plain))}, func(o *plan.Observed) { o.Job.Managed = false }, "2: remove w1",
		},
		"it runs where something could not be created": {
			reserved(ready("w1")), []plan.Cluster{faulty(up("w1", admitted), plan.CreateRejected)}, nil, "6b: sync w1, status !RemoteCreateRejected, after 1m0s",
		},
		"an elastic job out of sync is over": {
			reserved(elastic, ready("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadFinished, 0, kueue.ReasonOutOfSync)))},
			nil, "3: mirror w1, status finished OutOfSync",
		},
		"its job is gone there while it is evicted here": {
			reserved(localEvicted), []plan.Cluster{up("w1", copyOf(plain, ownerGone))}, nil, "8: remove w1",
		},
		"its job is gone there, and its check does not know that it is evicted": {
			reserved(localEvicted, ready("w1")), []plan.Cluster{up("w1", copyOf(plain, ownerGone))}, nil, "6a: remove w1, status Retry",
		},
		"deactivated by its user, and not evicted yet": {
			reserved(ready("w1"), deactivated), []plan.Cluster{up("w1", admitted)}, nil, "6b: sync w1, after 1m0s",
		},
		"evicted on both sides, no job there, another may run it": {
			reserved(localEvicted), []plan.Cluster{up("w1", copyOf(plain, evictedCopy)), down("w2", 20*time.Second)}, active, "4: after 40s",
		},
		"evicted on both sides, no job anywhere": {reserved(localEvicted), []plan.Cluster{up("w1", copyOf(plain, evictedCopy))}, active, "4: quiet"},
		"evicted, running on one, and others bring copies that ended before": {
			reserved(localEvicted),
			[]plan.Cluster{up("w1", copyOf(plain, evictedCopy)), withJob(up("w2", admitted)), up("w3", copyOf(plain, admittedAt(-time.Hour), evictedCopy))},
			active, "6b: remove w1, remove w3, copy status w2",
		},
		"evicted, running where something could not be created": {
			reserved(localEvicted), []plan.Cluster{faulty(withJob(up("w1", admitted)), plan.CreateRejected)}, active, "6b: copy status w1",
		},
		"evicted, never ran where something could not be created": {
			reserved(localEvicted), []plan.Cluster{faulty(up("w1", copyOf(plain)), plan.CreateRejected)}, active, "release: remove w1, after 1s",
		},
		"evicted, and lost where it cannot be":    {reserved(localEvicted), []plan.Cluster{up("w1", nil), unlisted(down("w9", 20*time.Second))}, active, "release: quiet"},
		"evicted, and running where it cannot be": {reserved(localEvicted), []plan.Cluster{up("w1", nil), unlisted(withJob(up("w9", admitted)))}, active, "release: remove w9, after 1s"},
		"evicted, and taken back already":         {reserved(localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0), deactivated)))}, nil, "6b:"},
		"a controller asks while a retry is due":  {reserved(tells("RetryRequested", 5), check(kueue.CheckStateRetry)), []plan.Cluster{up("w1", nil)}, carried, "external:"},
		"a controller asks while it is evicted":   {reserved(localEvicted, tells("RetryRequested", 5)), []plan.Cluster{up("w1", nil)}, carried, "8:"},
		"a controller says something else":        {reserved(ready("w1"), tells("Whatever", 5)), []plan.Cluster{up("w1", admitted)}, carried, "6b: sync w1, status !ExternalController, after 1m0s"},
		"its placement is made":                   {reserved(ready("w1"), placed("Pending")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0), placement("main", true)))}, nil, "6b: sync w1, status, after 1m0s"},
		"its placement is not made":               {reserved(ready("w1"), placed("Pending")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0), placement("main", false)))}, nil, "6b: sync w1, after 1m0s"},
		"the placement of another is made":        {reserved(ready("w1"), placed("Pending")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0), placement("x", true)))}, nil, "6b: sync w1, after 1m0s"},
		"it has no pods by now":                   {reserved(ready("w1"), placed("Pending")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0), placement("main", false), func(w *kueue.Workload) { w.Status.Admission.PodSetAssignments[0].Count = new(int32(0)) }))}, nil, "6b: sync w1, status, after 1m0s"},
		"its placement was made":                  {reserved(ready("w1"), placed("Ready")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0), placement("main", true)))}, nil, "6b: sync w1, after 1m0s"},
		"told why it waits just now":              {longAgo(reserved(nominated("w1"))), []plan.Cluster{up("w1", copyOf(plain))}, toldBefore(10 * time.Second), "9: after 20s"},
		"told why it waits before":                {longAgo(reserved(nominated("w1"))), []plan.Cluster{up("w1", copyOf(plain))}, toldBefore(30 * time.Second), "9: status"},
		"a failure is told at once":               {reserved(nominated("w1")), []plan.Cluster{faulty(up("w1", nil), plan.StatusSync)}, toldBefore(59 * time.Second), "9: create w1, status !StatusSyncFailed"},
		"a copy that was taken back for good":     {reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(plain, deactivated, tookBack))}, nil, "9: remove w1, create w1, after 30s"},
		"a copy that its worker deactivated": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain, deactivated, evictedCopy)), up("w2", copyOf(plain))},
			nil,
			"9: remove w1 (says the worker), status [w2], status [w2] !RemoteDeactivated, after 30s",
		},
		"a copy that its worker deactivated before": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{outFor(up("w1", nil), 7*time.Second), up("w2", copyOf(plain))},
			toldBefore(20 * time.Second),
			"9: status [w2], status [w2] !RemoteDeactivated, after 7s",
		},
		"evicted before its start was noted, where nothing else gives its quota back": {
			reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(plain, evictedCopy, quota))}, alone, "9: remove w1, create w1, after 30s",
		},
		"evicted before its start was noted, and its job is there": {
			reserved(nominated("w1")), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedCopy, quota)))}, alone, "4: end w1, after 1s",
		},
		"deactivated before its start was noted, where nothing else gives its quota back": {
			reserved(nominated("w1")),
			[]plan.Cluster{up("w1", copyOf(plain, deactivated, evictedCopy, quota))},
			alone,
			"9: remove w1 (says the worker), status [], status [] !RemoteDeactivated",
		},
		"a copy that is being taken back":         {reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(plain, deactivated, evictedCopy, quota))}, nil, "9: after 30s"},
		"a boost is gone":                         {reserved(nominated("w1")), []plan.Cluster{up("w1", boosted)}, nil, "9: update w1, after 30s"},
		"something is being made there":           {reserved(nominated("w1", "w2")), []plan.Cluster{busy, up("w2", copyOf(plain))}, nil, "9: after 30s"},
		"something is being made there, admitted": {reserved(nominated("w1", "w2")), []plan.Cluster{busy, up("w2", admitted)}, nil, "6b: sync w2, status Ready on w2 [], after 1m0s"},
		"another may have the job since before the restart": {
			reserved(nominated("w1", "w2")), []plan.Cluster{untried, up("w2", admitted)}, nil, "6b: after 1s",
		},
		"another is not connected yet, and was not nominated": {
			reserved(nominated("w2")), []plan.Cluster{untried, up("w2", admitted)}, nil, "6b: sync w2, status Ready on w2 [], after 1m0s",
		},
		"another is not connected yet, and not configured any more": {
			reserved(nominated("w1", "w2")), []plan.Cluster{dropped, up("w2", admitted)}, nil, "6b: sync w2, status Ready on w2 [], after 1m0s",
		},
		"another is not connected yet, and the choice was written": {
			reserved(ready("w2")), []plan.Cluster{untried, up("w2", admitted)}, nil, "6b: sync w2, after 1m0s",
		},
		"a copy elsewhere than where it may be":    {reserved(nominated("w2")), []plan.Cluster{withJob(up("w1", copyOf(plain))), up("w2", copyOf(plain))}, nil, "9: remove w1, status [w1 w2], after 2s"},
		"admitted elsewhere than where it may be":  {reserved(nominated("w2")), []plan.Cluster{up("w1", admitted), up("w2", copyOf(plain))}, nil, "9: status [w1 w2], after 30s"},
		"a slice that grows is admitted, one lost": {reserved(elastic, on("w2")), []plan.Cluster{down("w1", time.Hour), up("w2", copyOf(plain, admittedAt(0)))}, nil, "6b: sync w2, status Ready, after 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true}}
			if tc.change != nil {
				tc.change(o)
			}
			if got := text(o, plan.Decide(config(), o)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestBlocks: the steps that must succeed before later ones. No copy is created before its nomination, no job starts while it may run
// elsewhere, and no Workload finishes before the final status is copied.
func TestBlocks(t *testing.T) {
	plain := reserved()
	rounds := config()
	rounds.Mode = plan.Incremental
	for name, tc := range map[string]struct {
		cfg      *plan.Config
		local    *kueue.Workload
		clusters []plan.Cluster
		want     string
	}{
		"nominated":       {config(), plain, []plan.Cluster{up("w1", nil)}, "status! create"},
		"in a round":      {rounds, plain, []plan.Cluster{up("w1", nil)}, "annotate! status! create"},
		"others go":       {config(), reserved(nominated("w1", "w2")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0))), up("w2", copyOf(plain))}, "remove sync! status"},
		"a job goes":      {config(), reserved(ready("w1")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0))), withJob(up("w2", copyOf(plain)))}, "remove!"},
		"it runs":         {config(), reserved(ready("w1")), []plan.Cluster{faulty(up("w1", copyOf(plain, admittedAt(0))), plan.StatusSync)}, "sync status"},
		"it has finished": {config(), reserved(ready("w1")), []plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadFinished, 0, "Succeeded")))}, "mirror! status"},
	} {
		o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true}}
		var got []string
		for _, s := range plan.Decide(tc.cfg, o).Steps {
			part := verbs[s.Do]
			if s.Blocks {
				part += "!"
			}
			got = append(got, part)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %v, want %s", name, got, tc.want)
		}
	}
}

// TestUpdatedCopy: a copy that is updated in place keeps the fields of its worker cluster, and has the new hash.
func TestUpdatedCopy(t *testing.T) {
	elastic := func(w *kueue.Workload) { w.Annotations[kueue.ElasticJobAnnotation] = "true" }
	for name, tc := range map[string]struct {
		local, before *kueue.Workload
	}{
		"it shrinks":       {reserved(elastic, ready("w1")), reserved(elastic, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 4 })},
		"another priority": {reserved(ready("w1")), reserved(func(w *kueue.Workload) { w.Spec.Priority, w.Spec.PriorityClassRef.Name = new(int32(1)), "low" })},
	} {
		there := copyOf(tc.before, admittedAt(0), func(w *kueue.Workload) {
			w.Spec.PreemptionGates, w.Spec.Active = []kueue.PreemptionGate{{Name: "theirs"}}, new(true)
		})
		o := &plan.Observed{
			Local: tc.local, Check: "mk", Clusters: []plan.Cluster{up("w1", there)}, Now: t0,
			Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
		}
		step := plan.Decide(config(), o).Steps[0]
		if step.Do != plan.UpdateCopy {
			t.Fatalf("%s: it is not updated", name)
		}
		want := config().NewCopy(tc.local)
		got := step.Workload
		if got.Annotations[plan.SpecHashAnnotation] != want.Annotations[plan.SpecHashAnnotation] {
			t.Errorf("%s: the hash is of another spec", name)
		}
		if len(got.Spec.PreemptionGates) != 1 || got.Spec.PreemptionGates[0].Name != "theirs" || got.Spec.Active == nil {
			t.Errorf("%s: gates %v, active %v", name, got.Spec.PreemptionGates, got.Spec.Active)
		}
		if got.Spec.PodSets[0].Count != 2 || *got.Spec.Priority != 5 || got.Spec.PriorityClassRef.Name != "p" {
			t.Errorf("%s: %+v", name, got.Spec)
		}
	}
}

// TestStaysAdmitted: a new message is no new admission, neither in its time nor in the metrics.
func TestStaysAdmitted(t *testing.T) {
	decide := func(local *kueue.Workload, c plan.Cluster) plan.Step {
		o := &plan.Observed{
			Local: local, Check: "mk", Clusters: []plan.Cluster{c}, Now: metav1.NewTime(t0.Add(time.Hour)),
			Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
		}
		steps := plan.Decide(config(), o).Steps
		return steps[len(steps)-1]
	}
	since := func(w *kueue.Workload) { w.Status.AdmissionChecks[0].LastTransitionTime = t0 }
	copied := copyOf(reserved(), admittedAt(0))
	first := decide(reserved(nominated("w1"), since), up("w1", copied))
	if !first.Admitted || len(first.Events) == 0 || !first.Workload.Status.AdmissionChecks[0].LastTransitionTime.Time.Equal(t0.Add(time.Hour)) {
		t.Errorf("the first time: %+v", first)
	}
	admitted := reserved(ready("w1"), since)
	lifecycle.Machine{}.SyncAdmitted(admitted, t0)
	again := decide(admitted, faulty(up("w1", copied), plan.StatusSync))
	if again.Admitted || len(again.Events) > 0 || !again.Workload.Status.AdmissionChecks[0].LastTransitionTime.Time.Equal(t0.Time) {
		t.Errorf("with another message: %+v", again)
	}
}

// TestBusyIsReachable: the next round waits for a busy cluster, but not for one that cannot take the job.
func TestBusyIsReachable(t *testing.T) {
	cfg := config()
	cfg.Mode = plan.Incremental
	local := reserved(nominated("c"))
	local.Annotations[plan.RoundStartAnnotation] = t0.UTC().Format(time.RFC3339)
	for name, tc := range map[string]struct {
		change func(*plan.Cluster)
		want   string
	}{
		"busy":                     {func(c *plan.Cluster) { c.Busy = true }, "9: after 30s"},
		"slow":                     {func(c *plan.Cluster) { c.Slow = true }, "9: after 30s"},
		"lost":                     {func(*plan.Cluster) {}, "9: annotate, status [c a], create a, after 30s"},
		"slow, and refused before": {func(c *plan.Cluster) { *c = faulty(*c, plan.CreateRejected); c.Slow = true }, "9: annotate, status [c a], create a, status [c a] !RemoteCreateRejected, after 30s"},
	} {
		c := down("c", 0)
		tc.change(&c)
		o := &plan.Observed{Local: local, Check: "mk", Clusters: []plan.Cluster{c, up("a", nil)}, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
		if got := text(o, plan.Decide(cfg, o)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// TestTakenBack: a running copy is evicted with its Workload, with the reason and message (spec: 40 §4.4).
func TestTakenBack(t *testing.T) {
	plain := reserved()
	o := &plan.Observed{
		Local: reserved(ready("w1"), localEvicted), Check: "mk", Now: t0,
		Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true, Active: true}, Clusters: []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0))))},
	}
	for _, s := range plan.Decide(config(), o).Steps {
		if s.Do != plan.UpdateCopyStatus {
			continue
		}
		c := lifecycle.Condition(s.Workload, kueue.WorkloadDeactivationTarget)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "EvictedOnManagerCluster" || c.Message != "Evicted on manager: another one is more urgent" {
			t.Errorf("%+v", c)
		}
		return
	}
	t.Errorf("nothing is told to the worker: %s", text(o, plan.Decide(config(), o)))
}

// TestCheckIsGone: copies of a Workload whose check left the ClusterQueue are removed, unless it may run and is not evicted.
func TestCheckIsGone(t *testing.T) {
	plain := reserved()
	runs := unlisted(withJob(up("w1", copyOf(plain, admittedAt(0)))))
	for name, tc := range map[string]struct {
		change  func(*kueue.Workload)
		cluster plan.Cluster
		want    string
	}{
		"it has its cluster":                       {on("w1"), runs, ":"},
		"it is being evicted":                      {localEvicted, runs, "unchecked: remove w1"},
		"it was evicted, and its job seems to run": {localEvicted, up("w1", nil), "unchecked: quiet"},
		"it was evicted, and a cluster is lost":    {localEvicted, down("w1", 0), "unchecked: after 1m0s"},
		"it has nominations":                       {nominated("w1"), unlisted(up("w1", copyOf(plain))), "unchecked: remove w1"},
		"it is released":                           {func(w *kueue.Workload) { w.Status.Conditions = nil }, runs, "unchecked: remove w1"},
		"a copy of unknown origin":                 {nominated("w1"), unlisted(up("w1", copyOf(plain, func(w *kueue.Workload) { delete(w.Annotations, plan.OriginUIDAnnotation) }))), "unchecked:"},
	} {
		o := &plan.Observed{
			Local: reserved(tc.change, func(w *kueue.Workload) { w.Status.AdmissionChecks = nil }), Clusters: []plan.Cluster{tc.cluster}, Now: t0,
			Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true, Active: true, Manager: kueue.MultiKueueControllerName, Wanted: kueue.MultiKueueControllerName},
		}
		if got := text(o, plan.Decide(config(), o)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
	local := &plan.Observed{
		Local: reserved(localEvicted), Clusters: []plan.Cluster{up("w1", nil)}, Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true, Active: true},
	}
	if got := text(local, plan.Decide(config(), local)); got != "unchecked:" {
		t.Errorf("a job that was never sent: %s", got)
	}
}

// TestUnclearJob: a job that cannot be sent as it is, such as one with too many replicas, is not sent. What runs is followed, evicted and
// removed.
func TestUnclearJob(t *testing.T) {
	wrong := errors.New("too many replicas")
	runs := func(changes ...func(*kueue.Workload)) plan.Cluster {
		return withJob(up("w1", copyOf(reserved(), append(changes, admittedAt(0))...)))
	}
	for name, tc := range map[string]struct {
		local   *kueue.Workload
		cluster plan.Cluster
		want    string
		err     error
	}{
		"it waits":              {reserved(), up("w1", nil), "unclear:", wrong},
		"it is admitted":        {reserved(nominated("w1")), up("w1", copyOf(reserved(), admittedAt(0))), "unclear:", wrong},
		"it runs":               {reserved(ready("w1")), runs(), "6b: mirror w1, after 1m0s", wrong},
		"its cluster is lost":   {reserved(ready("w1")), down("w1", 2*time.Minute), "6a: status Retry lost", nil},
		"it is evicted":         {reserved(localEvicted), runs(), "6b: copy status w1", nil},
		"it is evicted there":   {reserved(ready("w1")), runs(condition(kueue.WorkloadEvicted, 0, "Preempted")), "4: status Retry", nil},
		"it has no quota":       {reserved(func(w *kueue.Workload) { w.Status.Conditions = nil }), runs(), "2: remove w1", nil},
		"it has finished there": {reserved(ready("w1")), runs(condition(kueue.WorkloadFinished, 0, "Succeeded")), "3: mirror w1, status finished Succeeded", nil},
	} {
		o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: []plan.Cluster{tc.cluster}, Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Err: wrong}}
		got := plan.Decide(config(), o)
		if text(o, got) != tc.want || !errors.Is(got.Err, tc.err) {
			t.Errorf("%s: got %s and %v, want %s", name, text(o, got), got.Err, tc.want)
		}
	}
}
