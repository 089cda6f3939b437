package webhook

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/cel"
)

// The expression of the policy selects the same namespaces as the selector of the configuration.
func TestManagedExpression(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "a.b/c-d", "x"})
	value := rapid.SampledFrom([]string{"", "a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		selector := &metav1.LabelSelector{MatchLabels: rapid.MapOfN(word, value, 0, 2).Draw(t, "labels")}
		for range rapid.IntRange(0, 3).Draw(t, "expressions") {
			r := metav1.LabelSelectorRequirement{Key: word.Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
				metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
			}).Draw(t, "operator")}
			if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
				r.Values = rapid.SliceOfN(value, 1, 3).Draw(t, "values")
			}
			selector.MatchExpressions = append(selector.MatchExpressions, r)
		}
		expression, err := cel.Compile("managed", managedExpression(selector), cel.Scope{Names: []string{"variables"}}, cel.Bool)
		if err != nil {
			t.Fatal(err)
		}
		want, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		of := rapid.MapOf(word, value).Draw(t, "namespace")
		plain := map[string]any{}
		for k, v := range of {
			plain[k] = v
		}
		got, err := expression.Eval(map[string]any{"variables": map[string]any{"labels": plain}})
		if err != nil || got != want.Matches(labels.Set(of)) {
			t.Fatalf("%s on %v: %v (%v), want %v", managedExpression(selector), of, got, err, want.Matches(labels.Set(of)))
		}
	})
}
