package house

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// coreStd is the whole standard library as far as core is concerned.
var coreStd = []string{"cmp", "errors", "fmt", "iter", "maps", "math", "slices", "sort", "strconv", "strings", "time"}

// pureRoom is a room whose output depends on its arguments only.
type pureRoom struct {
	dir   string   // * is any one element; what is below it belongs to it, too
	alone bool     // what is below it does not
	std   []string // packages of the standard library beyond coreStd
	below []string // what may be imported besides: prefixes of import paths
	but   []string // what may not, although `below` allows it
}

// pureRooms must satisfy laws 2 and 3.
var pureRooms = []pureRoom{
	{dir: "internal/core", below: []string{module + "/internal/core"}},
	{dir: "internal/state", std: []string{"hash/fnv", "reflect", "sync"}, below: []string{module + "/internal/core", module + "/internal/state"}},
	{dir: "internal/job", alone: true, std: planStd, below: planBelow, but: planBut},
	{dir: "internal/*/plan", std: planStd, below: planBelow, but: planBut},
	{dir: "internal/job/kind/*/plan", std: planStd, below: planBelow, but: planBut},
}

// Pure rooms that decide about API objects may import these, and other pure rooms.
var (
	planStd   = []string{"bytes", "crypto/sha1", "crypto/sha256", "encoding/hex", "encoding/json", "hash/fnv", "math/big", "path", "regexp", "regexp/syntax", "unicode", "unicode/utf8"}
	planBelow = []string{module + "/api", module + "/internal/core", module + "/internal/state", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/component-helpers/resource", "k8s.io/utils/ptr"}
	planBut   = []string{
		"k8s.io/apimachinery/pkg/util/clock", "k8s.io/apimachinery/pkg/util/rand", "k8s.io/apimachinery/pkg/util/uuid",
		"k8s.io/apimachinery/pkg/util/wait", "k8s.io/apimachinery/pkg/watch",
	}
)

// pureRoomOf finds the pure room of a production file, or nil.
func pureRoomOf(f *file) *pureRoom {
	if f.test {
		return nil
	}
	return pureRoomAt(f.dir)
}

// pureRoomAt finds the pure room of a folder, or nil.
func pureRoomAt(dir string) *pureRoom {
	for i, r := range pureRooms {
		if in(r, dir) {
			return &pureRooms[i]
		}
	}
	return nil
}

// in reports whether a folder belongs to a pure room.
func in(r pureRoom, dir string) bool {
	parts, pattern := strings.Split(dir, "/"), strings.Split(r.dir, "/")
	if len(parts) < len(pattern) || r.alone && len(parts) > len(pattern) {
		return false
	}
	for i, p := range pattern {
		if p != "*" && p != parts[i] {
			return false
		}
	}
	return true
}

func underAny(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return under(p, d) })
}

func checkPureImports(tr *tree) (out []string) {
	for _, f := range tr.files {
		r := pureRoomOf(f)
		if r == nil || strings.HasSuffix(f.dir, "test") {
			continue
		}
		for _, imp := range f.ast.Imports {
			p := importPath(imp)
			std := slices.Contains(coreStd, p) || slices.Contains(r.std, p)
			pure := false // a plan may import another one, below it
			if rel, ours := strings.CutPrefix(p, module+"/"); ours && under(rel, "internal") && !under(f.dir, "internal/core") && !under(f.dir, "internal/state") {
				pure = pureRoomAt(rel) != nil
			}
			if !std && !pure && (!underAny(p, r.below) || underAny(p, r.but)) {
				out = append(out, fmt.Sprintf("%s: %s may not import %q", tr.at(imp), r.dir, p))
			}
		}
	}
	return out
}

// clocks are the functions that read or wait for the wall clock, by import path.
var clocks = map[string][]string{
	"time":                                 {"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {"Now", "NowMicro"},
}

// imports maps the names by which a file knows its imports to their paths.
func (f *file) imports() map[string]string {
	m := map[string]string{}
	for _, imp := range f.ast.Imports {
		p := importPath(imp)
		name := path.Base(p)
		if imp.Name != nil {
			name = imp.Name.Name
		}
		m[name] = p
	}
	return m
}

// qualified splits x.Sel into the import path of x and Sel; ok is false if x is no package.
func qualified(e ast.Expr, imports map[string]string) (pkg, name string, ok bool) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", "", false
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", "", false
	}
	pkg, ok = imports[id.Name]
	return pkg, sel.Sel.Name, ok
}

func checkPureCode(tr *tree) (out []string) {
	for _, f := range tr.files {
		r := pureRoomOf(f)
		if r == nil {
			continue
		}
		imports := f.imports()
		ast.Inspect(f.ast, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "a goroutine"
			case *ast.ChanType:
				what = "a channel"
			case *ast.SelectStmt:
				what = "a select"
			case *ast.SelectorExpr:
				if pkg, name, ok := qualified(n, imports); ok && slices.Contains(clocks[pkg], name) {
					what = "the clock (" + path.Base(pkg) + "." + name + ")"
				}
			}
			if what != "" {
				out = append(out, fmt.Sprintf("%s: %s in %s", tr.at(n), what, r.dir))
			}
			return true
		})
	}
	return out
}

