package lifecycle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// An imported Workload is admitted once, with Ready checks; a finished or evicted one does not change.
func TestImport(t *testing.T) {
	now, later := metav1.NewTime(time.Unix(100, 0)), metav1.NewTime(time.Unix(200, 0))
	admission := func() *kueue.Admission {
		return &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}
	}
	m := lifecycle.Machine{}
	w := &kueue.Workload{}
	m.Pending(w, kueue.ReasonWaitingForQuota, "no quota", now)
	if !m.Import(w, admission(), []kueue.AdmissionCheckReference{"c"}, now) || !lifecycle.IsReserved(w) || !lifecycle.IsAdmitted(w) {
		t.Fatalf("not admitted: %+v", w.Status)
	}
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		if c := lifecycle.Condition(w, kind); c.Reason != "Imported" {
			t.Errorf("%s: %s", kind, c.Reason)
		}
	}
	if c := w.Status.AdmissionChecks; len(c) != 1 || c[0].Name != "c" || c[0].State != kueue.CheckStateReady {
		t.Errorf("checks %+v", c)
	}
	before := w.DeepCopy()
	if m.Import(w, admission(), []kueue.AdmissionCheckReference{"c"}, later) || !cmp.Equal(before, w) {
		t.Errorf("the second time: %s", cmp.Diff(before, w))
	}
	other := admission()
	other.ClusterQueue = "other"
	if !m.Import(w.DeepCopy(), other, nil, later) {
		t.Error("another admission is not applied")
	}
	for name, change := range map[string]func(*kueue.Workload){
		"finished": func(w *kueue.Workload) { m.Finish(w, kueue.ReasonSucceeded, "", now) },
		"evicted":  func(w *kueue.Workload) { m.Evict(w, kueue.ReasonPreempted, "", "", now) },
	} {
		w := before.DeepCopy()
		change(w)
		if m.Import(w, other, nil, later) || w.Status.Admission.ClusterQueue != "cq" {
			t.Errorf("%s: imported again", name)
		}
	}
}
