package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Decide finds what is to be done about a Workload. The rules are those of spec 40 §4.4, in their order.
func Decide(cfg *Config, o *Observed) Plan {
	d := &decider{Config: cfg, o: o, w: o.Local}
	d.check = CheckOf(d.w, o.Check)
	for i := range o.Clusters {
		c := o.Clusters[i]
		if c.Copy != nil && (c.Copy.DeletionTimestamp != nil || IsOfAnother(c.Copy, d.w)) {
			d.leaving = append(d.leaving, c.Name)
			c.HasJob, c.Copy = true, nil // removing it again lets it go
		}
		d.clusters = append(d.clusters, c)
	}
	if o.Gone || d.w.DeletionTimestamp != nil {
		d.rule("deleted", d.removeAll)
		return d.plan
	}
	if d.check == nil {
		return d.plan
	}
	for _, r := range []struct {
		name string
		run  func() bool
	}{
		{"rejected", d.rejected},
		{"owner", d.owner},
		{"1", d.replaced},
		{"2", d.over},
		{"skip", d.leaveSkipped},
		{"clusterName", d.onlyAdmitting},
		{"3", d.finished},
		{"4", d.evicted},
		{"release", d.release},
		{"external", d.told},
		{"5", d.outdated},
		{"6a", d.lost},
		{"6b", d.admitted},
		{"7", d.openGate},
		{"8", d.settled},
		{"9", d.dispatch},
	} {
		if d.rule(r.name, r.run) {
			break
		}
	}
	return d.plan
}

// decider is one decision being made.
type decider struct {
	*Config
	o        *Observed
	w        *kueue.Workload
	check    *kueue.AdmissionCheckState
	clusters []Cluster
	leaving  []string // where a copy is being deleted
	removed  []string // whose copy or job is removed in this plan
	ending   bool     // a job is removed in this plan
	plan     Plan
}

// rule applies one, and tells whether it ends the decision.
func (d *decider) rule(name string, run func() bool) bool {
	if !run() {
		return false
	}
	d.plan.Rule = name
	return true
}

func (d *decider) do(s Step) { d.plan.Steps = append(d.plan.Steps, s) }

// wake asks for a look after a while; the earliest counts.
func (d *decider) wake(after time.Duration) {
	after = max(after, time.Millisecond)
	if d.plan.After == 0 || after < d.plan.After {
		d.plan.After = after
	}
}

// lookAgain asks for a look after the time that a lost cluster has, if it has any: events bring the Workload back sooner.
func (d *decider) lookAgain() {
	if d.WorkerLostTimeout > 0 {
		d.wake(d.WorkerLostTimeout)
	}
}

// CheckOf is the state of a check of a Workload, nil if it has none of that name.
func CheckOf(w *kueue.Workload, name kueue.AdmissionCheckReference) *kueue.AdmissionCheckState {
	at := slices.IndexFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.Name == name })
	if at < 0 {
		return nil
	}
	return &w.Status.AdmissionChecks[at]
}

func (d *decider) cluster(name string) *Cluster {
	at := slices.IndexFunc(d.clusters, func(c Cluster) bool { return c.Name == name })
	if at < 0 {
		return nil
	}
	return &d.clusters[at]
}

func (d *decider) elastic() bool { return d.Elastic && job.IsElastic(d.w) }

// remove removes what a cluster holds, if it holds anything that can be reached. It counts as absent from then on.
func (d *decider) remove(c *Cluster) {
	if c.Connected && (c.Copy != nil || c.HasJob) {
		runs := c.HasJob && !d.o.Job.Carried // what a controller of its own leaves there stops nothing
		d.do(Step{Do: RemoveCopy, Cluster: c.Name, Blocks: runs})
		d.ending = d.ending || runs
		d.removed = append(d.removed, c.Name)
		c.Copy, c.HasJob = nil, false
	}
}

