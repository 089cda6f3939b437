package plan

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// big is a JobSet of n Jobs that do not exist yet.
func big(t tester, n int) *world {
	w := newWorldAt(t)
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"zone": "a"}, Containers: []corev1.Container{{Name: "c", Image: "i", Env: make([]corev1.EnvVar, 20)}},
	}}
	pod.Labels = map[string]string{"app": "x", "team": "y"}
	w.js = &jobsetv1alpha2.JobSet{Spec: jobsetv1alpha2.JobSetSpec{
		FailurePolicy: &jobsetv1alpha2.FailurePolicy{MaxRestarts: 3},
		ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{
			{Name: "oar", Replicas: new(int32(n)), Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod}}},
		},
	}}
	w.js.Name, w.js.Namespace, w.js.UID = "ring", "lab", "uid-js"
	Default(w.js)
	return w
}

// running is such a JobSet with all Jobs running and nothing to do.
func running(t tester, n int) *world {
	w := big(t, n)
	w.command("decide quietly")
	for name := range w.jobs {
		w.job(name, "ready", []string{"1"})
	}
	w.command("decide quietly")
	return w
}

// BenchmarkIdle decides that nothing is to be done.
func BenchmarkIdle(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000, 2000, 5000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := running(b, n)
			o := w.observed()
			b.ReportAllocs()
			for b.Loop() {
				if p := w.c.Decide(o); p.Status != nil || len(missing(&p))+len(p.Patches)+len(p.Delete) > 0 {
					b.Fatal("there is something to do")
				}
			}
		})
	}
}

// BenchmarkCreate makes all Jobs.
func BenchmarkCreate(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := big(b, n)
			o := w.observed()
			b.ReportAllocs()
			for b.Loop() {
				p, made := w.c.Decide(o), 0
				for m := range p.Create {
					m.Build()
					made++
				}
				if made != n {
					b.Fatal(made)
				}
			}
		})
	}
}

// BenchmarkResume resumes all Jobs with other fields.
func BenchmarkResume(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := big(b, n)
			w.js.Spec.Suspend = new(true)
			w.command("decide quietly")
			w.js.Spec.Suspend = new(false)
			w.js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "b"}
			o := w.observed()
			b.ReportAllocs()
			for b.Loop() {
				if p := w.c.Decide(o); len(p.Patches) != n {
					b.Fatal(len(p.Patches))
				}
			}
		})
	}
}

// A pass without work allocates a number of objects that does not grow with the Jobs.
func TestIdleAllocations(t *testing.T) {
	allocations := func(n int) float64 {
		w := running(t, n)
		o := w.observed()
		return testing.AllocsPerRun(20, func() { w.c.Decide(o) })
	}
	few, many := allocations(10), allocations(1000)
	if many > few+20 {
		t.Errorf("%v allocations with 10 Jobs, %v with 1000", few, many)
	}
}
