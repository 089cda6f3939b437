package jobtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/placement/ungate"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// rack is a level of the topology that jobs request.
const rack = "cloud/rack"

// placed is a job that requests a rack: the pods of every pod set are gated until they have a domain, which each gets by its rank. Without
// the admission the job is as before, and with another one it starts on other nodes (spec: 20 §4.8).
func placed(w *world) {
	switch {
	case w.kind.Descriptor.Once != nil:
		placedAlone(w)
		return
	case w.kind.Ungated:
		unplaceable(w)
		return
	}
	w.startUngater()
	asked := 0
	o := w.create("train", func(o job.Object) { asked = request(w.t, o) })
	before := spec(w.t, w.again(o))
	wl := w.workloadOf(o)
	requests := 0
	for _, s := range wl.Spec.PodSets {
		if r := s.TopologyRequest; r != nil && ptr.Deref(r.Required, "") == rack {
			requests++
		}
	}
	if requests != asked {
		w.t.Errorf("%d of %d pod sets request a rack, and %d templates do", requests, len(wl.Spec.PodSets), asked)
	}
	for _, hosts := range [][]string{{"n1", "n2"}, {"n3", "n4"}} {
		w.place(wl, hosts)
		w.started(o)
		if got, want := w.markers(o), fmt.Sprintf("%d gates, %d annotations", len(w.kind.PodSets), len(w.kind.PodSets)-asked); got != want {
			w.t.Errorf("started: %s, want %s", got, want)
		}
		w.makePods(o, wl)
		w.arePlaced(wl, hosts)
		w.must(w.c.DeleteAllOf(w.ctx, &corev1.Pod{}, client.InNamespace(w.namespace), client.GracePeriodSeconds(0)))
		w.evict(wl)
		wait.Until(w.t, "the job is stopped", func() error { return w.stopped(o) })
		w.status(o, Stopped)
		wait.Until(w.t, "the quota is released", func() error { return w.released(wl) })
		w.waitUntilStable()
		if diff := cmp.Diff(before, spec(w.t, w.again(o))); diff != "" {
			w.t.Errorf("not what the user wrote -want +got:\n%s", diff)
		}
	}
}

// placedAlone is a job that is its own pod, gated by the webhook. It keeps the topology gate until it has a domain. Stopped, it is deleted;
// the next one gets its own domain.
func placedAlone(w *world) {
	w.startUngater()
	for _, host := range []string{"n1", "n2"} {
		o := w.create("train-"+host, func(o job.Object) {
			annotations := map[string]string{kueue.PodSetRequiredTopologyAnnotation: rack}
			maps.Copy(annotations, o.GetAnnotations())
			o.SetAnnotations(annotations)
		})
		wl := w.workloadOf(o)
		w.place(wl, []string{host})
		wait.Until(w.t, "the pod runs", func() error { return w.runs(o) })
		w.arePlaced(wl, []string{host})
		w.evict(wl)
		wait.Until(w.t, "the pod is gone", func() error {
			w.collectPods()
			return client.IgnoreNotFound(w.c.Get(w.ctx, client.ObjectKeyFromObject(o), w.kind.Descriptor.New()))
		})
	}
}

// unplaceable is a job whose pods cannot get scheduling gates: it is not started, and its Workload says why.
func unplaceable(w *world) {
	o := w.create("train", nil)
	before := spec(w.t, w.again(o))
	wl := w.workloadOf(o)
	w.place(wl, []string{"n1"})
	wait.Until(w.t, "the workload is finished", func() error {
		c := lifecycle.Condition(w.get(wl), kueue.WorkloadFinished)
		if c == nil || c.Reason != kueue.ReasonFailedToStart || !strings.Contains(c.Message, "inject") || !strings.Contains(c.Message, "schedulingGates") {
			return fmt.Errorf("%v: %+v", conditions(w.get(wl)), c)
		}
		return nil
	})
	if diff := cmp.Diff(before, spec(w.t, w.again(o))); diff != "" {
		w.t.Errorf("the job was changed -want +got:\n%s", diff)
	}
}

// startUngater starts a manager with the controller that ungates pods.
func (w *world) startUngater() {
	w.t.Helper()
	mgr, err := ctrl.NewManager(rest.CopyConfig(w.plain), ctrl.Options{
		Scheme: newScheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
		Cache: embeddedtest.Only(w.namespace),
	})
	w.must(err)
	w.must(ungate.Setup(w.ctx, mgr, ungate.Options{Config: w.cfg, Now: time.Now}))
	embeddedtest.Run(w.t, mgr)
}

