package flags

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// spec: 70 §4.9, quota flags; §7 example 43.
func TestResourceGroups(t *testing.T) {
	for name, tc := range map[string]struct {
		nominal, borrowing, lending []string
		want                        string // the groups as YAML in one line, or the error
	}{
		"none": {want: `[]`},
		"example 43": {
			nominal: []string{"f1:cpu=4;memory=8Gi"}, borrowing: []string{"f1:cpu=2;memory=0"},
			want: `[{coveredResources: [cpu, memory], flavors: [{name: f1, resources: [{name: cpu, nominalQuota: "4", borrowingLimit: "2"}, {name: memory, nominalQuota: 8Gi, borrowingLimit: "0"}]}]}]`,
		},
		"the same resources in another order join, and take the group's order": {
			nominal: []string{"a:cpu=1;gpu=2", "b:gpu=4;cpu=3;"},
			want:    `[{coveredResources: [cpu, gpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: "1"}, {name: gpu, nominalQuota: "2"}]}, {name: b, resources: [{name: cpu, nominalQuota: "3"}, {name: gpu, nominalQuota: "4"}]}]}]`,
		},
		"names that contain each other are different": {
			nominal: []string{"a:x.io/gpu=1", "b:x.io/gpu-mem=2"},
			want:    `[{coveredResources: [x.io/gpu], flavors: [{name: a, resources: [{name: x.io/gpu, nominalQuota: "1"}]}]}, {coveredResources: [x.io/gpu-mem], flavors: [{name: b, resources: [{name: x.io/gpu-mem, nominalQuota: "2"}]}]}]`,
		},
		"limits before quotas do not change the order": {
			nominal: []string{"a:cpu=1"}, borrowing: []string{"b:cpu=2"}, lending: []string{"a:cpu=500m", "b:cpu=0"},
			want: `[{coveredResources: [cpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: "1", lendingLimit: 500m}]}, {name: b, resources: [{name: cpu, nominalQuota: "0", borrowingLimit: "2", lendingLimit: "0"}]}]}]`,
		},
		"some resources in common":     {nominal: []string{"a:cpu=1;gpu=1", "b:gpu=1;memory=1"}, want: "the flavors a and b share the resource gpu but not all"},
		"a comma instead of semicolon": {nominal: []string{"f:cpu=1", "memory=2Gi"}, want: `--nominal-quota "memory=2Gi": must be FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY, and a comma begins another flavor`},
		"another set of resources":     {nominal: []string{"f:cpu=1"}, lending: []string{"f:memory=1"}, want: `--lending-limit "f:memory=1": the flavor f has the resources cpu elsewhere`},
		"fewer resources":              {nominal: []string{"f:cpu=1;memory=1"}, borrowing: []string{"f:cpu=1"}, want: `--borrowing-limit "f:cpu=1": the flavor f has the resources cpu, memory elsewhere`},
		"twice":                        {nominal: []string{"f:cpu=1;cpu=2"}, want: `--nominal-quota "f:cpu=1;cpu=2": cpu is named twice`},
		"decimals":                     {nominal: []string{"f:cpu=0.5"}, want: `--nominal-quota "f:cpu=0.5": the quantity "0.5" of cpu must be of letters and digits, as in 500m for a half`},
		"no quantity":                  {nominal: []string{"f:cpu="}, want: `--nominal-quota "f:cpu=": the quantity ""`},
		"nonsense":                     {nominal: []string{"f:cpu=many"}, want: `--nominal-quota "f:cpu=many": the quantity "many" of cpu: `},
		"no resource":                  {nominal: []string{"f:"}, want: `--nominal-quota "f:": "" is no RESOURCE=QUANTITY`},
		"no flavor":                    {nominal: []string{":cpu=1"}, want: `--nominal-quota ":cpu=1": "" is no name of a flavor`},
		"a flavor of capitals":         {nominal: []string{"F:cpu=1"}, want: `--nominal-quota "F:cpu=1": "F" is no name of a flavor`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ResourceGroups(tc.nominal, tc.borrowing, tc.lending)
			if err != nil {
				if !strings.HasPrefix(err.Error(), tc.want) {
					t.Errorf("%v, want %s", err, tc.want)
				}
				return
			}
			var have, want any
			text, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(text, &have); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatalf("no error, want %s", tc.want)
			}
			if have == nil {
				have = []any{}
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestTaints(t *testing.T) {
	got, err := Taints([]string{"k=v:NoSchedule", "k:NoExecute", "x.io/y=:PreferNoSchedule"})
	want := []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "k", Effect: "NoExecute"}, {Key: "x.io/y", Effect: "PreferNoSchedule"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for text, want := range map[string]string{
		"k": "the effect is missing", "k=v:": "the effect is missing", ":NoSchedule": "the key is missing", "k:Never": `the effect "Never" must be NoSchedule, PreferNoSchedule, NoExecute`,
		"k=a b:NoSchedule": `the value "a b"`, "-k:NoSchedule": `the key "-k"`,
	} {
		if _, err := Taints([]string{text}); err == nil || !strings.HasPrefix(err.Error(), `--node-taints "`+text+`": `+want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Taints([]string{"k=a:NoSchedule", "k=b:NoSchedule"}); err == nil || !strings.Contains(err.Error(), "another taint with this key and effect") {
		t.Errorf("the same key and effect: %v", err)
	}
}

func TestTolerations(t *testing.T) {
	got, err := Tolerations([]string{"k=v:NoSchedule", "k=v", "k", ":NoExecute", "k:NoExecute"})
	want := []corev1.Toleration{
		{Key: "k", Operator: "Equal", Value: "v", Effect: "NoSchedule"},
		{Key: "k", Operator: "Equal", Value: "v"},
		{Key: "k", Operator: "Exists"},
		{Operator: "Exists", Effect: "NoExecute"},
		{Key: "k", Operator: "Exists", Effect: "NoExecute"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for text, want := range map[string]string{"=v": "a value needs a key", "": "is empty", "k:Sometimes": "the effect"} {
		if _, err := Tolerations([]string{text}); err == nil || !strings.HasPrefix(err.Error(), `--tolerations "`+text+`": `+want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
