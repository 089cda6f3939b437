package plan_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	jobkind "github.com/berth-project/berth/internal/job/kind/job"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
)

// TestPrebuiltName: the copy of a job names its Workload in a label, or in an annotation if it has more than 63 characters. Reading finds both
// (spec: 40 §2.6).
func TestPrebuiltName(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations bool
		length      int
		inLabel     bool
	}{
		"annotations, short": {true, 10, false},
		"annotations, long":  {true, 64, false},
		"labels, short":      {false, 10, true},
		"labels, longest":    {false, 63, true},
		"labels, too long":   {false, 64, false},
		"labels, longer":     {false, 253, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := reserved(func(w *kueue.Workload) { w.Name = strings.Repeat("x", tc.length) })
			cfg := config()
			cfg.Annotations = tc.annotations
			local := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "j", Labels: map[string]string{kueue.PrebuiltWorkloadLabel: "other"}, Annotations: map[string]string{kueue.PrebuiltWorkloadLabel: "another"},
			}}
			got, err := cfg.NewJob(jobkind.Descriptor(), local, w, nil)
			if err != nil {
				t.Fatal(err)
			}
			inLabel, inAnnotation := got.GetLabels()[kueue.PrebuiltWorkloadLabel], got.GetAnnotations()[kueue.PrebuiltWorkloadLabel]
			if (inLabel == w.Name) != tc.inLabel || (inAnnotation == w.Name) == tc.inLabel || (inLabel != "" && inAnnotation != "") {
				t.Errorf("label %q, annotation %q", inLabel, inAnnotation)
			}
			if cfg.WorkloadOf(got) != w.Name {
				t.Errorf("it is read as %q", cfg.WorkloadOf(got))
			}
		})
	}
}

// TestTerminating: the status of a terminating remote job is ignored, it is neither deleted again nor updated, and the Workload is requeued until
// it is deleted (spec: 40 §4.6, §7.70).
func TestTerminating(t *testing.T) {
	w := reserved()
	local := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}, Spec: batchv1.JobSpec{Suspend: new(false)}}
	there := func(changes ...func(*batchv1.Job)) plan.Object {
		j := local.DeepCopy()
		j.Annotations = map[string]string{kueue.PrebuiltWorkloadLabel: w.Name}
		j.Status.Active = 3
		for _, change := range changes {
			change(j)
		}
		return j
	}
	going := func(j *batchv1.Job) { j.DeletionTimestamp = &t0 }
	earlier := func(j *batchv1.Job) { j.Annotations[kueue.PrebuiltWorkloadLabel] = "other" }
	complete := func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: "True"}}
	}
	for name, tc := range map[string]struct {
		remote   plan.Object
		create   bool
		want     multikueueplan.JobVerb
		deferred bool
	}{
		"it runs":                               {there(), true, multikueueplan.PatchStatus, false},
		"it goes":                               {there(going), true, multikueueplan.NoJob, true},
		"it goes, and is only looked at":        {there(going), false, multikueueplan.NoJob, true},
		"it goes, and had ended":                {there(going, complete), true, multikueueplan.NoJob, true},
		"it goes, and is of an earlier run":     {there(going, earlier), true, multikueueplan.NoJob, true},
		"it is of an earlier run":               {there(earlier), true, multikueueplan.DeleteJob, true},
		"it is of an earlier run, and finished": {there(earlier, complete), false, multikueueplan.DeleteJob, true},
	} {
		step, err := config().SyncJob(jobkind.Descriptor(), local, tc.remote, w, nil, tc.create)
		if err != nil || step.Do != tc.want || step.Deferred != tc.deferred {
			t.Errorf("%s: %v, deferred %v, %v", name, step.Do, step.Deferred, err)
		}
	}
}

// TestElasticOfEarlierRun: the remote job of an elastic Workload may name another slice, but not another local job of its name.
func TestElasticOfEarlierRun(t *testing.T) {
	w := reserved(func(w *kueue.Workload) { w.Annotations[kueue.ElasticJobAnnotation] = "true" })
	local := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "now"}, Spec: batchv1.JobSpec{Suspend: new(false), Parallelism: new(int32(2))}}
	made, err := config().NewJob(jobkind.Descriptor(), local, w, nil)
	if err != nil || made.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation] != "now" {
		t.Fatalf("created with %v, %v", made.GetAnnotations(), err)
	}
	for origin, want := range map[string]multikueueplan.JobVerb{
		"now": multikueueplan.PatchStatus, "earlier": multikueueplan.DeleteJob, "": multikueueplan.PatchStatus, // older versions did not set it
	} {
		there := local.DeepCopy()
		there.Annotations = map[string]string{kueue.PrebuiltWorkloadLabel: "another-slice", kueue.MultiKueueOriginUIDAnnotation: origin}
		there.Status.Succeeded = 2
		if step, err := config().SyncJob(jobkind.Descriptor(), local, there, w, nil, true); err != nil || step.Do != want {
			t.Errorf("of %q: %v, %v", origin, step.Do, err)
		}
	}
}
