package offline

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/state"
)

func TestMain(m *testing.M) {
	os.Exit(embeddedtest.Main(m))
}

const queues = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: f}
spec: {nodeLabels: {pool: f}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  cohortName: c
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: f
      resources: [{name: cpu, nominalQuota: 5}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: c}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: q, namespace: team}
spec: {clusterQueue: q}
---
apiVersion: v1
kind: Node
metadata: {name: node, labels: {pool: f}}
status: {capacity: {cpu: 8}}
---
# Other objects do not matter.
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
`

// TestAsStored: objects of a file are what an API server makes of them.
func TestAsStored(t *testing.T) {
	t.Parallel()
	read, settings, err := Read("f", []byte(queues))
	if err != nil || settings != nil {
		t.Fatal(err, settings)
	}
	c := embeddedtest.Client(t, "../../../config/crd", kueue.AddToScheme)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}); err != nil {
		t.Fatal(err)
	}
	for _, o := range All[client.Object](read) {
		if _, is := o.(*corev1.Node); is {
			continue // its status is written by itself
		}
		copied := o.DeepCopyObject().(client.Object)
		if err := c.Create(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := Live(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []func(*World) any{
		func(w *World) any { q, _ := Get[*kueue.ClusterQueue](w, "q"); return q.Spec },
		func(w *World) any { f, _ := Get[*kueue.ResourceFlavor](w, "f"); return f.Spec },
		func(w *World) any { c, _ := Get[*kueue.Cohort](w, "c"); return c.Spec },
		func(w *World) any { return All[*kueue.LocalQueue](w)[0].Spec },
	} {
		if diff := cmp.Diff(kind(stored), kind(read)); diff != "" {
			t.Errorf("(-stored +read):\n%s", diff)
		}
	}
	events, err := read.Events(false)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range events {
		switch e := e.(type) {
		case state.SetQueue:
			seen["queue "+e.Name] = e.Closed == ""
		case state.SetNode:
			seen["node "+e.Name] = e.Ready && len(e.Allocatable) > 0
		case state.SetNamespace:
			seen["namespace "+e.Name] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"queue q": true, "node node": true, "namespace team": true}, seen); diff != "" {
		t.Error(diff)
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	a, _, err := Read("a", []byte(queues))
	if err != nil {
		t.Fatal(err)
	}
	b, settings, err := Read("b", []byte(strings.ReplaceAll(queues, "nominalQuota: 5", "nominalQuota: 7")+
		"---\napiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	quota := func(w *World) string {
		q, _ := Get[*kueue.ClusterQueue](w, "q")
		return q.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.String()
	}
	if got := quota(a.With(b)); got != "7" || quota(a) != "5" {
		t.Errorf("the quota is %s, and was %s", got, quota(a))
	}
	line := strings.Count(queues, "\n") + 4 // of the field
	if lines := strings.Split(string(settings), "\n"); !strings.HasPrefix(lines[line-1], "manageJobs") {
		t.Errorf("the settings are not where they were: %q", lines)
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"no YAML":       {"a: [\n", "f: the document that begins at line 1 is no YAML"},
		"no object":     {"a: 1\n", "f:1: "},
		"a list":        {"- a\n", "f:1: "},
		"unknown field": {strings.ReplaceAll(queues, "nominalQuota", "nominalQota"), "f:16: ClusterQueue q: spec.resourceGroups[0].flavors[0].resources[0].nominalQota: there is no such field"},
		"bad value":     {strings.ReplaceAll(queues, "cohortName: c", "queueingStrategy: Fast"), `f:10: ClusterQueue q: spec.queueingStrategy: Unsupported value: "Fast"`},
		"a rule":        {strings.ReplaceAll(queues, "cohortName: c", "preemption: {reclaimWithinCohort: Never, borrowWithinCohort: {policy: LowerPriority}}"), "f:10: ClusterQueue q: spec.preemption.borrowWithinCohort: Invalid value: borrowWithinCohort.policy must be Never"},
		"old version":   {strings.ReplaceAll(queues, "v1beta2\nkind: Cohort", "v1beta1\nkind: Cohort"), "f:18: Cohort c: apiVersion: write kueue.x-k8s.io/v1beta2, not kueue.x-k8s.io/v1beta1"},
		"misspelt kind": {strings.ReplaceAll(queues, "kind: LocalQueue", "kind: LocalQeue"), "f:23: LocalQeue q: kind: did you mean LocalQueue?"},
		"no name":       {strings.ReplaceAll(queues, "{name: c}", "{}"), "f:20: Cohort : metadata.name: a name is missing"},
		"core field":    {strings.ReplaceAll(queues, "status: {capacity", "status: {capacty"), "f:"},
		"repeated":      {"apiVersion: v1\nkind: Namespace\nkind: Namespace\n", "f:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Read("f", []byte(tc.text))
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%v\nwant %s", err, tc.want)
			}
		})
	}
}

// TestWholeNumbers: rules in CEL take the numbers of a Workload as whole ones.
func TestWholeNumbers(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata: {name: w}\nspec:\n  priority: 1\n" +
		"  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: c}\n" +
		"  podSets: [{name: main, count: 2, minCount: 1, template: {spec: {containers: []}}}]\n"
	w, _, err := ReadWith("f", []byte(text), "team", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, found := GetIn[*kueue.Workload](w, "team", "w")
	if !found || got.Spec.PodSets[0].Count != 2 || *got.Spec.Priority != 1 {
		t.Errorf("%+v", got)
	}
	w.Stamp(metav1.Unix(7, 0))
	if got.UID != "team/w" || got.CreationTimestamp.Unix() != 7 {
		t.Errorf("%+v", got.ObjectMeta)
	}
}

// TestChanges: the changes between two worlds make one State of the other.
func TestChanges(t *testing.T) {
	t.Parallel()
	before, _, err := Read("f", []byte(queues))
	if err != nil {
		t.Fatal(err)
	}
	after := before.With(&World{})
	if !after.Remove("LocalQueue", "team", "q") || after.Remove("LocalQueue", "team", "q") || !after.Remove("Cohort", "", "c") || !after.Remove("Node", "", "node") {
		t.Fatal("not removed once")
	}
	cq, _ := Get[*kueue.ClusterQueue](after, "q")
	cq = cq.DeepCopy()
	cq.Spec.StopPolicy = kueue.StopPolicyHold
	after.Add(cq)
	b, err := before.Events(false)
	if err != nil {
		t.Fatal(err)
	}
	a, err := after.Events(false)
	if err != nil {
		t.Fatal(err)
	}
	if got := Changes(b, b); len(got) > 0 {
		t.Errorf("from a world to itself: %v", got)
	}
	var got []string
	for _, e := range Changes(b, a) {
		got = append(got, fmt.Sprintf("%T", e))
	}
	want := []string{"state.SetQueue", "state.DeleteNode", "state.DeleteCohort", "state.DeleteNamespace", "state.DeleteLocalQueue"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(queues)
	f.Add("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: n}\n")
	f.Fuzz(func(_ *testing.T, text string) {
		if w, _, err := Read("f", []byte(text)); err == nil {
			_, _ = w.Events(true)
		}
	})
}
