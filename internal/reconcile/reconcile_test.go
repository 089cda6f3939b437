package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

func TestOutcomes(t *testing.T) {
	resource := schema.GroupResource{Resource: "x"}
	plain := errors.New("plain")
	tests := map[string]struct {
		outcome reconcile.Outcome
		again   bool // soon, without an error
		err     error
	}{
		"done":                  {reconcile.Done(), false, nil},
		"wait":                  {reconcile.Wait(time.Hour), true, nil},
		"wait for the past":     {reconcile.Wait(-time.Hour), true, nil},
		"retry nothing":         {reconcile.Retry(nil), false, nil},
		"retry":                 {reconcile.Retry(plain), false, plain},
		"conflict":              {reconcile.Retry(fmt.Errorf("w: %w", apierrors.NewConflict(resource, "n", plain))), true, nil},
		"exists already":        {reconcile.Retry(apierrors.NewAlreadyExists(resource, "n")), true, nil},
		"is gone":               {reconcile.Retry(apierrors.NewNotFound(resource, "n")), true, nil},
		"the manager is ending": {reconcile.Retry(fmt.Errorf("w: %w", context.Canceled)), false, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			result, err := tc.outcome.Result(t.Context())
			if !errors.Is(err, tc.err) || (result.RequeueAfter > 0) != tc.again {
				t.Errorf("got %v, %v", result, err)
			}
		})
	}
	if _, err := reconcile.Stalled(plain).Result(t.Context()); !errors.Is(err, ctrlreconcile.TerminalError(nil)) || !errors.Is(err, plain) {
		t.Errorf("stalled is %v", err)
	}
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(embeddedtest.Config(t), client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := config.FS.ReadFile(path.Join("crd", "kueue.x-k8s.io_workloads.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &crd); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the CRD is served", func() error { return c.List(t.Context(), &kueue.WorkloadList{}) })
	return c
}

func newWorkload(t *testing.T, c client.Client, name string) *kueue.Workload {
	t.Helper()
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
		}}}},
	}
	if err := c.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return w
}

func reserve(w *kueue.Workload) bool {
	admission := &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}
	return lifecycle.Machine{}.Reserve(w, admission, nil, metav1.Now())
}

func managers(w *kueue.Workload) []string {
	var out []string
	for _, f := range w.ManagedFields {
		if f.Subresource == "status" {
			out = append(out, f.Manager+" "+string(f.Operation))
		}
	}
	slices.Sort(out)
	return out
}

