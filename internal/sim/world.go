package sim

import (
	"cmp"
	"math"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

var strategies = map[string]preempt.Strategy{
	preempt.LessThanOrEqualToFinalShare.String(): preempt.LessThanOrEqualToFinalShare,
	preempt.LessThanInitialShare.String():        preempt.LessThanInitialShare,
}

// options replaces the empty world by one with other settings.
func (p *player) options(a *args) string {
	if p.begun {
		a.fail("options come before everything else")
	}
	if o := a.settings(); a.done() {
		p.create(o)
	}
	return ""
}

func (a *args) settings() state.Options {
	o := state.Options{Options: cycle.Defaults(), Topology: new(topology.DefaultGates())}
	o.IgnoreUndeclared = a.flag("ignore-undeclared")
	o.Fair = a.fair()
	switch within := !a.flag("no-within-nominal"); {
	case o.Fair != nil:
		o.Fair.WithinNominal = within
	case !within:
		a.fail("no-within-nominal means nothing without fair")
	}
	o.NonBorrowingFirst = !a.flag("no-non-borrowing-first")
	o.PriorityInCohort = !a.flag("no-priority-in-cohort")
	o.PreemptorFirst = a.flag("preemptor-first")
	o.BlockAdmission = a.flag("block-admission")
	o.RecomputeOverlap = !a.flag("no-recompute-overlap")
	o.KeepScan = !a.flag("no-keep-scan")
	o.FungibilityOff = a.flag("no-fungibility")
	o.PartialAdmission = !a.flag("no-partial")
	o.NoClasses = a.flag("no-classes")
	o.FailFast = !a.flag("no-fail-fast")
	o.ClaimTimeout = seconds(a.number("claim-timeout", int64(o.ClaimTimeout/second), 0, maxSecond))
	o.EditWindow = seconds(a.number("edit-window", int64(o.EditWindow/second), 0, maxSecond))
	if halfLife := seconds(a.number("half-life", 0, 0, maxSecond)); halfLife > 0 {
		o.Sharing = &sharing.Rates{HalfLife: halfLife, Interval: seconds(a.number("interval", int64(halfLife/second), 1, maxSecond))}
	}
	return o
}

// fair removes fair[=STRATEGY,...]; nil without it. Both strategies are the default.
func (a *args) fair() *preempt.Fair {
	both := []preempt.Strategy{preempt.LessThanOrEqualToFinalShare, preempt.LessThanInitialShare}
	f := &preempt.Fair{Strategies: both, WithinNominal: true}
	if a.flag("fair") {
		return f
	}
	text, ok := a.value("fair")
	if !ok {
		return nil
	}
	f.Strategies = nil
	for name := range strings.SplitSeq(text, ",") {
		f.Strategies = append(f.Strategies, meaning(a, "fair", name, strategies))
	}
	if len(f.Strategies) > len(both) {
		a.fail("fair: there are two strategies, the second for what the first one refuses")
	}
	return f
}

func (p *player) namespace(a *args) string {
	name := a.name("NAME")
	if labels := a.labels(a.pairs("")); a.done() {
		p.s.Apply(state.SetNamespace{Name: name, Labels: labels})
	}
	return ""
}

func (p *player) flavor(a *args) string {
	f := flavor.Flavor{Name: a.name("NAME"), Labels: a.labels(a.pairs("label.")), Tolerations: a.tolerations(), Levels: a.levels()}
	if len(f.Levels) > 0 {
		f.Topology = f.Name
	}
	for _, text := range a.values("taint") {
		key, value := a.keyValue("taint", text, false)
		f.Taints = append(f.Taints, workload.Taint{Key: key, Value: value, Effect: "NoSchedule"})
	}
	if a.done() {
		p.s.Apply(state.SetFlavor(f))
	}
	return ""
}

func (a *args) tolerations() (out []workload.Toleration) {
	for _, text := range a.values("tolerate") {
		key, value := a.keyValue("tolerate", text, false)
		out = append(out, workload.Toleration{Key: key, Operator: "Equal", Value: value})
	}
	return out
}

func (p *player) cohort(a *args) string {
	def := state.Cohort{Name: a.name("NAME"), Parent: a.nameOf("parent", ""), Weight: a.weight(), Groups: a.groups()}
	if def.Parent == def.Name {
		a.fail("a cohort cannot be its own parent")
	}
	p.named(a, "cohort "+def.Name, def.Parent, def.Groups)
	if a.done() {
		p.s.Apply(state.SetCohort(def))
	}
	return ""
}

// named records a node, its parent and its quotas.
func (p *player) named(a *args, node, parent string, groups []state.Group) {
	nodes := []string{node}
	if parent != "" {
		nodes = append(nodes, "cohort "+parent)
	}
	var frs []string
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				frs = append(frs, f.Flavor+"/"+r.Resource)
			}
		}
	}
	p.spread(a, nodes, frs)
}

var rules = map[string]preempt.Rule{
	"never": preempt.Never, "lower": preempt.LowerPriority, "lower-or-newer": preempt.LowerOrNewerEqualPriority, "any": preempt.Any,
}

