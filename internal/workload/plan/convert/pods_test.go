package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/state"
)

// list parses "cpu 1, memory 2Gi".
func list(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for entry := range strings.SplitSeq(text, ", ") {
		if name, q, ok := strings.Cut(entry, " "); ok {
			out[corev1.ResourceName(name)] = apiresource.MustParse(q)
		}
	}
	return out
}

func asks(requests, limits string) corev1.ResourceRequirements {
	var r corev1.ResourceRequirements
	if requests != "" {
		r.Requests = list(requests)
	}
	if limits != "" {
		r.Limits = list(limits)
	}
	return r
}

func container(requests, limits string) corev1.Container {
	return corev1.Container{Name: "c", Resources: asks(requests, limits)}
}

func limitRange(name string, items ...corev1.LimitRangeItem) corev1.LimitRange {
	return corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.LimitRangeSpec{Limits: items}}
}

// around returns these LimitRanges in every namespace, and a RuntimeClass with an overhead.
func around(ranges ...corev1.LimitRange) Around {
	return Around{
		LimitRanges: func(string) []corev1.LimitRange { return ranges },
		RuntimeClass: func(name string) *nodev1.RuntimeClass {
			if name != "sandbox" {
				return nil
			}
			return &nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: list("cpu 250m")}}
		},
	}
}

func charged(requests ...any) (out []state.Request) {
	for i := 0; i < len(requests); i += 2 {
		out = append(out, state.Request{Resource: requests[i].(string), Amount: resource.Amount(requests[i+1].(int))})
	}
	return out
}

// one returns a Workload with one pod set.
func one(spec corev1.PodSpec, count, done int32) *kueue.Workload {
	w := workloadWith()
	w.Spec.PodSets[0].Template.Spec, w.Spec.PodSets[0].Count = spec, count
	if done > 0 {
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: done}}
	}
	return w
}

