// Package guard bounds the cost of the expressions of external frameworks: it caches results, and suspends expressions that cost too
// much.
package guard

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-project/berth/internal/cel"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/options/transform"
)

// Limits of expressions that fail (spec: 40 §4.13.4).
const (
	failuresInARow = 20
	suspendFor     = time.Minute
	keptResults    = 4096
	keptBytes      = 16 << 20 // of input, about as much as of results
)

// Expressions caches results. A circuit breaker for each phase and namespace suspends expressions that cost too much there: they are the
// administrator's, but the jobs are their users', and one namespace must not take the time of others.
type Expressions struct {
	external.Expressions
	now    func() time.Time
	opened func(phase, namespace string, until time.Time)

	mu       sync.Mutex
	breakers map[string]*breaker
	results  map[[32]byte]result
	bytes    int
}

type breaker struct {
	failures int
	until    time.Time
}

type result struct {
	object        map[string]any
	name, message string
	ok, success   bool
	err           error
}

type suspended struct{ until time.Time }

// Error names the end of the suspension.
func (r *suspended) Error() string {
	return fmt.Sprintf("suspended until %s in this namespace: it cost too much %d times in a row", r.until.UTC().Format(time.RFC3339), failuresInARow)
}

// Until is the end of the suspension.
func (r *suspended) Until() time.Time { return r.until }

// New guards the expressions of a framework. opened is called each time a circuit breaker opens.
func New(e external.Expressions, now func() time.Time, opened func(phase, namespace string, until time.Time)) *Expressions {
	return &Expressions{Expressions: e, now: now, opened: opened, breakers: map[string]*breaker{}, results: map[[32]byte]result{}}
}

// Preconditions returns the cached result, or evaluates.
func (c *Expressions) Preconditions(scope map[string]any) (name, message string, ok bool, err error) {
	r := c.evaluate(transform.Precondition, "", namespaceOf(scope["localObject"]), nil, scope, func() (r result) {
		r.name, r.message, r.ok, r.err = c.Expressions.Preconditions(scope)
		return r
	})
	return r.name, r.message, r.ok, r.err
}

// Mutate returns the cached result, or evaluates.
func (c *Expressions) Mutate(phase string, object, scope map[string]any, apply func(map[string]any, any) (map[string]any, error)) (map[string]any, error) {
	r := c.evaluate(phase, "", namespaceOf(scope["localObject"]), object, scope, func() (r result) {
		r.object, r.err = c.Expressions.Mutate(phase, object, scope, apply)
		return r
	})
	if r.err != nil {
		return nil, r.err
	}
	return runtime.DeepCopyJSON(r.object), nil
}

// When returns the cached result, or evaluates.
func (c *Expressions) When(scope map[string]any) (bool, error) {
	r := c.evaluate(transform.StatusSync, "when", namespaceOf(scope["localObject"]), nil, scope, func() (r result) {
		r.ok, r.err = c.Expressions.When(scope)
		return r
	})
	return r.ok, r.err
}

// Finished returns the cached result, or evaluates.
func (c *Expressions) Finished(remote map[string]any) (done, success bool, message string, err error) {
	r := c.evaluate(transform.Lifecycle, "finished", namespaceOf(remote), remote, nil, func() (r result) {
		r.ok, r.success, r.message, r.err = c.Expressions.Finished(remote)
		return r
	})
	return r.ok, r.success, r.message, r.err
}

// Active returns the cached result, or evaluates.
func (c *Expressions) Active(remote map[string]any) (bool, error) {
	r := c.evaluate(transform.Lifecycle, "active", namespaceOf(remote), remote, nil, func() (r result) {
		r.ok, r.err = c.Expressions.Active(remote)
		return r
	})
	return r.ok, r.err
}

// evaluate returns the cached result, or evaluates unless the circuit breaker of the phase and namespace is open.
func (c *Expressions) evaluate(phase, asked, namespace string, object, scope map[string]any, do func() result) result {
	text, err := json.Marshal([]any{phase, asked, object, scope})
	if err != nil {
		return result{err: err}
	}
	key := sha256.Sum256(text)
	f := c.breaker(phase, namespace)
	c.mu.Lock()
	known, ok := c.results[key]
	until := f.until
	c.mu.Unlock()
	switch {
	case ok:
		return known
	case c.now().Before(until):
		return result{err: &suspended{until}}
	}
	r := do()
	if until, opened := c.record(f, key, r, len(text)); opened {
		c.opened(phase, namespace, until)
	}
	return r
}

// record caches a result of size bytes of input, unless it only timed out, and returns whether that opened the circuit breaker, and until
// when.
func (c *Expressions) record(f *breaker, key [32]byte, r result, size int) (until time.Time, opened bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !external.TooMuch(r.err) {
		f.failures = 0
	} else if f.failures++; f.failures >= failuresInARow {
		f.failures, f.until, opened = 0, c.now().Add(suspendFor), true
	}
	if errors.Is(r.err, cel.ErrTooSlow) {
		return f.until, opened
	}
	if len(c.results) >= keptResults || c.bytes+size > keptBytes {
		c.results, c.bytes = map[[32]byte]result{}, 0
	}
	c.results[key] = r
	c.bytes += size
	return f.until, opened
}

func namespaceOf(object any) string {
	tree, _ := object.(map[string]any)
	meta, _ := tree["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	return namespace
}

func (c *Expressions) breaker(phase, namespace string) *breaker {
	key := phase + " " + namespace
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breakers[key] == nil {
		c.breakers[key] = &breaker{}
	}
	return c.breakers[key]
}
