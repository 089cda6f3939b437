package takeover

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/options"
)

// dispatch is the name of the admission check that sends Jobs to the worker cluster, and far the name of that cluster.
const (
	dispatch = "dispatch"
	far      = "far"
)

// hubAndWorker are two clusters as the other system leaves them: a hub that has sent Jobs to a worker cluster, in every state of a life there.
type hubAndWorker struct{ hub, worker *berth }

// newHubAndWorker writes both worlds. spec: 40 §2.6, §4.4.
func newHubAndWorker(t *testing.T) *hubAndWorker {
	t.Helper()
	hub, worker := newWorld(t, "v1beta2"), newWorld(t, "v1beta2")
	hub.queues(map[string]string{"remote": "8", "sent": "12"})
	worker.queues(map[string]string{"remote": "5", "sent": "12"})
	hub.reaches(far, worker)
	hub.sendsTo([]string{"remote", "sent"}, far)
	for _, name := range []string{"away", "back", "steady", "arriving"} {
		hub.sent(worker, name)
	}
	hub.arrives(worker, "arriving")
	hub.waitsThere(worker, "offered")
	hub.cameBack("returned")
	worker.running("own", "remote", 1, byAdmission)
	worker.orphaned("lost")
	hub.kindsSent(worker)
	return &hubAndWorker{hub: newBerth(hub, "v1beta2"), worker: newBerth(worker, "v1beta2")}
}

// reaches makes a worker cluster known to a hub.
func (w *world) reaches(name string, worker *world) {
	w.Helper()
	config, err := clientcmd.LoadFromFile(worker.kubeconfig)
	w.try(err)
	w.try(clientcmdapi.FlattenConfig(config))
	text, err := clientcmd.Write(*config)
	w.try(err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: options.DefaultNamespace}}
	w.try(client.IgnoreAlreadyExists(w.Create(w.Context(), namespace)))
	w.write(byUser, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: options.DefaultNamespace, Name: name}, Data: map[string][]byte{"kubeconfig": text},
	})
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{
		ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: name, LocationType: kueue.LocationTypeSecret}},
	}}
	w.write(byUser, cluster)
	cluster.Status.Conditions = w.isActive("Connected")
	w.writeStatus(byKueue, cluster)
}

func (w *world) isActive(message string) []metav1.Condition {
	return []metav1.Condition{{
		Type: "Active", Status: metav1.ConditionTrue, Reason: "Active", Message: message, LastTransitionTime: w.began, ObservedGeneration: 1,
	}}
}

// sendsTo makes queues of a hub send their jobs to clusters.
func (w *world) sendsTo(queues []string, clusters ...string) {
	w.Helper()
	w.write(byUser, &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: kueue.MultiKueueConfigSpec{Clusters: clusters}})
	check := &kueue.AdmissionCheck{
		ObjectMeta: metav1.ObjectMeta{Name: dispatch, Finalizers: []string{kueue.ResourceInUseFinalizer}},
		Spec: kueue.AdmissionCheckSpec{
			ControllerName: kueue.MultiKueueControllerName,
			Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "fleet"},
		},
	}
	w.write(byUser, check)
	check.Status.Conditions = w.isActive("The admission check is active")
	w.writeStatus(byKueue, check)
	for _, name := range queues {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.get(cq)
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: dispatch}}}
		w.write(byUser, cq)
	}
}

// delegated creates a Job of some pods that another cluster is to run, and its Workload.
func (w *world) delegated(name string, pods int32) (*batchv1.Job, *kueue.Workload) {
	w.Helper()
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Labels: map[string]string{kueue.QueueNameLabel: "remote"}},
		Spec: batchv1.JobSpec{
			Parallelism: &pods, Completions: &pods, Suspend: new(true), ManagedBy: new(kueue.MultiKueueControllerName), Template: podsFor("1"),
		},
	}
	w.write(byUser, j)
	wl := w.workloadOf(j, "remote", []kueue.PodSet{podSet(j)})
	w.dispatched(wl)
	return j, wl
}