// removeOthers removes what all clusters but one hold, and tells whether that one has to wait for it: until a job that was removed is gone,
// the one must not begin to run it. One that has it goes on, however long the other takes.
func (d *decider) removeOthers(keep string) bool {
	for i := range d.clusters {
		if c := &d.clusters[i]; c.Name != keep {
			d.remove(c)
			d.ending = d.ending || (c.Busy && c.HasJob) // what is going on there will be over soon
		}
	}
	if !d.ending || !begins(d.cluster(keep)) {
		return false
	}
	d.wake(time.Second)
	return true
}

// begins says whether the job on a cluster may begin next, or is to count as ended though there is none.
func begins(c *Cluster) bool {
	return c != nil && c.Connected && c.Copy != nil && !c.HasJob && !lifecycle.IsFinished(c.Copy)
}

// removeAll removes everything from all clusters. Garbage collection does the rest once they return.
func (d *decider) removeAll() bool {
	for i := range d.clusters {
		d.remove(&d.clusters[i])
	}
	return true
}

// rejected leaves a Workload alone whose check was rejected: it is going to be evicted, and taken back then. Copies that no worker has
// admitted are removed at once (spec: 40 §4.7).
func (d *decider) rejected() bool {
	switch {
	case d.check.State != kueue.CheckStateRejected:
		return false
	case lifecycle.IsFinished(d.w) || !lifecycle.IsReserved(d.w):
		return d.over()
	case lifecycle.IsEvicted(d.w):
		return false
	}
	if d.admitting() == nil {
		d.removeAll()
	}
	return true
}

// owner rejects a Workload whose job cannot be sent to workers, or is not to be. One that is evicted is sent nowhere, and what runs of it is
// taken back.
func (d *decider) owner() bool {
	if lifecycle.IsFinished(d.w) || lifecycle.IsEvicted(d.w) {
		return false
	}
	switch {
	case !d.o.Job.Adapter && d.o.Job.Kind == "":
		return d.reject("The workload has no owner that could be sent to a worker cluster")
	case !d.o.Job.Adapter:
		return d.reject(fmt.Sprintf("No multikueue adapter found for owner kind %s", d.o.Job.Kind))
	case !d.o.Job.Missing && !d.o.Job.Managed:
		return d.reject(fmt.Sprintf("The owner is not managed by Kueue: Expecting %s to be %q not %q",
			cmp.Or(d.o.Job.Field, "spec.managedBy"), cmp.Or(d.o.Job.Wanted, kueue.MultiKueueControllerName), d.o.Job.Manager))
	}
	return false
}

func (d *decider) reject(message string, warnings ...Warning) bool {
	n := len(d.plan.Steps)
	d.writeCheck(kueue.CheckStateRejected, message)
	if len(d.plan.Steps) > n {
		d.plan.Steps[n].Warnings = warnings
	}
	return true
}

// replaced (rule 1) leaves slices alone whose pods belong to another slice by now, or still do.
func (d *decider) replaced() bool {
	if !d.elastic() {
		return false
	}
	if lifecycle.IsFinished(d.w) {
		if lifecycle.Condition(d.w, kueue.WorkloadFinished).Reason != kueue.ReasonWorkloadSliceReplaced || !d.o.Job.Others {
			return false
		}
		if c := d.cluster(d.w.Status.ClusterName); c != nil && c.Connected && c.HasJob { // it has not been told of the other yet
			d.do(Step{Do: MirrorJob, Cluster: c.Name})
		}
		return true
	}
	return !lifecycle.IsReserved(d.w) && d.o.Job.Forerunner && !lifecycle.IsEvicted(d.w) // one that failed is taken back; the job names the other
}

// over (rule 2) removes everything of a Workload that is finished or holds no quota. Without a job there is nothing else to do
// about one either.
func (d *decider) over() bool {
	done := lifecycle.IsFinished(d.w) || !lifecycle.IsReserved(d.w)
	if done {
		d.removeFinished()
		if len(d.plan.Steps) == 0 && d.o.Job.Silent && d.o.Job.Active && !lifecycle.IsFinished(d.w) && !d.mayReturn() {
			d.quiet() // it was put on hold, which frees the quota at once
		}
		if slices.ContainsFunc(d.clusters, func(c Cluster) bool { return c.Listed && !c.Connected }) {
			d.lookAgain()
		}
	}
	return done || d.o.Job.Missing
}

