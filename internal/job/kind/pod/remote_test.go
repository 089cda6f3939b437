package pod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/kind/pod"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
)

var sender = &multikueueplan.Config{Origin: "hub", ManagerUID: "m", Annotations: true}

// sent is a pod that waits here, and its Workload.
func sent() (*corev1.Pod, *kueue.Workload) {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7", Labels: map[string]string{kueue.ManagedLabel: "true"},
			Finalizers: []string{kueue.ManagedFinalizer}, OwnerReferences: []metav1.OwnerReference{{Name: "rs"}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}}, Priority: new(int32(5)), PreemptionPolicy: new(corev1.PreemptNever), PriorityClassName: "high",
			SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort, ObservedGeneration: 1, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated},
		}},
	}, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}}
}

// TestRemoteCopy: a copy has the gate and the user's fields, and no field that only the local cluster sets.
func TestRemoteCopy(t *testing.T) {
	local, w := sent()
	got, err := sender.NewJob(pod.Descriptor(), local, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	var copied corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &copied); err != nil {
		t.Fatal(err)
	}
	want := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", Labels: map[string]string{kueue.ManagedLabel: "true", kueue.MultiKueueOriginLabel: "hub"},
			Annotations: map[string]string{kueue.PrebuiltWorkloadLabel: "g", multikueueplan.ManagerUIDAnnotation: "m"},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}}, PriorityClassName: "high",
			SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}},
		},
	}
	if diff := cmp.Diff(want, copied); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRemoteStatus is what becomes of the two pods when one of them changes (spec: 40 §4.6).
func TestRemoteStatus(t *testing.T) {
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	target := corev1.PodCondition{Type: "TerminationTarget", Status: corev1.ConditionTrue}
	phase := func(p corev1.PodPhase, conditions ...corev1.PodCondition) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Conditions = p, conditions }
	}
	deleted := func(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }
	none := func(*corev1.Pod) {}
	for name, tc := range map[string]struct {
		local, remote func(*corev1.Pod) // nil: there is none
		mirror        bool
		do            multikueueplan.JobVerb
		deferred      bool
		phase         corev1.PodPhase
		reason        string // of PodScheduled
	}{
		"no copy":                        {none, nil, false, multikueueplan.CreateJob, false, "", ""},
		"no copy, only looking":          {none, nil, true, multikueueplan.NoJob, false, "", ""},
		"no copy of one that has ended":  {phase(corev1.PodFailed), nil, false, multikueueplan.NoJob, false, "", ""},
		"no copy of one that is deleted": {deleted, nil, false, multikueueplan.NoJob, false, "", ""},
		"deleted here":                   {deleted, none, false, multikueueplan.DeleteJob, false, "", ""},
		"deleted on both sides":          {deleted, deleted, false, multikueueplan.NoJob, false, "", ""},
		"waits there":                    {none, phase(corev1.PodPending), false, multikueueplan.NoJob, false, "", ""},
		"has a node there":               {none, phase(corev1.PodPending, scheduled), false, multikueueplan.PatchStatus, false, corev1.PodPending, ""},
		"runs":                           {none, phase(corev1.PodRunning, scheduled, ready), false, multikueueplan.PatchStatus, false, corev1.PodRunning, ""},
		"has ended":                      {none, phase(corev1.PodSucceeded, scheduled), true, multikueueplan.PatchStatus, false, corev1.PodSucceeded, ""},
		"says something, without a node": {none, phase(corev1.PodPending, ready), false, multikueueplan.PatchStatus, false, corev1.PodPending, corev1.PodReasonSchedulingGated},
		"being deleted there":            {none, func(p *corev1.Pod) { phase(corev1.PodRunning, scheduled)(p); deleted(p) }, false, multikueueplan.NoJob, true, "", ""},
		"drained there":                  {none, func(p *corev1.Pod) { phase(corev1.PodFailed, scheduled)(p); deleted(p) }, false, multikueueplan.PatchStatus, false, corev1.PodFailed, ""},
		"taken back there":               {none, func(p *corev1.Pod) { phase(corev1.PodFailed, scheduled, target)(p); deleted(p) }, false, multikueueplan.NoJob, true, "", ""},
		"drained, after an eviction":     {none, func(p *corev1.Pod) { phase(corev1.PodFailed, scheduled)(p); deleted(p) }, true, multikueueplan.NoJob, true, "", ""},
		"of another Workload":            {none, func(p *corev1.Pod) { p.Annotations[kueue.PrebuiltWorkloadLabel] = "h" }, false, multikueueplan.DeleteJob, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			local, w := sent()
			there := local.DeepCopy()
			there.Annotations = map[string]string{kueue.PrebuiltWorkloadLabel: "g"}
			there.Status.Conditions, there.Status.QOSClass, there.Status.NominatedNodeName = nil, corev1.PodQOSBurstable, "n"
			tc.local(local)
			d := pod.Descriptor()
			get := func() (multikueueplan.JobStep, error) {
				if tc.remote == nil {
					return sender.SyncJob(d, local, nil, w, nil, !tc.mirror)
				}
				tc.remote(there)
				return sender.SyncJob(d, local, there, w, nil, !tc.mirror)
			}
			got, err := get()
			if err != nil || got.Do != tc.do || got.Deferred != tc.deferred {
				t.Fatalf("got %d, deferred %v, %v", got.Do, got.Deferred, err)
			}
			if tc.do != multikueueplan.PatchStatus {
				return
			}
			var next corev1.Pod
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object.Object, &next); err != nil {
				t.Fatal(err)
			}
			if next.Status.Phase != tc.phase || next.Status.QOSClass != corev1.PodQOSBestEffort || next.Status.NominatedNodeName != "" {
				t.Errorf("status %+v", next.Status)
			}
			for _, c := range next.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Reason != tc.reason {
					t.Errorf("scheduled: %+v", c)
				}
			}
		})
	}
}

// TestRemoteQuiet: a pod whose copy is deleted is pending again, and does not count as running; an ended pod stays ended.
func TestRemoteQuiet(t *testing.T) {
	d := pod.Descriptor()
	runs, _ := sent()
	before := runs.Status.DeepCopy()
	runs.Status.Phase, runs.Status.ContainerStatuses = corev1.PodRunning, []corev1.ContainerStatus{{Name: "c"}}
	runs.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	if !d.IsActive(runs) {
		t.Error("a pod that runs elsewhere holds no quota")
	}
	next, changed, err := multikueueplan.Quiet(d, runs)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	var quiet corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(next.Object, &quiet); err != nil {
		t.Fatal(err)
	}
	before.Conditions[0].Message = quiet.Status.Conditions[0].Message
	if diff := cmp.Diff(*before, quiet.Status); diff != "" || d.IsActive(&quiet) {
		t.Errorf("active %v, -want +got:\n%s", d.IsActive(&quiet), diff)
	}
	over := runs.DeepCopy()
	over.Status.Phase = corev1.PodFailed
	if _, changed, err := multikueueplan.Quiet(d, over); changed || err != nil {
		t.Errorf("a pod that has failed: changed %v, %v", changed, err)
	}
}
