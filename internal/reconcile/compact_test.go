package reconcile

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// sweep returns one of many similar Workloads, as the API server returns it.
func sweep(t testing.TB, name, image, cpus string) *kueue.Workload {
	t.Helper()
	amount := corev1.ResourceList{"cpu": resource.MustParse(cpus)}
	raw, err := json.Marshal(&kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}}},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: image, Resources: corev1.ResourceRequirements{Requests: amount}}},
		}}}}},
		Status: kueue.WorkloadStatus{
			Admission:        &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", ResourceUsage: amount}}},
			ResourceRequests: []kueue.PodSetRequest{{Name: "main", Resources: amount}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &kueue.Workload{}
	if err := json.Unmarshal(raw, w); err != nil {
		t.Fatal(err)
	}
	return w
}

// Equal values are kept once, and nothing else changes.
func TestCompact(t *testing.T) {
	transform := CompactWorkloads()
	compact := func(w *kueue.Workload) *kueue.Workload {
		t.Helper()
		want := w.DeepCopy()
		want.ManagedFields = nil
		out, err := transform(w)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", w.Name, diff)
		}
		return out.(*kueue.Workload)
	}
	first := compact(sweep(t, "first", "a", "1"))
	cases := map[string]struct {
		image, cpus                         string
		samePodSets, sameCharge, sameWanted bool
	}{
		"the same":           {"a", "1", true, true, true},
		"another image":      {"b", "1", false, true, true},
		"another amount":     {"a", "2", false, false, false},
		"in other words":     {"a", "1.5", false, false, false},
		"the same once more": {"a", "1", true, true, true},
	}
	for name, c := range cases {
		w := compact(sweep(t, name, c.image, c.cpus))
		if same := &w.Spec.PodSets[0] == &first.Spec.PodSets[0]; same != c.samePodSets {
			t.Errorf("%s: pod sets are shared: %v", name, same)
		}
		if same := &w.Status.Admission.PodSetAssignments[0] == &first.Status.Admission.PodSetAssignments[0]; same != c.sameCharge {
			t.Errorf("%s: assignments are shared: %v", name, same)
		}
		if same := &w.Status.ResourceRequests[0] == &first.Status.ResourceRequests[0]; same != c.sameWanted {
			t.Errorf("%s: requests are shared: %v", name, same)
		}
	}
}

// The pods of Jobs, which differ in a label that names their Job, share the rest.
func TestPodSpecs(t *testing.T) {
	transform := CompactWorkloads()
	var all []*kueue.Workload
	for _, name := range []string{"a", "b", "c"} {
		w := sweep(t, name, map[string]string{"a": "x", "b": "x", "c": "y"}[name], "1")
		w.Spec.PodSets[0].Template.Labels = map[string]string{"batch.kubernetes.io/job-name": name}
		want := w.DeepCopy()
		want.ManagedFields = nil
		if _, err := transform(w); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, w); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", name, diff)
		}
		all = append(all, w)
	}
	container := func(i int) *corev1.Container { return &all[i].Spec.PodSets[0].Template.Spec.Containers[0] }
	if container(0) != container(1) || container(0) == container(2) {
		t.Errorf("the containers are at %p, %p and %p", container(0), container(1), container(2))
	}
	var specs PodSpecs
	one, other := corev1.PodSpec{Hostname: "x"}, corev1.PodSpec{Hostname: "y"}
	specs.Share(&one)
	specs.Share(&other)
	if one.Hostname != "x" || other.Hostname != "y" {
		t.Errorf("%q and %q", one.Hostname, other.Hostname)
	}
}

// Values with equal keys that differ elsewhere are not shared, and the number of kept values is bounded.
func TestShared(t *testing.T) {
	var s shared[int, []string]
	a, b := []string{"a"}, []string{"b"}
	one := func() int { return 1 }
	if s.of(1, a, one); &s.of(1, b, one)[0] != &b[0] {
		t.Error("different values of one key are shared")
	}
	if again := []string{"b"}; &s.of(1, again, one)[0] != &b[0] {
		t.Error("equal values are not shared")
	}
	for i := range 10 * maxKept {
		s.of(i, []string{fmt.Sprint(i)}, one)
	}
	if len(s.kept) > maxKept {
		t.Errorf("%d values are kept", len(s.kept))
	}
	for i := range 20 {
		s.of(i, []string{fmt.Sprint("large ", i)}, func() int { return maxBytes / 4 })
		s.of(i, []string{fmt.Sprint("too large ", i)}, func() int { return maxBytes })
	}
	if len(s.kept) > 4 || s.sum > maxBytes || s.kept[19].value[0] != "large 19" {
		t.Errorf("%d large values are kept, %d bytes: %v", len(s.kept), s.sum, s.kept)
	}
}
