package multicluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

var (
	pipelineRun = schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "PipelineRun"}
	crew        = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Crew"}
)

// crewKind describes Crews on the hub. Nothing on the worker knows them but their operator.
const crewKind = `
  - name: Crew.v1.example.com
    suspend: {path: spec.hold}
    podSets: '[{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}]'
    started: has(object.status) && has(object.status.phase) && object.status.phase == "Running"
    finished: 'has(object.status) && has(object.status.phase) && object.status.phase in ["Done", "Broken"] ? {"success": object.status.phase == "Done", "message": object.status.phase} : {}'
`

// crewFramework has the manager start and end Crews on workers.
const crewFramework = `
  - name: Crew.v1.example.com
    managedBy: {path: ".metadata.annotations['example.com/by']", value: hub}
    creation:
      mutations:
      - name: go
        patchType: ApplyConfiguration
        applyConfiguration: {expression: 'Object{spec: Object.spec{hold: false, where: cluster.name}}'}
      - name: refuse
        patchType: JSONPatch
        jsonPatch: {expression: 'has(object.spec.evil) ? [JSONPatch{op: "add", path: "/metadata/finalizers", value: ["x.dev/f"]}] : []'}
    lifecycle:
      workerIntegration: None
      finished: 'has(remoteObject.status) && has(remoteObject.status.phase) && remoteObject.status.phase in ["Done", "Broken"] ? {"done": true, "success": remoteObject.status.phase == "Done", "message": "the crew says " + remoteObject.status.phase} : {}'
      active: has(remoteObject.status) && has(remoteObject.status.phase) && remoteObject.status.phase == "Running"
`

