package plan_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
)

// asking and open are copies that have been blocked on their gate, or had it opened, for a while.
func asking(ago time.Duration) *kueue.Workload {
	gated := func(w *kueue.Workload) {
		w.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: kueue.MultiKueuePreemptionGate}}
	}
	return copyOf(reserved(), gated, condition(kueue.WorkloadBlockedOnPreemptionGates, -ago, kueue.ReasonPreemptionGated))
}

func open(ago time.Duration) *kueue.Workload {
	return copyOf(reserved(), func(w *kueue.Workload) {
		w.Status.PreemptionGates = []kueue.PreemptionGateState{{
			Name: kueue.MultiKueuePreemptionGate, Position: kueue.PreemptionGateOpen, LastTransitionTime: metav1.NewTime(t0.Add(-ago)),
		}}
	})
}

// TestGatesStayClosed: when a gate stays closed although a copy is blocked on it, and when the next gate opens.
func TestGatesStayClosed(t *testing.T) {
	cfg := config()
	cfg.Orchestrated, cfg.PreemptionTimeout = true, 5*time.Minute
	all := reserved(nominated("w1", "w2", "w3"))
	opened := func(name string, ago time.Duration) *kueue.Workload {
		return reserved(nominated("w1", "w2"), func(w *kueue.Workload) {
			w.Annotations[plan.GateOpenedAnnotation] = name + " " + t0.Add(-ago).UTC().Format(time.RFC3339)
		})
	}
	slow, busy, untried := down("w1", 3*time.Second), down("w1", 0), down("w1", 0)
	slow.Slow, busy.Busy, untried.Untried = true, true, true
	for name, tc := range map[string]struct {
		local    *kueue.Workload
		clusters []plan.Cluster
		want     string
	}{
		"it is evicted":                         {reserved(localEvicted), []plan.Cluster{up("w1", asking(time.Minute))}, "8:"},
		"a cluster that is not ours":            {reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(all)), unlisted(up("w9", asking(time.Minute)))}, "9: remove w9, after 30s"},
		"another does not answer for a moment":  {opened("w1", time.Hour), []plan.Cluster{slow, up("w2", asking(time.Minute))}, "9: after 2s"},
		"another gets its copy just now":        {reserved(nominated("w1", "w2")), []plan.Cluster{busy, up("w2", asking(time.Minute))}, "9: after 2s"},
		"a restart, another is not reached yet": {opened("w1", time.Hour), []plan.Cluster{untried, up("w2", asking(time.Minute))}, "9: after 2s"},
		"another that is not nominated does not answer": {
			reserved(nominated("w2")), []plan.Cluster{slow, up("w2", asking(time.Minute))}, "9: annotate, copy status w2, after 30s",
		},
		"another is lost, and may preempt": {
			opened("w1", 4*time.Minute+50*time.Second), []plan.Cluster{down("w1", time.Minute), up("w2", asking(time.Minute))}, "9: status [w2], after 10s",
		},
		"another is lost, and could long enough": {
			opened("w1", 5*time.Minute), []plan.Cluster{down("w1", time.Minute), up("w2", asking(time.Minute))}, "9: annotate, copy status w2, status [w2], after 30s",
		},
		"another is lost, which was not let do so": {
			opened("w3", time.Minute), []plan.Cluster{down("w1", time.Minute), up("w2", asking(time.Minute))}, "9: annotate, copy status w2, status [w2], after 30s",
		},
		"it could not be told": {
			opened("w2", time.Minute), []plan.Cluster{up("w1", copyOf(all)), up("w2", asking(time.Minute))}, "9: annotate, copy status w2, after 30s",
		},
		"the later one counts": {
			all, []plan.Cluster{up("w1", open(10*time.Second)), up("w2", open(6*time.Minute)), up("w3", asking(time.Minute))}, "9: after 30s",
		},
		"the later one counts, in any order": {
			all, []plan.Cluster{up("w1", open(6*time.Minute)), up("w2", open(10*time.Second)), up("w3", asking(time.Minute))}, "9: after 30s",
		},
		"both are over": {
			all, []plan.Cluster{up("w1", open(6*time.Minute)), up("w2", open(5*time.Minute)), up("w3", asking(time.Minute))}, "9: annotate, copy status w3, after 30s",
		},
	} {
		o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
		decided := plan.Decide(cfg, o)
		if got := text(o, decided); got != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, tc.want)
		}
		for _, s := range decided.Steps {
			if s.Do == plan.Annotate {
				if note := s.Workload.Annotations[plan.GateOpenedAnnotation]; !strings.HasSuffix(note, " "+t0.Format(time.RFC3339)) {
					t.Errorf("%s: noted as %q", name, note)
				}
			}
			if s.Do != plan.UpdateCopyStatus {
				continue
			}
			if g := s.Workload.Status.PreemptionGates; len(g) != 1 || g[0].Position != kueue.PreemptionGateOpen || !g[0].LastTransitionTime.Equal(&t0) {
				t.Errorf("%s: gates %+v", name, g)
			}
		}
	}
}

