// Package statefulset is the integration of StatefulSet: one descriptor. Its pods
// are one group, with a Workload that exists before them.
//
//	replicas 0 ─► on hold, quota free      replicas n ─► queued again, with n pods
//
// Existing pods are marked directly, so that a StatefulSet does not roll out when
// it enters management.
package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

const (
	// framework is the name of the kind in the configuration and on pods.
	framework = "statefulset"
	// mainPodSet is the name of the one pod set.
	mainPodSet = "main"
)

// Descriptor describes StatefulSet (spec: 30 §4.9).
func Descriptor() *plan.Descriptor {
	return &plan.Descriptor{
		Framework:   framework,
		GVK:         gvk,
		Resource:    "statefulsets",
		Listing:     plan.Listing{NoUserRoles: true, Rules: []rbacv1.PolicyRule{plan.Allow(gvk.Group, []string{"statefulsets"}, "delete")}},
		New:         func() plan.Object { return &appsv1.StatefulSet{} },
		NewList:     func() runtime.Object { return &appsv1.StatefulSetList{} },
		IsSuspended: func(o plan.Object) bool { return o.(*appsv1.StatefulSet).Status.ReadyReplicas == 0 },
		Suspend:     func(plan.Object) {}, // its pods are gated instead
		Owns:        []plan.Child{{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Made: madePod}},
		Serving:     true,
		ServePods:   servePods,
		Open:        &plan.Open{Templates: []string{"spec.template"}},
		Claimed: func(o plan.Object) bool {
			parent := podgroup.Parent(&o.(*appsv1.StatefulSet).Spec.Template)
			return parent != "" && parent != framework
		},
		Default:  mark,
		Refers:   refers,
		Validate: validate,
		Sizes: func(o plan.Object, _ *plan.Setting) []plan.Size {
			return []plan.Size{{Path: field.NewPath("spec", "replicas"), What: "pods", N: replicas(o.(*appsv1.StatefulSet))}}
		},
		Sets:   &plan.Sets{Owner: owner, Parts: parts, Place: place, Index: appsv1.PodIndexLabel, Makers: podgroup.StatefulSets},
		Remote: &plan.Remote{Gated: true, Silent: true, OriginUID: true},
	}
}

var gvk = podgroup.StatefulSets.GVK

// mark makes the pods of a managed StatefulSet wait. Other templates are not changed.
func mark(o plan.Object, managed bool, _ *plan.Setting) {
	if managed {
		servePods(&o.(*appsv1.StatefulSet).Spec.Template, o)
	}
}

func servePods(t *corev1.PodTemplateSpec, _ metav1.Object) { podgroup.SetParent(t, framework) }

// replicas is the number of pods that the StatefulSet wants.
func replicas(s *appsv1.StatefulSet) int32 { return ptr.Deref(s.Spec.Replicas, 1) }

// owner is the StatefulSet that controls a pod.
func owner(pod *corev1.Pod) string {
	ref := podgroup.StatefulSets.Of(pod)
	if ref == nil || pod.Annotations[kueue.PodSuspendingParentAnnotation] != framework {
		return ""
	}
	return ref.Name
}

// parts is the one group.
func parts(o plan.Object, in *plan.Setting) ([]plan.Part, error) {
	s := o.(*appsv1.StatefulSet)
	part := plan.Part{Name: s.Name, Total: replicas(s)}
	if part.Total > 0 {
		part.PodSets = []kueue.PodSet{{
			Name: mainPodSet, Count: part.Total, Template: corev1.PodTemplateSpec{Spec: *s.Spec.Template.Spec.DeepCopy()},
			TopologyRequest: in.TopologyRequest(&s.Spec.Template.ObjectMeta, plan.Ranks{PodIndex: appsv1.PodIndexLabel}),
		}}
	}
	return []plan.Part{part}, nil
}

func place(o plan.Object, _ *corev1.Pod) (part, role string) { return o.GetName(), mainPodSet }

// refers names the Workload of a StatefulSet that has no pods and wants some.
func refers(o plan.Object) []plan.Reference {
	s := o.(*appsv1.StatefulSet)
	if s.UID == "" || replicas(s) == 0 || s.Status.Replicas > 0 {
		return nil
	}
	var out []plan.Reference
	for _, name := range plan.WorkloadNames(gvk, s) {
		out = append(out, plan.Reference{GVK: kueue.GroupVersion.WithKind("Workload"), Name: name, Uncached: true})
	}
	return out
}

// validate refuses to change the shape and the size of a queued StatefulSet: it may only be scaled to 0, and from there.
func validate(o, before plan.Object, in *plan.Setting) field.ErrorList {
	s := o.(*appsv1.StatefulSet)
	path := field.NewPath("spec", "template")
	errs := in.ValidateTopology(&s.Spec.Template.ObjectMeta, path.Child("metadata"), max(1, replicas(s)))
	if before == nil && podgroup.Parent(&s.Spec.Template) == framework && in.IsQueued(s) {
		errs = append(errs, podgroup.LongNames(s, plan.ExpectedName(s), max(1, replicas(s)))...)
	}
	if before == nil || podgroup.Parent(&s.Spec.Template) != framework || !in.IsQueued(s) {
		return errs
	}
	old := before.(*appsv1.StatefulSet)
	errs = append(errs, podgroup.SameShape(&s.Spec.Template, &old.Spec.Template, path)...)
	path = field.NewPath("spec", "replicas")
	was, is := replicas(old), replicas(s)
	switch {
	case was == is || is == 0:
	case was != 0:
		errs = append(errs, field.Forbidden(path, "may only change to 0, and from 0, while its pods are queued together"))
	case s.Status.Replicas > 0:
		errs = append(errs, field.Forbidden(path, "cannot change from 0 before all pods of the earlier size are gone"))
	default:
		for _, ref := range refers(s) {
			if w := in.Objects[ref]; w != nil && !mayReturn(w, in) {
				errs = append(errs, field.Forbidden(path, "cannot change from 0 before workload "+w.GetName()+" of the earlier size is on hold"))
			}
		}
	}
	return errs
}

// mayReturn reports whether the Workload of an earlier size may get another one: it is finished, or has no quota and is on hold, inactive
// or gated. The controller does not put an inactive or gated Workload on hold, as it is out of its queue already.
func mayReturn(o plan.Object, in *plan.Setting) bool {
	w := &kueue.Workload{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(view.Of(o).Object, w); err != nil {
		return false
	}
	if lifecycle.IsFinished(w) || lifecycle.IsOnHold(w) {
		return true
	}
	out := lifecycle.KeptOut(w, in.AdmissionGatedBy)
	return (out == lifecycle.Inactive || out == lifecycle.Gated) && !lifecycle.IsReserved(w)
}
