package statefulset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/review/reviewtest"
)

// A StatefulSet returns from 0 replicas once its Workload has left the queue, whatever keeps it out. spec: 30 §4.9.
func TestScaleFromZero(t *testing.T) {
	condition := func(name, reason string, status metav1.ConditionStatus) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: name, Status: status, Reason: reason})
		}
	}
	reserved := condition(kueue.WorkloadQuotaReserved, kueue.ReasonQuotaReserved, metav1.ConditionTrue)
	inactive := func(w *kueue.Workload) { w.Spec.Active = new(false) }
	gated := func(w *kueue.Workload) {
		w.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "acme.io/budget"}
	}
	type changes []func(*kueue.Workload)
	for name, tc := range map[string]struct {
		of      changes // nil: no Workload
		ungated bool    // the gate AdmissionGatedBy is off
		refused bool
	}{
		"no Workload":        {},
		"queued":             {of: changes{}, refused: true},
		"with quota":         {of: changes{reserved}, refused: true},
		"on hold":            {of: changes{condition(kueue.WorkloadQuotaReserved, kueue.ReasonOnHold, metav1.ConditionFalse)}},
		"finished":           {of: changes{condition(kueue.WorkloadFinished, kueue.ReasonSucceeded, metav1.ConditionTrue)}},
		"deactivated":        {of: changes{inactive}},
		"deactivated, holds": {of: changes{inactive, reserved}, refused: true},
		"gated":              {of: changes{gated}},
		"gated, holds":       {of: changes{gated, reserved}, refused: true},
		"gate off":           {of: changes{gated}, ungated: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			old := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "u", Labels: map[string]string{kueue.QueueNameLabel: "lq"}}}
			podgroup.SetParent(&old.Spec.Template, framework)
			old.Spec.Replicas = new(int32(0))
			s := old.DeepCopy()
			s.Spec.Replicas = new(int32(3))
			in := &plan.Setting{Config: &plan.Config{AdmissionGatedBy: !tc.ungated}, Objects: map[plan.Reference]plan.Object{}}
			if tc.of != nil {
				w := &kueue.Workload{}
				for _, change := range tc.of {
					change(w)
				}
				tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w)
				if err != nil {
					t.Fatal(err)
				}
				in.Objects[refers(s)[0]] = &unstructured.Unstructured{Object: tree}
			}
			var want []string
			if tc.refused {
				want = []string{"spec.replicas"}
			}
			if diff := cmp.Diff(want, reviewtest.Fields(t, review.Refuse(validate(s, old, in)))); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
		})
	}
}
