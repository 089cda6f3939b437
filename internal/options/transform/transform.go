// Package transform compiles and evaluates the expressions of external frameworks (spec: 40 §4.13).
//
//	expressions ─► Compile: each in the scope of its phase ─► Framework ─► Preconditions, Mutate, Finished …
//
// Package internal/multikueue/plan/external decides what patches may change.
package transform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-project/berth/internal/cel"
)

// The phases, by the names in messages.
const (
	Precondition = "precondition"
	Creation     = "creation"
	StatusSync   = "statusSync"
	SpecSync     = "specSync"
	Lifecycle    = "lifecycle"
)

var scopes = map[string][]string{
	Precondition: {"localObject", "workload"},
	Creation:     {"object", "localObject", "workload", "cluster", "origin"},
	StatusSync:   {"object", "localObject", "remoteObject", "workload", "cluster"},
	SpecSync:     {"object", "localObject", "remoteObject", "workload", "cluster"},
	Lifecycle:    {"remoteObject"},
}

const variablesName = "variables"

// passTime bounds all expressions of one phase on one object.
const passTime = time.Second

// Framework is a compiled external framework.
type Framework struct {
	GVK schema.GroupVersionKind
	// Extended is true if more than a name is configured.
	Extended bool
	// NoJob is true if an external controller creates the remote jobs: controllerType External.
	NoJob bool
	// Unchecked dispatches jobs without Value in the field ManagedBy, a path.
	Unchecked bool
	ManagedBy []string
	Value     string
	// WorkerValue is the value of the field on the worker cluster; nil removes it.
	WorkerValue *string
	CopyFields  []string
	// RetryOnError retries jobs that cannot be transformed, instead of rejecting them.
	RetryOnError bool
	// StatusMode is Replace, Mutate or Disabled, Subresource Auto, Status or Main.
	StatusMode, Subresource string
	// AnnotationPrefixes and LabelPrefixes select the keys that are mirrored from copies to their jobs.
	AnnotationPrefixes, LabelPrefixes []string
	// SpecPaths may change on the copy.
	SpecPaths [][]string
	// Alone is true if no controller on the worker clusters integrates the kind.
	Alone bool
	// MaxBytes bounds copies and results of mutations.
	MaxBytes int
	// Observed, if set, is called after every evaluation of a phase with success, error or too_costly, its cost and its time.
	Observed func(phase, result string, cost uint64, took time.Duration)
	// Suspended, if set, is called when the circuit breaker of a phase opens.
	Suspended func(phase string)

	costPerExpression, costPerPass uint64
	variables                      []string
	compiled                       map[string][]*cel.Expression // of variables, by phase; nil if unused
	preconditions                  []precondition
	mutations                      map[string][]mutation
	when, finished, active         *cel.Expression
}

type precondition struct {
	name, message string
	holds         *cel.Expression
}

type mutation struct {
	name  string
	patch *cel.Expression
}

// HasPreconditions reports whether there are preconditions.
func (f *Framework) HasPreconditions() bool { return len(f.preconditions) > 0 }

// HasMutations reports whether a phase has mutations.
func (f *Framework) HasMutations(phase string) bool { return len(f.mutations[phase]) > 0 }

// Failure is an error of one expression.
type Failure struct {
	// Of names the expression, such as mutation "park".
	Of  string
	Err error
}

// Error names the expression.
func (f *Failure) Error() string { return f.Of + ": " + f.Err.Error() }

// Unwrap returns the error of the expression.
func (f *Failure) Unwrap() error { return f.Err }

// Where names the expression.
func (f *Failure) Where() string { return f.Of }

// TooMuch reports whether the expression cost too much or took too long.
func (f *Failure) TooMuch() bool { return errors.Is(f.Err, cel.ErrTooMuch) }

// Preconditions returns the name and message of the first rule that does not hold.
func (f *Framework) Preconditions(scope map[string]any) (name, message string, ok bool, err error) {
	p, done := f.pass(Precondition, scope)
	defer done()
	for _, rule := range f.preconditions {
		holds, err := p.eval(rule.holds)
		if err != nil {
			return rule.name, "", false, &Failure{fmt.Sprintf("precondition %q", rule.name), err}
		}
		if holds != true {
			return rule.name, rule.message, false, nil
		}
	}
	return "", "", true, nil
}

