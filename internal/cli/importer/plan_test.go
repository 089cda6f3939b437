package importer

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/importer/mapping"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/decide"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// group is a resource group; each flavor has ten of every resource.
func group(flavors []string, resources ...corev1.ResourceName) kueue.ResourceGroup {
	g := kueue.ResourceGroup{CoveredResources: resources}
	for _, f := range flavors {
		quotas := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(f)}
		for _, r := range resources {
			quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{Name: r, NominalQuota: resource.MustParse("10")})
		}
		g.Flavors = append(g.Flavors, quotas)
	}
	return g
}

func clusterQueue(name string, groups ...kueue.ResourceGroup) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: meta("", name), Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: groups}}
}

func localQueue(namespace, name, clusterQueue string) *kueue.LocalQueue {
	return &kueue.LocalQueue{ObjectMeta: meta(namespace, name), Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}}
}

// running is a pod on a node. requests are pairs of a resource and an amount.
func running(namespace, name string, labels map[string]string, requests ...string) *corev1.Pod {
	list := corev1.ResourceList{}
	for i := 0; i < len(requests); i += 2 {
		list[corev1.ResourceName(requests[i])] = resource.MustParse(requests[i+1])
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid"), Labels: labels},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
			Name: "main", Image: "any", Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
		}}},
	}
}

// smallWorld has two valid queues, and invalid ones.
func smallWorld() *world {
	cpu := func(flavors ...string) kueue.ResourceGroup { return group(flavors, "cpu", "memory") }
	w := &world{
		localQueues: map[types.NamespacedName]*kueue.LocalQueue{}, clusterQueues: map[kueue.ClusterQueueReference]*kueue.ClusterQueue{},
		flavors: job.Flavors{"f1": {ObjectMeta: meta("", "f1")}, "f2": {ObjectMeta: meta("", "f2")}},
		classes: job.Classes{
			Workload: map[string]*kueue.WorkloadPriorityClass{"w": {ObjectMeta: meta("", "w"), Value: 7}},
			Pod:      map[string]*schedulingv1.PriorityClass{"high": {ObjectMeta: meta("", "high"), Value: 100}},
		},
	}
	for name, cq := range map[string]*kueue.ClusterQueue{
		"main": clusterQueue("main", group([]string{"f2"}, "gpu"), cpu("f1", "f2")),
		"pods": clusterQueue("pods", group([]string{"f2", "f1"}, "pods", "cpu")),
		"none": clusterQueue("none"), "gone": clusterQueue("gone", cpu("f1", "f9")),
	} {
		w.clusterQueues[kueue.ClusterQueueReference(name)] = cq
		w.localQueues[types.NamespacedName{Namespace: "ns", Name: name}] = localQueue("ns", name, name)
	}
	w.localQueues[types.NamespacedName{Namespace: "ns", Name: "lost"}] = localQueue("ns", "lost", "nowhere")
	w.clusterQueues["main"].Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{
		{Name: "always"}, {Name: "f1-only", OnFlavors: []kueue.ResourceFlavorReference{"f1"}}, {Name: "f2-only", OnFlavors: []kueue.ResourceFlavorReference{"f2"}},
	}}
	return w
}

