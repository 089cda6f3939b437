package options

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want []string
	}{
		"nothing":               {"namespace: a", "namespace: a", nil},
		"a default written out": {"", "webhook: {port: 9443}", nil},
		"fields, sorted": {
			"webhook: {port: 1}\nclientConnection: {qps: 1}", "webhook: {port: 2}\nclientConnection: {qps: 2}",
			[]string{"clientConnection.qps", "webhook.port"},
		},
		"one that comes": {"", "objectRetentionPolicies: {workloads: {afterFinished: 1h}}", []string{"objectRetentionPolicies.workloads.afterFinished"}},
		"one further down": {
			"objectRetentionPolicies: {workloads: {afterFinished: 1h}}", "objectRetentionPolicies: {workloads: {afterFinished: 2h}}",
			[]string{"objectRetentionPolicies.workloads.afterFinished"},
		},
		"a list": {"integrations: {labelKeysToCopy: [a, b]}", "integrations: {labelKeysToCopy: [b]}", []string{"integrations.labelKeysToCopy"}},
		"a gate": {"featureGates: {PartialAdmission: false}", "", []string{"featureGates.PartialAdmission"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := mustParse(t, tc.a, ""), mustParse(t, tc.b, "")
			if diff := cmp.Diff(tc.want, Changes(&a, &b)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}
