package house

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// repo builds a repository in memory.
func repo(t *testing.T, files map[string]string) *tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, src := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(src)}
	}
	tr, err := loadTree(fsys)
	if err != nil {
		t.Fatal(err)
	}
	tr.goList = runGoList
	return tr
}

func lawNamed(t *testing.T, name string) law {
	t.Helper()
	for _, l := range laws {
		if l.name == name {
			return l
		}
	}
	t.Fatalf("no law is named %q", name)
	return law{}
}

// fixture is a small repository and the findings of a law in it.
type fixture struct {
	law   string
	files map[string]string
	want  []string // each finding contains the text at its place; none if the law is kept
}

const coreDoc = "// Package a is.\npackage a\n"

var fixtures = map[string]fixture{
	"unknown room": {
		"every folder has a room",
		map[string]string{"internal/bits/a.go": coreDoc, "internal/core/a/a.go": coreDoc, "controlplane/x/a.go": coreDoc},
		[]string{"internal/bits: has no room: give it a room"},
	},
	"code loose among the controllers of a subject": {
		"every folder has a room",
		map[string]string{"internal/workload/a.go": coreDoc, "internal/workload/admit/a.go": coreDoc},
		[]string{"internal/workload: has no room"},
	},
	"import upwards": {
		"imports point down",
		map[string]string{"internal/core/a/a.go": coreDoc + `import _ "` + module + `/internal/state"`},
		[]string{"internal/core/a/a.go:3: internal/core (layer 0) imports internal/state, which is above it (layer 1)"},
	},
	"controllers are strangers": {
		"imports point down",
		map[string]string{
			"internal/workload/admit/a.go": coreDoc + `import _ "` + module + `/internal/workload/evict"`,
			"internal/workload/evict/a.go": coreDoc + `import _ "` + module + `/internal/workload/evict/deep"`,
		},
		[]string{"internal/workload/admit and internal/workload/evict are both at layer 6"},
	},
	"kinds know the descriptor, not each other": {
		"imports point down",
		map[string]string{
			"internal/job/kind/job/a.go": coreDoc + `import _ "` + module + `/internal/job/lookup"`,
			"internal/job/kind/ray/a.go": coreDoc + `import _ "` + module + `/internal/job/kind/job"`,
			"internal/job/kind/all/a.go": coreDoc + `import _ "` + module + `/internal/job/kind/job"`,
		},
		[]string{"internal/job/kind/ray and internal/job/kind/job are both at layer 6"},
	},
	"import of a nested module": {
		"imports point down",
		map[string]string{"internal/embedded/a.go": coreDoc + `import _ "` + module + `/controlplane/up"`},
		[]string{"imports the nested module controlplane/up"},
	},
	"tests may look up": {
		"imports point down",
		map[string]string{"api/a/a_test.go": coreDoc + `import _ "` + module + `/internal/embedded/embeddedtest"`},
		nil,
	},
	"side door in use": {
		"imports point down",
		map[string]string{"config/a.go": coreDoc + `import _ "` + module + `/api"`},
		nil,
	},
	"side door forgotten": {
		"imports point down",
		map[string]string{"config/a.go": coreDoc},
		[]string{"nobody goes from config to api any more"},
	},
	"core imports os and context": {
		"pure rooms import only what is pure",
		map[string]string{
			"internal/core/a/a.go":      coreDoc + `import ("fmt"; "os"; "context"; "` + module + `/internal/core/b")`,
			"internal/core/a/a_test.go": coreDoc + `import "os"`,
		},
		[]string{`internal/core may not import "os"`, `internal/core may not import "context"`},
	},
	"math is not math/rand": {
		"pure rooms import only what is pure",
		map[string]string{"internal/core/a/a.go": coreDoc + `import ("math"; "math/rand")`},
		[]string{`"math/rand"`},
	},
	"plan with a client and a clock": {
		"pure rooms import only what is pure",
		map[string]string{"internal/job/a.go": coreDoc + `import ("k8s.io/api/batch/v1"; "k8s.io/client-go/rest"; "k8s.io/apimachinery/pkg/util/uuid")`},
		[]string{`"k8s.io/client-go/rest"`, `"k8s.io/apimachinery/pkg/util/uuid"`},
	},
	"goroutine, channel, select, clock": {
		"pure rooms have no clock and no concurrency",
		map[string]string{"internal/core/a/a.go": coreDoc + `import tick "time"
			var limit = 3 * tick.Second
			func f() {
				go f()
				var c chan int
				select { case <-c: }
				_ = tick.Now()
				tick := struct{ Now func() }{}
				_ = tick
			}`},
		[]string{":6: a goroutine", ":7: a channel", ":8: a select", ":9: the clock (time.Now)"},
	},
	"metav1.Now is a clock too": {
		"pure rooms have no clock and no concurrency",
		map[string]string{"internal/job/a.go": coreDoc + `import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
			var now = metav1.Now`},
		[]string{"the clock (v1.Now)"},
	},
	"range over a map": {
		"map order reaches no output",
		map[string]string{
			"internal/core/a/a.go": coreDoc + `import ("maps"; "slices"; "` + module + `/internal/core/b")
			func f(s []int, m b.Named) (out []string) {
				for range s {}
				for k := range m { out = append(out, k) }
				for k := range maps.Keys(m) { out = append(out, k) }
				for range m {} //berth:unordered only counts
				//berth:unordered the sum is the same in any order,
				// whatever it is a sum of
				for range m {}
				//berth:unordered
				for range m {}
				for _, k := range slices.Sorted(maps.Keys(m)) { out = append(out, k) }
				return append(out, slices.Collect(maps.Keys(m))...)
			}`,
			"internal/core/b/b.go": "// Package b is.\npackage b\ntype Named map[string]int\n",
			"internal/wire/a.go":   coreDoc + `func f(m map[int]int) { for range m {} }`,
		},
		[]string{":6: ranges over the map m", ":7: takes maps.Keys unsorted", ":13: ranges over the map m", ":15: takes maps.Keys unsorted"},
	},
	"code that does not compile": {
		"map order reaches no output",
		map[string]string{"internal/state/a.go": coreDoc + `var x = nothing`},
		[]string{"internal/state: does not type-check"},
	},
	"banned imports": {
		"some imports are for some rooms only",
		map[string]string{
			"api/a/a.go":                          coreDoc + `import _ "k8s.io/client-go/rest"`,
			"internal/state/a.go":                 coreDoc + `import _ "testing"`,
			"internal/state/a_test.go":            coreDoc + `import _ "testing"`,
			"internal/embedded/embeddedtest/a.go": coreDoc + `import _ "testing"`,
			"internal/admission/a_test.go":        coreDoc + `import _ "github.com/stretchr/testify/require"`,
			"internal/wire/a.go":                  coreDoc + `import _ "k8s.io/component-base/featuregate"`,
			"internal/cli/a.go":                   coreDoc + `import _ "k8s.io/kubernetes/pkg/apis/core"`,
			"controlplane/a.go":                   coreDoc + `import _ "k8s.io/kubernetes/pkg/apis/core"`,
			"internal/cli/b.go":                   "package a\nimport _ \"" + module + `/internal/embedded/embeddedtest"`,
			"internal/workload/admit/admit_x.go":  coreDoc + `import _ "sigs.k8s.io/controller-runtime"`,
		},
		[]string{
			"api/a/a.go:3", "internal/admission/a_test.go:3", "internal/cli/a.go:3", "internal/cli/b.go:2", "internal/state/a.go:3",
			"internal/wire/a.go:3",
		},
	},
	"waits of a test's own": {
		"tests wait in one way",
		map[string]string{
			"internal/state/a_test.go": coreDoc + `import "time"
			func eventually(check func() error) { for check() != nil { } }
			func a() { for deadline := time.Now().Add(9); ; { if time.Now().After(deadline) { return } } }
			func b() { for began := work(); time.Since(began) < 9; { } }
			func waitForTurns() { for range time.Tick(9) { } }`,
			"internal/job/jobtest/deep/a.go":           coreDoc + `func waitFor() { }`,
			"internal/embedded/embeddedtest/wait/a.go": coreDoc + "import \"time\"\nfunc a() { for time.Now().IsZero() { } }",
			"internal/state/a.go":                      coreDoc + "import \"time\"\nfunc a() { for time.Now().IsZero() { } }",
			"controlplane/a_test.go":                   coreDoc + "func eventually() { }",
		},
		[]string{
			"internal/job/jobtest/deep/a.go:3: waitFor", "internal/state/a_test.go:4: eventually", "internal/state/a_test.go:5: a loop", "internal/state/a_test.go:6: a loop",
		},
	},
	"sleeps": {
		"tests do not sleep",
		map[string]string{
			"internal/state/a_test.go": coreDoc + `import ("testing/synctest"; "time")
			func TestA(t *testing.T) { time.Sleep(9) }
			func TestB(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(9) }) }`,
			"internal/job/jobtest/deep/a.go":           coreDoc + "import \"time\"\nfunc pause() { time.Sleep(9) }",
			"internal/embedded/embeddedtest/wait/a.go": coreDoc + "import \"time\"\nfunc a() { time.Sleep(9) }",
			"internal/state/a.go":                      coreDoc + "import \"time\"\nfunc a() { time.Sleep(9) }",
			"test/e2e/crash_test.go":                   coreDoc + "import \"time\"\nfunc kills() { time.Sleep(9) }",
		},
		[]string{
			"internal/job/jobtest/deep/a.go:4: pause sleeps", "internal/state/a_test.go:4: TestA sleeps", "sleepers: test/e2e/crash_test.go:TestCrash does not sleep any more",
			"sleepers: test/e2e/crash_test.go:peakUse does not sleep any more", "test/e2e/crash_test.go:4: kills sleeps",
		},
	},
	"the same numbers each time": {
		"random tests take a seed",
		map[string]string{
			"internal/state/a_test.go": coreDoc + `import "math/rand/v2"
			var always = rand.New(rand.NewPCG(1, 2))
			func a(t T) { for seed := range uint64(9) { _ = rand.NewPCG(seed, 1) } }
			func b(t T) { seed := embeddedtest.Seed(t, 0); _ = rand.NewPCG(seed+1, 2) }
			func c(t T) { _ = rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2) }`,
			"internal/state/a.go":         "package a\nimport \"math/rand/v2\"\nvar _ = rand.NewPCG(1, 2)",
			"internal/sim/shares_test.go": coreDoc,
		},
		[]string{"internal/state/a_test.go:4: the seed", "internal/state/a_test.go:5: the seed", "seeded: internal/sim/shares_test.go has no"},
	},
	"go.mod": {
		"modules stay apart",
		map[string]string{
			"go.mod": "module m\nrequire (\n k8s.io/api v0.37.1\n k8s.io/kubernetes v1.37.1\n sigs.k8s.io/kueue v0.9.0\n)\n" +
				"replace k8s.io/api => k8s.io/api v0.37.0\n",
			"controlplane/go.mod": "module m\nrequire k8s.io/api v0.36.2\nreplace k8s.io/api => k8s.io/api v0.36.0\n",
		},
		[]string{"requires k8s.io/kubernetes", "requires sigs.k8s.io/kueue", "go.mod: replaces k8s.io/api", "disagree about the minor"},
	},
	"two writers of a condition": {
		"one writer per condition",
		map[string]string{
			"internal/workload/checks/a.go": coreDoc + conditionImports + `var c = metav1.Condition{Type: string(kueue.LocalQueueActive), Status: "True"}`,
			"internal/queue/controller/a.go": coreDoc + conditionImports + `var (
				c = metav1.Condition{Type: kueue.ClusterQueueActive}
				d = metav1.Condition{Type: kueue.ClusterQueueActive}
			)
			func f(ac apply) { ac.WithType(kueue.LocalQueueActive) }`,
			"internal/queue/controller/a_test.go": coreDoc + conditionImports + `var e = metav1.Condition{Type: kueue.CohortActive}`,
			"internal/queue/cohorts/a.go":         coreDoc + conditionImports + `var e = metav1.Condition{Type: kueue.CohortActive}`,
		},
		[]string{
			"condition api/kueue/v1beta2.LocalQueueActive is written at internal/queue/controller/a.go:11 and internal/workload/checks/a.go:7",
		},
	},
	"conditions of Workloads have a home": {
		"one writer per condition",
		map[string]string{
			"internal/workload/evict/a.go":          coreDoc + conditionImports + `var c = metav1.Condition{Type: kueue.WorkloadEvicted}`,
			"internal/workload/plan/lifecycle/a.go": coreDoc + conditionImports + `var c = metav1.Condition{Type: kueue.WorkloadAdmitted}`,
			"internal/workload/evict/get.go":        "package a\n" + conditionImports + `var c = apimeta.IsStatusConditionTrue(nil, kueue.WorkloadAdmitted)`,
		},
		[]string{"internal/workload/evict/a.go:7: builds the condition v1beta2.WorkloadEvicted"},
	},
	"who writes a status": {
		"one writer per fact",
		map[string]string{
			"internal/reconcile/workloadstatus.go": coreDoc + `func f(c client) { c.Status().Update(1) }`,
			"internal/queue/controller/pace.go":    coreDoc + `func f(c client) { c.Update(1) }`,
			"internal/queue/controller/other.go":   "package a\n" + `func g(c client) { c.inner.Status().Patch(1, 2) }`,
			"internal/queue/controller/a_test.go":  "package a\n" + `func h(c client) { c.Status().Update(1) }`,
		},
		[]string{
			"internal/queue/controller/other.go:2: writes a status",
			"statusWriters: internal/queue/controller/pace.go writes no status any more",
		},
	},
	"who changes a Workload": {
		"one writer per fact",
		map[string]string{
			"internal/workload/admit/a.go":   coreDoc + `import "` + module + `/internal/workload/plan/lifecycle"` + "\nfunc f(m lifecycle.Machine) { m.Reserve(1, 2); m.Preempt(1, 2) }",
			"internal/workload/follow/b.go":  coreDoc + `import "` + module + `/internal/workload/plan/lifecycle"` + "\nfunc g(w writer) { w.rules().Evict(1, 2); w.Finish() }",
			"internal/core/order/a.go":       coreDoc + "func f(m forest) { m.Release(1, 2) }",
			"internal/workload/evict/a.go":   coreDoc + `import "` + module + `/internal/workload/plan/lifecycle"` + "\nfunc f(m lifecycle.Machine) { m.Preempt(1, 2) }",
			"internal/job/jobtest/a/fake.go": coreDoc + `import "` + module + `/internal/workload/plan/lifecycle"` + "\nfunc f(m lifecycle.Machine) { m.Preempt(1, 2) }",
		},
		[]string{
			"carries out the transition Preempt, which is up to internal/workload/plan/lifecycle and internal/workload/evict",
			"carries out the transition Evict, which is up to internal/workload/plan/lifecycle",
		},
	},
	"answers away from home": {
		"one fact, one home",
		map[string]string{
			"internal/core/cycle/a.go":   coreDoc + `import "` + module + `/internal/core/preempt"` + "\nvar a = q.Preemption.Reclaim == preempt.Any",
			"internal/core/ledger/a.go":  coreDoc + `import "` + module + `/internal/core/quota"` + "\nvar a = quota.NewDimension(t)",
			"internal/core/order/a.go":   coreDoc + `import "` + module + `/internal/core/quota"` + "\nfunc f(d *quota.Dimension, f *quota.Forest) {}",
			"internal/core/preempt/a.go": coreDoc + `var a = Any`,
			"internal/sim/a.go":          coreDoc + `import "` + module + `/internal/core/preempt"` + "\nvar a = preempt.Any",
			"internal/jobset/controller/a.go": coreDoc + `import ("k8s.io/apimachinery/pkg/util/resourceversion"; "strconv")` +
				"\nvar a, _ = resourceversion.CompareResourceVersion(x, y)\nvar b, _ = strconv.ParseUint(o.GetResourceVersion(), 10, 64)\nvar c, _ = strconv.Atoi(x)",
			"internal/reconcile/a.go":  coreDoc + `import "k8s.io/apimachinery/pkg/util/resourceversion"` + "\nvar a, _ = resourceversion.CompareResourceVersion(x, y)",
			"internal/visibility/a.go": coreDoc + `var a = w.Spec.Active == nil || *w.Spec.Active`,
			"internal/workload/evict/a.go": coreDoc + `import kueue "` + module + `/api/kueue/v1beta2"` +
				"\nvar a = m.Finish(w, kueue.ReasonOwnerNotFound, now)\nvar b = reason == kueue.ReasonOwnerNotFound",
			"internal/workload/plan/lifecycle/a.go": coreDoc + `var a = *w.Spec.Active`,
		},
		[]string{
			"internal/core/cycle/a.go:4: decides what a preemption policy allows",
			"internal/core/order/a.go:4: decides what is charged, and whether it fits; ask ledger.Ledger",
			"internal/jobset/controller/a.go:4: decides what was written and a cache does not show yet", "internal/jobset/controller/a.go:5: decides what was written",
			"internal/visibility/a.go:3: decides whether a Workload may queue",
			"internal/workload/evict/a.go:4: decides the end of an orphaned Workload",
		},
	},
	"overlays": {
		"every overlay keeps the contract",
		map[string]string{
			"internal/queue/controller/a.go": coreDoc + `import "` + module + `/internal/reconcile"` + "\nvar a = reconcile.NewOverlay[*X](now)\nvar b = reconcile.NewOverlay[*Y](now)",
			"internal/queue/controller/a_test.go": coreDoc + `import "` + module + `/internal/reconcile/overlaytest"` +
				"\nfunc TestA(t *testing.T) { overlaytest.Run(t, overlaytest.User[*X]{}) }",
			"internal/reconcile/a.go":        coreDoc + `var a = NewOverlay[*X](now)`,
			"internal/placement/a/a.go":      coreDoc + `import "` + module + `/internal/reconcile"` + "\nvar a = reconcile.NewOverlay[*X](now)",
			"internal/placement/a/a_test.go": coreDoc + `import "` + module + `/internal/reconcile/overlaytest"` + "\nfunc TestA(t *testing.T) { overlaytest.Run[*X](t, u) }",
		},
		[]string{"internal/queue/controller/a.go:5: the package makes 2 overlays, and its tests call overlaytest.Run 1 times"},
	},
	"sizes": {
		"small files and functions",
		map[string]string{
			"internal/core/a/a.go":      coreDoc + strings.Repeat("\n", 700),
			"internal/core/a/b.go":      "package a\nfunc f() {" + strings.Repeat("\n", 90) + "}\n",
			"internal/core/a/a_test.go": "package a\nfunc f() {" + strings.Repeat("\n", 90) + "}\n",
			"internal/core/a/zz.go":     "// Code generated by x. DO NOT EDIT.\n\n" + coreDoc + strings.Repeat("\n", 700),
			"internal/core/b/a.go":      coreDoc + strings.Repeat("\n", 590), "internal/core/b/b.go": coreDoc + strings.Repeat("\n", 590),
			"internal/core/b/c.go": coreDoc + strings.Repeat("\n", 590), "internal/core/b/d.go": coreDoc + strings.Repeat("\n", 590),
			"internal/core/b/e.go": coreDoc + strings.Repeat("\n", 590), "internal/core/b/f.go": coreDoc + strings.Repeat("\n", 590),
			"cmd/berth/main.go":       coreDoc + strings.Repeat("\n", 50),
			"internal/core/wide/a.go": coreDoc + "const (\nA0 = iota" + names(60) + ")\n", "api/x/v1/a.go": coreDoc + "const (\nA0 = iota" + names(60) + ")\n",
		},
		[]string{
			"cmd/berth/main.go: the file has 52 lines, the cap is 50",
			"internal/core/a/a.go: the file has 702 lines, the cap is 600",
			"internal/core/a/b.go:f: the function has 91 lines, the cap is 80",
			"internal/core/wide:exports: the package has 61 exported names, the cap is 60",
		},
	},
	"a package that many rooms import": {
		"small files and functions",
		importers("internal/core/a", 21),
		[]string{"internal/core/a:imports: the package has 21 rooms that import it, the cap is 20"},
	},
	"docs": {
		"one doc per package",
		map[string]string{
			"internal/core/a/a.go": coreDoc, "internal/core/a/b.go": coreDoc, "internal/core/b/b.go": "package b\n",
			"internal/core/c/c.go": "// All about c.\npackage c\n", "cmd/berth/main.go": "// Command berth is.\npackage main\n",
		},
		[]string{"internal/core/a: package a has 2 docs", "internal/core/b: package b has no doc", `begins "All about c`},
	},
	"drawers": {
		"no drawers",
		map[string]string{"internal/core/util/a.go": coreDoc, "pkg/a/a.go": coreDoc, "internal/core/packing/a.go": coreDoc},
		[]string{"a folder named util", "a folder named pkg"},
	},
	"retired words": {
		"one word, one meaning",
		map[string]string{"internal/core/a/a.go": coreDoc + `
			// settle says whether the queue has quota, and puts the waiters on a shelf.
			func settle(heirs int) (parkedSince int) { tickets := heirs; return tickets }
			// Take is a name of the API in a call, not in a declaration.
			var _ = b.Take
			type shelf struct{ family, Spot int }`},
		[]string{
			`a.go:4: a comment says "has quota"`, `a.go:4: a comment says "says whether"`, `a.go:4: a comment says "shelf": wake index`,
			`a.go:4: a comment says "waiters": pending workload`, "a.go:5: the function settle", "a.go:5: the name heirs",
			"a.go:5: the name tickets: wake condition", "a.go:8: the name Spot", "a.go:8: the name shelf",
		},
	},
	"words": {
		"nothing from outside leaks in",
		map[string]string{
			"README.md":  "Promptly works through the queue.\nThe user agent is sent; a prompt asks.\nSee /work" + "/main for more.\n",
			"docs/a.md":  "written by Cl" + "aude\nfrom `/tmp" + "/brief/x`\nframework/main is fine\n",
			"bin/a.md":   "built in /work" + "/main\n",
			"docs/b.bin": "\xff\xfe/work" + "/main",
		},
		[]string{"README.md:3", "docs/a.md:1", "docs/a.md:2"},
	},
	"copies differ": {
		"copies for two modules are the same",
		map[string]string{
			"internal/listen/reserve.go":        "package listen\n\nconst a = 1\n",
			"controlplane/supervise/reserve.go": "package supervise\n\nconst a = 2\n",
		},
		[]string{"controlplane/supervise/reserve.go is not what internal/listen/reserve.go is"},
	},
	"copies differ by their package": {
		"copies for two modules are the same",
		map[string]string{
			"internal/listen/reserve.go":        "package listen\n\nconst a = 1\n",
			"controlplane/supervise/reserve.go": "package supervise\n\nconst a = 1\n",
		},
		nil,
	},
	"ports for later": {
		"a port is chosen and bound at once",
		map[string]string{
			"internal/cli/a.go": coreDoc + `import "net"
				func chosen() int {
					l, _ := net.Listen("tcp", "127.0.0.1:0")
					defer l.Close()
					return l.Addr().(*net.TCPAddr).Port
				}
				func served(serve func(net.Listener)) string {
					l, _ := net.Listen("tcp", "127.0.0.1:0")
					defer l.Close()
					go serve(l)
					return l.Addr().String()
				}
				func named() error {
					l, _ := net.Listen("tcp", "127.0.0.1:80")
					return l.Close()
				}`,
			"test/load/a_test.go": coreDoc + `import "net"
				func several() (ports []string) {
					for range 3 {
						l, err := (&net.ListenConfig{}).Listen(nil, "tcp", ":0")
						if err == nil { err = l.Close() }
						ports = append(ports, l.Addr().String())
					}
					return ports
				}`,
			"internal/cli/cli_test.go": coreDoc + `import "net"
				func TestFails() { l, _ := net.Listen("tcp", ":0"); defer l.Close(); try(l.Addr()) }`,
		},
		[]string{"internal/cli/a.go:5: l listens on port 0", "test/load/a_test.go:6: l listens on port 0"},
	},
	"no races": {
		"what is busy is tested for races",
		map[string]string{"Makefile": "race:\n\tgo test -race ./...\n", ".ci/run": "for target in race; do"},
		[]string{"Makefile: has no target race with the line"},
	},
	"races of some": {
		"what is busy is tested for races",
		map[string]string{
			".ci/run":                        "for target in check test; do make $target; done # and race",
			"Makefile":                       "RACELESS := /internal/(core|wire|sim)(/|$$)\nRACE := CGO_ENABLED=1 \\\n\tgotest -race $(ARGS)\n\nrace: need-cc ## it\n" + racing,
			"internal/core/a/a_test.go":      coreDoc + `import _ "sync"`,
			"internal/sim/a.go":              coreDoc,
			"internal/wire/a/a_test.go":      coreDoc + `import _ "` + module + `/internal/embedded/embeddedtest"`,
			"internal/wire/listen/a.go":      coreDoc + `func f() { go f() }`,
			"internal/wire/listen/a_test.go": coreDoc + `import _ "sync"`,
			"internal/wired/a_test.go":       coreDoc + `import _ "sync"`,
		},
		[]string{
			`Makefile: RACE is without "KUBE_CACHE_MUTATION_DETECTOR=true "`, ".ci/run: does not run make race",
			"RACELESS leaves out internal/wire/a, which is busy", "RACELESS leaves out internal/wire/listen, which is busy",
		},
	},
	"packages after flags": {
		"flags of tests come after packages",
		map[string]string{"Makefile": "storm:\n\t$(GO) test -v $(STORM) 7 \\\n\t\t./internal/a ./internal/b; $(GO) test -run A -seed 7 ./test/c\n\t$(GO) test ./test/d $(STORM) 7\n"},
		[]string{"Makefile: ./internal/b comes after flags of tests", "Makefile: ./test/c comes after"},
	},
	"missing files": {
		"the house is complete",
		map[string]string{
			"LICENSE": "All rights reserved", "README.md": "", "ARCHITECTURE.md": allRooms(), "SCOPE.md": "", "CHANGELOG.md": "", "Makefile": "",
			".golangci.yml": "", ".ci/run": "", "go.mod": "", "controlplane/go.mod": "", "tools/go.mod": "", "tools/lint/go.mod": "",
		},
		[]string{"CONTRIBUTING.md: is missing", "LICENSE: is not the text", "ARCHITECTURE.md: does not mention the room internal/core"},
	},
}

