package plan

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Back-off of a Workload that is dispatched again and again (spec: 40 §4.4). The first retry is immediate.
const (
	firstBackoff = 10 * time.Second
	lastBackoff  = 10 * time.Minute
)

// maxRejections is how often all worker clusters may refuse a job before its check is rejected.
const maxRejections = 5

func setCheck(w *kueue.Workload, name kueue.AdmissionCheckReference, state kueue.CheckState, message string, now metav1.Time) bool {
	c := CheckOf(w, name)
	message = lifecycle.Cut(message, lifecycle.MaxMessage)
	if c.State == state && c.Message == message {
		return false
	}
	if c.State != state {
		c.LastTransitionTime = now
	}
	c.State, c.Message = state, message
	return true
}

func (d *decider) writeCheck(state kueue.CheckState, message string, events ...lifecycle.Event) {
	if d.check.State == state {
		return
	}
	next := d.w.DeepCopy()
	setCheck(next, d.o.Check, state, fmt.Sprintf("%s, Previously: %q", message, d.check.State), d.o.Now)
	c := CheckOf(next, d.o.Check)
	c.RequeueAfterSeconds = nil
	if state == kueue.CheckStateRetry && c.RetryCount != nil && *c.RetryCount > 0 {
		c.RequeueAfterSeconds = new(int32(backoff(*c.RetryCount, string(d.w.UID)) / time.Second))
	}
	d.do(Step{Do: WriteStatus, Workload: next, OnlyCheck: true, Events: events})
}

// retry sets the check to Retry: the Workload is evicted and dispatched again.
func (d *decider) retry(message string, warning bool) {
	d.writeCheck(kueue.CheckStateRetry, message, lifecycle.Event{Warning: warning, Reason: EventReason, Note: message})
}

// Messages of the check for a retry after the loss of the copy. They are the same for all clusters (spec: 40 §4.4).
const (
	remoteLost = "Admitting remote lost"
	remoteGone = "Admitting remote no longer exists"
)

// retryLost is retry with one of these messages. The event has the details.
func (d *decider) retryLost(message, details string, warning bool) {
	d.writeCheck(kueue.CheckStateRetry, message, lifecycle.Event{Warning: warning, Reason: EventReason, Note: message + ": " + details})
}

// backoff returns the pause before the n-th retry, randomized by a fifth so that Workloads that were lost together do not return
// together.
func backoff(n int32, uid string) time.Duration {
	wait := firstBackoff
	for i := int32(1); i < n && wait < lastBackoff; i++ {
		wait *= 2
	}
	wait = min(wait, lastBackoff)
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%d", uid, n)
	return wait - wait/5 + wait*2/5*time.Duration(h.Sum32()%1000)/1000
}

// unclear keeps a waiting job that cannot be sent as it is from worker clusters.
func (d *decider) unclear() bool {
	if d.o.Job.Err == nil || lifecycle.IsEvicted(d.w) {
		return false
	}
	d.plan.Err = d.o.Job.Err
	return d.check.State == kueue.CheckStatePending
}

// admitted (rule 6b) follows the first cluster that admitted its copy: the other copies are removed, the job is created there or its
// status is mirrored, and the check is Ready.
func (d *decider) admitted() bool {
	c := d.admitting()
	if c == nil {
		return false
	}
	if d.removeOthers(c.Name) {
		return true
	}
	if lifecycle.IsEvicted(d.w) {
		d.evictCopy(c)
		return true
	}
	if d.endedThere(c) {
		return true
	}
	do := SyncJob
	if d.o.Job.Err != nil {
		do = MirrorJob
	}
	d.do(Step{Do: do, Cluster: c.Name, Blocks: d.check.State != kueue.CheckStateReady})
	if d.check.State == kueue.CheckStateRetry {
		return true
	}
	d.ready(c)
	d.requeueAtLoss()
	return true
}

