package declare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/berth-project/berth/internal/options/strict"
)

// Bounds of one expression: its length in bytes, what one evaluation may cost, and how long it may take where that is
// cheaper than it looks (spec: 40 §4.13.4).
const (
	maxLength   = 8 << 10
	maxCost     = 1_000_000
	maxTime     = time.Second
	checksEvery = 100 // iterations
)

// maxPrinted is how much of an error of an expression is told.
const maxPrinted = 300

// scope says which names an expression may use.
type scope int

const (
	objectOnly scope = iota
	withPodSets
)

const (
	objectName  = "object"
	podSetsName = "podSets"
)

func (s scope) names() []string {
	if s == withPodSets {
		return []string{objectName, podSetsName}
	}
	return []string{objectName}
}

// result is what an expression must give.
type result struct {
	text, help string
	is         func(any) bool
}

var (
	aBool = result{
		"a bool", "compare something, such as object.spec.phase == \"Done\"",
		func(v any) bool { _, ok := v.(bool); return ok },
	}
	aList = result{
		"a list", "put the pod sets in brackets: [{\"name\": …}]",
		func(v any) bool { _, ok := v.([]any); return ok },
	}
	aMap = result{
		"a map", "write it in braces: {\"spec\": {…}}",
		func(v any) bool { _, ok := v.(map[string]any); return ok },
	}
)

// refuses says whether what CEL knows of the value of an expression can never be what is wanted.
func (r result) refuses(t *cel.Type) bool {
	switch t.Kind() {
	case cel.DynKind, cel.AnyKind, cel.OpaqueKind:
		return false
	case cel.BoolKind:
		return !r.is(true)
	case cel.ListKind:
		return !r.is([]any{})
	case cel.MapKind:
		return !r.is(map[string]any{})
	default:
		return true
	}
}

// environments are the languages of the scopes. They are those of policies in Kubernetes, but that a map may have values
// of several types, as those that are made here have, and that none is made by a loop: such maps have no order.
var environments = sync.OnceValues(func() (map[scope]*cel.Env, error) {
	base, err := cel.NewEnv(
		cel.CustomTypeAdapter(ordered{}), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), cel.EagerlyValidateDeclarations(true),
		ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.Lists(ext.ListsVersion(3)),
		library.Lists(library.ListsVersion(0)), library.Regex(), library.Quantity(), cel.Variable(objectName, cel.DynType),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	)
	if err != nil {
		return nil, err
	}
	sets, err := base.Extend(cel.Variable(podSetsName, cel.ListType(cel.DynType)))
	return map[scope]*cel.Env{objectOnly: base, withPodSets: sets}, err
})

// expression is one that was compiled.
type expression struct {
	of, text string
	gives    result
	program  cel.Program
}

// compile checks an expression. The error says where in it something is wrong, and what to do.
func compile(kind, name, text string, vars scope, gives result) (*expression, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("is longer than %d bytes: make it shorter", maxLength)
	}
	all, err := environments()
	if err != nil {
		return nil, err
	}
	env := all[vars]
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, explain(issues, vars)
	}
	if t := checked.OutputType(); gives.refuses(t) {
		return nil, fmt.Errorf("gives %s and must give %s: %s", t, gives.text, gives.help)
	}
	if cost, err := env.EstimateCost(checked, &library.CostEstimator{}); err == nil && cost.Min > maxCost {
		return nil, fmt.Errorf("costs at least %d for any job, and %d is the limit: loop over less", cost.Min, maxCost)
	}
	program, err := env.Program(checked, cel.CustomDecoratorV2(orderLiterals), cel.EvalOptions(cel.OptTrackCost), cel.CostTracking(&library.CostEstimator{}),
		cel.CostLimit(maxCost), cel.InterruptCheckFrequency(checksEvery))
	if err != nil {
		return nil, err
	}
	return &expression{of: kind + " " + name, text: text, gives: gives, program: program}, nil
}

