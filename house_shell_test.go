package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/types"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// occupied are the functions that listen on a free port in order to keep others from it, by path:name, and why.
var occupied = map[string]string{
	"controlplane/supervise/supervise_test.go:TestOccupiedPort": "the port is not free for the control plane",
	"internal/cli/cli_test.go:TestFails":                        "the port is not free for berth up",
}

// checkPorts finds listeners on port 0 that serve no requests: they are closed after their address is read.
func checkPorts(tr *tree) (out []string) {
	for _, f := range tr.files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || occupied[f.path+":"+fn.Name.Name] != "" {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				assign, ok := n.(*ast.AssignStmt)
				if !ok || !listensOnZero(assign) {
					return true
				}
				name, ok := assign.Lhs[0].(*ast.Ident)
				if ok && closedUnused(fn.Body, name.Name) {
					out = append(out, fmt.Sprintf("%s: %s listens on port 0, and is closed to have the number", tr.at(assign), name.Name))
				}
				return true
			})
		}
	}
	return out
}

// listensOnZero reports whether a listener on any free port is assigned.
func listensOnZero(assign *ast.AssignStmt) bool {
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok {
		return false
	}
	called, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !strings.HasPrefix(called.Sel.Name, "Listen") {
		return false
	}
	return slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		literal, ok := arg.(*ast.BasicLit)
		return ok && strings.HasSuffix(literal.Value, `:0"`)
	})
}

// closedUnused reports whether a listener is closed, and used only for its address.
func closedUnused(body *ast.BlockStmt, name string) bool {
	uses, addresses, closes := 0, 0, 0
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == name {
					uses-- // an assignment is no use
				}
			}
		case *ast.SelectorExpr:
			if types.ExprString(n.X) != name {
				return true
			}
			switch n.Sel.Name {
			case "Addr":
				addresses++
			case "Close":
				closes++
			}
		case *ast.Ident:
			if n.Name == name {
				uses++
			}
		}
		return true
	})
	return closes > 0 && uses == addresses+closes
}

// twins are files that two modules need, of which neither may import the other. The value is the original.
var twins = map[string]string{
	"controlplane/simnode/simnode.go":   "internal/embedded/simnode/simnode.go",
	"controlplane/supervise/private.go": "internal/embedded/private.go",
	"controlplane/supervise/reserve.go": "internal/listen/reserve.go",
}

// checkTwins finds copies that differ by more than the name of their package.
func checkTwins(tr *tree) (out []string) {
	body := func(path string) ([]byte, bool) {
		for _, f := range tr.files {
			if f.path == path {
				return bytes.Join([][]byte{f.src[:f.ast.Package-f.ast.FileStart], f.src[f.ast.Name.End()-f.ast.FileStart:]}, nil), true
			}
		}
		return nil, false
	}
	for copied, original := range twins {
		a, found := body(copied)
		b, also := body(original)
		if (found || also) && !bytes.Equal(a, b) {
			out = append(out, fmt.Sprintf("%s is not what %s is", copied, original))
		}
	}
	slices.Sort(out)
	return out
}

// raced are the parts of RACE and of the recipe of `make race`.
var (
	raced  = []string{"CGO_ENABLED=1 ", "KUBE_CACHE_MUTATION_DETECTOR=true ", " -race "}
	racing = "\t$(RACE) -short $$($(GO) list ./internal/... | grep -Ev '$(RACELESS)')\n"
)

// busy are the imports of packages in which several things happen at once, or that share objects with a cache.
var busy = []string{
	"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "net/http", "sync", module + "/internal/job/jobtest", module + "/internal/embedded/embeddedtest",
}

// isBusy reports whether a file, of tests or not, is a reason to test its package for races.
func isBusy(f *file) bool {
	found := slices.ContainsFunc(f.ast.Imports, func(i *ast.ImportSpec) bool {
		return underAny(importPath(i), busy) && importPath(i) != module+"/internal/embedded/embeddedtest/wait" // which alone does nothing at once
	})
	ast.Inspect(f.ast, func(n ast.Node) bool {
		_, starts := n.(*ast.GoStmt)
		found = found || starts
		return !found
	})
	return found
}

