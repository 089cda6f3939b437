package house

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// statusWriters are the facts that Berth writes into the status of API objects, and the one file that writes each.
var statusWriters = map[string]string{
	"Workload":                            "internal/reconcile/workloadstatus.go",
	"Workload: copies on worker clusters": "internal/multikueue/controller/carryout.go",
	"a job's own status":                  "internal/job/controller/write.go",
	"ClusterQueue, LocalQueue, Cohort":    "internal/queue/controller/pace.go",
	"ClusterQueue: QuotaAutomation":       "internal/multikueue/controller/quota.go",
	"ClusterQueue: QuotaFromNodes":        "internal/placement/nodequota/nodequota.go",
	"AdmissionCheck":                      "internal/check/active.go",
	"MultiKueueCluster":                   "internal/multikueue/worker/clusters.go",
	"JobSet, and the start of its Jobs":   "internal/jobset/controller/carryout.go",
	"Pod: DisruptionTarget":               "internal/jobset/controller/repair.go",
	"ProvisioningRequest: the stand-in":   "internal/embedded/autoscaler/autoscaler.go",
	"Pod: TerminatedByKueue":              "internal/placement/health/pods.go",
	"Pod: KueueFailureRecovery":           "internal/placement/recovery/recovery.go",
	"TrainJob":                            "internal/training/controller/status.go",
	"CustomResourceDefinition: versions":  "internal/admission/conversion/rewrite/rewrite.go",
}

// transitions are the transitions of a Workload (lifecycle.Machine), and the rooms that carry out each, beside lifecycle itself.
var transitions = map[string][]string{
	"Reserve":                    {"internal/workload/admit"},
	"AdmitVariant":               {"internal/workload/admit", "internal/workload/plan/variants"},
	"CopyAdmission":              {"internal/workload/plan/variants"},
	"FollowNodes":                {"internal/workload/plan/variants"},
	"FollowPlaces":               {"internal/workload/plan/variants"},
	"OpenGate":                   {"internal/workload/plan/variants", "internal/multikueue/plan"}, // each its own gate
	"FollowGates":                {"internal/workload/plan/variants"},
	"BlockOnPreemptionGates":     {"internal/workload/admit", "internal/workload/plan/variants"},                      // of parents, which are not queued
	"Pending":                    {"internal/workload/admit", "internal/job/plan/decide"},                             // of a job: it is on hold
	"PodsReady":                  {"internal/workload/admit", "internal/job/plan/decide", "internal/multikueue/plan"}, // while admission is paused; of a job; while RunsRemotely is True
	"Preempt":                    {"internal/workload/evict"},
	"Evict":                      {"internal/placement/health", "internal/workload/admit", "internal/workload/evict", "internal/workload/plan/variants"}, // of failed nodes, the latter once the engine finds no replacement; of migrations; for everything else lifecycle.Rules.Follow
	"Reject":                     nil,
	"Deactivate":                 nil,
	"Requeue":                    {"internal/workload/plan/variants"},
	"UnblockFromPreemptionGates": nil,
	"Release":                    {"internal/job/plan/decide", "internal/workload/plan/variants"},
	"WaitForReplacements":        {"internal/job/plan/decide"},
	"ReleaseOrphan":              {"internal/job/plan/decide"},
	"Finish":                     {"internal/job/plan/decide", "internal/multikueue/plan", "internal/workload/follow", "internal/workload/plan/variants"}, // of a slice
	"RequestDeactivation":        {"internal/job/plan/decide", "internal/multikueue/plan", "internal/workload/plan/variants"},
	"SyncAdmitted":               {"internal/multikueue/plan"},
	"RunOn":                      {"internal/multikueue/plan"},
	"RunNowhere":                 {"internal/multikueue/plan"},
	"Import":                     {"internal/cli/importer"},
}

// shipped reports whether a file is part of a program that users run.
func shipped(f *file) bool {
	return !f.test && !isNested(f.dir) && !under(f.dir, "test") && !under(f.dir, "internal/job/jobtest") && !strings.HasSuffix(f.dir, "test")
}

// checkStatusWriters finds files that write a status without being the writer of a fact, and rooms that carry out a transition of
// Workloads that belongs to another room.
func checkStatusWriters(tr *tree) (out []string) {
	lifecycle := module + "/" + workloadConditions
	inhabited, writes, uses := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, f := range tr.files {
		if shipped(f) {
			inhabited[f.dir] = true
			uses[f.dir] = uses[f.dir] || slices.ContainsFunc(f.ast.Imports, func(i *ast.ImportSpec) bool { return importPath(i) == lifecycle })
		}
	}
	for _, f := range tr.files {
		if !shipped(f) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := calledMethod(call)
			if writesStatus(call) {
				writes[f.path] = true
				if !isWriter(f.path) {
					out = append(out, fmt.Sprintf("%s: writes a status, and is not in statusWriters", tr.at(n)))
				}
			}
			by, is := transitions[name]
			if is && len(call.Args) > 1 && !isContext(call.Args[0]) && uses[f.dir] && f.dir != workloadConditions && !slices.Contains(by, f.dir) {
				out = append(out, fmt.Sprintf("%s: carries out the transition %s, which is up to %s", tr.at(n), name,
					strings.Join(append([]string{workloadConditions}, by...), " and ")))
			}
			return true
		})
	}
	for fact, writer := range statusWriters {
		if dir := writer[:strings.LastIndexByte(writer, '/')]; inhabited[dir] && !writes[writer] {
			out = append(out, fmt.Sprintf("statusWriters: %s writes no status any more (%s): remove the entry", writer, fact))
		}
	}
	slices.Sort(out)
	return out
}

