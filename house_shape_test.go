package house

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// The caps of law 11, in lines. The lines of a package have none: the names that it exports and the rooms that import it do. Packages of
// api and the table of feature gates are not counted: their names are the API's. All job kinds count as one room that imports.
const (
	fileCap     = 600 // aim for 300
	testFileCap = 1000
	funcCap     = 80
	testFuncCap = 300
	mainCap     = 50 // cmd/*/main.go
	exportCap   = 60
	importCap   = 20
)

// exception lets one file, function (path:Name) or package (path:exports, path:imports) be larger than its cap.
type exception struct {
	size int
	why  string
}

// exceptions only shrink: an entry that is no longer needed is a finding, and so is one that is more generous than needed by 10.
var exceptions = map[string]exception{
	"internal/job:exports":                     {117, "what a job kind is, for every kind and for all that handles jobs"},
	"internal/job:imports":                     {21, "all that handles jobs"},
	"internal/state:exports":                   {67, "every event is a type of its own, as it is recorded"},
	"internal/reconcile:imports":               {21, "what all controllers share: outcomes, overlays, events"},
	"internal/workload/plan/lifecycle:imports": {27, "the states of a Workload, which most rooms ask for"},
}

func checkSizes(tr *tree) (out []string) {
	return checkSizesWith(tr, exceptions)
}

func checkSizesWith(tr *tree, exceptions map[string]exception) (out []string) {
	needed := map[string]bool{}
	measure := func(what, key string, size int, unit string, limit int) {
		e, ok := exceptions[key]
		switch {
		case size <= limit:
		case !ok:
			out = append(out, fmt.Sprintf("%s: %s has %d %s, the cap is %d", key, what, size, unit, limit))
		case size > e.size:
			out = append(out, fmt.Sprintf("%s: %s has grown to %d %s, its exception allows %d (%s)", key, what, size, unit, e.size, e.why))
			needed[key] = true
		case size < e.size-10:
			out = append(out, fmt.Sprintf("%s: %s has shrunk to %d %s: lower its exception from %d", key, what, size, unit, e.size))
			needed[key] = true
		default:
			needed[key] = true
		}
	}
	for _, f := range tr.files {
		if f.generated {
			continue
		}
		fileLimit, funcLimit := fileCap, funcCap
		if f.test {
			fileLimit, funcLimit = testFileCap, testFuncCap
		}
		if under(f.dir, "cmd") && path.Base(f.path) == "main.go" {
			fileLimit = mainCap
		}
		measure("the file", f.path, f.lines, "lines", fileLimit)
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				lines := tr.fset.Position(fn.End()).Line - tr.fset.Position(fn.Pos()).Line + 1
				measure("the function", f.path+":"+fn.Name.Name, lines, "lines", funcLimit)
			}
		}
	}
	exports, imports := surfaces(tr)
	for dir, n := range exports {
		measure("the package", dir+":exports", n, "exported names", exportCap)
	}
	for dir, by := range imports {
		measure("the package", dir+":imports", len(by), "rooms that import it", importCap)
	}
	for key := range exceptions {
		if !needed[key] {
			out = append(out, fmt.Sprintf("%s: is within its cap: remove its exception", key))
		}
	}
	slices.Sort(out)
	return out
}

// surfaces counts the exported functions, types, variables and constants of each package, and the rooms that import it.
func surfaces(tr *tree) (exports map[string]int, imports map[string]map[string]bool) {
	exports, imports = map[string]int{}, map[string]map[string]bool{}
	for _, f := range tr.files {
		if f.test || f.generated {
			continue
		}
		for _, i := range f.ast.Imports {
			dir, ours := strings.CutPrefix(importPath(i), module+"/")
			if !ours || under(dir, "api") {
				continue
			}
			if imports[dir] == nil {
				imports[dir] = map[string]bool{}
			}
			from := roomNameOf(f.dir)
			if under(from, "internal/job/kind") {
				from = "internal/job/kind"
			}
			imports[dir][from] = true
		}
		if under(f.dir, "api") || f.path == "internal/options/feature/table.go" {
			continue
		}
		for _, d := range f.ast.Decls {
			exports[f.dir] += exported(d)
		}
	}
	return exports, imports
}

// exported counts the exported names of a declaration, methods and fields apart.
func exported(d ast.Decl) (n int) {
	count := func(name *ast.Ident) {
		if name.IsExported() {
			n++
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			count(d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				count(spec.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					count(name)
				}
			}
		}
	}
	return n
}

func checkDocs(tr *tree) (out []string) {
	docs, name := map[string][]string{}, map[string]string{}
	for _, f := range tr.files {
		if f.test || f.generated {
			continue
		}
		name[f.dir] = f.ast.Name.Name
		if f.ast.Doc == nil {
			continue
		}
		docs[f.dir] = append(docs[f.dir], f.path)
		want := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(f.ast.Doc.Text(), want) {
			out = append(out, fmt.Sprintf("%s: the package doc begins %.30q, not %q", tr.at(f.ast), f.ast.Doc.Text(), want))
		}
	}
	for dir, pkg := range name {
		switch n := len(docs[dir]); {
		case n == 0:
			out = append(out, fmt.Sprintf("%s: package %s has no doc", dir, pkg))
		case n > 1:
			out = append(out, fmt.Sprintf("%s: package %s has %d docs: %s", dir, pkg, n, strings.Join(docs[dir], ", ")))
		}
	}
	slices.Sort(out)
	return out
}

// drawers are the names of folders that do not describe their content.
var drawers = []string{"util", "utils", "common", "helper", "helpers", "constants", "consts", "misc", "shared", "lib", "pkg", "types"}

