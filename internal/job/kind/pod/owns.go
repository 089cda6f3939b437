package pod

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	plan "github.com/berth-project/berth/internal/job"
)

// owns are pods that controllers make for an owner of the pod: executors of a Spark driver, and the workers of the leader of a
// LeaderWorkerSet. The Workload of the pod itself counts neither.
var owns = []plan.Child{
	{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Relay: true, Made: func(k *plan.OwnedBy) error {
		const app = "spark-app-selector"
		if name := k.Child.GetLabels()[app]; name == "" || name != k.Owner.GetLabels()[app] {
			return plan.ErrOtherName
		}
		return nil
	}},
	{GVK: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), Relay: true, Made: func(k *plan.OwnedBy) error {
		if k.Child.GetName() != k.Owner.GetName() {
			return plan.ErrOtherName
		}
		return nil
	}},
}