// place admits a Workload with a topology assignment: of each pod set, one pod on the first host and the others on the last one.
func (w *world) place(wl *kueue.Workload, hosts []string) {
	w.t.Helper()
	w.play(wl, func(x *kueue.Workload) bool {
		a := &kueue.Admission{ClusterQueue: "cq"}
		for _, s := range x.Spec.PodSets {
			domains := []assignment.Domain{{Values: hosts[:1], Count: 1}}
			if s.Count > 1 {
				domains = append(domains, assignment.Domain{Values: hosts[len(hosts)-1:], Count: s.Count - 1})
			}
			a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
				Name: s.Name, Count: new(s.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "gpu"},
				TopologyAssignment: assignment.Encode([]string{corev1.LabelHostname}, domains, true),
			})
		}
		return w.cfg.Lifecycle.Reserve(x, a, nil, metav1.Now())
	})
}

// request makes every pod template of a job request a rack, and returns how many there are.
func request(t *testing.T, o job.Object) (templates int) {
	t.Helper()
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	var visit func(any)
	visit = func(at any) {
		switch at := at.(type) {
		case []any:
			for _, child := range at {
				visit(child)
			}
		case map[string]any:
			if s, ok := at["spec"].(map[string]any); ok && s["containers"] != nil {
				metadata, _ := at["metadata"].(map[string]any)
				if metadata == nil {
					metadata = map[string]any{}
				}
				annotations, _ := metadata["annotations"].(map[string]any)
				if annotations == nil {
					annotations = map[string]any{}
				}
				annotations[kueue.PodSetRequiredTopologyAnnotation] = rack
				metadata["annotations"], at["metadata"] = annotations, metadata
				templates++
			}
			for _, child := range at {
				visit(child)
			}
		}
	}
	visit(tree["spec"])
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, o); err != nil {
		t.Fatal(err)
	}
	return templates
}

// makePods stands in for the controllers of the kind: it creates the pods of a started job, with the labels of their ranks, in an order
// that is not theirs.
func (w *world) makePods(o job.Object, wl *kueue.Workload) {
	w.t.Helper()
	for i, template := range w.templates(w.again(o)) {
		set := &wl.Spec.PodSets[i]
		for rank := range set.Count {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: w.namespace, Name: fmt.Sprintf("%s-%d", set.Name, set.Count-rank),
					Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
				},
				Spec: *template.Spec.DeepCopy(),
			}
			for at := range pod.Spec.Containers {
				pod.Spec.Containers[at].Image = "image"
			}
			if r := set.TopologyRequest; r != nil && r.PodIndexLabel != nil {
				index := rank
				if r.SubGroupIndexLabel != nil {
					size := set.Count / *r.SubGroupCount
					pod.Labels[*r.SubGroupIndexLabel], index = fmt.Sprint(rank/size), rank%size
				}
				pod.Labels[*r.PodIndexLabel] = fmt.Sprint(index)
			}
			w.must(w.c.Create(w.ctx, pod))
		}
	}
}

// arePlaced waits until the pods of a Workload are on the hosts of place: those with ranks each on its own, of the others as many as there
// are slots. They keep what else the admission gave them.
func (w *world) arePlaced(wl *kueue.Workload, hosts []string) {
	w.t.Helper()
	var want []string
	for _, set := range wl.Spec.PodSets {
		ranked := set.TopologyRequest != nil && set.TopologyRequest.PodIndexLabel != nil && w.kind.Descriptor.Once == nil
		for rank := range set.Count {
			host, name := hosts[len(hosts)-1], ""
			if rank == 0 {
				host = hosts[0]
			}
			if ranked {
				name = fmt.Sprintf("-%d", set.Count-rank)
			}
			want = append(want, string(set.Name)+name+" "+host)
		}
	}
	slices.Sort(want)
	wait.Until(w.t, "the pods have their places", func() error {
		var list corev1.PodList
		w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
		var got []string
		for i := range list.Items {
			p := &list.Items[i]
			set := p.Labels[kueue.PodSetLabel]
			at := slices.IndexFunc(wl.Spec.PodSets, func(s kueue.PodSet) bool { return string(s.Name) == set })
			switch {
			case at < 0:
				return fmt.Errorf("pod %s has pod set %q", p.Name, set)
			case len(p.Spec.SchedulingGates) > 0:
				return fmt.Errorf("pod %s has gates %v", p.Name, p.Spec.SchedulingGates)
			case p.Spec.NodeSelector["pool"] != "h100" || p.Annotations[kueue.WorkloadAnnotation] != wl.Name:
				return errors.New("a pod without the values of its admission")
			}
			if r := wl.Spec.PodSets[at].TopologyRequest; r != nil && r.PodIndexLabel != nil && w.kind.Descriptor.Once == nil {
				set = p.Name
			}
			got = append(got, set+" "+p.Spec.NodeSelector[corev1.LabelHostname])
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
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