// spec: 10 §4.2: Kubernetes' formula over the pods as its own admission changes them, times
// the pods that still run, without the excluded resources.
func TestRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("cpu 1", "")
	sidecar.RestartPolicy = &always
	defaults := around(limitRange("b", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: list("cpu 500m"), Default: list("cpu 2, memory 1Gi")}))
	cases := map[string]struct {
		spec        corev1.PodSpec
		count, done int32
		r           Requests
		want        []state.Request
	}{
		"containers add up": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("cpu 1", ""), container("cpu 500m", "")}},
			count: 3, want: charged("cpu", 4500),
		},
		"the largest init container counts if it is larger": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{container("cpu 4", ""), container("cpu 2", "")},
				Containers:     []corev1.Container{container("cpu 1", "")},
			},
			count: 1, want: charged("cpu", 4000),
		},
		"a sidecar runs on": {
			spec:  corev1.PodSpec{InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container("cpu 1", "")}},
			count: 1, want: charged("cpu", 2000),
		},
		"an init container runs beside the sidecars before it": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{sidecar, container("cpu 3", "")},
				Containers:     []corev1.Container{container("cpu 1", "")},
			},
			count: 1, want: charged("cpu", 4000),
		},
		"the pod's own resources count in place of its containers'": {
			spec:  corev1.PodSpec{Resources: new(asks("cpu 3", "")), Containers: []corev1.Container{container("cpu 1, nvidia.com/gpu 1", "")}},
			count: 1, want: charged("cpu", 3000, "nvidia.com/gpu", 1),
		},
		"limits of the pod become its requests": {
			spec:  corev1.PodSpec{Resources: new(asks("", "cpu 3")), Containers: []corev1.Container{container("cpu 1", "")}},
			count: 1, want: charged("cpu", 3000),
		},
		"overhead": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("cpu 1", "")}, Overhead: list("cpu 250m")},
			count: 2, want: charged("cpu", 2500),
		},
		"the overhead of the RuntimeClass, example 14": {
			spec:  corev1.PodSpec{RuntimeClassName: new("sandbox"), Containers: []corev1.Container{container("cpu 1", "")}},
			count: 2, r: Requests{Around: around()}, want: charged("cpu", 2500),
		},
		"the pod's own overhead comes first": {
			spec:  corev1.PodSpec{RuntimeClassName: new("sandbox"), Overhead: list("cpu 1"), Containers: []corev1.Container{container("cpu 1", "")}},
			count: 1, r: Requests{Around: around()}, want: charged("cpu", 2000),
		},
		"a RuntimeClass that does not exist has none": {
			spec:  corev1.PodSpec{RuntimeClassName: new("none"), Containers: []corev1.Container{container("cpu 1", "")}},
			count: 1, r: Requests{Around: around()}, want: charged("cpu", 1000),
		},
		"limits become requests": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("", "nvidia.com/gpu 2")}},
			count: 2, want: charged("nvidia.com/gpu", 4),
		},
		"defaults of a LimitRange, example 13": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("memory 2Gi", "")}},
			count: 4, r: Requests{Around: defaults}, want: charged("cpu", 2000, "memory", 8<<30),
		},
		"a default limit becomes the request where there is no default one": {
			spec:  corev1.PodSpec{InitContainers: []corev1.Container{container("", "")}, Containers: []corev1.Container{container("cpu 1", "")}},
			count: 1, r: Requests{Around: defaults}, want: charged("cpu", 1000, "memory", 1<<30),
		},
		"the default of the first LimitRange by name": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("", "")}},
			count: 1, want: charged("cpu", 100), r: Requests{Around: around(
				limitRange("z", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: list("cpu 500m")}),
				limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: list("cpu 100m")}),
			)},
		},
		"defaults for pods only where a pod has resources of its own": {
			spec:  corev1.PodSpec{Resources: new(asks("cpu 1", "")), Containers: []corev1.Container{container("", "")}},
			count: 1, want: charged("cpu", 1000, "memory", 2<<30),
			r: Requests{Around: around(limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Default: list("memory 2Gi")}))},
		},
		"and none elsewhere": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("cpu 1", "")}},
			count: 1, want: charged("cpu", 1000),
			r: Requests{Around: around(limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Default: list("memory 2Gi")}))},
		},
		"reclaimable pods need nothing": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("cpu 1", "")}},
			count: 8, done: 3, want: charged("cpu", 5000),
		},
		"reclaimable pods need quota with the gate off": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("cpu 1", "")}},
			count: 8, done: 3, r: Requests{KeepReclaimable: true}, want: charged("cpu", 8000),
		},
		"excluded": {
			spec:  corev1.PodSpec{Containers: []corev1.Container{container("cpu 1, nvidia.com/gpu 2", "")}},
			count: 1, r: Requests{ExcludePrefixes: []string{"nvidia.com/"}}, want: charged("cpu", 1000),
		},
		"nothing asked": {spec: corev1.PodSpec{Containers: []corev1.Container{{}}}, count: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := one(tc.spec, tc.count, tc.done)
			before := w.DeepCopy()
			got := Workload(w, tc.r)
			if diff := cmp.Diff(tc.want, got.PodSets[0].Requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, w); diff != "" {
				t.Errorf("the workload was changed:\n%s", diff)
			}
		})
	}
}

