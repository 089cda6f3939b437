package queues

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Figures are written once a second, and less often while they keep changing; what says whether a queue is active, at once.
func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPace(newLimiter())
	p.now = func() time.Time { return now }
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	steps := []struct {
		what        string
		after       time.Duration
		name        types.NamespacedName
		figuresOnly bool
		want        time.Duration
	}{
		{"the first", 0, a, true, 0},
		{"too soon", 300 * time.Millisecond, a, true, 700 * time.Millisecond},
		{"another object", 0, b, true, 0},
		{"waiting does not make it longer", 400 * time.Millisecond, a, true, 300 * time.Millisecond},
		{"in time", 300 * time.Millisecond, a, true, 0},
		{"a condition", 100 * time.Millisecond, a, false, 0},
		{"after a second one without rest", 100 * time.Millisecond, a, true, 3900 * time.Millisecond},
		{"in time again", 3900 * time.Millisecond, a, true, 0},
		{"never longer", 100 * time.Millisecond, a, true, 4900 * time.Millisecond},
		{"at the longest", 4900 * time.Millisecond, a, true, 0},
		{"after a rest", 10 * time.Second, a, true, 0},
		{"as in the beginning", 100 * time.Millisecond, a, true, 900 * time.Millisecond},
		{"another object at rest", 0, b, true, 0},
	}
	for _, s := range steps {
		now = now.Add(s.after)
		if got := p.take(t.Context(), s.name, s.figuresOnly); got != s.want {
			t.Errorf("%s: wait %s, want %s", s.what, got, s.want)
		}
	}
	p.forget(a)
	if got := p.take(t.Context(), a, true); got != 0 {
		t.Errorf("a forgotten object waits %s", got)
	}
}
