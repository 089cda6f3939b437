package controller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/multikueue/controller"
	"github.com/berth-project/berth/internal/multikueue/frameworks"
	"github.com/berth-project/berth/internal/options/transform"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

var runGVK = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Run"}

// runs is the configuration of Runs. Their names decide which transforms fail.
const runs = `
name: Run.v1.example.com
limits: {costPerExpression: 1000}
preconditions:
- name: short
  expression: "!has(localObject.spec.list) || localObject.spec.list.all(x, x == 'x')"
  message: it is too long
statusSync:
  mode: Mutate
  mutations:
  - name: break
    patchType: JSONPatch
    jsonPatch: {expression: 'localObject.metadata.name == "broken" && has(object.status) ? [JSONPatch{op: "remove", path: "/status/nothing"}] : []'}
specSync:
  allowedPaths: [/spec/stop]
  mutations:
  - name: stop
    patchType: JSONPatch
    jsonPatch: {expression: 'has(localObject.spec.stop) && (!has(object.spec.stop) || object.spec.stop != localObject.spec.stop) ? [JSONPatch{op: "add", path: "/spec/stop", value: localObject.spec.stop}] : []'}
`

// pair is a hub with one worker cluster. Only the controllers of this package run: the test is every other controller.
type pair struct{ hub, w1 *server }

func newPair(t *testing.T, framework string, crd *apiextensionsv1.CustomResourceDefinition) *pair {
	t.Helper()
	p := &pair{newServer(t), newServer(t)}
	for _, s := range []*server{p.hub, p.w1} {
		s.must(s.Create(t.Context(), crd.DeepCopy()))
		wait.Until(s.t, "Runs are served", func() error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(runGVK)
			return s.List(t.Context(), list)
		})
	}
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w1"}, Data: map[string][]byte{"kubeconfig": p.w1.kubeconfig()}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "mk"}, Spec: kueue.AdmissionCheckSpec{
			ControllerName: kueue.MultiKueueControllerName,
			Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "all"},
		}},
		&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"w1"}}},
		&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "w1"}, Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{
			KubeConfig: &kueue.KubeConfig{Location: "w1", LocationType: kueue.LocationTypeSecret},
		}}},
	} {
		p.hub.must(p.hub.Create(t.Context(), o))
	}
	var entry configv1beta2.MultiKueueExternalFramework
	p.hub.must(yaml.UnmarshalStrict([]byte(framework), &entry))
	compiled, errs := transform.Compile([]configv1beta2.MultiKueueExternalFramework{entry}, true, nil)
	p.hub.must(errs.ToAggregate())
	p.hub.manage(func(o *controller.Options) {
		descriptors, external, err := frameworks.External(compiled, nil, unserved{}, time.Now, logr.Discard())
		p.hub.must(err)
		o.Descriptors, o.Plan.External = descriptors, external
	})
	return p
}

// unserved is a discovery client without kinds.
type unserved struct{}

func (unserved) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, nil
}

// TestStatusInTheObject is spec 40 §7.48: the status of a kind without a status subresource is copied.
func TestStatusInTheObject(t *testing.T) {
	t.Parallel()
	crd := embeddedtest.LooseCRD(runGVK, "runs")
	crd.Spec.Versions[0].Subresources = nil
	r := newPair(t, runs, crd).start(t, "whole")
	r.admit()
	r.patch(r.w1, `{"spec": {}, "status": {"phase": "Going"}}`)
	r.holds(r.hub, "Going", "status", "phase")
}

// run is one Run with its Workload.
type run struct {
	*pair
	t   *testing.T
	key types.NamespacedName
}

// run returns a started Run.
func (p *pair) run(t *testing.T, namespace, name string) *run {
	hub, w1 := *p.hub, *p.w1
	hub.t, w1.t = t, t
	return &run{&pair{&hub, &w1}, t, types.NamespacedName{Namespace: namespace, Name: name}}
}