// ready sets the check to Ready and the cluster name, and copies the placements.
func (d *decider) ready(c *Cluster) {
	next := d.w.DeepCopy()
	texts := []string{fmt.Sprintf("The workload was admitted on %q", c.Name)}
	var wrong, warnings []Warning
	if c.Fault != nil {
		wrong = append(wrong, Warning{c.Fault.Code, fmt.Sprintf("[%s] %s", c.Fault.Code, c.Fault.Text)})
	}
	if told := externalMessage(d.w); told != "" {
		wrong = append(wrong, Warning{external.Controller, told})
	}
	for _, one := range wrong {
		texts = append(texts, one.Text)
		if !strings.Contains(d.check.Message, one.Text) {
			warnings = append(warnings, one)
		}
	}
	was := d.check.State == kueue.CheckStateReady
	changed := setCheck(next, d.o.Check, kueue.CheckStateReady, strings.Join(texts, ". "), d.o.Now)
	if next.Status.ClusterName == "" || len(next.Status.NominatedClusterNames) > 0 {
		next.Status.ClusterName, next.Status.NominatedClusterNames = c.Name, nil
		changed = true
	}
	changed = copyPlacement(next, c.Copy) || changed
	if d.o.Job.Silent {
		changed = d.followSilent(next, c) || changed
	}
	if !changed {
		return
	}
	step := Step{Do: WriteStatus, Workload: next, Admitted: !was, Warnings: warnings}
	if !was {
		step.Events = []lifecycle.Event{{Reason: EventReason, Note: fmt.Sprintf("The workload was admitted on %q", c.Name)}}
	}
	// If this was the last check the same write sets Admitted.
	if !lifecycle.IsAdmitted(d.w) && d.Lifecycle.SyncAdmitted(next, d.o.Now) && lifecycle.IsAdmitted(next) {
		step.Events = append(step.Events, lifecycle.AdmittedNow(next, d.o.Now))
	}
	d.do(step)
}

// followSilent records where pods run whose status is not mirrored, and takes PodsReady from the copy: the local pods stay gated, and are never
// ready. A worker without waitForPodsReady does not report it: its pods count as ready after some time.
func (d *decider) followSilent(w *kueue.Workload, c *Cluster) bool {
	changed := d.Lifecycle.RunOn(w, c.Name, d.o.Now)
	if !d.Lifecycle.WaitForPodsReady {
		return changed
	}
	if there := lifecycle.Condition(c.Copy, kueue.WorkloadPodsReady); there != nil {
		return d.Lifecycle.PodsReady(w, there.Status == metav1.ConditionTrue, d.o.Now) || changed
	}
	left := readyUnreported
	if lifecycle.IsAdmitted(d.w) {
		left -= d.o.Now.Sub(lifecycle.Condition(d.w, kueue.WorkloadAdmitted).LastTransitionTime.Time)
	}
	if left > 0 {
		d.requeueAfter(left)
		return changed
	}
	return d.Lifecycle.PodsReady(w, true, d.o.Now) || changed
}

// readyUnreported is how long a worker with waitForPodsReady may take to report PodsReady of a copy that it has admitted. Timeouts are longer.
const readyUnreported = 10 * time.Second

// evictCopy asks the worker cluster to evict its copy, which stops the job there in an orderly way.
func (d *decider) evictCopy(c *Cluster) {
	next := c.Copy.DeepCopy()
	if !lifecycle.IsActive(next) {
		return // in progress
	}
	if d.Lifecycle.RequestDeactivation(next, kueue.ReasonEvictedOnManagerCluster, "Evicted on manager: "+lifecycle.Condition(d.w, kueue.WorkloadEvicted).Message, d.o.Now) {
		d.do(Step{Do: UpdateCopyStatus, Cluster: c.Name, Workload: next})
	}
}

// copyPlacement marks the delayed placements of the local Workload as done, as far as the worker cluster has done them. There is nothing to do for
// a pod set without pods.
func copyPlacement(w, remote *kueue.Workload) bool {
	if w.Status.Admission == nil || remote.Status.Admission == nil {
		return false
	}
	changed := false
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		if a.DelayedTopologyRequest == nil || *a.DelayedTopologyRequest != kueue.DelayedTopologyRequestPending {
			continue
		}
		if slices.ContainsFunc(remote.Status.Admission.PodSetAssignments, func(r kueue.PodSetAssignment) bool {
			return r.Name == a.Name && (r.TopologyAssignment != nil || (r.Count != nil && *r.Count == 0))
		}) {
			a.DelayedTopologyRequest = new(kueue.DelayedTopologyRequestReady)
			changed = true
		}
	}
	return changed
}

