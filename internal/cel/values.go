package cel

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// Short returns the beginning of an expression, on one line.
func Short(text string) string {
	const most = 60
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// Describe returns a short description of a value, for messages.
func Describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "nothing"
	case string:
		return strconv.Quote(Short(v))
	case map[string]any:
		return "a map with " + strings.Join(slices.Sorted(maps.Keys(v)), ", ")
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	default:
		return fmt.Sprint(v)
	}
}

// ordered converts trees to CEL values whose maps are iterated in the order of their keys. Go's order is random, and pod sets that an
// expression derives from a map would be, too.
type ordered struct{}

// NativeToValue returns the CEL value.
func (a ordered) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case ref.Val:
		return v
	case map[string]any:
		return orderedMap{types.NewStringInterfaceMap(a, v)}
	case []any:
		return types.NewDynamicList(a, v)
	case Lazy:
		return lazyMap{&v}
	default:
		return types.DefaultTypeAdapter.NativeToValue(value)
	}
}

type orderedMap struct{ traits.Mapper }

// Iterator iterates over the sorted keys.
func (m orderedMap) Iterator() traits.Iterator {
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, func(x, y ref.Val) int {
		if c := cmp.Compare(x.Type().TypeName(), y.Type().TypeName()); c != 0 {
			return c
		}
		if comparer, ok := x.(traits.Comparer); ok {
			if c, ok := comparer.Compare(y).(types.Int); ok {
				return int(c)
			}
		}
		return 0
	})
	return types.NewRefValList(ordered{}, keys).Iterator()
}

// plain converts a CEL value to one that JSON can represent.
func plain(value ref.Val) (any, error) {
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.String:
		return string(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("gives the number %d, which is too large", uint64(v))
		}
		return int64(v), nil
	case types.Double:
		return number(float64(v))
	case apiservercel.Quantity:
		return v.String(), nil
	case *types.Optional:
		if !v.HasValue() {
			return nil, nil
		}
		return plain(v.GetValue())
	case *mutation.JSONPatchVal:
		return plainOp(v)
	case *dynamic.ObjectVal:
		return plainObject(v)
	case traits.Mapper:
		return plainMap(v)
	case traits.Lister:
		return plainList(v)
	default:
		return nil, fmt.Errorf("gives a %s, which a field cannot hold: make it a text with string(…)", value.Type().TypeName())
	}
}

func plainList(v traits.Lister) (any, error) {
	out := []any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		entry, err := plain(it.Next())
		if err != nil {
			return nil, err
		}
		out = append(out, entry)
	}
	return out, nil
}

// number returns whole numbers as such: a count that was computed with fractions is still a count.
func number(f float64) (any, error) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, fmt.Errorf("gives %v, which is no number", f)
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return int64(f), nil
	}
	return f, nil
}

// plainOp converts one operation of a JSON patch. Without a value the key is absent.
func plainOp(op *mutation.JSONPatchVal) (any, error) {
	out := map[string]any{"op": op.Op, "path": op.Path}
	if op.From != "" {
		out["from"] = op.From
	}
	if op.Val == nil {
		return out, nil
	}
	value, err := plain(op.Val)
	if err != nil {
		return nil, fmt.Errorf("op %s of %s: %w", op.Op, op.Path, err)
	}
	out["value"] = value
	return out, nil
}

func plainObject(o *dynamic.ObjectVal) (any, error) {
	if err := o.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, err
	}
	native, err := o.ConvertToNative(reflect.TypeFor[map[string]any]())
	if err != nil {
		return nil, err
	}
	return plainNative(native)
}

// plainNative converts the CEL values that remain in a tree after CEL's conversion.
func plainNative(value any) (any, error) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			inner, err := plainNative(v[key])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			v[key] = inner
		}
		return v, nil
	case []any:
		for i := range v {
			inner, err := plainNative(v[i])
			if err != nil {
				return nil, err
			}
			v[i] = inner
		}
		return v, nil
	case ref.Val:
		return plain(v)
	}
	return plain(ordered{}.NativeToValue(value))
}

func plainMap(m traits.Mapper) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("gives a map with the key %v: keys must be texts", key.Value())
		}
		value, err := plain(m.Get(key))
		if err != nil {
			return nil, err
		}
		out[string(name)] = value
	}
	return out, nil
}

// orderedLiteral is a map literal of an expression. The adapter does not see these.
type orderedLiteral struct {
	interpreter.InterpretableConstructor
}

// orderLiterals replaces map literals by ordered ones.
func orderLiterals(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, ok := node.(interpreter.InterpretableConstructor); ok && c.Type() == types.MapType {
		return orderedLiteral{c}, nil
	}
	return node, nil
}

// Exec creates the map.
func (l orderedLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := l.InterpretableConstructor.Exec(frame)
	if m, ok := value.(traits.Mapper); ok {
		return orderedMap{m}
	}
	return value
}

// Eval creates the map.
func (l orderedLiteral) Eval(ctx interpreter.Activation) ref.Val {
	return l.Exec(interpreter.AsFrame(ctx))
}
