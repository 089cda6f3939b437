package devices

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

const (
	many    = 1000 // slices
	devices = 8    // of each
)

// filled is a catalog that has read slices of two drivers and a mapped class, and needs no report.
func filled(slices int) *Catalog {
	rules := plan.Rules{Integrated: true, Mappings: []configv1beta2.DeviceClassMapping{{Name: "gpus", DeviceClassNames: []corev1.ResourceName{"gpu"}}}}
	c := New(rules, nil, logr.Discard(), func(context.Context, plan.Changed) {})
	c.served, c.slices.synced, c.slices.known = true, true, map[types.NamespacedName]*resourcev1.ResourceSlice{}
	c.templates.synced, c.templates.known = true, map[types.NamespacedName]*resourcev1.ResourceClaimTemplate{}
	c.classes.synced = true
	c.classes.known = map[types.NamespacedName]*resourcev1.DeviceClass{{Name: "gpu"}: {ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}}
	for i := range slices {
		c.put(i, 1)
	}
	c.refresh()
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

// template adds or replaces a template of one request for one device of the class.
func (c *Catalog) template(namespace, name, version string, expressions ...string) {
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version}}
	e := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}
	for _, x := range expressions {
		e.Selectors = append(e.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: x}})
	}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: e}}
	c.templates.known[types.NamespacedName{Namespace: namespace, Name: name}] = t
}

const hasCores = `device.attributes["shared.example.com"].cores > 0`

func some() plan.Selection { return plan.Selection{Expressions: []string{hasCores}} }

// choose evaluates a selection, without a limit, and returns how many devices were evaluated for it.
func (c *Catalog) choose(ctx context.Context, s plan.Selection) (matches []plan.Match, problem string, evaluated int) {
	c.refresh()
	before := c.evaluated
	selected, _ := (&world{Catalog: c, ctx: ctx, left: 1 << 60}).Select(s)
	return slices.Collect(selected.Matches), selected.Problem, c.evaluated - before
}

// TestIncremental: a selection evaluates each device once, and after a change only the devices of the changed slice.
func TestIncremental(t *testing.T) {
	c := filled(many)
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
		matches, problem, evaluated := c.choose(t.Context(), some())
		if problem != "" || len(matches) != step.matches || evaluated != step.evaluated {
			t.Fatalf("%s: %d matches of %d evaluated devices, want %d of %d (%s)", step.name, len(matches), evaluated, step.matches, step.evaluated, problem)
		}
		if !slices.IsSortedFunc(matches, func(a, b plan.Match) int {
			return slices.Compare([]string{a.Driver, a.Pool, a.Device.Name}, []string{b.Driver, b.Pool, b.Device.Name})
		}) {
			t.Fatalf("%s: the matches are not in order", step.name)
		}
	}
	if _, _, evaluated := c.choose(t.Context(), plan.Selection{Driver: "d1.example.com", Expressions: some().Expressions}); evaluated != many/2*devices {
		t.Errorf("of one driver, %d devices were evaluated", evaluated)
	}
}

// TestEvaluationFails: the first device that an expression fails on is named, and evaluated again only after its slice has changed.
func TestEvaluationFails(t *testing.T) {
	c := filled(10)
	broken := plan.Selection{Expressions: []string{`device.attributes["shared.example.com"].cores == 0 || device.attributes["shared.example.com"].missing == 1`}}
	const at = "device 0 of pool s0000 of driver d0.example.com: "
	if _, problem, n := c.choose(t.Context(), broken); !strings.HasPrefix(problem, at) || n != 1 {
		t.Errorf("%d devices, problem %q", n, problem)
	}
	c.put(1, 0)
	if _, problem, n := c.choose(t.Context(), broken); !strings.HasPrefix(problem, at) || n != 0 {
		t.Errorf("after a change of another slice, %d devices, problem %q", n, problem)
	}
	c.put(0, 0)
	if matches, problem, n := c.choose(t.Context(), broken); problem != "" || n != 10*devices || len(matches) != n {
		t.Errorf("mended: %d devices, %d matches, problem %q", n, len(matches), problem)
	}
	w := &world{Catalog: c, ctx: t.Context(), left: 1 << 60}
	if w.Compiles("device.") == "" || w.Compiles("device.driver == 'x'") != "" {
		t.Error("expressions are not compiled as selectors")
	}
	if text := w.Compiles(strings.Repeat("a+", 5000)); len(text) > 1100 {
		t.Errorf("a message of %d bytes", len(text))
	}
}

