package devices

import (
	"cmp"
	"context"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

// Costs of evaluations are in units of CEL, of which an expression may cost a million, or about 0.1 seconds.
const (
	// quantum is how much one template may cost before others have their turn.
	quantum = 1 << 20
	// turns is after how many quanta the results are reported.
	turns = 16
	// evaluating costs that much, whatever the expression is.
	evaluating = 50
)

// compiling estimates the cost of compiling an expression.
func compiling(expression string) int { return 10_000 + 100*len(expression) }

// claim has the charges of a claim that is made from a template. Its fields are guarded by Catalog.mu.
type claim struct {
	template *resourcev1.ResourceClaimTemplate // nil if it is missing
	result   *plan.Claim                       // nil before the first count
	counted  int                               // the generation of the result
	asked    int                               // the round
	// deep: it has selectors or sources, and only the goroutine counts it. begun: the goroutine has counted a part of it for a generation.
	deep, begun bool
	compiled    int      // so many of its expressions do compile
	selections  []key    // that its last count needed
	expressions []string // likewise, with repeats
}

// isFrom reports whether the claim is from a template in the same version; nil for a missing one.
func (cl *claim) isFrom(t *resourcev1.ResourceClaimTemplate) bool {
	if t == nil || cl.template == nil {
		return t == cl.template
	}
	return cl.template.UID == t.UID && cl.template.ResourceVersion == t.ResourceVersion
}

// Claim returns the charges of a claim that is made from a template, nil if there is no such template. After a change of devices, classes or
// mappings the former charges stay until the new ones are known. spec: 20 §4.12.
func (c *Catalog) Claim(namespace, name string) (*plan.Claim, *plan.Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := types.NamespacedName{Namespace: namespace, Name: name}
	t, problem := get(c, &c.templates, of, "ResourceClaimTemplates")
	if problem != nil {
		return nil, problem
	}
	cl := c.claims[of]
	if cl == nil && len(c.claims) >= c.most && !c.noted.Claiming {
		c.noted.Claiming = true
		c.poke()
	}
	if cl == nil || !cl.isFrom(t) {
		cl = &claim{counted: -1}
		c.claims[of] = cl
	}
	if cl.template, cl.asked = t, c.round; t == nil {
		return nil, nil
	}
	if cl.counted != c.generation && !cl.deep {
		w := &shallow{c: c}
		if result := c.rules.Load().Charge(t, w); !w.deep {
			cl.result, cl.counted = result, c.generation
			c.counted++
		}
		cl.deep = w.deep
	}
	if cl.counted != c.generation {
		c.poke()
	}
	if cl.result == nil {
		return nil, &plan.Problem{Text: "the devices for ResourceClaimTemplate " + name + " are being evaluated", Reading: true}
	}
	return cl.result, nil
}

// shallow is the world without expressions, with mu. deep reports that these are needed, and the result is none.
type shallow struct {
	c    *Catalog
	deep bool
}

func (w *shallow) Class(name string) (*resourcev1.DeviceClass, *plan.Problem) {
	return get(w.c, &w.c.classes, types.NamespacedName{Name: name}, "DeviceClasses")
}

func (w *shallow) Select(plan.Selection) (*plan.Selected, *plan.Problem) {
	w.deep = true
	return nil, &plan.Problem{Reading: true}
}

func (w *shallow) Compiles(string) string {
	w.deep = true
	return ""
}

// evaluate counts deep claims of older generations, until one turn is spent. The next claim is always of the namespace whose claims have cost
// the least since none was pending: a namespace with many or costly selections delays its own.
func (c *Catalog) evaluate(ctx context.Context) {
	c.refresh()
	todo := c.pending()
	if len(todo) == 0 {
		clear(c.spent)
	}
	for left := turns * c.quantum; left > 0 && len(todo) > 0 && ctx.Err() == nil; {
		namespace, least := "", 0
		for n := range todo {
			if spent := c.spent[n]; namespace == "" || spent < least || spent == least && n < namespace {
				namespace, least = n, spent
			}
		}
		cost, done := c.count(ctx, todo[namespace][0])
		left -= cost
		c.spent[namespace] += cost
		if done {
			todo[namespace] = todo[namespace][1:]
		}
		if len(todo[namespace]) == 0 {
			delete(todo, namespace)
		}
	}
	if len(todo) > 0 {
		c.poke()
	}
}

// refresh takes notice of changed slices.
func (c *Catalog) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dirty || !c.slices.synced {
		return
	}
	c.dirty = false
	c.generation++
	c.of = inventoryOf(slices.Collect(maps.Values(c.slices.known)))
}