// checkRace finds packages with goroutines or caches whose tests run without the race detector and the mutation detector, or not for every
// change.
func checkRace(tr *tree) (out []string) {
	makefile, _ := fs.ReadFile(tr.fsys, "Makefile") // without one there is no target either
	run, _ := fs.ReadFile(tr.fsys, ".ci/run")
	target := regexp.MustCompile(`(?m)^race:.*\n((?:\t.*\n?)+)`).FindSubmatch(makefile)
	how := regexp.MustCompile(`(?m)^RACE := (.*\n\t.*)$`).FindSubmatch(makefile)
	without := regexp.MustCompile(`(?m)^RACELESS := (.*)$`).FindSubmatch(makefile)
	if target == nil || how == nil || without == nil || !bytes.Contains(target[1], []byte(racing)) {
		return []string{fmt.Sprintf("Makefile: has no target race with the line %q, or does not say what RACE and RACELESS are", racing)}
	}
	for _, part := range raced {
		if !bytes.Contains(how[1], []byte(part)) {
			out = append(out, fmt.Sprintf("Makefile: RACE is without %q", part))
		}
	}
	if !regexp.MustCompile(`(?m)^for target in [^;]*\brace\b`).Match(run) {
		out = append(out, ".ci/run: does not run make race")
	}
	left, err := regexp.Compile(strings.ReplaceAll(string(without[1]), "$$", "$"))
	if err != nil {
		return append(out, fmt.Sprintf("Makefile: RACELESS: %v", err))
	}
	seen := map[string]bool{}
	for _, f := range tr.files {
		if under(f.dir, "internal") && pureRoomAt(f.dir) == nil && !seen[f.dir] && left.MatchString(module+"/"+f.dir) && isBusy(f) {
			seen[f.dir] = true
			out = append(out, fmt.Sprintf("Makefile: RACELESS leaves out %s, which is busy: see %s", f.dir, f.path))
		}
	}
	return out
}

// lateTests is a command that names a package after flags of the tests themselves.
var lateTests = regexp.MustCompile(`(?:\$\(STORM\)|-long\b|-seed\b)[^;\n]* (\./[^\s;]*)`)

// checkTestFlags finds packages in the Makefile that are not tested because flags of tests come before them.
func checkTestFlags(tr *tree) (out []string) {
	makefile, _ := fs.ReadFile(tr.fsys, "Makefile") // checkFiles finds that it is missing
	for _, late := range lateTests.FindAllSubmatch(bytes.ReplaceAll(makefile, []byte("\\\n"), nil), -1) {
		out = append(out, fmt.Sprintf("Makefile: %s comes after flags of tests", late[1]))
	}
	return out
}

// ownWait is a name of a function that waits.
var ownWait = regexp.MustCompile(`^(?i:eventually|poll)|^waitFor$`)

// checkWaits finds other ways in which tests wait: a function with a name of one, and a loop that looks at the clock.
func checkWaits(tr *tree) (out []string) {
	for _, f := range tr.files {
		if !f.forTests() || isNested(f.dir) || f.dir == "internal/embedded/embeddedtest/wait" {
			continue
		}
		imports := f.imports()
		clock := func(n ast.Node) (looks bool) {
			ast.Inspect(n, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					pkg, name, _ := qualified(e, imports)
					looks = looks || pkg == "time" && (name == "Now" || name == "Since" || name == "Until")
				}
				return !looks
			})
			return looks
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if ownWait.MatchString(n.Name.Name) {
					out = append(out, fmt.Sprintf("%s: %s is another way to wait", tr.at(n), n.Name.Name))
				}
			case *ast.ForStmt:
				if n.Init != nil && clock(n.Init) || n.Cond != nil && clock(n.Cond) {
					out = append(out, fmt.Sprintf("%s: a loop with a time limit", tr.at(n)))
				}
			}
			return true
		})
	}
	return out
}

// sleepers are the functions of tests in which time itself is the subject, by path:name, and why. An entry without a sleep is a finding.
var sleepers = map[string]string{
	"internal/admission/certs/rotate_test.go:callAll":                        "the pace of a client",
	"internal/embedded/embeddedtest/detector_test.go:writeToCache":           "a process of its own that the detector ends",
	"internal/embedded/embeddedtest/slow.go:SlowCreates":                     "a webhook that takes long",
	"internal/job/jobtest/kuberay/server_test.go:BenchmarkGateOpens":         "it measures milliseconds",
	"internal/job/jobtest/kuberay/server_test.go:TestServicesOnAServer":      "the pace of random events",
	"internal/multikueue/controller/connections_test.go:TestConnects":        "delayed requeues leave no trace",
	"internal/multikueue/controller/running_test.go:TestRunsThatAreFollowed": "failed attempts leave no trace, and the end of a run is believed after a minute",
	"internal/reconcile/latest_test.go:TestLatestOrderWins":                  "an order takes time",
	"internal/wire/priorities_test.go:boost":                                 "an annotation that only the engine reads leaves no trace",
	"internal/wire/priorities_test.go:priorityClass":                         "the second reconcile of a new class leaves no trace",
	"internal/wire/queues_test.go:coalesced":                                 "writes per second",
	"test/compat/eviction_test.go:TestEviction":                              "execution time",
	"test/compat/guard_test.go:listen":                                       "the pace of retries",
	"test/e2e/measure_test.go:reportIdle":                                    "what a manager costs while nothing happens",
	"test/compat/schedule_test.go:run":                                       "random pauses",
	"test/compat/schedule_test.go:step":                                      "random pauses",
	"test/compat/storm_test.go:TestAPIServerRestarts":                        "an API server that is away",
	"test/e2e/burst_measure_test.go:quiet":                                   "a measurement",
	"test/e2e/crash_test.go:TestCrash":                                       "random moments of kills",
	"test/e2e/crash_test.go:peakUse":                                         "samples until the end",
	"test/e2e/elastic_test.go:TestElasticCrash":                              "random moments of kills",
	"test/e2e/elastic_test.go:audit":                                         "samples until the end",
	"test/e2e/failover_test.go:submit":                                       "the pace of a client",
	"test/e2e/groups_test.go:TestPodGroupCrash":                              "random moments of kills",
	"test/e2e/groups_test.go:mostOpen":                                       "samples until the end",
	"test/e2e/jobs_test.go:testPreemptionRace":                               "another moment each time",
	"test/e2e/jobset_measure_test.go:jobs":                                   "a measurement",
	"test/e2e/jobset_measure_test.go:measureLarge":                           "a measurement",
	"test/e2e/jobset_measure_test.go:measureMemory":                          "a measurement",
	"test/e2e/jobset_test.go:TestJobSetCrash":                                "random moments of kills",
	"test/e2e/jobset_test.go:twoAttempts":                                    "samples until the end",
	"test/e2e/lws_test.go:run":                                               "the pace of a simulated operator",
	"test/e2e/measure_test.go:TestMeasure":                                   "a measurement",
	"test/hostile/attacks_test.go:slow":                                      "a body that never ends",
	"test/load/client.go:retry":                                              "the pace of retries",
	"test/multicluster/measure_more_test.go:TestMeasureMemory":               "a measurement",
	"test/multicluster/measure_more_test.go:dispatchTimes":                   "a measurement",
	"test/multicluster/proxy_test.go:newProxy":                               "the pace of a proxy that looks for its target",
}

