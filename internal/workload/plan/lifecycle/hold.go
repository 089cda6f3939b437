package lifecycle

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// hold (step 10) evicts, or drops the reservation, when its conditions no longer hold: failed checks, stopped or deleted queues,
// deadlines.
func (f *follower) hold() {
	switch {
	case !IsReserved(f.w):
	case IsParent(f.w): // its variant is evicted for all else, and it with that
		if !IsEvicted(f.w) {
			f.overtime()
		}
	case !IsEvicted(f.w) && f.failedChecks():
	case f.queues():
	case IsAdmitted(f.w) && !IsEvicted(f.w) && !f.late() && VariantOf(f.w) == "": // the time of a job is that of the parent
		f.overtime()
	}
}

// failedChecks evicts a Workload if a check requests a retry, and requests its deactivation if a check
// rejected it (spec: 20 §4.17).
func (f *follower) failedChecks() bool {
	var retry, rejected []string
	for _, c := range f.w.Status.AdmissionChecks {
		text := string(c.Name)
		if c.Message != "" {
			text += " (" + c.Message + ")"
		}
		switch c.State {
		case kueue.CheckStateRetry:
			retry = append(retry, text)
		case kueue.CheckStateRejected:
			rejected = append(rejected, text)
		case kueue.CheckStatePending, kueue.CheckStateReady:
		}
	}
	switch {
	case len(rejected) > 0:
		note := "Rejected by admission checks: " + strings.Join(rejected, ", ")
		if f.changed(f.RequestDeactivation(f.w, kueue.ReasonAdmissionCheck, note, f.now)) {
			f.tell(true, "AdmissionCheckRejected", note)
		}
	case len(retry) > 0:
		f.evict(kueue.ReasonAdmissionCheck, "", "Admission checks ask for another try: "+strings.Join(retry, ", "))
	default:
		return false
	}
	return true
}

// queues follows the stop policies and the deletion of the queues, and reports whether one of them affected the Workload.
// The LocalQueue comes first; a LocalQueue that keeps running Workloads does not prevent the ClusterQueue from draining them
// (spec: 10 §4.12).
func (f *follower) queues() bool { return f.leave(f.localQueue()) || f.leave(f.clusterQueue()) }

// queueProblem is why a queue admits no Workloads.
type queueProblem struct {
	reason, message string // of QuotaReserved
	drains          string // the reason of the eviction of admitted Workloads, empty if they keep running
}

func (f *follower) localQueue() *queueProblem {
	switch lq := f.LocalQueue; {
	case lq == nil && f.w.Spec.QueueName == "":
		return &queueProblem{reason: kueue.ReasonMisconfigured, message: "The workload names no LocalQueue"}
	case lq == nil:
		return queueGone("LocalQueue", string(f.w.Spec.QueueName), "doesn't exist")
	case IsStopped(lq.Spec.StopPolicy):
		return queueStopped("LocalQueue", lq.Name, lq.Spec.StopPolicy, kueue.ReasonLocalQueueStopped)
	case lq.DeletionTimestamp != nil:
		return queueGone("LocalQueue", lq.Name, "is being deleted")
	}
	return nil
}

func (f *follower) clusterQueue() *queueProblem {
	switch cq := f.ClusterQueue; {
	case cq == nil:
		name := kueue.ClusterQueueReference("")
		if f.w.Status.Admission != nil {
			name = f.w.Status.Admission.ClusterQueue
		} else if f.LocalQueue != nil {
			name = f.LocalQueue.Spec.ClusterQueue
		}
		return queueGone("ClusterQueue", string(name), "doesn't exist")
	case IsStopped(cq.Spec.StopPolicy):
		return queueStopped("ClusterQueue", cq.Name, cq.Spec.StopPolicy, kueue.ReasonClusterQueueStopped)
	case cq.DeletionTimestamp != nil:
		return queueGone("ClusterQueue", cq.Name, "is being deleted")
	}
	return nil
}

// inactiveQueue is the problem of a ClusterQueue that exists and is not stopped, as its status has it.
func (f *follower) inactiveQueue() *queueProblem {
	if f.ClusterQueue == nil {
		return nil
	}
	c := apimeta.FindStatusCondition(f.ClusterQueue.Status.Conditions, kueue.ClusterQueueActive)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return &queueProblem{reason: kueue.ReasonSuspended, message: fmt.Sprintf("ClusterQueue %s is inactive: %s", f.ClusterQueue.Name, c.Message)}
}

func queueStopped(kind, name string, policy kueue.StopPolicy, drains string) *queueProblem {
	p := &queueProblem{reason: kueue.ReasonSuspended, message: fmt.Sprintf("%s %s is stopped (stopPolicy %s)", kind, name, policy)}
	if policy == kueue.StopPolicyHoldAndDrain {
		p.drains = drains
	}
	return p
}

func queueGone(kind, name, what string) *queueProblem {
	return &queueProblem{reason: kueue.ReasonMisconfigured, message: fmt.Sprintf("%s %s %s", kind, name, what)}
}

// leave drops a reservation without admission, which is no eviction, and evicts an admitted Workload from a queue that drains.
func (f *follower) leave(p *queueProblem) bool {
	switch {
	case p == nil:
		return false
	case !IsAdmitted(f.w) && !IsEvicted(f.w):
		f.changed(f.Pending(f.w, p.reason, p.message, f.now))
	case IsAdmitted(f.w) && p.drains != "":
		f.evict(p.drains, "", p.message)
	default:
		return false
	}
	return true
}