func checkDrawers(tr *tree) (out []string) {
	seen := map[string]bool{}
	for _, f := range tr.files {
		for part := range strings.SplitSeq(f.dir, "/") {
			if slices.Contains(drawers, part) && !seen[f.dir] {
				seen[f.dir] = true
				out = append(out, fmt.Sprintf("%s: a folder named %s", f.dir, part))
			}
		}
	}
	return out
}

// outside are texts that only have a meaning on the machine or in the conversation of their origin. Letters stand in brackets so that
// this file does not match itself.
var outside = []*regexp.Regexp{
	regexp.MustCompile(`(^|[\s"'\x60(=:])/wor[k]/(main|shared|\.)`),
	regexp.MustCompile(`/tm[p]/(brief|bash_jobs)`),
	regexp.MustCompile(`(^|[\s"'\x60(=:])/(root|home/[a-z]+)/(g[o]|\.cach[e]|sr[c])/`),
	regexp.MustCompile(`(?i)\b(sub-?age[n]ts?|(ai|coding|llm) (age[n]ts?|assista[n]ts?)|age[n]t sessi[o]ns?|system prom[p]ts?|cla[u]de|anthr[o]pic|chatg[p]t|copil[o]t)\b`),
}

func checkWords(tr *tree) (out []string) {
	err := fs.WalkDir(tr.fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(skipped, d.Name()) && d.Name() != "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if p == ".git" { // of a linked working tree
			return nil
		}
		src, err := fs.ReadFile(tr.fsys, p)
		if err != nil || !utf8.Valid(src) || path.Base(p) == "go.sum" {
			return err
		}
		n := 0
		for line := range strings.Lines(string(src)) {
			n++
			for _, re := range outside {
				if m := re.FindString(line); m != "" {
					out = append(out, fmt.Sprintf("%s:%d: says %q", p, n, strings.TrimSpace(m)))
				}
			}
		}
		return nil
	})
	if err != nil {
		out = append(out, err.Error())
	}
	return out
}

// foreignQueues are the modules whose behaviour Berth provides itself. It reads none of their sources and depends on none.
var foreignQueues = []string{
	"sigs.k8s.io/kueue", "sigs.k8s.io/jobset", "sigs.k8s.io/lws", "sigs.k8s.io/scheduler-plugins",
	"github.com/kubeflow", "github.com/ray-project", "volcano.sh", "github.com/apache/yunikorn-core", "github.com/apache/yunikorn-k8shim",
	"github.com/armadaproject", "github.com/project-codeflare",
}

func checkModules(tr *tree) (out []string) {
	minors := map[string][]string{} // minor version of k8s.io/{api,apimachinery,client-go} -> go.mod files
	for _, name := range []string{"go.mod", "controlplane/go.mod"} {
		if _, err := fs.Stat(tr.fsys, name); err != nil {
			continue // checkFiles says so
		}
		m, err := parseGoMod(tr.fsys, name)
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		main := name == "go.mod"
		for _, r := range m.Require {
			switch {
			case underAny(r.Path, foreignQueues):
				out = append(out, fmt.Sprintf("%s: requires %s: Berth does this itself, and is written without it", name, r.Path))
			case main && under(r.Path, "k8s.io/kubernetes"), main && isNested(strings.TrimPrefix(r.Path, module+"/")):
				out = append(out, fmt.Sprintf("%s: requires %s: only controlplane/go.mod may", name, r.Path))
			case slices.Contains([]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}, r.Path):
				minor := r.Version[:strings.LastIndex(r.Version, ".")]
				if !slices.Contains(minors[minor], name) {
					minors[minor] = append(minors[minor], name)
				}
			}
		}
		for _, r := range m.Replace {
			if main {
				out = append(out, fmt.Sprintf("%s: replaces %s: only controlplane/go.mod may", name, r.Old.Path))
			}
		}
	}
	if len(minors) > 1 {
		out = append(out, fmt.Sprintf("the modules disagree about the minor version of Kubernetes: %v", minors))
	}
	return append(out, checkDeps(tr)...)
}

// checkDeps checks every package that the main module links, including its tests.
func checkDeps(tr *tree) (out []string) {
	if tr.goList == nil {
		return nil
	}
	list, err := tr.goList("-deps", "-test", "./...")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(list) {
		p, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if under(p, "k8s.io/kubernetes") || underAny(p, foreignQueues) || under(p, module+"/controlplane") {
			out = append(out, fmt.Sprintf("the main module depends on %s (see `go mod why -m`)", p))
		}
	}
	return out
}

// wanted are the files that the house cannot do without.
var wanted = []string{
	"LICENSE", "README.md", "ARCHITECTURE.md", "SCOPE.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", ".golangci.yml", ".ci/run",
	"go.mod", "controlplane/go.mod", "tools/go.mod", "tools/lint/go.mod",
}

func checkFiles(tr *tree) (out []string) {
	for _, name := range wanted {
		if _, err := fs.Stat(tr.fsys, name); err != nil {
			out = append(out, fmt.Sprintf("%s: is missing", name))
		}
	}
	license, err := fs.ReadFile(tr.fsys, "LICENSE")
	if err == nil && !strings.Contains(string(license), "Apache License\n                           Version 2.0") {
		out = append(out, "LICENSE: is not the text of the Apache License 2.0")
	}
	arch, err := fs.ReadFile(tr.fsys, "ARCHITECTURE.md")
	for _, r := range rooms {
		if err == nil && !strings.Contains(string(arch), r.dir) {
			out = append(out, fmt.Sprintf("ARCHITECTURE.md: does not mention the room %s", r.dir))
		}
	}
	return out
}
