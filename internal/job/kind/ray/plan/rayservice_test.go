package plan_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// set is a pod set of pods that ask for so many processors.
func set(name string, count int32, cpu string) kueue.PodSet {
	return kueue.PodSet{Name: kueue.PodSetReference(name), Count: count, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "ray", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}}}}}
}

// groups are a head and so many workers that ask for so many processors.
func groups(workers int32, cpu string) []kueue.PodSet {
	return []kueue.PodSet{set("head", 1, "1"), set("workers", workers, cpu)}
}

func cluster(name string, rank plan.Rank, sets []kueue.PodSet) plan.Cluster {
	return plan.Cluster{Name: name, UID: types.UID(name), Rank: rank, Current: true, Groups: sets}
}

func held(c plan.Cluster) plan.Cluster {
	c.Held = true
	return c
}

func outdated(c plan.Cluster) plan.Cluster {
	c.Current = false
	return c
}

// pods are pods of a group of a cluster: gated, or ungated for a pod set.
func pods(of, group string, n int, stamp string) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s-%s%d", of, group, stamp, i), Labels: map[string]string{"ray.io/group": group},
			OwnerReferences: []metav1.OwnerReference{{Kind: "RayCluster", Name: of, UID: types.UID(of), Controller: new(true)}},
		}}
		p.UID = types.UID(p.Name)
		switch stamp {
		case "":
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{podset.ElasticGate}
		case "open":
		default:
			p.Labels[kueue.PodSetLabel] = stamp
		}
		out = append(out, p)
	}
	return out
}

// admitted is a slice of so many pods of each set.
func admitted(sets ...kueue.PodSet) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s", Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"}}}
	a := &kueue.Admission{ClusterQueue: "q"}
	for _, s := range sets {
		w.Spec.PodSets = append(w.Spec.PodSets, s)
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{Name: s.Name, Count: new(s.Count)})
	}
	lifecycle.Machine{}.Reserve(w, a, nil, metav1.Now())
	return w
}

func show(sets []kueue.PodSet) string {
	var out []string
	for _, s := range sets {
		out = append(out, fmt.Sprintf("%s:%d@%s", s.Name, s.Count, s.Template.Spec.Containers[0].Resources.Requests.Cpu()))
	}
	return strings.Join(out, " ")
}

func named(sets []kueue.PodSet, name string) kueue.PodSet {
	return sets[slices.IndexFunc(sets, func(p kueue.PodSet) bool { return strings.HasPrefix(string(p.Name), name) })]
}

// suffix is the name that the workers of another shape get.
func suffix(group, cpu string) string {
	s := set(group, 1, cpu)
	return group + "-" + plan.Shape(&s.Template)
}

func all(lists ...[]*corev1.Pod) []*corev1.Pod { return slices.Concat(lists...) }

