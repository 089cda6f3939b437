package sim

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

func (p *player) instant() workload.Instant { return seconds(p.now) }

// wait advances the clock by exactly that many seconds.
func (p *player) wait(a *args) string {
	n := a.whole("SECONDS", a.word("SECONDS"), 1, maxSecond)
	if p.now+n > maxSecond {
		a.fail("the clock ends at second %d", maxSecond)
	}
	if a.done() {
		p.now += n - 1
	}
	return ""
}

// step lets the engine decide, prints the decisions and, unless unwritten, writes them. Then a second step must decide nothing.
func (p *player) step(a *args) string {
	budget := a.number("budget", 10_000, 1, maxBudget)
	unwritten, quiet := a.flag("unwritten"), a.flag("quiet")
	if !a.done() {
		return ""
	}
	r := p.s.Step(p.instant(), int(budget))
	var b strings.Builder
	fmt.Fprintf(&b, "%d cycles, %d decisions\n", r.Cycles, len(r.Decisions))
	for _, d := range r.Decisions {
		if !quiet {
			b.WriteString(d.Attempt.String())
			if d.Replaced != nil {
				fmt.Fprintf(&b, "  takes the place of %s\n", d.Replaced.Key)
			}
			if d.Recomputed != "" {
				fmt.Fprintf(&b, "  looked for other victims: %s\n", d.Recomputed)
			}
			if d.PassedOver {
				b.WriteString("  others took the victims or the quota\n")
			}
		}
		p.decided(d)
	}
	if r.More {
		b.WriteString("more to do\n")
	}
	if r.Next > 0 {
		fmt.Fprintf(&b, "again in %d s\n", (r.Next-p.instant())/second)
	}
	if a.err = cmp.Or(p.spend(r.Cycles), comesToEnd(&r)); unwritten || a.err != nil {
		return b.String()
	}
	if settled := p.writeAll(); !settled || r.More {
		return b.String()
	}
	if again := p.s.Step(p.instant(), int(budget)); len(again.Decisions) > 0 {
		a.err = fmt.Errorf("%w:\n%s", ErrUnsettled, again.Decisions[0].Attempt)
	}
	return b.String()
}

// comesToEnd returns an error if heads took quota from each other without an end.
func comesToEnd(r *cycle.Result) error {
	if len(r.Endless) == 0 {
		return nil
	}
	return fmt.Errorf("%w, and so on without an end: %s", ErrUnsettled, r.Endless)
}

// decided records the writes that a decision needs.
func (p *player) decided(d cycle.Decision) {
	if d.Attempt.Verdict == trace.Admitted {
		p.admissions[d.Workload.UID] = p.s.Grant(&d)
	}
	for _, v := range d.Evict {
		p.evictions[v.Workload.UID] = true
	}
	if d.Placed != nil {
		p.placings[d.Workload.UID] = p.s.Grant(&d)
	}
	if d.NodesFailed {
		p.evictions[d.Workload.UID] = true
	}
}

// writeAll writes all decisions. It reports false if that gave the engine something new to decide.
func (p *player) writeAll() bool {
	settled := true
	for _, name := range sortedKeys(p.admissions) {
		if p.current(name) {
			settled = p.admit(name) && settled
			continue
		}
		p.failAdmission(name)
		settled = false
	}
	for _, name := range sortedKeys(p.placings) {
		settled = p.writePlaces(name) && settled
	}
	for _, name := range sortedKeys(p.evictions) {
		p.writeEviction(name)
	}
	return settled
}

// current reports whether a workload is unchanged since its admission was decided; writing fails otherwise.
func (p *player) current(name string) bool {
	def := p.workloads[name]
	return def != nil && def.Queueable && !def.Reserved && def.Generation == p.admissions[name].Generation
}

// admit writes an admission. Unless checks are pending, the slice that it replaces is finished, and settled is false: that may free more
// quota.
func (p *player) admit(name string) (settled bool) {
	grant, def := p.admissions[name], p.workloads[name]
	delete(p.admissions, name)
	def.TakeGrant(&grant, p.checked[name])
	def.Version++
	p.s.Apply(state.AdmissionWritten(*def))
	return !p.succeed(def)
}

// succeed finishes the slice that an admitted workload replaces, if there is one.
func (p *player) succeed(def *state.Workload) bool {
	old := p.workloads[def.Replaces]
	if old == nil || old == def || !def.Admitted || !old.Queueable || old.Owner != def.Owner || old.Namespace != def.Namespace {
		return false
	}
	if grant, writing := p.admissions[old.UID]; (old.Reserved && old.Queue == def.Queue) || (writing && grant.Queue == def.Queue) {
		p.end(old)
		return true
	}
	return false
}