// start creates a Run and its Workload with a quota reservation on the hub.
func (p *pair) start(t *testing.T, name string) *run { return p.startIn(t, "default", name, "") }

// startIn creates one with a list of so many characters.
func (p *pair) startIn(t *testing.T, namespace, name, list string) *run {
	t.Helper()
	r := p.run(t, namespace, name)
	hub := r.hub
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"managedBy": kueue.MultiKueueControllerName}}}
	if list != "" {
		hub.must(unstructured.SetNestedStringSlice(o.Object, strings.Split(list, ""), "spec", "list"))
	}
	o.SetGroupVersionKind(runGVK)
	o.SetNamespace(r.key.Namespace)
	o.SetName(name)
	hub.must(hub.Create(t.Context(), o))
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.key.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, runGVK)}},
		Spec: kueue.WorkloadSpec{QueueName: "main", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}}}},
	}
	hub.must(hub.Create(t.Context(), wl))
	r.edit(r.hub, func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStatePending, LastTransitionTime: metav1.Now()}}
		lifecycle.Machine{}.Reserve(wl, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}, nil, metav1.Now())
	})
	return r
}

// edit changes the status of the Workload on a cluster once it exists.
func (r *run) edit(s *server, change func(*kueue.Workload)) {
	r.t.Helper()
	wait.Until(s.t, "the status of workload "+r.key.Name+" is written", func() error {
		var wl kueue.Workload
		if err := s.Get(r.t.Context(), r.key, &wl); err != nil {
			return err
		}
		change(&wl)
		return s.Status().Update(r.t.Context(), &wl)
	})
}

// there sets a condition of the copy to true.
func (r *run) there(kind, reason string) {
	r.t.Helper()
	r.edit(r.w1, func(wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: "says the worker", LastTransitionTime: metav1.Now(),
		})
	})
}

// admit admits the copy, and waits for the remote job.
func (r *run) admit() {
	r.t.Helper()
	r.there(kueue.WorkloadAdmitted, "Admitted")
	wait.Until(r.w1.t, "the run is there", func() error { _, err := r.get(r.w1); return err })
	r.says(kueue.CheckStateReady, "")
}

func (r *run) get(s *server) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(runGVK)
	return o, s.Get(r.t.Context(), r.key, o)
}

// patch changes the Run on a cluster, or its status.
func (r *run) patch(s *server, text string) {
	r.t.Helper()
	o, err := r.get(s)
	s.must(err)
	patch := client.RawPatch(types.MergePatchType, []byte(text))
	if strings.HasPrefix(text, `{"status"`) {
		s.must(s.Status().Patch(r.t.Context(), o, patch))
	} else {
		s.must(s.Patch(r.t.Context(), o, patch))
	}
}