// removeFinished removes everything, but a job that has finished on its worker is left for a while: its pods have logs.
func (d *decider) removeFinished() {
	left := time.Duration(0)
	if end := lifecycle.Condition(d.w, kueue.WorkloadFinished); end != nil && end.Status == metav1.ConditionTrue {
		left = d.Retention - d.o.Now.Sub(end.LastTransitionTime.Time)
	}
	for i := range d.clusters {
		c := &d.clusters[i]
		if left > 0 && c.Name == d.w.Status.ClusterName && c.Copy != nil && lifecycle.IsFinished(c.Copy) {
			d.wake(left)
			continue
		}
		d.remove(c)
	}
}

// leaveSkipped removes copies that wait on clusters where the job cannot be. Of a Workload that is evicted one may run (spec: 40 §4.13.5).
func (d *decider) leaveSkipped() bool {
	if d.check.State != kueue.CheckStatePending || lifecycle.IsEvicted(d.w) {
		return false
	}
	for i := range d.clusters {
		if c := &d.clusters[i]; c.Fault != nil && c.Fault.Skip {
			d.remove(c)
		}
	}
	return false
}

// onlyAdmitting removes every other copy of a Workload that has its cluster, whatever those say, and whether its own cluster can
// be reached or not: a stale copy on a worker that comes back must not win over the one that runs.
func (d *decider) onlyAdmitting() bool {
	if d.w.Status.ClusterName == "" {
		return false
	}
	return d.removeOthers(d.w.Status.ClusterName)
}

// first finds, among the copies on clusters that count, the one whose condition has been true for longest. Clocks of workers
// differ, so among those that say nothing else any is as good; the name decides between equals. among, if it is
// given, restricts the choice.
func (d *decider) first(conditionType string, among ...func(*Cluster) bool) *Cluster {
	var found *Cluster
	for i := range d.clusters {
		c := &d.clusters[i]
		if !c.Listed || !c.Connected || c.Copy == nil || (len(among) > 0 && !among[0](c)) {
			continue
		}
		at := lifecycle.Condition(c.Copy, conditionType)
		if at == nil || at.Status != metav1.ConditionTrue {
			continue
		}
		if found != nil {
			best := lifecycle.Condition(found.Copy, conditionType)
			if order := cmp.Or(at.LastTransitionTime.Compare(best.LastTransitionTime.Time), cmp.Compare(c.Name, found.Name)); order >= 0 {
				continue
			}
		}
		found = c
	}
	return found
}

// admitting is the cluster whose copy is admitted. While the check waits only a nominated one can be: a copy that an earlier run left
// behind elsewhere cannot become the cluster of the Workload, and is removed by rule 9. One that has the job goes before others: it was
// chosen, which may not be written down yet, and another worker may have admitted its copy since, by its clock even earlier.
func (d *decider) admitting() *Cluster {
	counts := func(*Cluster) bool { return true }
	if d.check.State == kueue.CheckStatePending && d.w.Status.ClusterName == "" && !lifecycle.IsEvicted(d.w) {
		counts = func(c *Cluster) bool { return slices.Contains(d.w.Status.NominatedClusterNames, c.Name) }
	}
	if c := d.first(kueue.WorkloadAdmitted, func(c *Cluster) bool { return c.HasJob && counts(c) }); c != nil {
		return c
	}
	return d.first(kueue.WorkloadAdmitted, counts)
}

// finished (rule 3) ends the Workload as its copy did. One that ended because it did not describe its job is tried again.
func (d *decider) finished() bool {
	c := d.first(kueue.WorkloadFinished)
	if c == nil {
		return false
	}
	end := lifecycle.Condition(c.Copy, kueue.WorkloadFinished)
	switch {
	case end.Reason == kueue.ReasonOwnerNotFound:
		return d.jobLost(c)
	case end.Reason == kueue.ReasonWorkloadSliceReplaced && d.elastic():
		return d.handedOver(c)
	case end.Reason == kueue.ReasonOutOfSync && !d.elastic():
		return d.mismatched(c, end.Message)
	}
	d.finish(c, end.Reason, end.Message)
	return true
}

