package cycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// scannedFollowers is how many followers of a blocked head are candidates in a cycle; of them maxFollowers are evaluated.
const scannedFollowers = 512

// admitFollowers gives the followers of blocked heads of strict queues with a reserved start their turns, after all heads. They are admitted
// or not, and never preempt.
func (c *round) admitFollowers() {
	for _, e := range slices.Clip(c.entries) {
		if s := e.q.start; e.q.Strict && s != nil && s.at != 0 && s.wl == e.wl && !e.reserving && !e.forecast && !e.wl.Reserved {
			c.admitBehind(e)
		}
	}
}

// admitBehind admits followers of a head. What the head keeps from other queues is free for them: its start protects it.
func (c *round) admitBehind(e *entry) {
	if own := slices.IndexFunc(c.booked, func(b booking) bool { return b.q == e.q && b.waits }); own >= 0 {
		kept := c.booked[own].usage
		c.w.Ledger.Release(e.q.Node, kept)
		c.booked[own].usage = ledger.Usage{}
		defer func() {
			c.w.Ledger.Charge(e.q.Node, kept)
			c.booked[own].usage = kept
		}()
	}
	var refused []int32 // classes
	for _, wl := range e.q.Pending.Behind(e.wl, scannedFollowers, nil) {
		if len(refused) == maxFollowers {
			return
		}
		if slices.Contains(refused, wl.Class) {
			continue
		}
		f := c.w.entry(e.q, wl)
		c.followers++
		mark := c.w.Ledger.Mark()
		c.releaseReservations() // as for heads: nominations find afterwards what is kept
		c.w.nominate(f)
		c.w.Ledger.Rollback(mark)
		if !c.admitFollower(f) {
			e.again = e.again || f.again
			refused = append(refused, wl.Class)
		}
		c.w.spare = append(c.w.spare, f)
	}
}

func (c *round) admitFollower(e *entry) bool {
	if e.barred != "" || e.got.Mode != flavor.Fit || (c.w.BlockAdmission && c.w.unready > 0) || c.migrates(e) {
		return false
	}
	if !c.fits(e.q, e.got.Usage, e.replaces) || !c.fitsForReal(e, e.got.Usage) {
		e.again = c.passing
		return false
	}
	if by, _ := c.heldInAll(e); by != nil {
		c.wait(e, trace.WaitingForQuota, c.heldBackBy(e, by))
		return false
	}
	c.admit(e)
	return true
}

// migrates reports whether a variant may only be admitted once another one of its job is evicted.
func (c *round) migrates(e *entry) bool { return e.wl.Variant && len(c.w.Migrating(e.wl)) > 0 }

// holdBack refuses a head that fits and would move the start of a queue. It is evaluated again when quota is released, or a start moves.
func (c *round) holdBack(e *entry, by *start) {
	note := c.heldBackBy(e, by)
	c.findStart(e)
	record := c.record(e)
	record.Verdict, record.Reason, record.Note = trace.Waits, trace.WaitingForQuota, note
	wants := c.w.wanted(e)
	c.w.wakesOn(record, wants)
	if !e.q.Strict {
		c.w.setInadmissible(e.q, e.wl, wants)
	}
	e.wl.Scan = nil
	c.decide(e, Decision{Attempt: record})
}

// heldBackBy is why a head that fits is not admitted. The workload with the start is not named: it may be of another namespace.
func (c *round) heldBackBy(e *entry, by *start) string {
	run := "it has no time limit (maximumExecutionTimeSeconds)"
	if e.wl.Bound > 0 {
		run = fmt.Sprintf("it may run for %s", time.Duration(e.wl.Bound))
	}
	return fmt.Sprintf("%s, and ClusterQueue %s has reserved what it would use for an earlier workload, which starts by %s",
		run, by.q.Name, trace.Time(int64(by.at)))
}

// backfilled is the note about an admission before workloads that have a start.
func (c *round) backfilled(wl *workload.Workload) string {
	if wl.Bound == 0 {
		return "backfilled beside reserved starts"
	}
	return "backfilled, ends by " + trace.Time(int64(c.now+wl.Bound))
}
