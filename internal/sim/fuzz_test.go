package sim

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/state"
)

// few are limits within which a script takes milliseconds.
var few = limits{source: 1 << 14, workloads: 6_000, cells: 1 << 12, work: 200_000, output: 1 << 20}

// FuzzScript: no input makes Run panic, or run on; the same script has the same output,
// and so has its output.
func FuzzScript(f *testing.F) {
	seeds := scripts(f)
	for _, path := range sortedKeys(seeds) {
		f.Add(seeds[path])
	}
	f.Fuzz(func(t *testing.T, src string) {
		out, err := run(src, few)
		if errors.Is(err, ErrUnsettled) {
			t.Error(err)
		}
		again, err2 := run(src, few)
		if out != again || (err == nil) != (err2 == nil) {
			t.Errorf("output differs (-first +second):\n%s", cmp.Diff(out, again))
		}
		if err != nil {
			if strings.Contains(err.Error(), "%!") && !strings.Contains(src, "%") {
				t.Errorf("a mistake in a message: %v", err)
			}
			return
		}
		if strings.Contains(out, "\n| ") && slices.ContainsFunc(strings.Split(out, "\n"), func(l string) bool {
			return strings.HasPrefix(l, "|") && strings.HasSuffix(l, " ")
		}) {
			t.Error("spaces at the end of a line of output")
		}
		again, err = run(out, few)
		if err != nil {
			t.Fatalf("the output is no script: %v", err)
		}
		if out != again {
			t.Errorf("output of the output differs (-first +second):\n%s", cmp.Diff(out, again))
		}
	})
}

// TestMixtures plays the world of one script and then commands of all scripts in any order.
// Nothing panics, every step decides all that can be decided, a second player and a replay
// of the first one's record agree. In the end no pending workload would be admitted by a
// fresh evaluation.
func TestMixtures(t *testing.T) {
	src := scripts(t)
	paths := sortedKeys(src)
	worlds := map[string][]string{}
	var pool []string
	for _, path := range paths {
		for line := range strings.Lines(src[path]) {
			words := strings.Fields(line)
			switch {
			case len(words) == 0 || strings.Contains(line, " x5000 "):
			case slices.Contains([]string{"options", "namespace", "flavor", "cohort", "queue", "localqueue", "node", "foreign"}, words[0]):
				worlds[path] = append(worlds[path], line)
				if words[0] != "options" && len(pool)%3 == 0 { // edits are rarer
					pool = append(pool, line)
				}
			case slices.Contains([]string{"submit", "reserve", "usage"}, words[0]):
				pool = append(pool, line)
			}
		}
	}
	pool = append(pool, "cordon ?", "foreign ? cpu=2 pods=1", "foreign ? cpu=1 pods=1", "delete node ?", "node ? label.rack=r1 cpu=4", "node ? label.rack=r2 cpu=3")
	for range len(pool) / 5 {
		pool = append(pool, "step", "step", "+ step", "step unwritten", "wait 2", "finish ?", "evicted ?", "evicted ?", "evict ?",
			"submit s queue=A replaces=? cpu=2", "submit s queue=A prio=1 replaces=? / main x4 min=2 cpu=4", "submit g queue=A prio=2 gated cpu=2",
			"fail ?", "recover ?", "explain ?", "uncordon ?", "foreign ?", "finish ?", "delete workload ?", "edit ? gate=open", "edit ? prio=1", "edit ? prio=-1", "edit ? cpu=1", "written ?", "write-fails ?", "evict-fails ?")
	}
	rapid.Check(t, func(t *rapid.T) {
		p, twin := newPlayer(few), newPlayer(few)
		p.s.Record(20)
		world := rapid.Permutation(paths).Draw(t, "world")[0]
		script := rapid.Permutation(pool).Draw(t, "script")[:rapid.IntRange(20, 80).Draw(t, "length")]
		var played []string
		for i, line := range append(slices.Clone(worlds[world]), script...) {
			line = named(p, i, line)
			played = append(played, line)
			said, err := p.line(line)
			if strings.HasPrefix(line, "options") {
				p.s.Record(20) // it is another state
			}
			if errors.Is(err, ErrUnsettled) {
				t.Fatalf("%v\n\n%s", err, strings.Join(played, "\n"))
			}
			if again, _ := twin.line(line); said != again {
				t.Fatalf("output differs (-first +second):\n%s\n%s", cmp.Diff(said, again), strings.Join(played, "\n"))
			}
		}
		for range 2 { // claims have ended, and all is written
			for _, line := range []string{"wait 700", "step"} {
				if _, err := p.line(line); err != nil {
					t.Fatalf("%v\n\n%s", err, strings.Join(played, "\n"))
				}
			}
		}
		if attempt := missed(t, p); attempt != nil {
			t.Fatalf("could be, and is not, %s\nits last attempt was %v\n%s\n\n%s", attempt, p.s.Attempt(attempt.UID), p.s.Dump(), strings.Join(played, "\n"))
		}
		var record bytes.Buffer
		from, events := p.s.Publish().Record().Contents()
		if err := WriteRecord(&record, from, events); err != nil {
			t.Fatal(err)
		}
		s, _, err := Replay(&record, nil)
		if err != nil {
			t.Fatalf("%v\n\n%s", err, strings.Join(played, "\n"))
		}
		if diff := cmp.Diff(p.s.Dump(), s.Dump()); diff != "" {
			t.Errorf("replayed, the world is another one (-played +replayed):\n%s\n%s", diff, strings.Join(played, "\n"))
		}
	})
}

// missed returns a decision of a state without history that p's state did not make, unless
// evictions are in progress.
func missed(t *rapid.T, p *player) *trace.Attempt {
	from := p.s.Checkpoint().Snapshot()
	from.Memory = cycle.Memory{}
	if slices.ContainsFunc(from.Workloads, func(w state.WorkloadMemory) bool { return w.Evicting || w.Def.Evicting }) {
		return nil
	}
	fresh, err := state.Restore(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range fresh.Step(p.instant(), 10_000).Decisions {
		if d.Attempt.Verdict != trace.Waits {
			return d.Attempt
		}
	}
	return nil
}

// named gives submitted workloads unique names, and chooses a workload or a node for a "?".
func named(p *player, i int, line string) string {
	words := strings.Fields(line)
	if words[0] == "submit" || words[0] == "reserve" {
		words[1] += "-" + strconv.Itoa(i)
	}
	line = strings.Join(words, " ")
	var fit []string
	if slices.Contains([]string{"cordon", "uncordon", "fail", "recover", "foreign", "node"}, words[0]) || strings.HasPrefix(line, "delete node") {
		fit = sortedKeys(p.machines)
		if len(fit) == 0 {
			return line
		}
		return strings.ReplaceAll(line, "?", fit[i%len(fit)])
	}
	for _, name := range sortedKeys(p.workloads) {
		w := p.workloads[name]
		_, admitted := p.admissions[name]
		ok := w.Queueable
		switch words[0] {
		case "evicted":
			ok = w.Evicting
		case "submit", "evict":
			ok = w.Reserved
		case "written":
			ok = admitted || p.evictions[name]
		case "write-fails":
			ok = admitted
		case "evict-fails":
			ok = p.evictions[name]
		}
		if ok {
			fit = append(fit, name)
		}
	}
	if len(fit) == 0 {
		return line
	}
	return strings.ReplaceAll(line, "?", fit[i%len(fit)])
}