func TestDemand(t *testing.T) {
	active, pending := cluster("a", plan.Active, groups(2, "1")), cluster("p", plan.Pending, groups(2, "1"))
	big := cluster("p", plan.Pending, groups(2, "2"))
	gone := cluster("o", plan.Dangling, groups(2, "1"))
	deleting := cluster("o", plan.Deleting, groups(2, "1"))
	two := suffix("workers", "2")
	one := admitted(groups(2, "1")...)
	running := func(c string) []*corev1.Pod {
		return all(pods(c, "headgroup", 1, "head"), pods(c, "workers", 2, "workers"))
	}
	tests := map[string]struct {
		s    plan.Service
		want string
		held string
	}{
		"no cluster":                   {s: plan.Service{}, want: "head:1@1 workers:2@1"},
		"the first one":                {s: plan.Service{Clusters: []plan.Cluster{held(pending)}, Slices: []*kueue.Workload{one}}, want: "head:1@1 workers:2@1", held: "p"},
		"active":                       {s: plan.Service{Clusters: []plan.Cluster{active}}, want: "head:1@1 workers:2@1"},
		"active scaled by itself":      {s: plan.Service{Clusters: []plan.Cluster{cluster("a", plan.Active, groups(5, "1"))}}, want: "head:1@1 workers:5@1"},
		"an upgrade of the same shape": {s: plan.Service{Clusters: []plan.Cluster{active, held(pending)}, Slices: []*kueue.Workload{one}}, want: "head:2@1 workers:4@1", held: "p"},
		"an upgrade of another shape":  {s: plan.Service{Clusters: []plan.Cluster{active, held(big)}, Slices: []*kueue.Workload{one}}, want: "head:2@1 workers:2@1 " + two + ":2@2", held: "p"},
		"a stale one counts nothing":   {s: plan.Service{Clusters: []plan.Cluster{active, held(outdated(big))}, Slices: []*kueue.Workload{one}}, want: "head:1@1 workers:2@1"},
		"one that has run counts in full": {
			s:    plan.Service{Clusters: []plan.Cluster{active, outdated(pending)}, Pods: running("p")[:2], Slices: []*kueue.Workload{one}},
			want: "head:2@1 workers:4@1",
		},
		"what serves grows first, and alone": {
			s:    plan.Service{Clusters: []plan.Cluster{cluster("a", plan.Active, groups(4, "1")), held(big)}, Slices: []*kueue.Workload{one}},
			want: "head:1@1 workers:4@1",
		},
		"a dangling one counts what runs": {s: plan.Service{Clusters: []plan.Cluster{active, gone}, Pods: running("o")}, want: "head:2@1 workers:4@1"},
		"and nothing else":                {s: plan.Service{Clusters: []plan.Cluster{active, gone}, Pods: pods("o", "workers", 2, "")}, want: "head:1@1 workers:2@1"},
		"pods that outlived their cluster": {
			s:    plan.Service{Clusters: []plan.Cluster{active}, Pods: running("x"), Slices: []*kueue.Workload{one}},
			want: "head:2@1 workers:4@1",
		},
		"nothing shrinks while a cluster comes to its end": {
			s:    plan.Service{Clusters: []plan.Cluster{active, deleting}, Pods: running("o")[:1], Slices: []*kueue.Workload{admitted(set("head", 2, "1"), set("workers", 4, "1"))}},
			want: "head:2@1 workers:4@1",
		},
		"but when it has": {
			s:    plan.Service{Clusters: []plan.Cluster{active, deleting}, Slices: []*kueue.Workload{admitted(set("head", 2, "1"), set("workers", 4, "1"))}},
			want: "head:1@1 workers:2@1",
		},
		"more pods than it wants still run": {s: plan.Service{Clusters: []plan.Cluster{cluster("a", plan.Active, groups(1, "1"))}, Pods: running("a")}, want: "head:1@1 workers:2@1"},
		"no cluster is of use": {
			s:    plan.Service{Clusters: []plan.Cluster{gone}, Pods: running("o")[:1], Slices: []*kueue.Workload{one}},
			want: "head:2@1 workers:2@1",
		},
		"held pods, not clusters": {
			s:    plan.Service{HoldPods: true, Clusters: []plan.Cluster{active, pending}, Pods: all(running("a"), pods("p", "workers", 2, "")), Slices: []*kueue.Workload{one}},
			want: "head:2@1 workers:4@1", held: "p",
		},
	}
	for name, tc := range tests {
		tc.s.Spec = groups(2, "1")
		d := tc.s.Demand()
		if got := show(d.PodSets); got != tc.want || strings.Join(d.Held, " ") != tc.held || d.Crowded != nil {
			t.Errorf("%s: %s, want %s; held %v (%v)", name, got, tc.want, d.Held, d.Crowded)
		}
	}
}

// TestNamesStay: a shape keeps its name for as long as a slice has it, whatever becomes active.
func TestNamesStay(t *testing.T) {
	s := plan.Service{Spec: groups(2, "2"), Clusters: []plan.Cluster{
		cluster("a", plan.Active, groups(2, "1")), held(cluster("b", plan.Pending, groups(2, "2"))),
	}, Slices: []*kueue.Workload{admitted(groups(2, "1")...)}}
	two, three := suffix("workers", "2"), suffix("workers", "3")
	both := s.Demand().PodSets
	s.Slices = []*kueue.Workload{admitted(both...)}
	s.Clusters = []plan.Cluster{cluster("b", plan.Active, groups(2, "2"))}
	if got, want := show(s.Demand().PodSets), "head:1@1 "+two+":2@2"; got != want {
		t.Errorf("after the switch: %s, want %s", got, want)
	}
	s.Clusters = append(s.Clusters, held(cluster("c", plan.Pending, groups(2, "3"))))
	third := s.Demand().PodSets
	if got, want := show(third), "head:2@1 "+two+":2@2 "+three+":2@3"; got != want {
		t.Errorf("the next upgrade: %s, want %s", got, want)
	}
	s.Slices = []*kueue.Workload{admitted(third...)}
	s.Clusters = []plan.Cluster{cluster("c", plan.Active, groups(2, "3")), held(cluster("d", plan.Pending, groups(2, "1")))}
	if got, want := show(s.Demand().PodSets), "head:2@1 "+three+":2@3 workers:2@1"; got != want {
		t.Errorf("and one after that: %s, want %s", got, want)
	}
	s.Clusters, s.Slices = nil, nil
	if got := show(s.Demand().PodSets); got != "head:1@1 workers:2@2" {
		t.Errorf("after a stop: %s", got)
	}
}

