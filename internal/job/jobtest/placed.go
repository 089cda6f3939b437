package jobtest

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// placed is a job with a topology assignment: the pods of every pod set are gated until they have a domain, and account for their capacity
// by themselves. Without the admission the job is as before (spec: 20 §4.8).
func placed(w *world) {
	switch {
	case w.kind.Descriptor.Once != nil:
		w.t.Skip("the pod's own webhook gates it")
	case w.kind.Ungated:
		w.t.Skip("its pods cannot be gated")
	}
	o := w.create("train", nil)
	wl := w.workloadOf(o)
	if got := w.markers(o); got != "0 gates, 0 annotations" {
		w.t.Fatalf("before the admission: %s", got)
	}
	w.play(wl, func(x *kueue.Workload) bool {
		a := &kueue.Admission{ClusterQueue: "cq"}
		for _, s := range x.Spec.PodSets {
			a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
				Name: s.Name, Count: new(s.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "gpu"},
				TopologyAssignment: assignment.Encode([]string{corev1.LabelHostname}, []assignment.Domain{{Values: []string{"n1"}, Count: s.Count}}, true),
			})
		}
		return w.cfg.Lifecycle.Reserve(x, a, nil, metav1.Now())
	})
	w.started(o)
	if got, want := w.markers(o), fmt.Sprintf("%d gates, %d annotations", len(w.kind.PodSets), len(w.kind.PodSets)); got != want {
		w.t.Errorf("started: %s, want %s", got, want)
	}
	if w.kind.Deleted || w.kind.Ends {
		return
	}
	w.evict(wl)
	wait.Until(w.t, "the job is stopped", func() error { return w.stopped(o) })
	w.status(o, Stopped)
	wait.Until(w.t, "its pods are as the user wrote them", func() error {
		if got := w.markers(o); got != "0 gates, 0 annotations" {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}

// markers counts the topology gates, and the annotations of pods without a wish, in the spec of a job.
func (w *world) markers(o job.Object) string {
	w.t.Helper()
	text, err := json.Marshal(spec(w.t, w.again(o)))
	w.must(err)
	return fmt.Sprintf("%d gates, %d annotations", strings.Count(string(text), `{"name":"`+kueue.TopologySchedulingGate+`"}`),
		strings.Count(string(text), `"`+kueue.PodSetUnconstrainedTopologyAnnotation+`":"true"`))
}
