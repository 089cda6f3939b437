package plan

import (
	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// Agent is the part of an in-place restart inside a pod: it holds the worker back behind a barrier until all pods have
// reached the same attempt, and ends its container when that attempt is over (spec: 60 §4.6.4). The zero value is the agent of a
// container that has just started.
type Agent struct {
	attempt int32
	known   bool // attempt is
	lifted  bool
}

// Advice is the next step of an agent, in this order.
type Advice struct {
	// Attempt is to be written into the annotation of the pod; nil is none.
	Attempt *int32
	// Exit ends the container, so that it starts again in the next attempt.
	Exit bool
	// Lift removes the barrier.
	Lift bool
}

// See decides by the present JobSet.
func (a *Agent) See(js *jobsetv1alpha2.JobSet) Advice {
	if !restartsInPlace(js) {
		return Advice{Lift: a.lift()}
	}
	var advice Advice
	current, previous := js.Status.CurrentInPlaceRestartAttempt, js.Status.PreviousInPlaceRestartAttempt
	if !a.known {
		a.known = true
		if current != nil {
			a.attempt = *current + 1
		}
		advice.Attempt = new(a.attempt)
	}
	switch {
	case previous != nil && a.attempt <= *previous:
		advice.Exit = true
	case current != nil && a.attempt == *current:
		advice.Lift = a.lift()
	}
	return advice
}

// lift reports whether the barrier was still there.
func (a *Agent) lift() bool {
	was := !a.lifted
	a.lifted = true
	return was
}

// restartsInPlace reports whether the pods of a JobSet wait for each other. An annotation lets them start at once.
func restartsInPlace(js *jobsetv1alpha2.JobSet) bool {
	if _, off := js.Annotations[jobsetv1alpha2.DisableInPlaceRestartAnnotation]; off {
		return false
	}
	policy := js.Spec.FailurePolicy
	return policy != nil && policy.RestartStrategy == jobsetv1alpha2.RestartInPlace
}
