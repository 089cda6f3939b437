package install

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// fenceName is the name of the policy that limits the writes of the manager's account.
const fenceName = managerPrefix + "writes"

// ownedByTrainJob is true of ConfigMaps and Secrets, old and new, whose controller is a TrainJob.
const ownedByTrainJob = `[object, oldObject].all(o, o == null || o.metadata.?ownerReferences.orValue([]).exists(r,
  r.?controller.orValue(false) && r.kind == '` + trainerv1alpha1.KindTrainJob + `' && r.apiVersion.startsWith('trainer.kubeflow.org/')))`

// harmlessSecret is true of Secrets that hold keys of a TrainJob. Kubernetes would fill a Secret of another type with the token of any
// account.
const harmlessSecret = `request.resource.resource != 'secrets' || object == null || object.type in ['Opaque', 'kubernetes.io/ssh-auth']`

// fence narrows what access rules cannot: in other namespaces, the manager's account may write only the ConfigMaps and Secrets of
// TrainJobs. The API server enforces it, so it also binds a stolen token (docs/rights.md).
func fence(o *Options) ([]*unstructured.Unstructured, error) {
	if !o.Groups.Has(Training) {
		return nil, nil
	}
	version, meta := admissionv1.SchemeGroupVersion.String(), metav1.ObjectMeta{Name: fenceName}
	account := Prefixed(managerAccount, PrefixOf(o.service()))
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			// The API server's own defaults, as in the policy about queue labels.
			MatchConstraints: &admissionv1.MatchResources{
				MatchPolicy: new(admissionv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
					Rule: admissionv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"configmaps", "secrets"}, Scope: new(admissionv1.NamespacedScope),
					},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "of-the-manager", Expression: fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", o.namespace(), account)},
				{Name: "elsewhere", Expression: fmt.Sprintf("request.namespace != '%s'", o.namespace())},
			},
			Validations: []admissionv1.Validation{
				{Expression: ownedByTrainJob, Message: "The manager of Berth may write ConfigMaps and Secrets of TrainJobs only"},
				{Expression: harmlessSecret, Message: "The manager of Berth may make no Secret of this type"},
			},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: fenceName, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	return toUnstructured(nil, policy, binding)
}
