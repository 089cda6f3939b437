package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/sim"
	"github.com/berth-project/berth/internal/state"
)

// flight is the record of two workloads in a queue with room for one.
func flight(t *testing.T) string {
	t.Helper()
	s := state.New(state.Options{Options: cycle.Defaults()})
	s.Record(100)
	s.Apply(state.SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(state.SetNamespace{Name: "ns", Labels: nil})
	s.Apply(state.SetQueue(state.Queue{Name: "cq", Namespaces: []workload.Term{{}}, Groups: []state.Group{{
		Resources: []string{"cpu"},
		Flavors:   []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: 1, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
	}}}))
	s.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: "ns", Name: "lq", Queue: "cq"}))
	for i, name := range []string{"a", "b"} {
		s.Apply(state.SetWorkload(state.Workload{
			UID: name, Namespace: "ns", Name: name, Version: 1, LocalQueue: "lq", Since: workload.Instant(i), Queueable: true,
			PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: 1}}}},
		}))
	}
	s.Step(1, 100)
	var b bytes.Buffer
	from, events := s.Publish().Record().Contents()
	if err := sim.WriteRecord(&b, from, events); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReplay(t *testing.T) {
	record := flight(t)
	cases := map[string]struct {
		record string
		args   []string
		code   int
		out    []string // parts of the output or the error
		not    string
	}{
		"as recorded":     {record: record, out: []string{"1 steps, 2 decisions: decided as recorded, trace hash "}, not: "ns/a"},
		"with its trace":  {record: record, args: []string{"--trace"}, out: []string{"ns/a in cq (priority 0): admitted", "ns/b in cq (priority 0): waits"}},
		"of one workload": {record: record, args: []string{"--workload", "ns/b"}, out: []string{"ns/b in cq"}, not: "ns/a"},
		"another outcome": {record: strings.Replace(record, `"Nominal":1`, `"Nominal":2`, 1), code: exitFailed, out: []string{"step 1 decides otherwise than recorded"}},
		"no record":       {record: "hello", code: exitFailed, out: []string{"line 1 is no snapshot"}},
		"half a record":   {record: record[:len(record)-40], code: exitFailed, out: []string{"is no event"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "flight.jsonl")
			if err := os.WriteFile(path, []byte(tc.record), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			code := run(t.Context(), testBuild, append(append([]string{"berth", "replay"}, tc.args...), path), &out, &out)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, want := range tc.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, &out)
				}
			}
			if tc.not != "" && strings.Contains(out.String(), tc.not) {
				t.Errorf("%q in:\n%s", tc.not, &out)
			}
		})
	}
	var out bytes.Buffer
	if code := run(t.Context(), testBuild, []string{"berth", "replay"}, &out, &out); code != exitUsage {
		t.Errorf("without a file: exit code %d, want %d", code, exitUsage)
	}
}
