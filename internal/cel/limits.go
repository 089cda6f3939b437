package cel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// CEL computes the cost of a call after it. Some calls may allocate gigabytes by then, or compare all pairs of entries: their arguments
// are checked before. A list may contain one large list many times, which costs little until it is converted: values are measured first
// (spec: 40 §4.13.4).
const (
	maxText     = 4 << 20 // bytes of the result of a call, or of a value
	maxPairs    = MaxCost // pairs of entries that a call compares, or entries that it joins
	maxExponent = 1000    // of a quantity
)

// bounds check the arguments of calls, by the name of the function.
var bounds = map[string]func(args []ref.Val) error{
	"replace":         boundReplace,
	"join":            boundJoin,
	"format":          boundFormat,
	"distinct":        func(args []ref.Val) error { return boundPairs(args[0], args[0]) },
	"sets.contains":   func(args []ref.Val) error { return boundPairs(args[0], args[1]) },
	"sets.equivalent": func(args []ref.Val) error { return boundPairs(args[0], args[1]) },
	"sets.intersects": func(args []ref.Val) error { return boundPairs(args[0], args[1]) },
	"flatten":         boundFlatten,
	"quantity":        boundQuantity,
	"isQuantity":      boundQuantity,
}

func tooLong(size int) error {
	if size > maxText {
		return fmt.Errorf("makes a text of more than %d bytes: %w", maxText, ErrTooMuch)
	}
	return nil
}

func boundReplace(args []ref.Val) error {
	text, ok1 := args[0].(types.String)
	old, ok2 := args[1].(types.String)
	with, ok3 := args[2].(types.String)
	if !ok1 || !ok2 || !ok3 {
		return nil // the call fails
	}
	return tooLong(len(text) + strings.Count(string(text), string(old))*len(with))
}

func boundJoin(args []ref.Val) error {
	size, between := 0, 0
	if len(args) > 1 {
		if s, ok := args[1].(types.String); ok {
			between = len(s)
		}
	}
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		if s, ok := it.Next().(types.String); ok {
			size += len(s) + between
		}
		if err := tooLong(size); err != nil {
			return err
		}
	}
	return nil
}

func boundFormat(args []ref.Val) error {
	return tooLong(textSize(args...))
}

// textSize returns the approximate length of values as text, in bytes. It stops above maxText.
func textSize(values ...ref.Val) (size int) {
	for _, value := range values {
		if size += textSizeOf(value); size > maxText {
			break
		}
	}
	return size
}

func textSizeOf(value ref.Val) int {
	size := 0
	switch v := value.(type) {
	case types.String:
		return len(v)
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && size <= maxText; {
			key := it.Next()
			size += textSizeOf(key) + textSizeOf(v.Get(key)) + 4
		}
		return size
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && size <= maxText; {
			size += textSizeOf(it.Next()) + 2
		}
		return size
	case *types.Optional:
		if v.HasValue() {
			return textSizeOf(v.GetValue())
		}
	case *mutation.JSONPatchVal:
		if v.Val != nil {
			return textSizeOf(v.Val) + len(v.Path) + len(v.From) + 32
		}
	}
	return 32
}

// measured returns an error if values are together too long to be converted.
func measured(values ...ref.Val) error {
	if textSize(values...) > maxText {
		return fmt.Errorf("makes a value of more than %d bytes: %w", maxText, ErrTooMuch)
	}
	return nil
}

func boundFlatten(args []ref.Val) error {
	depth := types.Int(1)
	if len(args) > 1 {
		depth, _ = args[1].(types.Int)
	}
	if entries(args[0], depth) > maxPairs {
		return fmt.Errorf("makes a list of more than %d entries: %w", maxPairs, ErrTooMuch)
	}
	return nil
}

// entries returns the number of entries of a list and of the lists in it. It stops above maxPairs.
func entries(value ref.Val, depth types.Int) int {
	list, ok := value.(traits.Lister)
	if !ok || depth < 0 {
		return 1
	}
	n := 1
	for it := list.Iterator(); it.HasNext() == types.True && n <= maxPairs; {
		n += entries(it.Next(), depth-1)
	}
	return n
}

