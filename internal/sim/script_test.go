package sim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/goldentest"
)

// scripts returns testdata/*.txt by name.
func scripts(t testing.TB) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	out := map[string]string{}
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(src)
	}
	return out
}

// TestScripts plays testdata/*.txt: a header in prose, and commands with their output.
func TestScripts(t *testing.T) {
	for path, src := range scripts(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			got, err := Run(src)
			if err != nil {
				t.Error(err)
			}
			goldentest.Check(t, path, got)
		})
	}
}

// TestHeaders: every script begins with its purpose.
func TestHeaders(t *testing.T) {
	for path, src := range scripts(t) {
		if !strings.HasPrefix(src, "# ") {
			t.Errorf("%s does not begin with prose", path)
		}
	}
}

// TestDoc compares the usages in doc.go with the usages in errors.
func TestDoc(t *testing.T) {
	src, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	doc := strings.Join(strings.Fields(strings.ReplaceAll(string(src), "//", "")), " ") + " "
	for _, name := range sortedKeys(commands) {
		if usage := strings.TrimSpace(name + " " + commands[name].words); !strings.Contains(doc, " "+usage+" ") {
			t.Errorf("doc.go does not have %q", usage)
		}
	}
}

// TestOutput: the lines of a script that Run keeps, and the ones that it rewrites.
func TestOutput(t *testing.T) {
	tests := map[string]struct{ src, want string }{
		"nothing":                  {"", ""},
		"nothing but output":       {"|\n| a", ""},
		"an empty line":            {"\n", "\n"},
		"prose and empty lines":    {"# a\n\n  # b\n", "# a\n\n  # b\n"},
		"old output is left out":   {"queue A f/cpu=1\n| old\nstatus A\n|", "queue A f/cpu=1\nstatus A\n| 0 active, 0 parked, 0 reserved, 0 admitted\n"},
		"carriage returns":         {"# a\r\nqueue A\r\n", "# a\r\nqueue A\r\n"},
		"words in any order":       {"queue A f/cpu=1 strict cohort=c f/gpu=2", "queue A f/cpu=1 strict cohort=c f/gpu=2\n"},
		"resources in any order":   {"queue A f/cpu=1 f/gpu=2 g/gpu=2 g/cpu=1\nshow", "queue A f/cpu=1 f/gpu=2 g/gpu=2 g/cpu=1\nshow\n| queue A\n|   f/cpu nominal 1 used 0 available 1\n|   f/gpu nominal 2 used 0 available 2\n|   g/cpu nominal 1 used 0 available 1\n|   g/gpu nominal 2 used 0 available 2\n"},
		"no spaces at the end":     {"queue A f/cpu=0\nreserve r queue=A f/cpu=0\nshow", "queue A f/cpu=0\nreserve r queue=A f/cpu=0\nshow\n| queue A\n|   f/cpu nominal 0 used 0 available 0\n|   holds default/r:\n"},
		"a localqueue of its own":  {"queue A f/cpu=1\nqueue B f/cpu=1\nlocalqueue A queue=B\nqueue A f/cpu=2\nsubmit w queue=A cpu=1\nstep quiet\nstatus B", "queue A f/cpu=1\nqueue B f/cpu=1\nlocalqueue A queue=B\nqueue A f/cpu=2\nsubmit w queue=A cpu=1\nstep quiet\n| 1 cycles, 1 decisions\nstatus B\n| 0 active, 0 parked, 1 reserved, 1 admitted\n| reserved f/cpu=1\n| used f/cpu=1\n"},
		"no such queue":            {"status A", "status A\n| no such queue\n"},
		"nothing known":            {"submit w cpu=1\nexplain w", "submit w cpu=1\nexplain w\n"},
		"amounts":                  {"queue A f/cpu=1500m f/memory=3Mi f/gpu=unlimited f/pods=7\nshow", "queue A f/cpu=1500m f/memory=3Mi f/gpu=unlimited f/pods=7\nshow\n| queue A\n|   f/cpu nominal 1500m used 0 available 1500m\n|   f/memory nominal 3Mi used 0 available 3Mi\n|   f/gpu nominal <unlimited> used 0 available <unlimited>\n|   f/pods nominal 7 used 0 available 7\n"},
		"a name is free once more": {"submit w cpu=1\ndelete workload w\nsubmit w cpu=1", "submit w cpu=1\ndelete workload w\nsubmit w cpu=1\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Run(tc.src)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLimits: scripts beyond each limit.
func TestLimits(t *testing.T) {
	small := limits{source: 100, workloads: 3, cells: 4, work: 20, output: 200}
	tests := map[string]struct{ src, want string }{
		"source":        {strings.Repeat("#1234567\n", 11), ""},
		"long source":   {strings.Repeat("#1234567\n", 12), "line 12: the script is longer than 100 bytes"},
		"output":        {strings.Repeat("#1234567\n| its output\n", 11), ""},
		"workloads":     {"submit w x2 cpu=1\nreserve r queue=A f/cpu=1", ""},
		"one too many":  {"submit w x2 cpu=1\nreserve r queue=A f/cpu=1\nsubmit v cpu=1", "line 3: submit: there may be 3 workloads"},
		"cells":         {"queue A cohort=c f/cpu=1 g/cpu=1", ""},
		"one resource":  {"queue A cohort=c f/cpu=1 g/cpu=1\navailable h cpu", "line 2: available: 2 queues and cohorts with 3 flavor-resources are too many"},
		"one queue":     {"queue A cohort=c f/cpu=1 g/cpu=1\nqueue B", "line 2: queue: 3 queues and cohorts with 2 flavor-resources are too many"},
		"a long output": {"queue A\n" + strings.Repeat("status A\n", 5), "line 5: the output is longer than 200 bytes"},
		"work":          {strings.Repeat("wait 1\n", 14), ""},
		"much work":     {"submit w x3 cpu=1\n" + strings.Repeat("show\n", 5), "line 6: the script is too much work"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := run(tc.src, small)
			if (err == nil) != (tc.want == "") || (err != nil && !strings.HasPrefix(err.Error(), tc.want)) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	known := []string{"submit", "step", "status", "show", "cohort="}
	tests := map[string]string{
		"submit": "submit", "sumbit": "submit", "stpe": "", "ste": "step", "shwo": "", "sho": "show", "x": "", "": "", "s": "",
		"statuses": "status", "chort=": "cohort=", "something else": "", strings.Repeat("step", 100): "",
	}
	for word, want := range tests {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
	if got := nearest("b", []string{"a", "c"}); got != "" {
		t.Errorf("another letter is near: %q", got)
	}
}

// TestClock: the order of workloads that differ in their creation only.
func TestClock(t *testing.T) {
	tests := map[string]struct {
		src   string
		first string
	}{
		"every command takes a second":   {"queue A f/cpu=9\nsubmit b queue=A cpu=1\nsubmit a queue=A cpu=1\nstep", "b"},
		"+ is the same second":           {"queue A f/cpu=9\nsubmit b queue=A cpu=1\n+ submit a queue=A cpu=1\nstep", "a"},
		"at is a second":                 {"queue A f/cpu=9\nsubmit b queue=A cpu=1\nsubmit a queue=A cpu=1 at=1\nstep", "a"},
		"wait takes as long as it says":  {"queue A f/cpu=9\nwait 7\nsubmit b queue=A cpu=1\nsubmit a queue=A cpu=1 at=10\nstep", "b"},
		"... and no second of its own":   {"queue A f/cpu=9\nwait 7\nsubmit b queue=A cpu=1\nsubmit a queue=A cpu=1 at=9\nstep", "a"},
		"copies are of the same second":  {"queue A f/cpu=9\nsubmit w x2 queue=A cpu=1\nstep", "w-0001"},
		"a step in the second of others": {"queue A f/cpu=9\n+ submit w queue=A cpu=1\n+ step", "w"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Run(tc.src)
			if err != nil {
				t.Fatal(err)
			}
			_, line, _ := strings.Cut(got, "| default/")
			if first, _, _ := strings.Cut(line, " "); first != tc.first {
				t.Errorf("%q is first, want %q, in:\n%s", first, tc.first, got)
			}
		})
	}
}

// TestComesToEnd: a step in which heads take quota from each other without an end is a mistake of the engine.
func TestComesToEnd(t *testing.T) {
	if err := comesToEnd(&cycle.Result{Cycles: 3}); err != nil {
		t.Error(err)
	}
	if err := comesToEnd(&cycle.Result{Endless: []string{"a"}}); !errors.Is(err, ErrUnsettled) || !strings.Contains(err.Error(), "[a]") {
		t.Errorf("of the cohort of a: %v", err)
	}
}
