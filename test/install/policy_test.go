package install

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
)

// policy returns the policy of the overlay, and its binding.
func policy(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := render(t, "kustomize", "config/mutating-admission-policy")
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

// The API server itself removes the nominations of a Workload that gets its cluster or is evicted, and no others. Without the policy it
// refuses a cluster beside nominations. spec: 70 §4.5.
func TestMutatingAdmissionPolicy(t *testing.T) {
	t.Parallel()
	cfg := embeddedtest.ConfigOf(t, embeddedtest.Start(t))
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{MaxTime: wait.Patience, Paths: []string{"../../config/crd"}}); err != nil {
		t.Fatal(err)
	}
	write := func(w *kueue.Workload, change func(*kueue.WorkloadStatus)) error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
			return err
		}
		change(&w.Status)
		return c.Status().Update(t.Context(), w)
	}
	nominated := func(name string) *kueue.Workload {
		t.Helper()
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
		w.Spec.PodSets[0].Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		if err := c.Create(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if err := write(w, func(s *kueue.WorkloadStatus) { s.NominatedClusterNames = []string{"one", "two"} }); err != nil {
			t.Fatal(err)
		}
		return w
	}
	cluster := func(s *kueue.WorkloadStatus) { s.ClusterName = "one" }
	evicted := func(status metav1.ConditionStatus) func(s *kueue.WorkloadStatus) {
		return func(s *kueue.WorkloadStatus) {
			apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: status, Reason: "Tested"})
		}
	}
	first := nominated("first")
	if err := write(first, cluster); err == nil || !strings.Contains(err.Error(), "exclude each other") {
		t.Fatalf("without the policy: %v", err)
	}
	for _, u := range policy(t) {
		if err := c.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "the policy acts", func() error { return write(first, cluster) })
	is := func(w *kueue.Workload, want string) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(w.Status.NominatedClusterNames); got != want {
			t.Errorf("%s is nominated for %s, want %s", w.Name, got, want)
		}
	}
	is(first, "[]")
	second := nominated("second")
	for _, step := range []struct {
		what   string
		change func(*kueue.WorkloadStatus)
		want   string
	}{
		{"a condition of no interest", evicted(metav1.ConditionFalse), "[one two]"},
		{"evicted", evicted(metav1.ConditionTrue), "[]"},
		{"nominated while it is evicted", func(s *kueue.WorkloadStatus) { s.NominatedClusterNames = []string{"two"} }, "[two]"},
		{"not evicted any more", evicted(metav1.ConditionFalse), "[two]"},
	} {
		if err := write(second, step.change); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		is(second, step.want)
	}
	second.Labels = map[string]string{"a": "b"}
	if err := c.Update(t.Context(), second); err != nil {
		t.Errorf("a write of something else: %v", err)
	}
	is(second, "[two]")
}
