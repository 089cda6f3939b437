package strict

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	for name, tc := range map[string]struct {
		name  string
		known []string
		want  string
	}{
		"one letter":          {"metric", []string{"health", "metrics"}, "metrics"},
		"swapped letters":     {"mertics", []string{"health", "metrics"}, "metrics"},
		"other case":          {"BURST", []string{"qps", "burst"}, "burst"},
		"too far":             {"kubeconfig", []string{"qps", "burst"}, ""},
		"first of equals":     {"ab", []string{"ac", "ad"}, "ac"},
		"nothing known":       {"a", nil, ""},
		"very long is no hit": {strings.Repeat("a", 500), []string{"a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Nearest(tc.name, tc.known); got != tc.want {
				t.Errorf("Nearest(%q) = %q, want %q", tc.name, got, tc.want)
			}
		})
	}
}
