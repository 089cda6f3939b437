package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-project/berth/internal/job/plan/podset"
)

// SuspendedAnnotation marks a job that ran, or asked to run, until Berth suspended it, and a pod that Berth gated. It is removed
// when the job runs again. A marked job that leaves management is resumed, as its user wrote it (spec: 30 §4.2.5 rule 2).
const SuspendedAnnotation = "berth.dev/suspended"

// UnqueuedAnnotation marks a pod of a serving object that runs without an admission because its namespace was not managed. Other
// such pods that run without an admission were ungated on purpose, to be replaced in a roll-out.
const UnqueuedAnnotation = "berth.dev/unqueued"

// IsSuspendedByBerth reports whether Berth suspended the job and no client resumed it since.
func IsSuspendedByBerth(o metav1.Object) bool {
	return o.GetAnnotations()[SuspendedAnnotation] == "true"
}

// MarkSuspended marks an object that Berth suspends.
func MarkSuspended(o metav1.Object) { podset.Annotate(o, SuspendedAnnotation, "true") }

// UnmarkSuspended removes the mark, and reports whether there was one.
func UnmarkSuspended(o metav1.Object) bool { return podset.Unannotate(o, SuspendedAnnotation) }
