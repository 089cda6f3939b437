package multicluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// endless is the run time of a Job that a test looks at while it runs: a short one is over before a slow machine has looked. The test ends
// it with finish.
const endless = "36000"

// job is a Job of one pod that runs for some seconds.
func job(name, cpus, seconds string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{kueue.QueueNameLabel: "main"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/run-seconds": seconds}},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name: "main", Image: "any", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}},
			}}},
		}},
	}
}

// jobSet is a JobSet of one Job of one pod.
func jobSet(name, seconds string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {namespace: team, name: `+name+`, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  replicatedJobs:
  - name: w
    template:
      spec:
        template:
          metadata: {annotations: {berth.dev/run-seconds: "`+seconds+`"}}
          spec:
            restartPolicy: Never
            containers: [{name: c, image: any, resources: {requests: {cpu: "1"}}}]
`), &o.Object); err != nil {
		panic(err)
	}
	return o
}

// workload is the Workload of a Job of the hub.
func (c *cluster) workload(j *batchv1.Job) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := c.List(context.Background(), &list, client.InNamespace(j.Namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Name == j.Name {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("job %s has no workload", j.Name)
}

// on waits until a Job runs on a worker, and returns the worker.
func (c *cluster) on(j *batchv1.Job) string {
	c.t.Helper()
	name := ""
	wait.Until(c.t, j.Name+" runs somewhere", func() error {
		w, err := c.workload(j)
		if err != nil {
			return err
		}
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(j), j); err != nil {
			return err
		}
		if name = w.Status.ClusterName; name == "" || j.Status.Active != 1 {
			return fmt.Errorf("cluster %q, %d active, checks %+v, conditions %+v", name, j.Status.Active, w.Status.AdmissionChecks, w.Status.Conditions)
		}
		return nil
	})
	return name
}

func (c *cluster) completes(j *batchv1.Job) {
	c.t.Helper()
	wait.Until(c.t, j.Name+" completes", func() error { return c.complete(j) })
}

func (c *cluster) complete(j *batchv1.Job) error {
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(j), j); err != nil {
		return err
	}
	for _, condition := range j.Status.Conditions {
		if condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	w, err := c.workload(j)
	if err != nil {
		return err
	}
	return fmt.Errorf("job %+v, workload %+v", j.Status, w.Status)
}

// finish ends the pods of a Job, on whichever of the workers it runs, until it completes here.
func (c *cluster) finish(j *batchv1.Job, workers ...*cluster) {
	c.t.Helper()
	wait.Until(c.t, j.Name+" completes", func() error {
		for _, w := range workers {
			var pods corev1.PodList
			if err := w.List(context.Background(), &pods, client.InNamespace(j.Namespace), client.MatchingLabels{batchv1.JobNameLabel: j.Name}); err != nil {
				return err
			}
			for i := range pods.Items {
				p := &pods.Items[i]
				if p.Status.Phase != corev1.PodRunning {
					continue
				}
				p.Status.Phase = corev1.PodSucceeded
				if err := w.Status().Update(context.Background(), p); err != nil {
					return err
				}
			}
		}
		return c.complete(j)
	})
}

// empty waits until a worker holds nothing of the hub.
func (c *cluster) empty() {
	c.t.Helper()
	wait.Until(c.t, c.name+" holds nothing", c.holdsNothing)
}

func (c *cluster) holdsNothing() error {
	var workloads kueue.WorkloadList
	var jobs batchv1.JobList
	ours := client.HasLabels{kueue.MultiKueueOriginLabel}
	if err := errors.Join(c.List(context.Background(), &workloads, ours), c.List(context.Background(), &jobs, ours)); err != nil {
		return err
	}
	if len(workloads.Items)+len(jobs.Items) > 0 {
		return fmt.Errorf("%d workloads and %d jobs", len(workloads.Items), len(jobs.Items))
	}
	return nil
}

// deactivates: a worker stops wanting its copy of a Job: it reports that, and gets another copy later.
func (c *cluster) deactivates(hub *cluster, j *batchv1.Job) {
	c.t.Helper()
	local, err := hub.workload(j)
	if err != nil {
		c.t.Fatal(err)
	}
	key, copied := client.ObjectKeyFromObject(local), &kueue.Workload{}
	if err := c.Get(context.Background(), key, copied); err != nil {
		c.t.Fatal(err)
	}
	was := copied.UID
	if err := c.Patch(context.Background(), copied, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":false}}`))); err != nil {
		c.t.Fatal(err)
	}
	wait.Until(c.t, "the check says that "+c.name+" does not want it", func() error {
		if there := (&kueue.Workload{}); c.Get(context.Background(), key, there) == nil && there.UID != was {
			return nil // the next copy is there already, and the check tells of that one
		}
		w, err := hub.workload(j)
		if err == nil && !strings.Contains(w.Status.AdmissionChecks[0].Message, "["+multikueueplan.Deactivated+"] "+c.name) {
			err = fmt.Errorf("message %q", w.Status.AdmissionChecks[0].Message)
		}
		return err
	})
	wait.Until(c.t, c.name+" has a copy again", func() error {
		there := &kueue.Workload{}
		if err := c.Get(context.Background(), key, there); err != nil {
			return err
		}
		if there.UID == was || !lifecycle.IsActive(there) {
			return fmt.Errorf("uid %s, before it was %s, active %v", there.UID, was, lifecycle.IsActive(there))
		}
		return nil
	})
}

