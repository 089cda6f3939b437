package house

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of the main module.
const module = "github.com/berth-project/berth"

// law is one rule of the house. Its number is the one in ARCHITECTURE.md.
type law struct {
	number int
	name   string
	why    string // what goes wrong without it
	fix    string // what to do about a finding
	check  func(*tree) []string
}

// laws is the house. Every law has a fixture in house_fixture_test.go that breaks it.
var laws = []law{
	{
		1, "every folder has a room",
		"a reader finds code by its place, so a place must mean something",
		"move it into a room of ARCHITECTURE.md, or give it a room: a line in `rooms` (house_test.go) and one in ARCHITECTURE.md",
		checkRooms,
	},
	{
		1, "imports point down",
		"a layer that knows those above it can no longer be read, tested or replaced alone",
		"move the shared part to a lower layer, or pass what is needed as a value",
		checkLayers,
	},
	{
		2, "pure rooms import only what is pure",
		"the engine must give the same answer in production, in the simulator and in a replay",
		"take the clock, the seed, the limits and the IDs as values; leave logs, metrics and I/O to the shell",
		checkPureImports,
	},
	{
		2, "pure rooms have no clock and no concurrency",
		"time and goroutines make the same input give different outputs",
		"take `now` as an argument; return work to do instead of doing it in a goroutine",
		checkPureCode,
	},
	{
		3, "map order reaches no output",
		"Go shuffles map iteration: decisions and texts would differ from run to run",
		"range over sorted keys, or write `//berth:unordered <why it cannot matter>` on the line of the loop or above it",
		checkMapOrder,
	},
	{
		5, "some imports are for some rooms only",
		"these dependencies change what a package is, so they are allowed where that is its task",
		"use what the message names instead",
		checkBannedImports,
	},
	{
		8, "modules stay apart",
		"the main module must build in minutes without Kubernetes inside, and be usable as a plain dependency",
		"see docs/adr/0003-embedded-control-plane-module.md",
		checkModules,
	},
	{
		8, "copies for two modules are the same",
		"a fix of one that the other does not get is a fault that was known",
		"copy the original over it, but for the package clause",
		checkTwins,
	},
	{
		9, "one writer per condition",
		"two writers of one condition overwrite each other, and neither can be trusted",
		"let one package write the condition, and ask it to",
		checkOneWriter,
	},
	{
		9, "one writer per fact",
		"two writers of one fact overwrite each other, whoever builds the value for them",
		"ask the writer of the fact (`statusWriters`, `transitions` in house_facts_test.go); a new fact is a line there",
		checkStatusWriters,
	},
	{
		10, "one fact, one home",
		"two answers to one question disagree sooner or later",
		"call what the message names; a fact that gets a home is a line in `homes` (house_facts_test.go)",
		checkHomes,
	},
	{
		10, "every overlay keeps the contract",
		"memories of writes that disagree about versions, other objects of a name and expiry were faults that no test of the type can find",
		"call overlaytest.Run with the component's own functions",
		checkOverlays,
	},
	{
		11, "small files and functions",
		"what does not fit on a few screens is not read before it is changed",
		"split it by what the parts are; an entry in `exceptions` (house_test.go) needs a reason and may only shrink",
		checkSizes,
	},
	{
		12, "one word, one meaning",
		"a reader who knows Kubernetes should not have to learn a dialect",
		"use the standard word, which the message names",
		checkRetired,
	},
	{
		13, "what is busy is tested for races",
		"cached objects are shared on purpose: who writes to one changes what everybody else reads, and no other test finds it",
		"let `make race` run the tests of the package, and .ci/run run `make race`",
		checkRace,
	},
	{
		13, "flags of tests come after packages",
		"go test leaves everything after a flag that it does not know to the tests: packages after one are not tested",
		"name the packages first",
		checkTestFlags,
	},
	{
		14, "one doc per package",
		"the doc says what the room is for; two of them disagree sooner or later",
		"begin one file (doc.go, or the main one) with `// Package NAME ...` or `// Command NAME ...`",
		checkDocs,
	},
	{
		15, "no drawers",
		"util, common and the like collect code that belongs somewhere",
		"keep a helper with its only caller; at its third caller give it a package named for what it is",
		checkDrawers,
	},
	{
		16, "nothing from outside leaks in",
		"paths and habits of one machine mean nothing to the next reader",
		"say it without them",
		checkWords,
	},
	{
		17, "the house is complete",
		"a reader, a lawyer and a builder each look for their file first",
		"restore the file",
		checkFiles,
	},
	{
		18, "a port is chosen and bound at once",
		"a port that is chosen first and bound later is lost to another program in between, now and then",
		"hand the listener over; reserve the port (internal/listen: Reserve), or lease it in tests (embeddedtest.FreePort)",
		checkPorts,
	},
	{
		19, "tests wait in one way",
		"a limit that a quiet machine keeps is missed on a loaded one, and fails a test that has found no fault",
		"call internal/embedded/embeddedtest/wait: Until, Receive, Ready; Stays for what must not happen for a while",
		checkWaits,
	},
	{
		19, "tests do not sleep",
		"a sleep that waits for something is too short on a loaded machine and too long on all others",
		"call internal/embedded/embeddedtest/wait: Until; Stays for what must not happen, Quiet for an end of work, NextSecond for timestamps; " +
			"inject the duration, or use testing/synctest; `sleepers` (house_shell_test.go) has the functions whose subject is time",
		checkSleeps,
	},
	{
		20, "random tests take a seed",
		"a fault that was found once is found again only with the same numbers, and other faults only with others",
		"take the seed from embeddedtest.Seed or embeddedtest.Random, or draw it (rapid)",
		checkSeeds,
	},
}

