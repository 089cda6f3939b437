package guard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/cel"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
)

// costly counts evaluations, and costs too much in one namespace.
type costly struct {
	external.Expressions
	asked int
}

type dear struct{ error }

func (dear) TooMuch() bool { return true }

func (d dear) Unwrap() error { return d.error }

func (c *costly) Preconditions(scope map[string]any) (name, message string, ok bool, err error) {
	c.asked++
	if strings.Contains(fmt.Sprint(scope), "greedy") {
		return "p", "", false, dear{errors.New("costs too much")}
	}
	return "", "", true, nil
}

func (c *costly) Finished(map[string]any) (done, success bool, message string, err error) {
	c.asked++
	return true, true, "m", nil
}

func (c *costly) Active(map[string]any) (bool, error) {
	c.asked++
	return true, dear{errors.New("costs too much")}
}

func (c *costly) When(map[string]any) (bool, error) {
	c.asked++
	return true, nil
}

// TestExpressions: results are cached, and expressions are suspended only in a namespace where they cost too much.
func TestExpressions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	inner := &costly{}
	var opened []string
	c := New(inner, func() time.Time { return now }, func(phase, namespace string, until time.Time) {
		opened = append(opened, fmt.Sprint(phase, " in ", namespace, " for ", until.Sub(now)))
	})
	ask := func(namespace string, n int) error {
		_, _, _, err := c.Preconditions(map[string]any{"localObject": map[string]any{"metadata": map[string]any{"namespace": namespace}, "n": int64(n)}})
		return err
	}
	for range 3 {
		if err := ask("modest", 1); err != nil {
			t.Fatal(err)
		}
	}
	if inner.asked != 1 {
		t.Errorf("asked %d times for one answer", inner.asked)
	}
	for i := range failuresInARow {
		if err := ask("greedy", i); !external.TooMuch(err) || strings.Contains(err.Error(), "suspended") {
			t.Fatalf("%d: %v", i, err)
		}
	}
	asked := inner.asked
	if fmt.Sprint(opened) != "[precondition in greedy for 1m0s]" {
		t.Errorf("told: %q", opened)
	}
	if err := ask("greedy", 100); external.TooMuch(err) || external.SuspendedUntil(err) != now.Add(suspendFor) || !strings.Contains(err.Error(), "suspended until 2026-01-02T03:05:05Z") || inner.asked != asked {
		t.Errorf("it is not suspended: %v", err)
	}
	if err := ask("modest", 2); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	now = now.Add(suspendFor)
	if err := ask("greedy", 101); strings.Contains(err.Error(), "suspended") {
		t.Errorf("it is still suspended: %v", err)
	}
}

// slow times out once, and returns large objects.
type slow struct {
	external.Expressions
	asked int
}

func (s *slow) When(map[string]any) (bool, error) {
	if s.asked++; s.asked == 1 {
		return false, dear{cel.ErrTooSlow}
	}
	return true, nil
}

func (s *slow) Mutate(_ string, object, _ map[string]any, _ func(map[string]any, any) (map[string]any, error)) (map[string]any, error) {
	s.asked++
	return object, nil
}

// TestWhatIsKept: a timeout is not cached, and the cache is bounded.
func TestWhatIsKept(t *testing.T) {
	inner := &slow{}
	c := New(inner, time.Now, func(string, string, time.Time) {})
	if _, err := c.When(nil); !external.TooMuch(err) {
		t.Errorf("got %v", err)
	}
	if ok, err := c.When(nil); !ok || err != nil {
		t.Errorf("once more: %v, %v", ok, err)
	}
	large := strings.Repeat("x", keptBytes/4)
	for i := range 20 {
		if _, err := c.Mutate("creation", map[string]any{"n": int64(i), "text": large}, nil, nil); err != nil {
			t.Fatal(err)
		}
		if c.bytes > keptBytes || len(c.results) > 4 {
			t.Fatalf("%d results of %d bytes are kept", len(c.results), c.bytes)
		}
	}
}

// TestLifecycleExpressions: the same for expressions about copies and their status.
func TestLifecycleExpressions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	inner, opened := &costly{}, 0
	c := New(inner, func() time.Time { return now }, func(string, string, time.Time) { opened++ })
	remote := func(namespace string, n int) map[string]any {
		return map[string]any{"metadata": map[string]any{"namespace": namespace}, "n": int64(n)}
	}
	for range 3 {
		if done, success, message, err := c.Finished(remote("a", 1)); !done || !success || message != "m" || err != nil {
			t.Errorf("finished: %v %v %q %v", done, success, message, err)
		}
		if now, err := c.When(map[string]any{"localObject": remote("a", 1)}); !now || err != nil {
			t.Errorf("when: %v %v", now, err)
		}
		if runs, err := c.Active(remote("a", 1)); !runs || !external.TooMuch(err) {
			t.Errorf("active: %v %v", runs, err)
		}
	}
	if inner.asked != 3 {
		t.Errorf("asked %d times for three answers", inner.asked)
	}
	for i := range failuresInARow - 1 {
		_, _ = c.Active(remote("a", 100+i))
	}
	asked := inner.asked
	if _, err := c.Active(remote("a", 200)); external.SuspendedUntil(err) != now.Add(suspendFor) || inner.asked != asked || opened != 1 {
		t.Errorf("it is not suspended: %v, opened %d times", err, opened)
	}
	if _, err := c.Active(remote("b", 200)); !external.TooMuch(err) {
		t.Errorf("another namespace: %v", err)
	}
}
