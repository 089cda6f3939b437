package controller

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// pods are a job; of what else a job can tell nothing is asked here.
type pods struct {
	job.Composite
	list []job.Object
}

func (p pods) Members() []job.Object { return p.list }

// Every ungated pod is reported once, with its removed gates. spec: 70 §5.3, §7 example 34.
func TestUngatedPods(t *testing.T) {
	pod := func(name string, gates ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		for _, g := range gates {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
		}
		return p
	}
	const ours, others = kueue.AdmissionSchedulingGate, "example.com/other"
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	for name, tc := range map[string]struct {
		before []*corev1.Pod
		group  bool
		starts *kueue.Workload
		want   []string
	}{
		"one":                  {[]*corev1.Pod{pod("a", ours)}, false, w, []string{"w [" + ours + "] false"}},
		"a group":              {[]*corev1.Pod{pod("a", ours), pod("b", ours, others)}, true, w, []string{"w [" + ours + "] true", "w [" + ours + "] true"}},
		"one that had none":    {[]*corev1.Pod{pod("a", others)}, false, w, nil},
		"one that is not told": {[]*corev1.Pod{pod("a", ours)}, false, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var reported []string
			build := fake.NewClientBuilder()
			o := &job.Observed{}
			var was, next []job.Object
			for _, p := range tc.before {
				build.WithObjects(p)
				freed := p.DeepCopy()
				job.OpenGates(freed, false)
				was, next = append(was, p), append(next, freed)
			}
			a := job.Action{Verb: job.PatchJob, Job: next[0], Starts: tc.starts}
			if o.Job = was[0]; tc.group {
				o.Job, a.Job = pods{list: was}, pods{list: next}
			}
			c := build.Build()
			for _, p := range slices.Concat(was, next) { // as stored
				var stored corev1.Pod
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), &stored); err != nil {
					t.Fatal(err)
				}
				p.SetResourceVersion(stored.ResourceVersion)
			}
			r := &reconciler{d: &job.Descriptor{}, client: c, now: time.Now, ungated: func(w *kueue.Workload, gates []string, group bool, _ time.Time) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, fmt.Sprint(w.Name, " ", gates, " ", group))
			}}
			if err := r.writeJob(t.Context(), o, a, "m"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, reported); diff != "" {
				t.Errorf("told -want +got:\n%s", diff)
			}
			// A write that is refused opens nothing.
			reported = nil
			if err := r.writeJob(t.Context(), o, a, "m"); err == nil && len(tc.want) > 0 || reported != nil {
				t.Errorf("again: %v, told %q", err, reported)
			}
		})
	}
}