// boundQuantity limits the exponent: 1e30000000 is a number with as many digits.
func boundQuantity(args []ref.Val) error {
	text, _ := args[0].(types.String)
	if i := strings.LastIndexAny(string(text), "eE"); i >= 0 {
		if n, err := strconv.Atoi(string(text[i+1:])); (err == nil && (n > maxExponent || n < -maxExponent)) || errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("reads a quantity with an exponent beyond %d: %w", maxExponent, ErrTooMuch)
		}
	}
	return nil
}

// smallObjects are the types of the objects that an expression creates. Each object is measured before.
type smallObjects struct{ mutation.DynamicTypeResolver }

// Resolve returns a type by its name.
func (r *smallObjects) Resolve(name string) (common.ResolvedType, bool) {
	t, ok := r.DynamicTypeResolver.Resolve(name)
	return smallObject{t}, ok
}

type smallObject struct{ common.ResolvedType }

// Val creates an object, unless its fields are too long.
func (o smallObject) Val(fields map[string]ref.Val) ref.Val {
	if err := measured(slices.Collect(maps.Values(fields))...); err != nil {
		return types.WrapErr(err)
	}
	return o.ResolvedType.Val(fields)
}

func boundPairs(a, b ref.Val) error {
	x, ok1 := a.(traits.Sizer)
	y, ok2 := b.(traits.Sizer)
	if !ok1 || !ok2 {
		return nil
	}
	n, ok1 := x.Size().(types.Int)
	m, ok2 := y.Size().(types.Int)
	if ok1 && ok2 && m > 0 && n > maxPairs/m {
		return fmt.Errorf("compares more than %d pairs: %w", maxPairs, ErrTooMuch)
	}
	return nil
}

var implementations = sync.OnceValues(func() (map[string]func(...ref.Val) ref.Val, error) {
	all, err := bases()
	if err != nil {
		return nil, err
	}
	out := map[string]func(...ref.Val) ref.Val{}
	for name := range bounds { //berth:unordered fills a map
		overloads, err := all[true].Functions()[name].Bindings()
		if err != nil || len(overloads) == 0 {
			return nil, fmt.Errorf("no implementation of %s: %w", name, err)
		}
		for _, o := range overloads {
			out[name+" "+o.Operator] = calling(o)
			if _, ok := out[name]; !ok || o.Operator == name {
				out[name] = calling(o)
			}
		}
	}
	return out, nil
})

func calling(o *functions.Overload) func(...ref.Val) ref.Val {
	return func(args ...ref.Val) ref.Val {
		switch {
		case len(args) == 1 && o.Unary != nil:
			return o.Unary(args[0])
		case len(args) == 2 && o.Binary != nil:
			return o.Binary(args[0], args[1])
		case o.Function != nil:
			return o.Function(args...)
		}
		return types.NewErr("no such overload")
	}
}

// boundedCall checks the arguments of a call before it.
type boundedCall struct {
	interpreter.InterpretableCall
	check func([]ref.Val) error
	do    func(...ref.Val) ref.Val
}

// bound replaces calls of the functions in bounds by bounded ones.
func bound(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok || bounds[call.Function()] == nil {
		return node, nil
	}
	all, err := implementations()
	if err != nil {
		return nil, err
	}
	do := all[call.Function()+" "+call.OverloadID()]
	if do == nil {
		do = all[call.Function()]
	}
	return &boundedCall{call, bounds[call.Function()], do}, nil
}

// Exec makes the call.
func (b *boundedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := make([]ref.Val, 0, len(b.Args()))
	for _, a := range b.Args() {
		value := a.Exec(frame)
		if types.IsUnknownOrError(value) {
			return value
		}
		args = append(args, value)
	}
	if err := b.check(args); err != nil {
		return types.WrapErr(err)
	}
	return b.do(args...)
}

// Eval makes the call.
func (b *boundedCall) Eval(ctx interpreter.Activation) ref.Val {
	return b.Exec(interpreter.AsFrame(ctx))
}

// outputCosts charges calls for the length of their results.
func outputCosts() cel.ProgramOption {
	byResult := func(_ []ref.Val, result ref.Val) *uint64 {
		cost := uint64(1)
		if s, ok := result.(types.String); ok {
			cost += uint64(len(s)) / 10
		}
		return &cost
	}
	var options []interpreter.CostTrackerOption
	for _, id := range []string{"string_replace_string_string", "string_replace_string_string_int", "list_join", "list_join_string", "string_format"} {
		options = append(options, interpreter.OverloadCostTracker(id, byResult))
	}
	return cel.CostTrackerOptions(options...)
}
