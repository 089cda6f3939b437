package visibility

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// preempting is a world in which red/high waits for red/own, blue/low and green/low to stop.
func preempting(t *testing.T, r rules) *Server {
	t.Helper()
	s := world(r)
	s.Workload = func(namespace, name string) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name)}, Spec: kueue.WorkloadSpec{QueueName: "q2"}}
	}
	s.Model() // from now on traces are kept
	_, err := s.Read(t.Context(), func(st *state.State) any {
		st.Apply(state.SetFlavor(flavor.Flavor{Name: "f"}))
		st.Apply(state.SetQueue(state.Queue{
			Name: "cq2", Namespaces: []workload.Term{{}}, Preemption: preempt.Policy{Within: preempt.LowerPriority},
			Groups: []state.Group{{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{
				{Resource: "cpu", Nominal: 3, Borrow: quota.NoLimit, Lend: quota.NoLimit},
			}}}}},
		}))
		now := workload.Instant(1e9)
		add := func(namespace, name string, priority, amount int64) {
			now++
			st.Apply(state.SetNamespace{Name: namespace, Labels: nil})
			st.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: namespace, Name: "q2", Queue: "cq2"}))
			st.Apply(state.SetWorkload(state.Workload{
				UID: namespace + "-" + name, Namespace: namespace, Name: name, Version: 1, LocalQueue: "q2", Priority: priority, Created: now, Since: now,
				Queueable: true, PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: resource.Amount(amount)}}}},
			}))
			st.Step(now, 100)
		}
		add("red", "own", 0, 1)
		add("blue", "low", 0, 1)
		add("green", "low", 0, 1)
		add("red", "high", 1, 3)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Read = func(context.Context, func(*state.State) any) (any, error) {
		t.Error("a decision that is published was evaluated again")
		return nil, context.Canceled
	}
	return s
}

// Victims in other tenants' namespaces are named only to callers that may list Workloads there.
func TestVictimsOfOtherTenants(t *testing.T) {
	const path = "/apis/visibility.berth.dev/v1alpha1/namespaces/red/workloads/high/explanation"
	explain := "get visibility.berth.dev/workloads/explanation red/high"
	for name, tc := range map[string]struct {
		rules rules
		names []string
		says  string
	}{
		"only one's own":         {rules{explain}, []string{"/", "/", "red/own"}, "red/own, and 2 of other namespaces"},
		"one namespace more":     {rules{explain, "list kueue.x-k8s.io/workloads/ blue/"}, []string{"/", "blue/low", "red/own"}, "blue/low, red/own, and 1 of other namespaces"},
		"all namespaces":         {rules{explain, "list kueue.x-k8s.io/workloads/ /"}, []string{"blue/low", "green/low", "red/own"}, "blue/low, green/low, red/own"},
		"no right but to get it": {rules{explain, "get kueue.x-k8s.io/workloads/ blue/low"}, []string{"/", "/", "red/own"}, "red/own, and 2 of other namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			got := get(preempting(t, tc.rules), path)
			var e berthv1alpha1.Explanation
			if err := json.Unmarshal(got.Body.Bytes(), &e); err != nil || got.Code != http.StatusOK {
				t.Fatalf("%d %s: %v", got.Code, got.Body, err)
			}
			var names []string
			for _, v := range e.Preempts {
				names = append(names, v.Namespace+"/"+v.Name)
				if v.ClusterQueue != "cq2" || v.Reason == "" {
					t.Errorf("of a victim is said %+v", v)
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, tc.names) || !strings.HasSuffix(e.Message, "to stop: "+tc.says) {
				t.Errorf("names %v in %q, want %v and %q", names, e.Message, tc.names, tc.says)
			}
			for _, other := range []string{"blue", "green"} {
				if !slices.Contains(tc.names, other+"/low") && strings.Contains(got.Body.String(), other) {
					t.Errorf("%s is named to somebody who may not list there:\n%s", other, got.Body)
				}
			}
		})
	}
}

// TestVictimBeforeItsMinimum: the run time and the minimum of a victim that has just started are shown together with its name only.
func TestVictimBeforeItsMinimum(t *testing.T) {
	attempt := &trace.Attempt{Workload: "red/high", Verdict: trace.Preempts, Victims: []trace.Victim{
		{Key: "red/fresh", Queue: "cq", Reason: "InClusterQueue", Ran: 40 * time.Second, MinRun: 10 * time.Minute},
		{Key: "blue/fresh", Queue: "cq", Reason: "InClusterQueue", Ran: time.Second, MinRun: time.Minute},
		{Key: "red/old", Queue: "cq", Reason: "InClusterQueue"},
	}}
	var got berthv1alpha1.Explanation
	describe(&got, attempt.NamingOwn())
	want := []berthv1alpha1.Victim{
		{Namespace: "red", Name: "fresh", ClusterQueue: "cq", Reason: "InClusterQueue", RanSeconds: new(int64(40)), MinRunSeconds: new(int64(600))},
		{ClusterQueue: "cq", Reason: "InClusterQueue"},
		{Namespace: "red", Name: "old", ClusterQueue: "cq", Reason: "InClusterQueue"},
	}
	if diff := cmp.Diff(want, got.Preempts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if says := "red/fresh in cq: InClusterQueue, although it started 40s ago of the 10m that it asks for\n"; !strings.Contains(got.Text, says) || strings.Contains(got.Text, "1s ago") {
		t.Errorf("not %q in, or too much:\n%s", says, got.Text)
	}
}