// unordered marks a loop whose order cannot matter; a reason follows.
const unordered = "//berth:unordered "

// unorderedLines are the lines of a file that carry the mark, or lie right below one.
func (tr *tree) unorderedLines(f *file) map[int]bool {
	lines := map[int]bool{}
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			if why, ok := strings.CutPrefix(c.Text, unordered); ok && strings.TrimSpace(why) != "" {
				line := tr.fset.Position(c.Pos()).Line
				lines[line] = true
				lines[tr.fset.Position(g.End()).Line+1] = true // the reason may run on over several lines
			}
		}
	}
	return lines
}

func checkMapOrder(tr *tree) (out []string) {
	checked, err := tr.typeCheckPure()
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range tr.files {
		info := checked[f.dir]
		if pureRoomOf(f) == nil || info == nil {
			continue
		}
		marked, imports, sorted := tr.unorderedLines(f), f.imports(), map[ast.Node]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			var what string
			switch n := n.(type) {
			case *ast.RangeStmt:
				if t := info.TypeOf(n.X); t != nil && isMap(t) {
					what = "ranges over the map " + types.ExprString(n.X)
				}
			case *ast.CallExpr:
				pkg, name, _ := qualified(n.Fun, imports)
				if (pkg == "slices" && strings.HasPrefix(name, "Sorted")) || (pkg == "maps" && (name == "Collect" || name == "Insert")) {
					for _, a := range n.Args {
						sorted[a] = true
					}
				}
				if pkg == "maps" && slices.Contains([]string{"Keys", "Values", "All"}, name) && !sorted[n] {
					what = "takes maps." + name + " unsorted"
				}
			}
			if what != "" && !marked[tr.fset.Position(n.Pos()).Line] {
				out = append(out, fmt.Sprintf("%s: %s", tr.at(n), what))
			}
			return true
		})
	}
	return out
}

