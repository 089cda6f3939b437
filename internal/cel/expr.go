// Package cel compiles expressions in CEL that a configuration has, and
// evaluates them on trees of maps.
//
//	text, names in scope ─► Compile: parse, check, bound ─► Expression ─► Eval ─► a plain value
//
// The same trees always give the same value: maps are walked in the order of
// their keys, and there is no clock and no network in the language. An expression
// that costs too much, takes too long or meets something else than it expected is
// an error of that one evaluation (spec: 30 §4.13, 40 §4.13.4).
package cel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/berth-project/berth/internal/options/strict"
)

// Bounds of one expression: its length in bytes, what one evaluation may cost, and how long it may take where that is
// cheaper than it looks (spec: 40 §4.13.4).
const (
	// MaxLength is how long one may be.
	MaxLength = 8 << 10
	// MaxCost is what one evaluation may cost at most.
	MaxCost = 1_000_000
	// MaxTime is how long one may take.
	MaxTime     = time.Second
	checksEvery = 100 // iterations
)

// maxPrinted is how much of an error of an expression is told.
const maxPrinted = 300

// Scope is the language of an expression.
type Scope struct {
	// Names are those that it may use.
	Names []string
	// Patches lets it write patches, as policies in Kubernetes do, with more of Kubernetes' functions.
	Patches bool
	// Cost bounds one evaluation. 0 is MaxCost.
	Cost uint64
}

// Result is what an expression must give.
type Result struct {
	Text, Help string
	Is         func(any) bool
}

// The results.
var (
	Bool = Result{
		"a bool", "compare something, such as object.spec.phase == \"Done\"",
		func(v any) bool { _, ok := v.(bool); return ok },
	}
	List = Result{
		"a list", "put the entries in brackets: […, …]",
		func(v any) bool { _, ok := v.([]any); return ok },
	}
	Map = Result{
		"a map", "write it in braces: {\"spec\": {…}}",
		func(v any) bool { _, ok := v.(map[string]any); return ok },
	}
	// Any is a value of any type.
	Any = Result{"a value", "", func(any) bool { return true }}
)

// refuses reports whether what CEL knows of the value of an expression can never be what is wanted.
func (r Result) refuses(t *cel.Type) bool {
	switch t.Kind() {
	case cel.DynKind, cel.AnyKind, cel.OpaqueKind:
		return false
	case cel.BoolKind:
		return !r.Is(true)
	case cel.ListKind:
		return !r.Is([]any{})
	case cel.MapKind:
		return !r.Is(map[string]any{})
	case cel.StructKind:
		return t.TypeName() != mutation.ObjectTypeName || !r.Is(map[string]any{})
	case cel.NullTypeKind:
		return !r.Is(nil)
	default:
		return !r.Is("")
	}
}

// bases are the languages without names: that of jobs, and that of patches. They are those of policies in Kubernetes, but that a map
// may have values of several types, as those that are made here have, and that none is made by a loop: such maps have no order.
var bases = sync.OnceValues(func() (map[bool]*cel.Env, error) {
	base, err := cel.NewEnv(
		cel.CustomTypeAdapter(ordered{}), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), cel.EagerlyValidateDeclarations(true),
		ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.Lists(ext.ListsVersion(3)),
		library.Lists(library.ListsVersion(0)), library.Regex(), library.Quantity(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	)
	if err != nil {
		return nil, err
	}
	patches, err := base.Extend(
		cel.DefaultUTCTimeZone(true), ext.TwoVarComprehensions(), library.URLs(), library.IP(), library.CIDR(), library.Format(),
		library.SemverLib(library.SemverVersion(1)), library.JSONPatch(), common.ResolverEnvOption(&smallObjects{}),
	)
	return map[bool]*cel.Env{false: base, true: patches}, err
})

// environment is the language of a scope.
func (s Scope) environment() (*cel.Env, error) {
	all, err := bases()
	if err != nil {
		return nil, err
	}
	var names []cel.EnvOption
	for _, name := range s.Names {
		names = append(names, cel.Variable(name, cel.DynType))
	}
	return all[s.Patches].Extend(names...)
}

// Expression is one that was compiled.
type Expression struct {
	of, text string
	gives    Result
	limit    uint64
	program  cel.Program
	checked  *cel.Ast
}