func rulesOf(t *testing.T, text string) *mapping.Rules {
	t.Helper()
	r, err := mapping.Parse("rules", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func byLabel(t *testing.T) *mapping.Rules {
	t.Helper()
	r, err := mapping.FromLabel("to", map[string]string{"main": "main", "pods": "pods", "none": "none", "gone": "gone", "lost": "lost", "absent": "absent"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPlanRefuses: the first failing check counts, in the order of the specification. Each pod fails all later checks that it can.
func TestPlanRefuses(t *testing.T) {
	to := func(queue string, more ...string) map[string]string {
		out := map[string]string{"to": queue}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	bad := func(labels map[string]string, requests ...string) *corev1.Pod {
		p := running("ns", "p", labels, append(requests, "tpu", "1", "acc", "1")...)
		p.Spec.PriorityClassName = "absent"
		return p
	}
	grouped := kueue.PodGroupNameLabel
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"1 no rule":              {bad(nil), "it has no label to"},
		"1 no mapping":           {bad(to("other")), "--queuemapping has no LocalQueue for the label to=other"},
		"3 no LocalQueue":        {bad(to("absent", kueue.QueueNameLabel, "x")), "LocalQueue ns/absent does not exist"},
		"4 no ClusterQueue":      {bad(to("lost", kueue.QueueNameLabel, "x")), "ClusterQueue nowhere, which LocalQueue ns/lost names, does not exist"},
		"5 another queue":        {bad(to("none", kueue.QueueNameLabel, "x")), "its label kueue.x-k8s.io/queue-name is x already, and not none"},
		"6 no resource groups":   {bad(to("none", grouped, "g")), "ClusterQueue none has no resource groups"},
		"7 no flavor":            {bad(to("gone", grouped, "g")), "ResourceFlavor f9 of ClusterQueue gone does not exist"},
		"8 no Workload":          {bad(to("main", grouped, "g")), "no Workload can be made of it: it belongs to the pod group g, and only pods on their own can be imported"},
		"9 the first by name":    {bad(to("main")), "no resource group of ClusterQueue main covers acc"},
		"9 not of another group": {bad(to("pods"), "memory", "1"), "no resource group of ClusterQueue pods covers acc"},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			_, err := (&Import{Rules: byLabel(t)}).plan(smallWorld(), tc.pod)
			if err == nil || err.Error() != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if diff := cmp.Diff(before, tc.pod); diff != "" {
				t.Errorf("the pod changed:\n%s", diff)
			}
		})
	}
	last := running("ns", "p", to("main"), "cpu", "1")
	last.Spec.PriorityClassName = "absent"
	if _, err := (&Import{Rules: byLabel(t)}).plan(smallWorld(), last); err == nil || err.Error() != `PriorityClass "absent" does not exist: create it or name another one` {
		t.Errorf("10: %v", err)
	}
	last = running("ns", "p", to("gone"))
	if _, err := (&Import{Rules: byLabel(t)}).plan(smallWorld(), last); err == nil {
		t.Error("7: a flavor has to exist for a pod that requests nothing, too")
	}
}

func TestPlanSkips(t *testing.T) {
	i := &Import{Rules: rulesOf(t, "- skip: true\n")}
	if p, err := i.plan(&world{}, running("ns", "p", nil, "cpu", "1")); err != nil || !p.skip {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAdmission(t *testing.T) {
	type flavors = map[corev1.ResourceName]kueue.ResourceFlavorReference
	overhead := running("ns", "p", map[string]string{"to": "main"}, "cpu", "1")
	overhead.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("1Mi")}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		exclude []string
		flavors flavors
		usage   corev1.ResourceList
		checks  []kueue.AdmissionCheckReference
	}{
		"the first flavor of each group": {
			running("ns", "p", map[string]string{"to": "main"}, "cpu", "2", "gpu", "1"), nil,
			flavors{"cpu": "f1", "gpu": "f2"},
			corev1.ResourceList{"cpu": resource.MustParse("2"), "gpu": resource.MustParse("1")},
			[]kueue.AdmissionCheckReference{"always", "f1-only", "f2-only"},
		},
		"overhead": {
			overhead, nil,
			flavors{"cpu": "f1", "memory": "f1"},
			corev1.ResourceList{"cpu": resource.MustParse("1250m"), "memory": resource.MustParse("1Mi")},
			[]kueue.AdmissionCheckReference{"always", "f1-only"},
		},
		"zero is no request": {
			running("ns", "p", map[string]string{"to": "main"}, "cpu", "0", "tpu", "0"), nil, flavors{}, corev1.ResourceList{}, []kueue.AdmissionCheckReference{"always"},
		},
		"excluded, covered or not": {
			running("ns", "p", map[string]string{"to": "main"}, "cpu", "1", "gpu", "1", "tpu", "1"),
			[]string{"g", "tp"},
			flavors{"cpu": "f1"},
			corev1.ResourceList{"cpu": resource.MustParse("1")},
			[]kueue.AdmissionCheckReference{"always", "f1-only"},
		},
		"pods are counted": {
			running("ns", "p", map[string]string{"to": "pods"}), nil, flavors{"pods": "f2"}, corev1.ResourceList{"pods": resource.MustParse("1")}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := (&Import{Rules: byLabel(t), ExcludePrefixes: tc.exclude}).plan(smallWorld(), tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			want := &kueue.Admission{ClusterQueue: p.clusterQueue, PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1)), Flavors: tc.flavors, ResourceUsage: tc.usage}}}
			if diff := cmp.Diff(want, p.admission); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.checks, p.checks); diff != "" {
				t.Errorf("checks: %s", diff)
			}
		})
	}
}

