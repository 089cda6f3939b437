package provisioning

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/check/plan/provisioning"
	"github.com/berth-project/berth/internal/embedded/autoscaler"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func TestMain(m *testing.M) {
	os.Exit(embeddedtest.Main(m))
}

// world is a namespace with a check and a manager of its own.
type world struct {
	*embeddedtest.World
	name string // of the check, its configuration and its flavor
}

// newWorld starts a manager that dies as mortal says, and then another one.
func newWorld(t *testing.T, mortal *embeddedtest.Mortal) *world {
	t.Helper()
	w := &world{World: embeddedtest.NewWorld(t, "provisioning-", "yes", "../../../config/crd", kueue.AddToScheme)}
	if err := w.Client.Create(t.Context(), rawCRD(t)); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	w.name = w.Namespace
	w.makeCheck()
	immortal := w.Rest
	w.Rest = rest.CopyConfig(immortal)
	w.Rest.Wrap(mortal.Wrap)
	options := ctrl.Options{Cache: embeddedtest.Only(w.Namespace)}
	w.start(options, Options{DeleteOnEviction: true})
	w.Revive = func() {
		mortal.Revive(func() {
			w.Rest = immortal
			w.start(options, Options{DeleteOnEviction: true})
		})
	}
	return w
}

func (w *world) start(of ctrl.Options, options Options) {
	w.Helper()
	of.Scheme = w.Client.Scheme()
	mgr := embeddedtest.Manager(w.T, w.Rest, of)
	options.Workers, options.Now, options.Log = 2, time.Now, logr.Discard()
	w.Must(Setup(w.Context(), mgr, options))
	w.Stop = embeddedtest.Run(w.T, mgr)
}

// makeCheck makes a check, its configuration and a flavor.
func (w *world) makeCheck() {
	w.Helper()
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
	config.Spec.ProvisioningClassName = "class"
	w.Create(config)
	w.Create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.ProvisioningRequestControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "ProvisioningRequestConfig", Name: w.name},
	}})
	w.Create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "p"}}})
}

func (w *world) workload() *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "wl"}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "any"}},
	}}}}
	return wl
}

func rawCRD(t *testing.T) client.Object {
	t.Helper()
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(autoscaler.CRD())
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: tree}
}

func (w *world) get(name string) *kueue.Workload {
	w.Helper()
	out := &kueue.Workload{}
	if err := w.Client.Get(w.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, out); err != nil {
		w.Fatal(err)
	}
	return out
}

// transition changes the status of the Workload as the other controllers do.
func (w *world) transition(name string, change func(*kueue.Workload)) {
	w.Helper()
	wl := w.get(name)
	embeddedtest.EditStatus(w.T, w.Client, wl, change)
}

func (w *world) reserve(name string) {
	w.Helper()
	w.transition(name, func(wl *kueue.Workload) {
		admission := &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: new(int32(2)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": kueue.ResourceFlavorReference(w.name)},
		}}}
		lifecycle.Machine{}.Reserve(wl, admission, []kueue.AdmissionCheckReference{kueue.AdmissionCheckReference(w.name)}, metav1.Now())
	})
}

func (w *world) state(name string, want kueue.CheckState) {
	w.Helper()
	w.Until(fmt.Sprintf("the check is %s", want), func() error {
		if got := w.get(name).Status.AdmissionChecks[0]; got.State != want {
			return fmt.Errorf("it is %s: %s", got.State, got.Message)
		}
		return nil
	})
}

// answer waits for a request, and sets conditions.
func (w *world) answer(name string, conditions ...string) {
	w.Helper()
	w.Until("request "+name, func() error {
		r := request("v1")
		if err := w.Client.Get(w.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, r); err != nil {
			return err
		}
		if r.GetDeletionTimestamp() != nil {
			return errors.New("it is being deleted")
		}
		var list []any
		for _, c := range conditions {
			list = append(list, map[string]any{
				"type": c, "status": "True", "reason": "Test", "message": "as asked", "lastTransitionTime": "2026-01-01T00:00:00Z",
			})
		}
		if err := unstructured.SetNestedSlice(r.Object, list, "status", "conditions"); err != nil {
			return err
		}
		return w.Client.Status().Update(w.Context(), r)
	})
}

