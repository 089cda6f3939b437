// Package transform makes of what a configuration says about external frameworks
// something that can be asked (spec: 40 §4.13).
//
//	expressions ─► Compile: each in the scope of its phase ─► Framework ─► Preconditions, Mutate, Finished …
//
// It evaluates; what may be touched, and what becomes of a patch, decides
// internal/multikueue/plan/external.
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

// The phases, by the names that are told.
const (
	Precondition = "precondition"
	Creation     = "creation"
	StatusSync   = "statusSync"
	SpecSync     = "specSync"
	Lifecycle    = "lifecycle"
)

// scopes are the names that expressions may use in each phase.
var scopes = map[string][]string{
	Precondition: {"localObject", "workload"},
	Creation:     {"object", "localObject", "workload", "cluster", "origin"},
	StatusSync:   {"object", "localObject", "remoteObject", "workload", "cluster"},
	SpecSync:     {"object", "localObject", "remoteObject", "workload", "cluster"},
	Lifecycle:    {"remoteObject"},
}

// variablesName is what variables are fields of.
const variablesName = "variables"

// passTime bounds all expressions of one phase on one object.
const passTime = time.Second

// Framework is an external framework, checked and compiled.
type Framework struct {
	GVK schema.GroupVersionKind
	// Extended says that it uses more than its name.
	Extended bool
	// NoJob says that a controller of its own carries the jobs: controllerType External.
	NoJob bool
	// Unchecked sends jobs without the mark of ManagedBy, the path of a field, which has the value Value.
	Unchecked bool
	ManagedBy []string
	Value     string
	// WorkerValue is what the field has on the worker; nil removes it.
	WorkerValue *string
	CopyFields  []string
	// RetryOnError tries again what cannot be transformed, and does not reject it.
	RetryOnError bool
	// StatusMode is Replace, Mutate or Disabled, Subresource Auto, Status or Main.
	StatusMode, Subresource string
	// AnnotationPrefixes and LabelPrefixes are those of keys that jobs get from their copies.
	AnnotationPrefixes, LabelPrefixes []string
	// SpecPaths are those that may change on the copy.
	SpecPaths [][]string
	// Alone says that nothing on the workers integrates the kind.
	Alone bool
	// MaxBytes bounds a copy, and what a mutation makes.
	MaxBytes int
	// Observed, unless it is nil, is told of every evaluation of a phase: success, error or too_costly, its cost and its time.
	Observed func(phase, result string, cost uint64, took time.Duration)
	// Suspended, unless it is nil, is told when a phase is not evaluated for a while, since it cost too much again and again.
	Suspended func(phase string)

	costPerExpression, costPerPass uint64
	variables                      []string
	compiled                       map[string][]*cel.Expression // of variables, by phase; nil where they are not used
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

// HasPreconditions says whether there are any, and HasMutations likewise for a phase.
func (f *Framework) HasPreconditions() bool { return len(f.preconditions) > 0 }

// HasMutations says whether a phase changes anything.
func (f *Framework) HasMutations(phase string) bool { return len(f.mutations[phase]) > 0 }

// Failure is what went wrong in a phase.
type Failure struct {
	// Of is the expression by its name, such as mutation "park".
	Of  string
	Err error
}

// Error names the expression.
func (f *Failure) Error() string { return f.Of + ": " + f.Err.Error() }

// Unwrap gives what is wrong.
func (f *Failure) Unwrap() error { return f.Err }

// Where is the expression by its name.
func (f *Failure) Where() string { return f.Of }

// TooMuch says that it cost too much or took too long.
func (f *Failure) TooMuch() bool { return errors.Is(f.Err, cel.ErrTooMuch) }

// Preconditions finds the first rule that does not hold: its name and its message.
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

// Mutate runs the mutations of a phase on an object, each on what the one before it left. apply gives the object with a patch: a list of
// operations, or a map to merge.
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

// When says whether the status is to be copied yet.
func (f *Framework) When(scope map[string]any) (bool, error) {
	if f.when == nil {
		return true, nil
	}
	return f.bool(StatusSync, "when", f.when, scope)
}

// Active says whether pods of a remote job may run.
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

// Finished says whether a remote job is over, and how it went.
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
	values map[string]any // of variables, as far as they were asked for
	spent  uint64
	failed error // what cost too much, also where an expression survived it
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

// result is how a pass went, in a word.
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

// variable is the value of one, worked out when it is asked for first.
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
