// Package cel compiles CEL expressions of the configuration, and evaluates them on trees of maps.
//
//	text, names in scope ─► Compile: parse, check, bound ─► Expression ─► Eval ─► a plain value
//
// Evaluation is deterministic: maps are iterated in the order of their keys, and the language has no clock and no network. An expression
// that costs too much, takes too long or meets an unexpected value fails that evaluation only (spec: 30 §4.13, 40 §4.13.4).
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

// Limits of one expression (spec: 40 §4.13.4).
const (
	// MaxLength is its length, in bytes.
	MaxLength = 8 << 10
	// MaxCost is the cost of one evaluation, in units of CEL.
	MaxCost = 1_000_000
	// MaxTime is the duration of one evaluation: the cost of some functions underestimates it.
	MaxTime     = time.Second
	checksEvery = 100 // iterations
)

// maxPrinted is the length of a compiler's message in an error, in bytes.
const maxPrinted = 300

// Scope is the language of an expression.
type Scope struct {
	// Names are its variables.
	Names []string
	// Patches adds JSONPatch and Object, and more of Kubernetes' functions.
	Patches bool
	// Cost is the limit of one evaluation; 0 is MaxCost.
	Cost uint64
}

// Result is the required type of an expression's value.
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

// refuses reports whether a value of the static type t never satisfies the result.
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

// bases are the environments without variables, by Scope.Patches. They differ from Kubernetes' policies in two points: a map may have
// values of several types, and no loop creates a map, since such maps have no order.
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

// Expression is a compiled expression.
type Expression struct {
	of, text string
	gives    Result
	limit    uint64
	program  cel.Program
	checked  *cel.Ast
}

// Compile checks an expression. of names its owner, for messages. The error has the position of the mistake, and advice.
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

func loopsOverMap(checked *cel.Ast) bool {
	found := false
	celast.PreOrderVisit(checked.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() == celast.ComprehensionKind && e.AsComprehension().AccuInit().Kind() == celast.MapKind {
			found = true
		}
	}))
	return found
}

// Fields returns the fields of a variable that the expression reads, sorted. all is false if it also uses the variable in other ways.
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

// explain returns the first mistake that the compiler found, with a way to fix it.
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

// known are the functions that a misspelt name is compared with.
var known = []string{
	"has", "size", "int", "double", "string", "bool", "type", "dyn", "matches", "startsWith", "endsWith", "contains", "all", "exists",
	"exists_one", "filter", "map", "quantity", "isQuantity", "lowerAscii", "upperAscii", "split", "join",
	"replace", "sum", "min", "max", "duration", "timestamp",
}

// Error is the error of one evaluation.
type Error struct {
	Of, Text string
	Err      error
}

// Error names the owner of the expression, the expression and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (%s): %s", e.Of, Short(e.Text), e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrTooMuch marks an evaluation that cost too much or took too long.
var ErrTooMuch = errors.New("loop over less")

// ErrTooSlow marks an evaluation that took too long. The next one may be faster.
var ErrTooSlow = fmt.Errorf("%w", ErrTooMuch)

// Fail returns an error of the expression.
func (e *Expression) Fail(err error) error { return &Error{e.of, e.text, err} }

// Eval evaluates the expression with values for the variables of its scope.
func (e *Expression) Eval(vars map[string]any) (any, error) {
	out, _, err := e.EvalWithin(context.Background(), vars)
	return out, err
}

// EvalWithin is Eval until ctx ends. It also returns the cost.
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

// tooMuch rewords the errors of CEL that have a remedy; other errors stay.
func (e *Expression) tooMuch(err error) error {
	switch {
	case strings.Contains(err.Error(), "actual cost limit exceeded"):
		return fmt.Errorf("costs more than %d on this object: %w", e.limit, ErrTooMuch)
	case strings.Contains(err.Error(), "no such key"):
		return fmt.Errorf("%w: ask with has() before a field is read that may be absent", err)
	}
	return err
}
