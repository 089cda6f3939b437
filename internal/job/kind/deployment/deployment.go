// Package deployment is the integration of Deployment: one descriptor. Each of its
// pods is queued separately, so only the pod template is marked; a changed queue
// rolls the Deployment out.
package deployment

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
)

// framework is the name of the kind in the configuration and on pods.
const framework = "deployment"

// Descriptor describes Deployment (spec: 30 §4.9).
func Descriptor() *plan.Descriptor {
	return &plan.Descriptor{
		Framework:   framework,
		GVK:         appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Resource:    "deployments",
		Listing:     plan.Listing{NoUserRoles: true},
		New:         func() plan.Object { return &appsv1.Deployment{} },
		NewList:     func() runtime.Object { return &appsv1.DeploymentList{} },
		IsSuspended: func(o plan.Object) bool { return o.(*appsv1.Deployment).Status.ReadyReplicas == 0 },
		Suspend:     func(plan.Object) {}, // its pods are gated instead
		Owns:        []plan.Child{{GVK: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Made: madeReplicaSet}},
		Serving:     true,
		ServePods:   servePods,
		Open:        &plan.Open{Templates: []string{"spec.template"}},
		Default:     mark,
		Sizes: func(o plan.Object, _ *plan.Setting) []plan.Size {
			n := int32(1)
			if r := o.(*appsv1.Deployment).Spec.Replicas; r != nil {
				n = *r
			}
			return []plan.Size{{Path: field.NewPath("spec", "replicas"), What: "pods", N: n}}
		},
	}
}

// madeReplicaSet checks only the name: ReplicaSets of earlier templates exist too, and the Deployment controller scales those to
// zero.
func madeReplicaSet(k *plan.OwnedBy) error {
	if !plan.HasPrefix(k.Child, k.Owner.GetName()+"-") {
		return plan.ErrOtherName
	}
	return nil
}

// mark makes the pods of a managed Deployment wait. Other templates are not changed.
func mark(o plan.Object, managed bool, _ *plan.Setting) {
	if !managed {
		return
	}
	servePods(&o.(*appsv1.Deployment).Spec.Template, o)
}

func servePods(t *corev1.PodTemplateSpec, owner metav1.Object) {
	podgroup.SetParent(t, framework)
	podgroup.SetQueue(t, owner.GetLabels())
	metav1.SetMetaDataLabel(&t.ObjectMeta, kueue.ManagedLabel, "true")
}