func (w *world) gone(name string) {
	w.Helper()
	w.Until(name+" is gone", func() error {
		err := w.Client.Get(w.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, request("v1"))
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// evict takes the quota of a Workload back, as the job does once its pods have ended.
func (w *world) evict(name, reason string) {
	w.Helper()
	w.transition(name, func(wl *kueue.Workload) { lifecycle.Machine{}.Evict(wl, reason, "", "as asked", metav1.Now()) })
	w.transition(name, func(wl *kueue.Workload) { lifecycle.Machine{}.Release(wl, false, metav1.Now()) })
}

// A whole life of a Workload: provisioned, preempted, failed, provisioned again, finished. Whatever write the manager is killed at, it ends
// the same, and no object is left without a use.
func TestInterruptedAtEveryWrite(t *testing.T) {
	embeddedtest.AtEveryWrite(t, 15, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newWorld(t, m)
		wl := w.workload()
		w.Create(wl)
		first, second := plan.RequestName("wl", w.name, 1), plan.RequestName("wl", w.name, 2)
		w.Until("the check is active", func() error {
			check := &kueue.AdmissionCheck{}
			if err := w.Client.Get(t.Context(), client.ObjectKey{Name: w.name}, check); err != nil {
				return err
			}
			if !apimeta.IsStatusConditionTrue(check.Status.Conditions, kueue.AdmissionCheckActive) {
				return fmt.Errorf("%+v", check.Status.Conditions)
			}
			return nil
		})

		w.reserve("wl")
		w.answer(first, plan.Accepted, plan.Provisioned)
		w.state("wl", kueue.CheckStateReady)
		if u := w.get("wl").Status.AdmissionChecks[0].PodSetUpdates; len(u) != 1 || u[0].Annotations[plan.ConsumeAnnotation] != first {
			t.Errorf("the pods get %+v", u)
		}
		w.evict("wl", kueue.ReasonPreempted)
		w.gone(first)

		w.reserve("wl")
		w.answer(first, plan.Failed)
		w.state("wl", kueue.CheckStateRetry)
		w.evict("wl", kueue.ReasonAdmissionCheck)
		w.reserve("wl") // maybe before the manager has seen the eviction
		w.answer(second, plan.Accepted, plan.Provisioned)
		w.gone(first)
		w.state("wl", kueue.CheckStateReady)
		w.Until("the PodTemplate belongs to the request", func() error {
			template := &corev1.PodTemplate{}
			if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: plan.TemplateName(second, "main")}, template); err != nil {
				return err
			}
			if owner := metav1.GetControllerOf(template); owner == nil || owner.Kind != plan.Kind || template.Template.Spec.NodeSelector["pool"] != "p" {
				return fmt.Errorf("%+v", template)
			}
			return nil
		})
		w.transition("wl", func(wl *kueue.Workload) { lifecycle.Machine{}.Finish(wl, kueue.ReasonSucceeded, "done", metav1.Now()) })
		w.gone(second)
		w.Until("no PodTemplate of the Workload alone is left", func() error {
			var list corev1.PodTemplateList
			if err := w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
				return err
			}
			for i := range list.Items {
				if metav1.IsControlledBy(&list.Items[i], wl) {
					return fmt.Errorf("%s is left", list.Items[i].Name)
				}
			}
			return nil
		})
		if n := w.get("wl").Status.AdmissionChecks[0].RetryCount; n == nil || *n != 1 {
			t.Errorf("retryCount %v", n)
		}
	})
}

// An autoscaler that serves v1beta1 alone is asked in that version. Once it serves another one alone the check is inactive.
func TestOldVersion(t *testing.T) {
	t.Parallel()
	cfg := embeddedtest.Exclusive(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	crd := autoscaler.CRD()
	crd.Spec.Versions = crd.Spec.Versions[1:]
	crd.Spec.Versions[0].Storage = true
	_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{MaxTime: wait.Patience, Paths: []string{"../../../config/crd"}, CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{World: &embeddedtest.World{T: t, Client: c, Rest: cfg, Namespace: "default"}, name: "old"}
	w.start(ctrl.Options{}, Options{})
	w.makeCheck()
	w.Create(w.workload())
	w.reserve("wl")
	wait.Until(t, "the request", func() error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: plan.RequestName("wl", "old", 1)}, request("v1beta1"))
	})
	active := func(status, text string) {
		t.Helper()
		wait.Until(t, "Active is "+status, func() error {
			check := &kueue.AdmissionCheck{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: w.name}, check); err != nil {
				return err
			}
			got := apimeta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive)
			if got == nil || string(got.Status) != status || !strings.Contains(got.Message, text) {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}
	serve := func(v1beta1 bool) {
		t.Helper()
		embeddedtest.Edit(t, c, crd, func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions = autoscaler.CRD().Spec.Versions
			crd.Spec.Versions[1].Served = v1beta1
		})
	}
	active("True", "")
	serve(false)
	active("False", "restart")
	serve(true)
	active("True", "")
}