// charged demands the charge of a claim of the namespace; -1 is none yet.
func (c *Catalog) charged(t *testing.T, namespace, name string, amount resource.Amount) {
	t.Helper()
	got := resource.Amount(-1)
	claim, problem := c.Claim(namespace, name)
	if claim != nil {
		got, problem = claim.Charged["gpus"], claim.Problem
	}
	if got != amount || (problem == nil) != (amount > 0) {
		t.Fatalf("%s/%s is charged %d (%+v), want %d", namespace, name, got, problem, amount)
	}
}

// TestCountedOnce: a claim is counted once for each version of its template and each generation of the catalog, however many workloads ask.
func TestCountedOnce(t *testing.T) {
	c := filled(many)
	c.template("n", "selecting", "1", hasCores)
	c.template("n", "plain", "1")
	steps := []struct {
		name            string
		change          func()
		before          resource.Amount // what selecting is charged before it is counted again
		counted, copies int             // copies: distinct results
	}{
		{"at first", func() {}, -1, 2, 1},
		{"nothing has changed", func() {}, 1, 0, 1},
		{"a slice", func() { c.put(10, 0) }, 1, 2, 1},
		{"the mappings", func() { c.SetMappings(c.rules.Load().Mappings) }, 1, 2, 1},
		{"a class", func() { c.classChanged(nil, nil) }, 1, 2, 1},
		{"a template", func() { c.template("n", "selecting", "2", hasCores, "true") }, -1, 1, 1},
		{"a template that is the same", func() { c.template("n", "selecting", "2", hasCores, "true") }, 1, 0, 1},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			before := c.counted
			step.change()
			c.charged(t, "n", "selecting", step.before)
			c.evaluate(t.Context())
			results := map[*plan.Claim]bool{}
			for range 1000 {
				c.charged(t, "n", "selecting", 1)
				c.charged(t, "n", "plain", 1)
				claim, _ := c.Claim("n", "selecting")
				results[claim] = true
				c.evaluate(t.Context())
			}
			if n := c.counted - before; n != step.counted || len(results) != step.copies {
				t.Errorf("counted %d times with %d results, want %d with %d", n, len(results), step.counted, step.copies)
			}
		})
	}
}

// TestClaimsEnd: a claim that no workload asks for any more is dropped with the next report, with its selection.
func TestClaimsEnd(t *testing.T) {
	c := filled(many)
	c.template("n", "a", "1", hasCores)
	c.template("n", "b", "1", hasCores, "true")
	c.charged(t, "n", "a", -1)
	c.charged(t, "n", "b", -1)
	c.evaluate(t.Context())
	c.changed = func(context.Context, plan.Changed) { c.charged(t, "n", "a", 1) }
	c.report(t.Context())
	if len(c.claims) != 1 || len(c.known) != 1 {
		t.Fatalf("%d claims and %d selections, want those that are in use", len(c.claims), len(c.known))
	}
	c.changed = func(context.Context, plan.Changed) {}
	c.renew()
	c.evaluate(t.Context())
	c.report(t.Context())
	if len(c.claims) != 0 || len(c.known) != 0 || c.bytes != 0 {
		t.Errorf("%d claims, %d selections of %d bytes, want none", len(c.claims), len(c.known), c.bytes)
	}
}