// Compile checks an expression. of is what it belongs to, for messages. The error says where in it something is wrong, and what to do.
func Compile(of, text string, in Scope, gives Result) (*Expression, error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("is longer than %d bytes: make it shorter", MaxLength)
	}
	env, err := in.environment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, explain(issues, in.Names)
	}
	if t := checked.OutputType(); gives.refuses(t) {
		return nil, fmt.Errorf("gives %s and must give %s: %s", t, gives.Text, gives.Help)
	}
	if loopsOverMap(checked) {
		return nil, errors.New("makes a map in a loop, which has no order: make a list, or write the map out")
	}
	limit := in.Cost
	if limit == 0 {
		limit = MaxCost
	}
	if cost, err := env.EstimateCost(checked, &library.CostEstimator{}); err == nil && cost.Min > limit {
		return nil, fmt.Errorf("costs at least %d for any job, and %d is the limit: loop over less", cost.Min, limit)
	}
	program, err := env.Program(checked, cel.CustomDecoratorV2(orderLiterals), cel.CustomDecoratorV2(bound), cel.EvalOptions(cel.OptTrackCost),
		cel.CostTracking(&library.CostEstimator{}), outputCosts(), cel.CostLimit(limit), cel.InterruptCheckFrequency(checksEvery))
	if err != nil {
		return nil, err
	}
	return &Expression{of: of, text: text, gives: gives, limit: limit, program: program, checked: checked}, nil
}

// loopsOverMap finds a loop whose result is a map.
func loopsOverMap(checked *cel.Ast) bool {
	found := false
	celast.PreOrderVisit(checked.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() == celast.ComprehensionKind && e.AsComprehension().AccuInit().Kind() == celast.MapKind {
			found = true
		}
	}))
	return found
}

// Fields are the fields of a name that the expression reads, sorted; all is false if it uses the name in another way than to
// read a field that it names.
func (e *Expression) Fields(name string) (fields []string, all bool) {
	selected, used := 0, 0
	celast.PreOrderVisit(e.checked.NativeRep().Expr(), celast.NewExprVisitor(func(x celast.Expr) {
		switch x.Kind() {
		case celast.IdentKind:
			if x.AsIdent() == name {
				used++
			}
		case celast.SelectKind:
			if s := x.AsSelect(); s.Operand().Kind() == celast.IdentKind && s.Operand().AsIdent() == name {
				selected++
				fields = append(fields, s.FieldName())
			}
		}
	}))
	slices.Sort(fields)
	return slices.Compact(fields), selected == used
}

// explain is the first mistake that the compiler found, and what may mend it.
func explain(issues *cel.Issues, names []string) error {
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
		help = "known here: " + strings.Join(names, ", ") + ", and the functions of CEL"
		if near := strict.Nearest(name, append(slices.Clone(names), known...)); near != "" {
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

// known are those functions that a misspelt name is compared with.
var known = []string{
	"has", "size", "int", "double", "string", "bool", "type", "dyn", "matches", "startsWith", "endsWith", "contains", "all", "exists",
	"exists_one", "filter", "map", "quantity", "isQuantity", "lowerAscii", "upperAscii", "split", "join",
	"replace", "sum", "min", "max", "duration", "timestamp",
}

// Error is that of one evaluation.
type Error struct {
	Of, Text string
	Err      error
}

// Error names what the expression belongs to, the expression and what is wrong.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (%s): %s", e.Of, Short(e.Text), e.Err)
}

// Unwrap gives what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// ErrTooMuch marks an evaluation that cost too much or took too long.
var ErrTooMuch = errors.New("loop over less")

// ErrTooSlow marks one that took too long, which it may not do the next time.
var ErrTooSlow = fmt.Errorf("%w", ErrTooMuch)

// Fail is an error of the expression.
func (e *Expression) Fail(err error) error { return &Error{e.of, e.text, err} }

// Eval evaluates the expression with the names of its scope.
func (e *Expression) Eval(vars map[string]any) (any, error) {
	out, _, err := e.EvalWithin(context.Background(), vars)
	return out, err
}

// EvalWithin does so within the time of ctx, and tells what it cost.
func (e *Expression) EvalWithin(ctx context.Context, vars map[string]any) (out any, cost uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, e.Fail(fmt.Errorf("cannot be evaluated: %v", r))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	scope := make(map[string]any, len(vars))
	for name, value := range vars { //berth:unordered copies a map
		scope[name] = ordered{}.NativeToValue(value)
	}
	value, details, err := e.program.ContextEval(ctx, scope)
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	switch {
	case ctx.Err() != nil:
		return nil, cost, e.Fail(fmt.Errorf("took longer than %s on this object: %w", MaxTime, ErrTooSlow))
	case err != nil:
		return nil, cost, e.Fail(e.tooMuch(err))
	}
	if err = measured(value); err == nil {
		out, err = plain(value)
	}
	if err != nil {
		return nil, cost, e.Fail(err)
	}
	if !e.gives.Is(out) {
		return nil, cost, e.Fail(fmt.Errorf("gives %s and must give %s", Describe(out), e.gives.Text))
	}
	return out, cost, nil
}

// tooMuch says in our words that an evaluation was stopped; other errors pass.
func (e *Expression) tooMuch(err error) error {
	switch {
	case strings.Contains(err.Error(), "actual cost limit exceeded"):
		return fmt.Errorf("costs more than %d on this object: %w", e.limit, ErrTooMuch)
	case strings.Contains(err.Error(), "no such key"):
		return fmt.Errorf("%w: ask with has() before a field is read that may be absent", err)
	}
	return err
}