func isMap(t types.Type) bool {
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// typeCheckPure type-checks the packages of the pure rooms, and the module's packages that they import, from their parsed files.
// Everything else comes from the export data that `go list -export` finds in the build cache.
func (tr *tree) typeCheckPure() (map[string]*types.Info, error) {
	c := &checker{tr: tr, infos: map[string]*types.Info{}, done: map[string]*types.Package{}}
	var foreign []string
	for _, f := range tr.files {
		if f.test || isNested(f.dir) {
			continue
		}
		if pureRoomOf(f) == nil && !under(f.dir, "api") {
			continue
		}
		for _, imp := range f.ast.Imports {
			if p := importPath(imp); !under(p, module) && !slices.Contains(foreign, p) {
				foreign = append(foreign, p)
			}
		}
	}
	if err := c.useExports(foreign); err != nil {
		return nil, err
	}
	for _, f := range tr.files {
		if pureRoomOf(f) == nil {
			continue
		}
		if _, err := c.Import(module + "/" + f.dir); err != nil {
			return nil, err
		}
	}
	return c.infos, nil
}

// checker is an importer that checks the module's packages from source.
type checker struct {
	tr    *tree
	gc    types.Importer
	infos map[string]*types.Info    // by folder
	done  map[string]*types.Package // by import path
}

// useExports prepares the importer for packages of other modules.
func (c *checker) useExports(paths []string) error {
	exports := map[string]string{}
	if len(paths) > 0 {
		slices.Sort(paths)
		list, err := c.tr.goList(append([]string{"-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}, paths...)...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(list) {
			p, export, _ := strings.Cut(strings.TrimSpace(line), "=")
			exports[p] = export
		}
	}
	c.gc = importer.ForCompiler(c.tr.fset, "gc", func(p string) (io.ReadCloser, error) { return os.Open(exports[p]) })
	return nil
}

// Import implements types.Importer.
func (c *checker) Import(p string) (*types.Package, error) {
	dir, ours := strings.CutPrefix(p, module+"/")
	if !ours {
		return c.gc.Import(p)
	}
	if done := c.done[p]; done != nil {
		return done, nil
	}
	var files []*ast.File
	for _, f := range c.tr.files {
		if f.dir == dir && !f.test {
			files = append(files, f.ast)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: c}
	pkg, err := conf.Check(p, c.tr.fset, files, info)
	if err != nil {
		return nil, fmt.Errorf("%s: does not type-check: %w", dir, err)
	}
	c.done[p], c.infos[dir] = pkg, info
	return pkg, nil
}

// ban is an import that only some rooms may have.
type ban struct {
	paths   []string           // import paths, with all below them
	allowed func(f *file) bool // who may
	say     string             // what to use instead
}

var bans = []ban{
	{
		[]string{"testing", "pgregory.net/rapid", "github.com/google/go-cmp"},
		(*file).forTests,
		"only test files, packages named *test and the test/ room do: put the code there",
	},
	{
		[]string{"github.com/onsi/ginkgo", "github.com/onsi/gomega", "github.com/stretchr/testify"},
		func(*file) bool { return false },
		"tests use plain testing and github.com/google/go-cmp",
	},
	{
		[]string{"k8s.io/component-base/featuregate"},
		func(f *file) bool { return under(f.dir, "internal/options") || isNested(f.dir) },
		"feature gates are resolved once, in internal/options: take the plain value",
	},
	{
		[]string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
		func(f *file) bool { return !under(f.dir, "api") || f.test },
		"api/ holds wire types and nothing that talks to a server",
	},
	{
		[]string{"k8s.io/kubernetes", "sigs.k8s.io/kwok", "go.etcd.io/etcd/server"},
		func(f *file) bool { return isNested(f.dir) },
		"only controlplane/ may: start it through internal/embedded",
	},
	{
		[]string{module + "/internal/embedded/embeddedtest"},
		(*file).forTests,
		"production code starts a control plane through internal/embedded",
	},
}

// forTests reports whether a file is only part of tests: the folder of a package for tests ends in test, or lies below one that does.
func (f *file) forTests() bool {
	return f.test || under(f.dir, "test") || strings.Contains(f.dir+"/", "test/")
}

func checkBannedImports(tr *tree) (out []string) {
	for _, f := range tr.files {
		for _, imp := range f.ast.Imports {
			for _, b := range bans {
				if p := importPath(imp); underAny(p, b.paths) && !b.allowed(f) {
					out = append(out, fmt.Sprintf("%s: imports %q: %s", tr.at(imp), p, b.say))
				}
			}
		}
	}
	return out
}

// workloadConditions is the one package that builds conditions of Workloads.
const workloadConditions = "internal/workload/plan/lifecycle"

// oneForEach are conditions of objects that each name the controller that writes it.
var oneForEach = map[string]string{"api/kueue/v1beta2.AdmissionCheckActive": "spec.controllerName"}

// checkOneWriter checks the conditions that are built with a named constant as their type. Each such constant may be used in one package
// only. Conditions whose type is a variable are not found, and programs in test, which are other controllers, are exempt.
func checkOneWriter(tr *tree) (out []string) {
	writers := map[string][]string{} // condition constant -> folders, with the first place
	for _, f := range tr.files {
		if f.test || isNested(f.dir) || strings.HasSuffix(f.dir, "test") || under(f.dir, "test") {
			continue
		}
		imports := f.imports()
		ast.Inspect(f.ast, func(n ast.Node) bool {
			for _, e := range conditionTypes(n, imports) {
				pkg, name, ok := qualified(e, imports)
				if !ok || !under(pkg, module+"/api") {
					continue
				}
				key := strings.TrimPrefix(pkg, module+"/") + "." + name
				if !slices.ContainsFunc(writers[key], func(w string) bool { return path.Dir(w) == f.dir }) {
					writers[key] = append(writers[key], tr.at(e))
				}
			}
			return true
		})
	}
	for key, places := range writers {
		if len(places) > 1 && oneForEach[key] == "" {
			out = append(out, fmt.Sprintf("condition %s is written at %s", key, strings.Join(places, " and ")))
		}
		for _, place := range places {
			if strings.HasPrefix(path.Base(key), "v1beta2.Workload") && under(key, "api/kueue") && !under(path.Dir(place), workloadConditions) {
				out = append(out, fmt.Sprintf("%s: builds the condition %s, which only %s does", place, path.Base(key), workloadConditions))
			}
		}
	}
	slices.Sort(out)
	return out
}

const metav1Path = "k8s.io/apimachinery/pkg/apis/meta/v1"

// conditionTypes are the expressions that n gives to a condition as its type: the Type field of a metav1.Condition literal,
// or the argument of WithType on an apply configuration.
func conditionTypes(n ast.Node, imports map[string]string) (out []ast.Expr) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if pkg, name, ok := qualified(n.Type, imports); !ok || pkg != metav1Path || name != "Condition" {
			return nil
		}
		for _, e := range n.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			if k, ok := kv.Key.(*ast.Ident); ok && k.Name == "Type" {
				out = append(out, unconverted(kv.Value))
			}
		}
	case *ast.CallExpr:
		if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "WithType" && len(n.Args) == 1 {
			out = append(out, unconverted(n.Args[0]))
		}
	}
	return out
}

// unconverted strips string(…).
func unconverted(e ast.Expr) ast.Expr {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
		if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "string" {
			return call.Args[0]
		}
	}
	return e
}
