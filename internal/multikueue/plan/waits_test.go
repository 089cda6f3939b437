package plan_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestBusyWithAJob: a job is not created while another cluster has it, which is busy with a step, or late with an answer, and not observed.
func TestBusyWithAJob(t *testing.T) {
	w := reserved(nominated("w1", "w2"))
	busy := plan.Cluster{Name: "w1", Listed: true, Busy: true, LostSince: t0.Time}
	slow := plan.Cluster{Name: "w1", Listed: true, Slow: true, LostSince: t0.Time}
	for name, tc := range map[string]struct {
		cluster plan.Cluster
		job     bool
		want    string
	}{
		"busy, with a job":    {busy, true, "6b: after 1s"},
		"busy, without a job": {busy, false, "6b: sync w2, status Ready on w2 [], after 1m0s"},
		"slow, with a job":    {slow, true, "6b: after 1s"},
		"slow, without a job": {slow, false, "6b: sync w2, status Ready on w2 [], after 1m0s"},
	} {
		c := tc.cluster
		c.HasJob = tc.job
		o := &plan.Observed{
			Local: w, Check: "mk", Clusters: []plan.Cluster{c, up("w2", copyOf(w, admittedAt(0)))}, Now: t0,
			Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
		}
		if got := text(o, plan.Decide(config(), o)); got != tc.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, tc.want)
		}
	}
}

// TestUntried: a manager that has just started keeps nominations, and the message of the check, until it knows whether it can connect.
func TestUntried(t *testing.T) {
	w := reserved(nominated("w1", "w2"))
	for name, tc := range map[string]struct {
		cluster plan.Cluster
		want    string
	}{
		"not tried": {plan.Cluster{Name: "w2", Listed: true, Untried: true, LostSince: t0.Time}, "9:"},
		"lost":      {plan.Cluster{Name: "w2", Listed: true, LostSince: t0.Time}, "9: status [w1], after 30s"},
		"unlisted":  {plan.Cluster{Name: "w2", Untried: true, LostSince: t0.Time}, "9: status [w1], after 30s"},
	} {
		o := &plan.Observed{
			Local: w, Check: "mk", Clusters: []plan.Cluster{tc.cluster, up("w1", copyOf(w))}, Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
		}
		if got := text(o, plan.Decide(config(), o)); got != tc.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, tc.want)
		}
	}
}