func TestShape(t *testing.T) {
	base := set("x", 1, "1").Template
	base.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
	tests := map[string]struct {
		change func(*corev1.PodTemplateSpec)
		same   bool
	}{
		"another image":   {func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "y" }, true},
		"another command": {func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Command = []string{"y"} }, true},
		"a label":         {func(p *corev1.PodTemplateSpec) { p.Labels = map[string]string{"a": "b"} }, true},
		"a gate":          {func(p *corev1.PodTemplateSpec) { podset.Gate(p) }, true},
		"the same, otherwise": {func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1000m")
		}, true},
		"more": {func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1001m")
		}, false},
		"a limit": {func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"gpu": resource.MustParse("1")}
		}, false},
		"another container": {func(p *corev1.PodTemplateSpec) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{}) }, false},
		"an init container": {func(p *corev1.PodTemplateSpec) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{})
		}, false},
		"a node selector": {func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, false},
		"a toleration":    {func(p *corev1.PodTemplateSpec) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a"}} }, false},
		"affinity": {func(p *corev1.PodTemplateSpec) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		}, false},
		"a runtime class": {func(p *corev1.PodTemplateSpec) { p.Spec.RuntimeClassName = new("r") }, false},
		"overhead":        {func(p *corev1.PodTemplateSpec) { p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("1")} }, false},
		"claims":          {func(p *corev1.PodTemplateSpec) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a"}} }, false},
		"spread": {func(p *corev1.PodTemplateSpec) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1}}
		}, false},
		"a priority":           {func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = "p" }, false},
		"resources of the pod": {func(p *corev1.PodTemplateSpec) { p.Spec.Resources = &corev1.ResourceRequirements{} }, false},
		"a topology": {func(p *corev1.PodTemplateSpec) {
			p.Annotations = map[string]string{kueue.PodSetRequiredTopologyAnnotation: "r"}
		}, false},
		"some other annotation":  {func(p *corev1.PodTemplateSpec) { p.Annotations = map[string]string{"a": "r"} }, true},
		"an empty node selector": {func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector = map[string]string{} }, true},
	}
	for name, tc := range tests {
		changed := base.DeepCopy()
		tc.change(changed)
		if got := plan.Shape(changed) == plan.Shape(&base); got != tc.same {
			t.Errorf("%s: the same shape: %v", name, got)
		}
	}
}

