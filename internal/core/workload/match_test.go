package workload

import (
	"testing"

	"github.com/berth-project/berth/internal/core/resource"
)

func TestExprMatches(t *testing.T) {
	labels := map[string]string{"type": "spot", "gen": "7", "name": "x"}
	tests := map[string]struct {
		e    Expr
		want bool
	}{
		"in":                    {Expr{"type", In, []string{"a", "spot"}}, true},
		"not among those":       {Expr{"type", In, []string{"a"}}, false},
		"in, no such label":     {Expr{"zone", In, []string{""}}, false},
		"not in":                {Expr{"type", NotIn, []string{"a"}}, true},
		"not in, but is":        {Expr{"type", NotIn, []string{"spot"}}, false},
		"not in, no such label": {Expr{"zone", NotIn, []string{"a"}}, true},
		"exists":                {Expr{Key: "type", Op: Exists}, true},
		"exists not":            {Expr{Key: "zone", Op: Exists}, false},
		"does not exist":        {Expr{Key: "zone", Op: DoesNotExist}, true},
		"does exist":            {Expr{Key: "type", Op: DoesNotExist}, false},
		"greater":               {Expr{"gen", Gt, []string{"6"}}, true},
		"equal is not greater":  {Expr{"gen", Gt, []string{"7"}}, false},
		"less":                  {Expr{"gen", Lt, []string{"8"}}, true},
		"10 is not less than 9": {Expr{"gen", Lt, []string{"6"}}, false},
		"label is no number":    {Expr{"name", Gt, []string{"1"}}, false},
		"value is no number":    {Expr{"gen", Gt, []string{"x"}}, false},
		"two values to compare": {Expr{"gen", Gt, []string{"1", "2"}}, false},
		"no value to compare":   {Expr{"gen", Gt, nil}, false},
		"greater, no label":     {Expr{"zone", Gt, []string{"1"}}, false},
		"unknown operator":      {Expr{"type", "Like", []string{"spot"}}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.e.Matches(labels); got != tc.want {
				t.Errorf("Matches = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTermMatches(t *testing.T) {
	labels := map[string]string{"a": "1", "b": "2"}
	both := Term{{"a", In, []string{"1"}}, {"b", In, []string{"2"}}}
	if !both.Matches(labels) || (Term{both[0], {"b", In, []string{"3"}}}).Matches(labels) {
		t.Error("a term is not the conjunction of its expressions")
	}
	if !(Term{}).Matches(labels) {
		t.Error("the empty conjunction does not match")
	}
}

func TestTolerates(t *testing.T) {
	taint := Taint{Key: "k", Value: "5", Effect: "NoSchedule"}
	tests := map[string]struct {
		by   Toleration
		want bool
	}{
		"equal":                         {Toleration{"k", "Equal", "5", "NoSchedule"}, true},
		"equal is the default operator": {Toleration{"k", "", "5", ""}, true},
		"another value":                 {Toleration{"k", "Equal", "6", ""}, false},
		"another key":                   {Toleration{"j", "Exists", "", ""}, false},
		"another effect":                {Toleration{"k", "Exists", "", "NoExecute"}, false},
		"exists":                        {Toleration{"k", "Exists", "", ""}, true},
		"everything":                    {Toleration{"", "Exists", "", ""}, true},
		"no key needs exists":           {Toleration{"", "Equal", "5", ""}, false},
		"above a bound":                 {Toleration{"k", "Gt", "4", ""}, true},
		"not above a bound":             {Toleration{"k", "Gt", "5", ""}, false},
		"below a bound":                 {Toleration{"k", "Lt", "6", ""}, true},
		"bound is no number":            {Toleration{"k", "Lt", "x", ""}, false},
		"unknown operator":              {Toleration{"k", "Like", "5", ""}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.by.Tolerates(taint); got != tc.want {
				t.Errorf("Tolerates = %v, want %v", got, tc.want)
			}
		})
	}
	for effect, want := range map[string]bool{"NoSchedule": true, "NoExecute": true, "PreferNoSchedule": false} {
		if got := (Taint{Effect: effect}).Repels(); got != want {
			t.Errorf("a taint with effect %s: Repels = %v", effect, got)
		}
	}
}

func TestScaled(t *testing.T) {
	ps := PodSet{Count: 3, Requests: []Request{{0, 7}, {1, 3}}}
	for count, want := range map[int32][]resource.Amount{1: {2, 1}, 2: {4, 2}, 3: {7, 3}, 6: {12, 6}} {
		got := ps.Scaled(count)
		if got.Count != count || got.Requests[0].Amount != want[0] || got.Requests[1].Amount != want[1] {
			t.Errorf("scaled to %d: %+v, want %v", count, got, want)
		}
	}
	if none := (PodSet{}).Scaled(4); none.Count != 0 {
		t.Errorf("nothing to scale: %+v", none)
	}
	if ps.Requests[0].Amount != 7 {
		t.Error("the original was changed")
	}
}