// finish ends the Workload as its job on a cluster ended, whose status is copied a last time.
func (d *decider) finish(c *Cluster, reason, message string) {
	next := d.w.DeepCopy()
	d.Lifecycle.Finish(next, reason, message, d.o.Now)
	step := Step{Do: WriteStatus, Workload: next}
	if d.o.SyncFailures <= maxSyncRetries {
		d.do(Step{Do: MirrorJob, Cluster: c.Name, Blocks: true, Last: true})
	} else {
		d.do(Step{Do: MirrorJob, Cluster: c.Name, Plain: true})
		step.Events = []lifecycle.Event{{Warning: true, Reason: EventReason, Note: fmt.Sprintf(
			"[%s] The job finished on %q, and no more than its plain status could be copied, if that: %s", StatusSync, c.Name, textOf(c.Fault))}}
	}
	d.do(step)
}

// mismatched is about a copy that ended because it does not describe its job: the Workload is sent again. While its check waits, a copy of an
// earlier run, or one whose admission was not written down, is removed, and its cluster left out for a while. The end of the job is
// mirrored when the Workload is evicted for it.
func (d *decider) mismatched(c *Cluster, message string) bool {
	switch {
	case lifecycle.IsEvicted(d.w) && d.o.Job.Silent: // nothing there says when its pods have ended
		d.remove(c)
		d.wake(time.Second)
		return true
	case lifecycle.IsEvicted(d.w):
		d.ended(c)
		return true
	case d.check.State == kueue.CheckStatePending:
		d.remove(c)
		d.leaveOut(c, message)
		return d.finished()
	case d.check.State != kueue.CheckStateReady:
		return true
	case d.o.Job.Transformed && d.o.Job.OutOfSync >= maxOutOfSync && d.check.RetryCount != nil && *d.check.RetryCount >= maxOutOfSync:
		message = fmt.Sprintf("[%s] The copies of the job do not match its workload, since mutations change their pod sets: %s", external.ChangedPodSets, message)
		return d.reject(message, Warning{external.ChangedPodSets, message})
	}
	d.retry(fmt.Sprintf("The workload is out of sync on %q: %s", c.Name, message), true)
	d.plan.Steps[len(d.plan.Steps)-1].OutOfSync = true
	return true
}

// jobLost is about a copy that its worker ended since the job is gone there, while the job here is not over. A pod that is deleted since the
// worker preempts it is evicted, and sent again. A job that somebody else deleted there is created there again, with a new copy.
func (d *decider) jobLost(c *Cluster) bool {
	running := d.check.State == kueue.CheckStateReady && !lifecycle.IsEvicted(d.w)
	if running && lifecycle.IsEvicted(c.Copy) {
		d.retry(fmt.Sprintf("The job is gone from %q", c.Name), true)
		return true
	}
	d.remove(c)
	if running {
		d.wake(time.Second)
	}
	return running
}

// maxOutOfSync is how often copies of a job that is transformed may be out of sync before its check is rejected.
const maxOutOfSync = 3

// maxSyncRetries is how often the last look at a finished job is repeated before the Workload finishes without it (spec: 40 §4.13.5).
const maxSyncRetries = 5

func textOf(f *Fault) string {
	if f == nil {
		return "it failed repeatedly"
	}
	return f.Text
}

// evicted (rules 4a and 4b) follows the eviction of the copy: it asks for another try, or mirrors the end of a job that the
// manager itself takes back.
func (d *decider) evicted() bool {
	c := d.first(kueue.WorkloadEvicted)
	switch {
	case c == nil:
		return false
	case lifecycle.IsEvicted(d.w) && d.runs() != nil: // rule 6b takes it back; the end of another says nothing about it
		d.remove(c)
		return d.evicted()
	case d.o.Job.Alone && c.HasJob: // nothing there stops it
		d.do(Step{Do: EndJob, Cluster: c.Name})
		d.wake(time.Second)
		return true
	case lifecycle.IsEvicted(d.w):
		d.ended(c)
		return true
	case d.check.State == kueue.CheckStateReady:
		d.retry(fmt.Sprintf("Workload evicted on worker cluster: %q, reason: %s", c.Name, lifecycle.Condition(c.Copy, kueue.WorkloadEvicted).Message), false)
		return true
	}
	return false
}