// holds waits for a text in a field of the Run on a cluster.
func (r *run) holds(s *server, want string, fields ...string) {
	r.t.Helper()
	wait.Until(s.t, fmt.Sprintf("%v of run %s is %q", fields, r.key.Name, want), func() error {
		o, err := r.get(s)
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(o.Object, fields...); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// says waits for a state of the check with a message, a regular expression.
func (r *run) says(state kueue.CheckState, text string) {
	r.t.Helper()
	wait.Until(r.hub.t, fmt.Sprintf("the check of %s is %s: %s", r.key.Name, state, text), func() error {
		var wl kueue.Workload
		if err := r.hub.Get(r.t.Context(), r.key, &wl); err != nil {
			return err
		}
		if c := wl.Status.AdmissionChecks[0]; c.State != state || !regexp.MustCompile(text).MatchString(c.Message) {
			return fmt.Errorf("it is %s: %s", c.State, c.Message)
		}
		return nil
	})
}

// ownsCheck tests that MultiKueue's own field manager has applied the check, and nothing else (spec: 40 §4.4).
func (r *run) ownsCheck() {
	r.t.Helper()
	var wl kueue.Workload
	r.hub.must(r.hub.Get(r.t.Context(), r.key, &wl))
	at := slices.IndexFunc(wl.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "kueue.x-k8s.io/multikueue" && f.Subresource == "status"
	})
	if at < 0 || wl.ManagedFields[at].Operation != metav1.ManagedFieldsOperationApply {
		r.t.Fatalf("the managers are %+v", wl.ManagedFields)
	}
	var fields map[string]map[string]any
	r.hub.must(json.Unmarshal(wl.ManagedFields[at].FieldsV1.GetRawBytes(), &fields))
	checks, _ := fields["f:status"]["f:admissionChecks"].(map[string]any)
	if len(fields) != 1 || len(fields["f:status"]) != 1 || len(checks) != 1 || checks[`k:{"name":"mk"}`] == nil {
		r.t.Errorf("it owns %s", wl.ManagedFields[at].FieldsV1.GetRawString())
	}
}

// resetCheck resets the check as an eviction does, which leaves nothing of a pause.
func (r *run) resetCheck() {
	r.t.Helper()
	wait.Until(r.t, "the check is reset", func() error {
		var wl kueue.Workload
		if err := r.hub.Get(r.t.Context(), r.key, &wl); err != nil {
			return err
		}
		pause := wl.Status.AdmissionChecks[0].RequeueAfterSeconds
		stored, _, err := reconcile.NewWorkloadStatus(r.hub.Client).Transition(r.t.Context(), &wl, func(wl *kueue.Workload) bool {
			wl.Status.AdmissionChecks[0] = kueue.AdmissionCheckState{Name: "mk", State: kueue.CheckStatePending, LastTransitionTime: metav1.Now(), RetryCount: new(int32(2))}
			return true
		})
		if err == nil && (pause == nil || stored.Status.AdmissionChecks[0].RequeueAfterSeconds != nil) {
			r.t.Errorf("a pause of %v, then the check is %+v", pause, stored.Status.AdmissionChecks[0])
		}
		return err
	})
}

// warned waits for an event of the Workload.
func (r *run) warned(text string) {
	r.t.Helper()
	wait.Until(r.hub.t, "an event says "+text, func() error {
		var list eventsv1.EventList
		if err := r.hub.List(r.t.Context(), &list, client.InNamespace(r.key.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.Name == r.key.Name && e.Type == "Warning" && e.Reason == "MultiKueue" && strings.HasPrefix(e.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(list.Items))
	})
}

// refuse adds a policy that refuses requests to a cluster unless a rule holds, and returns how to remove it.
func (s *server) refuse(name, resource string, verb admissionregistrationv1.OperationType, rule string) (end func()) {
	s.t.Helper()
	fail := admissionregistrationv1.Fail
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail, Validations: []admissionregistrationv1.Validation{{Expression: rule, Message: "the test says no"}},
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{verb},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{runGVK.Group}, APIVersions: []string{"*"}, Resources: []string{resource}},
				},
			}}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	s.must(s.Create(s.t.Context(), policy))
	s.must(s.Create(s.t.Context(), binding))
	return func() { s.must(s.Delete(s.t.Context(), binding)) }
}

// probe waits until a Run without a queue is refused: then the policy is in force.
func (s *server) probe(name, change string) {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"n": int64(1)}}}
	o.SetGroupVersionKind(runGVK)
	o.SetNamespace("default")
	o.SetName(name)
	if change != "" {
		s.must(s.Create(s.t.Context(), o))
	}
	wait.Until(s.t, "the policy is in force", func() error {
		var err error
		if change == "" {
			err = s.Create(s.t.Context(), o.DeepCopy(), client.DryRunAll)
		} else {
			err = s.Patch(s.t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
		}
		if err == nil {
			return fmt.Errorf("it is taken")
		}
		return nil
	})
}

