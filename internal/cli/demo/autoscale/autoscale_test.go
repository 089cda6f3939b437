package autoscale

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"

	"github.com/berth-project/berth/internal/cli/demo"
)

// Each step is done when it has had its effect, not before, and notices another effect.
func TestStory(t *testing.T) {
	bound := func(n int, to string) (out []string) {
		for range n {
			out = append(out, to)
		}
		return out
	}
	for name, tc := range map[string]struct {
		step  int // from 1
		nodes int
		job   job
		done  bool
		want  string // a part of the sentence, or of the error
	}{
		"it waits":                    {1, 0, job{name: "train", reserved: true, check: "Pending", message: "at 12:00"}, true, "The autoscaler answers: at 12:00."},
		"it has no quota yet":         {1, 0, job{name: "train"}, false, ""},
		"nodes before it asked":       {1, 3, job{name: "train", reserved: true, message: "m"}, true, "3 nodes already"},
		"it runs":                     {2, 3, job{name: "train", running: 3, requests: bound(3, "r")}, true, "bound to r."},
		"it does not run as a whole":  {2, 3, job{name: "train", running: 2}, false, ""},
		"too many nodes":              {2, 4, job{name: "train", running: 3, requests: bound(3, "r")}, true, "4 nodes came, want 3"},
		"its pods are bound to none":  {2, 3, job{name: "train", running: 3, requests: bound(3, "")}, true, "not to one request"},
		"it is over":                  {3, 0, job{name: "train", complete: true}, true, "No node is left."},
		"the nodes stay":              {3, 1, job{name: "train", complete: true}, false, ""},
		"one retry":                   {4, 0, job{name: "flaky", complete: true, retries: 1}, true, "one retry."},
		"no retry":                    {4, 0, job{name: "flaky", complete: true}, true, "0 times, want once"},
		"deactivated":                 {5, 0, job{name: "loser", inactive: true}, true, "to queue it again."},
		"deactivated, and still runs": {5, 0, job{name: "loser", inactive: true, running: 1}, true, "still runs"},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := story[tc.step-1], world{nodes: tc.nodes, jobs: []job{tc.job}}
			if s.done(w) != tc.done {
				t.Fatalf("done is %v: %s", !tc.done, w.String())
			}
			if !tc.done {
				return
			}
			got, err := s.check(w)
			if text := got + fmt.Sprint(err); !strings.Contains(text, tc.want) || (err == nil) != strings.HasSuffix(tc.want, ".") {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// TestRun: the whole demo, on a real control plane.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	var out bytes.Buffer
	log := func(io.Writer) (logr.Logger, error) { return testr.New(t), nil }
	if err := run(t.Context(), demo.Config{Dir: t.TempDir(), Version: "test", Out: &out, Log: log}, time.Hour); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"Nodes are expected at", "3 nodes, 3 pods, bound to", "It ran after one retry.", "It was stopped"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in:\n%s", want, out.String())
		}
	}
	t.Log(out.String())
}