const conditionImports = `import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "` + module + `/api/kueue/v1beta2"
)
`

// names declares constants A1 to An, a line each.
func names(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\nA%d", i+1)
	}
	return b.String()
}

// importers are kinds of jobs that import one package.
func importers(dir string, n int) map[string]string {
	files := map[string]string{dir + "/a.go": coreDoc}
	for i := range n {
		files[fmt.Sprintf("internal/training/a%d/a.go", i)] = coreDoc + `import _ "` + module + "/" + dir + `"`
	}
	return files
}

// allRooms mentions every room but core.
func allRooms() string {
	var b strings.Builder
	for _, r := range rooms {
		if r.dir != "internal/core" {
			fmt.Fprintln(&b, r.dir)
		}
	}
	return b.String()
}

// TestLaws shows that every law can be broken, and that it names the place.
func TestLaws(t *testing.T) {
	defer func(sizes map[string]exception) { exceptions = sizes }(exceptions)
	exceptions = nil
	breaks := map[string]bool{}
	for name, fx := range fixtures {
		t.Run(name, func(t *testing.T) {
			l := lawNamed(t, fx.law)
			tr := repo(t, fx.files)
			if fx.law == "modules stay apart" {
				tr.goList = func(...string) (string, error) { return "", nil }
			}
			got := l.check(tr)
			if len(got) != len(fx.want) {
				t.Fatalf("got %d findings, want %d:\n%s", len(got), len(fx.want), strings.Join(got, "\n"))
			}
			for i, want := range fx.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("finding %d is %q, want %q in it", i, got[i], want)
				}
			}
		})
		breaks[fx.law] = breaks[fx.law] || len(fx.want) > 0
	}
	for _, l := range laws {
		if !breaks[l.name] {
			t.Errorf("no fixture breaks the law %q", l.name)
		}
	}
}

