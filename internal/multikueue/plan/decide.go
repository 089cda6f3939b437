package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Decide decides what to do about a Workload, by the rules of spec 40 §4.4 in their order.
func Decide(cfg *Config, o *Observed) Plan {
	d := &decider{Config: cfg, o: o, w: o.Local}
	d.check = CheckOf(d.w, o.Check)
	for i := range o.Clusters {
		c := o.Clusters[i]
		if c.Copy != nil && (c.Copy.DeletionTimestamp != nil || IsOfAnother(c.Copy, d.w)) {
			d.leaving = append(d.leaving, c.Name)
			c.HasJob, c.Copy = true, nil // removing it again removes its finalizer
		}
		d.clusters = append(d.clusters, c)
	}
	if o.Gone || d.w.DeletionTimestamp != nil {
		d.rule("deleted", d.removeAll)
		return d.plan
	}
	if d.check == nil {
		d.rule("unchecked", d.unchecked)
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
		{"skip", d.removeSkipped},
		{"clusterName", d.onlyAdmitting},
		{"3", d.finished},
		{"4", d.evicted},
		{"release", d.release},
		{"external", d.requested},
		{"5", d.outdated},
		{"6a", d.lost},
		{"unclear", d.unclear},
		{"6b", d.admitted},
		{"7", d.openGate},
		{"8", d.notWaiting},
		{"9", d.dispatch},
	} {
		if d.rule(r.name, r.run) {
			break
		}
	}
	return d.plan
}

type decider struct {
	*Config
	o        *Observed
	w        *kueue.Workload
	check    *kueue.AdmissionCheckState
	clusters []Cluster
	leaving  []string // clusters where a copy is being deleted
	removed  []string // clusters whose copy or job this plan removes
	ending   bool     // this plan removes a job
	plan     Plan
}

func (d *decider) rule(name string, run func() bool) bool {
	if !run() {
		return false
	}
	d.plan.Rule = name
	return true
}

func (d *decider) do(s Step) { d.plan.Steps = append(d.plan.Steps, s) }

// requeueAfter asks for another decision after a delay; the shortest counts.
func (d *decider) requeueAfter(after time.Duration) {
	after = max(after, time.Millisecond)
	if d.plan.After == 0 || after < d.plan.After {
		d.plan.After = after
	}
}

// requeueAtLoss asks for another decision when the time of lost clusters is over: events come sooner.
func (d *decider) requeueAtLoss() {
	if d.WorkerLostTimeout > 0 {
		d.requeueAfter(d.WorkerLostTimeout)
	}
}

// CheckOf returns the state of a check, nil if the Workload does not have it.
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

// remove removes the copy and the job from a connected cluster, which counts as empty from then on.
func (d *decider) remove(c *Cluster) {
	if c.Connected && (c.Copy != nil || c.HasJob) {
		runs := c.HasJob && !d.o.Job.Carried // the job of an external controller does not stop anything
		d.do(Step{Do: RemoveCopy, Cluster: c.Name, Blocks: runs})
		d.ending = d.ending || runs
		d.removed = append(d.removed, c.Name)
		c.Copy, c.HasJob = nil, false
	}
}

// removeOthers removes the copies from all clusters but one, and returns whether that one has to wait: until a removed job is deleted it
// must not start the job. If it already has the job it does not wait.
func (d *decider) removeOthers(keep string) bool {
	for i := range d.clusters {
		if c := &d.clusters[i]; c.Name != keep {
			d.remove(c)
			d.ending = d.ending || (c.answersSoon() && c.HasJob) || d.mayBeChosen(c)
		}
	}
	if !d.ending || !mayBegin(d.cluster(keep)) {
		return false
	}
	d.requeueAfter(time.Second)
	return true
}

// mayBeChosen reports whether the manager may have given the job to a cluster before it was restarted: the choice is written after that.
func (d *decider) mayBeChosen(c *Cluster) bool {
	return c.Untried && c.Listed && d.w.Status.ClusterName == "" && slices.Contains(d.w.Status.NominatedClusterNames, c.Name)
}

// mayBegin reports whether the job on a cluster may start next, or counts as ended without existing.
func mayBegin(c *Cluster) bool {
	return c != nil && c.Connected && c.Copy != nil && !c.HasJob && !lifecycle.IsFinished(c.Copy)
}

func (d *decider) removeAll() bool {
	for i := range d.clusters {
		d.remove(&d.clusters[i])
	}
	return true
}

// unchecked removes everything of a Workload that lost its check, unless it may run on a worker cluster and is not evicted. A copy that does
// not name the Workload may be another manager's.
func (d *decider) unchecked() bool {
	d.clusters = slices.DeleteFunc(d.clusters, func(c Cluster) bool { return c.Copy != nil && c.Copy.Annotations[OriginUIDAnnotation] == "" })
	switch {
	case !lifecycle.MayRunElsewhere(d.w):
		return d.over() || d.removeAll()
	case !lifecycle.IsEvicted(d.w):
		return false
	}
	d.removeAll()
	if len(d.plan.Steps) == 0 && RanElsewhere(d.o) && !d.mayReturn() {
		d.quiet()
	}
	return true
}

