package training_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/training"
)

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		want []string // parts of the errors, in order
	}{
		"nothing":            {"{}", nil},
		"an unknown policy":  {"runtimePatches: {conflictPolicy: reject}", []string{`trainer.runtimePatches.conflictPolicy: Unsupported value: "reject"`}},
		"an unknown mode":    {"runtimePatches: {ownership: {mode: All}}", []string{"trainer.runtimePatches.ownership.mode: Unsupported value"}},
		"names of managers":  {"runtimePatches: {schedulingManagers: [acme.io/a, 'acme.io/*', acme, '/*']}", []string{"schedulingManagers[2]", "schedulingManagers[3]"}},
		"reserved managers":  {"runtimePatches: {ownership: {reserved: [{manager: ''}, {manager: 'Acme/*'}]}}", []string{"reserved[0].manager", "reserved[1].manager"}},
		"owners":             {"runtimePatches: {ownership: {reserved: [{manager: a.io/*, subjects: ['user:ann', 'group:ops', 'system:serviceaccount:a:b']}]}}", nil},
		"users or groups":    {"runtimePatches: {ownership: {reserved: [{manager: a.io/*, subjects: [ann, 'user:', 'system:serviceaccount:b']}]}}", []string{"reserved[0].subjects[0]", "reserved[0].subjects[1]", "subjects[2]"}},
		"names of resources": {"gpuResources: [habana.ai/gaudi, a/b/c]", []string{"trainer.gpuResources[1]"}},
		"the listener":       {"statusServer: {port: 70000, qps: -1, burst: -1}", []string{"statusServer.port", "statusServer.qps", "statusServer.burst"}},
	} {
		t.Run(name, func(t *testing.T) {
			var c configv1beta2.Trainer
			if err := yaml.UnmarshalStrict([]byte(tc.file), &c); err != nil {
				t.Fatal(err)
			}
			training.SetDefaults(&c, "berth-system")
			errs := training.Validate(&c, field.NewPath("trainer"))
			if len(errs) != len(tc.want) {
				t.Fatalf("got %v, want %q", errs, tc.want)
			}
			for i := range errs {
				if !strings.Contains(errs[i].Error(), tc.want[i]) {
					t.Errorf("error %d is %q, want %q in it", i, errs[i], tc.want[i])
				}
			}
		})
	}
}