func TestReleases(t *testing.T) {
	active, pending := cluster("a", plan.Active, groups(2, "1")), held(cluster("p", plan.Pending, groups(2, "1")))
	both := []*kueue.Workload{admitted(set("head", 2, "1"), set("workers", 4, "1"))}
	evicted := admitted(set("head", 2, "1"), set("workers", 4, "1"))
	lifecycle.Machine{}.Evict(evicted, "Preempted", "", "", metav1.Now())
	leftover := pods("gone", "workers", 1, "workers")
	tests := map[string]struct {
		s    plan.Service
		want string
	}{
		"covered":                               {plan.Service{Clusters: []plan.Cluster{active, pending}, Slices: both}, "p"},
		"not covered":                           {plan.Service{Clusters: []plan.Cluster{active, pending}, Slices: []*kueue.Workload{admitted(set("head", 2, "1"), set("workers", 3, "1"))}}, ""},
		"another shape":                         {plan.Service{Clusters: []plan.Cluster{active, held(cluster("p", plan.Pending, groups(2, "2")))}, Slices: both}, ""},
		"nothing is admitted":                   {plan.Service{Clusters: []plan.Cluster{pending}}, ""},
		"evicted":                               {plan.Service{Clusters: []plan.Cluster{active, pending}, Slices: []*kueue.Workload{evicted}}, ""},
		"the service is stopped":                {plan.Service{Suspended: true, Clusters: []plan.Cluster{active, pending}, Slices: both}, ""},
		"the first one":                         {plan.Service{Clusters: []plan.Cluster{pending}, Slices: []*kueue.Workload{admitted(groups(2, "1")...)}}, "p"},
		"the active one first":                  {plan.Service{Clusters: []plan.Cluster{held(active), pending}, Slices: both}, "a"},
		"what is left of others counts":         {plan.Service{Clusters: []plan.Cluster{active, pending}, Pods: leftover, Slices: both}, ""},
		"a dangling one stays held":             {plan.Service{Clusters: []plan.Cluster{held(cluster("d", plan.Dangling, groups(2, "1")))}, Slices: both}, ""},
		"where pods are held, and not clusters": {plan.Service{HoldPods: true, Clusters: []plan.Cluster{active, pending}}, "p"},
		"and a dangling one stays held":         {plan.Service{HoldPods: true, Clusters: []plan.Cluster{held(cluster("d", plan.Dangling, groups(2, "1")))}}, ""},
		"stale": {
			plan.Service{Clusters: []plan.Cluster{active, outdated(pending)}, Slices: []*kueue.Workload{admitted(groups(2, "1")...)}}, "p, stale",
		},
	}
	for name, tc := range tests {
		tc.s.Spec = groups(2, "1")
		got := ""
		if c, stale := tc.s.Releases(); c != nil {
			if got = c.Name; stale {
				got += ", stale"
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q is let go, want %q", name, got, tc.want)
		}
		if may := tc.s.MayRelease("p"); !tc.s.HoldPods && may != (strings.HasPrefix(tc.want, "p") || name == "the active one first") {
			t.Errorf("%s: p may be let go: %v", name, may)
		}
	}
}

func TestFree(t *testing.T) {
	active, pending := cluster("a", plan.Active, groups(2, "1")), cluster("p", plan.Pending, groups(2, "1"))
	one, both := admitted(groups(2, "1")...), admitted(set("head", 2, "1"), set("workers", 4, "1"))
	gatedA, gatedP := pods("a", "workers", 3, ""), pods("p", "workers", 2, "")
	leaving := pods("a", "workers", 1, "")
	leaving[0].DeletionTimestamp = new(metav1.Now())
	ending := pods("a", "workers", 1, "workers")
	ending[0].DeletionTimestamp = new(metav1.Now())
	over := pods("a", "workers", 1, "workers")
	over[0].Status.Phase = corev1.PodFailed
	tests := map[string]struct {
		s    plan.Service
		want string
	}{
		"as many as there is room":                          {plan.Service{Clusters: []plan.Cluster{active}, Pods: gatedA, Slices: []*kueue.Workload{one}}, "a-workers-0 a-workers-1"},
		"less those that come to their end":                 {plan.Service{Clusters: []plan.Cluster{active}, Pods: all(gatedA, ending), Slices: []*kueue.Workload{one}}, "a-workers-0"},
		"less those that run":                               {plan.Service{Clusters: []plan.Cluster{active}, Pods: all(gatedA, pods("a", "workers", 1, "workers")), Slices: []*kueue.Workload{one}}, "a-workers-0"},
		"but not those that are over":                       {plan.Service{Clusters: []plan.Cluster{active}, Pods: all(gatedA, over), Slices: []*kueue.Workload{one}}, "a-workers-0 a-workers-1"},
		"none that is being deleted":                        {plan.Service{Clusters: []plan.Cluster{active}, Pods: leaving, Slices: []*kueue.Workload{one}}, ""},
		"a pending one that is covered":                     {plan.Service{Clusters: []plan.Cluster{active, pending}, Pods: all(gatedA[:2], gatedP), Slices: []*kueue.Workload{both}}, "a-workers-0 a-workers-1 p-workers-0 p-workers-1"},
		"one that is not comes up never":                    {plan.Service{Clusters: []plan.Cluster{active, pending}, Pods: gatedP, Slices: []*kueue.Workload{one}}, ""},
		"a stale one never":                                 {plan.Service{Clusters: []plan.Cluster{active, outdated(pending)}, Pods: gatedP, Slices: []*kueue.Workload{both}}, ""},
		"a dangling one never":                              {plan.Service{Clusters: []plan.Cluster{active, cluster("p", plan.Dangling, groups(2, "1"))}, Pods: gatedP, Slices: []*kueue.Workload{both}}, ""},
		"a stopped one never":                               {plan.Service{Suspended: true, Clusters: []plan.Cluster{active}, Pods: gatedA, Slices: []*kueue.Workload{one}}, ""},
		"an active one, though it is not what is asked for": {plan.Service{Clusters: []plan.Cluster{outdated(active)}, Pods: gatedA[:2], Slices: []*kueue.Workload{one}}, "a-workers-0 a-workers-1"},
		"of another shape":                                  {plan.Service{Clusters: []plan.Cluster{cluster("a", plan.Active, groups(2, "2"))}, Pods: gatedA, Slices: []*kueue.Workload{one}}, ""},
	}
	for name, tc := range tests {
		tc.s.Spec = groups(2, "1")
		infos := []job.PodSetInfo{{Name: "head"}, {Name: "workers", NodeSelector: map[string]string{"pool": "x"}}}
		var got []string
		for _, p := range tc.s.Free(infos) {
			got = append(got, p.Name)
			if p.Spec.NodeSelector["pool"] != "x" || podset.HasGate(p.Spec.SchedulingGates) {
				t.Errorf("%s: %s is let go as %v", name, p.Name, p.Spec)
			}
		}
		if diff := gocmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

// TestHasRoom: the check of the webhook before a pod is ungated.
func TestHasRoom(t *testing.T) {
	active, pending := cluster("a", plan.Active, groups(2, "1")), cluster("p", plan.Pending, groups(2, "1"))
	one, both := admitted(groups(2, "1")...), admitted(set("head", 2, "1"), set("workers", 4, "1"))
	ofA, ofP := pods("a", "workers", 2, ""), pods("p", "workers", 2, "")
	ran := pods("a", "workers", 2, "workers")
	tests := map[string]struct {
		s    plan.Service
		of   []*corev1.Pod
		want bool
	}{
		"there is":                     {plan.Service{Clusters: []plan.Cluster{active}, Pods: ofA, Slices: []*kueue.Workload{one}}, ofA, true},
		"others have it":               {plan.Service{Clusters: []plan.Cluster{active}, Pods: all(ofA, ran), Slices: []*kueue.Workload{one}}, ofA, false},
		"nothing is admitted":          {plan.Service{Clusters: []plan.Cluster{active}, Pods: ofA}, ofA, false},
		"it is stopped":                {plan.Service{Suspended: true, Clusters: []plan.Cluster{active}, Pods: ofA, Slices: []*kueue.Workload{one}}, ofA, false},
		"the cluster is covered":       {plan.Service{Clusters: []plan.Cluster{active, pending}, Pods: ofP, Slices: []*kueue.Workload{both}}, ofP, true},
		"the cluster is not covered":   {plan.Service{Clusters: []plan.Cluster{active, pending}, Pods: ofP, Slices: []*kueue.Workload{one}}, ofP, false},
		"the cluster is stale":         {plan.Service{Clusters: []plan.Cluster{active, outdated(pending)}, Pods: ofP, Slices: []*kueue.Workload{both}}, ofP, false},
		"nobody uses the cluster":      {plan.Service{Clusters: []plan.Cluster{cluster("a", plan.Dangling, groups(2, "1"))}, Pods: ofA, Slices: []*kueue.Workload{one}}, ofA, false},
		"the cluster is none of these": {plan.Service{Clusters: []plan.Cluster{active}, Pods: ofA, Slices: []*kueue.Workload{both}}, ofP, false},
	}
	for name, tc := range tests {
		tc.s.Spec = groups(2, "1")
		if got := tc.s.HasRoom(tc.of[0]); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestExcess(t *testing.T) {
	active := cluster("a", plan.Active, groups(2, "1"))
	tests := map[string]struct {
		s    plan.Service
		want string
	}{
		"as admitted":              {plan.Service{Pods: pods("a", "workers", 2, "open"), Slices: []*kueue.Workload{admitted(groups(2, "1")...)}}, ""},
		"one too many":             {plan.Service{Pods: pods("a", "workers", 3, "open"), Slices: []*kueue.Workload{admitted(groups(2, "1")...)}}, "a-workers-open2"},
		"those that were let stay": {plan.Service{Pods: all(pods("a", "workers", 2, "workers"), pods("a", "workers", 1, "open")), Slices: []*kueue.Workload{admitted(groups(2, "1")...)}}, "a-workers-open0"},
		"and only they are spared": {plan.Service{Pods: pods("a", "workers", 3, "workers"), Slices: []*kueue.Workload{admitted(groups(2, "1")...)}}, ""},
		"it is stopped":            {plan.Service{Suspended: true, Pods: pods("a", "workers", 1, "open"), Slices: []*kueue.Workload{admitted(groups(2, "1")...)}}, "a-workers-open0"},
		"nothing is admitted":      {plan.Service{Pods: pods("a", "workers", 1, "open")}, "a-workers-open0"},
		"gated":                    {plan.Service{Pods: pods("a", "workers", 3, "")}, ""},
	}
	for name, tc := range tests {
		tc.s.Spec, tc.s.Clusters = groups(2, "1"), []plan.Cluster{active}
		var got []string
		for _, p := range tc.s.Excess() {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
	}
}

// TestBreach: the first pod of a waiting cluster that loses its gate is noted, the second has the cluster suspended until it is admitted.
func TestBreach(t *testing.T) {
	active, serves := cluster("a", plan.Active, groups(2, "1")), all(pods("a", "headgroup", 1, "head"), pods("a", "workers", 2, "workers"))
	small, large := admitted(groups(2, "1")...), admitted(set("head", 2, "1"), set("workers", 4, "1"))
	waits := func(breach string) plan.Cluster {
		c := cluster("p", plan.Pending, groups(2, "1"))
		c.Breach = breach
		return c
	}
	opened := pods("p", "workers", 2, "open")
	tests := map[string]struct {
		c    plan.Cluster
		pods []*corev1.Pod
		w    *kueue.Workload
		want string
	}{
		"all gated":            {waits(""), pods("p", "workers", 2, ""), small, ""},
		"one gate removed":     {waits(""), opened[:1], small, "p p-workers-open0"},
		"it is deleted next":   {waits("p-workers-open0"), opened[:1], small, ""},
		"its successor waits":  {waits("p-workers-open0"), pods("p", "workers", 2, ""), small, ""},
		"another gate removed": {waits("p-workers-open0"), opened[1:], small, "p suspended"},
		"suspended":            {held(waits(plan.Reheld)), nil, small, ""},
		"opened again":         {waits(plan.Reheld), nil, small, "p suspended"},
		"and admitted":         {waits(plan.Reheld), nil, large, ""},
		"there is room":        {waits(""), opened, large, ""},
		"room for some":        {waits(""), opened[:1], admitted(groups(3, "1")...), "p p-workers-open0"},
		"not wanted any more":  {outdated(waits(plan.Reheld)), nil, small, ""},
		"it serves":            {cluster("p", plan.Active, groups(2, "1")), opened, small, ""},
	}
	for name, tc := range tests {
		for _, holdPods := range []bool{false, true} {
			s := plan.Service{
				Spec: groups(2, "1"), Clusters: []plan.Cluster{active, tc.c}, Pods: all(serves, tc.pods), Slices: []*kueue.Workload{tc.w}, HoldPods: holdPods,
			}
			got := ""
			if c, note := s.Breach(); c != nil {
				got = c.Name + " " + note
			}
			if got != tc.want {
				t.Errorf("%s, pods held %v: %q, want %q", name, holdPods, got, tc.want)
			}
		}
	}
	s := plan.Service{Spec: groups(2, "1"), Clusters: []plan.Cluster{active, held(waits(plan.Reheld))}, Pods: serves, Slices: []*kueue.Workload{small}, HoldPods: true}
	if c, _ := s.Releases(); c != nil {
		t.Errorf("cluster %s is let go without quota", c.Name)
	}
	s.Slices = []*kueue.Workload{large}
	if c, _ := s.Releases(); c == nil {
		t.Error("the cluster has quota, and is not let go")
	}
	s.Slices, s.Clusters[1].Held = []*kueue.Workload{admitted(groups(4, "1")...)}, false
	s.Pods = all(serves, opened[:1], pods("p", "workers", 1, ""))
	if free := s.Free([]job.PodSetInfo{{Name: "head"}, {Name: "workers"}}); len(free) > 0 {
		t.Errorf("pod %s is let go since the gate of another one was removed", free[0].Name)
	}
}

// TestWithdraws: an upgrade that was taken back ends, and no other one does.
func TestWithdraws(t *testing.T) {
	active, pending := cluster("a", plan.Active, groups(2, "1")), held(cluster("p", plan.Pending, groups(2, "1")))
	old, was := outdated(active), outdated(pending)
	twin := pending
	twin.Twin = true
	tests := map[string]struct {
		a, p plan.Cluster
		s    plan.Service
		want string
	}{
		"an upgrade":                             {a: old, p: pending},
		"taken back":                             {a: active, p: was, want: "p"},
		"taken back, its pods wait":              {a: active, p: outdated(cluster("p", plan.Pending, groups(2, "1"))), s: plan.Service{HoldPods: true}, want: "p"},
		"taken back, and no cluster is replaced": {a: active, p: was, s: plan.Service{Stays: true}, want: "p"},
		"KubeRay made a twin":                    {a: active, p: twin, want: "p"},
		"KubeRay sees a difference":              {a: active, p: pending},
		"a third version":                        {a: old, p: was},
		"no cluster is replaced any more":        {a: old, p: was, s: plan.Service{Stays: true}},
		"KubeRay goes back by steps":             {a: active, p: was, s: plan.Service{BySteps: true}},
		"by steps, and a twin":                   {a: active, p: twin, s: plan.Service{BySteps: true}, want: "p"},
		"it runs":                                {a: active, p: was, s: plan.Service{Pods: pods("p", "workers", 1, "workers")}},
		"the active one is being deleted":        {a: cluster("a", plan.Deleting, groups(2, "1")), p: was},
		"it is stopped":                          {a: active, p: was, s: plan.Service{Suspended: true}},
	}
	for name, tc := range tests {
		tc.s.Spec, tc.s.Clusters = groups(2, "1"), []plan.Cluster{tc.a, tc.p}
		got := ""
		if c := tc.s.Withdraws(); c != nil {
			got = c.Name
			if !tc.s.IsStale(c) {
				t.Errorf("%s: it is charged for all the same", name)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// many are a head and n groups of one worker each that ask for so many processors.
func many(n int, cpu string, change func(*corev1.PodSpec)) []kueue.PodSet {
	out := []kueue.PodSet{set("head", 1, "1")}
	for i := range n {
		s := set(fmt.Sprintf("g%d", i), 1, cpu)
		if change != nil {
			change(&s.Template.Spec)
		}
		out = append(out, s)
	}
	return out
}

// TestTooManySets: an upgrade that needs more pod sets than a Workload may have waits, and the serving cluster is not affected.
func TestTooManySets(t *testing.T) {
	elsewhere := func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"pool": "x"} }
	s := plan.Service{Spec: many(9, "2", elsewhere), Slices: []*kueue.Workload{admitted(many(9, "1", nil)...)}, Clusters: []plan.Cluster{
		cluster("a", plan.Active, many(9, "1", nil)), held(cluster("p", plan.Pending, many(9, "2", elsewhere))),
	}}
	d := s.Demand()
	if len(d.PodSets) != 10 || len(d.Held) > 0 || d.Crowded == nil || !strings.Contains(d.Crowded.Error(), "19 different pod sets") {
		t.Errorf("%d sets, held %v: %v", len(d.PodSets), d.Held, d.Crowded)
	}
	s.Clusters[1] = held(cluster("p", plan.Pending, many(9, "2", elsewhere)[:9]))
	if d = s.Demand(); d.Crowded != nil || len(d.PodSets) != 18 {
		t.Errorf("%d sets: %v", len(d.PodSets), d.Crowded)
	}
	if got := cmp.Compare(len(named(d.PodSets, "g0").Name), 2); got != 0 {
		t.Errorf("the sets of the active cluster have other names: %s", show(d.PodSets))
	}
}

// TestFolded: shapes of a group that differ in amounts alone are one set where there would be too many, of the larger amounts,
// and no more of them than have to be. The next slice is exact again.
func TestFolded(t *testing.T) {
	const short = "110000000000000000000000000000000000000000000000000000" // cut off, as all long names are
	for n, folded := range map[int]int{9: 1, 17: 17} {                     //berth:unordered a test
		small, large := many(n, "1", nil), many(n, "2", nil)
		small[1].Name, large[1].Name = kueue.PodSetReference("g"+short), kueue.PodSetReference("g"+short)
		small[2].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"gpu": resource.MustParse("3")}
		s := plan.Service{Spec: large, Slices: []*kueue.Workload{admitted(small...)}, Clusters: []plan.Cluster{
			cluster("a", plan.Active, small), held(cluster("p", plan.Pending, large)),
		}}
		d := s.Demand()
		if len(d.PodSets) != 18 || d.Crowded != nil || len(d.Held) != 1 {
			t.Fatalf("%d groups: %d sets: %v", n, len(d.PodSets), d.Crowded)
		}
		var twos int
		for _, p := range d.PodSets[1:] {
			c := p.Template.Spec.Containers[0].Resources
			if p.Count == 2 && c.Requests.Cpu().Value() == 2 {
				twos++
			}
			if p.Name == small[2].Name && n == 17 && (c.Limits.Name("gpu", resource.DecimalSI).Value() != 3 || p.Count != 2) {
				t.Errorf("%v: the larger limit is lost", p)
			}
		}
		if twos != folded {
			t.Errorf("%d groups: %d sets are folded, want %d: %s", n, twos, folded, show(d.PodSets))
		}
		if c, _ := s.Releases(); c != nil {
			t.Errorf("cluster %s is let go too early", c.Name)
		}
		next := admitted(d.PodSets...)
		s.Slices = []*kueue.Workload{next}
		if again := s.Demand(); show(again.PodSets) != show(d.PodSets) {
			t.Errorf("admitted: %s, want %s", show(again.PodSets), show(d.PodSets))
		}
		if c, _ := s.Releases(); c == nil || c.Name != "p" {
			t.Errorf("the cluster is not let go")
		}
		s.Clusters[1].Held = false
		var infos []job.PodSetInfo
		for _, p := range d.PodSets {
			infos = append(infos, job.PodSetInfo{Name: p.Name, Labels: map[string]string{kueue.PodSetLabel: string(p.Name)}})
		}
		for _, c := range []string{"a", "p"} {
			s.Pods = append(s.Pods, pods(c, "headgroup", 1, "")...)
			for _, g := range small[1:] {
				s.Pods = append(s.Pods, pods(c, string(g.Name), 1, "")...)
			}
		}
		if free := s.Free(infos); len(free) != 2*(n+1) {
			t.Errorf("%d pods are let go, want %d", len(free), 2*(n+1))
		} else {
			s.Pods = free
		}
		s.Clusters = []plan.Cluster{cluster("p", plan.Active, large)}
		if total := count(s.Demand().PodSets); total != 2*(n+1) {
			t.Errorf("%d pods count while those of the first cluster run", total)
		}
		s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p.OwnerReferences[0].Name == "a" })
		if total := count(s.Demand().PodSets); total != n+1 {
			t.Errorf("%d pods count after the switch", total)
		}
		for _, p := range s.Demand().PodSets[1:] {
			if p.Template.Spec.Containers[0].Resources.Requests.Cpu().Value() != 2 || len(p.Template.Spec.Containers[0].Resources.Limits) > 0 || len(p.Template.Annotations) > 0 {
				t.Errorf("the next slice is not exact: %s %v", p.Name, p.Template)
			}
		}
	}
}

// TestFoldedShapes: a folded set says which shapes it stands for, each once, and asks for the larger amounts of all containers. The
// others are as they were, also where several clusters have them.
func TestFoldedShapes(t *testing.T) {
	of := func(cpu, first, limit string) []kueue.PodSet {
		return many(9, cpu, func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(first)}}}}
			if limit != "" {
				p.Containers[0].Resources.Limits = corev1.ResourceList{"gpu": resource.MustParse(limit)}
			}
		})
	}
	small, large := of("1", "3", ""), of("2", "4", "5")
	s := plan.Service{Spec: large, Slices: []*kueue.Workload{admitted(small...)}, Clusters: []plan.Cluster{
		cluster("a", plan.Active, small), held(cluster("p", plan.Pending, large)), held(cluster("q", plan.Pending, large)),
	}}
	shapes := []string{plan.Shape(&small[1].Template), plan.Shape(&large[1].Template)}
	slices.Sort(shapes)
	d := s.Demand()
	if len(d.PodSets) != 18 {
		t.Fatalf("%d sets: %v", len(d.PodSets), d.Crowded)
	}
	for _, p := range d.PodSets {
		want := ""
		if p.Name == "g0" {
			want = strings.Join(shapes, ",")
			c, first := p.Template.Spec.Containers[0].Resources, p.Template.Spec.InitContainers[0].Resources
			if p.Count != 3 || c.Requests.Cpu().Value() != 2 || c.Limits.Name("gpu", resource.DecimalSI).Value() != 5 || first.Requests.Cpu().Value() != 4 {
				t.Errorf("%d pods ask for %v and first for %v", p.Count, c, first)
			}
		}
		if got := p.Template.Annotations["berth.dev/folded-shapes"]; got != want {
			t.Errorf("%s stands for %q, want %q", p.Name, got, want)
		}
	}
	if small[1].Template.Spec.Containers[0].Resources.Limits != nil || len(small[1].Template.Annotations) > 0 {
		t.Error("the cluster was changed")
	}
}

func count(sets []kueue.PodSet) (n int) {
	for _, s := range sets {
		n += int(s.Count)
	}
	return n
}
