package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// again records the n-th recreation of the copy on a cluster, that long ago.
func again(cluster string, ago time.Duration, n int) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		w.Annotations[plan.RecreatedAnnotation] = fmt.Sprintf("%s %s %d", cluster, t0.Add(-ago).UTC().Format(time.RFC3339), n)
	}
}

// removing adds that the rest is being removed since then.
func removing(w *kueue.Workload) { w.Annotations[plan.RecreatedAnnotation] += " removing" }

// TestDeletedThere: the copy or the job of a Workload is deleted on the connected cluster that had admitted it.
func TestDeletedThere(t *testing.T) {
	const made = "annotate, create w1 !, status, after 2s"
	plain := reserved()
	elastic := func(w *kueue.Workload) { w.Annotations[kueue.ElasticJobAnnotation] = "true" }
	ended := condition(kueue.WorkloadFinished, 0, kueue.ReasonOwnerNotFound)
	terminating := func(w *kueue.Workload) { w.DeletionTimestamp = &t0 }
	over := func(success bool) plan.Cluster {
		c := withJob(up("w1", nil))
		c.JobIsOver = &plan.JobEnd{Success: success, Message: "m"}
		return c
	}
	for name, tc := range map[string]struct {
		local  *kueue.Workload
		there  plan.Cluster
		change func(*plan.Observed)
		want   string
	}{
		"the copy":                             {reserved(ready("w1")), up("w1", nil), nil, "6a: " + made},
		"the copy, and its job is still there": {reserved(ready("w1")), withJob(up("w1", nil)), nil, "6a: annotate, remove w1, status, after 1s"},
		"the copy, and its job succeeded":      {reserved(ready("w1")), over(true), nil, "6a: mirror w1, status finished Succeeded"},
		"the copy, and its job failed":         {reserved(ready("w1")), over(false), nil, "6a: mirror w1, status finished Failed"},
		"the copy, and the job here is over":   {reserved(ready("w1")), up("w1", nil), func(o *plan.Observed) { o.Job.Over = true }, "6a:"},
		"the copy, which has a finalizer":      {reserved(ready("w1")), withJob(up("w1", copyOf(plain, admittedAt(0), terminating))), nil, "6a: annotate, remove w1, status, after 1s"},
		"the job, which ended the copy":        {reserved(ready("w1")), up("w1", copyOf(plain, admittedAt(0), ended)), nil, "3: remove w1, after 1s"},
		"the job of a copy that was evicted":   {reserved(ready("w1")), up("w1", copyOf(plain, condition(kueue.WorkloadEvicted, 0, "Preempted"), ended)), nil, "3: status Retry !"},
		"the job of a copy that waits":         {reserved(nominated("w1")), up("w1", copyOf(plain, ended)), nil, "9: remove w1"},
		"the job, which is elastic":            {reserved(elastic, ready("w1")), up("w1", copyOf(plain, admittedAt(0), ended)), nil, "3: remove w1, after 1s"},
		"a slice that another replaces":        {reserved(elastic, ready("w1")), up("w1", nil), func(o *plan.Observed) { o.Job.ReplacedBy = true }, "6a: status Retry"},
		"of a Workload that is evicted":        {reserved(localEvicted), up("w1", nil), active, "release: quiet"},
		"by this manager, for another spec": {
			reserved(ready("w1")), up("w1", copyOf(plain, admittedAt(0), func(w *kueue.Workload) {
				w.Spec.PodSets[0].Count, w.Annotations[plan.SpecHashAnnotation] = 7, "old"
			})), nil,
			"6a: remove w1, status Retry",
		},
		"and its job is being removed":     {reserved(ready("w1"), again("w1", 30*time.Second, 0), removing), withJob(up("w1", nil)), nil, "6a: remove w1, status, after 1s"},
		"and its job does not go":          {reserved(ready("w1"), again("w1", time.Minute, 0), removing), withJob(up("w1", nil)), nil, "6a: status Retry !"},
		"and its job stays, long after":    {reserved(ready("w1"), again("w1", 20*time.Minute, 6), removing), withJob(up("w1", nil)), nil, "6a: annotate, remove w1, status, after 1s"},
		"and its job stays, after a row":   {reserved(ready("w1"), again("w1", 11*time.Minute, 6)), withJob(up("w1", nil)), nil, "6a: annotate, remove w1, status, after 1s"},
		"and its job has gone":             {reserved(ready("w1"), again("w1", 3*time.Second, 0), removing), up("w1", nil), nil, "6a: " + made},
		"twice, and its job has gone":      {reserved(ready("w1"), again("w1", 3*time.Second, 1), removing), up("w1", nil), nil, "6a: status, after 7s"},
		"and it waits there again":         {reserved(ready("w1"), again("w1", 20*time.Second, 1)), up("w1", copyOf(plain)), nil, "6a: status, after 40s"},
		"and it waits there for too long":  {reserved(ready("w1"), again("w1", time.Minute, 1)), up("w1", copyOf(plain)), nil, "6a: status Retry !"},
		"and it is admitted there again":   {reserved(ready("w1"), again("w1", time.Hour, 1)), up("w1", copyOf(plain, admittedAt(0))), nil, "6b: sync w1, after 1m0s"},
		"and its worker is lost meanwhile": {reserved(ready("w1"), again("w1", 0, 1)), down("w1", 30*time.Second), nil, "6a: after 30s"},
		"twice":                            {reserved(ready("w1"), again("w1", 4*time.Second, 1)), up("w1", nil), nil, "6a: status, after 6s"},
		"twice, a while ago":               {reserved(ready("w1"), again("w1", 10*time.Second, 1)), up("w1", nil), nil, "6a: " + made},
		"five times":                       {reserved(ready("w1"), again("w1", 100*time.Second, 5)), up("w1", nil), nil, "6a: status, after 1m0s"},
		"again and again":                  {reserved(ready("w1"), again("w1", 9*time.Minute, 6)), up("w1", nil), nil, "6a: status Retry !"},
		"again and again, but long ago":    {reserved(ready("w1"), again("w1", 11*time.Minute, 6)), up("w1", nil), nil, "6a: " + made},
		"often, but on another worker":     {reserved(ready("w1"), again("w2", time.Second, 6)), up("w1", nil), nil, "6a: " + made},
		"what is noted cannot be read":     {reserved(ready("w1"), func(w *kueue.Workload) { w.Annotations[plan.RecreatedAnnotation] = "w1 never 1" }), up("w1", nil), nil, "6a: " + made},
	} {
		t.Run(name, func(t *testing.T) {
			o := &plan.Observed{
				Local: tc.local, Check: "mk", Clusters: []plan.Cluster{tc.there, up("w2", nil)}, Now: t0,
				Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
			}
			if tc.change != nil {
				tc.change(o)
			}
			got := text(o, plan.Decide(config(), o))
			if tc.want == "9: remove w1" { // the other steps dispatch it again
				got, _, _ = strings.Cut(got, ",")
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestTextsOfLoss: the check has the same text for all clusters, and the event has the details.
func TestTextsOfLoss(t *testing.T) {
	rest := func(w *kueue.Workload) { w.Annotations[plan.RecreatedAnnotation] += " removing" }
	const lost, gone = `Admitting remote lost`, `Admitting remote no longer exists`
	for _, tc := range []struct {
		local       *kueue.Workload
		there       plan.Cluster
		check, note string
	}{
		{reserved(ready("w1")), down("w1", time.Hour), lost, `: "w1"`},
		{reserved(ready("w1")), up("w1", copyOf(reserved())), gone, `: "w1"`},
		{reserved(ready("w1"), again("w1", time.Minute, 1)), up("w1", copyOf(reserved())), gone, `: its copy was deleted on "w1", and not admitted there again within 1m0s`},
		{reserved(ready("w1"), again("w1", 9*time.Minute, 6)), up("w1", nil), gone, `: its copy was deleted on "w1" again and again`},
		{reserved(ready("w1"), again("w1", time.Minute, 0), rest), withJob(up("w1", nil)), gone, `: its copy was deleted on "w1", and its job is not gone after 1m0s`},
	} {
		o := &plan.Observed{
			Local: tc.local, Check: "mk", Clusters: []plan.Cluster{tc.there}, Now: t0, Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
		}
		steps := plan.Decide(config(), o).Steps
		last := steps[len(steps)-1]
		if got, want := last.Workload.Status.AdmissionChecks[0].Message, tc.check+`, Previously: "Ready"`; got != want {
			t.Errorf("the check: %s, want %s", got, want)
		}
		if len(last.Events) != 1 || last.Events[0].Note != tc.check+tc.note {
			t.Errorf("events %+v, want %s", last.Events, tc.check+tc.note)
		}
	}
}

// TestCreatedAgain: the recreated copy, with its message and its record.
func TestCreatedAgain(t *testing.T) {
	cfg := config()
	cfg.Orchestrated = true // its cluster is chosen already: it needs no gate
	o := &plan.Observed{
		Local: reserved(ready("w1"), again("w1", 30*time.Second, 2)), Check: "mk", Clusters: []plan.Cluster{up("w1", nil)}, Now: t0,
		Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true},
	}
	decided := plan.Decide(cfg, o)
	if len(decided.Steps) != 3 {
		t.Fatalf("%+v", decided.Steps)
	}
	noted, copied, told := decided.Steps[0], decided.Steps[1], decided.Steps[2]
	if got, want := noted.Workload.Annotations[plan.RecreatedAnnotation], "w1 "+t0.UTC().Format(time.RFC3339)+" 3"; got != want || !noted.Blocks {
		t.Errorf("noted %q, want %q", got, want)
	}
	if _, has := copied.Workload.Annotations[plan.RecreatedAnnotation]; has || len(copied.Workload.Spec.PreemptionGates) > 0 ||
		copied.Workload.Annotations[plan.WithoutGateAnnotation] == "" ||
		!strings.HasPrefix(copied.Events[0].Note, `The copy of the workload was deleted on "w1", and is created there again`) {
		t.Errorf("the copy: %+v, events %v", copied.Workload, copied.Events)
	}
	next := told.Workload
	if c := next.Status.AdmissionChecks[0]; c.State != kueue.CheckStateReady || next.Status.ClusterName != "w1" || !lifecycle.IsReserved(next) ||
		!strings.HasPrefix(c.Message, `The workload was admitted on "w1". [RemoteCopyDeleted] `) {
		t.Errorf("the Workload: %+v", next.Status)
	}
	o.Local, o.Clusters[0].Copy, o.ReportedAt = next, copyOf(reserved()), t0.Time
	o.Now = metav1.NewTime(t0.Add(10 * time.Second))
	if got := text(o, plan.Decide(cfg, o)); got != "6a: after 20s" { // the message is written every half minute
		t.Error(got)
	}
	o.Now = metav1.NewTime(t0.Add(30 * time.Second))
	decided = plan.Decide(cfg, o)
	if got := text(o, decided); got != "6a: status, after 30s" || !strings.Contains(decided.Steps[0].Workload.Status.AdmissionChecks[0].Message, "waits there again: it is not evaluated there yet") {
		t.Errorf("%s %+v", got, decided.Steps)
	}
}