// copyOf creates the copy of a Workload on a worker cluster.
func (w *world) copyOf(wl *kueue.Workload) *kueue.Workload {
	w.Helper()
	out := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: wl.Name, Labels: map[string]string{kueue.MultiKueueOriginLabel: "multikueue"}, Annotations: maps.Clone(wl.Annotations)},
		Spec:       *wl.Spec.DeepCopy(),
	}
	w.write(byKueue, out)
	return out
}

// runsCopy creates the copy of a Job whose copied Workload is admitted: the worker's controller adopts the Workload, and starts the Job.
func (w *world) runsCopy(of *batchv1.Job, wl *kueue.Workload) *batchv1.Job {
	w.Helper()
	w.setAdmitted(wl, "remote")
	w.applyStatus(byAdmission, wl)
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: team, Name: of.Name, Labels: maps.Clone(of.Labels), Annotations: map[string]string{kueue.PrebuiltWorkloadLabel: wl.Name},
		},
		Spec: batchv1.JobSpec{
			Parallelism: of.Spec.Parallelism, Completions: of.Spec.Completions, Suspend: new(true), Template: *wl.Spec.PodSets[0].Template.DeepCopy(),
		},
	}
	j.Labels[kueue.MultiKueueOriginLabel] = "multikueue"
	w.write(byKueue, j)
	w.adopts(wl, j)
	w.start(j, wl)
	w.runs(j, 1, 1)
	w.ready(wl, metav1.ConditionTrue, "Started")
	return j
}

// sent writes a Job that runs on the worker cluster, its status mirrored.
func (w *world) sent(worker *world, name string) {
	w.Helper()
	j, wl := w.delegated(name, 1)
	copied := worker.copyOf(wl)
	worker.runsCopy(j, copied)
	w.setAdmitted(wl, "remote")
	wl.Status.ClusterName = far
	wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	wl.Status.AdmissionChecks[0].Message = fmt.Sprintf("The workload was admitted on %q", far)
	w.applyStatus(byAdmission, wl)
	w.start(j, wl)
	j.Status.StartTime, j.Status.Active, j.Status.Ready = &w.began, 1, new(int32(1))
	w.writeStatus(byKueue, j)
	w.ready(wl, metav1.ConditionTrue, "Started")
}

// arrives ends a Job on the worker cluster, of which the hub has not heard yet.
func (w *world) arrives(worker *world, name string) {
	w.Helper()
	j, wl := worker.readCopy(w, name)
	worker.complete(j)
	wl.Status.Conditions = append(wl.Status.Conditions, worker.condition(wl, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "Job finished successfully"))
	worker.applyStatus(byAdmission, wl)
	wl.Finalizers = nil
	worker.write(byKueue, wl)
}

// waitsThere writes a Job that holds quota on the hub, and whose copied Workload waits on the worker cluster: the Job is not copied yet.
func (w *world) waitsThere(worker *world, name string) {
	w.Helper()
	_, wl := w.delegated(name, 2)
	w.setReserved(wl, "remote")
	wl.Status.Conditions = append(wl.Status.Conditions,
		w.condition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse, "UnsatisfiedAdmissionChecks", "The workload has failed admission checks"))
	wl.Status.NominatedClusterNames = []string{far}
	w.applyStatus(byAdmission, wl)
	copied := worker.copyOf(wl)
	worker.refused(copied, "WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 2 more needed")
}

// cameBack writes a Job that has ended on the worker cluster, from which its copies were removed.
func (w *world) cameBack(name string) {
	w.Helper()
	j, wl := w.delegated(name, 1)
	w.setAdmitted(wl, "remote")
	wl.Status.ClusterName = far
	wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	w.applyStatus(byAdmission, wl)
	w.start(j, wl)
	j.Status.StartTime = &w.began
	w.complete(j)
	wl.Status.Conditions = append(wl.Status.Conditions, w.condition(wl, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "Job finished successfully"))
	w.applyStatus(byAdmission, wl)
	wl.Finalizers = nil
	w.write(byKueue, wl)
}