// TestRunsThatAreFollowed: changes of a running job reach its copy, and its status comes back, despite faults (spec: 40 §4.13.2,
// §4.13.5).
func TestRunsThatAreFollowed(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two API servers")
	}
	t.Parallel()
	p := newPair(t, runs, embeddedtest.LooseCRD(runGVK, "runs"))
	for _, s := range []*server{p.hub, p.w1} {
		s.must(s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "greedy"}}))
	}
	t.Run("expressions that cost too much", func(t *testing.T) {
		var last *run
		for n := range 20 {
			last = p.startIn(t, "greedy", fmt.Sprint("long-", n), strings.Repeat("x", 2000))
			last.says(kueue.CheckStateRejected, `\[TransformCostExceeded\].* short`)
		}
		modest := p.startIn(t, "greedy", "modest", "")
		modest.says(kueue.CheckStatePending, `^\[TransformCostExceeded\] Run.v1.example.com/precondition/suspended until`)
	})
	var ended time.Time
	t.Run("a status that cannot be followed", func(t *testing.T) {
		r := p.start(t, "broken")
		r.admit()
		r.patch(r.w1, `{"status":{"phase":"Running"}}`)
		r.says(kueue.CheckStateReady, `\[StatusSyncFailed\]`)
		r.warned("[StatusSyncFailed]")
		r.patch(r.hub, `{"spec":{"stop":"now"}}`)
		r.holds(r.w1, "now", "spec", "stop")
		r.patch(r.w1, `{"status":{"phase":"Done"}}`)
		r.there(kueue.WorkloadFinished, kueue.ReasonSucceeded)
		ended = time.Now()
	})
	t.Run("a check that is gone takes the copies with it", func(t *testing.T) {
		r := p.start(t, "unchecked")
		r.edit(r.w1, func(*kueue.Workload) {}) // once it is there
		r.edit(r.hub, func(wl *kueue.Workload) { wl.Status.AdmissionChecks = nil })
		wait.Until(r.w1.t, "the copy is removed", func() error {
			err := r.w1.Get(t.Context(), r.key, &kueue.Workload{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there, error %w", err)
		})
	})
	t.Run("a worker refuses a job for a while", func(t *testing.T) {
		end := p.w1.refuse("no-run", "runs", admissionregistrationv1.Create, "object.metadata.name != 'unwelcome'")
		p.w1.probe("unwelcome", "")
		r := p.start(t, "unwelcome")
		r.edit(r.hub, func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].RetryCount = new(int32(1)) })
		r.there(kueue.WorkloadAdmitted, "Admitted")
		r.says(kueue.CheckStateRetry, `\[RemoteCreateRejected\] w1: .*the test says no`)
		r.ownsCheck()
		end()
		wait.Until(r.w1.t, "it is taken", func() error {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetGroupVersionKind(runGVK)
			o.SetNamespace("default")
			o.SetName("unwelcome")
			return r.w1.Create(t.Context(), o, client.DryRunAll)
		})
		r.resetCheck()
		r.admit()
	})
	t.Run("a worker refuses a change for a while", func(t *testing.T) {
		r := p.start(t, "refused")
		r.admit()
		end := r.w1.refuse("no-stop", "runs", admissionregistrationv1.Update, "!has(object.spec.stop)")
		r.w1.probe("probe", `{"spec":{"stop":"x"}}`)
		r.patch(r.hub, `{"spec":{"stop":"now"}}`)
		r.says(kueue.CheckStateReady, "the test says no")
		time.Sleep(3 * time.Second) // more than three attempts
		end()
		r.holds(r.w1, "now", "spec", "stop")
		r.says(kueue.CheckStateReady, `^The workload was admitted on "w1"$`)
	})
	t.Run("it ends all the same, after a minute", func(t *testing.T) {
		r := p.run(t, "default", "broken")
		if o, err := r.get(r.hub); err != nil || o.Object["status"] != nil {
			t.Errorf("%s after its end the status is %v, %v", time.Since(ended), o.Object["status"], err)
		}
		time.Sleep(40*time.Second - time.Since(ended))
		r.says(kueue.CheckStateReady, "")
		var wl kueue.Workload
		r.hub.must(r.hub.Get(t.Context(), r.key, &wl))
		if lifecycle.IsFinished(&wl) {
			t.Errorf("it was given up %s after its end", time.Since(ended))
		}
		r.holds(r.hub, "Done", "status", "phase")
		wait.Until(r.hub.t, "it is finished", func() error {
			if err := r.hub.Get(t.Context(), r.key, &wl); err != nil || lifecycle.IsFinished(&wl) {
				return err
			}
			return fmt.Errorf("it is not")
		})
	})
	t.Run("a job that nothing is wrong with is sent after a minute", func(t *testing.T) {
		r := p.run(t, "greedy", "modest")
		r.edit(r.w1, func(*kueue.Workload) {})
	})
	t.Run("what runs by a check that is deleted is followed, and stopped by an eviction", func(t *testing.T) {
		ends, leaves := p.start(t, "ends"), p.start(t, "leaves")
		ends.admit()
		leaves.admit()
		for _, o := range []client.Object{
			&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Spec: kueue.AdmissionCheckSpec{
				ControllerName: kueue.MultiKueueControllerName,
				Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "others"},
			}},
			&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"w2"}}},
		} {
			p.hub.must(p.hub.Create(t.Context(), o))
		}
		ends.edit(ends.hub, func(wl *kueue.Workload) { // its queue names another check by now
			pending := kueue.AdmissionCheckState{Name: "another", State: kueue.CheckStatePending, LastTransitionTime: metav1.Now()}
			wl.Status.AdmissionChecks = append([]kueue.AdmissionCheckState{pending}, wl.Status.AdmissionChecks...)
		})
		p.hub.must(p.hub.Delete(t.Context(), &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "mk"}}))
		ends.there(kueue.WorkloadFinished, kueue.ReasonSucceeded)
		wait.Until(ends.hub.t, "it is finished", func() error {
			var wl kueue.Workload
			if err := ends.hub.Get(t.Context(), ends.key, &wl); err != nil || lifecycle.IsFinished(&wl) {
				return err
			}
			return errors.New("it is not")
		})
		if _, err := leaves.get(leaves.w1); err != nil {
			t.Errorf("the other job: %v", err)
		}
		leaves.edit(leaves.hub, func(wl *kueue.Workload) { // the entry leaves with the eviction
			lifecycle.Machine{}.Evict(wl, kueue.ReasonPreempted, "", "by the test", metav1.Now())
			wl.Status.AdmissionChecks = nil
		})
		wait.Until(leaves.w1.t, "its job is removed", func() error {
			_, err := leaves.get(leaves.w1)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there, error %w", err)
		})
	})
}

