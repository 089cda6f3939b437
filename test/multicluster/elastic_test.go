package multicluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// elastic: jobs are resized on the hub while they run on the worker: the same objects there get the new size, and running pods continue.
func (w kindWorld) elastic(t *testing.T) func(t *testing.T) {
	t.Helper()
	w.hub.create(parse(t, `
apiVersion: batch/v1
kind: Job
metadata: {namespace: team, name: wide, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {kueue.x-k8s.io/elastic-job: "true"}}
spec: {parallelism: 2, completions: 8, template: `+template("600")+`}`),
		parse(t, `
apiVersion: ray.io/v1
kind: RayCluster
metadata: {namespace: team, name: wide, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {kueue.x-k8s.io/elastic-job: "true"}}
spec: `+rayCluster(template("600"))))
	return func(t *testing.T) {
		before := w.elasticJob(t, 2, nil)
		w.resize(t, "batch/v1", "Job", `{"spec":{"parallelism":4}}`)
		after := w.elasticJob(t, 4, before)
		w.resize(t, "batch/v1", "Job", `{"spec":{"parallelism":1}}`)
		w.elasticJob(t, 1, nil)
		if len(after) != 4 {
			t.Errorf("%d pods ran", len(after))
		}
		w.elasticCluster(t, 1)
		w.resize(t, "ray.io/v1", "RayCluster", `{"spec":{"workerGroupSpecs":[{"groupName":"small","replicas":3,"minReplicas":1,"maxReplicas":5,"template":%s}]}}`)
		w.elasticCluster(t, 3)
		w.resize(t, "ray.io/v1", "RayCluster", `{"spec":{"workerGroupSpecs":[{"groupName":"small","replicas":2,"minReplicas":1,"maxReplicas":5,"template":%s}]}}`)
		w.elasticCluster(t, 2)
		for _, kind := range [][2]string{{"batch/v1", "Job"}, {"ray.io/v1", "RayCluster"}} {
			u := wide(kind[0], kind[1])
			if err := w.hub.Delete(t.Context(), u, client.PropagationPolicy("Background")); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the worker has nothing of the "+kind[1], func() error {
				if err := w.worker.Get(t.Context(), client.ObjectKeyFromObject(u), u); !apierrors.IsNotFound(err) {
					return fmt.Errorf("it is there: %w", err)
				}
				if wl, err := workloadOf(t, w.worker, kind[1], "wide"); err == nil {
					return fmt.Errorf("workload %s", wl.Name)
				}
				return nil
			})
		}
	}
}

func wide(apiVersion, kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace("team")
	u.SetName("wide")
	return u
}

// resize changes the job on the hub. A template in the patch is that which is there.
func (w kindWorld) resize(t *testing.T, apiVersion, kind, patch string) {
	t.Helper()
	u := wide(apiVersion, kind)
	if err := w.hub.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	if groups, found, _ := unstructured.NestedSlice(u.Object, "spec", "workerGroupSpecs"); found {
		raw, err := json.Marshal(groups[0].(map[string]any)["template"])
		if err != nil {
			t.Fatal(err)
		}
		patch = fmt.Sprintf(patch, raw)
	}
	if err := w.hub.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// elasticJob waits until the Job has so many pods on the worker, all of which run, including the earlier ones. It returns them.
func (w kindWorld) elasticJob(t *testing.T, n int32, before map[types.UID]string) map[types.UID]string {
	t.Helper()
	var run map[types.UID]string
	key := client.ObjectKey{Namespace: "team", Name: "wide"}
	wait.Until(t, fmt.Sprintf("%d pods run there", n), func() error {
		var local, remote batchv1.Job
		if err := errors.Join(w.hub.Get(t.Context(), key, &local), w.worker.Get(t.Context(), key, &remote)); err != nil {
			return err
		}
		var pods corev1.PodList
		if err := w.worker.List(t.Context(), &pods, client.InNamespace("team"), client.MatchingLabels{batchv1.JobNameLabel: "wide"}); err != nil {
			return err
		}
		run = map[types.UID]string{}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				run[p.UID] = p.Name
			}
		}
		if *remote.Spec.Parallelism != n || local.Status.Active != n || int32(len(run)) != n {
			return fmt.Errorf("parallelism %d, %d active here, %d pods run of %d; Workload %s", *remote.Spec.Parallelism, local.Status.Active, len(run), len(pods.Items),
				remote.Annotations[kueue.PrebuiltWorkloadLabel])
		}
		return nil
	})
	w.sameSlices(t, "batch/v1", "Job")
	for uid, name := range before {
		if run[uid] == "" {
			t.Errorf("pod %s was started again; now there are %v", name, slices.Collect(maps.Values(run)))
		}
	}
	return run
}

// elasticCluster waits until the cluster has so many workers on the worker, by the slice that is admitted here.
func (w kindWorld) elasticCluster(t *testing.T, n int64) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("the cluster has %d workers", n), func() error {
		u := wide("ray.io/v1", "RayCluster")
		if err := w.worker.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		groups, _, _ := unstructured.NestedSlice(u.Object, "spec", "workerGroupSpecs")
		if got, _, _ := unstructured.NestedInt64(groups[0].(map[string]any), "replicas"); got != n {
			return fmt.Errorf("%d", got)
		}
		name := u.GetAnnotations()[kueue.PrebuiltWorkloadLabel]
		for _, c := range []*cluster{w.hub, w.worker} {
			var wl kueue.Workload
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, &wl); err != nil {
				return fmt.Errorf("on %s: %w", c.name, err)
			}
			if wl.Status.Admission == nil || int64(wl.Spec.PodSets[1].Count) != n {
				return fmt.Errorf("on %s: %d, conditions %+v", c.name, wl.Spec.PodSets[1].Count, wl.Status.Conditions)
			}
		}
		return nil
	})
	w.sameSlices(t, "ray.io/v1", "RayCluster")
}

// sameSlices waits until the named slice of the job on the worker is the same on both sides: as its user wrote it, without the fields
// that a start merges into the templates.
func (w kindWorld) sameSlices(t *testing.T, apiVersion, kind string) {
	t.Helper()
	wait.Until(t, "the slices of the "+kind+" are the same", func() error {
		u := wide(apiVersion, kind)
		if err := w.worker.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		var here, there kueue.Workload
		key := client.ObjectKey{Namespace: "team", Name: u.GetAnnotations()[kueue.PrebuiltWorkloadLabel]}
		if err := errors.Join(w.hub.Get(t.Context(), key, &here), w.worker.Get(t.Context(), key, &there)); err != nil {
			return err
		}
		if diff := cmp.Diff(here.Spec.PodSets, there.Spec.PodSets); diff != "" {
			return fmt.Errorf("-hub +worker:\n%s", diff)
		}
		for _, p := range here.Spec.PodSets {
			for _, key := range slices.Concat(slices.Collect(maps.Keys(p.Template.Labels)), slices.Collect(maps.Keys(p.Template.Annotations))) {
				if strings.HasPrefix(key, "kueue.x-k8s.io/") {
					return fmt.Errorf("pod set %s has %s", p.Name, key)
				}
			}
		}
		return nil
	})
}