// TestTemplateEvents: a change of a template is reported if workloads claim from it, or would if it existed, and then for these alone; claims from
// others stay. Names without end are forgotten with a report about all.
func TestTemplateEvents(t *testing.T) {
	c := filled(many)
	var got []plan.Changed
	report := func(asked ...string) {
		t.Helper()
		got = nil
		c.changed = func(_ context.Context, changed plan.Changed) {
			got = append(got, changed)
			for _, name := range asked {
				_, _ = c.Claim("n", name)
			}
		}
		c.evaluateAll(t.Context())
	}
	event := func(namespace, name string) {
		c.templateChanged(nil, &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	c.template("n", "kept", "1", hasCores)
	c.charged(t, "n", "kept", -1)
	if claim, problem := c.Claim("n", "missing"); claim != nil || problem != nil {
		t.Fatalf("a missing template: %v, %v", claim, problem)
	}
	report("kept", "missing")
	for range 3 {
		event("n", "unrelated")
		event("elsewhere", "missing")
		if report(); len(got) != 0 {
			t.Fatalf("templates of no workload are reported: %+v", got)
		}
	}
	c.template("n", "missing", "1")
	event("n", "missing")
	if report("missing"); len(got) != 1 || got[0].All || got[0].Claiming || !got[0].Templates.Equal(sets.New(types.NamespacedName{Namespace: "n", Name: "missing"})) {
		t.Fatalf("reported: %+v", got)
	}
	c.charged(t, "n", "missing", 1)
	c.charged(t, "n", "kept", 1) // without another count
	delete(c.templates.known, types.NamespacedName{Namespace: "n", Name: "missing"})
	event("n", "missing")
	if report(); len(got) != 1 || len(c.claims) != 1 || len(c.known) != 1 {
		t.Errorf("%d reports, %d claims and %d selections are left", len(got), len(c.claims), len(c.known))
	}
	for i := range 10 * fewClaims {
		_, _ = c.Claim("n", fmt.Sprint("none-", i))
		if len(c.claims) > fewClaims {
			if report("kept"); len(got) != 1 || !got[0].Claiming || got[0].All {
				t.Fatalf("reported: %+v", got)
			}
		}
	}
	if len(c.claims) > fewClaims {
		t.Errorf("%d claims are kept for no workload", len(c.claims))
	}
}

// TestManySelections: a tenant with thousands of selections gets charges for all of them, from a limited number of kept bytes.
func TestManySelections(t *testing.T) {
	const tenant, n, slices = "tenant", 2000, 4
	c := filled(slices)
	name := func(i int) string { return fmt.Sprintf("t%04d", i) }
	for i := range n { // few expressions, which take long to compile, in many selections
		c.template(tenant, name(i), "1", hasCores, fmt.Sprintf("%d < 100", i%50), fmt.Sprintf("%d < 200", i/50))
	}
	size := (&answer{bits: make([]uint64, 1)}).size()
	c.limit = n / 10 * size
	all := func(amount resource.Amount) {
		t.Helper()
		for i := range n {
			c.charged(t, tenant, name(i), amount)
		}
	}
	c.changed = func(context.Context, plan.Changed) {
		for i := range n {
			_, _ = c.Claim(tenant, name(i))
		}
	}
	work := func() (evaluated int) {
		before := c.evaluated
		for {
			c.evaluate(t.Context())
			c.report(t.Context())
			sum := 0
			for _, a := range c.known {
				sum += a.size()
			}
			if sum != c.bytes || c.bytes > c.limit {
				t.Fatalf("%d kept bytes, accounted as %d, limited to %d", sum, c.bytes, c.limit)
			}
			if len(c.pending()) == 0 {
				return c.evaluated - before
			}
		}
	}
	all(-1)
	if got := work(); got != n*slices*devices {
		t.Errorf("%d devices evaluated, want each once for each selection", got)
	}
	all(1)
	if len(c.known) != n/10 {
		t.Errorf("%d answers are kept, want the %d that there is room for", len(c.known), n/10)
	}
	c.put(0, 0)
	work()
	all(0)
	c.put(0, 1)
	work()
	all(1)
	c.limit = 10 * n * size
	c.put(0, 1)
	work()
	c.put(0, 1)
	if got := work(); got != n*devices || len(c.known) != n {
		t.Errorf("with room for all, %d devices evaluated for %d selections, want those of the changed slice", got, len(c.known))
	}
	c.changed = func(context.Context, plan.Changed) {}
	c.renew()
	work()
	if len(c.known) != 0 || len(c.claims) != 0 {
		t.Errorf("%d answers and %d claims are kept for no workload", len(c.known), len(c.claims))
	}
}

// asked makes a report ask for the claims with these names.
func (c *Catalog) asked(namespace string, names ...string) {
	before := c.changed
	c.changed = func(ctx context.Context, changed plan.Changed) {
		before(ctx, changed)
		for _, name := range names {
			_, _ = c.Claim(namespace, name)
		}
	}
}

// evaluateAll evaluates and reports until nothing is left to do.
func (c *Catalog) evaluateAll(ctx context.Context) {
	for {
		c.evaluate(ctx)
		c.report(ctx)
		if len(c.pending()) == 0 {
			return
		}
	}
}

// distinct adds templates with an expression each that no other one has, and makes reports ask for their claims.
func (c *Catalog) distinct(namespace string, n int) {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("t%04d", i))
		c.template(namespace, names[i], "1", hasCores, fmt.Sprintf("'%s' != '%d'", namespace, i))
	}
	c.asked(namespace, names...)
	c.renew()
}

