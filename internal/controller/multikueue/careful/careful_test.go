package careful

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/plan/dispatch/external"
)

// costly counts how often it is asked, and costs too much in one namespace.
type costly struct {
	external.Expressions
	asked int
}

type dear struct{ error }

func (dear) TooMuch() bool { return true }

func (c *costly) Preconditions(scope map[string]any) (name, message string, ok bool, err error) {
	c.asked++
	if strings.Contains(fmt.Sprint(scope), "greedy") {
		return "p", "", false, dear{errors.New("costs too much")}
	}
	return "", "", true, nil
}

// TestCareful is that nothing is evaluated twice, and that expressions rest in a namespace where they cost too much, and only there.
func TestCareful(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	inner := &costly{}
	c := New(inner, func() time.Time { return now })
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
	if err := ask("greedy", 100); !external.TooMuch(err) || !strings.Contains(err.Error(), "suspended until 2026-01-02T03:05:05Z") || inner.asked != asked {
		t.Errorf("it does not rest: %v", err)
	}
	if err := ask("modest", 2); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	now = now.Add(restFor)
	if err := ask("greedy", 101); strings.Contains(err.Error(), "suspended") {
		t.Errorf("it still rests: %v", err)
	}
}