// RanElsewhere reports whether the job of an evicted Workload still shows pods that ran on a worker cluster. A job of a kind that is sent whatever
// manages it may have run here.
func RanElsewhere(o *Observed) bool {
	sent := o.Job.Gated || (o.Job.Manager != "" && o.Job.Manager == o.Job.Wanted)
	return lifecycle.IsEvicted(o.Local) && lifecycle.MayRunElsewhere(o.Local) && sent && o.Job.Active
}

// rejected leaves a Workload alone whose check is rejected: its eviction follows. Copies that no worker cluster has admitted are removed
// at once (spec: 40 §4.7).
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

// owner rejects a Workload whose job cannot or must not be dispatched. An evicted one is not dispatched, and its running job is stopped.
func (d *decider) owner() bool {
	if lifecycle.IsFinished(d.w) || lifecycle.IsEvicted(d.w) {
		return false
	}
	switch {
	case !d.o.Job.Adapter && d.o.Job.Kind == "":
		return d.reject("The workload has no owner that could be sent to a worker cluster")
	case !d.o.Job.Adapter:
		return d.reject(fmt.Sprintf("No multikueue adapter found for owner kind %s", d.o.Job.Kind))
	case !d.o.Job.Missing && !d.o.Job.Managed && d.o.Job.Err == nil:
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

func (d *decider) replaced() bool {
	if !d.elastic() {
		return false
	}
	if lifecycle.IsFinished(d.w) {
		if lifecycle.Condition(d.w, kueue.WorkloadFinished).Reason != kueue.ReasonWorkloadSliceReplaced || !d.o.Job.Others {
			return false
		}
		if c := d.cluster(d.w.Status.ClusterName); c != nil && c.Connected && c.HasJob { // it is not resized yet
			d.do(Step{Do: MirrorJob, Cluster: c.Name})
		}
		return true
	}
	return !lifecycle.IsReserved(d.w) && d.o.Job.Replaces && !lifecycle.IsEvicted(d.w) // a failed replacement is removed; the job names the other
}

// over (rule 2) removes everything of a Workload that is finished or has no reservation, and leaves a Workload without a job alone.
func (d *decider) over() bool {
	done := lifecycle.IsFinished(d.w) || !lifecycle.IsReserved(d.w)
	if done {
		d.removeFinished()
		if len(d.plan.Steps) == 0 && d.isHeld() && !d.mayReturn() {
			d.quiet()
		}
		if slices.ContainsFunc(d.clusters, func(c Cluster) bool { return c.Listed && !c.Connected }) {
			d.requeueAtLoss()
		}
	}
	return done || d.o.Job.Missing
}

// isHeld reports whether the job seems to run although it was put on hold, which frees the quota at once. Gated kinds that are not silent are
// inactive before.
func (d *decider) isHeld() bool {
	facts := &d.o.Job
	return facts.Active && !lifecycle.IsFinished(d.w) && !facts.Others && (facts.Silent || (facts.Managed && !facts.Gated))
}

// removeFinished removes everything, except that a finished job is retained for a while: its pods have logs.
func (d *decider) removeFinished() {
	left := time.Duration(0)
	if end := lifecycle.Condition(d.w, kueue.WorkloadFinished); end != nil && end.Status == metav1.ConditionTrue {
		left = d.Retention - d.o.Now.Sub(end.LastTransitionTime.Time)
	}
	for i := range d.clusters {
		c := &d.clusters[i]
		if left > 0 && c.Name == d.w.Status.ClusterName && c.Copy != nil && lifecycle.IsFinished(c.Copy) {
			d.requeueAfter(left)
			continue
		}
		d.remove(c)
	}
}

// removeSkipped removes waiting copies from clusters that cannot take the job. A copy of an evicted Workload may run (spec: 40 §4.13.5).
func (d *decider) removeSkipped() bool {
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

// onlyAdmitting removes every other copy of a Workload that has its cluster, whether that is connected or not: a stale copy on a cluster
// that returns must not win over the running one.
func (d *decider) onlyAdmitting() bool {
	if d.w.Status.ClusterName == "" {
		return false
	}
	return d.removeOthers(d.w.Status.ClusterName)
}

// first returns the cluster whose copy has the condition for the longest time. Clocks of worker clusters differ, so any is as good; the
// name decides between equals. among restricts the choice.
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

// admitting returns the cluster whose copy is admitted. While the check waits only a nominated one counts: rule 9 removes copies of an
// earlier run elsewhere. A cluster with the job comes first: it was chosen, even if that is not written yet and another cluster admitted
// its copy since.
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

// finished (rule 3) finishes the Workload as its copy did. A copy that is out of sync with its job is retried.
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

// mismatched handles a copy that ended because it does not match its job: the Workload is retried. While its check waits, a copy of an
// earlier run, or one whose admission was not written, is removed, and its cluster skipped for a while. For an evicted Workload the end
// of the job is mirrored.
func (d *decider) mismatched(c *Cluster, message string) bool {
	switch {
	case lifecycle.IsEvicted(d.w) && d.o.Job.Silent: // no status reports when its pods have ended
		d.remove(c)
		d.requeueAfter(time.Second)
		return true
	case lifecycle.IsEvicted(d.w):
		d.ended(c)
		return true
	case d.check.State == kueue.CheckStatePending:
		d.remove(c)
		d.skipCluster(c, message)
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

// jobLost handles a copy that ended because its job was deleted while the local job is not over. A pod that its worker cluster preempts
// is evicted and dispatched again. A job that others deleted is created again, with a new copy.
func (d *decider) jobLost(c *Cluster) bool {
	running := d.check.State == kueue.CheckStateReady && !lifecycle.IsEvicted(d.w)
	if running && lifecycle.IsEvicted(c.Copy) {
		d.retry(fmt.Sprintf("The job is gone from %q", c.Name), true)
		return true
	}
	d.remove(c)
	if running {
		d.requeueAfter(time.Second)
	}
	return running
}

// maxOutOfSync is how often copies of a transformed job may be out of sync before its check is rejected.
const maxOutOfSync = 3

// maxSyncRetries is how often copying the final status is retried before the Workload finishes without it (spec: 40 §4.13.5).
const maxSyncRetries = 5

func textOf(f *Fault) string {
	if f == nil {
		return "it failed repeatedly"
	}
	return f.Text
}

// evicted (rules 4a and 4b) follows the eviction of the copy: it retries, or mirrors the end of a job that the manager evicted.
func (d *decider) evicted() bool {
	c := d.first(kueue.WorkloadEvicted)
	switch {
	case c == nil:
		return false
	case lifecycle.IsEvicted(d.w) && d.runs() != nil: // rule 6b evicts that one first
		d.remove(c)
		return d.evicted()
	case d.o.Job.Alone && c.HasJob: // no controller stops it there
		d.do(Step{Do: EndJob, Cluster: c.Name})
		d.requeueAfter(time.Second)
		return true
	case lifecycle.IsEvicted(d.w):
		d.ended(c)
		return true
	case d.check.State == kueue.CheckStateReady:
		d.retry(fmt.Sprintf("Workload evicted on worker cluster: %q, reason: %s", c.Name, lifecycle.Condition(c.Copy, kueue.WorkloadEvicted).Message), false)
		d.plan.Steps[len(d.plan.Steps)-1].OnlyCheck = false // spec: 40 §4.4
		return true
	}
	return false
}

// ended mirrors the end of the job of a Workload that is evicted on both sides.
func (d *decider) ended(c *Cluster) {
	switch {
	case d.removeOthers(c.Name): // an earlier run on a cluster that returned
	case d.o.Job.Silent && lifecycle.IsReserved(c.Copy): // its worker cluster releases that when the last pod has ended
	case c.HasJob && !(d.o.Job.Gated && !lifecycle.IsReserved(c.Copy)): // a deleted job has no status
		d.do(Step{Do: MirrorJob, Cluster: c.Name})
	case d.o.Job.Active && !d.mayReturn():
		d.quiet()
	}
}

func (d *decider) runs() *Cluster {
	return d.first(kueue.WorkloadAdmitted, func(c *Cluster) bool { return c.HasJob && !lifecycle.IsEvicted(c.Copy) })
}

// release deactivates the job of an evicted Workload once no cluster can run it: all are empty, or lost for too long (spec: 40 §4.7). No
// job controller here would do so. Copies that no other rule removes, never admitted or without a job, are removed: they
// would hold the quota forever.
func (d *decider) release() bool {
	if !lifecycle.IsEvicted(d.w) || !d.o.Job.Active { // rule 2 decides without a reservation
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
		d.requeueAfter(time.Second)
		return true
	}
	if d.mayReturn() {
		return false
	}
	d.quiet()
	return true
}

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

// mayReturn reports whether a lost cluster still counts as running the job, and requeues for when it does not.
func (d *decider) mayReturn() bool {
	for i := range d.clusters {
		if c := &d.clusters[i]; !c.Connected && c.Listed {
			if left := d.grace(c); left > 0 {
				d.requeueAfter(left)
				return true
			}
		}
	}
	return false
}

// grace returns how long a lost cluster may still return. A restart of the manager begins the time anew, up to three times its length
// since the real loss (spec: 40 §4.14).
func (d *decider) grace(c *Cluster) time.Duration {
	left := d.WorkerLostTimeout - d.o.Now.Sub(c.LostSince)
	if !c.FirstLost.IsZero() {
		left = min(left, 3*min(d.WorkerLostTimeout, math.MaxInt64/3)-d.o.Now.Sub(c.FirstLost))
	}
	return left
}

// lost (rule 6a) retries when the cluster that admitted the Workload no longer has it, or is lost itself.
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
			d.requeueAfter(left)
			return true
		}
		d.retryLost(remoteLost, strconv.Quote(name), false)
		d.plan.Steps[len(d.plan.Steps)-1].Lost = true
	default:
		return d.copyGone(c)
	}
	return true
}