// explain is the first mistake that the compiler found, and what may mend it.
func explain(issues *cel.Issues, vars scope) error {
	all := issues.Errors()
	if len(all) == 0 {
		return issues.Err()
	}
	first := all[0]
	message := strings.Join(strings.Fields(first.Message), " ")
	if len(message) > maxPrinted {
		message = message[:maxPrinted] + "…"
	}
	help := ""
	name, undeclared := strings.CutPrefix(message, "undeclared reference to '")
	switch {
	case undeclared:
		name, _, _ = strings.Cut(name, "'")
		known := vars.names()
		help = "known here: " + strings.Join(known, ", ") + ", and the functions of CEL"
		if near := strict.Nearest(name, append(slices.Clone(known), functions...)); near != "" {
			help = "did you mean " + near + "?"
		}
		message = "nothing is called " + name
	case strings.HasPrefix(message, "Syntax error"):
		help = "look for a missing bracket, quote or comma before that"
	case strings.HasPrefix(message, "found no matching overload"):
		help = "the types do not go together: convert one, as with int(…) or string(…)"
	}
	if help != "" {
		message += "; " + help
	}
	return fmt.Errorf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, message)
}

// functions are those that a misspelt name is compared with.
var functions = []string{
	"has", "size", "int", "double", "string", "bool", "type", "dyn", "matches", "startsWith", "endsWith", "contains", "all", "exists",
	"exists_one", "filter", "map", "quantity", "isQuantity", "lowerAscii", "upperAscii", "split", "join",
	"replace", "sum", "min", "max", "duration", "timestamp",
}

// Error is that of one job: an expression that cannot be evaluated on it.
type Error struct {
	Of, Text string
	Err      error
}

// Error names the kind, the expression and what is wrong.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (%s): %s", e.Of, short(e.Text), e.Err)
}

// Unwrap gives what is wrong.
func (e *Error) Unwrap() error { return e.Err }

func (e *expression) fail(err error) error { return &Error{e.of, e.text, err} }

// eval evaluates the expression on a job.
func (e *expression) eval(tree map[string]any, podSets []any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	vars := map[string]any{objectName: ordered{}.NativeToValue(tree)}
	if podSets != nil {
		vars[podSetsName] = ordered{}.NativeToValue(podSets)
	}
	value, _, err := e.program.ContextEval(ctx, vars)
	switch {
	case ctx.Err() != nil:
		return nil, e.fail(fmt.Errorf("took longer than %s on this object: loop over less", maxTime))
	case err != nil:
		return nil, e.fail(tooMuch(err))
	}
	out, err := plain(value)
	if err != nil {
		return nil, e.fail(err)
	}
	if !e.gives.is(out) {
		return nil, e.fail(fmt.Errorf("gives %s and must give %s", describe(out), e.gives.text))
	}
	return out, nil
}

// tooMuch says in our words that an evaluation was stopped; other errors pass.
func tooMuch(err error) error {
	switch {
	case strings.Contains(err.Error(), "actual cost limit exceeded"):
		return fmt.Errorf("costs more than %d on this object: loop over less", maxCost)
	case strings.Contains(err.Error(), "no such key"):
		return fmt.Errorf("%w: ask with has() before a field is read that may be absent", err)
	}
	return err
}

func (e *expression) bool(tree map[string]any) (bool, error) {
	value, err := e.eval(tree, nil)
	if err != nil {
		return false, err
	}
	return value.(bool), nil // eval has checked it
}

var errOnlySpec = errors.New("the patch changes more than spec: nothing else may be changed")

// patch changes a job as the expression says.
func (e *expression) patch(tree map[string]any, podSets []any) error {
	value, err := e.eval(tree, podSets)
	if err != nil {
		return err
	}
	patch := value.(map[string]any) // eval has checked it
	if len(patch) == 0 {
		return nil
	}
	spec, ok := patch[suspendRoot].(map[string]any)
	if !ok || len(patch) > 1 {
		return e.fail(errOnlySpec)
	}
	old, ok := tree[suspendRoot].(map[string]any)
	if !ok {
		old = map[string]any{}
		tree[suspendRoot] = old
	}
	merge(old, spec)
	return nil
}