// checkSleeps finds tests that sleep outside a bubble of synctest, whose clock is not the real one.
func checkSleeps(tr *tree) (out []string) {
	found := map[string]bool{}
	for _, f := range tr.files {
		if !f.forTests() || isNested(f.dir) || f.dir == "internal/embedded/embeddedtest/wait" {
			continue
		}
		imports := f.imports()
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			place := f.path + ":" + fn.Name.Name
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch pkg, name, _ := qualified(call.Fun, imports); {
				case pkg == "testing/synctest" && name == "Test":
					return false
				case pkg == "time" && name == "Sleep":
					if found[place] = true; sleepers[place] == "" {
						out = append(out, fmt.Sprintf("%s: %s sleeps", tr.at(n), fn.Name.Name))
					}
				}
				return true
			})
		}
	}
	for place := range sleepers {
		path, _, _ := strings.Cut(place, ":")
		if has := slices.ContainsFunc(tr.files, func(f *file) bool { return f.path == path }); has && !found[place] {
			out = append(out, fmt.Sprintf("sleepers: %s does not sleep any more: remove the entry", place))
		}
	}
	slices.Sort(out)
	return out
}

// seeded are the files of tests whose numbers are random in looks only, or in another way, and why. An entry without a use is a finding.
var seeded = map[string]string{
	"internal/core/order/behind_test.go":         "the first 300 seeds, in milliseconds",
	"internal/sim/shares_test.go":                "the first 300 seeds, in milliseconds",
	"internal/job/jobtest/kuberay/world_test.go": "of scripted lives; random ones set it anew",
	"test/bench/ask.go":                          "every build measures the same world",
	"test/bench/single.go":                       "every build measures the same world",
	"test/bench/yard.go":                         "every build measures the same world",
}

// checkSeeds finds sources of random numbers in tests whose seed is a constant, or counts up to one.
func checkSeeds(tr *tree) (out []string) {
	used := map[string]bool{}
	for _, f := range tr.files {
		if !f.forTests() || isNested(f.dir) {
			continue
		}
		if !slices.ContainsFunc(f.ast.Imports, func(i *ast.ImportSpec) bool { return importPath(i) == "math/rand/v2" }) {
			continue
		}
		counts := map[string]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.RangeStmt:
				if id, ok := n.Key.(*ast.Ident); ok && isNumber(n.X) {
					counts[id.Name] = true
				}
			case *ast.CallExpr:
				if types.ExprString(n.Fun) != "rand.NewPCG" {
					return true
				}
				id, ok := n.Args[0].(*ast.Ident)
				if !isNumber(n.Args[0]) && (!ok || !counts[id.Name]) {
					return true
				}
				if used[f.path] = true; seeded[f.path] == "" {
					out = append(out, fmt.Sprintf("%s: the seed is always the same", tr.at(n)))
				}
			}
			return true
		})
	}
	for _, f := range tr.files {
		if seeded[f.path] != "" && !used[f.path] {
			out = append(out, fmt.Sprintf("seeded: %s has no fixed seed any more: remove the entry", f.path))
		}
	}
	return out
}

// isNumber recognizes a literal, and its conversion.
func isNumber(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
		e = call.Args[0]
	}
	_, ok := e.(*ast.BasicLit)
	return ok
}