// TestCompiledOnce: the expressions of claims that workloads need are compiled once, however many there are and often slices change.
func TestCompiledOnce(t *testing.T) {
	const n = 1000
	c := filled(10)
	c.distinct("n", n)
	c.evaluateAll(t.Context())
	for i := range 3 {
		c.put(0, int64(2+i))
		c.evaluateAll(t.Context())
	}
	c.charged(t, "n", "t0999", 1)
	if c.cel.compiled != n+1 || len(c.cel.known) != n+1 {
		t.Errorf("%d expressions are compiled %d times and %d of them kept, want each once", n+1, c.cel.compiled, len(c.cel.known))
	}
	c.changed = func(context.Context, plan.Changed) {}
	c.renew()
	c.evaluateAll(t.Context())
	c.distinct("n", n)
	c.evaluateAll(t.Context())
	if c.cel.compiled != n+1 {
		t.Errorf("compiled %d times, though there is room for those that no claim needed for a while", c.cel.compiled)
	}
}

// TestHostileExpressions: a tenant with more expressions than there is room for has its own compiled again, and expressions that no claim needs go first.
func TestHostileExpressions(t *testing.T) {
	const few, plenty, idle, room = 20, 500, 30, 100
	c := filled(2)
	c.distinct("idle", idle)
	c.evaluateAll(t.Context())
	c.changed = func(context.Context, plan.Changed) {}
	c.distinct("other", few)
	c.evaluateAll(t.Context())
	c.cel.limit = room * (c.cel.bytes / len(c.cel.known))
	c.distinct("hostile", plenty)
	c.evaluateAll(t.Context())
	before := c.cel.compiled
	for i := range 3 {
		c.put(0, int64(2+i))
		c.evaluateAll(t.Context())
		if c.cel.bytes > c.cel.limit || c.cel.bytes < c.cel.limit/2 {
			t.Fatalf("%d bytes of programs are kept, limited to %d", c.cel.bytes, c.cel.limit)
		}
	}
	if c.cel.compiled == before {
		t.Fatal("there is room for all")
	}
	kept, sum := map[string]int{}, 0
	for e, p := range c.cel.known {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(e, "'"), "'")
		kept[namespace]++
		sum += p.size()
	}
	if kept["other"] != few || kept["idle"] != 0 || c.cel.known[hasCores] == nil || sum != c.cel.bytes {
		t.Errorf("kept are %v; want all of the other tenant, and none that no claim needs", kept)
	}
	for i := range few {
		if _, now := c.cel.compile("other", fmt.Sprintf("'other' != '%d'", i)); now {
			t.Errorf("expression %d of the other tenant was compiled again", i)
		}
	}
}

