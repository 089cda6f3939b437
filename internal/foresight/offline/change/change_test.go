package change_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/foresight/offline/change"
	"github.com/berth-project/berth/internal/foresight/whatif"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

const cluster = `apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: gpu}
spec: {nodeLabels: {pool: gpu}, topologyName: racks}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {pool: gpu, rack: r1, kubernetes.io/hostname: n1}}
status: {capacity: {cpu: 8, pods: 100}}
---
apiVersion: v1
kind: Node
metadata: {name: other}
status: {capacity: {cpu: 8, pods: 100}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: research}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: gpu, resources: [{name: cpu, nominalQuota: 8}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team-a}
spec: {clusterQueue: research}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lost, namespace: team-a}
spec: {clusterQueue: gone}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: what-if, namespace: team-a}
spec:
  queueName: main
  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}]
`

func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func newBase(t *testing.T, o options.Options) *change.Base {
	t.Helper()
	w, _, err := offline.Read("cluster", []byte(cluster))
	if err != nil {
		t.Fatal(err)
	}
	made, events, err := w.NewState(wire.StateOptions(&o), wire.Requests(&o), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := change.New(change.Base{Settings: wire.ChangeSettings(&o), State: made, World: w, Now: noon(), Begin: workload.Instant(noon().UnixNano())}, events)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func defaults(t *testing.T) options.Options {
	t.Helper()
	o, err := options.Parse("", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestMistakes: each mistake names the part and the field that it is about, and the mistakes of several parts come together.
func TestMistakes(t *testing.T) {
	good := change.Submission{Namespace: "team-a", Queue: "main", Pods: "1", Requests: "cpu=1"}
	submit := func(f func(*change.Submission)) change.Change {
		s := good
		f(&s)
		return change.Change{Submit: &s}
	}
	quota := func(q ...change.Quota) change.Change { return change.Change{Quotas: q} }
	for want, c := range map[string]change.Change{
		`quotas 0 queue: there is no ClusterQueue reserch: did you mean "research"?`:                                  quota(change.Quota{Queue: "reserch", Resource: "cpu", Amount: "+1"}),
		`quotas 0 flavor: ClusterQueue research has no flavor spot: there are gpu`:                                    quota(change.Quota{Queue: "research", Flavor: "spot", Resource: "cpu", Amount: "+1"}),
		`quotas 0 resource: ClusterQueue research has no quota of memory: there are gpu/cpu`:                          quota(change.Quota{Queue: "research", Flavor: "gpu", Resource: "memory", Amount: "+1"}),
		`quotas 1 amount: the amount must begin with +, - or =, as in +16`:                                            quota(change.Quota{Queue: "research", Resource: "cpu", Amount: "+1"}, change.Quota{Queue: "research", Resource: "cpu"}),
		`quotas 0 amount: x is no amount, such as 16 or 64Gi`:                                                         quota(change.Quota{Queue: "research", Resource: "cpu", Amount: "+x"}),
		`quotas 0 amount: the quota is 8: it would be below 0`:                                                        quota(change.Quota{Queue: "research", Resource: "cpu", Amount: "-9"}),
		`drains 0 : there is no such node: did you mean "n1"?`:                                                        {Drains: []string{"n2"}},
		`drains 1 : no flavor with a topology has the node, so its loss moves no quota: change quotas instead`:        {Drains: []string{"n1", "other"}},
		`submit 0 namespace: no namespace team-x has LocalQueues: did you mean "team-a"?`:                             submit(func(s *change.Submission) { s.Namespace = "team-x" }),
		`submit 0 queue: there is no LocalQueue team-a/mian: did you mean "main"?`:                                    submit(func(s *change.Submission) { s.Queue = "mian" }),
		`submit 0 queue: its ClusterQueue gone does not exist`:                                                        submit(func(s *change.Submission) { s.Queue = "lost" }),
		`submit 0 pods: must be a whole number from 1 to 1000000`:                                                     submit(func(s *change.Submission) { s.Pods = "0" }),
		`submit 0 requests: must have at least one resource, as in cpu=2, memory=8Gi`:                                 submit(func(s *change.Submission) { s.Requests = " , " }),
		`submit 0 requests: "cpu" must be a resource and an amount, as in cpu=2, memory=8Gi`:                          submit(func(s *change.Submission) { s.Requests = "cpu" }),
		`submit 0 requests: cpu: "-1" is no amount, such as 2 or 8Gi`:                                                 submit(func(s *change.Submission) { s.Requests = "cpu=-1" }),
		`submit 0 requests: cpu is there twice`:                                                                       submit(func(s *change.Submission) { s.Requests = "cpu=1,cpu=2" }),
		`submit 0 requests: ClusterQueue research does not offer nvidia.com/gpu: it offers cpu`:                       submit(func(s *change.Submission) { s.Requests = "nvidia.com/gpu=1" }),
		`submit 0 priorityClass: there is no WorkloadPriorityClass urgnt: did you mean "urgent"?`:                     submit(func(s *change.Submission) { s.PriorityClass = "urgnt" }),
		`submit 0 priority: give a class or a number, not both`:                                                       submit(func(s *change.Submission) { s.PriorityClass, s.Priority = "urgent", "1" }),
		`submit 0 priority: "high" is not a whole number, such as 100`:                                                submit(func(s *change.Submission) { s.Priority = "high" }),
		`submit 0 runTime: "soon" is no time of a second or more, such as 1h30m`:                                      submit(func(s *change.Submission) { s.RunTime = "soon" }),
		`submit 0 level: a level is required or preferred`:                                                            submit(func(s *change.Submission) { s.Level = "rack" }),
		`submit 0 level: no flavor of ClusterQueue research has a topology with the level rock: did you mean "rack"?`: submit(func(s *change.Submission) { s.Topology, s.Level = "required", "rock" }),
		`submit 0 level: must name a level of a topology: there are rack, kubernetes.io/hostname`:                     submit(func(s *change.Submission) { s.Topology = "required" }),
		`files 0 : a.yaml: has no object that matters to queues`:                                                      {Objects: []change.File{{Name: "a.yaml", Data: []byte("# nothing")}}},
		`submit 0 pods: must be a whole number from 1 to 1000000, quotas 0 queue: there is no ClusterQueue x: there are research, drains 0 : there is no such node: there are n1, other`: {
			Submit: &change.Submission{Namespace: "team-a", Queue: "main", Requests: "cpu=1"}, Quotas: []change.Quota{{Queue: "x"}}, Drains: []string{"a-long-name"},
		},
	} {
		_, err := newBase(t, defaults(t)).Apply(&c)
		some, _ := errors.AsType[change.Mistakes](err)
		var got []string
		for _, m := range some {
			got = append(got, fmt.Sprint(m.Part, " ", m.Index, " ", m.Field, ": ", m))
		}
		if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("want (-), got (+):\n%s %v", diff, err)
		}
	}
}

// TestSubmission: a Workload in the words of a user is the same as one that is written out.
func TestSubmission(t *testing.T) {
	const file = `apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: what-if-2, namespace: team-a, annotations: {berth.dev/expected-run-seconds: "5400"}}
spec:
  queueName: main
  priority: 100
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: urgent}
  podSets: [{name: main, count: 3, topologyRequest: {preferred: rack}, template: {spec: {containers: [{name: main, image: i, resources: {requests: {cpu: 1500m}}}]}}}]
`
	asked := change.Submission{
		Namespace: "team-a", Queue: "main", Pods: "3", Requests: "cpu=1500m,", PriorityClass: "urgent", RunTime: "1h30m", Topology: "preferred", Level: "rack",
	}
	answer := func(c *change.Change) *whatif.Report {
		b := newBase(t, defaults(t))
		events, err := b.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		r, err := whatif.Compare(b.State.Checkpoint(), events, whatif.Options{
			Now: b.Begin, Horizon: workload.Instant(4 * time.Hour), Grace: 1e9, RunTime: b.RunTime(0, false), RunTimeAfter: b.RunTime(0, true),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	short, long := answer(&change.Change{Submit: &asked}), answer(&change.Change{Objects: []change.File{{Name: "w.yaml", Data: []byte(file)}}})
	if diff := cmp.Diff(fmt.Sprintf("%+v", long.Use), fmt.Sprintf("%+v", short.Use)); diff != "" {
		t.Errorf("written out (-), in words (+):\n%s", diff)
	}
	for _, r := range []*whatif.Report{short, long} {
		w := r.Workloads[0]
		if got := fmt.Sprint(len(r.Workloads), " ", w.Name, " ", w.Priority, " ", w.Effect, " ", *w.After.Starts, " ", *w.After.Finishes); got != "1 what-if-2 100 new 0 5400" {
			t.Errorf("the answer is %s", got)
		}
	}
}

// TestElasticRay: a job gets the defaults that the webhook gives it, such as the gates of an elastic RayCluster, before its rules apply.
func TestElasticRay(t *testing.T) {
	o, err := options.Parse("config.yaml", []byte("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [ray.io/raycluster]}\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	const file = `apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r, namespace: team-a, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {kueue.x-k8s.io/elastic-job: "true"}}
spec:
  headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: head, image: i, resources: {requests: {cpu: "1"}}}]}}}
`
	if _, err := newBase(t, o).Apply(&change.Change{Objects: []change.File{{Name: "r.yaml", Data: []byte(file)}}}); err != nil {
		t.Error(err)
	}
}

// TestUndeclared: where the manager ignores resources that a ClusterQueue does not offer, a new Workload may request them.
func TestUndeclared(t *testing.T) {
	o := defaults(t)
	o.Resources.IgnoreUndeclared = true
	asked := change.Change{Submit: &change.Submission{Namespace: "team-a", Queue: "main", Pods: "1", Requests: "cpu=1, example.com/license=1"}}
	if _, err := newBase(t, o).Apply(&asked); err != nil {
		t.Error(err)
	}
}

// TestHugeSubmission: amounts beyond all bounds neither overflow nor start.
func TestHugeSubmission(t *testing.T) {
	for _, requests := range []string{"cpu=1e18", "cpu=9223372036854775807", "cpu=1e40"} {
		b := newBase(t, defaults(t))
		events, err := b.Apply(&change.Change{Submit: &change.Submission{Namespace: "team-a", Queue: "main", Pods: "1000000", Requests: requests}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := whatif.Compare(b.State.Checkpoint(), events, whatif.Options{
			Now: b.Begin, Horizon: workload.Instant(time.Hour), Grace: 1e9, RunTime: b.RunTime(0, false), RunTimeAfter: b.RunTime(0, true),
		})
		if err != nil || len(r.Workloads) != 1 || !r.Workloads[0].After.Waiting {
			t.Errorf("%s: %v %+v", requests, err, r)
		}
	}
}

// TestDocumentThatMultiplies: aliases of aliases are refused before they take memory.
func TestDocumentThatMultiplies(t *testing.T) {
	text := "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata:\n  name: c\n  annotations:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 20 {
		text += fmt.Sprintf("    a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	_, err := newBase(t, defaults(t)).Apply(&change.Change{Objects: []change.File{{Name: "YAML", Data: []byte(text)}}})
	if err == nil || !strings.Contains(err.Error(), "excessive aliasing") {
		t.Errorf("%v", err)
	}
}