// late evicts an admitted Workload whose pods are not ready in time or, after too many requeues, requests its
// deactivation. It reports whether the time was over (spec: 20 §4.15).
//
// The condition PodsReady is older than the admission, unless waitForPodsReady was off then, as under another controller. The time then
// begins with the condition, so that nothing is evicted for time that was not limited; the owner of the Workload writes it.
func (f *follower) late() bool {
	if f.Ready == nil {
		return false
	}
	c := Condition(f.w, kueue.WorkloadPodsReady)
	cause, limit := kueue.ReasonWaitForStart, f.Ready.Timeout
	since := Condition(f.w, kueue.WorkloadAdmitted).LastTransitionTime
	switch {
	case c == nil:
		if len(f.w.OwnerReferences) > 0 && !since.Add(limit).After(f.now.Time) {
			return false
		}
	case c.Status == metav1.ConditionTrue:
		return false
	case c.Reason == kueue.ReasonWaitForRecovery:
		cause, limit, since = kueue.ReasonWaitForRecovery, f.Ready.Recovery, c.LastTransitionTime
		if limit == 0 {
			return false
		}
	case since.Before(&c.LastTransitionTime):
		since = c.LastTransitionTime
	}
	due := f.seen(since.Add(limit), limit)
	if due.After(f.now.Time) {
		f.wakeAt(due)
		return false
	}
	count := int32(1)
	if s := f.w.Status.RequeueState; s != nil && s.Count != nil {
		count += *s.Count
	}
	if f.Ready.Limit >= 0 && int(count) > f.Ready.Limit {
		f.changed(f.RequestDeactivation(f.w, kueue.ReasonRequeuingLimitExceeded,
			fmt.Sprintf("The pods were not ready within %s, and it was put back into its queue %d times before", limit, count-1), f.now))
		return true
	}
	f.evict(kueue.ReasonPodsReadyTimeout, cause, fmt.Sprintf("The pods were not ready within %s", limit))
	f.notBefore(f.now.Add(f.Ready.backoff(count, string(f.w.UID))))
	if f.w.Status.RequeueState == nil { // the backoff is zero
		f.w.Status.RequeueState = &kueue.RequeueState{}
	}
	f.w.Status.RequeueState.Count = &count
	return true
}

// unseen is how long the status of jobs may take to reach their Workloads after a start.
const unseen = time.Minute

// seen returns when a limit is over that ends at a time: not before the status of jobs had time to reach their Workloads, or the limit again if
// that is less. The job may have been ready, or have finished, in time.
func (f *follower) seen(due time.Time, limit time.Duration) time.Time {
	if known := f.Since.Add(max(0, min(limit, unseen))); due.Before(known) {
		return known
	}
	return due
}

// backoff returns how long a Workload waits before the n-th requeue. It adds up to a ten-thousandth, which differs
// between Workloads, so that Workloads that were evicted together are not requeued together.
func (r *ReadyRules) backoff(n int32, uid string) time.Duration {
	wait := r.Base
	for i := int32(1); i < n && wait < r.Max; i++ {
		wait *= 2
	}
	wait = min(wait, r.Max)
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return wait + wait/10_000*time.Duration(h.Sum32()%1000)/1000
}

// overtime requests the deactivation of a Workload that reached its maximum execution time (spec: 20 §4.16).
func (f *follower) overtime() {
	limit := f.w.Spec.MaximumExecutionTimeSeconds
	if limit == nil {
		return
	}
	f.takeOver()
	left := time.Duration(*limit-ptr.Deref(f.w.Status.AccumulatedPastExecutionTimeSeconds, 0)) * time.Second
	due := f.seen(Condition(f.w, kueue.WorkloadAdmitted).LastTransitionTime.Add(left), left)
	if due.After(f.now.Time) {
		f.wakeAt(due)
		return
	}
	note := fmt.Sprintf("It ran for its maximum execution time of %ds", *limit)
	if f.changed(f.RequestDeactivation(f.w, kueue.ReasonMaximumExecutionTimeExceeded, note, f.now)) {
		f.tell(true, kueue.ReasonMaximumExecutionTimeExceeded, note)
	}
}

// SplitGates parses the list of gates of the annotation admission-gated-by, and trims its entries.
func SplitGates(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	gates := strings.Split(value, ",")
	for i := range gates {
		gates[i] = strings.TrimSpace(gates[i])
	}
	return gates
}

// takeOver begins the execution time of a slice with the one that the replaced slice had when this one was admitted: the same pods run on.
func (f *follower) takeOver() {
	old, admitted := f.Replaced, Condition(f.w, kueue.WorkloadAdmitted).LastTransitionTime
	if old == nil || f.w.Status.AccumulatedPastExecutionTimeSeconds != nil {
		return
	}
	if s := f.w.Status.SchedulingStats; s != nil && slices.ContainsFunc(s.Evictions, func(e kueue.EvictionCount) bool {
		return e.Reason == kueue.ReasonDeactivated && e.UnderlyingCause == kueue.ReasonMaximumExecutionTimeExceeded
	}) {
		return // it was over, and began anew
	}
	spent := time.Duration(ptr.Deref(old.Status.AccumulatedPastExecutionTimeSeconds, 0)) * time.Second
	if IsAdmitted(old) {
		spent += max(0, admitted.Sub(Condition(old, kueue.WorkloadAdmitted).LastTransitionTime.Time))
	}
	f.w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(spent / time.Second))
	f.changed(true)
}