// orphaned writes the copies of a Job that was deleted on the hub while the worker cluster was away.
func (w *world) orphaned(name string) {
	w.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kueue.QueueNameLabel: "remote"}}}
	j.Spec.Parallelism, j.Spec.Completions = new(int32(1)), new(int32(1))
	_, like := w.read("own")
	delete(like.Spec.PodSets[0].Template.Labels, batchv1.JobNameLabel)
	w.runsCopy(j, w.copyOf(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "job-lost-3d1f2"}, Spec: like.Spec}))
}

// readCopy returns the Job of a worker cluster that a hub has sent, and its Workload, which has the name of the hub's.
func (w *world) readCopy(hub *world, name string) (*batchv1.Job, *kueue.Workload) {
	w.Helper()
	_, of := hub.read(name)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
	w.get(j)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: of.Name}}
	w.get(wl)
	return j, wl
}

// TestRemoteTakeover installs Berth over a hub and over its worker cluster, one after the other, a hub that is first with managers that
// are killed: Jobs that run there run on, and none is sent twice. Then the other system takes both clusters back.
func TestRemoteTakeover(t *testing.T) {
	for name, order := range map[string]func(*hubAndWorker) (first, second *berth){
		"hub first":    func(h *hubAndWorker) (first, second *berth) { return h.hub, h.worker },
		"worker first": func(h *hubAndWorker) (first, second *berth) { return h.worker, h.hub },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHubAndWorker(t)
			first, second := order(h)
			onHub, onWorker := h.hub.inventory(), h.worker.inventory()
			conditions := h.hub.remember()
			var m *manager
			if first == h.hub {
				m = first.takeOverKilled(1)
				h.collects(false)
			} else {
				m = first.takeOver()
			}
			h.runOn(onHub, onWorker)
			other := second.takeOver()
			h.collects(true)
			h.runOn(onHub, onWorker)
			_, arrived := h.hub.read("arriving")
			delete(conditions, arrived.Name)
			h.sentWorkloads(conditions)
			h.liveOn()
			h.giveBack(m, other)
		})
	}
}

// runOn demands that the Jobs of both clusters were not written, unless they are followed to their ends.
func (h *hubAndWorker) runOn(onHub, onWorker objects) {
	h.hub.Helper()
	for of, before := range map[*berth]objects{h.hub: onHub, h.worker: onWorker} {
		now := of.inventory()
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if ended := name == "Job/arriving" || name == "Job/lost"; !ended && now[name] != before[name] {
				of.Errorf("%s was written", name)
			}
		}
		if len(now) > len(before) {
			of.Errorf("there are %d Jobs, and were %d", len(now), len(before))
		}
		for object, writes := range of.writes.to("workloads") {
			most := 1
			switch {
			case strings.Contains(object, "arriving") || strings.Contains(object, "lost"):
				most = 3 // it is followed to its end
			case of == h.hub && strings.Contains(object, "offered"):
				writes = slices.CompactFunc(writes, sameButForReasons) // the check may say every half minute where it waits now
			}
			if len(writes) > most {
				of.Errorf("%s was written more than once:\n%s", object, strings.Join(writes, "\n"))
			}
		}
	}
}

// reasons are the message of the check of a waiting Workload, its nominations, which end while the worker cannot be reached, and the version
// that was read.
var reasons = regexp.MustCompile(`"resourceVersion":"\d+"|,"nominatedClusterNames":\[[^]]*\]|("admissionChecks":\[[^]]*?"message":)"(?:[^"\\]|\\.)*"`)

func sameButForReasons(a, b string) bool {
	return reasons.ReplaceAllString(a, "$1") == reasons.ReplaceAllString(b, "$1")
}