// TestNoEndForTheLost: a timeout of a hundred years, or of the longest time that can be configured, is not over at once.
func TestNoEndForTheLost(t *testing.T) {
	restarted := plan.Cluster{Name: "w1", Listed: true, LostSince: t0.Time, FirstLost: t0.Add(-time.Hour)}
	for name, tc := range map[string]struct {
		timeout time.Duration
		local   *kueue.Workload
		cluster plan.Cluster
		want    string
	}{
		"a century, and restarts":       {876_000 * time.Hour, reserved(ready("w1")), restarted, "6a: after 876000h0m0s"},
		"the longest, and its job goes": {math.MaxInt64, reserved(ready("w1"), again("w1", time.Minute, 6), removing), withJob(up("w1", nil)), "6a: remove w1, status, after 1s"},
	} {
		cfg := config()
		cfg.WorkerLostTimeout = tc.timeout
		o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: []plan.Cluster{tc.cluster}, Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true}}
		if got := text(o, plan.Decide(cfg, o)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// TestNoTimeForTheLost: with a timeout of 0 for lost clusters (spec: 40 §3) no Workload is requeued for it.
func TestNoTimeForTheLost(t *testing.T) {
	cfg := config()
	cfg.WorkerLostTimeout = 0
	finished := reserved(func(w *kueue.Workload) { lifecycle.Machine{}.Finish(w, kueue.ReasonSucceeded, "", t0) })
	for name, tc := range map[string]struct {
		local   *kueue.Workload
		cluster plan.Cluster
		want    string
	}{
		"it runs":                           {reserved(ready("w1")), withJob(up("w1", copyOf(reserved(), admittedAt(0)))), "6b: sync w1"},
		"it has finished, and one is down":  {finished, down("w1", time.Second), "2:"},
		"it ran where it cannot be reached": {reserved(ready("w1")), down("w1", time.Second), "6a: status Retry lost"},
	} {
		o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: []plan.Cluster{tc.cluster}, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
		if got := text(o, plan.Decide(cfg, o)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// TestWhatItWaitsFor: the check reports a reason for every cluster, by the manager's clock: clocks of worker clusters may be hours off.
func TestWhatItWaitsFor(t *testing.T) {
	local := longAgo(reserved(nominated("w1", "w2", "w3", "w4", "w7")))
	ahead := func(c *kueue.Workload) { c.CreationTimestamp = metav1.NewTime(t0.Add(3 * time.Hour)) }
	refused := copyOf(local, ahead, func(w *kueue.Workload) {
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", Message: "no room"}}
	})
	lacks := up("w6", nil)
	lacks.Lacks = true
	gone := copyOf(local)
	gone.DeletionTimestamp = &t0
	o := &plan.Observed{
		Local: local, Check: "mk", Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
		Clusters: []plan.Cluster{
			up("w1", refused), up("w2", copyOf(local, ahead)), up("w3", copyOf(local, condition(kueue.WorkloadQuotaReserved, 0, "x"))), up("w4", nil),
			down("w5", time.Minute), lacks, up("w7", gone), unlisted(down("w8", 0)),
		},
	}
	cfg := config()
	cfg.Mode = plan.External
	decided := plan.Decide(cfg, o)
	last := decided.Steps[len(decided.Steps)-1]
	const want = "w1: no room; w2: it is not evaluated there yet; w3: it has quota, and waits for its admission checks; " +
		"w4: its copy has not been seen yet; w5: the cluster cannot be reached; w6: jobs of kind Job cannot be sent there; " +
		"w7: what is there of an earlier run is being deleted"
	if got := last.Workload.Status.AdmissionChecks[0].Message; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestReport: the message of a waiting check is written at most once in 30 seconds, but a new fault at once, and with an event of its code.
func TestReport(t *testing.T) {
	busy := plan.Cluster{Name: "w1", Listed: true, Connected: true, Busy: true}
	fault := func(name, code, text string) plan.Cluster {
		return plan.Cluster{Name: name, Listed: true, Connected: true, Fault: &plan.Fault{Code: code, Text: text, Skip: true}}
	}
	failed, taken := fault("w2", plan.CreateFailed, "no; never"), fault("w3", plan.NameConflict, "taken")
	too := fault("w3", plan.CreateFailed, "no")
	const waits, failure = "w1: its copy is being made or removed", "[RemoteCreateFailed] w2: no; never"
	for name, tc := range map[string]struct {
		message  string
		ago      time.Duration
		clusters []plan.Cluster
		want     string
		warnings []plan.Warning
	}{
		"a reason":                   {"", time.Minute, []plan.Cluster{busy}, waits, nil},
		"a reason, too soon":         {"", time.Second, []plan.Cluster{busy}, "", nil},
		"a fault after a reason":     {waits, time.Second, []plan.Cluster{busy, failed}, waits + "; " + failure, []plan.Warning{{Code: plan.CreateFailed, Text: failure}}},
		"another reason, too soon":   {failure, time.Second, []plan.Cluster{busy, failed}, "", nil},
		"another reason":             {failure, time.Minute, []plan.Cluster{busy, failed}, waits + "; " + failure, nil},
		"another fault":              {failure, time.Second, []plan.Cluster{failed, taken}, failure + "; [RemoteNameConflict] w3: taken", []plan.Warning{{Code: plan.NameConflict, Text: "[RemoteNameConflict] w3: taken"}}},
		"one fault less, too soon":   {failure + "; [RemoteNameConflict] w3: taken", time.Second, []plan.Cluster{failed}, "", nil},
		"a fault of an earlier turn": {"Reset to Pending after eviction, previously Retry: " + failure, time.Second, []plan.Cluster{failed}, failure, []plan.Warning{{Code: plan.CreateFailed, Text: failure}}},
		"the same on two clusters":   {"", time.Second, []plan.Cluster{failed, too}, failure + "; [RemoteCreateFailed] w3: no", []plan.Warning{{Code: plan.CreateFailed, Text: failure + "; [RemoteCreateFailed] w3: no"}}},
	} {
		t.Run(name, func(t *testing.T) {
			local := longAgo(reserved(nominated("w1"), func(w *kueue.Workload) { w.Status.AdmissionChecks[0].Message = tc.message }))
			cfg := config()
			cfg.Mode = plan.External
			got, warnings := "", []plan.Warning(nil)
			for _, s := range plan.Decide(cfg, &plan.Observed{
				Local: local, Check: "mk", Clusters: tc.clusters, Now: t0, ReportedAt: t0.Add(-tc.ago),
				Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
			}).Steps {
				if s.Reported {
					got, warnings = s.Workload.Status.AdmissionChecks[0].Message, s.Warnings
				}
				if len(s.Events) > 0 {
					t.Errorf("not limited: %+v", s.Events)
				}
			}
			if got != tc.want || !slices.Equal(warnings, tc.warnings) {
				t.Errorf("got  %q, %v\nwant %q, %v", got, warnings, tc.want, tc.warnings)
			}
		})
	}
}

// TestNoCopyWithoutKind: no copy is created on a cluster that does not serve the kind, whatever nominates it.
func TestNoCopyWithoutKind(t *testing.T) {
	lacks := up("w1", nil)
	lacks.Lacks = true
	external := config()
	external.Mode = plan.External
	for name, tc := range map[string]struct {
		cfg   *plan.Config
		local *kueue.Workload
	}{
		"nominated by another controller": {external, reserved(nominated("w1", "w2"))},
		"the cluster of an earlier slice": {config(), reserved(func(w *kueue.Workload) {
			w.Annotations[kueue.ElasticJobAnnotation], w.Status.ClusterName = "true", "w1"
		})},
	} {
		o := &plan.Observed{Local: tc.local, Check: "mk", Clusters: []plan.Cluster{lacks, up("w3", nil)}, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
		if got := text(o, plan.Decide(tc.cfg, o)); got != "9: after 30s" {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestNominateAtOnce: the result equals the nominations of rule 9, or is empty.
func TestNominateAtOnce(t *testing.T) {
	slow := down("w3", time.Second)
	slow.Slow = true
	lacks := up("w3", nil)
	lacks.Lacks = true
	cases := map[string]struct {
		mode     plan.Mode
		local    *kueue.Workload
		clusters []plan.Cluster
		want     string
	}{
		"all that can be used":         {plan.AllAtOnce, reserved(), []plan.Cluster{up("w2", nil), up("w1", nil), lacks, unlisted(up("w0", nil))}, "w1 w2"},
		"not one that does not answer": {plan.AllAtOnce, reserved(), []plan.Cluster{up("w1", nil), slow}, "w1"},
		"not one where it failed":      {plan.AllAtOnce, reserved(), []plan.Cluster{up("w1", nil), faulty(up("w2", nil), plan.NameConflict)}, "w1"},
		"something is left":            {plan.AllAtOnce, reserved(), []plan.Cluster{up("w1", nil), withJob(up("w2", nil))}, ""},
		"a copy is left":               {plan.AllAtOnce, reserved(), []plan.Cluster{up("w1", copyOf(reserved())), up("w2", nil)}, ""},
		"it was somewhere":             {plan.AllAtOnce, reserved(on("w1")), []plan.Cluster{up("w1", nil)}, ""},
		"its job is somewhere":         {plan.AllAtOnce, reserved(func(w *kueue.Workload) { w.Annotations[kueue.ComponentWorkloadIndexAnnotation] = "1" }), []plan.Cluster{up("w1", nil)}, ""},
		"in rounds":                    {plan.Incremental, reserved(), []plan.Cluster{lacks, up("w2", nil), up("w1", nil)}, "w2"},
		"by somebody else":             {plan.External, reserved(), []plan.Cluster{up("w1", nil)}, ""},
		"an elastic job":               {plan.AllAtOnce, reserved(func(w *kueue.Workload) { w.Annotations[kueue.ElasticJobAnnotation] = "true" }), []plan.Cluster{up("w1", nil)}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.Mode = tc.mode
			got := cfg.NominateAtOnce(tc.local, tc.clusters)
			if strings.Join(got, " ") != tc.want {
				t.Fatalf("got %v, want %q", got, tc.want)
			}
			if len(got) == 0 {
				return
			}
			// Rule 9 has nothing to add.
			o := &plan.Observed{Local: reserved(nominated(got...)), Check: "mk", Clusters: tc.clusters, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
			for _, s := range plan.Decide(cfg, o).Steps {
				if s.Do == plan.WriteStatus && !slices.Equal(s.Workload.Status.NominatedClusterNames, got) {
					t.Errorf("rule 9 nominates %v", s.Workload.Status.NominatedClusterNames)
				}
			}
		})
	}
}

// TestSlowClusterStaysNominated: a late answer does not cause two writes and a new copy.
func TestSlowClusterStaysNominated(t *testing.T) {
	local := reserved(nominated("w1", "w2"))
	c := down("w2", time.Second)
	for _, slow := range []bool{true, false} {
		c.Slow = slow
		o := &plan.Observed{Local: local, Check: "mk", Clusters: []plan.Cluster{up("w1", copyOf(local)), c}, Now: t0, Job: plan.JobFacts{Adapter: true, Managed: true}}
		want := map[bool]string{true: "9: after 30s", false: "9: status [w1], after 30s"}[slow]
		if got := text(o, plan.Decide(config(), o)); got != want {
			t.Errorf("slow %v: got %s, want %s", slow, got, want)
		}
	}
}
