package node

import (
	"fmt"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// RunSecondsAnnotation is how many seconds a pod runs after it is Running. Fractions are allowed. Without it a pod runs for 2
	// seconds, or for ever if its restartPolicy is Always.
	RunSecondsAnnotation = "berth.dev/run-seconds"
	// ExitCodeAnnotation is the exit code of all containers of a pod, 0 to 255. Without it, and with 0, the pod succeeds; with any other
	// code it fails, whatever its restartPolicy: containers are never restarted.
	ExitCodeAnnotation = "berth.dev/exit-code"

	// RunsUntil is the pod condition whose message is the time at which a running pod finishes: a pod's own timestamps have whole seconds
	// only, and the time must survive a restart of the control plane and edits of the pod.
	RunsUntil = "berth.dev/RunsUntil"

	defaultRun = 2 * time.Second
	maxRun     = 1e9 // seconds, 31 years: the longest that is safe to add to a time

	exitSIGTERM = 143 // of a container that does not handle SIGTERM
)

// started is the status of a pod whose containers all start now; its init containers have completed.
func started(pod *corev1.Pod, hostIP, podIP string, now time.Time) corev1.PodStatus {
	stamp := metav1.NewTime(now)
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		HostIP:    hostIP,
		HostIPs:   []corev1.HostIP{{IP: hostIP}},
		PodIP:     podIP,
		PodIPs:    []corev1.PodIP{{IP: podIP}},
		StartTime: &stamp,
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: stamp})
	}
	if run, reason, finishes := runTime(pod); finishes {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: RunsUntil, Status: corev1.ConditionTrue, LastTransitionTime: stamp,
			Reason: reason, Message: now.Add(run).UTC().Format(time.RFC3339Nano),
		})
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp}}
	for _, container := range pod.Spec.InitContainers {
		state := running
		if !isSidecar(container) {
			state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: stamp, FinishedAt: stamp}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(container, state))
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(container, running))
	}
	return status
}

// finished is the status of a pod whose containers have all ended at now, with the exit code in the pod's annotation.
func finished(pod *corev1.Pod, now time.Time) corev1.PodStatus {
	code, note := exitCode(pod)
	if _, reason, _ := runTime(pod); reason == "InvalidRunSeconds" {
		note += fmt.Sprintf("annotation %s=%q is not a number of seconds from 0 to %.0e: the pod ran for its default time. ",
			RunSecondsAnnotation, pod.Annotations[RunSecondsAnnotation], maxRun)
	}
	return ended(pod, code, note, now)
}

// terminated is the status of a pod that was deleted and stopped at now.
func terminated(pod *corev1.Pod, now time.Time) corev1.PodStatus {
	return ended(pod, exitSIGTERM, "", now)
}

func ended(pod *corev1.Pod, code int32, note string, now time.Time) corev1.PodStatus {
	stamp := metav1.NewTime(now)
	status := corev1.PodStatus{Phase: corev1.PodSucceeded}
	reason, why := "Completed", "PodCompleted"
	if code != 0 {
		status.Phase, reason, why = corev1.PodFailed, "Error", "PodFailed"
	}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: why, LastTransitionTime: stamp})
	}
	began := startTimes(pod)
	end := func(container corev1.Container, code int32, reason string) corev1.ContainerStatus {
		start, known := began[container.Name]
		if !known {
			start = stamp
		}
		return containerStatus(container, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: note, StartedAt: start, FinishedAt: stamp,
		}})
	}
	for _, container := range pod.Spec.InitContainers {
		// A sidecar is stopped after the other containers, and that is no failure.
		status.InitContainerStatuses = append(status.InitContainerStatuses, end(container, 0, "Completed"))
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, end(container, code, reason))
	}
	return status
}

func startTimes(pod *corev1.Pod) map[string]metav1.Time {
	times := map[string]metav1.Time{}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, status := range list {
			switch {
			case status.State.Running != nil:
				times[status.Name] = status.State.Running.StartedAt
			case status.State.Terminated != nil:
				times[status.Name] = status.State.Terminated.StartedAt
			}
		}
	}
	return times
}

func containerStatus(container corev1.Container, state corev1.ContainerState) corev1.ContainerStatus {
	isStarted := state.Running != nil
	return corev1.ContainerStatus{
		Name:    container.Name,
		Image:   container.Image,
		State:   state,
		Started: &isStarted,
		// The kubelet reports a completed init container as ready.
		Ready: isStarted || state.Terminated.ExitCode == 0 && state.Terminated.StartedAt.Equal(&state.Terminated.FinishedAt),
	}
}

// isSidecar reports whether an init container keeps running beside the main containers.
func isSidecar(container corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// runTime returns how long a pod runs, the reason for that time, and whether the pod finishes by itself at all. An invalid value counts
// as no annotation: a typing error must not keep a pod running silently.
func runTime(pod *corev1.Pod) (run time.Duration, reason string, finishes bool) {
	text, given := pod.Annotations[RunSecondsAnnotation]
	if given {
		seconds, err := strconv.ParseFloat(text, 64)
		if err == nil && !math.IsNaN(seconds) && seconds >= 0 && seconds <= maxRun {
			return time.Duration(seconds * float64(time.Second)), "RunSeconds", true
		}
		reason = "InvalidRunSeconds"
	} else {
		reason = "DefaultRunSeconds"
	}
	return defaultRun, reason, pod.Spec.RestartPolicy != corev1.RestartPolicyAlways
}

// exitCode is the exit code of the pod's containers, and a note if the annotation is invalid.
func exitCode(pod *corev1.Pod) (code int32, note string) {
	text, given := pod.Annotations[ExitCodeAnnotation]
	if !given {
		return 0, ""
	}
	value, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Sprintf("annotation %s=%q is not a whole number from 0 to 255: taken as 0. ", ExitCodeAnnotation, text)
	}
	return int32(value), ""
}
