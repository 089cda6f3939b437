package devices

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

const (
	many    = 1000 // slices
	devices = 8    // of each
)

// filled is a catalog that has read many slices of two drivers, and asks for no report.
func filled() *Catalog {
	c := New(plan.Rules{Integrated: true}, nil, logr.Discard(), func(context.Context, bool) {})
	c.served, c.slices.synced, c.slices.known = true, true, map[types.NamespacedName]*resourcev1.ResourceSlice{}
	for i := range many {
		c.put(i, 1)
	}
	return c
}

// put adds or replaces slice i, the only one of its pool. Devices of every tenth slice have the given number of cores, all others have 0.
func (c *Catalog) put(i int, cores int64) {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%04d", i)}}
	s.Spec.Driver = fmt.Sprintf("d%d.example.com", i%2)
	s.Spec.Pool = resourcev1.ResourcePool{Name: s.Name, Generation: 1, ResourceSliceCount: 1}
	if i%10 != 0 {
		cores = 0
	}
	for j := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint(j), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"shared.example.com/cores": {IntValue: &cores},
		}})
	}
	c.slices.known[types.NamespacedName{Name: s.Name}] = s
	c.dirty = true
}

func some() plan.Selection {
	return plan.Selection{Expressions: []string{`device.attributes["shared.example.com"].cores > 0`}}
}

// ask returns the answer, nil if it is not known yet, and how many devices the catalog evaluates then.
func (c *Catalog) ask(ctx context.Context, s plan.Selection) (answer *plan.Selected, evaluated int) {
	answer, _ = c.Select(s)
	before := c.evaluated
	c.evaluate(ctx)
	return answer, c.evaluated - before
}

// TestIncremental: a selection evaluates each device once, and after a change only the devices of the changed slice.
func TestIncremental(t *testing.T) {
	c := filled()
	_, problem := c.Select(some())
	if problem == nil || !problem.Reading {
		t.Fatalf("an answer before an evaluation: %+v", problem)
	}
	steps := []struct {
		name               string
		change             func()
		matches, evaluated int
	}{
		{"all", func() {}, 800, many * devices},
		{"nothing has changed", func() {}, 800, 0},
		{"a slice that matches has changed", func() { c.put(10, 0) }, 792, devices},
		{"back", func() { c.put(10, 2) }, 800, devices},
		{"a new slice", func() { c.put(many, 1) }, 808, devices},
		{"a slice is deleted", func() {
			delete(c.slices.known, types.NamespacedName{Name: "s0000"})
			c.dirty = true
		}, 800, 0},
	}
	for _, step := range steps {
		step.change()
		_, evaluated := c.ask(t.Context(), some())
		answer, problem := c.Select(some())
		if problem != nil || len(answer.Matches) != step.matches || evaluated != step.evaluated {
			t.Fatalf("%s: %d matches of %d evaluated devices, want %d of %d (%+v)", step.name, len(answer.Matches), evaluated, step.matches, step.evaluated, problem)
		}
		if !slices.IsSortedFunc(answer.Matches, func(a, b plan.Match) int {
			return slices.Compare([]string{a.Driver, a.Pool, a.Device.Name}, []string{b.Driver, b.Pool, b.Device.Name})
		}) {
			t.Fatalf("%s: the matches are not in order", step.name)
		}
	}
	if _, evaluated := c.ask(t.Context(), plan.Selection{Driver: "d1.example.com", Expressions: some().Expressions}); evaluated != many/2*devices {
		t.Errorf("of one driver, %d devices were evaluated", evaluated)
	}
}

// TestSelectionsEnd: a selection that no workload asks for any more is dropped with the next report.
func TestSelectionsEnd(t *testing.T) {
	c := filled()
	c.ask(t.Context(), some())
	c.changed = func(context.Context, bool) {
		if _, problem := c.Select(some()); problem != nil {
			t.Errorf("while reporting: %+v", problem)
		}
	}
	c.report(t.Context())
	if len(c.selections) != 1 {
		t.Fatalf("%d selections, want the one that is in use", len(c.selections))
	}
	c.changed = func(context.Context, bool) {}
	c.put(10, 0)
	c.evaluate(t.Context())
	c.report(t.Context())
	if len(c.selections) != 0 {
		t.Errorf("%d selections, want none", len(c.selections))
	}
}

// TestEvaluationFails: the first device that an expression fails on is named.
func TestEvaluationFails(t *testing.T) {
	c := filled()
	broken := plan.Selection{Expressions: []string{`device.attributes["shared.example.com"].missing == 1`}}
	c.ask(t.Context(), broken)
	answer, problem := c.Select(broken)
	if problem != nil || answer.Problem == "" || answer.Problem[:len("device 0 of pool s0000 of driver d0.example.com: ")] != "device 0 of pool s0000 of driver d0.example.com: " {
		t.Errorf("answer %+v, %+v", answer, problem)
	}
	if c.Compiles("device.") == "" || c.Compiles("device.driver == 'x'") != "" {
		t.Error("expressions are not compiled as selectors")
	}
}

// BenchmarkSelect compares a first evaluation of 1,000 slices with one after a change of one slice.
func BenchmarkSelect(b *testing.B) {
	b.Run("first", func(b *testing.B) {
		c := filled()
		c.ask(b.Context(), some())
		evaluated := c.evaluated
		for b.Loop() {
			c.selections = map[string]*selection{}
			c.ask(b.Context(), some())
		}
		b.ReportMetric(float64(c.evaluated-evaluated)/float64(b.N), "devices/op")
	})
	b.Run("changed", func(b *testing.B) {
		c := filled()
		c.ask(b.Context(), some())
		evaluated := c.evaluated
		for b.Loop() {
			c.put(10, 1)
			c.ask(b.Context(), some())
		}
		b.ReportMetric(float64(c.evaluated-evaluated)/float64(b.N), "devices/op")
	})
}
