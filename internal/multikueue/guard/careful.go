// Package guard keeps the expressions of external frameworks from doing the
// same work again and again, and from taking the time of others.
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
	restFor        = time.Minute
	keptResults    = 4096
	keptBytes      = 16 << 20 // of what was looked at, about as much as what came of it
)

// Expressions evaluate nothing twice that they have just evaluated, and rest from expressions that cost too much in a namespace: they are the
// administrator's, but the jobs are their users', and those of one must not take the time of others.
type Expressions struct {
	external.Expressions
	now func() time.Time
	// blown is told when expressions begin to rest.
	blown func(phase, namespace string, until time.Time)

	mu      sync.Mutex
	fuses   map[string]*fuse
	results map[[32]byte]result
	bytes   int
}

type fuse struct {
	failures int
	until    time.Time
}

// result is what mutations made of an object, or what other expressions say.
type result struct {
	object        map[string]any
	name, message string
	ok, success   bool
	err           error
}

// resting is the error of expressions that are not asked for a while.
type resting struct{ until time.Time }

// Error says until when.
func (r *resting) Error() string {
	return fmt.Sprintf("suspended until %s in this namespace: it cost too much %d times in a row", r.until.UTC().Format(time.RFC3339), failuresInARow)
}

// Until is when they are asked again.
func (r *resting) Until() time.Time { return r.until }

// New is careful with the expressions of a framework. blown is told of each time when those of a phase begin to rest.
func New(e external.Expressions, now func() time.Time, blown func(phase, namespace string, until time.Time)) *Expressions {
	return &Expressions{Expressions: e, now: now, blown: blown, fuses: map[string]*fuse{}, results: map[[32]byte]result{}}
}

// Preconditions asks, or remembers.
func (c *Expressions) Preconditions(scope map[string]any) (name, message string, ok bool, err error) {
	r := c.once(transform.Precondition, "", namespaceOf(scope["localObject"]), nil, scope, func() (r result) {
		r.name, r.message, r.ok, r.err = c.Expressions.Preconditions(scope)
		return r
	})
	return r.name, r.message, r.ok, r.err
}

// Mutate mutates, or remembers.
func (c *Expressions) Mutate(phase string, object, scope map[string]any, apply func(map[string]any, any) (map[string]any, error)) (map[string]any, error) {
	r := c.once(phase, "", namespaceOf(scope["localObject"]), object, scope, func() (r result) {
		r.object, r.err = c.Expressions.Mutate(phase, object, scope, apply)
		return r
	})
	if r.err != nil {
		return nil, r.err
	}
	return runtime.DeepCopyJSON(r.object), nil
}

// When asks, or remembers.
func (c *Expressions) When(scope map[string]any) (bool, error) {
	r := c.once(transform.StatusSync, "when", namespaceOf(scope["localObject"]), nil, scope, func() (r result) {
		r.ok, r.err = c.Expressions.When(scope)
		return r
	})
	return r.ok, r.err
}

// Finished asks, or remembers.
func (c *Expressions) Finished(remote map[string]any) (done, success bool, message string, err error) {
	r := c.once(transform.Lifecycle, "finished", namespaceOf(remote), remote, nil, func() (r result) {
		r.ok, r.success, r.message, r.err = c.Expressions.Finished(remote)
		return r
	})
	return r.ok, r.success, r.message, r.err
}

// Active asks, or remembers.
func (c *Expressions) Active(remote map[string]any) (bool, error) {
	r := c.once(transform.Lifecycle, "active", namespaceOf(remote), remote, nil, func() (r result) {
		r.ok, r.err = c.Expressions.Active(remote)
		return r
	})
	return r.ok, r.err
}

// once evaluates what is asked in a phase, unless it knows the answer or the phase rests in the namespace.
func (c *Expressions) once(phase, asked, namespace string, object, scope map[string]any, do func() result) result {
	text, err := json.Marshal([]any{phase, asked, object, scope})
	if err != nil {
		return result{err: err}
	}
	key := sha256.Sum256(text)
	f := c.fuse(phase, namespace)
	c.mu.Lock()
	known, ok := c.results[key]
	until := f.until
	c.mu.Unlock()
	switch {
	case ok:
		return known
	case c.now().Before(until):
		return result{err: &resting{until}}
	}
	r := do()
	if until, blown := c.keep(f, key, r, len(text)); blown {
		c.blown(phase, namespace, until)
	}
	return r
}

// keep remembers an answer about so many bytes, unless it was only late, and tells whether it is one too many that cost too much, and until when there are no more.
func (c *Expressions) keep(f *fuse, key [32]byte, r result, size int) (until time.Time, blown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !external.TooMuch(r.err) {
		f.failures = 0
	} else if f.failures++; f.failures >= failuresInARow {
		f.failures, f.until, blown = 0, c.now().Add(restFor), true
	}
	if errors.Is(r.err, cel.ErrTooSlow) {
		return f.until, blown
	}
	if len(c.results) >= keptResults || c.bytes+size > keptBytes {
		c.results, c.bytes = map[[32]byte]result{}, 0
	}
	c.results[key] = r
	c.bytes += size
	return f.until, blown
}

// namespaceOf is that of an object, as expressions see it.
func namespaceOf(object any) string {
	tree, _ := object.(map[string]any)
	meta, _ := tree["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	return namespace
}

// fuse is that of a phase in a namespace.
func (c *Expressions) fuse(phase, namespace string) *fuse {
	key := phase + " " + namespace
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fuses[key] == nil {
		c.fuses[key] = &fuse{}
	}
	return c.fuses[key]
}
