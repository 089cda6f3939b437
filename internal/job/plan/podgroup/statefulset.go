package podgroup

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-project/berth/internal/job"
)

// StatefulSets are the makers of pods of kinds whose pods StatefulSets control.
var StatefulSets = &job.PodMakers{
	GVK:      appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	New:      func() job.Object { return &appsv1.StatefulSet{} },
	Template: func(o job.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.StatefulSet).Spec.Template },
	Outdated: func(o job.Object, pod *corev1.Pod) bool {
		st := &o.(*appsv1.StatefulSet).Status
		return st.CurrentRevision != "" && st.UpdateRevision != "" && st.CurrentRevision != st.UpdateRevision &&
			pod.Labels[appsv1.StatefulSetRevisionLabel] == st.CurrentRevision
	},
}

// revision is the usual number of digits of the hash of a StatefulSet's revision.
const revision = 8

// LongNames refuses a new object whose StatefulSet of the given name could never make its pods: these have their own names and the
// name of their revision as labels.
func LongNames(o metav1.Object, statefulSet string, pods int32) field.ErrorList {
	if errs := job.LongName(o, "its last pod", fmt.Sprintf("%s-%d", statefulSet, pods-1), job.MaxLabel); len(errs) > 0 {
		return errs
	}
	return job.LongName(o, "the revision of its pods", statefulSet+"-"+strings.Repeat("0", revision), job.MaxLabel)
}
