package declare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// ordered turns trees into values of CEL whose maps are walked in the order of their keys. Go's own order is another each
// time, and so would be the pod sets that are made of a map.
type ordered struct{}

// NativeToValue makes a value of CEL.
func (a ordered) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return orderedMap{types.NewStringInterfaceMap(a, v)}
	case []any:
		return types.NewDynamicList(a, v)
	default:
		return types.DefaultTypeAdapter.NativeToValue(value)
	}
}

// orderedMap is a map with an order.
type orderedMap struct{ traits.Mapper }

// Iterator walks the keys in their order.
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

// plain turns a value of CEL into what JSON has words for.
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
		if v.HasValue() {
			return plain(v.GetValue())
		}
		return nil, nil
	case traits.Mapper:
		return plainMap(v)
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			entry, err := plain(it.Next())
			if err != nil {
				return nil, err
			}
			out = append(out, entry)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("gives a %s, which a field cannot hold: make it a text with string(…)", value.Type().TypeName())
	}
}

// number keeps whole numbers whole: counts that were worked out with fractions are still counts.
func number(f float64) (any, error) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, fmt.Errorf("gives %v, which is no number", f)
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return int64(f), nil
	}
	return f, nil
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

// orderedLiteral is a map that an expression writes out. Those do not come from the adapter.
type orderedLiteral struct {
	interpreter.InterpretableConstructor
}

// orderLiterals gives an order to the maps that an expression writes out.
func orderLiterals(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, ok := node.(interpreter.InterpretableConstructor); ok && c.Type() == types.MapType {
		return orderedLiteral{c}, nil
	}
	return node, nil
}

// Exec makes the map.
func (l orderedLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := l.InterpretableConstructor.Exec(frame)
	if m, ok := value.(traits.Mapper); ok {
		return orderedMap{m}
	}
	return value
}

// Eval makes the map.
func (l orderedLiteral) Eval(ctx interpreter.Activation) ref.Val {
	return l.Exec(interpreter.AsFrame(ctx))
}
