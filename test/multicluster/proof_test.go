package multicluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestFailures: failures around one manager and two workers, of which the second is a manager itself, with an origin of its own.
func TestFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three control planes")
	}
	t.Parallel()
	all := start(t, []string{"hub", "w1", "w2"}, map[string]string{
		"hub": frameworks + "multiKueue: {workerLostTimeout: 5m, gcInterval: 3s}\n", "w1": frameworks,
		"w2": frameworks + "multiKueue: {origin: west, gcInterval: 3s}\n",
	})
	hub, w1, w2 := all[0], all[1], all[2]
	hub.workers(w1, w2)
	hub.queues("100", "workers")
	w1.queues("4")
	w2.queues("2")
	for _, name := range []string{"w1", "w2"} {
		hub.connection(name, metav1.ConditionTrue, kueue.ReasonActive)
	}
	t.Run("the manager is killed at every write of a job's life", func(t *testing.T) { killAtEveryWrite(t, hub, w1, w2) })
	t.Run("two managers share a worker", func(t *testing.T) { twoManagers(t, hub, w1, w2) })
	t.Run("a token is revoked and another one is given", func(t *testing.T) { revokedToken(t, hub, w1) })
	t.Run("a worker is restored from an old state", func(t *testing.T) { restoredWorker(t, hub, w1, w2) })
}

// killAtEveryWrite kills the manager at one of the first writes of a run on any cluster, at a later one, and so on, until it survives: at
// every sixth write, and with -long at every one.
func killAtEveryWrite(t *testing.T, hub, w1, w2 *cluster) {
	step := 6
	if embeddedtest.Long() {
		step = 1
	}
	for n := 1 + embeddedtest.Random(t).IntN(step); ; n += step {
		var killed atomic.Bool
		dead := make(chan struct{})
		manager := hub.manager
		book := &ledger{counts: map[string]int{}, seen: func(seen int) {
			if seen == n && killed.CompareAndSwap(false, true) {
				manager.Kill()
				close(dead)
			}
		}}
		for _, c := range []*cluster{hub, w1, w2} {
			book.follow(t, c, kueue.GroupVersion.WithKind("Workload"))
			book.follow(t, c, batchv1.SchemeGroupVersion.WithKind("Job"))
		}
		j := job(fmt.Sprintf("killed-%02d", n), "1", "1")
		hub.create(j)
		until := func(what string, check func() error) {
			t.Helper()
			wait.Until(t, what, func() error {
				select {
				case <-dead:
					dead = nil
					hub.startManager()
				default:
				}
				return check()
			})
		}
		both := 0
		until(j.Name+" ends", func() error {
			if runsOn(w1, j)+runsOn(w2, j) > 1 {
				both++
			}
			w, err := hub.workload(j)
			if err != nil {
				return err
			}
			if !lifecycle.IsFinished(w) {
				return fmt.Errorf("%+v", w.Status)
			}
			return nil
		})
		if both > 0 {
			t.Errorf("killed at write %d: it was running on both workers", n)
		}
		until(j.Name+" completes", func() error { return hub.complete(j) })
		until("w1 holds nothing", w1.holdsNothing)
		until("w2 holds nothing", w2.holdsNothing)
		book.close()
		until("the manager lives", func() error { return hub.manager.Ready() }) // after a kill at the last write
		if err := hub.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "its workload goes with it", func() error { // the next watch begins with what is there
			var workloads kueue.WorkloadList
			var jobs batchv1.JobList
			if err := errors.Join(hub.List(t.Context(), &workloads), hub.List(t.Context(), &jobs)); err != nil {
				return err
			}
			if len(workloads.Items)+len(jobs.Items) > 0 {
				return fmt.Errorf("%d workloads, %d jobs", len(workloads.Items), len(jobs.Items))
			}
			return nil
		})
		if !killed.Load() {
			if n < 12 {
				t.Errorf("only %d writes in a whole life: the test lost its way", n-1)
			}
			return
		}
	}
}

// runsOn is 1 if pods of a job run on a cluster.
func runsOn(c *cluster, j *batchv1.Job) int {
	var there batchv1.Job
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(j), &there); err != nil || there.Status.Active == 0 || there.DeletionTimestamp != nil {
		return 0
	}
	return 1
}

