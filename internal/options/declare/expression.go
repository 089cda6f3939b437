package declare

import (
	"errors"

	"github.com/berth-project/berth/internal/cel"
)

// The variables of expressions.
const (
	objectName  = "object"
	podSetsName = "podSets"
)

var (
	objectOnly  = cel.Scope{Names: []string{objectName}}
	withPodSets = cel.Scope{Names: []string{objectName, podSetsName}}
)

type expression struct{ *cel.Expression }

func compile(of, text string, in cel.Scope, gives cel.Result) (*expression, error) {
	e, err := cel.Compile(of, text, in, gives)
	if err != nil {
		return nil, err
	}
	return &expression{e}, nil
}

// eval evaluates the expression on a job. podSets may be nil.
func (e *expression) eval(tree map[string]any, podSets []any) (any, error) {
	vars := map[string]any{objectName: tree}
	if podSets != nil {
		vars[podSetsName] = podSets
	}
	return e.Eval(vars)
}

func (e *expression) bool(tree map[string]any) (bool, error) {
	value, err := e.eval(tree, nil)
	if err != nil {
		return false, err
	}
	return value.(bool), nil // eval has checked it
}

var errOnlySpec = errors.New("the patch changes more than spec: nothing else may be changed")

// patch applies the value of the expression to a job, as a merge patch of its spec.
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
		return e.Fail(errOnlySpec)
	}
	old, ok := tree[suspendRoot].(map[string]any)
	if !ok {
		old = map[string]any{}
		tree[suspendRoot] = old
	}
	merge(old, spec)
	return nil
}