// TestWhereNot: clusters that are no candidates, even if they are nominated.
func TestWhereNot(t *testing.T) {
	others := config()
	others.Mode = plan.External
	tried := func(w *kueue.Workload) { w.Status.AdmissionChecks[0].RetryCount = new(int32(5)) }
	slow := faulty(down("w2", 0), plan.CreateRejected)
	slow.Slow = true
	twoSets := func(a, b int32) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Annotations[kueue.ElasticJobAnnotation] = "true"
			w.Spec.PodSets = []kueue.PodSet{{Name: "a", Count: a}, {Name: "b", Count: b}}
		}
	}
	for name, tc := range map[string]struct {
		cfg      *plan.Config
		local    *kueue.Workload
		clusters []plan.Cluster
		change   func(*plan.Observed)
		want     string
	}{
		"nominated, and not in the list":         {others, reserved(nominated("w9")), []plan.Cluster{up("w1", nil), unlisted(up("w9", copyOf(reserved())))}, nil, "9: remove w9, after 30s"},
		"the name is taken everywhere":           {config(), reserved(), []plan.Cluster{faulty(up("w1", nil), plan.NameConflict)}, nil, "9: status !RemoteNameConflict"},
		"refused by transforms, however often":   {config(), reserved(tried), []plan.Cluster{faulty(up("w1", nil), external.Forbidden)}, func(o *plan.Observed) { o.Job.RetryRefused = true }, "9: status Retry later !"},
		"it does not answer, and refused before": {config(), reserved(nominated("w1", "w2")), []plan.Cluster{up("w1", copyOf(reserved())), slow}, nil, "9: status [w1], status [w1] !RemoteCreateRejected, after 30s"},
		"one pod set shrinks, another grows": {
			config(), reserved(twoSets(2, 2), ready("w1")), []plan.Cluster{up("w1", copyOf(reserved(twoSets(4, 1)), admittedAt(0)))}, nil, "6a: remove w1, status Retry",
		},
	} {
		o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true}}
		if tc.change != nil {
			tc.change(o)
		}
		if got := text(o, plan.Decide(tc.cfg, o)); got != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
}

// TestCopyWithoutGate: a copy that was created again on the chosen cluster needs no gate there. When its Workload is dispatched anew it is
// replaced, unless it has a quota reservation already. Other copies stay, also on a worker cluster that does not store gates.
func TestCopyWithoutGate(t *testing.T) {
	again := func(w *kueue.Workload) { w.Annotations[plan.WithoutGateAnnotation] = "true" }
	for name, tc := range map[string]struct {
		copied       *kueue.Workload
		orchestrated bool
		want         string
	}{
		"it waits":                 {copyOf(reserved(), again), true, "9: remove w1, after 2s"},
		"no gates are used":        {copyOf(reserved(), again), false, "9: after 30s"},
		"it has quota":             {copyOf(reserved(), again, condition(kueue.WorkloadQuotaReserved, 0, "")), true, "9: after 30s"},
		"the gate was not stored":  {copyOf(reserved()), true, "9: after 30s"},
		"it is blocked by a gate":  {asking(time.Minute), true, "9: annotate, copy status w1, after 30s"},
		"its gate has been opened": {open(time.Minute), true, "9: after 30s"},
	} {
		cfg := config()
		cfg.Orchestrated, cfg.PreemptionTimeout = tc.orchestrated, 5*time.Minute
		o := &plan.Observed{
			Local: reserved(nominated("w1")), Check: "mk", Clusters: []plan.Cluster{up("w1", tc.copied)}, Now: t0,
			Job: plan.JobFacts{Adapter: true, Managed: true},
		}
		if got := text(o, plan.Decide(cfg, o)); got != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
}