// frameworks are the kinds of jobs.
const frameworks = "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}\n"

const mapped = "resources: {deviceClassMappings: [{name: gpus, deviceClassNames: [gpu]}]}\n"

// TestDispatch is the life of Jobs that a hub sends to two workers.
func TestDispatch(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three control planes")
	}
	t.Parallel()
	all := start(t, []string{"hub", "w1", "w2"}, map[string]string{
		// A worker that is only slow is never lost: that would move Jobs. The test of a lost one has another limit.
		"hub": frameworks + mapped + "multiKueue: {workerLostTimeout: 15m, gcInterval: 5s}\n", "w1": frameworks + mapped, "w2": frameworks + mapped,
	})
	hub, w1, w2 := all[0], all[1], all[2]
	workers := map[string]*cluster{"w1": w1, "w2": w2}
	hub.workers(w1, w2)
	hub.queues("100", "workers")
	w1.queues("4")
	w2.queues("2")
	hub.connection("w1", metav1.ConditionTrue, kueue.ReasonActive)
	hub.connection("w2", metav1.ConditionTrue, kueue.ReasonActive)

	t.Run("a Job runs on one worker and ends here", func(t *testing.T) {
		j := job("plain", "1", endless)
		hub.create(j)
		if j.Spec.ManagedBy == nil || *j.Spec.ManagedBy != kueue.MultiKueueControllerName {
			t.Errorf("managedBy is %v", j.Spec.ManagedBy)
		}
		at := hub.on(j)
		var remote batchv1.Job
		if err := workers[at].Get(t.Context(), client.ObjectKeyFromObject(j), &remote); err != nil {
			t.Fatal(err)
		}
		if remote.Spec.ManagedBy != nil || remote.Labels[kueue.MultiKueueOriginLabel] != "multikueue" || len(remote.OwnerReferences) > 0 {
			t.Errorf("the copy: managedBy %v, labels %v, owners %v", remote.Spec.ManagedBy, remote.Labels, remote.OwnerReferences)
		}
		w, err := hub.workload(j)
		if err != nil {
			t.Fatal(err)
		}
		if message := w.Status.AdmissionChecks[0].Message; message != fmt.Sprintf("The workload was admitted on %q", at) || len(w.Status.NominatedClusterNames) > 0 {
			t.Errorf("message %q, nominated %v", message, w.Status.NominatedClusterNames)
		}
		if *j.Spec.Suspend {
			t.Error("the Job is still suspended here")
		}
		hub.finish(j, w1, w2)
		w1.empty()
		w2.empty()
		var pods corev1.PodList
		if err := hub.List(t.Context(), &pods, client.InNamespace("team")); err != nil || len(pods.Items) > 0 {
			t.Errorf("%d pods here, %v", len(pods.Items), err)
		}
	})
	t.Run("a Job that is deleted leaves nothing", func(t *testing.T) {
		j := job("deleted", "1", "600")
		hub.create(j)
		hub.on(j)
		if err := hub.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		w1.empty()
		w2.empty()
	})
	t.Run("a Job that no worker creates at once is created once", func(t *testing.T) {
		book := &ledger{counts: map[string]int{}}
		for _, c := range []*cluster{w1, w2} {
			book.follow(t, c, batchv1.SchemeGroupVersion.WithKind("Job"))
			embeddedtest.SlowCreates(t, c, schema.GroupResource{Group: "batch", Resource: "jobs"}, job("try", "1", "1"), 4*time.Second) // twice as long as the hub waits
		}
		j := job("late", "1", "1")
		hub.create(j)
		hub.completes(j)
		w1.empty()
		w2.empty()
		book.close()
		if made := book.made["Job late"]; len(made) != 1 {
			t.Errorf("it was created %v", made)
		}
	})
	t.Run("of many Jobs that both workers admit at once, each is created once", func(t *testing.T) {
		book := &ledger{counts: map[string]int{}}
		for _, c := range []*cluster{w1, w2} {
			book.follow(t, c, batchv1.SchemeGroupVersion.WithKind("Job"))
		}
		many := make([]*batchv1.Job, 60)
		for i := range many {
			many[i] = job(fmt.Sprintf("many-%02d", i), "10m", "1")
			hub.create(many[i])
		}
		for _, j := range many {
			hub.completes(j)
		}
		w1.empty()
		w2.empty()
		book.close()
		if created := book.counts["w1 Job created"] + book.counts["w2 Job created"]; created != len(many) {
			t.Errorf("%d Jobs were created for %d", created, len(many))
			for _, j := range many {
				if made := book.made["Job "+j.Name]; len(made) != 1 {
					w, err := hub.workload(j)
					t.Errorf("%s was created %v: %v, %+v", j.Name, made, err, w)
				}
			}
		}
	})
	t.Run("the manager is killed while a Job runs", func(t *testing.T) {
		j := job("survivor", "1", endless)
		hub.create(j)
		at := hub.on(j)
		hub.stopManager()
		hub.startManager()
		hub.finish(j, w1, w2)
		if w, err := hub.workload(j); err != nil || w.Status.ClusterName != at {
			t.Errorf("it moved from %s: %v", at, err)
		}
		w1.empty()
	})
	t.Run("a Job waits and says what for", func(t *testing.T) {
		j := job("big", "50", "1")
		hub.create(j)
		wait.Until(t, "the check says what the workers say", func() error {
			w, err := hub.workload(j)
			if err != nil {
				return err
			}
			if len(w.Status.AdmissionChecks) == 0 {
				return errors.New("no check yet")
			}
			if m := w.Status.AdmissionChecks[0].Message; !strings.Contains(m, "w1: ") || !strings.Contains(m, "w2: ") {
				return fmt.Errorf("message %q", m)
			}
			return nil
		})
		w1.deactivates(hub, j)
		if err := hub.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		w1.empty()
	})
	t.Run("devices are charged on each side by its own template", func(t *testing.T) { chargesDevices(t, hub, w1, w2) })
	t.Run("places are given by the worker alone", func(t *testing.T) { placesPods(t, hub, w1, w2) })
	t.Run("a JobSet", func(t *testing.T) {
		js := jobSet("set", "2")
		hub.create(js)
		wait.Until(t, "it completes here", func() error {
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(js), js); err != nil {
				return err
			}
			if state, _, _ := unstructured.NestedString(js.Object, "status", "terminalState"); state != "Completed" {
				return fmt.Errorf("%v", js.Object["status"])
			}
			return nil
		})
		var here batchv1.JobList
		if err := hub.List(t.Context(), &here, client.MatchingLabels{"jobset.sigs.k8s.io/jobset-name": "set"}); err != nil || len(here.Items) > 0 {
			t.Errorf("%d Jobs of it here, %v", len(here.Items), err)
		}
		w1.empty()
		w2.empty()
	})
	t.Run("a Job of the worker's own has the name", func(t *testing.T) {
		own := job("taken", "1", "600")
		own.Labels = nil
		w1.create(own)
		j := job("taken", "3", "1") // fits nowhere else
		hub.create(j)
		wait.Until(t, "the check says so", func() error {
			w, err := hub.workload(j)
			if err != nil || len(w.Status.AdmissionChecks) == 0 {
				return errors.Join(err, errors.New("no check yet"))
			}
			if m := w.Status.AdmissionChecks[0].Message; !strings.Contains(m, "[RemoteNameConflict] w1") || w.Status.ClusterName != "" {
				return fmt.Errorf("message %q, cluster %q", m, w.Status.ClusterName)
			}
			return nil
		})
		uid := own.UID
		if err := w1.Get(t.Context(), client.ObjectKeyFromObject(own), own); err != nil || own.UID != uid || own.Generation != 1 || own.Labels[kueue.MultiKueueOriginLabel] != "" {
			t.Errorf("the worker's own Job: %v, labels %v", err, own.Labels)
		}
		if err := w1.Delete(t.Context(), own, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		hub.completes(j) // the name is free, which is found out soon
		w1.empty()
	})
	t.Run("what is deleted on its worker is created there again", func(t *testing.T) {
		j := job("deleted", "1", "600")
		hub.create(j)
		at := hub.on(j)
		local, err := hub.workload(j)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"Workload", "Job"} {
			var before, after batchv1.Job
			if err := workers[at].Get(t.Context(), client.ObjectKeyFromObject(j), &before); err != nil {
				t.Fatal(err)
			}
			victim := client.Object(&before)
			if kind == "Workload" {
				victim = &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: local.Name}}
			}
			if err := workers[at].Delete(t.Context(), victim, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "its "+kind+" is deleted, and it runs there again", func() error {
				if err := workers[at].Get(t.Context(), client.ObjectKeyFromObject(j), &after); err != nil {
					return err
				}
				w, err := hub.workload(j)
				if err != nil {
					return err
				}
				if c := w.Status.AdmissionChecks[0]; after.UID == before.UID || after.Status.Active != 1 || c.Message != fmt.Sprintf("The workload was admitted on %q", at) {
					return fmt.Errorf("the same Job %v, %+v, check %+v", after.UID == before.UID, after.Status, c)
				}
				return nil
			})
			w, err := hub.workload(j)
			if err != nil {
				t.Fatal(err)
			}
			if w.Status.ClusterName != at || w.Status.AdmissionChecks[0].RetryCount != nil || lifecycle.Condition(w, kueue.WorkloadEvicted) != nil {
				t.Errorf("after its %s was deleted: %+v", kind, w.Status)
			}
		}
		if err := hub.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		workers[at].empty()
	})
	t.Run("credentials are revoked and come back", func(t *testing.T) {
		j := job("cut-off", "3", endless)
		hub.create(j)
		hub.on(j)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "w1"}}
		good := w1.inline()
		write := func(text []byte) {
			t.Helper()
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
				t.Fatal(err)
			}
			secret.Data = map[string][]byte{"kubeconfig": text}
			if err := hub.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		write([]byte(strings.Replace(string(good), ":"+w1.proxy.port, ":1", 1)))
		hub.connection("w1", metav1.ConditionFalse, kueue.ReasonClientConnectionFailed)
		if err := w1.Get(t.Context(), client.ObjectKeyFromObject(j), &batchv1.Job{}); err != nil {
			t.Errorf("its job on the worker: %v", err)
		}
		write(good)
		hub.connection("w1", metav1.ConditionTrue, kueue.ReasonActive)
		hub.finish(j, w1, w2)
		w1.empty()
	})
	t.Run("a worker that swallows everything delays no other", func(t *testing.T) {
		run := func(name string) time.Duration {
			began := time.Now()
			jobs := []*batchv1.Job{job(name+"-0", "1", "1"), job(name+"-1", "1", "1"), job(name+"-2", "1", "1")}
			hub.create(jobs[0], jobs[1], jobs[2])
			for _, j := range jobs {
				hub.completes(j)
			}
			return time.Since(began)
		}
		usual := run("usual")
		w1.empty()
		w2.empty()
		w2.proxy.stall(true)
		if took := run("fast"); took > 20*time.Second+5*usual { // how long it takes is what is tested: less than a call that hangs
			t.Errorf("it took %s, and %s before", took, usual)
		}
		w2.proxy.stall(false)
		hub.connection("w2", metav1.ConditionTrue, kueue.ReasonActive)
		w1.empty()
		w2.empty()
	})
	t.Run("orphans go, and what is another manager's stays", func(t *testing.T) { collects(t, hub, w1) })
	t.Run("a worker is lost and comes back", func(t *testing.T) { moves(t, hub, w1, w2) })
}

