package lifecycle

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// VariantRankAnnotation on a variant is the place of its flavor in its ClusterQueue: the preferred flavor has the lowest.
const VariantRankAnnotation = "berth.dev/variant-rank"

// IsParent reports whether variants of the Workload are queued in its place. What its status says is reserved is the quota of the
// variant that it runs on (spec: 20 §4.13).
func IsParent(w *kueue.Workload) bool {
	return w.Labels[kueue.ConcurrentAdmissionParentLabel] == "true"
}

// VariantOf returns the UID of the parent of a variant, "" for a Workload that is none (spec: 20 §4.13).
func VariantOf(w *kueue.Workload) string {
	owner := metav1.GetControllerOfNoCopy(w)
	if owner == nil || owner.Kind != "Workload" || w.Annotations[kueue.AllowedResourceFlavorsAnnotation] == "" ||
		owner.APIVersion != kueue.GroupVersion.String() {
		return ""
	}
	return string(owner.UID)
}

// VariantRank returns the value of the annotation; the lowest, 0, for none that is a number.
func VariantRank(w *kueue.Workload) int32 {
	n, err := strconv.ParseInt(w.Annotations[VariantRankAnnotation], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// MayAdmit reports whether nothing but other variants keeps a variant with a quota reservation from its admission.
func (m Machine) MayAdmit(w *kueue.Workload) bool {
	return IsReserved(w) && !IsAdmitted(w) && !IsEvicted(w) && !IsFinished(w) && IsActive(w) && w.DeletionTimestamp == nil &&
		!m.waitsForPlacement(w) &&
		!slices.ContainsFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady })
}

// AdmitVariant admits a variant with a quota reservation, once its checks are ready. No other transition does: of the variants of a job
// only one may be admitted at a time (spec: 20 §4.13).
func (m Machine) AdmitVariant(w *kueue.Workload, now metav1.Time) bool {
	return m.MayAdmit(w) && m.syncAdmitted(w, true, now)
}

// CopyAdmission makes the parent admitted with the admission of its admitted variant (spec: 20 §4.13).
func (m Machine) CopyAdmission(parent, variant *kueue.Workload, now metav1.Time) bool {
	if IsReserved(parent) || !IsAdmitted(variant) || IsEvicted(variant) || variant.Status.Admission == nil {
		return false
	}
	parent.Status.AdmissionChecks = nil
	return m.Reserve(parent, variant.Status.Admission.DeepCopy(), nil, now)
}

// FollowNodes records at a variant which nodes failed under its parent, for the engine to replace them (spec: 20 §4.9, §4.13).
func (m Machine) FollowNodes(variant, parent *kueue.Workload) bool {
	if !IsAdmitted(variant) || IsEvicted(variant) || IsFinished(variant) || slices.Equal(variant.Status.UnhealthyNodes, parent.Status.UnhealthyNodes) {
		return false
	}
	variant.Status.UnhealthyNodes = slices.Clone(parent.Status.UnhealthyNodes)
	return true
}

// FollowPlaces gives a parent the places of the pods of its variant, once these are others (spec: 20 §4.9, §4.13).
func (m Machine) FollowPlaces(parent, variant *kueue.Workload, now metav1.Time) bool {
	a, b := parent.Status.Admission, variant.Status.Admission
	if a == nil || b == nil || IsEvicted(variant) || slices.EqualFunc(a.PodSetAssignments, b.PodSetAssignments, samePlaces) {
		return false
	}
	return m.Placed(parent, b.DeepCopy(), now)
}

func samePlaces(a, b kueue.PodSetAssignment) bool {
	return a.Name == b.Name && equality.Semantic.DeepEqual(a.TopologyAssignment, b.TopologyAssignment)
}
