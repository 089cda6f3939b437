package state

import (
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
)

// Notices returns the reasons of pending workloads that are known without a cycle, and leaves everything else for a later Step:
// for a manager whose admission is paused.
func (s *State) Notices() []cycle.Decision {
	if len(s.notices) == 0 {
		return nil
	}
	out := s.drainNotices()
	s.decided(out)
	return out
}

// Reason returns why a workload has no quota reservation, whether it was evaluated itself or is passed over because an
// equivalent one failed; "" for one with a reservation or outside of any queue, and where nothing new is known. It costs a few
// lookups. spec: 10 §4.4, §4.10.
func (s *State) Reason(uid string) trace.Reason {
	_, why, _ := s.why(uid)
	return why.reason
}

// Why is Reason as a complete decision that can be written down; false where Reason is "".
func (s *State) Why(uid string) (cycle.Decision, bool) {
	r, why, ok := s.why(uid)
	if !ok {
		return cycle.Decision{}, false
	}
	attempt := &trace.Attempt{}
	if r.in != nil && r.in.Closed == "" && why.reason != trace.PendingEvaluation {
		attempt = s.world.Explain(r.wl)
	}
	attempt.Workload, attempt.UID, attempt.Queue, attempt.Priority = r.first.Key, r.uid(), "", r.def.Priority
	if r.in != nil {
		attempt.Queue = r.in.Name
	}
	attempt.Verdict, attempt.Reason, attempt.Note, attempt.Victims = trace.Waits, why.reason, why.note, why.victims
	return cycle.Decision{Workload: r.wl, Queue: attempt.Queue, Attempt: attempt}, true
}

// why finds the reason of a pending workload.
func (s *State) why(uid string) (r *record, why said, ok bool) {
	if r = s.records[uid]; !r.waitsToBeAdmitted() {
		return nil, said{}, false
	}
	if _, reason, note := s.route(r); reason != "" {
		return r, said{verdict: trace.Waits, reason: reason, note: note}, true
	}
	if r.in == nil {
		return nil, said{}, false
	}
	by := r.in.Pending.Representative(r.wl)
	if own := r.said; own.waits() && own.reason != trace.Suspended && (by == nil || own.reason != trace.Misconfigured) {
		return r, *own, true
	}
	if by != nil {
		return s.whyLike(r, by.UID)
	}
	if reason, note := s.world.Misfit(r.wl); reason != "" {
		return r, said{verdict: trace.Waits, reason: reason, note: note}, true
	}
	return r, notEvaluated(r), true
}

// whyLike is the reason of a workload that is passed over because an equivalent one failed: that of the other.
func (s *State) whyLike(r *record, other string) (*record, said, bool) {
	if first := s.records[other]; first != nil && first.said.waits() {
		return r, said{verdict: trace.Waits, reason: first.said.reason, note: first.said.note}, true
	}
	if r.def.Told { // the one that failed was deleted: the messages of the others stay
		return nil, said{}, false
	}
	return r, notEvaluated(r), true
}

func notEvaluated(r *record) said {
	return said{verdict: trace.Waits, reason: trace.PendingEvaluation, note: "it is not evaluated yet, others of ClusterQueue " + r.in.Name + " come first"}
}

// waitsToBeAdmitted reports whether a workload is in a queue, or would be in one that exists.
func (r *record) waitsToBeAdmitted() bool {
	return r != nil && r.wl != nil && !r.wl.Reserved && !r.assumed() && !r.def.Reserved && r.def.Queueable && !r.def.Resting && !r.passed
}

// waits reports whether the decision was to wait.
func (s *said) waits() bool {
	return s != nil && s.reason != "" && (s.verdict == trace.Waits || s.verdict == trace.Preempts)
}
