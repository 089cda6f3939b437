package capacity

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/state"
)

// podOn is a pod of one container.
func podOn(uid, node string, requests corev1.ResourceList) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	return p
}

// list reads "cpu=1 memory=2Gi".
func list(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for part := range strings.FieldsSeq(text) {
		name, q, _ := strings.Cut(part, "=")
		out[corev1.ResourceName(name)] = apiresource.MustParse(q)
	}
	return out
}

func (a Amounts) String() string {
	var out []string
	for _, q := range a {
		out = append(out, fmt.Sprintf("%s=%d", q.Resource, q.Amount))
	}
	return strings.Join(out, " ")
}

func TestCounts(t *testing.T) {
	cases := map[string]struct {
		change func(p *corev1.Pod)
		want   bool
	}{
		"on a node":             {func(*corev1.Pod) {}, true},
		"without a node":        {func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		"pending on a node":     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, true},
		"succeeded":             {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"failed":                {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"being deleted":         {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, true},
		"a group alone":         {func(p *corev1.Pod) { p.Annotations = map[string]string{kueue.PodSetGroupNameAnnotation: "g"} }, true},
		"a slice size alone":    {func(p *corev1.Pod) { p.Annotations = map[string]string{kueue.PodSetSliceSizeAnnotation: "2"} }, true},
		"of a Workload without": {func(p *corev1.Pod) { p.Annotations = map[string]string{kueue.WorkloadAnnotation: "w"} }, true},
	}
	for _, key := range []string{
		kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation,
		kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation,
	} {
		cases["with "+key] = struct {
			change func(p *corev1.Pod)
			want   bool
		}{func(p *corev1.Pod) { p.Annotations = map[string]string{key: "false"} }, false}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := podOn("a", "n1", list("cpu=1"))
			tc.change(p)
			if got := Counts(p); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(text string) corev1.Container {
		return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: list(text)}}
	}
	sidecar := container("cpu=1")
	sidecar.RestartPolicy = &always
	cases := map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"nothing but the pod":       {corev1.PodSpec{Containers: []corev1.Container{container("")}}, "pods=1"},
		"containers add up":         {corev1.PodSpec{Containers: []corev1.Container{container("cpu=1 memory=1Ki"), container("cpu=500m")}}, "cpu=1500 memory=1024 pods=1"},
		"an init container":         {corev1.PodSpec{Containers: []corev1.Container{container("cpu=1")}, InitContainers: []corev1.Container{container("cpu=3")}}, "cpu=3000 pods=1"},
		"a sidecar":                 {corev1.PodSpec{Containers: []corev1.Container{container("cpu=1")}, InitContainers: []corev1.Container{sidecar}}, "cpu=2000 pods=1"},
		"a sidecar before an init":  {corev1.PodSpec{Containers: []corev1.Container{container("cpu=1")}, InitContainers: []corev1.Container{sidecar, container("cpu=3")}}, "cpu=4000 pods=1"},
		"overhead":                  {corev1.PodSpec{Containers: []corev1.Container{container("cpu=1")}, Overhead: list("cpu=250m")}, "cpu=1250 pods=1"},
		"requests of the pod":       {corev1.PodSpec{Containers: []corev1.Container{container("cpu=1")}, Resources: &corev1.ResourceRequirements{Requests: list("cpu=2")}}, "cpu=2000 pods=1"},
		"fractions are rounded up":  {corev1.PodSpec{Containers: []corev1.Container{container("cpu=100u memory=1500m")}}, "cpu=1 memory=2 pods=1"},
		"zero is not listed":        {corev1.PodSpec{Containers: []corev1.Container{container("cpu=0 nvidia.com/gpu=2")}}, "nvidia.com/gpu=2 pods=1"},
		"more than any node has":    {corev1.PodSpec{Containers: []corev1.Container{container("memory=9E")}}, "memory=1125899906842624 pods=1"},
		"limits are no requests":    {corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: list("cpu=1")}}}}, "pods=1"}, // the API server sets them
		"an ephemeral one is free":  {corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{{}}}, "pods=1"},
		"sorted, with the pod last": {corev1.PodSpec{Containers: []corev1.Container{container("zz.com/a=1 aa.com/b=1")}}, "aa.com/b=1 pods=1 zz.com/a=1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Requests(&corev1.Pod{Spec: tc.spec}).String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestRequestsResized: what a resized pod gave up counts until its node has taken it back.
func TestRequestsResized(t *testing.T) {
	p := podOn("a", "n1", list("cpu=1"))
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", AllocatedResources: list("cpu=3"), Resources: &corev1.ResourceRequirements{Requests: list("cpu=3")},
	}}
	if got := Requests(p).Of("cpu"); got != 3000 {
		t.Errorf("cpu %d", got)
	}
}

