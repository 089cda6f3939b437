package job_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/job"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
)

func sent() (*batchv1.Job, *kueue.Workload) {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job-a"}, Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: template}}}}
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{kueue.QueueNameLabel: "lq"},
			Annotations: map[string]string{kueue.JobStoppingAnnotation: "true", "mine": "yes"}, OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, Finalizers: []string{"f"},
		},
		Spec: batchv1.JobSpec{
			Suspend: new(false), ManagedBy: new(kueue.MultiKueueControllerName), Selector: &metav1.LabelSelector{}, TTLSecondsAfterFinished: new(int32(5)),
			Template: *template.DeepCopy(),
		},
		Status: batchv1.JobStatus{Active: 1},
	}
	started := &j.Spec.Template
	started.Labels["controller-uid"], started.Labels[batchv1.ControllerUidLabel], started.Labels["job-name"] = "u", "u", "a"
	started.Labels[batchv1.JobNameLabel], started.Labels[kueue.PodSetLabel] = "a", "main"
	started.Spec.NodeSelector = map[string]string{"zone": "of-the-manager"}
	return j, w
}

// TestRemoteCopy is spec 40 §2.6, §4.6: a copy of a Job that has been started is as it was before.
func TestRemoteCopy(t *testing.T) {
	j, w := sent()
	cfg := &multikueueplan.Config{Origin: "hub", ManagerUID: "m", Annotations: true}
	got, err := cfg.NewJob(job.Descriptor(), j, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	var copied batchv1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &copied); err != nil {
		t.Fatal(err)
	}
	want := batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", Labels: map[string]string{kueue.QueueNameLabel: "lq", kueue.MultiKueueOriginLabel: "hub"},
			Annotations: map[string]string{"mine": "yes", kueue.PrebuiltWorkloadLabel: "job-a", multikueueplan.ManagerUIDAnnotation: "m"},
		},
		Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x", batchv1.JobNameLabel: "a"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}
	if diff := cmp.Diff(want, copied); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRemoteStatus is the last column of spec 40 §4.6, and §7.19 and §7.70.
func TestRemoteStatus(t *testing.T) {
	cfg := &multikueueplan.Config{Origin: "hub", Annotations: true}
	tests := map[string]struct {
		local, remote func(*batchv1.Job)
		gone, mirror  bool
		want          multikueueplan.JobVerb
		deferred      bool
		check         func(*testing.T, batchv1.JobStatus)
	}{
		"it is created":                  {gone: true, want: multikueueplan.CreateJob},
		"it is gone, and only looked at": {gone: true, mirror: true, want: multikueueplan.NoJob},
		"running on both sides": {want: multikueueplan.PatchStatus, check: func(t *testing.T, s batchv1.JobStatus) {
			if s.Active != 3 {
				t.Errorf("status %+v", s)
			}
		}},
		"not started here yet": {local: suspend, want: multikueueplan.PatchStatus, deferred: true, check: func(t *testing.T, s batchv1.JobStatus) {
			if s.Active != 1 || len(s.Conditions) != 1 || s.Conditions[0].Type != batchv1.JobSuspended || s.Conditions[0].Reason != "MultiKueueAdapter" {
				t.Errorf("status %+v", s)
			}
		}},
		"stopped on both sides": {local: suspend, remote: suspend, want: multikueueplan.PatchStatus},
		"finished before it began": {local: suspend, remote: func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}, want: multikueueplan.PatchStatus},
		"created there again": {local: func(j *batchv1.Job) { j.Status = ran(1, 2, 3) }, remote: func(j *batchv1.Job) { j.Status = ran(9, 0, 1); j.Status.Active = 2 }, want: multikueueplan.PatchStatus, check: func(t *testing.T, s batchv1.JobStatus) {
			if s.StartTime.Unix() != 1 || s.Failed != 2 || s.Succeeded != 3 || s.Active != 2 {
				t.Errorf("status %+v", s)
			}
		}},
		"created there again, and may shrink": {local: func(j *batchv1.Job) { j.Status = ran(1, 2, 3) }, remote: func(j *batchv1.Job) {
			j.Spec.CompletionMode, j.Spec.Completions, j.Spec.Parallelism = new(batchv1.IndexedCompletion), new(int32(2)), new(int32(2))
			j.Status = ran(9, 0, 1)
		}, want: multikueueplan.PatchStatus, check: func(t *testing.T, s batchv1.JobStatus) {
			if s.Failed != 2 || s.Succeeded != 1 {
				t.Errorf("status %+v", s)
			}
		}},
		"the same":         {remote: func(j *batchv1.Job) { j.Status.Active = 1 }, want: multikueueplan.NoJob},
		"on its way out":   {remote: func(j *batchv1.Job) { j.DeletionTimestamp = new(metav1.Now()) }, want: multikueueplan.NoJob, deferred: true},
		"an earlier run's": {remote: func(j *batchv1.Job) { j.Annotations[kueue.PrebuiltWorkloadLabel] = "job-b" }, want: multikueueplan.DeleteJob, deferred: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			local, w := sent()
			remote := local.DeepCopy()
			remote.Annotations = map[string]string{kueue.PrebuiltWorkloadLabel: w.Name}
			remote.Status.Active = 3
			if tc.local != nil {
				tc.local(local)
			}
			if tc.remote != nil {
				tc.remote(remote)
			}
			var there plan.Object
			if !tc.gone {
				there = remote
			}
			got, err := cfg.SyncJob(job.Descriptor(), local, there, w, nil, !tc.mirror)
			if err != nil || got.Do != tc.want || got.Deferred != tc.deferred {
				t.Fatalf("got %v, deferred %v, %v", got.Do, got.Deferred, err)
			}
			if tc.check != nil {
				tc.check(t, statusOf(t, got.Object))
			}
		})
	}
	local, _ := sent()
	if o, changed, err := multikueueplan.Quiet(job.Descriptor(), local); err != nil || !changed || statusOf(t, o).Active != 0 {
		t.Errorf("quiet: %v, %v, %v", o, changed, err)
	}
}

// ran is the status of a Job that started at a second, with one pod that runs.
func ran(start int64, failed, succeeded int32) batchv1.JobStatus {
	return batchv1.JobStatus{StartTime: new(metav1.Unix(start, 0)), Active: 1, Failed: failed, Succeeded: succeeded}
}

func suspend(j *batchv1.Job) { j.Spec.Suspend = new(true) }

func statusOf(t *testing.T, o *unstructured.Unstructured) batchv1.JobStatus {
	t.Helper()
	var j batchv1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &j); err != nil {
		t.Fatal(err)
	}
	return j.Status
}
