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

// A copy that is gone from the connected worker that had admitted it was deleted there: by a user or a controller of the worker, by its garbage
// collection after somebody deleted the job, or with its namespace. The Workload stays with that worker, and the copy is created there again:
//
//	copy deleted ─► job there removed ─► copy created again ─► admitted there ─► job created again (6b)
//	                                           └─ not admitted within WorkerLostTimeout, or deleted maxAgain times in a row ─► Retry
//
// Meanwhile the Workload keeps its quota here and its check stays Ready, with a message that says so. How often and when is an annotation of the
// Workload, so that a restart of the manager neither hurries nor forgets it.

// Limits of creating a copy again. The first time is immediate, the next ones wait 10, 20, 40 … 300 seconds. Deletions further apart than
// againCalm are not in a row.
const (
	firstAgain = 10 * time.Second
	lastAgain  = 5 * time.Minute
	againCalm  = 10 * time.Minute
	maxAgain   = 6
)

// again is how often in a row a copy was created again, and when last, or since when what is left there is being removed for the next time.
type again struct {
	at       time.Time
	count    int
	removing bool
}

const removing = "removing"

// lastAgain reads that from the Workload; zero if no copy was created again on the cluster lately.
func (d *decider) lastAgain(cluster string) again {
	parts := strings.Fields(d.w.Annotations[AgainAnnotation])
	if len(parts) < 3 || parts[0] != cluster {
		return again{}
	}
	at, err := time.Parse(time.RFC3339, parts[1])
	count, notNumber := strconv.Atoi(parts[2])
	if err != nil || notNumber != nil || count < 0 {
		return again{}
	}
	return again{at, count, len(parts) > 3 && parts[3] == removing}
}

// noteAgain writes it down.
func (d *decider) noteAgain(cluster string, count int, state string) {
	d.annotate(AgainAnnotation, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", cluster, d.o.Now.UTC().Format(time.RFC3339), count, state)))
}

// wait is how long the next creation has to wait.
func (a again) wait(now time.Time) time.Duration {
	if a.count == 0 {
		return 0
	}
	return min(firstAgain<<min(a.count-1, 10), lastAgain) - now.Sub(a.at)
}

// rowOf is lastAgain, zero if the copy is gone and that was another row.
func (d *decider) rowOf(c *Cluster) again {
	last := d.lastAgain(c.Name)
	since, calm := d.o.Now.Sub(last.at), againCalm
	if c.Copy == nil && (since >= calm+d.WorkerLostTimeout || (since >= calm && !last.removing)) {
		return again{}
	}
	return last
}

// gone is about a Workload whose cluster can be reached, and has no admitted copy of it.
func (d *decider) gone(c *Cluster) bool {
	last, now := d.rowOf(c), d.o.Now.Time
	since := now.Sub(last.at)
	switch {
	case d.WorkerLostTimeout == 0, slices.Contains(d.removed, c.Name), d.o.Job.Heir, c.Copy != nil && last == again{}:
		d.retry(fmt.Sprintf("Admitting remote no longer exists: %q", c.Name), false)
	case c.Copy != nil && since >= d.WorkerLostTimeout:
		d.retry(fmt.Sprintf("Admitting remote no longer exists: its copy was deleted on %q, and not admitted there again within %s", c.Name, d.WorkerLostTimeout), true)
	case c.Copy != nil:
		d.wake(d.WorkerLostTimeout - since)
		d.tellAgain(c, "was deleted there, and waits there again: "+d.waitsFor(c))
	case d.o.Job.Over: // which its Workload is about to say
	case c.JobIsOver != nil:
		reason := kueue.ReasonFailed
		if c.JobIsOver.Success {
			reason = kueue.ReasonSucceeded
		}
		d.finish(c, reason, c.JobIsOver.Message)
	case c.HasJob, slices.Contains(d.leaving, c.Name): // what is there must not adopt the next copy
		d.removeRest(c, last)
	case last.count >= maxAgain:
		d.retry(fmt.Sprintf("Admitting remote no longer exists: its copy was deleted on %q again and again", c.Name), true)
	case last.wait(now) > 0:
		d.wake(last.wait(now))
		d.tellAgain(c, "was deleted there again, and is created after a while")
	default:
		d.createAgain(c, last)
	}
	return true
}

// removeRest removes what is left of the copy and its job on the cluster. Somebody else's finalizer may keep it there.
func (d *decider) removeRest(c *Cluster, last again) {
	if last.removing && d.o.Now.Sub(last.at) >= d.WorkerLostTimeout {
		d.retry(fmt.Sprintf("Admitting remote no longer exists: its copy was deleted on %q, and its job is not gone after %s", c.Name, d.WorkerLostTimeout), true)
		return
	}
	if !last.removing {
		d.noteAgain(c.Name, last.count, removing)
	}
	c.HasJob = true
	d.remove(c)
	d.wake(time.Second)
	d.tellAgain(c, "was deleted there, and is created again once its job is gone")
}

// createAgain creates the copy. It has the preemption gates of the local Workload: its worker was chosen before.
func (d *decider) createAgain(c *Cluster, last again) {
	d.noteAgain(c.Name, last.count+1, "")
	next := d.newCopy()
	next.Spec.PreemptionGates = slices.Clone(d.w.Spec.PreemptionGates)
	note := fmt.Sprintf("The copy of the workload was deleted on %q, and is created there again", c.Name)
	d.do(Step{Do: CreateCopy, Cluster: c.Name, Workload: next, Dispatched: true, Events: []lifecycle.Event{{Warning: true, Reason: EventReason, Note: note}}})
	d.tellAgain(c, "was deleted there, and is created again")
	d.wake(deferred)
}

// tellAgain says on the check, which stays Ready, what becomes of the copy. The first such message is written at once.
func (d *decider) tellAgain(c *Cluster, text string) {
	admitted := fmt.Sprintf("The workload was admitted on %q", c.Name)
	wait := tellEvery - d.o.Now.Sub(d.o.ToldAt)
	if strings.HasPrefix(d.check.Message, admitted+". ["+CopyDeleted+"]") && !d.o.ToldAt.IsZero() && wait > 0 {
		d.wake(wait)
		return
	}
	next := d.w.DeepCopy()
	if setCheck(next, d.o.Check, kueue.CheckStateReady, fmt.Sprintf("%s. [%s] Its copy %s", admitted, CopyDeleted, text), d.o.Now) {
		d.do(Step{Do: WriteStatus, Workload: next, Told: true})
	}
}
