package dispatch_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/dispatch"
	"github.com/berth-project/berth/internal/plan/dispatch/external"
)

// asking and open are copies that ask to preempt since a while ago, or may since.
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

// TestGatesStayClosed is when nobody may preempt although somebody asks, and when the next may.
func TestGatesStayClosed(t *testing.T) {
	cfg := config()
	cfg.Orchestrated, cfg.PreemptionTimeout = true, 5*time.Minute
	all := reserved(nominated("w1", "w2", "w3"))
	opened := func(name string, ago time.Duration) *kueue.Workload {
		return reserved(nominated("w1", "w2"), func(w *kueue.Workload) {
			w.Annotations[dispatch.GateOpenedAnnotation] = name + " " + t0.Add(-ago).UTC().Format(time.RFC3339)
		})
	}
	slow, busy := down("w1", 3*time.Second), down("w1", 0)
	slow.Slow, busy.Busy = true, true
	for name, tc := range map[string]struct {
		local    *kueue.Workload
		clusters []dispatch.Cluster
		want     string
	}{
		"it is evicted":                        {reserved(localEvicted), []dispatch.Cluster{up("w1", asking(time.Minute))}, "8:"},
		"a cluster that is not ours":           {reserved(nominated("w1")), []dispatch.Cluster{up("w1", copyOf(all)), unlisted(up("w9", asking(time.Minute)))}, "9: remove w9, after 30s"},
		"another does not answer for a moment": {opened("w1", time.Hour), []dispatch.Cluster{slow, up("w2", asking(time.Minute))}, "9: after 2s"},
		"another gets its copy just now":       {reserved(nominated("w1", "w2")), []dispatch.Cluster{busy, up("w2", asking(time.Minute))}, "9: after 2s"},
		"another that is not nominated does not answer": {
			reserved(nominated("w2")), []dispatch.Cluster{slow, up("w2", asking(time.Minute))}, "9: annotate, copy status w2, after 30s",
		},
		"another is lost, and may preempt": {
			opened("w1", 4*time.Minute+50*time.Second), []dispatch.Cluster{down("w1", time.Minute), up("w2", asking(time.Minute))}, "9: status [w2], after 10s",
		},
		"another is lost, and could long enough": {
			opened("w1", 5*time.Minute), []dispatch.Cluster{down("w1", time.Minute), up("w2", asking(time.Minute))}, "9: annotate, copy status w2, status [w2], after 30s",
		},
		"another is lost, which was not let do so": {
			opened("w3", time.Minute), []dispatch.Cluster{down("w1", time.Minute), up("w2", asking(time.Minute))}, "9: annotate, copy status w2, status [w2], after 30s",
		},
		"it could not be told": {
			opened("w2", time.Minute), []dispatch.Cluster{up("w1", copyOf(all)), up("w2", asking(time.Minute))}, "9: annotate, copy status w2, after 30s",
		},
		"the later one counts": {
			all, []dispatch.Cluster{up("w1", open(10*time.Second)), up("w2", open(6*time.Minute)), up("w3", asking(time.Minute))}, "9: after 30s",
		},
		"the later one counts, in any order": {
			all, []dispatch.Cluster{up("w1", open(6*time.Minute)), up("w2", open(10*time.Second)), up("w3", asking(time.Minute))}, "9: after 30s",
		},
		"both are over": {
			all, []dispatch.Cluster{up("w1", open(6*time.Minute)), up("w2", open(5*time.Minute)), up("w3", asking(time.Minute))}, "9: annotate, copy status w3, after 30s",
		},
	} {
		o := &dispatch.Observed{Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0, Job: dispatch.JobFacts{Adapter: true, Managed: true}}
		plan := dispatch.Decide(cfg, o)
		if got := text(o, plan); got != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, tc.want)
		}
		for _, s := range plan.Steps {
			if s.Do == dispatch.Annotate {
				if note := s.Workload.Annotations[dispatch.GateOpenedAnnotation]; !strings.HasSuffix(note, " "+t0.Format(time.RFC3339)) {
					t.Errorf("%s: noted as %q", name, note)
				}
			}
			if s.Do != dispatch.UpdateCopyStatus {
				continue
			}
			if g := s.Workload.Status.PreemptionGates; len(g) != 1 || g[0].Position != kueue.PreemptionGateOpen || !g[0].LastTransitionTime.Equal(&t0) {
				t.Errorf("%s: gates %+v", name, g)
			}
		}
	}
}

// TestWhereNot is about clusters that are no candidates, whatever the list of nominations says.
func TestWhereNot(t *testing.T) {
	others := config()
	others.Mode = dispatch.External
	tried := func(w *kueue.Workload) { w.Status.AdmissionChecks[0].RetryCount = new(int32(5)) }
	slow := faulty(down("w2", 0), dispatch.CreateRejected)
	slow.Slow = true
	twoSets := func(a, b int32) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Annotations[kueue.ElasticJobAnnotation] = "true"
			w.Spec.PodSets = []kueue.PodSet{{Name: "a", Count: a}, {Name: "b", Count: b}}
		}
	}
	for name, tc := range map[string]struct {
		cfg      *dispatch.Config
		local    *kueue.Workload
		clusters []dispatch.Cluster
		change   func(*dispatch.Observed)
		want     string
	}{
		"nominated, and not in the list":         {others, reserved(nominated("w9")), []dispatch.Cluster{up("w1", nil), unlisted(up("w9", copyOf(reserved())))}, nil, "9: remove w9, after 30s"},
		"the name is taken everywhere":           {config(), reserved(), []dispatch.Cluster{faulty(up("w1", nil), dispatch.NameConflict)}, nil, "9: status !"},
		"refused by transforms, however often":   {config(), reserved(tried), []dispatch.Cluster{faulty(up("w1", nil), external.Forbidden)}, func(o *dispatch.Observed) { o.Job.RetryRefused = true }, "9: status Retry later !"},
		"it does not answer, and refused before": {config(), reserved(nominated("w1", "w2")), []dispatch.Cluster{up("w1", copyOf(reserved())), slow}, nil, "9: status [w1], status [w1] !, after 30s"},
		"one pod set shrinks, another grows": {
			config(), reserved(twoSets(2, 2), ready("w1")), []dispatch.Cluster{up("w1", copyOf(reserved(twoSets(4, 1)), admittedAt(0)))}, nil, "6a: remove w1, status Retry",
		},
	} {
		o := &dispatch.Observed{Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0, Job: dispatch.JobFacts{Kind: "Job", Adapter: true, Managed: true}}
		if tc.change != nil {
			tc.change(o)
		}
		if got := text(o, dispatch.Decide(tc.cfg, o)); got != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
}
