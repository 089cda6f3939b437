// Package pod is the integration of plain pods: one descriptor.
//
// A pod waits behind a scheduling gate, which only a new pod can get, so a
// running pod cannot be suspended: it is stopped by deleting it.
//
//	created ─► webhook: label, finalizer, gates ─► Workload ─► admitted: merged and ungated, one patch
//	evicted ─► condition TerminationTarget ─► deleted ─► Workload finished ─► finalizer off
//
// Pods of a group of a name are one job together: see internal/job/plan/podgroup.
//
// The label that the webhook sets is the mark of a pod that is queued: the owners
// of a pod are asked when it is made and never again (spec: 30 §4.2.2, §4.9).
package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// mainPodSet is the name of the one pod set.
const mainPodSet = "main"

// Descriptor describes Pod.
func Descriptor() *plan.Descriptor {
	return &plan.Descriptor{
		Framework:   "pod",
		GVK:         corev1.SchemeGroupVersion.WithKind("Pod"),
		Resource:    "pods",
		Listing:     plan.Listing{Workers: 5, NoUserRoles: true},
		New:         func() plan.Object { return &corev1.Pod{} },
		NewList:     func() runtime.Object { return &corev1.PodList{} },
		PodSets:     podSets,
		IsSuspended: func(o plan.Object) bool { return plan.PodIsGated(o.(*corev1.Pod)) || plan.PodIsOver(o.(*corev1.Pod)) },
		Suspend:     func(plan.Object) {}, // setDefaults gates a new pod
		Resume:      func(o plan.Object) { plan.OpenGates(o.(*corev1.Pod), false) },
		Start:       start,
		Restore:     func(plan.Object, []kueue.PodSet) bool { return false }, // what is stopped is gone
		Stops:       &plan.Stops{Next: stop, Begun: func(o plan.Object) bool { return podgroup.IsTarget(o.(*corev1.Pod)) }},
		Finished:    finished,
		IsActive:    isActive,
		PodsReady:   podsReady,
		Owns:        owns,
		Once: &plan.Once{
			Marked: marked, Finalize: func(o plan.Object) bool { return podgroup.RemoveFinalizer(o.(*corev1.Pod)) }, Alone: true,
			StatusManager: podgroup.StatusManager, Warn: warn,
		},
		Open:       &plan.Open{},
		Groups:     podgroup.Groups(member),
		PodLabels:  podLabels,
		Prebuilt:   true,
		Remote:     remote(),
		LaxUpdates: true,
		Claimed:    func(o plan.Object) bool { return parent(o) != "" },
		Default:    setDefaults,
		Validate:   validate,
		Sizes:      sizes,
	}
}

// podLabels are those of the group of a pod.
func podLabels(o plan.Object) (map[string]string, error) {
	if group := o.GetLabels()[kueue.PodGroupNameLabel]; group != "" {
		return map[string]string{kueue.PodGroupNameLabel: group}, nil
	}
	return nil, fmt.Errorf("%s is of no group: kubectl get pod %s -n %s", o.GetName(), o.GetName(), o.GetNamespace())
}

// member is the group of a pod that is queued.
func member(o plan.Object, cfg *plan.Config) string {
	if !marked(o, cfg) {
		return ""
	}
	return cfg.GroupName(o)
}

// parent is the framework that queues the pod in the place of its own owners, or empty.
func parent(o metav1.Object) string { return o.GetAnnotations()[kueue.PodSuspendingParentAnnotation] }

// marked reports whether the webhook took the pod. If pods are only integrated for what makes them, plain ones are not ours.
func marked(o plan.Object, cfg *plan.Config) bool {
	return o.GetLabels()[kueue.ManagedLabel] == "true" && (!cfg.PodsOfParentsOnly || parent(o) != "")
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
		return podset.Permanent("the admission has %d pod sets and a pod is 1", len(infos))
	}
	return podgroup.Open(pod, &infos[0])
}

// stop says why, then deletes. A pod that never ran, or is over, stays unless its Workload goes.
func stop(o plan.Object, _ []kueue.PodSet, why plan.StopReason) (plan.Step, plan.Object) {
	pod := o.(*corev1.Pod)
	switch {
	case (plan.PodIsGated(pod) || plan.PodIsOver(pod)) && why != plan.WorkloadDeleted:
		return plan.Stopped, nil
	case podgroup.IsTarget(pod):
		return plan.Delete, pod
	}
	return plan.ChangeStatus, podgroup.Target(pod, why, metav1.Time{})
}

func finished(o plan.Object) (message string, success, done bool) {
	pod := o.(*corev1.Pod)
	return pod.Status.Message, pod.Status.Phase == corev1.PodSucceeded, plan.PodIsOver(pod)
}

func podsReady(o plan.Object, _ *plan.Setting) bool { return podgroup.IsReady(o.(*corev1.Pod)) }

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
		if role, err := podgroup.Role(&pod.Spec); err == nil {
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
	if !plan.PodHasGate(pod, name) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
	}
}
