// Package pod is the integration of plain pods: one descriptor.
//
// A pod waits behind a scheduling gate, which only a new pod can get, so a
// running pod cannot be suspended: it is stopped by deleting it.
//
//	created ─► webhook: label, finalizer, gates ─► Workload ─► admitted: merged and ungated, one patch
//	evicted ─► condition TerminationTarget ─► deleted ─► Workload finished ─► finalizer off
//
// The label that the webhook sets is the mark of a pod that is queued: the owners
// of a pod are asked when it is made and never again (spec: 30 §4.2.2, §4.9).
package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/plan/job"
)

// mainPodSet is the name of the one pod set.
const mainPodSet = "main"

// terminationTarget is the condition of a pod that is about to be deleted.
const terminationTarget corev1.PodConditionType = "TerminationTarget"

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;update;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=get;patch

// Descriptor describes Pod.
func Descriptor() *plan.Descriptor {
	return &plan.Descriptor{
		Framework:   "pod",
		GVK:         corev1.SchemeGroupVersion.WithKind("Pod"),
		Resource:    "pods",
		New:         func() plan.Object { return &corev1.Pod{} },
		NewList:     func() runtime.Object { return &corev1.PodList{} },
		PodSets:     podSets,
		IsSuspended: func(o plan.Object) bool { return isGated(o.(*corev1.Pod)) || isOver(o.(*corev1.Pod)) },
		Suspend:     func(plan.Object) {}, // setDefaults gates a new pod
		Start:       start,
		Restore:     func(plan.Object, []kueue.PodSet) bool { return false }, // what is stopped is gone
		Stop:        stop,
		Stopping:    func(o plan.Object) bool { return isTarget(o.(*corev1.Pod)) },
		Finished:    finished,
		IsActive:    func(plan.Object) bool { return false }, // quota is free as soon as the pod is stopped
		PodsReady:   podsReady,
		Marked:      marked,
		Finalize:    finalize,
		Prebuilt:    true,
		LaxUpdates:  true,
		Claimed:     func(o plan.Object) bool { return parent(o) != "" },
		Default:     setDefaults,
		Validate:    validate,
	}
}

// parent is the framework that queues the pod in the place of its own owners, or empty.
func parent(o metav1.Object) string { return o.GetAnnotations()[kueue.PodSuspendingParentAnnotation] }

// marked says whether the webhook took the pod. If pods are only integrated for what makes them, plain ones are not ours.
func marked(o plan.Object, cfg *plan.Config) bool {
	return o.GetLabels()[kueue.ManagedLabel] == "true" && (!cfg.PodsOfParentsOnly || parent(o) != "")
}

func hasGate(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == name })
}

func isGated(pod *corev1.Pod) bool { return hasGate(pod, kueue.AdmissionSchedulingGate) }

func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isTarget(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == terminationTarget && c.Status == corev1.ConditionTrue
	})
}

// podSets is the pod's spec alone: labels and annotations decide nothing.
func podSets(o plan.Object, in *plan.Setting) ([]kueue.PodSet, error) {
	pod := o.(*corev1.Pod)
	template := corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()}
	return []kueue.PodSet{{
		Name: mainPodSet, Count: 1, Template: template,
		TopologyRequest: in.TopologyRequest(&pod.ObjectMeta, plan.Ranks{PodIndex: kueue.PodGroupPodIndexLabel}),
	}}, nil
}

// start gives the pod what was admitted and opens its gate. The gate of topologies stays if the pod still has to get its
// place.
func start(o plan.Object, infos []plan.PodSetInfo, _ *plan.Setting) error {
	pod := o.(*corev1.Pod)
	if len(infos) != 1 {
		return plan.Permanent("the admission has %d pod sets and a pod is 1", len(infos))
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
	if err := infos[0].MergeInto(&template); err != nil {
		return err
	}
	keep := slices.ContainsFunc(infos[0].SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == kueue.TopologySchedulingGate })
	pod.Labels, pod.Annotations, pod.Spec = template.Labels, template.Annotations, template.Spec
	pod.Spec.SchedulingGates = slices.DeleteFunc(slices.Clone(pod.Spec.SchedulingGates), func(g corev1.PodSchedulingGate) bool {
		return g.Name == kueue.AdmissionSchedulingGate || (g.Name == kueue.TopologySchedulingGate && !keep)
	})
	return nil
}

// stop says why, then deletes. A pod that never ran, or is over, stays unless its Workload goes.
func stop(o plan.Object, _ []kueue.PodSet, why plan.StopReason) (plan.Step, plan.Object) {
	pod := o.(*corev1.Pod)
	switch {
	case (isGated(pod) || isOver(pod)) && why != plan.WorkloadDeleted:
		return plan.Stopped, nil
	case isTarget(pod):
		return plan.Delete, pod
	}
	next := pod.DeepCopy()
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == terminationTarget })
	next.Status.Conditions = append(next.Status.Conditions, corev1.PodCondition{
		Type: terminationTarget, Status: corev1.ConditionTrue, Reason: string(why), Message: "The pod is stopped by its queue",
	})
	return plan.ChangeStatus, next
}

func finished(o plan.Object) (message string, success, done bool) {
	pod := o.(*corev1.Pod)
	return pod.Status.Message, pod.Status.Phase == corev1.PodSucceeded, isOver(pod)
}

func podsReady(o plan.Object, _ *plan.Setting) bool {
	return slices.ContainsFunc(o.(*corev1.Pod).Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// finalize lets the pod go.
func finalize(o plan.Object) bool {
	pod := o.(*corev1.Pod)
	n := len(pod.Finalizers)
	pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return f == kueue.ManagedFinalizer })
	return len(pod.Finalizers) < n
}

// setDefaults has a new pod wait: for its Workload, or for what its parent's framework says.
func setDefaults(o plan.Object, managed bool, in *plan.Setting) {
	pod := o.(*corev1.Pod)
	claimed := parent(pod) != ""
	if (!managed && !claimed) || (in.PodsOfParentsOnly && !claimed) {
		return
	}
	if !claimed {
		setLabel(pod, kueue.ManagedLabel, "true")
		if !slices.Contains(pod.Finalizers, kueue.ManagedFinalizer) {
			pod.Finalizers = append(pod.Finalizers, kueue.ManagedFinalizer)
		}
	}
	addGate(pod, kueue.AdmissionSchedulingGate)
	if in.Topology {
		addGate(pod, kueue.TopologySchedulingGate)
	}
	if pod.Annotations[kueue.RoleHashAnnotation] == "" {
		if role, err := Role(&pod.Spec); err == nil {
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			pod.Annotations[kueue.RoleHashAnnotation] = role
		}
	}
	if from := pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation]; from != "" && in.Topology {
		setLabel(pod, kueue.PodGroupPodIndexLabel, pod.Labels[from])
	}
}

func setLabel(pod *corev1.Pod, key, value string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[key] = value
}

func addGate(pod *corev1.Pod, name string) {
	if !hasGate(pod, name) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
	}
}