// twoManagers dispatches jobs from w2 to w1 as well, while the hub does.
func twoManagers(t *testing.T, hub, w1, w2 *cluster) {
	w2.workers(w1)
	w2.connection("w1", metav1.ConditionTrue, kueue.ReasonActive)
	far := func(c *cluster, checks ...kueue.AdmissionCheckStrategyRule) {
		var cq kueue.ClusterQueue
		if err := c.Get(t.Context(), client.ObjectKey{Name: "team"}, &cq); err != nil {
			t.Fatal(err)
		}
		cq.ObjectMeta = metav1.ObjectMeta{Name: "far"}
		cq.Status = kueue.ClusterQueueStatus{}
		if len(checks) > 0 {
			cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: checks}
		}
		c.create(&cq, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "far"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "far"}})
	}
	far(w1)
	far(w2, kueue.AdmissionCheckStrategyRule{Name: "workers"})
	ours, theirs := job("ours", "3", endless), job("theirs", "2", endless) // ours fits w1 only
	theirs.Labels[kueue.QueueNameLabel] = "far"
	hub.create(ours)
	w2.create(theirs)
	hub.on(ours)
	w2.on(theirs)
	wait.Stays(t, 30*time.Second, "neither manager takes the other's for an orphan", func() error { // ten looks
		for _, j := range []*batchv1.Job{ours, theirs} {
			if err := w1.Get(t.Context(), client.ObjectKeyFromObject(j), &batchv1.Job{}); err != nil {
				return err
			}
		}
		return nil
	})
	hub.finish(ours, w1)
	w2.finish(theirs, w1)
	for c, j := range map[*cluster]*batchv1.Job{hub: ours, w2: theirs} {
		w, err := c.workload(j)
		if err != nil || w.Status.ClusterName != "w1" || w.Status.AdmissionChecks[0].RetryCount != nil {
			t.Errorf("%s on %s: %v, %+v", j.Name, c.name, err, w.Status)
		}
	}
	w1.empty()
}

// revokedToken uses a token on the hub, which expires, and then another one.
func revokedToken(t *testing.T, hub, w1 *cluster) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hub"}}
	w1.create(account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hub"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "hub"}},
	})
	request := &authenticationv1.TokenRequest{}
	if err := w1.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	good := w1.inline()
	config, err := clientcmd.Load(good)
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	withToken, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "w1"}}
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
	write(withToken)
	first := job("with-token", "3", "1")
	hub.create(first)
	hub.completes(first)
	w1.empty()
	if err := w1.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the token is not good any more", func() error { // the API server keeps its answer for a while
		cfg, err := clientcmd.RESTConfigFromKubeConfig(withToken)
		if err != nil {
			return err
		}
		c, err := client.New(cfg, client.Options{Scheme: w1.Scheme()})
		if err != nil && !apierrors.IsUnauthorized(err) {
			return err
		}
		if err == nil {
			err = c.List(t.Context(), &kueue.WorkloadList{})
		}
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("it says %w", errors.Join(err, errors.New("nothing about credentials")))
		}
		return nil
	})
	second := job("without-token", "3", "1") // fits w1 only, and is what finds out
	hub.create(second)
	hub.connection("w1", metav1.ConditionFalse, kueue.ReasonClientConnectionFailed)
	write(good)
	hub.connection("w1", metav1.ConditionTrue, kueue.ReasonActive)
	hub.completes(second)
	w1.empty()
}

// restoredWorker takes w1 back to a state in which an earlier job ran there and the present one did not exist.
func restoredWorker(t *testing.T, hub, w1, w2 *cluster) {
	earlier, present := job("earlier", "3", endless), job("present", "3", endless) // both fit w1 only
	hub.create(earlier)
	hub.on(earlier)
	saved := t.TempDir()
	stopped := func(do func()) {
		t.Helper()
		w1.stopManager()
		if err := w1.down(); err != nil {
			t.Fatal(err)
		}
		do()
		if err := w1.up(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		hub.connection("w1", metav1.ConditionTrue, kueue.ReasonActive)
		t.Logf("reconnected after %s", time.Since(began))
		w1.startManager()
	}
	copyTo := func(from, to string) {
		t.Helper()
		if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	stopped(func() {
		hub.connection("w1", metav1.ConditionFalse, kueue.ReasonClientConnectionFailed)
		copyTo(w1.dir, saved)
	})
	hub.finish(earlier, w1)
	w1.empty()
	hub.create(present)
	hub.on(present)
	stopped(func() {
		hub.connection("w1", metav1.ConditionFalse, kueue.ReasonClientConnectionFailed)
		if err := os.RemoveAll(w1.dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(w1.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		copyTo(saved, w1.dir)
	})
	wait.Until(t, "what is back from the past goes", func() error {
		err := w1.Get(t.Context(), client.ObjectKeyFromObject(earlier), &batchv1.Job{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("its job: %w", errors.Join(err, errors.New("is there")))
		}
		return nil
	})
	hub.finish(present, w1)
	var w *kueue.Workload
	wait.Until(t, "its workload is finished", func() (err error) { // after its Job, which says so first
		if w, err = hub.workload(present); err == nil && !lifecycle.IsFinished(w) {
			err = fmt.Errorf("%+v", w.Status.Conditions)
		}
		return err
	})
	if w.Status.AdmissionChecks[0].RetryCount != nil || w.Status.ClusterName != "w1" {
		t.Errorf("it was not created there again: %+v", w.Status)
	}
	if w, err := hub.workload(earlier); err != nil || !lifecycle.IsFinished(w) {
		t.Errorf("what was finished is not any more: %v", err)
	}
	w1.empty()
	w2.empty()
}
