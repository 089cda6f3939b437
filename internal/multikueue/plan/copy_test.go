package plan_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestOwns: the owner of an object on a worker cluster, by the label of a present or previous origin and the UID of the manager.
func TestOwns(t *testing.T) {
	cfg := config()
	cfg.PreviousOrigins = []string{"old"}
	for name, tc := range map[string]struct {
		origin, stamp string
		want          bool
	}{
		"ours":                {"hub", "hub-uid", true},
		"without a stamp":     {"hub", "", true},
		"another's stamp":     {"hub", "other", false},
		"of before":           {"old", "hub-uid", true},
		"another's of before": {"old", "other", false},
		"of nobody":           {"", "", false},
		"of another":          {"east", "hub-uid", false},
	} {
		o := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{kueue.MultiKueueOriginLabel: tc.origin}, Annotations: map[string]string{plan.ManagerUIDAnnotation: tc.stamp},
		}}
		if got := cfg.Owns(o); got != tc.want || cfg.Made(o) != got {
			t.Errorf("%s: got %v, made %v", name, got, cfg.Made(o))
		}
		o.OwnerReferences = []metav1.OwnerReference{{Kind: "RayService", Name: "s", Controller: new(true)}}
		if cfg.Made(o) {
			t.Errorf("%s: what a copy made counts as a copy", name)
		}
	}
}

// TestRetention: only a finished job stays on its worker cluster for a while (spec: 40 §4.7).
func TestRetention(t *testing.T) {
	local := reserved(ready("w1"))
	lifecycle.Machine{}.Finish(local, kueue.ReasonSucceeded, "done", t0)
	ended := up("w1", copyOf(reserved(), func(w *kueue.Workload) { lifecycle.Machine{}.Finish(w, kueue.ReasonSucceeded, "done", t0) }))
	ended.HasJob = true
	stale := ended
	stale.Name, stale.HasJob = "w3", false
	cfg := config()
	cfg.Retention = time.Minute
	for name, tc := range map[string]struct {
		after time.Duration
		want  string
	}{
		"at once": {0, "2: remove w2, remove w3, after 1m0s"},
		"later":   {50 * time.Second, "2: remove w2, remove w3, after 10s"},
		"over":    {time.Minute, "2: remove w1, remove w2, remove w3"},
	} {
		o := &plan.Observed{
			Local: local, Check: "mk", Clusters: []plan.Cluster{ended, up("w2", copyOf(reserved())), stale}, Now: metav1.NewTime(t0.Add(tc.after)),
			Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true, Manager: kueue.MultiKueueControllerName},
		}
		if got := text(o, plan.Decide(cfg, o)); got != tc.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, tc.want)
		}
	}
}
