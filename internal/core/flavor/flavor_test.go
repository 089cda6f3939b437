package flavor

import (
	"testing"

	"github.com/berth-project/berth/internal/core/workload"
)

// TestMismatch is spec 10 §4.6.2, and examples 15 to 17.
func TestMismatch(t *testing.T) {
	in := func(key string, values ...string) workload.Expr {
		return workload.Expr{Key: key, Op: workload.In, Values: values}
	}
	tolerate := func(key, value string) workload.Toleration {
		return workload.Toleration{Key: key, Operator: "Equal", Value: value}
	}
	labeled := Flavor{Name: "spot", Labels: map[string]string{"type": "spot", "gen": "7"}}
	tainted := Flavor{Name: "tainted", Taints: []workload.Taint{{Key: "spot", Value: "yes", Effect: "NoSchedule"}}}
	numeric := Flavor{Name: "numeric", Taints: []workload.Taint{{Key: "sla", Value: "95", Effect: "NoExecute"}}}
	forgiving := tainted
	forgiving.Tolerations = []workload.Toleration{tolerate("spot", "yes")}
	soft := Flavor{Name: "soft", Taints: []workload.Taint{{Key: "spot", Effect: "PreferNoSchedule"}}}
	tests := map[string]struct {
		flavor Flavor
		pods   *workload.Constraints
		want   string
	}{
		"no constraints":            {labeled, nil, ""},
		"missing":                   {Flavor{Name: "gone", Missing: true}, nil, "flavor gone does not exist"},
		"taint":                     {tainted, nil, "flavor tainted has taint spot=yes:NoSchedule that the pods do not tolerate"},
		"tolerated by the pods":     {tainted, &workload.Constraints{Tolerations: []workload.Toleration{tolerate("spot", "yes")}}, ""},
		"another value tolerated":   {tainted, &workload.Constraints{Tolerations: []workload.Toleration{tolerate("spot", "no")}}, "flavor tainted has taint spot=yes:NoSchedule that the pods do not tolerate"},
		"tolerated by the flavor":   {forgiving, nil, ""},
		"a taint that only prefers": {soft, nil, ""},
		"numeric toleration": {numeric, &workload.Constraints{
			Tolerations: []workload.Toleration{{Key: "sla", Operator: "Gt", Value: "90"}},
		}, ""},
		"numeric toleration, too low": {numeric, &workload.Constraints{
			Tolerations: []workload.Toleration{{Key: "sla", Operator: "Gt", Value: "99"}},
		}, "flavor numeric has taint sla=95:NoExecute that the pods do not tolerate"},

		"selector of another key":     {labeled, &workload.Constraints{Selector: map[string]string{"zone": "a"}}, ""},
		"selector that agrees":        {labeled, &workload.Constraints{Selector: map[string]string{"type": "spot", "zone": "a"}}, ""},
		"selector that differs":       {labeled, &workload.Constraints{Selector: map[string]string{"type": "ondemand"}}, "flavor spot does not match the node selector"},
		"any selector without labels": {soft, &workload.Constraints{Selector: map[string]string{"type": "ondemand"}}, ""},

		"affinity that agrees":                {labeled, &workload.Constraints{Affinity: []workload.Term{{in("type", "spot")}}}, ""},
		"affinity that differs":               {labeled, &workload.Constraints{Affinity: []workload.Term{{in("type", "x")}}}, "flavor spot does not match the required node affinity"},
		"one of two terms":                    {labeled, &workload.Constraints{Affinity: []workload.Term{{in("type", "x")}, {in("gen", "7")}}}, ""},
		"a term about other keys":             {labeled, &workload.Constraints{Affinity: []workload.Term{{in("type", "x")}, {in("zone", "b")}}}, ""},
		"other keys in a term are ignored":    {labeled, &workload.Constraints{Affinity: []workload.Term{{in("type", "spot"), in("zone", "b")}}}, ""},
		"all expressions of a term must hold": {labeled, &workload.Constraints{Affinity: []workload.Term{{in("type", "spot"), in("gen", "8")}}}, "flavor spot does not match the required node affinity"},
		"a term of nothing that counts":       {labeled, &workload.Constraints{Affinity: []workload.Term{{in("type", "x")}, {}}}, ""},
		"numeric affinity": {labeled, &workload.Constraints{
			Affinity: []workload.Term{{{Key: "gen", Op: workload.Gt, Values: []string{"6"}}}},
		}, ""},
		"selector and affinity both hold": {labeled, &workload.Constraints{
			Selector: map[string]string{"type": "spot"}, Affinity: []workload.Term{{in("gen", "8")}},
		}, "flavor spot does not match the required node affinity"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.flavor.mismatch(tc.pods).String(); got != tc.want {
				t.Errorf("mismatch = %q, want %q", got, tc.want)
			}
		})
	}
}