// notWaiting (rule 8) stops unless the Workload waits for worker clusters. Eviction has already reset the check.
func (d *decider) notWaiting() bool {
	return d.check.State != kueue.CheckStatePending || lifecycle.IsEvicted(d.w) || (d.w.Status.ClusterName != "" && !d.elastic())
}

// Limits of writing the message of a waiting check.
const (
	tellEvery = 30 * time.Second
	tellAfter = 30 * time.Second
)

// reasons returns why the Workload waits, and the faults among the reasons. Other reasons of clusters are reported after some time, by the
// manager's clock.
func (d *decider) reasons() (parts []string, faults []Warning) {
	fault := func(code, text string) {
		parts, faults = append(parts, text), append(faults, Warning{code, text})
	}
	if message := externalMessage(d.w); message != "" {
		fault(external.Controller, message)
	}
	left := tellAfter
	if q := lifecycle.Condition(d.w, kueue.WorkloadQuotaReserved); q != nil {
		left -= d.o.Now.Sub(q.LastTransitionTime.Time)
	}
	for i := range d.clusters {
		c := &d.clusters[i]
		switch {
		case !c.Listed:
		case c.Untried:
			return nil, nil // the message of before the start stays until all clusters are known
		case c.Fault != nil:
			fault(c.Fault.Code, c.Fault.on(c.Name))
		case left > 0:
			d.requeueAfter(left)
		default:
			parts = append(parts, c.Name+": "+d.waitsFor(c))
		}
	}
	return parts, faults
}

// separator is between the reasons in the message of a waiting check.
const separator = "; "

// unreported returns the faults that the message of the check does not have yet, joined by their codes.
func (d *decider) unreported(faults []Warning) (out []Warning) {
	message := separator + d.check.Message + separator
	for _, f := range faults {
		at := slices.IndexFunc(out, func(w Warning) bool { return w.Code == f.Code })
		switch {
		case strings.Contains(message, separator+f.Text+separator):
		case at >= 0:
			out[at].Text += separator + f.Text
		default:
			out = append(out, f)
		}
	}
	return out
}

func (d *decider) waitsFor(c *Cluster) string {
	switch {
	case c.Busy:
		return "its copy is being made or removed"
	case !c.Connected:
		return "the cluster cannot be reached"
	case c.Lacks:
		return "jobs of kind " + d.o.Job.Kind + " cannot be sent there"
	case slices.Contains(d.leaving, c.Name):
		return "what is there of an earlier run is being deleted"
	case c.Copy == nil && !slices.Contains(d.w.Status.NominatedClusterNames, c.Name):
		return "not nominated"
	case c.Copy == nil:
		return "its copy has not been seen yet"
	}
	switch q := lifecycle.Condition(c.Copy, kueue.WorkloadQuotaReserved); {
	case q == nil:
		return "it is not evaluated there yet"
	case q.Status == metav1.ConditionTrue:
		return "it has quota, and waits for its admission checks"
	default:
		return q.Message
	}
}

// report writes to the check why the Workload waits: new faults at once, and the reasons of clusters that have not admitted it for a while.
func (d *decider) report() {
	parts, faults := d.reasons()
	if len(parts) == 0 {
		return
	}
	warnings := d.unreported(faults)
	if wait := tellEvery - d.o.Now.Sub(d.o.ReportedAt); len(warnings) == 0 && !d.o.ReportedAt.IsZero() && wait > 0 {
		d.requeueAfter(wait)
		return
	}
	next := d.w.DeepCopy()
	message := strings.Join(parts, separator)
	if setCheck(next, d.o.Check, kueue.CheckStatePending, message, d.o.Now) {
		d.do(Step{Do: WriteStatus, Workload: next, Reported: true, Warnings: warnings})
	}
}
