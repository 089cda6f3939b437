package decide_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// A job whose Workload is deleted is restored: the start has recorded the injected values (spec: 30 §6, Restore).
func TestRestoreWithoutAWorkload(t *testing.T) {
	s := newScene()
	s.running()
	const want = `[{"name":"main","labels":{"kueue.x-k8s.io/podset":"main"},"nodeSelector":{"pool":"h100"},"tolerations":[{"key":"gpu","operator":"Exists"}]}]`
	if got := s.job.Annotations[job.InjectedAnnotation]; got != want {
		t.Errorf("noted %s\nwant  %s", got, want)
	}
	if s.job.Spec.Template.Spec.NodeSelector["pool"] != "h100" {
		t.Fatal("nothing was injected")
	}
	j := s.job.DeepCopy()
	j.Spec.Template.Labels["mine"] = "x" // later changes of a user stay
	s.set(j)
	s.o.Workloads = nil
	for range 4 {
		a := s.decide()
		if a.Verb != job.PatchJob {
			break
		}
		s.set(a.Job)
	}
	template := &s.job.Spec.Template
	if !*s.job.Spec.Suspend || len(template.Spec.NodeSelector) != 1 || template.Spec.NodeSelector["zone"] != "a" || len(template.Spec.Tolerations) > 0 ||
		len(template.Labels) != 1 || template.Labels["mine"] != "x" {
		t.Errorf("suspended %v, template %+v", *s.job.Spec.Suspend, template)
	}
	if _, ok := s.job.Annotations[job.InjectedAnnotation]; ok {
		t.Error("the note outlives the stop")
	}
}

// Values of an earlier start do not contradict the next one.
func TestStartOverWhatWasLeft(t *testing.T) {
	s := newScene()
	w := s.running()
	j := s.job.DeepCopy()
	j.Spec.Suspend = new(true) // a user suspends it, without a restore
	s.set(j)
	w.Status.Admission.PodSetAssignments[0].Flavors[corev1.ResourceCPU] = "other"
	s.o.Flavors["other"] = &kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "a100"}}}
	a := s.decide()
	if a.Verb != job.PatchJob {
		t.Fatalf("got %s", describeAction(a))
	}
	s.set(a.Job)
	if got := s.job.Spec.Template.Spec; *s.job.Spec.Suspend || got.NodeSelector["pool"] != "a100" || len(got.Tolerations) > 0 {
		t.Errorf("started with %v, %v", got.NodeSelector, got.Tolerations)
	}
	// A user's own selector is a contradiction still.
	s = newScene()
	s.job.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "mine"}
	s.admit(s.workload())
	if a := s.decide(); a.Verb != job.WriteStatus {
		t.Errorf("got %s", describeAction(a))
	}
}