// TestWorkload: the Workload is the one that a manager makes of such a pending pod, plus the added labels.
func TestWorkload(t *testing.T) {
	for name, tc := range map[string]struct {
		labels, add, want map[string]string
		class             string
		edit              func(*kueue.Workload)
		ref               *kueue.PriorityClassRef
		priority          int32
	}{
		"plain":   {},
		"a class": {class: "high", ref: &kueue.PriorityClassRef{Group: "scheduling.k8s.io", Kind: "PriorityClass", Name: "high"}, priority: 100},
		"a class of Workloads": {
			class: "high", labels: map[string]string{kueue.PriorityClassLabel: "w"},
			ref: &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: "w"}, priority: 7,
		},
		"labels": {labels: map[string]string{"team": "b"}, add: map[string]string{"team": "a", "x": "y"}, want: map[string]string{"team": "a", "x": "y"}},
		"maximum execution time": {
			add:  map[string]string{kueue.MaxExecTimeSecondsLabel: "90"},
			want: map[string]string{kueue.MaxExecTimeSecondsLabel: "90"}, edit: func(w *kueue.Workload) { w.Spec.MaximumExecutionTimeSeconds = new(int32(90)) },
		},
		"a name": {
			add:  map[string]string{kueue.PrebuiltWorkloadLabel: "mine"},
			want: map[string]string{kueue.PrebuiltWorkloadLabel: "mine"}, edit: func(w *kueue.Workload) { w.Name = "mine" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			original := running("ns", "p", map[string]string{"to": "main"}, "cpu", "1")
			original.Spec.PriorityClassName = tc.class
			maps.Copy(original.Labels, tc.labels)
			w := smallWorld()
			p, err := (&Import{Rules: byLabel(t), AddLabels: tc.add}).plan(w, original)
			if err != nil {
				t.Fatal(err)
			}
			waiting := original.DeepCopy()
			waiting.Labels[kueue.QueueNameLabel], waiting.Labels[kueue.ManagedLabel] = "main", "true"
			waiting.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}}
			made := decide.Next(settings, descriptor, &job.Observed{Job: waiting, Verdict: job.Verdict{Mode: job.Managed}, Classes: w.classes})
			if made.Verb != job.CreateWorkload {
				t.Fatalf("the manager would do %d, %v", made.Verb, made.Err)
			}
			want := made.Workload
			want.Spec.PodSets[0].Template.Spec.SchedulingGates = nil
			maps.Copy(want.Labels, tc.want)
			if tc.edit != nil {
				tc.edit(want)
			}
			if diff := cmp.Diff(want, p.workload); diff != "" {
				t.Errorf("-manager +import:\n%s", diff)
			}
			if diff := cmp.Diff(tc.ref, p.workload.Spec.PriorityClassRef); diff != "" || *p.workload.Spec.Priority != tc.priority {
				t.Errorf("priority %d %s", *p.workload.Spec.Priority, diff)
			}
			labels := map[string]string{kueue.QueueNameLabel: "main", kueue.ManagedLabel: "true"}
			maps.Copy(labels, tc.add)
			if diff := cmp.Diff(labels, p.labels); diff != "" {
				t.Errorf("labels of the pod: %s", diff)
			}
		})
	}
}