func TestPods(t *testing.T) {
	var p Pods
	small, large := list("cpu=1"), list("cpu=4 memory=1Gi")
	steps := []struct {
		name    string
		changed []string
		used    string // of n1
	}{
		{"a pod that does not count", p.Set(podOn("x", "", small)), ""},
		{"the first", p.Set(podOn("a", "n1", small)), ""},
		{"the same again", p.Set(podOn("a", "n1", small)), ""},
		{"a second", p.Set(podOn("b", "n1", large)), ""},
		{"it grows", p.Set(podOn("a", "n1", large)), ""},
		{"it moves", p.Set(podOn("b", "n2", large)), ""},
		{"it is unknown", p.Remove("x"), ""},
		{"it ends", p.Remove("a"), ""},
	}
	want := [][]string{nil, {"n1"}, nil, {"n1"}, {"n1"}, {"n1", "n2"}, nil, {"n1"}}
	for i, step := range steps {
		if diff := cmp.Diff(want[i], step.changed); diff != "" {
			t.Errorf("%s: nodes (-want +got):\n%s", step.name, diff)
		}
	}
	if got := p.Usage("n2").String(); got != "cpu=4000 memory=1073741824 pods=1" {
		t.Errorf("usage %s", got)
	}
	if p.Usage("n1") != nil || p.Len() != 1 {
		t.Errorf("n1 has %s, %d pods", p.Usage("n1"), p.Len())
	}
	if diff := cmp.Diff([]string{"n2", "n3"}, p.Replace([]Use{{"c", "n3", Requests(podOn("c", "n3", small))}})); diff != "" {
		t.Errorf("nodes of a new list (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"n3"}, p.Nodes()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// Whatever happens to pods, the usage of every node is the sum over its pods, and the reported nodes are exactly the changed ones.
func TestPodsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pods
		world := map[types.UID]*corev1.Pod{}
		draw := func(uid string) *corev1.Pod {
			pod := podOn(uid, rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "node"),
				list(rapid.SampledFrom([]string{"", "cpu=1", "cpu=2 memory=1Gi", "x.com/y=1", "memory=9E"}).Draw(t, "requests")))
			pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodFailed}).Draw(t, "phase")
			return pod
		}
		uids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before := usages(world)
			var changed []string
			switch rapid.SampledFrom([]string{"set", "set", "set", "remove", "replace"}).Draw(t, "step") {
			case "set":
				pod := draw(uids.Draw(t, "pod"))
				world[pod.UID] = pod
				changed = p.Set(pod)
			case "remove":
				uid := types.UID(uids.Draw(t, "pod"))
				delete(world, uid)
				changed = p.Remove(uid)
			case "replace":
				world = map[types.UID]*corev1.Pod{}
				var uses []Use
				for _, uid := range rapid.SliceOfDistinct(uids, rapid.ID).Draw(t, "pods") {
					pod := draw(uid)
					world[pod.UID] = pod
					if use, counts := UseOf(pod); counts {
						uses = append(uses, use)
					}
				}
				changed = p.Replace(uses)
			}
			after := usages(world)
			for _, node := range []string{"n1", "n2", "n3"} {
				if diff := cmp.Diff(after[node], p.Usage(node), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", node, diff)
				}
				if !slices.Equal(before[node], after[node]) && !slices.Contains(changed, node) {
					t.Fatalf("%s changed from %s to %s and is not reported", node, before[node], after[node])
				}
			}
		}
		if n := len(p.Replace(nil)); n != len(usages(world)) || len(p.nodes.ids)+len(p.requests.ids)+p.Len() != 0 {
			t.Fatalf("%d nodes were emptied; %d nodes, %d requests and %d pods are left", n, len(p.nodes.ids), len(p.requests.ids), p.Len())
		}
	})
}

func usages(world map[types.UID]*corev1.Pod) map[string]Amounts {
	sums := map[string]map[string]resource.Amount{}
	for _, pod := range world { //berth:unordered sums
		if !Counts(pod) {
			continue
		}
		if sums[pod.Spec.NodeName] == nil {
			sums[pod.Spec.NodeName] = map[string]resource.Amount{}
		}
		for _, q := range Requests(pod) {
			sums[pod.Spec.NodeName][q.Resource] += q.Amount
		}
	}
	out := map[string]Amounts{}
	for node, sum := range sums { //berth:unordered a map again
		for name, amount := range sum { //berth:unordered sorted below
			out[node] = append(out[node], state.Request{Resource: name, Amount: amount})
		}
		slices.SortFunc(out[node], func(a, b state.Request) int { return strings.Compare(a.Resource, b.Resource) })
	}
	return out
}

// bytesOfPods returns the memory of one pod, with 20 different requests on 5,000 nodes.
func bytesOfPods(n int) float64 {
	shapes := make([]corev1.ResourceList, 20)
	for i := range shapes {
		shapes[i] = list(fmt.Sprintf("cpu=%dm memory=%dMi", 100+i, 128+i))
	}
	before := heap()
	var p Pods
	for i := range n {
		p.Set(podOn(fmt.Sprintf("0b1c2d3e-4f50-4a61-8b72-%012d", i), fmt.Sprintf("node-%04d", i%5000), shapes[i%len(shapes)]))
	}
	after := heap()
	runtime.KeepAlive(&p)
	return float64(after-min(before, after)) / float64(n)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemory: at most 300 bytes a pod.
func TestMemory(t *testing.T) {
	if got := bytesOfPods(100_000); got > 300 || got < 40 || math.IsNaN(got) {
		t.Errorf("%.0f bytes a pod", got)
	}
}

func BenchmarkPods(b *testing.B) {
	var p Pods
	small, large := podOn("a", "n1", list("cpu=1")), podOn("a", "n1", list("cpu=2"))
	for b.Loop() {
		p.Set(small)
		p.Set(large)
	}
	b.ReportMetric(bytesOfPods(100_000), "bytes/pod")
}