// TestHouse checks the repository against every law.
func TestHouse(t *testing.T) {
	tr, err := loadTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	tr.goList = runGoList
	if len(tr.files) < 2 {
		t.Fatalf("found %d Go files: the test no longer sees the repository", len(tr.files))
	}
	for _, l := range laws {
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			found := l.check(tr)
			for _, f := range found {
				t.Error(f)
			}
			if len(found) > 0 {
				t.Errorf("law %d: %s\n  why: %s\n  fix: %s", l.number, l.name, l.why, l.fix)
			}
		})
	}
}

// file is one Go source file, parsed.
type file struct {
	path      string // slash-separated, from the root of the repository
	dir       string
	src       []byte
	ast       *ast.File
	lines     int
	test      bool // a _test.go file
	generated bool // carries the standard "Code generated … DO NOT EDIT." line
}

// tree is the repository as the laws see it.
type tree struct {
	fset  *token.FileSet
	fsys  fs.FS
	files []*file // of the main and the nested modules, sorted by path
	// goList runs `go list` in the main module; nil in fixtures that need none.
	goList func(args ...string) (string, error)
}

// skipped are folders without source of this module.
var skipped = []string{".git", ".cache", "bin", "testdata", "node_modules"}

// loadTree parses every Go file below fsys.
func loadTree(fsys fs.FS) (*tree, error) {
	tr := &tree{fset: token.NewFileSet(), fsys: fsys}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(skipped, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(tr.fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		tr.files = append(tr.files, &file{
			path: p, dir: path.Dir(p), src: src, ast: parsed,
			lines:     strings.Count(string(src), "\n"),
			test:      strings.HasSuffix(p, "_test.go"),
			generated: ast.IsGenerated(parsed),
		})
		return nil
	})
	return tr, err
}