// pending returns the deep claims of older generations by namespace: first the claim that is begun, then the oldest.
func (c *Catalog) pending() map[string][]*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string][]*claim{}
	for of, cl := range c.claims {
		if cl.deep && cl.counted != c.generation {
			out[of.Namespace] = append(out[of.Namespace], cl)
		}
	}
	rank := func(cl *claim) int {
		if cl.begun {
			return -1
		}
		return cl.counted + 1
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b *claim) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.template.Name, b.template.Name))
		})
	}
	return out
}

// count counts a claim. It is not done if that costs more than a quantum.
func (c *Catalog) count(ctx context.Context, cl *claim) (cost int, done bool) {
	c.mu.Lock()
	generation, template := c.generation, cl.template
	w := &world{Catalog: c, ctx: ctx, namespace: template.Namespace, left: c.quantum, compiled: cl.compiled}
	c.mu.Unlock()
	result := c.rules.Load().Charge(template, w)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted++
	cl.selections, cl.expressions, cl.begun, cl.compiled = w.used, w.needed, w.unfinished, w.compiled
	cost = max(1, c.quantum-w.left)
	if w.unfinished || ctx.Err() != nil {
		return cost, false
	}
	if cl.result == nil || !same(cl.result, result) {
		c.note(types.NamespacedName{Namespace: template.Namespace, Name: template.Name})
	}
	cl.result, cl.counted, cl.deep = result, generation, w.deep
	return cost, true
}

func same(a, b *plan.Claim) bool {
	if (a.Problem == nil) != (b.Problem == nil) || a.Problem != nil && *a.Problem != *b.Problem {
		return false
	}
	return maps.Equal(a.Charged, b.Charged)
}

// world is the world of one count of the goroutine.
type world struct {
	*Catalog
	ctx       context.Context //nolint:containedctx // of the run of which this is a part
	namespace string          // of the template
	left      int             // of the quantum
	used      []key
	needed    []string // expressions
	// deep: the count needs expressions. unfinished: it needs more than the quantum.
	deep, unfinished bool
	// expressions were asked for in this count; the first compiled ones are known to compile, whenever that was found.
	expressions, compiled int
}

func (w *world) Class(name string) (*resourcev1.DeviceClass, *plan.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return (&shallow{c: w.Catalog}).Class(name)
}

func (w *world) Compiles(expression string) string {
	w.deep = true
	w.expressions++
	w.needed = append(w.needed, expression)
	if w.expressions <= w.compiled {
		return ""
	}
	if w.left <= 0 {
		w.unfinished = true
		return ""
	}
	if result := w.compile(expression); result.Error != nil {
		return short(result.Error.Error())
	}
	if w.expressions == w.compiled+1 {
		w.compiled++
	}
	return ""
}

// compile returns a compiled expression.
func (w *world) compile(expression string) *dracel.CompilationResult {
	result, now := w.cel.compile(w.namespace, expression)
	if now {
		w.left -= compiling(expression)
	}
	return result
}

func (w *world) Select(s plan.Selection) (*plan.Selected, *plan.Problem) {
	w.deep = true
	w.mu.Lock()
	problem := w.slices.ready(w.Catalog, "ResourceSlices")
	w.mu.Unlock()
	if problem != nil {
		return nil, problem
	}
	k := keyOf(s)
	w.used, w.needed = append(w.used, k), append(w.needed, s.Expressions...)
	if w.unfinished {
		return nil, &plan.Problem{Reading: true}
	}
	a := w.answer(k)
	w.extend(a, s)
	w.keepAnswer(k, a)
	if !a.finished() {
		w.unfinished = true
		return nil, &plan.Problem{Reading: true}
	}
	return &plan.Selected{Matches: a.matches, Problem: a.problem}, nil
}

// short cuts a text that is too long for a message.
func short(text string) string {
	const most = 1000
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
