package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// A copy that disappears from the connected cluster that admitted it was deleted there: by a user, a controller or the garbage collection
// of the worker cluster, or with its namespace. The Workload stays with that cluster, and the copy is created again:
//
//	copy deleted ─► job there removed ─► copy created again ─► admitted there ─► job created again (6b)
//	                                         └─ not admitted within WorkerLostTimeout, or deleted maxRecreations times in a row ─► Retry
//
// Meanwhile the Workload keeps its quota and its check stays Ready, with a message. An annotation of the Workload counts, so that a
// restart of the manager changes nothing.

// Limits of creating a copy again. The first time is immediate, the next ones wait 10, 20, 40 … 300 seconds. Deletions further apart than
// recreationReset are not in a row.
const (
	firstRecreation    = 10 * time.Second
	maxRecreationPause = 5 * time.Minute
	recreationReset    = 10 * time.Minute
	maxRecreations     = 6
)

// recreation is how often in a row a copy was created again, and when last, or since when its rest is being removed for the next time.
type recreation struct {
	at       time.Time
	count    int
	removing bool
}

const removing = "removing"

func (d *decider) lastRecreation(cluster string) recreation {
	parts := strings.Fields(d.w.Annotations[RecreatedAnnotation])
	if len(parts) < 3 || parts[0] != cluster {
		return recreation{}
	}
	at, err := time.Parse(time.RFC3339, parts[1])
	count, notNumber := strconv.Atoi(parts[2])
	if err != nil || notNumber != nil || count < 0 {
		return recreation{}
	}
	return recreation{at, count, len(parts) > 3 && parts[3] == removing}
}

func (d *decider) noteRecreation(cluster string, count int, state string) {
	d.annotate(RecreatedAnnotation, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", cluster, d.o.Now.UTC().Format(time.RFC3339), count, state)))
}

func (a recreation) wait(now time.Time) time.Duration {
	if a.count == 0 {
		return 0
	}
	return min(firstRecreation<<min(a.count-1, 10), maxRecreationPause) - now.Sub(a.at)
}

// rowOf returns the last recreation, zero if the copy is missing and that was another row.
func (d *decider) rowOf(c *Cluster) recreation {
	last := d.lastRecreation(c.Name)
	calm := d.o.Now.Sub(last.at) - recreationReset
	if c.Copy == nil && (calm >= d.WorkerLostTimeout || (calm >= 0 && !last.removing)) {
		return recreation{}
	}
	return last
}

func (d *decider) copyGone(c *Cluster) bool {
	last, now := d.rowOf(c), d.o.Now.Time
	since := now.Sub(last.at)
	switch {
	case d.WorkerLostTimeout == 0, slices.Contains(d.removed, c.Name), d.o.Job.ReplacedBy, c.Copy != nil && last == recreation{}:
		d.retryLost(remoteGone, strconv.Quote(c.Name), false)
	case c.Copy != nil && since >= d.WorkerLostTimeout:
		d.retryLost(remoteGone, fmt.Sprintf("its copy was deleted on %q, and not admitted there again within %s", c.Name, d.WorkerLostTimeout), true)
	case c.Copy != nil:
		d.requeueAfter(d.WorkerLostTimeout - since)
		d.reportRecreation(c, "was deleted there, and waits there again: "+d.waitsFor(c))
	case d.o.Job.Over: // the Workload finishes next
	case c.JobIsOver != nil:
		reason := kueue.ReasonFailed
		if c.JobIsOver.Success {
			reason = kueue.ReasonSucceeded
		}
		d.finish(c, reason, c.JobIsOver.Message)
	case c.HasJob, slices.Contains(d.leaving, c.Name): // the rest must not adopt the next copy
		d.removeRest(c, last)
	case last.count >= maxRecreations:
		d.retryLost(remoteGone, fmt.Sprintf("its copy was deleted on %q again and again", c.Name), true)
	case last.wait(now) > 0:
		d.requeueAfter(last.wait(now))
		d.reportRecreation(c, "was deleted there again, and is created after a while")
	default:
		d.recreate(c, last)
	}
	return true
}

// removeRest removes the rest of the copy and its job from the cluster. A finalizer of others may delay that.
func (d *decider) removeRest(c *Cluster, last recreation) {
	if last.removing && d.o.Now.Sub(last.at) >= d.WorkerLostTimeout {
		d.retryLost(remoteGone, fmt.Sprintf("its copy was deleted on %q, and its job is not gone after %s", c.Name, d.WorkerLostTimeout), true)
		return
	}
	if !last.removing {
		d.noteRecreation(c.Name, last.count, removing)
	}
	c.HasJob = true
	d.remove(c)
	d.requeueAfter(time.Second)
	d.reportRecreation(c, "was deleted there, and is created again once its job is gone")
}

// recreate creates the copy. It has the preemption gates of the local Workload: its cluster is chosen already.
func (d *decider) recreate(c *Cluster, last recreation) {
	d.noteRecreation(c.Name, last.count+1, "")
	next := d.newCopy()
	next.Spec.PreemptionGates = slices.Clone(d.w.Spec.PreemptionGates)
	next.Annotations[WithoutGateAnnotation] = "true"
	note := fmt.Sprintf("The copy of the workload was deleted on %q, and is created there again", c.Name)
	d.do(Step{Do: CreateCopy, Cluster: c.Name, Workload: next, Events: []lifecycle.Event{{Warning: true, Reason: EventReason, Note: note}}})
	d.reportRecreation(c, "was deleted there, and is created again")
	d.requeueAfter(deferred)
}

// reportRecreation writes the message of the check, which stays Ready. The first message is written at once.
func (d *decider) reportRecreation(c *Cluster, text string) {
	admitted := fmt.Sprintf("The workload was admitted on %q", c.Name)
	wait := tellEvery - d.o.Now.Sub(d.o.ReportedAt)
	if strings.HasPrefix(d.check.Message, admitted+". ["+CopyDeleted+"]") && !d.o.ReportedAt.IsZero() && wait > 0 {
		d.requeueAfter(wait)
		return
	}
	next := d.w.DeepCopy()
	if setCheck(next, d.o.Check, kueue.CheckStateReady, fmt.Sprintf("%s. [%s] Its copy %s", admitted, CopyDeleted, text), d.o.Now) {
		d.do(Step{Do: WriteStatus, Workload: next, Reported: true})
	}
}
