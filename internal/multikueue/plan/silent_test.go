package plan_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestSilent: for jobs whose status is not mirrored, a condition of the Workload records that a cluster may run their pods. The Workload keeps
// its quota until they have ended there (spec: 40 §4.7).
func TestSilent(t *testing.T) {
	plain := reserved()
	runs := func(w *kueue.Workload) { lifecycle.Machine{}.RunOn(w, "w1", t0) }
	rests := func(w *kueue.Workload) { lifecycle.Machine{}.RunNowhere(w, t0) }
	released := func(w *kueue.Workload) { lifecycle.Machine{}.Release(w, false, t0) }
	held := func(w *kueue.Workload) { lifecycle.Machine{}.Pending(w, kueue.ReasonOnHold, "", t0) }
	over := func(w *kueue.Workload) { lifecycle.Machine{}.Finish(w, kueue.ReasonSucceeded, "", t0) }
	evictedThere := condition(kueue.WorkloadEvicted, 0, "Preempted")
	quotaThere := condition(kueue.WorkloadQuotaReserved, 0, "R")
	for name, tc := range map[string]struct {
		local    *kueue.Workload
		clusters []plan.Cluster
		loud     bool
		want     string
	}{
		"admitted there":                {reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0)))}, false, "6b: sync w1, status Ready on w1 [] runs, after 1m0s"},
		"admitted there, and loud":      {reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(plain, admittedAt(0)))}, true, "6b: sync w1, status Ready on w1 [], after 1m0s"},
		"ready since before":            {reserved(ready("w1")), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0))))}, false, "6b: sync w1, status runs, after 1m0s"},
		"known to run":                  {reserved(ready("w1"), runs), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0))))}, false, "6b: sync w1, after 1m0s"},
		"known to have run once":        {reserved(ready("w1"), runs, rests), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0))))}, false, "6b: sync w1, status runs, after 1m0s"},
		"evicted, and runs there":       {reserved(runs, localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0), quotaThere)))}, false, "6b: copy status w1"},
		"evicted on both, pods end":     {reserved(runs, localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedThere, quotaThere)))}, false, "4:"},
		"a group of several ends":       {reserved(runs, localEvicted), []plan.Cluster{up("w1", copyOf(plain, evictedThere, quotaThere))}, false, "4:"},
		"evicted on both, pods gone":    {reserved(runs, localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedThere)))}, false, "4: status rests"},
		"evicted on both, said so":      {reserved(runs, rests, localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedThere)))}, false, "4:"},
		"evicted, and never ran":        {reserved(localEvicted), []plan.Cluster{up("w1", copyOf(plain))}, false, "8:"},
		"evicted, a copy waits":         {reserved(runs, localEvicted), []plan.Cluster{up("w1", copyOf(plain))}, false, "release: remove w1, after 1s"},
		"evicted, nothing is left":      {reserved(runs, localEvicted), []plan.Cluster{up("w1", nil), up("w2", nil)}, false, "release: status rests"},
		"evicted, the job is left":      {reserved(runs, localEvicted), []plan.Cluster{withJob(up("w1", nil))}, false, "release: remove w1, after 1s"},
		"evicted, its worker is lost":   {reserved(runs, localEvicted), []plan.Cluster{down("w1", 20*time.Second)}, false, "8: after 40s"},
		"evicted, its worker is gone":   {reserved(runs, localEvicted), []plan.Cluster{down("w1", time.Hour)}, false, "release: status rests"},
		"evicted, another one is lost":  {reserved(runs, localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedThere))), down("w2", 0)}, false, "4: after 1m0s"},
		"on hold, and there still":      {reserved(runs, held), []plan.Cluster{withJob(up("w1", copyOf(plain, admittedAt(0))))}, false, "2: remove w1"},
		"on hold, and gone":             {reserved(runs, held), []plan.Cluster{up("w1", nil)}, false, "2: status rests"},
		"on hold, and nobody knows":     {reserved(runs, held), []plan.Cluster{down("w1", 0)}, false, "2: after 1m0s"},
		"on hold, and gone, and said":   {reserved(runs, rests, held), []plan.Cluster{up("w1", nil)}, false, "2:"},
		"given back, and said":          {reserved(runs, localEvicted, rests, released), []plan.Cluster{withJob(up("w1", copyOf(plain, evictedThere)))}, false, "2: remove w1"},
		"finished, which needs no word": {reserved(runs, over), []plan.Cluster{up("w1", nil)}, false, "2:"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &plan.Observed{
				Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: metav1.NewTime(t0.Time),
				Job: plan.JobFacts{Kind: "StatefulSet", Adapter: true, Managed: true, Gated: true, Silent: !tc.loud, Active: lifecycle.RunsRemotely(tc.local)},
			}
			if got := text(o, plan.Decide(config(), o)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestHeld: the mirrored status of a job that is put on hold while it runs is cleared once no worker cluster has it.
func TestHeld(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster plan.Cluster
		job     plan.JobFacts
		want    string
	}{
		"its copy is there":   {withJob(up("w1", nil)), plan.JobFacts{Managed: true}, "2: remove w1"},
		"its copy is removed": {up("w1", nil), plan.JobFacts{Managed: true}, "2: quiet"},
		"its worker is lost":  {down("w1", 0), plan.JobFacts{Managed: true}, "2: after 1m0s"},
		"a pod":               {up("w1", nil), plan.JobFacts{Managed: true, Gated: true}, "2:"},
		"another slice runs":  {up("w1", nil), plan.JobFacts{Managed: true, Others: true}, "2:"},
	} {
		tc.job.Adapter, tc.job.Active = true, true
		local := reserved(func(w *kueue.Workload) { lifecycle.Machine{}.Pending(w, kueue.ReasonOnHold, "", t0) })
		o := &plan.Observed{Local: local, Check: "mk", Clusters: []plan.Cluster{tc.cluster}, Now: t0, Job: tc.job}
		if got := text(o, plan.Decide(config(), o)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// TestPodsReadyOfSilent: PodsReady of jobs whose status is not mirrored comes from the copy, if its worker cluster reports it.
func TestPodsReadyOfSilent(t *testing.T) {
	cfg := config()
	cfg.Lifecycle.WaitForPodsReady = true
	m := cfg.Lifecycle
	is := func(ready ...bool) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			for _, r := range ready {
				m.PodsReady(w, r, t0)
			}
		}
	}
	runs := func(w *kueue.Workload) {
		m.RunOn(w, "w1", t0)
		w.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		m.SyncAdmitted(w, t0)
	}
	for name, tc := range map[string]struct {
		local, there func(*kueue.Workload)
		loud         bool
		want         string
	}{
		"not ready yet":            {is(false), is(false), false, ""},
		"ready":                    {is(false), is(true), false, kueue.ReasonStarted},
		"known to be ready":        {is(true), is(true), false, ""},
		"not ready any more":       {is(true), is(true, false), false, kueue.ReasonWaitForRecovery},
		"ready again":              {is(true, false), is(true), false, kueue.ReasonRecovered},
		"the worker may tell soon": {is(false), is(), false, ""},
		"the worker does not tell": {func(w *kueue.Workload) {
			is(false)(w)
			lifecycle.Condition(w, kueue.WorkloadAdmitted).LastTransitionTime = metav1.NewTime(t0.Add(-10 * time.Second))
		}, is(), false, kueue.ReasonStarted},
		"its status is mirrored": {is(false), is(true), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			local := reserved(ready("w1"), runs, tc.local)
			o := &plan.Observed{
				Local: local, Check: "mk", Clusters: []plan.Cluster{withJob(up("w1", copyOf(reserved(), admittedAt(0), tc.there)))}, Now: t0,
				Job: plan.JobFacts{Kind: "StatefulSet", Adapter: true, Managed: true, Gated: true, Silent: !tc.loud, Active: true},
			}
			got := ""
			for _, s := range plan.Decide(cfg, o).Steps {
				if s.Do == plan.WriteStatus {
					got = lifecycle.Condition(s.Workload, kueue.WorkloadPodsReady).Reason
				}
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
