// Package careful keeps the expressions of external frameworks from doing the
// same work again and again, and from taking the time of others.
package careful

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-project/berth/internal/options/transform"
	"github.com/berth-project/berth/internal/plan/dispatch/external"
)

// Limits of expressions that fail (spec: 40 §4.13.4).
const (
	failuresInARow = 20
	restFor        = time.Minute
	keptResults    = 4096
)

// Expressions evaluate nothing twice that they have just evaluated, and rest from expressions that cost too much in a namespace: they are the
// administrator's, but the jobs are their users', and those of one must not take the time of others.
type Expressions struct {
	external.Expressions
	now func() time.Time

	mu      sync.Mutex
	fuses   map[string]*fuse
	results map[[32]byte]result
}

type fuse struct {
	failures int
	until    time.Time
}

// result is what mutations made of an object, or what the preconditions say.
type result struct {
	object        map[string]any
	name, message string
	ok            bool
	err           error
}

// resting is the error of expressions that are not asked for a while.
type resting struct{ until time.Time }

// Error says until when.
func (r *resting) Error() string {
	return fmt.Sprintf("suspended until %s in this namespace: it cost too much %d times in a row", r.until.UTC().Format(time.RFC3339), failuresInARow)
}

// TooMuch is true.
func (r *resting) TooMuch() bool { return true }

// New is careful with the expressions of a framework.
func New(e external.Expressions, now func() time.Time) *Expressions {
	return &Expressions{Expressions: e, now: now, fuses: map[string]*fuse{}, results: map[[32]byte]result{}}
}

// Preconditions asks, or remembers.
func (c *Expressions) Preconditions(scope map[string]any) (name, message string, ok bool, err error) {
	r := c.once(transform.Precondition, nil, scope, func() (r result) {
		r.name, r.message, r.ok, r.err = c.Expressions.Preconditions(scope)
		return r
	})
	return r.name, r.message, r.ok, r.err
}

// Mutate mutates, or remembers.
func (c *Expressions) Mutate(phase string, object, scope map[string]any, apply func(map[string]any, any) (map[string]any, error)) (map[string]any, error) {
	r := c.once(phase, object, scope, func() (r result) {
		r.object, r.err = c.Expressions.Mutate(phase, object, scope, apply)
		return r
	})
	if r.err != nil {
		return nil, r.err
	}
	return runtime.DeepCopyJSON(r.object), nil
}

func (c *Expressions) once(phase string, object, scope map[string]any, do func() result) result {
	text, err := json.Marshal([]any{phase, object, scope})
	if err != nil {
		return result{err: err}
	}
	key := sha256.Sum256(text)
	f := c.fuse(phase, scope)
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if !external.TooMuch(r.err) {
		f.failures = 0
	} else if f.failures++; f.failures >= failuresInARow {
		f.failures, f.until = 0, c.now().Add(restFor)
	}
	if len(c.results) >= keptResults {
		c.results = map[[32]byte]result{}
	}
	c.results[key] = r
	return r
}

// fuse is that of a phase in a namespace.
func (c *Expressions) fuse(phase string, scope map[string]any) *fuse {
	local, _ := scope["localObject"].(map[string]any)
	meta, _ := local["metadata"].(map[string]any)
	key := fmt.Sprint(phase, " ", meta["namespace"])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fuses[key] == nil {
		c.fuses[key] = &fuse{}
	}
	return c.fuses[key]
}
