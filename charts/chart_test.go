package main

import (
	"strings"
	"testing"
)

// The webhook of a disabled kind is left out. For kinds that Kubernetes itself creates it exists, is not called, and ignores failures.
// spec: 70 §4.5, §7 #55.
func TestWebhookTemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		frameworks []string
		want       []string
	}{
		"pod": {[]string{"pod", "deployment"}, []string{
			`failurePolicy: {{ include "berth.failurePolicy" (list . "pod" "deployment") }}`,
			`{{- if include "berth.enabled" (list . "pod" "deployment") }}` + "\n  matchConditions:\n  - expression: a\n    name: b\n{{- else }}\n  matchConditions: # never\n",
			`namespaceSelector: {{- include "berth.managedNamespaces" . | nindent 4 }}`,
		}},
		"job":  {[]string{"batch/job"}, []string{`{{- if include "berth.enabled" (list . "batch/job") }}` + "\n- ", "failurePolicy: Fail"}},
		"ours": {nil, []string{"- clientConfig", "failurePolicy: Fail"}},
	} {
		t.Run(name, func(t *testing.T) {
			hook := map[string]any{
				"clientConfig": map[string]any{"service": map[string]any{"path": "/validate"}}, "failurePolicy": "Fail", "name": "x",
				"matchConditions": []any{map[string]any{"name": "b", "expression": "a"}},
			}
			text, err := webhookTemplate(hook, tc.frameworks, false)
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