// ended mirrors the end of the job of a Workload that is evicted on both sides.
func (d *decider) ended(c *Cluster) {
	switch {
	case d.removeOthers(c.Name): // a run that a lost worker brought back
	case d.o.Job.Silent && lifecycle.IsReserved(c.Copy): // its worker gives that back when the last pod has ended
	case c.HasJob && !(d.o.Job.Gated && !lifecycle.IsReserved(c.Copy)): // what was deleted says nothing any more
		d.do(Step{Do: MirrorJob, Cluster: c.Name})
	case d.o.Job.Active && !d.mayReturn():
		d.quiet()
	}
}

// runs is the cluster where the job runs: its copy is admitted, and not evicted.
func (d *decider) runs() *Cluster {
	return d.first(kueue.WorkloadAdmitted, func(c *Cluster) bool { return c.HasJob && !lifecycle.IsEvicted(c.Copy) })
}

// release makes an evicted Workload's job inactive once nothing of it can run: no cluster holds anything of it, or those that might
// have been lost for too long (spec: 40 §4.7). The job's own controller is far away and will not say so. What a cluster holds that no other
// rule takes back, a copy that was never admitted or a job without one, is removed: it would hold the quota for ever.
func (d *decider) release() bool {
	if !lifecycle.IsEvicted(d.w) || !d.o.Job.Active { // without a reservation rule 2 has decided
		return false
	}
	held := false
	for i := range d.clusters {
		c := &d.clusters[i]
		switch {
		case !c.Connected || (c.Copy == nil && !c.HasJob):
		case c.Listed && c.Copy != nil && lifecycle.IsAdmitted(c.Copy):
			return false
		default:
			held = true
			d.remove(c)
		}
	}
	if held {
		d.wake(time.Second)
		return true
	}
	if d.mayReturn() {
		return false
	}
	d.quiet()
	return true
}

// quiet makes the local job one of which no pod seems to run, so that its quota is given back.
func (d *decider) quiet() {
	if !d.o.Job.Silent {
		d.do(Step{Do: QuietJob})
		return
	}
	next := d.w.DeepCopy()
	if d.Lifecycle.RunNowhere(next, d.o.Now) {
		d.do(Step{Do: WriteStatus, Workload: next})
	}
}

// mayReturn says whether a cluster that is lost still counts as one that may run the job, and asks for a look when it does not.
func (d *decider) mayReturn() bool {
	for i := range d.clusters {
		if c := &d.clusters[i]; !c.Connected && c.Listed {
			if left := d.grace(c); left > 0 {
				d.wake(left)
				return true
			}
		}
	}
	return false
}

// grace is how long a lost cluster still counts as one that may return. A restart of the manager grants it anew, up to three
// times the whole of it since the cluster was really lost (spec: 40 §4.14).
func (d *decider) grace(c *Cluster) time.Duration {
	left := d.WorkerLostTimeout - d.o.Now.Sub(c.LostSince)
	if !c.FirstLost.IsZero() {
		left = min(left, 3*d.WorkerLostTimeout-d.o.Now.Sub(c.FirstLost))
	}
	return left
}

// lost (rule 6a) asks for another try when the cluster that had admitted the Workload lost it, or is lost itself.
func (d *decider) lost() bool {
	if d.stranded() {
		return true
	}
	if d.check.State != kueue.CheckStateReady || d.admitting() != nil {
		return false
	}
	name := d.w.Status.ClusterName
	c := d.cluster(name)
	switch {
	case name == "":
		d.retry("Unexpected workload state: ready without an admitting remote", false)
	case c == nil || !c.Listed:
		d.retry(fmt.Sprintf("Admitting remote %q is not in the configuration any more", name), false)
	case !c.Connected:
		if left := d.grace(c); left > 0 {
			d.wake(left)
			return true
		}
		d.retry(fmt.Sprintf("Admitting remote lost: %q", name), false)
		d.plan.Steps[len(d.plan.Steps)-1].Lost = true
	default:
		return d.gone(c)
	}
	return true
}