// TestExternalFrameworks is spec 40 §7.46, §7.50, §7.51, §7.57 and §4.13.7: PipelineRuns that a controller on the worker starts and ends, and Crews
// that the manager does.
func TestExternalFrameworks(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two control planes")
	}
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "multicluster", "tekton.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(raw), "kind: Configuration\n")
	kinds, frameworks, ok := strings.Cut(text, "multiKueue:\n  externalFrameworks:\n")
	if !ok {
		t.Fatal("the example has another form")
	}
	clusters := startWith(t, []string{"hub", "w1"}, map[string]string{
		"hub": kinds + crewKind[1:] + "multiKueue:\n  gcInterval: 5s\n  externalFrameworks:\n" + frameworks + crewFramework[1:], "w1": kinds,
	}, func(c *cluster) {
		c.create(embeddedtest.LooseCRD(pipelineRun, "pipelineruns"), embeddedtest.LooseCRD(crew, "crews"))
	})
	hub, w1 := clusters[0], clusters[1]
	hub.workers(w1)
	hub.queues("100", "workers")
	w1.queues("100")
	for _, c := range clusters {
		patch := `[{"op":"add","path":"/spec/resourceGroups/-","value":{"coveredResources":["memory","tekton.dev/pipelineruns"],` +
			`"flavors":[{"name":"default-runs","resources":[{"name":"memory","nominalQuota":"1Gi"},{"name":"tekton.dev/pipelineruns","nominalQuota":10}]}]}}]`
		c.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default-runs"}})
		if err := c.Patch(t.Context(), &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	hub.connection("w1", metav1.ConditionTrue, kueue.ReasonActive)

	create := func(t *testing.T, gvk schema.GroupVersionKind, name, annotations, spec string) func(*cluster) (*unstructured.Unstructured, error) {
		hub.create(parse(t, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {namespace: team, name: %s, labels: {kueue.x-k8s.io/queue-name: main}, annotations: %s}\nspec: %s",
			gvk.GroupVersion(), gvk.Kind, name, annotations, spec)))
		return func(c *cluster) (*unstructured.Unstructured, error) {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			return u, c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, u)
		}
	}
	says := func(t *testing.T, get func(*cluster) (*unstructured.Unstructured, error), patch string) {
		t.Helper()
		u, err := get(w1)
		if err == nil {
			err = w1.Status().Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"status":`+patch+`}`)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	workload := func(get func(*cluster) (*unstructured.Unstructured, error)) (*kueue.Workload, error) {
		u, err := get(hub)
		if err != nil {
			return nil, err
		}
		return hub.controlled(u)
	}
	ends := func(t *testing.T, get func(*cluster) (*unstructured.Unstructured, error), reason, message string) {
		t.Helper()
		wait.Until(t, "it ends here as there", func() error {
			w, err := workload(get)
			if err != nil {
				return err
			}
			if c := lifecycle.Condition(w, kueue.WorkloadFinished); c == nil || c.Reason != reason || !strings.Contains(c.Message, message) {
				return fmt.Errorf("%+v", w.Status.Conditions)
			}
			return nil
		})
		wait.Until(t, "nothing stays there", func() error {
			if _, err := get(w1); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the job: %w", err)
			}
			return nil
		})
	}
	rejected := func(t *testing.T, get func(*cluster) (*unstructured.Unstructured, error), code, _ string) {
		t.Helper()
		wait.Until(t, "it is rejected", func() error {
			w, err := workload(get)
			if err != nil {
				return err
			}
			if lifecycle.IsActive(w) {
				return fmt.Errorf("checks %+v", w.Status.AdmissionChecks)
			}
			if told := fmt.Sprintf("%+v", w.Status); !strings.Contains(told, code) {
				return fmt.Errorf("nothing says %s: %s", code, told)
			}
			return nil
		})
		if _, err := get(w1); !apierrors.IsNotFound(err) {
			t.Errorf("there: %v", err)
		}
	}

	t.Run("a PipelineRun runs there, and its cancellation reaches it", func(t *testing.T) {
		get := create(t, pipelineRun, "run", "{results.tekton.dev/record: hub, keep: me}", "{managedBy: kueue.x-k8s.io/multikueue, pipelineRef: {name: build}}")
		wait.Until(t, "it runs there", func() error {
			u, err := get(w1)
			if err != nil {
				w, _ := workload(get)
				return fmt.Errorf("%w, %+v", err, w)
			}
			if status, found, _ := unstructured.NestedString(u.Object, "spec", "status"); found {
				return fmt.Errorf("spec.status is %s", status)
			}
			return nil
		})
		u, err := get(w1)
		if err != nil {
			t.Fatal(err)
		}
		mine, err := get(hub)
		if err != nil {
			t.Fatal(err)
		}
		if _, found, _ := unstructured.NestedString(u.Object, "spec", "managedBy"); found || u.GetAnnotations()["results.tekton.dev/record"] != "" ||
			u.GetAnnotations()["keep"] != "me" || u.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation] != string(mine.GetUID()) {
			t.Errorf("the copy: %+v", u.Object)
		}
		says(t, get, `{"startTime":"2026-01-02T03:04:05Z","conditions":[{"type":"Succeeded","status":"Unknown","reason":"Running","message":"m"}]}`)
		annotated := func(patch, record, signed string) {
			t.Helper()
			if err := w1.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":`+patch+`}}`))); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "status and records are here", func() error {
				local, err := get(hub)
				if err != nil {
					return err
				}
				start, _, _ := unstructured.NestedString(local.Object, "status", "startTime")
				if has := local.GetAnnotations(); start == "" || has["results.tekton.dev/record"] != record || has["chains.tekton.dev/signed"] != signed {
					return fmt.Errorf("%+v", local.Object)
				}
				return nil
			})
		}
		annotated(`{"chains.tekton.dev/signed":"true"}`, "hub", "true") // the copy never had the record of the hub
		annotated(`{"results.tekton.dev/record":"worker"}`, "worker", "true")
		hub.stopManager()
		hub.startManager()
		annotated(`{"chains.tekton.dev/signed":null}`, "worker", "")
		if err := hub.Patch(t.Context(), mine, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"status":"Cancelled"}}`))); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "it is cancelled there", func() error {
			u, err := get(w1)
			if err != nil {
				return err
			}
			if status, _, _ := unstructured.NestedString(u.Object, "spec", "status"); status != "Cancelled" {
				return fmt.Errorf("spec.status is %q", status)
			}
			return nil
		})
		says(t, get, `{"completionTime":"2026-01-02T03:05:05Z","conditions":[{"type":"Succeeded","status":"False","reason":"Cancelled","message":"was cancelled"}]}`)
		ends(t, get, kueue.ReasonFailed, "was cancelled")
	})
	t.Run("a PipelineRun that cannot move", func(t *testing.T) {
		get := create(t, pipelineRun, "tied", "{a: b}", "{managedBy: kueue.x-k8s.io/multikueue, workspaces: [{name: w, persistentVolumeClaim: {claimName: c}}]}")
		rejected(t, get, "", "")
	})
	t.Run("a Crew that the manager ends", func(t *testing.T) {
		get := create(t, crew, "sails", "{example.com/by: hub}", "{size: 1}")
		wait.Until(t, "it is there", func() error {
			u, err := get(w1)
			if err != nil {
				w, _ := workload(get)
				return fmt.Errorf("%w, %+v", err, w)
			}
			hold, _, _ := unstructured.NestedBool(u.Object, "spec", "hold")
			if where, _, _ := unstructured.NestedString(u.Object, "spec", "where"); where != "w1" || hold || u.GetAnnotations()["example.com/by"] != "" {
				t.Errorf("the copy: %+v", u.Object)
			}
			return nil
		})
		says(t, get, `{"phase":"Running"}`)
		says(t, get, `{"phase":"Done"}`)
		ends(t, get, kueue.ReasonSucceeded, "Done") // the hub may see it for itself
	})
	t.Run("a Crew that its worker evicts", func(t *testing.T) {
		get := create(t, crew, "evicted", "{example.com/by: hub}", "{size: 1}")
		var uid types.UID
		wait.Until(t, "it is there", func() error {
			u, err := get(w1)
			uid = u.GetUID()
			return err
		})
		says(t, get, `{"phase":"Running"}`)
		wait.Until(t, "it seems to run here", func() error {
			u, err := get(hub)
			if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); err == nil && phase != "Running" {
				err = fmt.Errorf("phase %q", phase)
			}
			return err
		})
		w, err := workload(get)
		if err != nil {
			t.Fatal(err)
		}
		there := &kueue.Workload{}
		if err := w1.Get(t.Context(), client.ObjectKeyFromObject(w), there); err != nil {
			t.Fatal(err)
		}
		if err := w1.Patch(t.Context(), there, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":false}}`))); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "it is made anew", func() error {
			u, err := get(w1)
			if err != nil {
				copied := &kueue.Workload{}
				gone := w1.Get(t.Context(), client.ObjectKeyFromObject(w), copied)
				w, _ := workload(get)
				return fmt.Errorf("%w; the workload: %+v; its copy: %w, active %v, %+v", err, w.Status, gone, lifecycle.IsActive(copied), copied.Status)
			}
			if u.GetUID() == uid {
				return fmt.Errorf("it is the old one")
			}
			return nil
		})
		u, err := get(hub)
		if err == nil {
			err = hub.Delete(t.Context(), u)
		}
		if err != nil {
			t.Fatal(err)
		}
		w1.empty()
	})
	t.Run("a Crew whose copy would touch what it may not", func(t *testing.T) {
		get := create(t, crew, "evil", "{example.com/by: hub}", "{evil: true}")
		rejected(t, get, "", "")
		w1.empty()
	})
	t.Run("a Crew of somebody else's", func(t *testing.T) {
		get := create(t, crew, "other", "{example.com/by: me}", "{size: 1}")
		rejected(t, get, "", "")
	})
}
