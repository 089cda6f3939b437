package compat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// elasticJob is an elastic Job and its pods, which the test makes and ends as the controller of Jobs does.
type elasticJob struct {
	*world
	job *batchv1.Job
}

func (w *world) elastic(pods int32) *elasticJob {
	w.t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.name, Name: "grows", Labels: map[string]string{kueue.QueueNameLabel: "q"}, Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"},
	}}
	job.Spec.Parallelism, job.Spec.Suspend, job.Spec.Template.Spec = &pods, new(true), podSpec("cpu", "1")
	w.create(job)
	return &elasticJob{w, job}
}

func (e *elasticJob) scale(pods int32) {
	e.t.Helper()
	edit(e.world, e.job, func(j *batchv1.Job) { j.Spec.Parallelism = &pods })
}

// live returns the only Workload of the Job that is not finished.
func (e *elasticJob) live() (*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := e.c.List(e.ctx(), &list, client.InNamespace(e.name)); err != nil {
		return nil, err
	}
	var live []*kueue.Workload
	for i := range list.Items {
		w := &list.Items[i]
		if owner := metav1.GetControllerOf(w); owner != nil && owner.UID == e.job.UID && lacks(w.Status.Conditions, "-Finished") == nil {
			live = append(live, w)
		}
	}
	if len(live) != 1 {
		return nil, fmt.Errorf("%d Workloads of the Job are not finished", len(live))
	}
	return live[0], nil
}

// placedOn waits until an admitted slice of that many pods has places, such as "n1:2".
func (e *elasticJob) placedOn(count int32, want ...string) {
	e.t.Helper()
	wait.Until(e.t, fmt.Sprintf("the Job is placed on %v", want), func() error {
		w, err := e.live()
		if err != nil {
			return err
		}
		if err := lacks(w.Status.Conditions, admitted); err != nil {
			return err
		}
		if w.Spec.PodSets[0].Count != count {
			return fmt.Errorf("it has %d pods", w.Spec.PodSets[0].Count)
		}
		return e.sameDomains(w, want...)
	})
}

func (w *world) sameDomains(wl *kueue.Workload, want ...string) error {
	domains, err := assignment.Decode(wl.Status.Admission.PodSetAssignments[0].TopologyAssignment)
	if err != nil {
		return err
	}
	var got []string
	for _, d := range domains {
		got = append(got, fmt.Sprintf("%s:%d", strings.TrimPrefix(d.Values[0], w.name+"-"), d.Count))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("-want +got:\n%s", diff)
	}
	return nil
}

// pods makes pods from the template of the running Job.
func (e *elasticJob) pods(names ...string) {
	e.t.Helper()
	var job *batchv1.Job
	wait.Until(e.t, "the Job runs", func() error {
		if job = read(e.world, e.job); job.Spec.Suspend != nil && *job.Spec.Suspend {
			return fmt.Errorf("it is suspended")
		}
		return nil
	})
	for _, name := range names {
		e.create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: e.name, Name: name, Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
			},
			Spec: job.Spec.Template.Spec,
		})
	}
}

func (e *elasticJob) end(names ...string) {
	e.t.Helper()
	for _, name := range names {
		w := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.name, Name: name}}
		e.must(e.c.Delete(e.ctx(), w, client.GracePeriodSeconds(0)))
	}
}

// on waits until the pods without gates are on these nodes, such as "a>n1".
func (e *elasticJob) on(want ...string) {
	e.t.Helper()
	wait.Until(e.t, fmt.Sprintf("the pods go to %v", want), func() error {
		var list corev1.PodList
		if err := e.c.List(e.ctx(), &list, client.InNamespace(e.name)); err != nil {
			return err
		}
		var got []string
		for i := range list.Items {
			if p := &list.Items[i]; len(p.Spec.SchedulingGates) == 0 {
				got = append(got, p.Name+">"+strings.TrimPrefix(p.Spec.NodeSelector[corev1.LabelHostname], e.name+"-"))
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("they are on %v", got)
		}
		return nil
	})
}

// TestElasticPlaces is 20 §7.40 and §4.11: an elastic Job that grows keeps the places of its pods, also over a restart of the manager.
// One that shrinks keeps the places of the pods that are left, and frees the others once their pods have ended.
func TestElasticPlaces(t *testing.T) {
	const gates = "featureGates: {ElasticJobsViaWorkloadSlicesWithTAS: true}"
	m := running(t, gates)
	w := newWorld(t)
	w.nodes("n1 b1 r1 2", "n2 b1 r1 2", "n3 b1 r1 4")
	w.levels("racks", rack, corev1.LabelHostname)
	w.queue("q", "", quota(w.flavor("placed", w.on("racks")).Name+"=100"))
	e := w.elastic(3)
	e.placedOn(3, "n3:3")
	e.pods("a", "b", "c")
	e.on("a>n3", "b>n3", "c>n3")
	other := w.workload("other", "q", "1")
	w.must(w.sameDomains(w.until(other, admitted), "n3:1"))

	e.scale(5)
	if err := m.end(); err != nil {
		t.Fatal(err)
	}
	running(t, gates)
	e.placedOn(5, "n1:2", "n3:3")
	e.pods("d", "e", "f")
	e.on("a>n3", "b>n3", "c>n3", "d>n1", "e>n1")

	e.scale(2) // all five pods are still there, and have their places
	e.placedOn(2, "n1:2", "n3:3")
	fills := w.workload("fills", "q", "1", count(4))
	w.until(fills, "QuotaReserved=False/TopologyPlacementFailed")
	e.end("f", "e", "d")
	w.must(w.sameDomains(w.until(fills, admitted), "n1:2", "n2:2"))
	e.end("a") // n3 has two of the Job and one other
	last := w.workload("last", "q", "1")
	w.must(w.sameDomains(w.until(last, admitted), "n3:1"))
	full := w.workload("full", "q", "1")
	w.until(full, "QuotaReserved=False/TopologyPlacementFailed")

	e.scale(3)
	wait.Until(t, "the Job waits for a place", func() error {
		if _, err := e.live(); err == nil {
			return fmt.Errorf("it has one Workload")
		}
		return nil
	})
	e.on("b>n3", "c>n3")
	w.must(w.c.Delete(w.ctx(), full))
	w.must(w.c.Delete(w.ctx(), last))
	e.placedOn(3, "n3:3")
}