// at names the place of a node: file and line.
func (tr *tree) at(n ast.Node) string {
	p := tr.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// importPath returns the path of an import spec.
func importPath(s *ast.ImportSpec) string {
	p, err := strconv.Unquote(s.Path.Value)
	if err != nil {
		panic(err) // the parser has accepted it
	}
	return p
}

// under reports whether p is dir or lies below it.
func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// room is a place for code: a subject, or the part of one that decides. Layers count from the bottom.
type room struct {
	dir   string
	layer int
	each  bool // each folder directly below dir is a room of its own
}

// rooms lists every place in the main module where Go code may live. The longest match counts. Decisions of a subject are in its plan,
// which is pure and may be imported by every room above it; its controllers and webhooks, which carry them out, stay inside the subject.
var rooms = []room{
	{dir: "internal/core", layer: 0},
	{dir: "internal/goldentest", layer: 0}, // compares files in tests
	{dir: "internal/worldtest", layer: 0},  // draws worlds in tests
	{dir: "api", layer: 1},
	{dir: "config", layer: 1},
	{dir: "internal/state", layer: 1},
	{dir: "internal/options/strict", layer: 1}, // reads YAML
	{dir: "internal/cel", layer: 2},
	{dir: "internal/crd", layer: 2},
	{dir: "internal/options", layer: 3},
	{dir: "internal/embedded", layer: 2},
	{dir: "internal/inflight", layer: 2},
	{dir: "internal/sim", layer: 2},
	{dir: "internal/foresight", layer: 2},
	{dir: "internal/foresight/simulation", layer: 3},
	{dir: "internal/foresight/whatif", layer: 3},
	{dir: "internal/foresight/offline", layer: 5},
	{dir: "internal/foresight/forecaster", layer: 5},
	{dir: "internal/occupancy", layer: 2},
	{dir: "internal/workload/plan", layer: 2},
	{dir: "internal/queue/plan", layer: 2},
	{dir: "internal/job", layer: 3}, // what a kind of jobs is, and internal/job/plan
	{dir: "internal/placement/plan", layer: 4},
	{dir: "internal/jobset/plan", layer: 4},
	{dir: "internal/training/plan", layer: 4},
	{dir: "internal/multikueue/plan", layer: 4},
	{dir: "internal/check/plan", layer: 4},
	{dir: "internal/listen", layer: 4},
	{dir: "internal/engine", layer: 5},
	{dir: "internal/metrics", layer: 5},
	{dir: "internal/reconcile", layer: 5},
	{dir: "internal/review", layer: 5},
	{dir: "internal/job/lookup", layer: 5},
	{dir: "internal/job/kind/ray/plan", layer: 5},
	{dir: "internal/training/runtimes", layer: 5},
	{dir: "internal/workload", layer: 6, each: true},
	{dir: "internal/queue", layer: 6, each: true},
	{dir: "internal/placement", layer: 6, each: true},
	{dir: "internal/job/controller", layer: 6},
	{dir: "internal/job/warn", layer: 6},
	{dir: "internal/job/webhook", layer: 6},
	{dir: "internal/job/kind", layer: 6, each: true},
	{dir: "internal/jobset", layer: 6, each: true},
	{dir: "internal/training", layer: 6, each: true},
	{dir: "internal/check", layer: 6},
	{dir: "internal/check/provisioning", layer: 7},
	{dir: "internal/multikueue", layer: 7},
	{dir: "internal/visibility", layer: 6},
	{dir: "internal/inspect", layer: 6},
	{dir: "internal/job/kind/all", layer: 7}, // the list of kinds
	{dir: "internal/admission", layer: 7},    // the list of webhooks
	{dir: "internal/dash", layer: 7},
	{dir: "internal/job/jobtest", layer: 8}, // the suite that every kind passes
	{dir: "internal/install", layer: 8},
	{dir: "internal/wire", layer: 9},
	{dir: "internal/cli", layer: 10},
	{dir: "charts", layer: 11},
	{dir: "cmd", layer: 11},
	{dir: "test", layer: 11},
}

// nested are the folders of other modules: the layers do not apply to their imports.
var nested = []string{"controlplane", "tools"}

// sideDoors are the imports between rooms of one layer that are allowed, and why. An unused door is a finding.
var sideDoors = map[[2]string]string{
	{"config", "api"}: "crdtrim asks the Go types which part of a CRD is ours",
}

// roomNameOf is the room of a folder, or the folder itself if it is in none.
func roomNameOf(dir string) string {
	if room, _, ok := roomOf(dir); ok {
		return room
	}
	return dir
}

// roomOf finds the room of a folder: its name and layer.
func roomOf(dir string) (name string, layer int, ok bool) {
	best := -1
	for _, r := range rooms {
		if !under(dir, r.dir) || len(r.dir) < best {
			continue
		}
		n := r.dir
		if r.each {
			if dir == r.dir {
				continue
			}
			child, _, _ := strings.Cut(dir[len(r.dir)+1:], "/")
			n += "/" + child
		}
		name, layer, ok, best = n, r.layer, true, len(r.dir)
	}
	return name, layer, ok
}

func isNested(dir string) bool {
	return slices.ContainsFunc(nested, func(n string) bool { return under(dir, n) })
}

func checkRooms(tr *tree) (out []string) {
	seen := map[string]bool{}
	for _, f := range tr.files {
		if f.dir == "." || isNested(f.dir) || seen[f.dir] {
			continue
		}
		seen[f.dir] = true
		if _, _, ok := roomOf(f.dir); !ok {
			out = append(out, fmt.Sprintf("%s: has no room: give it a room", f.dir))
		}
	}
	return out
}

func checkLayers(tr *tree) (out []string) {
	used, inhabited := map[[2]string]bool{}, map[string]bool{}
	for _, f := range tr.files {
		from, fl, ok := roomOf(f.dir)
		if !ok || f.test { // tests may look at anything
			continue
		}
		inhabited[from] = true
		for _, imp := range f.ast.Imports {
			rel, ours := strings.CutPrefix(importPath(imp), module+"/")
			if !ours {
				continue
			}
			to, tl, ok := roomOf(rel)
			door := [2]string{from, to}
			switch {
			case isNested(rel):
				out = append(out, fmt.Sprintf("%s: imports the nested module %s", tr.at(imp), rel))
			case !ok:
				out = append(out, fmt.Sprintf("%s: imports %s, which has no room", tr.at(imp), rel))
			case to == from, tl < fl:
			case tl == fl && sideDoors[door] != "":
				used[door] = true
			case tl == fl:
				out = append(out, fmt.Sprintf("%s: %s and %s are both at layer %d and may not import each other", tr.at(imp), from, to, fl))
			default:
				out = append(out, fmt.Sprintf("%s: %s (layer %d) imports %s, which is above it (layer %d)", tr.at(imp), from, fl, to, tl))
			}
		}
	}
	for door, why := range sideDoors {
		if inhabited[door[0]] && !used[door] {
			out = append(out, fmt.Sprintf("sideDoors: nobody goes from %s to %s any more (%s): remove the entry", door[0], door[1], why))
		}
	}
	slices.Sort(out)
	return out
}

// runGoList runs `go list` in the folder of this test, the root of the main module.
func runGoList(args ...string) (string, error) {
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return "", fmt.Errorf("go list: %s", exit.Stderr)
		}
		return "", fmt.Errorf("go list: %w", err)
	}
	return string(out), nil
}

// goMod is the part of `go mod edit -json` that the laws read.
type goMod struct {
	Require []struct{ Path, Version string }
	Replace []struct{ Old struct{ Path string } }
}

// parseGoMod reads a go.mod file of the tree with the go command's own parser.
func parseGoMod(fsys fs.FS, name string) (goMod, error) {
	var m goMod
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		return m, err
	}
	tmp, err := os.CreateTemp("", "go.*.mod")
	if err != nil {
		return m, err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(src); err != nil {
		return m, err
	}
	if err := tmp.Close(); err != nil {
		return m, err
	}
	out, err := exec.Command("go", "mod", "edit", "-json", tmp.Name()).Output()
	if err != nil {
		return m, fmt.Errorf("%s: go mod edit: %w", name, err)
	}
	return m, json.Unmarshal(out, &m)
}
