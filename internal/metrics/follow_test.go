package metrics

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Objects of a real API server reach the series through the manager's cache.
func TestFollower(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server")
	}
	cfg := embeddedtest.Config(t)
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{MaxTime: wait.Patience, Paths: []string{"../../config/crd"}}); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := cache.New(cfg, cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, all())
	f := &Follower{Recorder: w.recorder, Cache: objects}
	for _, start := range []func() error{
		func() error { return objects.Start(t.Context()) },
		func() error { return f.Start(t.Context()) },
	} {
		go func() {
			if err := start(); err != nil {
				t.Error(err)
			}
		}()
	}

	queue := w.queue("q", "c", "cpu=4")
	localQueue := w.localQueue("l", "q")
	localQueue.Namespace = "default"
	w.state.Apply(state.SetLocalQueue(convert.LocalQueue(localQueue)))
	wl := newWorkload("w", "l", "1")
	wl.Namespace, wl.UID, wl.CreationTimestamp = "default", "", at(0)
	w.state.Apply(state.SetCohort(state.Cohort{Name: "c", Parent: "top"}))
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: kueue.CohortSpec{ParentName: "top"}}
	for _, o := range []client.Object{queue, localQueue, wl, cohort} {
		o.SetResourceVersion("")
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	waits := "kueue_local_queue_unadmitted_workloads{cluster_queue=q,name=l,namespace=default,reason=NoReservation,underlying_cause=PendingEvaluation} 1"
	wait.Until(t, "the Workload is counted", wait.Is(func() bool {
		return slices.Contains(w.scrape("kueue_local_queue_unadmitted_workloads"), waits)
	}))
	wait.Until(t, "the cohort is known", wait.Is(func() bool {
		w.recorder.mu.Lock()
		defer w.recorder.mu.Unlock()
		return len(w.recorder.tree.ancestors("q")) == 2
	}))
	stored := &kueue.Workload{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(wl), stored); err != nil {
		t.Fatal(err)
	}
	machine.Reserve(stored, admission("q", "1"), nil, at(5))
	if err := api.Status().Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "its admission is seen below the cohort", wait.Is(func() bool {
		return slices.Contains(w.scrape("kueue_cohort"), "kueue_cohort_subtree_admitted_active_workloads{cohort=top} 1") &&
			slices.Contains(w.scrape("kueue_admitted"), "kueue_admitted_workloads_total{cluster_queue=q,priority_class=} 1")
	}))
	// Another controller finishes it. A manager that starts afterwards counts anew.
	machine.Finish(stored, kueue.ReasonSucceeded, "", at(9))
	if err := api.Status().Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	finished := "kueue_finished_workloads_total{cluster_queue=q,priority_class=} 1"
	wait.Until(t, "its finish is counted", wait.Is(func() bool { return slices.Contains(w.scrape("kueue_finished"), finished) }))
	again := newWorld(t, all())
	restarted := &Follower{Recorder: again.recorder, Cache: objects}
	if err := restarted.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored.Labels = map[string]string{"changed": "later"}
	if err := api.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "both saw the last change", wait.Is(func() bool {
		latest := func(r *Recorder) bool {
			object, _, _ := r.workloads.GetByKey("default/w")
			return object.(*kueue.Workload).Labels["changed"] == "later"
		}
		return latest(w.recorder) && latest(again.recorder)
	}))
	if got := again.scrape("kueue_finished_workloads_total", "kueue_admitted_workloads_total"); len(got) > 0 {
		t.Errorf("after a restart %q", got)
	}
	if !slices.Contains(w.scrape("kueue_finished"), finished) {
		t.Error("its finish is counted again")
	}
	if err := api.Delete(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	w.state.Apply(state.DeleteQueue("q"))
	wait.Until(t, "the series of the queue go with it", wait.Is(func() bool {
		return slices.Equal(w.naming("q"), []string{"kueue_cluster_queue_weighted_share"})
	}))
}