func TestWorkloadStatus(t *testing.T) {
	c := newClient(t)
	ctx := t.Context()
	status := reconcile.NewWorkloadStatus(c)
	// bump changes the object, so that earlier reads are outdated.
	bump := func(w *kueue.Workload) {
		t.Helper()
		other := w.DeepCopy()
		other.Labels = map[string]string{"bumped": "yes"}
		if err := c.Update(ctx, other); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("written by apply, as one manager, with all it owns", func(t *testing.T) {
		w := newWorkload(t, c, "plain")
		stored, wrote, err := status.Transition(ctx, w, reserve)
		if err != nil || !wrote || !lifecycle.IsAdmitted(stored) {
			t.Fatalf("wrote %v, %v, %v", wrote, err, stored.Status.Conditions)
		}
		if diff := cmp.Diff([]string{"kueue-admission Apply"}, managers(stored)); diff != "" {
			t.Errorf("managers -want +got:\n%s", diff)
		}
		dropped, _, err := status.Transition(ctx, stored, func(w *kueue.Workload) bool {
			return lifecycle.Machine{}.Pending(w, kueue.ReasonSuspended, "", metav1.Now())
		})
		if err != nil || dropped.Status.Admission != nil {
			t.Errorf("the admission stays: %v, %v", dropped.Status.Admission, err)
		}
		if diff := cmp.Diff([]string{"kueue-admission Apply"}, managers(dropped)); diff != "" {
			t.Errorf("managers -want +got:\n%s", diff)
		}
		if again, wrote, err := status.Transition(ctx, dropped, func(*kueue.Workload) bool { return false }); err != nil || wrote || again != dropped {
			t.Errorf("no change wrote %v, %v", wrote, err)
		}
	})

	t.Run("nominations of another manager", func(t *testing.T) {
		for name, choose := range map[string]func(*kueue.Workload){
			"chosen":  func(w *kueue.Workload) { w.Status.ClusterName = "w2" },
			"evicted": func(w *kueue.Workload) { lifecycle.Machine{}.Evict(w, kueue.ReasonPreempted, "", "", metav1.Now()) },
		} {
			w := newWorkload(t, c, "nominated-"+name)
			if _, _, err := status.Transition(ctx, w, reserve); err != nil {
				t.Fatal(err)
			}
			apply := func(manager, status string) *kueue.Workload {
				t.Helper()
				body := `{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "` + w.Name + `", "namespace": "default"}, "status": ` + status + `}`
				got := w.DeepCopy()
				if err := c.Status().Patch(ctx, got, client.RawPatch(types.ApplyPatchType, []byte(body)), client.FieldOwner(manager), client.ForceOwnership); err != nil {
					t.Fatal(err)
				}
				return got
			}
			stored := apply("a-dispatcher", `{"nominatedClusterNames": ["w1", "w2"]}`)
			stored, _, err := status.Transition(ctx, stored, func(w *kueue.Workload) bool {
				w.Status.Conditions[0].Message = "said again"
				return true
			})
			if err != nil || len(stored.Status.NominatedClusterNames) != 2 {
				t.Errorf("%s: a write that has nothing to do with them left %v, %v", name, stored.Status.NominatedClusterNames, err)
			}
			stored, _, err = status.Transition(ctx, stored, func(w *kueue.Workload) bool {
				choose(w)
				w.Status.NominatedClusterNames = nil
				return true
			})
			if err != nil || len(stored.Status.NominatedClusterNames) > 0 {
				t.Fatalf("%s: %v, %v", name, stored.Status.NominatedClusterNames, err)
			}
			if slices.Contains(managers(stored), "kueue-admission Update") {
				t.Errorf("%s: managers %v", name, managers(stored))
			}
			rest := stored.Status
			rest.ClusterName = ""
			said, err := json.Marshal(rest)
			if err != nil {
				t.Fatal(err)
			}
			if got := apply("kueue-admission", string(said)); got.Status.ClusterName != "" {
				t.Errorf("%s: a client that applies without it left cluster %q", name, got.Status.ClusterName)
			}
		}
	})

	t.Run("other parts have managers of their own", func(t *testing.T) {
		w := newWorkload(t, c, "parts")
		stored, _, err := status.Transition(ctx, w, reserve)
		if err != nil {
			t.Fatal(err)
		}
		stored.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
		if err := status.ReclaimablePods(ctx, stored); err != nil {
			t.Fatal(err)
		}
		var read kueue.Workload
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), &read); err != nil {
			t.Fatal(err)
		}
		lifecycle.Machine{}.PodsReady(&read, true, metav1.Now())
		if err := status.PodsReady(ctx, &read); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), &read); err != nil {
			t.Fatal(err)
		}
		want := []string{"kueue-admission Apply", "kueue-job-controller-PodsReady Apply", "kueue-reclaimable-pods Apply"}
		if diff := cmp.Diff(want, managers(&read)); diff != "" {
			t.Errorf("managers -want +got:\n%s", diff)
		}
		if !lifecycle.IsAdmitted(&read) || len(read.Status.ReclaimablePods) != 1 {
			t.Errorf("a partial write took something away: %+v", read.Status)
		}
		finished, _, err := status.Transition(ctx, &read, func(w *kueue.Workload) bool {
			return lifecycle.Machine{}.Finish(w, kueue.ReasonSucceeded, "", metav1.Now())
		})
		if err != nil || len(finished.Status.ReclaimablePods) != 1 {
			t.Errorf("reclaimable pods are gone: %v, %v", finished.Status.ReclaimablePods, err)
		}
	})

	t.Run("the last entry of a list that others wrote too", func(t *testing.T) {
		w := newWorkload(t, c, "shared-list")
		stored, _, err := status.Transition(ctx, w, func(w *kueue.Workload) bool {
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "a", State: kueue.CheckStatePending, LastTransitionTime: metav1.Now()}}
			return reserve(w)
		})
		if err != nil {
			t.Fatal(err)
		}
		stored.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		if err := c.Status().Update(ctx, stored); err != nil {
			t.Fatal(err)
		}
		got, _, err := status.Transition(ctx, stored, func(w *kueue.Workload) bool {
			w.Status.AdmissionChecks = nil
			return true
		})
		if err != nil || len(got.Status.AdmissionChecks) > 0 || !lifecycle.IsReserved(got) {
			t.Errorf("got %+v, %v", got, err)
		}
	})

	t.Run("an old version", func(t *testing.T) {
		next := newWorkload(t, c, "stale").DeepCopy()
		bump(next.DeepCopy())
		reserve(next)
		if _, err := status.Strict(ctx, next); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "default/stale") {
			t.Errorf("got %v, want a conflict that names the object", err)
		}
	})

	t.Run("another object of the same name", func(t *testing.T) {
		w := newWorkload(t, c, "twice")
		if err := c.Delete(ctx, w); err != nil {
			t.Fatal(err)
		}
		next := w.DeepCopy()
		reserve(next)
		if _, err := status.Strict(ctx, next); !apierrors.IsNotFound(err) {
			t.Errorf("gone: %v", err)
		}
		newWorkload(t, c, "twice")
		if _, err := status.Strict(ctx, next); !apierrors.IsConflict(err) {
			t.Errorf("replaced: %v", err)
		}
	})
}