// collects waits until the hub has followed the end of a Job, and removed the copies of it and of a Job that is gone: the finalizer of the
// latter's Workload is removed by the worker, if it runs.
func (h *hubAndWorker) collects(workerRuns bool) {
	h.hub.Helper()
	h.hub.until("arriving", map[string]string{"Finished": "True/Succeeded"})
	if j, _ := h.hub.read("arriving"); j.Status.Succeeded != 1 {
		h.hub.Errorf("arriving: status %+v", j.Status)
	}
	wait.Until(h.hub.T, "copies that are not needed are removed", func() error {
		for _, name := range []string{"arriving", "lost"} {
			if err := h.worker.isGone(name); err != nil {
				return err
			}
		}
		for _, wl := range h.worker.workloads() {
			if strings.HasPrefix(wl.Name, "job-lost-") && (workerRuns || wl.DeletionTimestamp == nil) || strings.HasPrefix(wl.Name, "job-arriving-") {
				return errors.New(wl.Name)
			}
		}
		return nil
	})
}

// sentWorkloads demands that the Workloads of the hub are as before, and have their cluster. PodsReady of those whose jobs have no mirrored
// status follows the copy.
func (h *hubAndWorker) sentWorkloads(before remembered) {
	h.hub.Helper()
	after := h.hub.remember()
	for name, want := range before {
		got := after[name]
		if got[runsRemotely] != "" && strings.HasPrefix(got[kueue.WorkloadPodsReady], "True/Started") {
			delete(got, kueue.WorkloadPodsReady)
			delete(want, kueue.WorkloadPodsReady)
		}
		delete(got, runsRemotely)
		if !maps.Equal(got, want) {
			h.hub.Errorf("%s: conditions %v, and were %v", name, got, want)
		}
	}
	for _, name := range []string{"away", "back", "steady"} {
		if _, wl := h.hub.read(name); wl.Status.ClusterName != far || wl.Status.AdmissionChecks[0].State != kueue.CheckStateReady {
			h.hub.Errorf("%s: status %+v", name, wl.Status)
		}
	}
	h.hub.uses("remote", "5", "3")
	h.hub.uses("sent", "12", "12")
	h.worker.uses("sent", "12", "12")
}

// liveOn ends Jobs on the worker cluster, stops one from the hub, and lets the one that waits there run.
func (h *hubAndWorker) liveOn() {
	h.hub.Helper()
	j, _ := h.worker.readCopy(h.hub.world, "away")
	h.worker.complete(j)
	h.hub.until("away", map[string]string{"Finished": "True/Succeeded"})
	if j, _ := h.hub.read("away"); j.Status.Succeeded != 1 {
		h.hub.Errorf("away: status %+v", j.Status)
	}
	h.hub.until("offered", admitted)
	h.startsThere("offered")
	back, _ := h.hub.read("back")
	h.hub.try(h.hub.Delete(h.hub.Context(), back, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	wait.Until(h.hub.T, "the copy of a deleted Job is removed", func() error { return h.worker.isGone("back") })
	h.kindsEndThere()
}

// startsThere waits until the copy of a Job is started on the worker cluster.
func (h *hubAndWorker) startsThere(name string) {
	h.hub.Helper()
	wait.Until(h.hub.T, name+" is sent and started", func() error {
		var sent batchv1.Job
		if err := h.worker.Get(h.worker.Context(), client.ObjectKey{Namespace: team, Name: name}, &sent); err != nil {
			return err
		}
		if *sent.Spec.Suspend {
			return errors.New("it is suspended")
		}
		return nil
	})
}

// isGone returns an error while there is a Job.
func (w *world) isGone(name string) error {
	err := w.Get(w.Context(), client.ObjectKey{Namespace: team, Name: name}, &batchv1.Job{})
	if err == nil {
		return errors.New(name + " is there")
	}
	return client.IgnoreNotFound(err)
}
