package jobtest

import (
	"fmt"
	"maps"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// unstartable is the label of jobs whose spec a policy of the API server protects.
const unstartable = "jobtest/unstartable"

// refused is a job that the API server always refuses to start: its Workload is finished with the reason, which releases the quota,
// and its user gets one event.
func refused(w *world) {
	w.forbidStarts()
	o := w.create("train", func(o job.Object) {
		labels := map[string]string{unstartable: "yes"}
		maps.Copy(labels, o.GetLabels())
		o.SetLabels(labels)
	})
	wl := w.workloadOf(o)
	wait.Until(w.t, "the policy is in force", func() error {
		probe := w.again(o)
		w.running(probe)
		if err := w.c.Update(w.ctx, probe, client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("it may start: %w", err)
		}
		return nil
	})
	before := spec(w.t, w.again(o))
	w.admit(wl)
	wait.Until(w.t, "the workload is finished", func() error {
		got := w.get(wl)
		if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonFailedToStart || len(got.Finalizers) > 0 {
			return fmt.Errorf("%v, finalizers %v", conditions(got), got.Finalizers)
		}
		return nil
	})
	w.waitUntilStable()
	if diff := cmp.Diff(before, spec(w.t, w.again(o))); diff != "" {
		w.t.Errorf("the job was changed -want +got:\n%s", diff)
	}
	w.tells(o, "CreatedWorkload", "FinishedWorkload")
}

// forbidStarts makes the API server refuse changes of the spec of labelled jobs of the kind.
func (w *world) forbidStarts() {
	w.t.Helper()
	gvk, resource := w.kind.Descriptor.GVK, w.kind.Descriptor.Resource
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "unstartable-" + resource},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{unstartable: "yes"}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{gvk.Group}, APIVersions: []string{gvk.Version}, Resources: []string{resource}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "object.spec == oldObject.spec", Message: "it may not start"}},
		},
	}
	w.once(policy)
	w.once(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding-" + policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
}

// requeuedFalse checks that the eviction of a deleted job is completed before its Workload is treated as an orphan: the quota is
// released, and it does not return to its queue.
func (w *world) requeuedFalse(wl *kueue.Workload) {
	w.t.Helper()
	c := lifecycle.Condition(wl, kueue.WorkloadRequeued)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != kueue.ReasonPreempted || lifecycle.IsReserved(wl) || lifecycle.IsAdmitted(wl) {
		w.t.Errorf("conditions %v", conditions(wl))
	}
}