// TestDeps shows the findings of the law about linked packages.
func TestDeps(t *testing.T) {
	tr := repo(t, nil)
	tr.goList = func(...string) (string, error) {
		return "fmt\nk8s.io/api/core/v1\nk8s.io/kubernetes/pkg/apis/core\nsigs.k8s.io/jobset/api [x.test]\n" + module + "/controlplane/up\n", nil
	}
	if got := checkDeps(tr); len(got) != 3 {
		t.Errorf("got %q, want three findings", got)
	}
	tr.goList = func(...string) (string, error) { return "", fmt.Errorf("broken") }
	if got := checkDeps(tr); len(got) != 1 {
		t.Errorf("got %q, want the error", got)
	}
}

// TestExceptions shows that the list of exceptions can only shrink.
func TestExceptions(t *testing.T) {
	tr := repo(t, map[string]string{"internal/core/a/a.go": coreDoc + strings.Repeat("\n", 700)})
	for name, tt := range map[string]struct {
		key   string
		lines int
		want  string
	}{
		"fits":     {"internal/core/a/a.go", 702, `^$`},
		"grown":    {"internal/core/a/a.go", 701, `^internal/core/a/a.go: the file has grown to 702 lines, its exception allows 701 \(why\)$`},
		"shrunk":   {"internal/core/a/a.go", 800, `^internal/core/a/a.go: the file has shrunk to 702 lines: lower`},
		"unneeded": {"internal/core/a/", 800, `internal/core/a/: is within its cap: remove`},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(checkSizesWith(tr, map[string]exception{tt.key: {tt.lines, "why"}}), "\n")
			if !regexp.MustCompile(tt.want).MatchString(got) {
				t.Errorf("got %q, want %s", got, tt.want)
			}
		})
	}
}
