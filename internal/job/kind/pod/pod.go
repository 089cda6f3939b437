// Package pod is the integration of plain pods: one descriptor.
//
// A pod waits behind a scheduling gate, which only a new pod can get, so a
// running pod cannot be suspended: it is stopped by deleting it.
//
//	created ─► webhook: label, finalizer, gates ─► Workload ─► admitted: merged and ungated, one patch
//	evicted ─► condition TerminationTarget ─► deleted ─► Workload finished ─► finalizer off
//
// The pods of a named group are one job: see internal/job/plan/podgroup.
//
// The label that the webhook sets marks a queued pod: the owners of a pod are
// judged at its creation only (spec: 30 §4.2.2, §4.9).
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
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

// mainPodSet is the name of the one pod set.
const mainPodSet = "main"

// Descriptors returns Pod for a manager with the given configuration; nil is the default configuration.
func Descriptors(o *options.Options) []*plan.Descriptor {
	gates := feature.Default()
	if o != nil {
		gates = o.Gates
	}
	return []*plan.Descriptor{descriptor(gates)}
}

// Descriptor describes Pod in the default configuration.
func Descriptor() *plan.Descriptor { return descriptor(feature.Default()) }

func descriptor(gates feature.Gates) *plan.Descriptor {
	rules := podgroup.Rules{
		Fast: gates.On(feature.FastQuotaReleaseInPodIntegration), OnlyMarked: gates.On(feature.PodIntegrationValidateGroupOwner),
	}
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
		Restore:     func(plan.Object, []kueue.PodSet) bool { return false }, // stopped pods are deleted
		Stops:       &plan.Stops{Next: stop, Begun: func(o plan.Object) bool { return podgroup.IsTarget(o.(*corev1.Pod)) }},
		Finished:    finished,
		IsActive:    isActive,
		PodsReady:   podsReady,
		Owns:        owns,
		Once: &plan.Once{
			Marked: marked, Finalize: func(o plan.Object) bool { return podgroup.RemoveFinalizer(o.(*corev1.Pod)) }, Alone: true,
			Requeues: !gates.On(feature.SkipReassignmentForPodOwnedWorkloads), StatusManager: podgroup.StatusManager, Warn: warn,
		},
		Open:       &plan.Open{},
		Groups:     podgroup.Groups(member, rules),
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

func podLabels(o plan.Object) (map[string]string, error) {
	if group := o.GetLabels()[kueue.PodGroupNameLabel]; group != "" {
		return map[string]string{kueue.PodGroupNameLabel: group}, nil
	}
	return nil, fmt.Errorf("%s is of no group: kubectl get pod %s -n %s", o.GetName(), o.GetName(), o.GetNamespace())
}

// member is the group of a queued pod, or "".
func member(o plan.Object, cfg *plan.Config) string {
	if !marked(o, cfg) {
		return ""
	}
	return cfg.GroupName(o)
}

// parent is the framework that queues the pod instead of its owners, or "".
func parent(o metav1.Object) string { return o.GetAnnotations()[kueue.PodSuspendingParentAnnotation] }

// marked reports whether the webhook has marked the pod. With PodsOfParentsOnly plain pods are not ours.
func marked(o plan.Object, cfg *plan.Config) bool {
	return o.GetLabels()[kueue.ManagedLabel] == "true" && (!cfg.PodsOfParentsOnly || parent(o) != "")
}

// podSets uses the pod's spec only; its labels and annotations have no effect.
func podSets(o plan.Object, in *plan.Setting) ([]kueue.PodSet, error) {
	pod := o.(*corev1.Pod)
	template := corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()}
	return []kueue.PodSet{{
		Name: mainPodSet, Count: 1, Template: template,
		TopologyRequest: in.TopologyRequest(&pod.ObjectMeta, plan.Ranks{PodIndex: kueue.PodGroupPodIndexLabel}),
	}}, nil
}

// start merges the admitted values and removes the gate. The topology gate stays if the pod still has to be placed.
func start(o plan.Object, infos []plan.PodSetInfo, _ *plan.Setting) error {
	pod := o.(*corev1.Pod)
	if len(infos) != 1 {
		return podset.Permanent("the admission has %d pod sets and a pod is 1", len(infos))
	}
	return podgroup.Open(pod, &infos[0])
}

// stop records the reason, then deletes the pod. A pod that never ran, or has ended, is deleted only with its Workload.
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

// setDefaults gates a new pod, for its own Workload or for the framework of its parent.
func setDefaults(o plan.Object, managed bool, in *plan.Setting) {
	pod := o.(*corev1.Pod)
	claimed := parent(pod) != ""
	if (!managed && !claimed) || (in.PodsOfParentsOnly && !claimed) {
		return
	}
	if !claimed {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, kueue.ManagedLabel, "true")
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
			podset.Annotate(pod, kueue.RoleHashAnnotation, role)
		}
	}
	if from := pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation]; from != "" && in.Topology {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, kueue.PodGroupPodIndexLabel, pod.Labels[from])
	}
}

func addGate(pod *corev1.Pod, name string) {
	if !plan.PodHasGate(pod, name) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
	}
}
