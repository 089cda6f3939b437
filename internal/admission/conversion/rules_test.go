package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// ruleCase is one entry of the rules of v1beta2, in api/kueue/v1beta2/testdata/rules.yaml.
type ruleCase struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	By       string   `json:"by"`
	Object   object   `json:"object"`
	Status   object   `json:"status"`
	Accepted []object `json:"accepted"`
	Refused  []struct {
		Change object `json:"change"`
		Field  string `json:"field"`
	} `json:"refused"`
}

// oldFields are the names that fields of refusals have in v1beta1, where they differ.
var oldFields = strings.NewReplacer(
	"spec.priorityClassRef.name", "spec.priorityClassName", "spec.priorityClassRef", "spec.priorityClassSource",
	"spec.clusterSource", "spec", "topologyAssignment.slices", "topologyAssignment.domains",
)

// otherwise are refusals of v1beta2 that v1beta1 does not make, and why, by the name of the case and the number of the
// change.
var otherwise = map[string]string{
	"10 §3 Workload priorityClassRef group and kind match #0":                 "one word says both",
	"10 §3 Workload priorityClassRef group and kind match #1":                 "one word says both",
	"10 §3 Workload priorityClassRef cannot be added while reserved #0":       "looser: spec 10 §2.7",
	"10 §3 Workload topologyAssignment has a value for each level #0":         "the conversion refuses it, which a dry run does not see",
	"10 §3 Workload topologyAssignment has a root for each domain #0":         "a domain has all its values",
	"10 §3 Workload topologyAssignment has a count for each domain #0":        "a domain has its count",
	"10 §3 Workload topologyAssignment values are universal or individual #0": "a domain has all its values",
	"10 §3 Workload topologyAssignment values are universal or individual #1": "a domain has all its values",
	"10 §3 Workload topologyAssignment counts are universal or individual #0": "a domain has its count",
	"10 §3 Workload topologyAssignment counts are universal or individual #1": "a domain has its count",
}

// testRules makes every change of the rules of v1beta2 as a client of v1beta1 makes it: all CEL rules hold for both
// versions, but for those named above (spec: 10 §3).
func (s *server) testRules(t *testing.T) {
	raw, err := os.ReadFile("../../../api/kueue/v1beta2/testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []ruleCase
	if err := yaml.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	refusals := map[string][]metav1.StatusCause{} // by kind
	for i, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			base := &unstructured.Unstructured{Object: decoded(t, tc.Object)}
			if tc.Status != nil {
				base.Object["status"] = decoded(t, tc.Status)
			}
			base.SetGroupVersionKind(kueue.GroupVersion.WithKind(tc.Kind))
			base.SetName(fmt.Sprintf("rule-%d", i))
			base = s.create(t, base)
			for _, change := range tc.Accepted {
				if err := s.try(t, tc.By, base, change); err != nil {
					t.Errorf("refused: %v\nchange: %v", err, change)
				}
			}
			for j, r := range tc.Refused {
				why, fine := otherwise[fmt.Sprintf("%s #%d", tc.Name, j)]
				err := s.try(t, tc.By, base, r.Change)
				field := oldFields.Replace(r.Field)
				made := slices.ContainsFunc(causes(err), func(c metav1.StatusCause) bool { return strings.HasPrefix(c.Field, field) })
				if made == fine {
					t.Errorf("#%d: refused for %s: %t, although %q: %v\nchange: %v", j, field, made, why, err, r.Change)
				}
				refusals[tc.Kind] = append(refusals[tc.Kind], causes(err)...)
			}
		})
	}
	for kind, crd := range s.crds {
		for _, v := range crd.Spec.Versions {
			if v.Name != kueuev1beta1.GroupVersion.Version {
				continue
			}
			for _, rule := range celRules(v.Schema.OpenAPIV3Schema, "") {
				if !slices.ContainsFunc(refusals[kind], rule.made) {
					t.Errorf("nothing is refused by the rule of v1beta1 %s about %s: %s", kind, rule.field, rule.message)
				}
			}
		}
	}
}

// try makes a change in v1beta1 as a dry run.
func (s *server) try(t *testing.T, by string, base *unstructured.Unstructured, change object) error {
	t.Helper()
	o, err := merged(base, change)
	if err != nil {
		t.Fatal(err)
	}
	if err := Convert(o.Object, kueuev1beta1.GroupVersion); err != nil {
		return nil //nolint:nilerr // there is no such change in v1beta1
	}
	if admission := at(o.Object, "status", "admission"); admission != nil && admission["clusterQueue"] == nil {
		admission["clusterQueue"] = "cq" // required in v1beta1
	}
	r, dryRun := s.resource(base.GetKind(), "v1beta1"), []string{metav1.DryRunAll}
	switch by {
	case "create":
		o.SetName(base.GetName() + "-copy")
		o.SetResourceVersion("")
		o.SetUID("")
		_, err = r.Create(t.Context(), o, metav1.CreateOptions{DryRun: dryRun})
	case "update":
		_, err = r.Update(t.Context(), o, metav1.UpdateOptions{DryRun: dryRun})
	case "status":
		_, err = r.UpdateStatus(t.Context(), o, metav1.UpdateOptions{DryRun: dryRun})
	default:
		t.Fatalf("by is %q", by)
	}
	return err
}

// merged is the object with a merge patch.
func merged(base *unstructured.Unstructured, change object) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	raw, err := base.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if raw, err = jsonpatch.MergePatch(raw, patch); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, kjson.UnmarshalCaseSensitivePreserveInts(raw, &u.Object)
}

// celRule is a CEL rule of a CRD, by the field it blames, without list indexes, and its message.
type celRule struct{ field, message string }

var listIndex = regexp.MustCompile(`\[\d+\]`)

// made reports whether a refusal comes from this rule.
func (r celRule) made(cause metav1.StatusCause) bool {
	return listIndex.ReplaceAllString(cause.Field, "") == r.field && strings.HasSuffix(cause.Message, r.message)
}

func celRules(schema *apiextensionsv1.JSONSchemaProps, path string) []celRule {
	var rules []celRule
	for _, rule := range schema.XValidations {
		rules = append(rules, celRule{strings.TrimPrefix(path+rule.FieldPath, "."), rule.Message})
	}
	if schema.Items != nil {
		rules = append(rules, celRules(schema.Items.Schema, path)...)
	}
	for name, property := range schema.Properties {
		rules = append(rules, celRules(&property, path+"."+name)...)
	}
	return rules
}

// causes returns why the server answered 422, and nothing for other answers.
func causes(err error) []metav1.StatusCause {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code != http.StatusUnprocessableEntity || status.ErrStatus.Details == nil {
		return nil
	}
	return status.ErrStatus.Details.Causes
}
