package cel

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Lazy is a map whose values are computed when they are read. Expressions can only read its fields: see Expression.Fields.
type Lazy struct {
	// Names are the keys.
	Names []string
	// Value computes the value of a name. The expression that reads it fails with its error.
	Value func(name string) (any, error)
}

type lazyMap struct{ *Lazy }

var _ traits.Mapper = lazyMap{}

// Find computes a value.
func (m lazyMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok || !slices.Contains(m.Names, string(name)) {
		return nil, false
	}
	value, err := m.Lazy.Value(string(name))
	if err != nil {
		return types.WrapErr(err), true
	}
	return ordered{}.NativeToValue(value), true
}

// Get is Find with an error for a name that does not exist.
func (m lazyMap) Get(key ref.Val) ref.Val {
	if value, ok := m.Find(key); ok {
		return value
	}
	return types.NewErr("no such variable: %v", key)
}

// Contains reports whether there is such a name.
func (m lazyMap) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	return types.Bool(ok && slices.Contains(m.Names, string(name)))
}

// ConvertToNative is not supported.
func (m lazyMap) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("variables cannot be used as a whole, as a %v", t)
}

// ConvertToType is not supported.
func (m lazyMap) ConvertToType(ref.Type) ref.Val { return whole() }

// Equal is not supported.
func (m lazyMap) Equal(ref.Val) ref.Val { return whole() }

// Iterator iterates over nothing.
func (m lazyMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, nil).Iterator()
}

// Size is the number of names.
func (m lazyMap) Size() ref.Val { return types.Int(len(m.Names)) }

// Type is the map type.
func (m lazyMap) Type() ref.Type { return types.MapType }

// Value is an empty map: no value is computed.
func (m lazyMap) Value() any { return map[string]any{} }

func whole() ref.Val { return types.NewErr("variables cannot be used as a whole: read variables.name") }
