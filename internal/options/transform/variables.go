package transform

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/berth-project/berth/internal/cel"
)

// variables is a map whose values are worked out when they are read. Expressions can do nothing else with it: Compile has seen to that.
type variables struct{ pass *pass }

var _ traits.Mapper = variables{}

// Find works a variable out.
func (v variables) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok || !slices.Contains(v.pass.variables, string(name)) {
		return nil, false
	}
	value, err := v.pass.variable(string(name))
	if err != nil {
		return types.WrapErr(err), true
	}
	return cel.Value(value), true
}

// Get is Find with an error for what is not there.
func (v variables) Get(key ref.Val) ref.Val {
	if value, ok := v.Find(key); ok {
		return value
	}
	return types.NewErr("no such variable: %v", key)
}

// Contains says whether there is such a variable.
func (v variables) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	return types.Bool(ok && slices.Contains(v.pass.variables, string(name)))
}

// ConvertToNative is not for variables.
func (v variables) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("variables cannot be used as a whole, as a %v", t)
}

// ConvertToType is not for variables.
func (v variables) ConvertToType(ref.Type) ref.Val { return whole() }

// Equal is not for variables.
func (v variables) Equal(ref.Val) ref.Val { return whole() }

// Iterator walks nothing.
func (v variables) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, nil).Iterator()
}

// Size is how many there are.
func (v variables) Size() ref.Val { return types.Int(len(v.pass.variables)) }

// Type is that of a map.
func (v variables) Type() ref.Type { return types.MapType }

// Value is not for variables.
func (v variables) Value() any { return map[string]any{} }

func whole() ref.Val { return types.NewErr("variables cannot be used as a whole: read variables.name") }