// queue also makes the named flavors, without labels, and a LocalQueue of its name in the namespace default, unless they exist.
func (p *player) queue(a *args) string {
	def := a.queue()
	p.named(a, "queue "+def.Name, def.Cohort, def.Groups)
	if !a.done() {
		return ""
	}
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			if !p.s.HasFlavor(f.Flavor) {
				p.s.Apply(state.SetFlavor(flavor.Flavor{Name: f.Flavor}))
			}
		}
	}
	if !p.s.HasQueue(def.Name) {
		p.s.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: "default", Name: def.Name, Queue: def.Name}))
	}
	p.s.Apply(state.SetQueue(def))
	return ""
}

func (a *args) queue() state.Queue {
	def := state.Queue{Name: a.name("NAME"), Cohort: a.nameOf("cohort", ""), Weight: a.weight(), Strict: a.flag("strict"), Namespaces: []workload.Term{{}}}
	def.Closed, _ = a.value("closed")
	if text, ok := a.value("namespaces"); ok {
		key, value := a.keyValue("namespaces", text, true)
		def.Namespaces = []workload.Term{{{Key: key, Op: workload.In, Values: []string{value}}}}
	}
	def.Preemption = preempt.Policy{Within: oneOf(a, "within", preempt.Never, rules), Reclaim: oneOf(a, "reclaim", preempt.Never, rules)}
	a.borrowWithin(&def.Preemption)
	def.Fungibility = flavor.Fungibility{
		TryNextWhenBorrowing: a.flag("try-when-borrowing"), StopWhenPreempting: a.flag("stop-when-preempting"),
		PreemptionOverBorrowing: a.flag("preemption-over-borrowing"),
	}
	def.UsageBased = a.flag("usage-based")
	def.Backfill = oneOf(a, "backfill", cycle.NoBackfill, map[string]cycle.Backfill{"easy": cycle.Easy, "conservative": cycle.Conservative})
	def.DelayAll = a.flag("delayed")
	def.Groups = a.groups()
	return def
}

// borrowWithin takes borrow-within=lower[:THRESHOLD].
func (a *args) borrowWithin(to *preempt.Policy) {
	text, ok := a.value("borrow-within")
	if !ok {
		return
	}
	policy, threshold, bounded := strings.Cut(text, ":")
	if policy != "lower" {
		a.fail("borrow-within=%s: write borrow-within=lower, or borrow-within=lower:THRESHOLD, or leave it out for never", quote(text))
	}
	to.BorrowWithin = true
	if bounded {
		to.Threshold = new(a.whole("the threshold of borrow-within", threshold, math.MinInt64, math.MaxInt64))
	}
}

func (p *player) localQueue(a *args) string {
	def := state.LocalQueue{Name: a.name("NAME"), Queue: a.nameOf("queue", ""), Namespace: a.nameOf("namespace", "default"), Stopped: a.flag("stopped")}
	if weight := a.weight(); weight != nil {
		def.Weight = cmp.Or(float64(*weight)/float64(quota.DefaultWeight), -1)
	}
	if def.Queue == "" {
		a.fail("queue= is missing; usage: %s", a.usage)
	}
	if a.done() {
		p.s.Apply(state.SetLocalQueue(def))
	}
	return ""
}

// usage sets the standing of a LocalQueue.
func (p *player) usage(a *args) string {
	u := state.SetUsage{Name: a.name("NAME"), Namespace: a.nameOf("namespace", "default")}
	u.Consumed = []sharing.Used{{Resource: "usage", Amount: float64(a.whole("USAGE", a.word("USAGE"), 0, math.MaxInt64))}}
	if _, exists := p.s.Publish().PointsTo(u.Namespace, u.Name); a.err == nil && !exists {
		a.fail("there is no LocalQueue %s in namespace %s", u.Name, u.Namespace)
	}
	if a.done() {
		p.s.Apply(u)
	}
	return ""
}

// sample counts the usage of all LocalQueues whose last sample is an interval ago.
func (p *player) sample(a *args) string {
	if a.done() {
		p.s.Apply(state.SampleUsage{Now: p.instant(), Max: math.MaxInt})
	}
	return ""
}

// delete deletes an object. A pending write of a deleted workload will fail.
func (p *player) delete(a *args) string {
	kinds := map[string]func(name, namespace string){
		"workload":   func(name, _ string) { delete(p.workloads, name); p.s.Apply(state.DeleteWorkload(name)) },
		"queue":      func(name, _ string) { p.s.Apply(state.DeleteQueue(name)) },
		"cohort":     func(name, _ string) { p.s.Apply(state.DeleteCohort(name)) },
		"flavor":     func(name, _ string) { p.s.Apply(state.DeleteFlavor(name)) },
		"localqueue": func(name, namespace string) { p.s.Apply(state.DeleteLocalQueue{Namespace: namespace, Name: name}) },
		"namespace":  func(name, _ string) { p.s.Apply(state.DeleteNamespace(name)) },
		"node":       func(name, _ string) { delete(p.machines, name); p.s.Apply(state.DeleteNode(name)) },
	}
	what := a.word("the kind of what is deleted")
	name, namespace := a.name("NAME"), "default"
	if what == "localqueue" {
		namespace = a.nameOf("namespace", namespace)
	}
	if a.err != nil {
		return ""
	}
	remove := meaning(a, "delete", what, kinds)
	switch {
	case what == "workload":
		p.find(a, name)
	case what == "queue" && !p.s.HasQueue(name), what == "flavor" && !p.s.HasFlavor(name):
		a.fail("there is no %s %s", what, name)
	case what == "node":
		p.findNode(a, name)
	}
	if a.done() {
		remove(name, namespace)
	}
	return ""
}