// collects: a worker has an object without a counterpart on the hub, and an object of another manager.
func collects(t *testing.T, hub, w1 *cluster) {
	left := func(name string) (*kueue.Workload, *batchv1.Job) {
		origin := map[string]string{kueue.MultiKueueOriginLabel: "multikueue"}
		j := job(name, "1", "1")
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: origin}, Spec: kueue.WorkloadSpec{
			PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: j.Spec.Template}},
		}}
		j.Labels, j.Annotations, j.Spec.Suspend = origin, map[string]string{kueue.PrebuiltWorkloadLabel: "gone"}, new(true)
		return w, j
	}
	w, j := left("orphan")
	w1.create(w, j)
	wait.Until(t, "the orphans are collected", func() error {
		for _, o := range []client.Object{w, j} {
			if err := w1.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T: %w", o, err)
			}
		}
		return nil
	})
	collected := func(o *kueue.Workload) {
		t.Helper()
		w1.create(o)
		wait.Until(t, o.Name+" is collected", func() error {
			if err := w1.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
	again, _ := left("again")
	again.Labels = nil
	hub.create(again)
	embeddedtest.EditStatus(t, hub.Client, again, func(w *kueue.Workload) { // it may run on w1
		admission := &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}
		lifecycle.Machine{}.Reserve(w, admission, nil, metav1.Now())
		w.Status.NominatedClusterNames = []string{"w1"}
	})
	embeddedtest.EditStatus(t, hub.Client, again, func(w *kueue.Workload) { w.Status.ClusterName, w.Status.NominatedClusterNames = "w1", nil })
	before, _ := left("again")
	before.Annotations = map[string]string{multikueueplan.OriginUIDAnnotation: "before"}
	collected(before)
	its, _ := left("again")
	its.Annotations = map[string]string{multikueueplan.OriginUIDAnnotation: string(again.UID)}
	w1.create(its)
	next, _ := left("next")
	collected(next)
	if err := w1.Get(t.Context(), client.ObjectKeyFromObject(its), its); err != nil {
		t.Errorf("the copy of what is here: %v", err)
	}
	if err := hub.Delete(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	foreign, _ := left("foreign")
	foreign.Annotations = map[string]string{"multikueue.berth.dev/manager-uid": "another"}
	w1.create(foreign)
	conflict := func(want bool) func() error {
		return func() error {
			var c kueue.MultiKueueCluster
			if err := hub.Get(t.Context(), client.ObjectKey{Name: "w1"}, &c); err != nil {
				return err
			}
			if apimeta.IsStatusConditionTrue(c.Status.Conditions, kueue.MultiKueueClusterOriginConflict) != want {
				return fmt.Errorf("%+v", c.Status.Conditions)
			}
			return nil
		}
	}
	wait.Until(t, "the conflict is told", conflict(true))
	wait.Stays(t, 12*time.Second, "another manager's Workload is there", func() error { // two looks
		return w1.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign)
	})
	if err := w1.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the conflict is over", conflict(false))
}

// moves loses the worker of a Job, which moves to the other one and stays there.
func moves(t *testing.T, hub, w1, w2 *cluster) {
	t.Helper()
	hub.stopManager()
	hub.configure(frameworks + "multiKueue: {workerLostTimeout: 30s, gcInterval: 5s}\n")
	hub.startManager()
	j := job("moved", "1", endless)
	hub.create(j)
	at := hub.on(j)
	lost, other := w1, w2
	if at == w2.name {
		lost, other = w2, w1
	}
	connected := hub.connectedSince(other.name)
	lost.stopManager()
	if err := lost.down(); err != nil {
		t.Fatal(err)
	}
	hub.connection(at, metav1.ConditionFalse, kueue.ReasonClientConnectionFailed)
	wait.Until(t, "it moves", func() error {
		w, err := hub.workload(j)
		if err != nil {
			return err
		}
		if w.Status.ClusterName != other.name {
			return fmt.Errorf("%+v", w.Status)
		}
		return nil
	})
	hub.on(j)
	if err := lost.up(); err != nil {
		t.Fatal(err)
	}
	hub.connection(at, metav1.ConditionTrue, kueue.ReasonActive)
	wait.Until(t, "the old copy goes", func() error {
		err := lost.Get(t.Context(), client.ObjectKeyFromObject(j), &batchv1.Job{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("its job: %w", err)
		}
		return nil
	})
	lost.startManager()
	hub.finish(j, w1, w2)
	var w *kueue.Workload
	wait.Until(t, "its workload is finished", func() (err error) { // after its Job, which says so first
		if w, err = hub.workload(j); err == nil && !lifecycle.IsFinished(w) {
			err = fmt.Errorf("%+v", w.Status)
		}
		return err
	})
	if w.Status.ClusterName != other.name && hub.connectedSince(other.name).Equal(connected) { // a machine may be so slow that this one is lost too
		t.Errorf("it did not stay where it went: %+v", w.Status)
	}
	w1.empty()
	w2.empty()
}
