package feature

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestGateTable(t *testing.T) {
	seen := map[string]bool{}
	for i, spec := range table {
		switch {
		case spec.name == "":
			t.Errorf("gate %d has no row", i)
		case seen[spec.name]:
			t.Errorf("%s has two rows", spec.name)
		case retired[spec.name]:
			t.Errorf("%s is both in use and retired", spec.name)
		case spec.locked != (spec.stage == GA):
			t.Errorf("%s: GA and locked go together", spec.name)
		case spec.stage == Alpha && spec.on:
			t.Errorf("%s is alpha and on by default", spec.name)
		}
		seen[spec.name] = true
		for _, parent := range spec.needs {
			if spec.on && !table[parent].on {
				t.Errorf("%s is on by default, but %s, which it needs, is off", spec.name, parent)
			}
		}
		if spec.name != TopologyAwareScheduling.String() && strings.HasPrefix(spec.name, "TAS") && spec.needs[0] != TopologyAwareScheduling {
			t.Errorf("%s must need TopologyAwareScheduling (spec: 70 §5.7)", spec.name)
		}
	}
}

// With any settings, the parents of an enabled gate are on, a locked gate keeps its value, and the order of names does not matter.
func TestGateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.IntRange(0, len(table)-1), rapid.ID[int]).Draw(t, "gates")
		settings := make([]Setting, 0, len(names)+2)
		for _, n := range names {
			settings = append(settings, Setting{Name: Gate(n).String(), On: rapid.Bool().Draw(t, "on")})
		}
		for _, stage := range []string{allAlpha, allBeta} {
			if rapid.Bool().Draw(t, stage) {
				settings = append(settings, Setting{Name: stage, On: rapid.Bool().Draw(t, "all on")})
			}
		}
		r := Resolve(settings)
		for i, spec := range table {
			for _, parent := range spec.needs {
				if r.Gates.On(Gate(i)) && !r.Gates.On(parent) {
					t.Fatalf("%s is on without %s", spec.name, parent)
				}
			}
		}
		for _, s := range settings[:len(names)] {
			got := r.Gates.On(byName()[s.Name])
			if len(r.Problems) == 0 && got != s.On {
				t.Fatalf("%s was set to %t and is %t", s.Name, s.On, got)
			}
		}
		shuffled := rapid.Permutation(settings).Draw(t, "order")
		if again := Resolve(shuffled); again.Gates != r.Gates || len(again.Problems) != len(r.Problems) {
			t.Fatalf("another order gives another result")
		}
	})
}

// A gate is reported as inert if, and only if, no code reads it. Locked gates are never inert.
func TestActedUpon(t *testing.T) {
	asked := map[string]bool{}
	err := fs.WalkDir(os.DirFS("../../.."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "bin" || path == ".git" || path == ".cache" || path == "controlplane"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile("../../../" + path)
		for _, m := range regexp.MustCompile(`\bfeature\.(\w+)`).FindAllSubmatch(text, -1) {
			asked[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range table {
		acts := spec.locked || asked[spec.name]
		if acts != spec.acted {
			t.Errorf("%s: its row says that it has an effect: %v; some code asks for it: %v", spec.name, spec.acted, acts)
		}
	}
}
