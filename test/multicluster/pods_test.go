package multicluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	planjob "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// pod is a pod that runs for so many seconds, of a group unless that is empty.
func (w kindWorld) pod(t *testing.T, name, group string, total int, seconds string) *corev1.Pod {
	t.Helper()
	members := ""
	if group != "" {
		members = fmt.Sprintf(`, kueue.x-k8s.io/pod-group-name: %s`, group)
	}
	u := parse(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  namespace: team
  name: %s
  labels: {kueue.x-k8s.io/queue-name: main, own: label%s}
  annotations: {berth.dev/run-seconds: %q, kueue.x-k8s.io/pod-group-total-count: "%d"}
spec: {restartPolicy: Never, containers: [{name: c, image: any, resources: {requests: {cpu: 100m}}}]}`, name, members, seconds, total))
	if group == "" {
		annotations := u.GetAnnotations()
		delete(annotations, kueue.PodGroupTotalCountAnnotation)
		u.SetAnnotations(annotations)
	}
	w.hub.create(u)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
}

// podOn reads a pod of a cluster.
func podOn(t *testing.T, c *cluster, name string) (*corev1.Pod, error) {
	t.Helper()
	var pod corev1.Pod
	return &pod, c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, &pod)
}

// podsRun waits until pods run on the worker, and say so on the hub, where they have a gate and no node.
func (w kindWorld) podsRun(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		wait.Until(t, name+" runs on the worker", func() error {
			remote, err := podOn(t, w.worker, name)
			if err != nil {
				return err
			}
			local, err := podOn(t, w.hub, name)
			switch {
			case err != nil:
				return err
			case remote.Spec.NodeName == "" || remote.Status.Phase != corev1.PodRunning || remote.DeletionTimestamp != nil:
				return fmt.Errorf("there: node %q, %s, %+v", remote.Spec.NodeName, remote.Status.Phase, remote.Spec.SchedulingGates)
			case local.Spec.NodeName != "" || !planjob.PodIsGated(local):
				t.Fatalf("it runs here: node %q, gates %v", local.Spec.NodeName, local.Spec.SchedulingGates)
			case local.Status.Phase != corev1.PodRunning || len(local.Status.ContainerStatuses) != 1:
				return fmt.Errorf("here: %+v", local.Status)
			case remote.Labels[kueue.MultiKueueOriginLabel] != "multikueue" || remote.Labels["own"] != "label" || len(remote.OwnerReferences) > 0 ||
				remote.Labels[kueue.MultiKueueWorkerWorkloadPodLabel] != "true":
				t.Fatalf("copied as %+v", remote.ObjectMeta)
			}
			return nil
		})
	}
}

// podsGone waits until the worker has none of some pods.
func (w kindWorld) podsGone(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		wait.Until(t, name+" is gone from the worker", func() error {
			pod, err := podOn(t, w.worker, name)
			if err == nil {
				return fmt.Errorf("finalizers %v, %s, deleted %v", pod.Finalizers, pod.Status.Phase, pod.DeletionTimestamp)
			}
			return client.IgnoreNotFound(err)
		})
	}
}

// workloadOf is the Workload that a pod owns, with or without others.
func workloadOf(t *testing.T, c *cluster, kind, name string) (*kueue.Workload, error) {
	t.Helper()
	var list kueue.WorkloadList
	if err := c.List(t.Context(), &list, client.InNamespace("team")); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list.Items, func(w kueue.Workload) bool {
		return slices.ContainsFunc(w.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == kind && r.Name == name })
	})
	if at < 0 {
		return nil, fmt.Errorf("no workload of %s %s", kind, name)
	}
	return &list.Items[at], nil
}

// podsFinish waits until pods have succeeded on the hub, their Workload is finished, and the worker has nothing of them.
func (w kindWorld) podsFinish(t *testing.T, names ...string) {
	t.Helper()
	wait.Until(t, "the pods finish here", func() error {
		for _, name := range names {
			local, err := podOn(t, w.hub, name)
			if err != nil || local.Status.Phase != corev1.PodSucceeded || slices.Contains(local.Finalizers, kueue.ManagedFinalizer) {
				return fmt.Errorf("%w: %s, finalizers %v", err, local.Status.Phase, local.Finalizers)
			}
			if wl, err := workloadOf(t, w.hub, "Pod", name); err != nil || !lifecycle.IsFinished(wl) ||
				lifecycle.Condition(wl, kueue.WorkloadFinished).Reason != kueue.ReasonSucceeded {
				return fmt.Errorf("%w: %+v", err, wl)
			}
		}
		return nil
	})
	w.podsGone(t, names...)
	for _, name := range names {
		if wl, err := workloadOf(t, w.worker, "Pod", name); err == nil {
			t.Errorf("the worker keeps workload %s", wl.Name)
		}
	}
}

// activate stops or starts a Workload.
func activate(t *testing.T, c *cluster, wl *kueue.Workload, active bool) {
	t.Helper()
	if err := c.Patch(t.Context(), wl, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"active":%v}}`, active))); err != nil {
		t.Fatal(err)
	}
}

