package plan

import (
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

func (p *pass) condition(t jobsetv1alpha2.ConditionType) *metav1.Condition {
	return apimeta.FindStatusCondition(p.status.Conditions, string(t))
}

// FinishedCondition returns the condition that ended a JobSet, or nil while it runs.
func FinishedCondition(js *jobsetv1alpha2.JobSet) *metav1.Condition {
	for i := range js.Status.Conditions {
		c := &js.Status.Conditions[i]
		t := jobsetv1alpha2.ConditionType(c.Type)
		if c.Status == metav1.ConditionTrue && (t == jobsetv1alpha2.ConditionCompleted || t == jobsetv1alpha2.ConditionFailed) {
			return c
		}
	}
	return nil
}

// set writes a condition and emits its event, unless it is the same already. A new condition that is False is not added; only a
// change of status counts as a transition (spec: 60 §5.1).
func (p *pass) set(t jobsetv1alpha2.ConditionType, status metav1.ConditionStatus, reason, message string) {
	c := p.condition(t)
	switch {
	case c == nil && status == metav1.ConditionFalse:
		return
	case c == nil:
		p.status.Conditions = append(p.status.Conditions, metav1.Condition{
			Type: string(t), Status: status, Reason: reason, Message: message, LastTransitionTime: p.now,
		})
	case c.Status == status && c.Reason == reason && (c.Message == message || !isAlarm(t, status)):
		return // whatever the message: conditions of an upstream controller are not rewritten
	default:
		if c.Status != status {
			c.LastTransitionTime = p.now
		}
		c.Status, c.Reason, c.Message = status, reason, message
	}
	p.tell(isAlarm(t, status), reason, message)
}

// isAlarm reports whether a condition is about a failure: its event is a warning, and its message adds details to its reason.
func isAlarm(t jobsetv1alpha2.ConditionType, status metav1.ConditionStatus) bool {
	return status == metav1.ConditionTrue && (t == jobsetv1alpha2.ConditionFailed || t == jobsetv1alpha2.ConditionRestarting)
}

// maxEventReason is the number of bytes of a reason that an Event keeps.
const maxEventReason = 128

func (p *pass) tell(warning bool, reason, note string) {
	p.plan.Events = append(p.plan.Events, Event{Warning: warning, Reason: reason[:min(len(reason), maxEventReason)], Note: note})
}

// endRestart turns Restarting off if the JobSet ended in a restart of all Jobs. Otherwise the condition keeps its reason.
func (p *pass) endRestart(reason, message string) {
	if c := p.condition(jobsetv1alpha2.ConditionRestarting); c != nil && c.Status == metav1.ConditionTrue {
		p.set(jobsetv1alpha2.ConditionRestarting, metav1.ConditionFalse, reason, message)
	}
}

// startup writes the progress of an in-order start. The two conditions exclude each other, and the one that turns False
// keeps its reason and message.
func (p *pass) startup(started bool) {
	on, off := jobsetv1alpha2.ConditionStartupPolicyInProgress, jobsetv1alpha2.ConditionStartupPolicyCompleted
	reason, message := jobsetv1alpha2.ReasonInOrderInProgress, "the replicated jobs are being started in order"
	if started {
		on, off = off, on
		reason, message = jobsetv1alpha2.ReasonInOrderCompleted, "all replicated jobs have started in order"
	}
	p.set(on, metav1.ConditionTrue, reason, message)
	if c := p.condition(off); c != nil {
		c.Status = metav1.ConditionFalse
	}
}

func (p *pass) complete() {
	const message = "the jobset finished successfully"
	p.set(jobsetv1alpha2.ConditionCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonAllJobsCompleted, message)
	p.status.TerminalState, p.plan.Finished = jobsetv1alpha2.TerminalStateCompleted, jobsetv1alpha2.TerminalStateCompleted
	p.endRestart(jobsetv1alpha2.ReasonJobSetCompleted, message)
}

func (p *pass) fail(reason, message string) {
	p.set(jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, reason, message)
	p.status.TerminalState, p.plan.Finished = jobsetv1alpha2.TerminalStateFailed, jobsetv1alpha2.TerminalStateFailed
	p.endRestart(jobsetv1alpha2.ReasonJobSetFailed, "the jobset failed")
}

// reasonText matches the reasons that the API server accepts.
var reasonText = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// asReason replaces invalid characters of a reason: a name that was stored without the webhook must not stop the
// JobSet (spec: 60 §3.1).
func asReason(text string) string {
	if reasonText.MatchString(text) {
		return text
	}
	text = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == ',' || r == ':' {
			return r
		}
		return '_'
	}, text)
	return strings.TrimRight(text[:min(len(text), 1000)], ",:")
}

// Changes of counters alone are written at most once in an interval that grows with the number of Jobs, up to a limit.
const (
	counterPausePerJob = 5 * time.Millisecond
	maxCounterPause    = 10 * time.Second
)

// finishStatus adds the status to the plan if it changed. In large JobSets, changes of counters alone are delayed.
func (p *pass) finishStatus() {
	old := &p.js.Status
	if equality.Semantic.DeepEqual(old, &p.status) {
		return
	}
	pause := min(time.Duration(p.globalReplicas)*counterPausePerJob, maxCounterPause)
	if left := p.o.CountersWritten.Add(pause).Sub(p.o.Now); left > 0 && p.onlyCounting() {
		p.wake(left)
		return
	}
	p.plan.Status = &p.status
}

// onlyCounting reports whether the status differs in counters only, and no counter reached or left zero or all: clients
// wait for such steps.
func (p *pass) onlyCounting() bool {
	old := p.js.Status
	news := p.status
	old.ReplicatedJobsStatus, news.ReplicatedJobsStatus = nil, nil
	if !equality.Semantic.DeepEqual(&old, &news) {
		return false
	}
	for i := range p.status.ReplicatedJobsStatus {
		b := &p.status.ReplicatedJobsStatus[i]
		a := countersOf(&p.js.Status, b.Name)
		if a == nil || !equality.Semantic.DeepEqual(a.JobRestarts, b.JobRestarts) {
			return false
		}
		all := p.replicated[p.byName[b.Name]].replicas
		for _, n := range [][2]int32{
			{a.Ready, b.Ready},
			{a.Succeeded, b.Succeeded},
			{a.Failed, b.Failed},
			{a.Active, b.Active},
			{a.Suspended, b.Suspended},
			{a.Ready + a.Succeeded + a.Failed, b.Ready + b.Succeeded + b.Failed},
		} {
			if n[0] != n[1] && (n[0] == 0 || n[1] == 0 || n[0] == all || n[1] == all) {
				return false
			}
		}
	}
	return len(p.status.ReplicatedJobsStatus) == len(p.js.Status.ReplicatedJobsStatus)
}