func isWriter(file string) bool {
	for _, writer := range statusWriters {
		if writer == file {
			return true
		}
	}
	return false
}

// calledMethod is the name of the method or the qualified function that is called, "" for none.
func calledMethod(call *ast.CallExpr) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		return sel.Sel.Name
	}
	return ""
}

// isContext recognizes ctx: a method that takes it is no transition, because transitions only change values.
func isContext(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "ctx"
}

// writesStatus recognizes x.Status().Update and x.Status().Patch.
func writesStatus(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || (sel.Sel.Name != "Update" && sel.Sel.Name != "Patch") {
		return false
	}
	of, ok := sel.X.(*ast.CallExpr)
	return ok && len(of.Args) == 0 && calledMethod(of) == "Status"
}

// home is the one place of a fact, and the code patterns that would decide it a second time.
type home struct {
	fact, dir, ask string
	also           []string // folders for which it is something else
	is             func(n ast.Node, imports map[string]string) bool
}

const (
	kueueAPI     = module + "/api/kueue/v1beta2"
	preemptRules = module + "/internal/core/preempt"
	quotaFigures = module + "/internal/core/quota"
)

var homes = []home{
	{
		"what a preemption policy allows", "internal/core/preempt", "the methods of preempt.Policy",
		[]string{"internal/sim"}, // scripts have their own words for the rules
		func(n ast.Node, imports map[string]string) bool {
			return mentions(n, imports, preemptRules, "Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any")
		},
	},
	{
		"what is charged, and whether it fits", "internal/core/ledger",
		"ledger.Ledger, which counts every dimension of capacity; the figures of quota are at Ledger.Quota", nil,
		func(n ast.Node, imports map[string]string) bool {
			return mentions(n, imports, quotaFigures, "Dimension", "NewDimension")
		},
	},
	{
		"whether a Workload may queue", workloadConditions, "lifecycle.KeptOut, MayQueue or IsActive", nil,
		func(n ast.Node, _ map[string]string) bool {
			star, ok := n.(*ast.StarExpr)
			if !ok {
				return false
			}
			active, ok := star.X.(*ast.SelectorExpr)
			if !ok || active.Sel.Name != "Active" {
				return false
			}
			spec, ok := active.X.(*ast.SelectorExpr)
			return ok && spec.Sel.Name == "Spec"
		},
	},
	{
		"whether a queue is stopped", workloadConditions, "lifecycle.IsStopped", []string{"internal/cli/ctl"}, // which sets and shows the policy
		func(n ast.Node, imports map[string]string) bool {
			return mentions(n, imports, kueueAPI, "StopPolicyNone")
		},
	},
	{
		"what was written and a cache does not show yet", "internal/reconcile",
		"reconcile.Overlay, or reconcile.IsOlder in a store that is a cache itself", nil,
		func(n ast.Node, imports map[string]string) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return false
			}
			pkg, name, _ := qualified(call.Fun, imports)
			parses := pkg == "strconv" && strings.HasPrefix(name, "Parse") && isVersion(call.Args[0])
			return parses || pkg == "k8s.io/apimachinery/pkg/util/resourceversion"
		},
	},
	{
		"the end of an orphaned Workload", workloadConditions, "lifecycle.Machine.ReleaseOrphan", nil,
		func(n ast.Node, imports map[string]string) bool {
			call, ok := n.(*ast.CallExpr)
			return ok && slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return mentions(e, imports, kueueAPI, "ReasonOwnerNotFound") })
		},
	},
}

// isVersion recognizes the resource version of an object.
func isVersion(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		return calledMethod(call) == "GetResourceVersion"
	}
	sel, ok := e.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "ResourceVersion"
}

// mentions reports whether n is one of the names of a package.
func mentions(n ast.Node, imports map[string]string, pkg string, names ...string) bool {
	e, ok := n.(ast.Expr)
	if !ok {
		return false
	}
	in, name, ok := qualified(e, imports)
	return ok && in == pkg && slices.Contains(names, name)
}

// checkHomes finds code that decides a fact that has a home elsewhere.
func checkHomes(tr *tree) (out []string) {
	for _, f := range tr.files {
		if !shipped(f) {
			continue
		}
		imports := f.imports()
		ast.Inspect(f.ast, func(n ast.Node) bool {
			for _, h := range homes {
				if f.dir != h.dir && !slices.Contains(h.also, f.dir) && h.is(n, imports) {
					out = append(out, fmt.Sprintf("%s: decides %s; ask %s", tr.at(n), h.fact, h.ask))
				}
			}
			return true
		})
	}
	return out
}

// checkOverlays finds users of an overlay that do not run its contract: each overlay of a package needs a run in the tests of the package.
func checkOverlays(tr *tree) (out []string) {
	const pkg = module + "/internal/reconcile"
	made, run, places := map[string]int{}, map[string]int{}, map[string]string{}
	for _, f := range tr.files {
		imports := f.imports()
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fun := call.Fun
			if index, ok := fun.(*ast.IndexExpr); ok {
				fun = index.X
			}
			switch in, name, _ := qualified(fun, imports); {
			case in == pkg && name == "NewOverlay" && shipped(f):
				made[f.dir]++
				places[f.dir] = tr.at(n)
			case in == pkg+"/overlaytest" && name == "Run" && f.test:
				run[f.dir]++
			}
			return true
		})
	}
	for dir, n := range made {
		if run[dir] < n {
			out = append(out, fmt.Sprintf("%s: the package makes %d overlays, and its tests call overlaytest.Run %d times", places[dir], n, run[dir]))
		}
	}
	slices.Sort(out)
	return out
}