// TestRefusedEviction: the Workload of a job that a worker cluster may not evict has an event that says so.
func TestRefusedEviction(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two API servers")
	}
	t.Parallel()
	p := newPair(t, runs, embeddedtest.LooseCRD(runGVK, "runs"))
	r := p.start(t, "evicted")
	r.admit()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w1"}}
	becomes := func(kubeconfig []byte, active metav1.ConditionStatus) {
		embeddedtest.Edit(t, p.hub, secret, func(secret *corev1.Secret) { secret.Data["kubeconfig"] = kubeconfig })
		wait.Until(t, "Active of the cluster is "+string(active), func() error {
			var cluster kueue.MultiKueueCluster
			if err := p.hub.Get(t.Context(), client.ObjectKey{Name: "w1"}, &cluster); err != nil {
				return err
			}
			if c := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive); c == nil || c.Status != active {
				return fmt.Errorf("it is %+v", c)
			}
			return nil
		})
	}
	becomes([]byte("none"), metav1.ConditionFalse) // so that the connection with all rights has ended
	becomes(p.w1.restricted(rbacv1.PolicyRule{APIGroups: []string{runGVK.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}), metav1.ConditionTrue)
	r.edit(r.hub, func(wl *kueue.Workload) {
		lifecycle.Machine{}.Evict(wl, kueue.ReasonPreempted, "", "by the test", metav1.Now())
	})
	r.warned("[RemoteWriteFailed] w1: ")
}
