package convert

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// The engine keeps what decides about a Workload, and the record of its decisions keeps that of deleted ones: more than a cluster needs is not
// kept, and the Workload says why. A reason does not grow with names.
func TestTooLarge(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		edit func(*corev1.PodSpec)
		want string
	}{
		"a container": {func(s *corev1.PodSpec) { s.Containers[0].Name = long }, "spec.podSets[0].template.spec.containers[0].name: Too long"},
		"a resource": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(long): apiresource.MustParse("1")}
		}, "containers[0].resources: Too long"},
		"overhead": {func(s *corev1.PodSpec) {
			s.Overhead = corev1.ResourceList{corev1.ResourceName(long): apiresource.MustParse("1")}
		}, "resources: Too long"},
		"tolerations": {func(s *corev1.PodSpec) { s.Tolerations = make([]corev1.Toleration, 1<<15) }, "at most 16384 entries"},
		"a selector":  {func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a": long} }, "256 KiB"},
		"values": {func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Values: make([]string, 1<<15)}}}},
			}}}
		}, "at most 16384 entries"},
		"preferences": {func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: make([]corev1.PreferredSchedulingTerm, 1<<15),
			}}
		}, "at most 16384 entries"},
		"a usual one": {func(s *corev1.PodSpec) { s.Tolerations = make([]corev1.Toleration, 100) }, ""},
	} {
		w := &kueue.Workload{}
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2}}
		w.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Name: "c"}}
		tc.edit(&w.Spec.PodSets[0].Template.Spec)
		def := Workload(w, Requests{})
		switch {
		case tc.want == "":
			if def.Problem != nil || len(def.PodSets[0].Constraints.Tolerations) != 100 {
				t.Errorf("%s: %+v", name, def.Problem)
			}
		case def.Problem == nil || !strings.Contains(def.Problem.Note, tc.want) || len(def.Problem.Note) > 1000:
			t.Errorf("%s: %.300v", name, def.Problem)
		case len(fmt.Sprint(def.PodSets[0], def.PodSets[0].Constraints)) > 1000 || def.PodSets[0].Count != 2:
			t.Errorf("%s: it is kept", name)
		}
	}
}

func TestManyMisfits(t *testing.T) {
	w := &kueue.Workload{}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
	for i := range 10_000 {
		w.Spec.PodSets[0].Template.Spec.Containers = append(w.Spec.PodSets[0].Template.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": apiresource.MustParse("2")}, Limits: corev1.ResourceList{"cpu": apiresource.MustParse("1")},
			},
		})
	}
	if def := Workload(w, Requests{}); def.Problem == nil || !strings.HasSuffix(def.Problem.Note, "; and more") || len(def.Problem.Note) > 16<<10 {
		t.Errorf("%.300v", def.Problem)
	}
}