// passes: a workload with quota passes its checks.
func (p *player) passes(a *args) string {
	def := p.workload(a)
	if a.err == nil && (!def.Reserved || def.Admitted) {
		a.fail("%s has no check to pass now", quote(def.Name))
	}
	if a.done() {
		if def.Admitted, def.PlaceNow = len(def.Delayed) == 0, len(def.Delayed) > 0; def.PlaceNow {
			p.checked[def.Name] = false
		}
		p.set(def)
		p.succeed(def)
	}
	return ""
}

// writeEviction writes an eviction, if the workload still holds quota.
func (p *player) writeEviction(name string) {
	delete(p.evictions, name)
	if def := p.workloads[name]; def != nil && def.Reserved && !def.Evicting {
		def.Evicting = true
		def.Version++
		p.s.Apply(state.Written(*def))
	}
}

// written writes the decision about a workload that an unwritten step has left.
func (p *player) written(a *args) string {
	name := a.word("NAME")
	_, admitted := p.admissions[name]
	switch {
	case a.err != nil:
	case !admitted && !p.evictions[name]:
		a.fail("nothing about %s is being written", quote(name))
	case admitted && !p.current(name):
		a.fail("%s is no longer what was admitted, so that cannot be written; say write-fails %s", quote(name), name)
	}
	switch {
	case !a.done():
	case admitted:
		p.admit(name)
	default:
		p.writeEviction(name)
	}
	return ""
}

func (p *player) writeFails(a *args) string {
	name := a.word("NAME")
	if _, ok := p.admissions[name]; a.err == nil && !ok {
		a.fail("no admission of %s is being written", quote(name))
	}
	if a.done() {
		p.failAdmission(name)
	}
	return ""
}

// failAdmission takes an admission back.
func (p *player) failAdmission(name string) {
	failed := state.AdmissionFailed{UID: name, Version: p.admissions[name].Version}
	delete(p.admissions, name)
	p.s.Apply(failed)
}

func (p *player) evictFails(a *args) string {
	name := a.word("NAME")
	if a.err == nil && !p.evictions[name] {
		a.fail("no eviction of %s is being written", quote(name))
	}
	if a.done() {
		delete(p.evictions, name)
		p.s.Apply(state.EvictionFailed(name))
	}
	return ""
}

// show prints the whole world.
func (p *player) show(a *args) string {
	if !a.done() {
		return ""
	}
	return p.s.Dump()
}

// explain prints the last evaluation of a workload.
func (p *player) explain(a *args) string {
	def := p.workload(a)
	if !a.done() {
		return ""
	}
	return p.s.Explain(def.UID)
}

// status prints the counters and amounts of a ClusterQueue's status.
func (p *player) status(a *args) string {
	name := a.name("QUEUE")
	if !a.done() {
		return ""
	}
	v, ok := p.s.Publish().Queue(name)
	if !ok {
		return "no such queue\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d active, %d parked, %d reserved, %d admitted\n", v.Active, v.Inadmissible, v.Reserved, v.Admitted)
	for _, list := range []struct {
		what string
		held []state.Held
	}{{"reserved", v.Reservation}, {"used", v.Usage}, {"borrowed", v.Borrowed}} {
		for _, h := range list.held {
			fmt.Fprintf(&b, "%s %s/%s=%s\n", list.what, h.Flavor, h.Resource, h.Amount.Format(h.Resource))
		}
	}
	return b.String()
}

// available prints the figures of every node for one flavor-resource.
func (p *player) available(a *args) string {
	name, res := a.name("FLAVOR"), a.word("RESOURCE")
	if a.err == nil {
		a.checkName(res, "/")
	}
	p.spread(a, nil, []string{name + "/" + res})
	if !a.done() {
		return ""
	}
	var b strings.Builder
	for _, f := range p.s.Figures(name, res) {
		fmt.Fprintf(&b, "%s %s: subtree %s used %s available %s potential %s\n", kind(f.Cohort), f.Name,
			f.Subtree.Format(res), f.Usage.Format(res), f.Available.Format(res), f.Potential.Format(res))
	}
	return b.String()
}

// shares prints the fair share of every node, and its form in the status.
func (p *player) shares(a *args) string {
	if !a.done() {
		return ""
	}
	var b strings.Builder
	for _, f := range p.s.Shares() {
		exact := strconv.FormatFloat(f.Share.Value(), 'f', 3, 64)
		if strings.Contains(exact, ".") {
			exact = strings.TrimRight(strings.TrimRight(exact, "0"), ".")
		}
		fmt.Fprintf(&b, "%s %s: share %s, status %d\n", kind(f.Cohort), f.Name, exact, f.Share.Ceil())
	}
	return b.String()
}

func kind(cohort bool) string {
	if cohort {
		return "cohort"
	}
	return "queue"
}