// Mutate runs the mutations of a phase in order on an object. apply returns the object with a patch: a list of operations, or a map to
// merge.
func (f *Framework) Mutate(phase string, object, scope map[string]any, apply func(object map[string]any, patch any) (map[string]any, error)) (map[string]any, error) {
	p, done := f.pass(phase, scope)
	defer done()
	for _, m := range f.mutations[phase] {
		p.values = map[string]any{} // variables may read the object
		p.scope["object"] = object
		patch, err := p.eval(m.patch)
		if err == nil {
			object, err = apply(object, patch)
		}
		if err != nil {
			p.broken = true
			return nil, &Failure{fmt.Sprintf("mutation %q", m.name), err}
		}
	}
	return object, nil
}

// When reports whether to copy the status.
func (f *Framework) When(scope map[string]any) (bool, error) {
	if f.when == nil {
		return true, nil
	}
	return f.bool(StatusSync, "when", f.when, scope)
}

// Active reports whether pods of a remote job may run.
func (f *Framework) Active(remote map[string]any) (bool, error) {
	return f.bool(Lifecycle, "active", f.active, map[string]any{"remoteObject": remote})
}

func (f *Framework) bool(phase, name string, e *cel.Expression, scope map[string]any) (bool, error) {
	p, done := f.pass(phase, scope)
	defer done()
	value, err := p.eval(e)
	if err != nil {
		return false, &Failure{name, err}
	}
	return value == true, nil
}

// Finished reports whether a remote job has ended, and how.
func (f *Framework) Finished(remote map[string]any) (done, success bool, message string, err error) {
	p, over := f.pass(Lifecycle, map[string]any{"remoteObject": remote})
	defer over()
	value, err := p.eval(f.finished)
	if err != nil {
		return false, false, "", &Failure{"finished", err}
	}
	m, ok := value.(map[string]any)
	if value == nil || (ok && len(m) == 0) {
		return false, false, "", nil
	}
	done, isDone := m["done"].(bool)
	success, isSuccess := m["success"].(bool)
	message, isText := m["message"].(string)
	if !ok || !isDone || (done && !isSuccess) || (m["message"] != nil && !isText) {
		return false, false, "", &Failure{"finished", fmt.Errorf("gives %s: it must be null, or have done and success, bools, and message, a text", cel.Describe(value))}
	}
	return done, success, message, nil
}

// pass is the evaluation of one phase on one object.
type pass struct {
	*Framework
	ctx    context.Context
	phase  string
	scope  map[string]any
	values map[string]any // of variables, when they are first read
	spent  uint64
	failed error // it cost too much, even if an expression tolerated that
	broken bool  // an expression failed
}

func (f *Framework) pass(phase string, scope map[string]any) (*pass, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), passTime)
	p := &pass{Framework: f, ctx: ctx, phase: phase, scope: maps.Clone(scope), values: map[string]any{}}
	p.scope[variablesName] = cel.Lazy{Names: f.variables, Value: p.variable}
	began := time.Now()
	return p, func() {
		cancel()
		if f.Observed != nil {
			f.Observed(phase, p.result(), p.spent, time.Since(began))
		}
	}
}

// result is the outcome of a pass, for metrics.
func (p *pass) result() string {
	switch {
	case p.failed != nil:
		return "too_costly"
	case p.broken:
		return "error"
	}
	return "success"
}

func (p *pass) eval(e *cel.Expression) (any, error) {
	value, cost, err := e.EvalWithin(p.ctx, p.scope)
	p.spent += cost
	p.broken = p.broken || err != nil
	switch {
	case p.failed != nil:
		return nil, p.failed
	case errors.Is(err, cel.ErrTooMuch):
		p.failed = err
	case p.spent > p.costPerPass:
		p.failed = e.Fail(fmt.Errorf("brings what this phase costs above %d: %w", p.costPerPass, cel.ErrTooMuch))
		return nil, p.failed
	}
	return value, err
}

func (p *pass) variable(name string) (any, error) {
	if value, ok := p.values[name]; ok {
		return value, nil
	}
	e := p.compiled[p.phase][slices.Index(p.variables, name)]
	value, err := p.eval(e)
	if err != nil {
		return nil, fmt.Errorf("variable %q: %w", name, err)
	}
	p.values[name] = value
	return value, nil
}
