package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// restartInPlace keeps the pods of an in-place restart in step (spec: 60 §4.6.4). Agents in the pods write their attempt
// into an annotation. If all are at one attempt it becomes the current one, and the agents lift their barriers. If some are behind, the
// attempt before the newest becomes the previous one, and the agents that are in it restart their containers.
func (p *pass) restartInPlace() {
	if !p.WatchesPods(p.js) {
		if f := p.js.Spec.FailurePolicy; f != nil && f.RestartStrategy == jobsetv1alpha2.RestartInPlace {
			p.plan.Warnings = append(p.plan.Warnings, "spec.failurePolicy.restartStrategy: InPlaceRestart is not acted upon, as the feature gate InPlaceRestart is off")
		}
		return
	}
	limit := max(p.js.Spec.FailurePolicy.MaxRestarts, 0)
	for _, pod := range p.o.Pods {
		if restarts(pod) > limit {
			p.fail(jobsetv1alpha2.ReasonReachedMaxRestarts, fmt.Sprintf("the limit of %d restarts is reached by the containers of a pod", limit))
			return
		}
	}
	attempts := p.attempts()
	if p.plan.Err != nil {
		return
	}
	if p.forgetResume() || len(attempts) == 0 {
		return
	}
	newest := slices.Max(attempts)
	if newest-(p.status.Restarts-p.status.RestartsCountTowardsMax) > limit {
		p.fail(jobsetv1alpha2.ReasonReachedMaxRestarts, fmt.Sprintf("the limit of %d restarts is reached", limit))
		return
	}
	switch {
	case len(attempts) == p.expectedPods() && slices.Min(attempts) == newest:
		p.status.CurrentInPlaceRestartAttempt = &newest
	case newest > 0:
		last := newest - 1
		if old := p.status.PreviousInPlaceRestartAttempt; old == nil || *old < last {
			p.status.PreviousInPlaceRestartAttempt = &last
		}
	}
}

// restarts returns the highest restart count of a container.
func restarts(pod *corev1.Pod) int32 {
	most := int32(0)
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			most = max(most, list[i].RestartCount)
		}
	}
	return most
}

func (p *pass) attempts() []int32 {
	var out []int32
	pods := slices.SortedFunc(slices.Values(p.o.Pods), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		text, ok := pod.Annotations[jobsetv1alpha2.InPlaceRestartAttemptAnnotation]
		if !ok || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		n := number(text)
		if n < 0 {
			p.plan.Err = fmt.Errorf("pod %s: annotation %s=%q is no attempt", pod.Name, jobsetv1alpha2.InPlaceRestartAttemptAnnotation, text)
			return nil
		}
		out = append(out, n)
	}
	return out
}

func (p *pass) expectedPods() int {
	total := 0
	for i := range p.replicated {
		total += int(p.replicated[i].replicas) * int(ptr.Deref(p.replicated[i].Template.Spec.Parallelism, 1))
	}
	return total
}

// forgetResume makes a suspension cost no restart. New pods begin one attempt after the current one; while a
// suspended JobSet has no pods, and until its Jobs run again, the current attempt is therefore set back by one,
// so that they begin with the attempt of the old pods. It reports whether it did so.
func (p *pass) forgetResume() bool {
	suspended := 0
	for i := range p.children {
		c := &p.children[i]
		if c.state == active && !c.suspended {
			return false
		}
		if c.state == active {
			suspended++
		}
	}
	if suspended == 0 || slices.ContainsFunc(p.o.Pods, func(pod *corev1.Pod) bool {
		return pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
	}) {
		return false
	}
	p.status.CurrentInPlaceRestartAttempt = p.status.PreviousInPlaceRestartAttempt
	return true
}
