package lifecycle

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Import admits a Workload whose pods ran before it was created, regardless of free quota. The checks that its queue requires are
// Ready, as there is nothing left to delay. Repeating it changes nothing; another admission replaces the existing
// one (spec: 70 §4.11). It reports whether the Workload changed.
func (m Machine) Import(w *kueue.Workload, admission *kueue.Admission, required []kueue.AdmissionCheckReference, now metav1.Time) bool {
	if IsFinished(w) || IsEvicted(w) {
		return false
	}
	if IsReserved(w) && IsAdmitted(w) && equality.Semantic.DeepEqual(w.Status.Admission, admission) {
		return false
	}
	w.Status.Admission = admission
	message := "Imported into ClusterQueue " + string(admission.ClusterQueue)
	w.Status.AdmissionChecks = nil
	for _, name := range required {
		w.Status.AdmissionChecks = append(w.Status.AdmissionChecks, kueue.AdmissionCheckState{
			Name: name, State: kueue.CheckStateReady, Message: message, LastTransitionTime: now,
		})
	}
	set(w, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonImported, message, now)
	set(w, kueue.WorkloadAdmitted, metav1.ConditionTrue, kueue.ReasonImported, message, now)
	return true
}