func (w kindWorld) deletePod(t *testing.T, c *cluster, name string) {
	t.Helper()
	if err := c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// singlePods are the lives of pods by themselves: one ends, one is evicted by its worker and comes again, one is deleted here.
func (w kindWorld) singlePods(t *testing.T) func(t *testing.T) {
	t.Helper()
	w.pod(t, "brief", "", 0, "4")
	w.pod(t, "long", "", 0, "600")
	w.pod(t, "dropped", "", 0, "600")
	return func(t *testing.T) {
		w.podsFinish(t, "brief")
		w.podsRun(t, "long", "dropped")
		before, err := podOn(t, w.worker, "long")
		if err != nil {
			t.Fatal(err)
		}
		wl, err := workloadOf(t, w.worker, "Pod", "long")
		if err != nil {
			t.Fatal(err)
		}
		activate(t, w.worker, wl, false) // the worker evicts it
		wait.Until(t, "another copy is there", func() error {
			pod, err := podOn(t, w.worker, "long")
			if err == nil && pod.UID == before.UID {
				return errors.New("the same pod")
			}
			return err
		})
		w.podsRun(t, "long")
		w.deletePod(t, w.hub, "dropped")
		w.podsGone(t, "dropped")
		wait.Until(t, "it is gone here", func() error {
			_, err := podOn(t, w.hub, "dropped")
			if err == nil {
				return errors.New("it is there")
			}
			return client.IgnoreNotFound(err)
		})
		w.deletePod(t, w.hub, "long")
		w.podsGone(t, "long")
	}
}

// podGroup is the life of a group: evicted and dispatched again, one pod deleted while the manager is away and replaced, one lost on the
// worker, all finished.
func (w kindWorld) podGroup(t *testing.T) func(t *testing.T) {
	t.Helper()
	names := []string{"crew-0", "crew-1", "crew-2"}
	for _, name := range names {
		w.pod(t, name, "crew", 3, "600")
	}
	short := []string{"squad-0", "squad-1"}
	for _, name := range short {
		w.pod(t, name, "squad", 2, "4")
	}
	return func(t *testing.T) {
		w.podsFinish(t, short...)
		w.podsRun(t, names...)
		wl, err := workloadOf(t, w.hub, "Pod", "crew-0")
		if err != nil {
			t.Fatal(err)
		}
		activate(t, w.hub, wl, false)
		w.podsGone(t, names...)
		wait.Until(t, "the quota is free and the pods wait", func() error {
			if now, err := workloadOf(t, w.hub, "Pod", "crew-0"); err != nil || lifecycle.IsReserved(now) {
				return fmt.Errorf("%w: %+v", err, now.Status.Conditions)
			}
			for _, name := range names {
				if pod, err := podOn(t, w.hub, name); err != nil || pod.Status.Phase != corev1.PodPending || !planjob.PodIsGated(pod) {
					return fmt.Errorf("%w: %+v", err, pod.Status)
				}
			}
			return nil
		})
		activate(t, w.hub, wl, true)
		w.podsRun(t, names...)
		w.hub.stopManager()
		w.deletePod(t, w.hub, "crew-1")
		w.hub.startManager()
		w.podsGone(t, "crew-1")
		w.pod(t, "crew-3", "crew", 3, "600")
		names[1] = "crew-3"
		w.podsRun(t, names...)
		lost, err := podOn(t, w.worker, "crew-2")
		if err != nil {
			t.Fatal(err)
		}
		w.deletePod(t, w.worker, "crew-2") // a user of the worker does
		wait.Until(t, "what was lost there runs again, or has failed here", func() error {
			if pod, err := podOn(t, w.worker, "crew-2"); err == nil && pod.UID != lost.UID {
				return nil
			}
			if pod, err := podOn(t, w.hub, "crew-2"); err != nil || pod.Status.Phase != corev1.PodFailed {
				return fmt.Errorf("%w: %s", err, pod.Status.Phase)
			}
			return nil
		})
		if err := w.hub.Delete(t.Context(), wl); err != nil {
			t.Fatal(err)
		}
		w.podsGone(t, names...)
	}
}

// statefulSet is the life of one: its pods run on the worker alone, it is scaled to nothing and back, and deleted.
func (w kindWorld) statefulSet(t *testing.T) func(t *testing.T) {
	t.Helper()
	key := client.ObjectKey{Namespace: "team", Name: "store"}
	w.hub.create(parse(t, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: team, name: store, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  serviceName: store
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: store}}
  template: {metadata: {labels: {app: store}}, spec: {containers: [{name: c, image: any, resources: {requests: {cpu: 100m}}}]}}`))
	runs := func(t *testing.T) {
		t.Helper()
		wait.Until(t, "it is ready on the worker", func() error {
			var local, remote appsv1.StatefulSet
			if err := errors.Join(w.hub.Get(t.Context(), key, &local), w.worker.Get(t.Context(), key, &remote)); err != nil {
				wl, none := workloadOf(t, w.hub, "StatefulSet", "store")
				return fmt.Errorf("%w; its workload: %+v (%w)", err, wl, none)
			}
			if remote.Status.ReadyReplicas != 2 || remote.Annotations[kueue.MultiKueueOriginUIDAnnotation] != string(local.UID) {
				return fmt.Errorf("%+v, annotations %v", remote.Status, remote.Annotations)
			}
			return nil
		})
		for _, name := range []string{"store-0", "store-1"} {
			if pod, err := podOn(t, w.hub, name); err != nil || pod.Spec.NodeName != "" || !planjob.PodIsGated(pod) {
				t.Errorf("here: %v, node %q, gates %v", err, pod.Spec.NodeName, pod.Spec.SchedulingGates)
			}
		}
	}
	leaves := func(t *testing.T) {
		t.Helper()
		wait.Until(t, "the worker has nothing of it", func() error {
			err := w.worker.Get(t.Context(), key, &appsv1.StatefulSet{})
			if wl, none := workloadOf(t, w.worker, "StatefulSet", "store"); err == nil || none == nil {
				return fmt.Errorf("%w, workload %v", err, wl)
			}
			return client.IgnoreNotFound(err)
		})
		w.podsGone(t, "store-0", "store-1")
	}
	scale := func(t *testing.T, n int) {
		t.Helper()
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		wait.Until(t, fmt.Sprintf("it can be scaled to %d", n), func() error {
			return w.hub.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)))
		})
	}
	return func(t *testing.T) {
		runs(t)
		scale(t, 0)
		leaves(t)
		scale(t, 2)
		runs(t)
		w.quotaOutlastsPods(t, "StatefulSet", "store", "store-0", "store-1")
		runs(t)
		if err := w.hub.Delete(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
			t.Fatal(err)
		}
		leaves(t)
	}
}

// quotaOutlastsPods evicts the Workload of an object without a status from the worker, while the pods there do not stop: the quota here
// is not released before they have ended there. Then it is dispatched again.
func (w kindWorld) quotaOutlastsPods(t *testing.T, kind, name string, pods ...string) {
	t.Helper()
	var (
		wl  *kueue.Workload
		err error
	)
	wait.Until(t, "it is said that it runs", func() error {
		if wl, err = workloadOf(t, w.hub, kind, name); err == nil && !lifecycle.RunsRemotely(wl) {
			err = errors.New("it is not")
		}
		return err
	})
	w.worker.stopManager()
	activate(t, w.hub, wl, false)
	wait.Until(t, "it is evicted here", func() error {
		if wl, err = workloadOf(t, w.hub, kind, name); err == nil && !lifecycle.IsEvicted(wl) {
			err = fmt.Errorf("%+v", wl.Status.Conditions)
		}
		return err
	})
	wait.Stays(t, 4*time.Second, "its quota is not given back while its pods run", func() error {
		if wl, err = workloadOf(t, w.hub, kind, name); err == nil && !lifecycle.IsReserved(wl) {
			err = fmt.Errorf("%+v", wl.Status.Conditions)
		}
		return err
	})
	before := map[string]types.UID{}
	for _, pod := range pods {
		p, err := podOn(t, w.worker, pod)
		if err != nil || p.Status.Phase != corev1.PodRunning {
			t.Fatalf("%v: %s does not run: %s", err, pod, p.Status.Phase)
		}
		before[pod] = p.UID
	}
	w.worker.startManager()
	wait.Until(t, "the quota is given back", func() error {
		if wl, err = workloadOf(t, w.hub, kind, name); err == nil && lifecycle.IsReserved(wl) {
			err = fmt.Errorf("%+v", wl.Status.Conditions)
		}
		return err
	})
	for _, pod := range pods {
		if p, err := podOn(t, w.worker, pod); err == nil && p.UID == before[pod] && p.DeletionTimestamp == nil {
			t.Errorf("%s runs on, and its quota is free", pod)
		}
	}
	if lifecycle.RunsRemotely(wl) {
		t.Errorf("it is said to run still: %+v", wl.Status.Conditions)
	}
	activate(t, w.hub, wl, true)
}

// leaderWorkerSet is the life of one of two groups: both Workloads are dispatched to the worker, with one object, which stays as long as
// one of them does.
func (w kindWorld) leaderWorkerSet(t *testing.T, d *planjob.Descriptor) func(t *testing.T) {
	t.Helper()
	w.hub.create(parse(t, `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {namespace: team, name: serve, labels: {kueue.x-k8s.io/queue-name: main}}
spec: {replicas: 2, leaderWorkerTemplate: {size: 2, workerTemplate: `+template("600")+`}}`))
	key := client.ObjectKey{Namespace: "team", Name: "serve"}
	get := func(t *testing.T, c *cluster) (*unstructured.Unstructured, []*kueue.Workload, error) {
		t.Helper()
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(d.GVK)
		var list kueue.WorkloadList
		if err := c.List(t.Context(), &list, client.InNamespace("team")); err != nil {
			return nil, nil, err
		}
		var of []*kueue.Workload
		for i := range list.Items {
			if list.Items[i].Annotations[kueue.JobOwnerNameAnnotation] == key.Name && list.Items[i].Annotations[kueue.JobOwnerGVKAnnotation] == d.GVK.String() {
				of = append(of, &list.Items[i])
			}
		}
		return u, of, c.Get(t.Context(), key, u)
	}
	admitted := func(t *testing.T, n int) []*kueue.Workload {
		t.Helper()
		var all []*kueue.Workload
		wait.Until(t, fmt.Sprintf("%d groups are on the worker", n), func() error {
			local, own, err := get(t, w.hub)
			if err != nil {
				return err
			}
			remote, copies, err := get(t, w.worker)
			if err != nil {
				return fmt.Errorf("%w; %d copies", err, len(copies))
			}
			if remote.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation] != string(local.GetUID()) || remote.GetAnnotations()[kueue.PrebuiltWorkloadLabel] != "" {
				return fmt.Errorf("copied as %v", remote.GetAnnotations())
			}
			on := 0
			for _, wl := range own {
				if wl.Status.ClusterName == w.worker.name && lifecycle.IsAdmitted(wl) {
					on++
				}
			}
			if on != n || len(copies) != n {
				return fmt.Errorf("%d of %d are, with %d copies", on, len(own), len(copies))
			}
			if here, there := groupsOf(local), groupsOf(remote); here != there {
				return fmt.Errorf("%d replicas here, %d there", here, there)
			}
			all = own
			return nil
		})
		return all
	}
	return func(t *testing.T) {
		all := admitted(t, 2)
		activate(t, w.hub, all[0], false)
		admitted(t, 1) // and the object stays
		activate(t, w.hub, all[0], true)
		admitted(t, 2)
		first, err := uidThere(t, w.worker, d, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{4, 1, 2} {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(d.GVK)
			u.SetNamespace(key.Namespace)
			u.SetName(key.Name)
			if err := w.hub.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))); err != nil {
				t.Fatal(err)
			}
			admitted(t, n)
		}
		if last, err := uidThere(t, w.worker, d, key); err != nil || last != first {
			t.Errorf("%v: it was made anew to be scaled", err)
		}
		local, _, err := get(t, w.hub)
		if err == nil {
			err = w.hub.Delete(t.Context(), local)
		}
		if err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the worker has nothing of it", func() error {
			_, copies, err := get(t, w.worker)
			if !apierrors.IsNotFound(err) || len(copies) > 0 {
				return fmt.Errorf("%w, %d copies", err, len(copies))
			}
			return nil
		})
	}
}

// groupsOf is how many groups a LeaderWorkerSet asks for.
func groupsOf(u *unstructured.Unstructured) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	return n
}

// uidThere is the UID of an object on a cluster.
func uidThere(t *testing.T, c *cluster, d *planjob.Descriptor, key client.ObjectKey) (types.UID, error) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(d.GVK)
	err := c.Get(t.Context(), key, u)
	return u.GetUID(), err
}