// spec: 10 §4.2, §7 examples 11 and 12.
func TestTransformations(t *testing.T) {
	replace, retain := configv1beta2.ReplaceInput, configv1beta2.RetainInput
	type transformation = configv1beta2.ResourceTransformation
	cases := map[string]struct {
		pod   string
		count int32
		r     Requests
		want  []state.Request
	}{
		"replaced, example 11": {
			pod: "nvidia.com/mig-1g 2", count: 3,
			r: Requests{Transformations: []transformation{
				{Input: "nvidia.com/mig-1g", Strategy: &replace, Outputs: list("acc/slots 1, acc/mem 5Gi")},
			}},
			want: charged("acc/mem", 30<<30, "acc/slots", 6),
		},
		"retained and multiplied, example 12": {
			pod: "x 3, cpu 4", count: 1,
			r:    Requests{Transformations: []transformation{{Input: "x", Strategy: &retain, MultiplyBy: "cpu", Outputs: list("credits 2")}}},
			want: charged("cpu", 4000, "credits", 24, "x", 3),
		},
		"retained is the default": {
			pod: "x 3", count: 1, r: Requests{Transformations: []transformation{{Input: "x", Outputs: list("credits 2")}}},
			want: charged("credits", 6, "x", 3),
		},
		"nobody asks for the factor": {
			pod: "x 3", count: 1, r: Requests{Transformations: []transformation{{Input: "x", MultiplyBy: "cpu", Outputs: list("credits 2")}}},
			want: charged("credits", 6, "x", 3),
		},
		"several inputs add up, also to what is asked for": {
			pod: "x 1, y 2, credits 10", count: 2,
			r: Requests{Transformations: []transformation{
				{Input: "x", Strategy: &replace, Outputs: list("credits 100")}, {Input: "y", Strategy: &replace, Outputs: list("credits 1")},
			}},
			want: charged("credits", 224),
		},
		"outputs are not transformed again": {
			pod: "x 1", count: 1,
			r: Requests{Transformations: []transformation{
				{Input: "x", Strategy: &replace, Outputs: list("y 1")}, {Input: "y", Strategy: &replace, Outputs: list("z 1")},
			}},
			want: charged("y", 1),
		},
		"a resource may turn into itself": {
			pod: "x 2", count: 1, r: Requests{Transformations: []transformation{{Input: "x", Strategy: &replace, Outputs: list("x 5")}}},
			want: charged("x", 10),
		},
		"no outputs leave it out": {
			pod: "x 2, cpu 1", count: 1, r: Requests{Transformations: []transformation{{Input: "x", Strategy: &replace}}},
			want: charged("cpu", 1000),
		},
		"excluded resources are not transformed, nor do they multiply": {
			pod: "x 2, y 3", count: 1,
			r: Requests{ExcludePrefixes: []string{"x"}, Transformations: []transformation{
				{Input: "x", Outputs: list("a 1")}, {Input: "y", MultiplyBy: "x", Outputs: list("b 1")},
			}},
			want: charged("b", 3, "y", 3),
		},
		"rounded up once, at the end": {
			pod: "cpu 100m, x 3", count: 10,
			r:    Requests{Transformations: []transformation{{Input: "x", Strategy: &replace, Outputs: list("cpu 100u, a 500m")}}},
			want: charged("a", 20, "cpu", 1010), // 100.3 millicores and 1.5 a pod
		},
		"a negative amount is none": {
			pod: "x 3", count: 1, r: Requests{Transformations: []transformation{{Input: "x", Strategy: &replace, Outputs: list("a -1, b 1")}}},
			want: charged("a", 0, "b", 3),
		},
		"more than numbers can say": {
			pod: "x 9E", count: 2, r: Requests{Transformations: []transformation{{Input: "x", Strategy: &replace, MultiplyBy: "x", Outputs: list("a 1")}}},
			want: charged("a", int(resource.Unlimited)),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Workload(one(corev1.PodSpec{Containers: []corev1.Container{container(tc.pod, "")}}, tc.count, 0), tc.r)
			if diff := cmp.Diff(tc.want, got.PodSets[0].Requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// spec: 10 §4.5 step 3, the rows about requests and LimitRanges.
func TestManyResources(t *testing.T) {
	for n, want := range map[int]int{MaxResources: MaxResources, MaxResources + 1: 0} {
		spec := corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}}}
		for i := range n {
			spec.Containers[0].Resources.Requests[corev1.ResourceName(fmt.Sprint("example.com/r", i))] = apiresource.MustParse("1")
		}
		def := Workload(one(spec, 1, 0), Requests{})
		if got := len(def.PodSets[0].Requests); got != want || (def.Problem == nil) != (n == want) {
			t.Errorf("%d resources: %d requests, problem %v", n, got, def.Problem)
		}
	}
}

func TestMisfit(t *testing.T) {
	of := func(kind corev1.LimitType, least, most string) Requests {
		return Requests{Around: around(limitRange("a", corev1.LimitRangeItem{Type: kind, Min: list(least), Max: list(most)}))}
	}
	plain := func(requests, limits string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{container(requests, limits)}}
	}
	const at = "spec.podSets[main].template.spec"
	cases := map[string]struct {
		spec corev1.PodSpec
		r    Requests
		want string // "" for none
	}{
		"the request is the limit": {spec: plain("cpu 2", "cpu 2")},
		"a request above its limit": {
			spec: plain("cpu 2, memory 1Gi", "cpu 1, memory 1Gi"),
			want: at + ".containers[c].resources: the request of cpu 2 is above the limit of 1",
		},
		"in an init container": {
			spec: corev1.PodSpec{InitContainers: []corev1.Container{container("cpu 2", "cpu 1")}},
			want: at + ".initContainers[c].resources: the request of cpu 2 is above the limit of 1",
		},
		"on the level of the pod": {
			spec: corev1.PodSpec{Resources: new(asks("cpu 2", "cpu 1"))},
			want: at + ".resources: the request of cpu 2 is above the limit of 1",
		},
		"above a default limit": {
			spec: plain("cpu 2", ""),
			r:    Requests{Around: around(limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: list("cpu 1")}))},
			want: at + ".containers[c].resources: the request of cpu 2 is above the limit of 1",
		},
		"within the bounds": {spec: plain("cpu 1", "cpu 2"), r: of(corev1.LimitTypeContainer, "cpu 1", "cpu 2")},
		"a limit above the maximum": {
			spec: plain("cpu 1", "cpu 3"), r: of(corev1.LimitTypeContainer, "", "cpu 2"),
			want: at + ".containers[c].resources: cpu 3 is above the maximum of 2 that a LimitRange sets",
		},
		"a request below the minimum": {
			spec: plain("cpu 100m", "cpu 1"), r: of(corev1.LimitTypeContainer, "cpu 200m", ""),
			want: at + ".containers[c].resources: cpu 100m is below the minimum of 200m that a LimitRange sets",
		},
		"what is not asked for is in no bounds": {spec: plain("memory 1", ""), r: of(corev1.LimitTypeContainer, "cpu 1", "cpu 2")},
		"the narrowest of several": {
			spec: plain("cpu 3", ""), want: at + ".containers[c].resources: cpu 3 is above the maximum of 2 that a LimitRange sets",
			r: Requests{Around: around(
				limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("cpu 4")}),
				limitRange("b", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("cpu 2")}),
			)},
		},
		"all containers together": {
			spec: corev1.PodSpec{Containers: []corev1.Container{container("cpu 2", ""), container("cpu 2", "")}},
			r:    of(corev1.LimitTypePod, "", "cpu 3"),
			want: at + ": cpu 4 is above the maximum of 3 that a LimitRange sets",
		},
		"a pod that is too small": {
			spec: plain("cpu 1", ""), r: of(corev1.LimitTypePod, "cpu 2", ""),
			want: at + ": cpu 1 is below the minimum of 2 that a LimitRange sets",
		},
		"a billion digits": {
			spec: plain("cpu 1e999999999", "cpu 1e999999998"), r: of(corev1.LimitTypePod, "", "cpu 3"),
			want: at + ": cpu 1e30 is above the maximum of 3 that a LimitRange sets",
		},
		"devices that are not counted":           {spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}},
		"bounds for claims are for no container": {spec: plain("cpu 3", ""), r: of(corev1.LimitTypePersistentVolumeClaim, "", "cpu 1")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if p := Workload(one(tc.spec, 1, 0), tc.r).Problem; p != nil {
				got = p.Note
				if p.Reason != kueue.ReasonMisconfigured {
					t.Errorf("reason %s", p.Reason)
				}
			}
			if got != tc.want {
				t.Errorf("problem %q, want %q", got, tc.want)
			}
		})
	}
}

// spec: 10 §4.14.
func TestPriority(t *testing.T) {
	cases := map[string]struct {
		priority *int32
		boost    string
		gate     bool
		want     int64
	}{
		"none is 0":             {nil, "", true, 0},
		"its own":               {new(int32(7)), "", true, 7},
		"boosted":               {new(int32(7)), "-10", true, -3},
		"boosted past int32":    {new(int32(1<<31 - 1)), "1", true, 1 << 31},
		"not with the gate off": {new(int32(7)), "10", false, 7},
		"what is no number":     {new(int32(7)), "ten", true, 7},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := workloadWith()
			w.Spec.Priority = tc.priority
			if tc.boost != "" {
				w.Annotations = map[string]string{kueue.PriorityBoostAnnotation: tc.boost}
			}
			if got := Workload(w, Requests{Boost: tc.gate}).Priority; got != tc.want {
				t.Errorf("priority %d, want %d", got, tc.want)
			}
		})
	}
}
