package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-project/berth/internal/review"
)

// The webhook of a disabled kind is left out. For kinds that Kubernetes itself creates it exists, is not called, and ignores failures.
// spec: 70 §4.5, §7 #55.
func TestWebhookTemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		gvk  schema.GroupVersionKind
		want []string
	}{
		"pod": {schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, []string{
			`failurePolicy: {{ include "berth.failurePolicy" (list . "pod") }}`,
			`{{- if include "berth.enabled" (list . "pod") }}` + "\n  matchConditions:\n  - expression: a\n    name: b\n{{- else }}\n  matchConditions: # never\n",
			`namespaceSelector: {{- include "berth.managedNamespaces" . | nindent 4 }}`,
		}},
		"job":  {schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, []string{`{{- if include "berth.enabled" (list . "batch/job") }}` + "\n- ", "failurePolicy: Fail"}},
		"ours": {schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Cohort"}, []string{"- clientConfig", "failurePolicy: Fail"}},
	} {
		t.Run(name, func(t *testing.T) {
			hook := map[string]any{
				"clientConfig":  map[string]any{"service": map[string]any{"path": review.NewPath(tc.gvk, false)}},
				"failurePolicy": "Fail", "name": "x", "matchConditions": []any{map[string]any{"name": "b", "expression": "a"}},
			}
			text, err := webhookTemplate(hook, frameworkOf(hook), false)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range tc.want {
				if !strings.Contains(text, w) {
					t.Errorf("there is no %q in\n%s", w, text)
				}
			}
		})
	}
}
