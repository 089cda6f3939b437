package lifecycle

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Import admits a Workload whose pods ran before it was there, whatever quota is free. The checks that its queue requires are
// Ready: they have nothing left to hold up. The same once more changes nothing; another admission takes the place of the one that is
// there (spec: 70 §4.11). It tells whether the Workload changed.
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