// TestCostlySelections: costly selections of a tenant do not delay other ones, and no part of them is evaluated twice.
func TestCostlySelections(t *testing.T) {
	const n, slices = 50, 10
	c := filled(slices)
	c.quantum = 2000 // less than a selection costs, and than compiling it does
	for i := range n {
		c.template("costly", fmt.Sprint(i), "1", hasCores, fmt.Sprintf("%d < 100", i))
		c.charged(t, "costly", fmt.Sprint(i), -1)
	}
	c.evaluate(t.Context())
	if len(c.pending()["costly"]) == 0 {
		t.Fatalf("the selections are not costly: %d", c.spent["costly"])
	}
	c.template("cheap", "t", "1", hasCores)
	c.charged(t, "cheap", "t", -1)
	for before := c.spent["costly"]; len(c.pending()["cheap"]) > 0; {
		c.evaluate(t.Context())
		if spent := c.spent["costly"] - before; spent > turns*c.quantum+100_000 {
			t.Fatalf("a cheap selection waits while %d are spent for costly ones", spent)
		}
	}
	c.charged(t, "cheap", "t", 1)
	unfinished := 0
	for _, a := range c.known {
		if !a.finished() {
			unfinished++
		}
	}
	if unfinished > 1 {
		t.Errorf("%d selections of a namespace are unfinished", unfinished)
	}
	if left := len(c.pending()["costly"]); left == 0 {
		t.Fatal("no costly selection waits any more")
	}
	for len(c.pending()) > 0 {
		c.evaluate(t.Context())
	}
	for i := range n {
		c.charged(t, "costly", fmt.Sprint(i), 1)
	}
	if want := (n + 1) * slices * devices; c.evaluated != want {
		t.Errorf("%d devices evaluated, want %d", c.evaluated, want)
	}
	c.evaluate(t.Context())
	if len(c.spent) > 0 {
		t.Errorf("costs of %v are remembered", c.spent)
	}
}

// BenchmarkSelect compares a first evaluation of 1,000 slices with one after a change of one slice.
func BenchmarkSelect(b *testing.B) {
	b.Run("first", func(b *testing.B) {
		c := filled(many)
		for b.Loop() {
			c.retain(nil)
			c.choose(b.Context(), some())
		}
		b.ReportMetric(float64(c.evaluated)/float64(b.N), "devices/op")
	})
	b.Run("changed", func(b *testing.B) {
		c := filled(many)
		c.choose(b.Context(), some())
		evaluated := c.evaluated
		for b.Loop() {
			c.put(10, 1)
			c.choose(b.Context(), some())
		}
		b.ReportMetric(float64(c.evaluated-evaluated)/float64(b.N), "devices/op")
	})
}

// BenchmarkKept reports the bytes that the answer to a selection of 8,000 devices keeps, as accounted and as measured on the heap.
func BenchmarkKept(b *testing.B) {
	const n = 64
	for b.Loop() {
		c := filled(many)
		selection := func(i int) plan.Selection {
			return plan.Selection{Expressions: []string{"true", fmt.Sprintf("%d < %d", i, n)}}
		}
		for i := range n {
			c.choose(b.Context(), selection(i))
		}
		with := heap()
		b.ReportMetric(float64(c.bytes)/n, "accounted-B/selection")
		c.retain(nil)
		b.ReportMetric((with-heap())/n, "heap-B/selection")
		runtime.KeepAlive(c)
	}
}

// BenchmarkPrograms reports the bytes of the heap that a compiled expression keeps.
func BenchmarkPrograms(b *testing.B) {
	const n = 64
	for name, expression := range map[string]string{
		"short": "%d < 64 && " + hasCores, "long": "%d < 64" + strings.Repeat(" && "+hasCores, 150), "dense": "%d < 64" + strings.Repeat("&&1<2", 1000),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				c := filled(0)
				for i := range n {
					if r, _ := c.cel.compile("n", fmt.Sprintf(expression, i)); r.Error != nil {
						b.Fatal(r.Error)
					}
				}
				b.ReportMetric((heap()-before)/n, "heap-B/program")
				runtime.KeepAlive(c)
			}
		})
	}
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestServedLate: once the API is served workloads are counted again if devices were asked for, and only then: there may be very many.
func TestServedLate(t *testing.T) {
	for _, asked := range []bool{false, true} {
		c := New(plan.Rules{Integrated: true}, nil, logr.Discard(), func(context.Context, plan.Changed) {})
		if asked {
			if class, problem := c.Backing("example.com/gpu"); class != nil || problem != nil {
				t.Fatalf("not served: %v, %v", class, problem)
			}
		}
		if c.Serve(); c.noted.All != asked {
			t.Errorf("asked before %t: counts all again %t", asked, c.noted.All)
		}
	}
}
