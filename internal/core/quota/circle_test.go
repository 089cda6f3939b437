package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// spec: 10 §4.3.5.
func TestCircle(t *testing.T) {
	parents := map[string]string{"a": "b", "b": "", "c": "e", "d": "c", "e": "d", "x": "d", "self": "self"}
	cases := map[string][]string{"": nil, "b": nil, "a": nil, "e": {"c", "e", "d"}, "x": {"c", "e", "d"}, "self": {"self"}, "unknown": nil}
	for first, want := range cases {
		if diff := cmp.Diff(want, Circle(first, func(c string) string { return parents[c] })); diff != "" {
			t.Errorf("above %q (-want +got):\n%s", first, diff)
		}
	}
}
