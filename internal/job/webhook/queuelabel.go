package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/options"
)

// QueueLabelPolicyName names the policy of QueueLabelPolicy, and its binding, in every installation: commands look for it.
const QueueLabelPolicyName = "berth-queue-label"

// Variables of the policy, which clients read to learn what the manager queues.
const (
	// ManagedVariable is an expression over the variable labels: the labels of the namespace.
	ManagedVariable = "managed"
	// UnlistedVariable is a map of the kinds that are not queued, as RESOURCE.GROUP, to the names of their frameworks.
	UnlistedVariable = "unlisted"
)

// QueueLabelPolicy warns, at creation, of a queue label without effect: the kind is not listed in the configuration, or the
// namespace is not managed. The API server evaluates the policy itself, so Berth is not called in unmanaged namespaces, and no
// request waits for it (spec: 30 §4.2.5).
func QueueLabelPolicy(o *Options) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	version := admissionv1.SchemeGroupVersion.String()
	meta := metav1.ObjectMeta{Name: QueueLabelPolicyName}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Ignore),
			// With the API server's own defaults: server-side apply compares the field as a whole.
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: queueableKinds(o.Descriptors), MatchPolicy: new(admissionv1.Equivalent),
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "names-a-queue", Expression: "object.metadata.?labels[?'" + kueue.QueueNameLabel + "'].orValue('') != ''"},
				{Name: "speaks-for-itself", Expression: "!object.metadata.?ownerReferences.orValue([]).exists(r, r.?controller.orValue(false) &&\n" +
					"  (r.apiVersion + '/' + r.kind) in " + ownerKinds() + ")"},
			},
			Variables: []admissionv1.Variable{
				{Name: "labels", Expression: "namespaceObject.metadata.?labels.orValue({})"},
				{Name: ManagedVariable, Expression: managedExpression(&o.Namespaces)},
				{Name: UnlistedVariable, Expression: unlistedKinds(o)},
				{Name: "kind", Expression: "request.resource.resource + '.' + request.resource.group"},
			},
			Validations: []admissionv1.Validation{
				{
					Expression:        "variables.managed",
					MessageExpression: "'" + job.UnmanagedNote("' + namespaceObject.metadata.name + '") + "'",
				},
				{
					Expression:        "!variables.managed || !(variables.kind in variables.unlisted)",
					MessageExpression: "'" + job.UnlistedNote("' + variables.unlisted[variables.kind] + '") + "'",
				},
			},
		},
	}
	return policy, &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: QueueLabelPolicyName, ValidationActions: []admissionv1.ValidationAction{admissionv1.Warn},
		},
	}
}

// queueableKinds match the creation of objects of known kinds, one rule for each API group.
func queueableKinds(descriptors []*job.Descriptor) []admissionv1.NamedRuleWithOperations {
	resources := map[string][]string{}
	for _, d := range descriptors {
		resources[d.GVK.Group] = append(resources[d.GVK.Group], d.Resource)
	}
	var out []admissionv1.NamedRuleWithOperations
	for _, group := range slices.Sorted(maps.Keys(resources)) {
		slices.Sort(resources[group])
		out = append(out, admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources[group], Scope: new(admissionv1.NamespacedScope)},
		}})
	}
	return out
}

// ownerKinds is the list of the kinds, as apiVersion/kind, whose children do not queue by themselves.
func ownerKinds() string {
	kinds := []string{"apps/v1/ReplicaSet"}
	for _, f := range options.Frameworks() {
		apiVersion, kind := f.GVK.ToAPIVersionAndKind()
		kinds = append(kinds, apiVersion+"/"+kind)
	}
	slices.Sort(kinds)
	return literal(kinds...)
}

// managedExpression is a label selector as CEL, a requirement a line.
func managedExpression(selector *metav1.LabelSelector) string {
	var b strings.Builder
	in := func(key string, values ...string) string {
		return fmt.Sprintf("%q in variables.labels && variables.labels[%q] in %s", key, key, literal(values...))
	}
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		fmt.Fprintf(&b, "(%s) &&\n", in(key, selector.MatchLabels[key]))
	}
	for _, r := range selector.MatchExpressions {
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			fmt.Fprintf(&b, "(%s) &&\n", in(r.Key, r.Values...))
		case metav1.LabelSelectorOpNotIn:
			fmt.Fprintf(&b, "!(%s) &&\n", in(r.Key, r.Values...))
		case metav1.LabelSelectorOpExists:
			fmt.Fprintf(&b, "(%q in variables.labels) &&\n", r.Key)
		case metav1.LabelSelectorOpDoesNotExist:
			fmt.Fprintf(&b, "!(%q in variables.labels) &&\n", r.Key)
		}
	}
	return b.String() + "true"
}

// unlistedKinds is a map in CEL, an entry a line, of the kinds that the configuration does not list.
func unlistedKinds(o *Options) string {
	var b strings.Builder
	b.WriteString("{\n")
	for _, d := range o.Descriptors {
		if !o.Jobs.Queues(d) {
			b.WriteString(UnlistedEntry(d.GVK.Group, d.Resource, d.Framework) + "\n")
		}
	}
	return b.String() + "}"
}

// UnlistedEntry is the line of a kind in the variable of the kinds that are not listed.
func UnlistedEntry(group, resource, framework string) string {
	return fmt.Sprintf("%q: %q,", QueueableName(schema.GroupResource{Group: group, Resource: resource}), framework)
}

// QueueableName is the key of a kind in the variable of the kinds that are not listed.
func QueueableName(resource schema.GroupResource) string {
	return resource.Resource + "." + resource.Group
}

// literal is a list of texts, in JSON and in CEL.
func literal(texts ...string) string {
	out, err := json.Marshal(texts)
	if err != nil {
		panic("texts always marshal: " + err.Error())
	}
	return string(out)
}
