package podgroup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/options/feature"
)

// TestGroup is the life of groups: each step changes the world and states the consequences.
func TestGroup(t *testing.T) {
	type step struct {
		do   func(x *world)
		want []string
	}
	gone := func(names ...string) func(*world) { return func(x *world) { x.remove(names...) } }
	add := func(total int, members ...string) func(*world) { return func(x *world) { x.add(total, members...) } }
	admit, evict := (*world).admit, (*world).evict
	over := func(phase corev1.PodPhase, names ...string) func(*world) {
		return func(x *world) { x.phase(phase, names...) }
	}
	gpus := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("64")
	}
	tests := map[string]struct {
		start func() *world
		steps []step
	}{
		"from the first pod to the end": {newWorld, []step{
			{add(4, "a:B", "b:A", "c:A"), []string{"waits: pod group g does not have all of its 4 pods: create the others"}},
			{add(4, "d:A"), []string{"create A:3 B:1 of a b c d, CreatedWorkload"}},
			{admit, []string{"status PodsReady=False/WaitForStart", "open a b c d, Started"}},
			{(*world).schedule, []string{"status PodsReady=True/Started"}},
			{over(corev1.PodSucceeded, "b"), []string{"status reclaim A:1"}},
			{over(corev1.PodSucceeded, "a", "c", "d"), []string{"status Finished=True/Succeeded, FinishedWorkload", "let the workload go", "let go a b c d"}},
		}},
		"fast admission": {newWorld, []step{
			{func(x *world) {
				x.add(100, "a:A")
				x.each(annotate(kueue.PodGroupFastAdmissionAnnotation, "true"))
			}, []string{"create A:100 of a, CreatedWorkload"}},
			{admit, []string{"status PodsReady=False/WaitForStart", "open a, Started"}},
			{func(x *world) { add(100, "b:A")(x); x.each(annotate(kueue.PodGroupFastAdmissionAnnotation, "true")) }, []string{"update A:100 of a to A:100 of a b, OwnerReferencesAdded", "open b, Started"}},
		}},
		"a pod fails and is replaced": {running, []step{
			{over(corev1.PodFailed, "a"), []string{"status WaitingForReplacementPods=True/PodsFailed"}},
			{add(3, "a2:A"), []string{
				"update A:2 B:1 of a b c to A:2 B:1 of a b c a2, OwnerReferencesAdded", "let go a",
				"status WaitingForReplacementPods=False/PodsReady", "open a2, Started",
			}},
			{over(corev1.PodSucceeded, "a2", "b", "c"), []string{"status Finished=True/Succeeded, FinishedWorkload", "let the workload go", "let go a2 b c"}},
		}},
		"a pod loses its role, and the group has to make room": {running, []step{
			{func(x *world) { x.each(annotate(kueue.RoleHashAnnotation, ""), "a") }, []string{
				"waits: pod a has no annotation kueue.x-k8s.io/role-hash, which its webhook sets: create it again",
			}},
			{evict, []string{
				"tell WorkloadEvictedDueToPreempted a b c, Stopped", "delete a b c", "status WaitingForReplacementPods=True/Preempted",
			}},
		}},
		"one too many": {running, []step{
			{add(3, "d:A"), []string{"let go d", "delete d, ExcessPodDeleted"}},
		}},
		"one too many before there is a workload": {newWorld, []step{
			{func(x *world) { x.add(2, "a:A", "b:A", "c:B") }, []string{"let go c", "delete c, ExcessPodDeleted", "create A:2 of a b, CreatedWorkload"}},
		}},
		"the last pod fails and does not want a replacement": {running, []step{
			{func(x *world) {
				x.each(annotate(kueue.RetriableInGroupAnnotation, "false"), "c")
				x.phase(corev1.PodSucceeded, "a", "b")
			}, []string{"status reclaim A:2"}},
			{over(corev1.PodFailed, "c"), []string{"status Finished=True/Failed, FinishedWorkload", "let the workload go", "let go a b c"}},
		}},
		"preempted, and replaced": {running, []step{
			{evict, []string{"tell WorkloadEvictedDueToPreempted a b c, Stopped", "delete a b c"}},
			{over(corev1.PodFailed), []string{
				"status WaitingForReplacementPods=True/Preempted",
				"status QuotaReserved=False/PendingEvaluation Admitted=False/NoReservation Requeued=True/Preempted",
			}},
			{add(3, "a2:A", "b2:A"), []string{"update A:2 B:1 of a b c to A:2 B:1 of a b c a2 b2, OwnerReferencesAdded", "let go a b"}},
			{add(3, "c2:B"), []string{"update A:2 B:1 of a b c a2 b2 to A:2 B:1 of a b c a2 b2 c2, OwnerReferencesAdded", "let go c", "status WaitingForReplacementPods=False/PodsReady"}},
			{admit, []string{"open a2 b2 c2, Started"}},
		}},
		"a pod that ends on its node yields to its replacement": {running, []step{
			{gone("a"), nil},
			{add(3, "a2:A"), []string{"update A:2 B:1 of a b c to A:2 B:1 of a b c a2, OwnerReferencesAdded", "let go a", "open a2, Started"}},
		}},
		"on hold, its pods come before what serves is resized": {newWorld, []step{
			{add(2, "a:A", "b:A"), []string{"create A:2 of a b, CreatedWorkload"}},
			{func(x *world) {
				x.w = x.w.DeepCopy()
				x.cfg.Lifecycle.Pending(x.w, kueue.ReasonOnHold, "It has no replicas", x.now)
			}, nil},
		}},
		"a gated pod is deleted before the group is admitted": {newWorld, []step{
			{add(2, "a:A", "b:A"), []string{"create A:2 of a b, CreatedWorkload"}},
			{gone("b"), []string{"status WaitingForReplacementPods=True/PodsFailed"}},
			{add(2, "b2:A"), []string{"update A:2 of a b to A:2 of a b b2, OwnerReferencesAdded", "let go b", "status WaitingForReplacementPods=False/PodsReady"}},
		}},
		"another shape comes while the group waits": {newWorld, []step{
			{add(2, "a:A", "b:A"), []string{"create A:2 of a b, CreatedWorkload"}},
			{gone("b"), []string{"status WaitingForReplacementPods=True/PodsFailed"}},
			{add(2, "b2:B"), []string{"update A:2 of a b to A:1 B:1 of a b, UpdatedWorkload", "update A:1 B:1 of a b to A:1 B:1 of a b b2, OwnerReferencesAdded", "let go b", "status WaitingForReplacementPods=False/PodsReady"}},
			{admit, []string{"status PodsReady=False/WaitForStart", "open a b2, Started"}},
		}},
		"another shape comes while the group runs": {running, []step{
			{add(3, "d:X"), []string{"tell NoMatchingWorkload a b c, Stopped", "delete a b c"}},
			{over(corev1.PodFailed, "a", "b", "c"), []string{
				"let the workload go", "delete the workload, DeletedWorkload", "let go a b c", "waits: pod group g does not have all of its 3 pods: create the others",
			}},
		}},
		"a pod asks for more than the first of its role": {newWorld, []step{
			{func(x *world) { x.add(2, "a:A", "b:A"); x.each(gpus, "b") }, []string{
				"waits: pod b asks for more than pod a of the same kueue.x-k8s.io/role-hash, a, as which it would be counted " +
					"(container c requests 64 nvidia.com/gpu, and its template 0): create it again, with another role or none",
			}},
		}},
		"a pod asks for less than the first of its role": {newWorld, []step{
			{func(x *world) { x.add(2, "a:A", "b:A"); x.each(gpus, "a") }, []string{"create A:2 of a b, CreatedWorkload"}},
		}},
		"a replacement asks for more": {running, []step{
			{over(corev1.PodFailed, "a"), []string{"status WaitingForReplacementPods=True/PodsFailed"}},
			{func(x *world) { x.add(3, "a2:A"); x.each(gpus, "a2") }, []string{"let go a2", "delete a2, ExcessPodDeleted"}},
		}},
		"a replacement of a prebuilt group asks for more": {running, []step{
			{func(x *world) {
				x.add(3, "a2:A")
				x.each(gpus, "a2")
				x.each(func(p *corev1.Pod) { p.Labels[kueue.PrebuiltWorkloadLabel] = "g" })
			}, []string{"let go a2", "delete a2, ExcessPodDeleted"}},
		}},
		"a pod of fast admission asks for more": {newWorld, []step{
			{func(x *world) {
				x.add(2, "a:A")
				x.each(annotate(kueue.PodGroupFastAdmissionAnnotation, "true"))
			}, []string{"create A:2 of a, CreatedWorkload"}},
			{admit, []string{"status PodsReady=False/WaitForStart", "open a, Started"}},
			{func(x *world) { add(2, "b:A")(x); x.each(gpus, "b") }, []string{"let go b", "delete b, ExcessPodDeleted"}},
		}},
		"a running pod is resized in place": {running, []step{
			{func(x *world) {
				x.each(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("9") }, "a")
			}, nil},
		}},
		"one pod has a sidecar that a webhook added": {newWorld, []step{
			{func(x *world) {
				x.add(2, "a:A", "b:A")
				x.each(func(p *corev1.Pod) {
					p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")},
					}})
				}, "b")
			}, []string{"create A:2 of a b, CreatedWorkload"}},
			{admit, []string{"status PodsReady=False/WaitForStart", "open a b, Started"}},
		}},
		"the containers of a role have names of their own": {newWorld, []step{
			{func(x *world) {
				x.add(2, "a:A", "b:A")
				x.each(gpus)
				x.each(func(p *corev1.Pod) { p.Spec.Containers[0].Name = "c-" + p.Name })
			}, []string{"create A:2 of a b, CreatedWorkload"}},
			{admit, []string{"status PodsReady=False/WaitForStart", "open a b, Started"}},
		}},
		"it shrinks and grows while it waits": {newWorld, []step{
			{add(3, "a:A", "b:A", "c:A"), []string{"create A:3 of a b c, CreatedWorkload"}},
			{func(x *world) {
				x.each(annotate(kueue.PodGroupTotalCountAnnotation, "2"))
				x.remove("c")
			}, []string{"update A:3 of a b c to A:2 of a b c, UpdatedWorkload", "let go c"}},
			{func(x *world) {
				x.each(annotate(kueue.PodGroupTotalCountAnnotation, "3"))
				x.add(3, "d:A")
			}, []string{"update A:2 of a b c to A:3 of a b c, UpdatedWorkload", "update A:3 of a b c to A:3 of a b c d, OwnerReferencesAdded"}},
		}},
		"all are deleted before there is a workload": {newWorld, []step{
			{add(3, "a:A", "b:A"), []string{"waits: pod group g does not have all of its 3 pods: create the others"}},
			{gone(), []string{"let go a b"}},
		}},
		"the workload is deleted": {running, []step{
			{func(x *world) { x.w.DeletionTimestamp = new(x.now) }, []string{"tell WorkloadDeleted a b c, Stopped", "delete a b c", "let the workload go", "let go a b c"}},
		}},
		"the workload is deleted while the group waits": {newWorld, []step{
			{add(1, "a:A"), []string{"create A:1 of a, CreatedWorkload"}},
			{func(x *world) { x.w.DeletionTimestamp = new(x.now) }, []string{"tell WorkloadDeleted a, Stopped", "delete a", "let the workload go", "let go a"}},
		}},
		"the admission is taken away by hand": {running, []step{
			{func(x *world) {
				x.cfg.Lifecycle.Pending(x.w, kueue.ReasonPendingEvaluation, "by hand", x.now)
			}, []string{"tell NotAdmitted a b c, Stopped", "delete a b c"}},
		}},
		"deactivated, they are deleted once": {running, []step{
			{func(x *world) {
				x.cfg.DeleteDeactivatedAfter, x.w = new(time.Duration(0)), x.w.DeepCopy()
				x.w.Spec.Active = new(false)
				x.cfg.Lifecycle.Evict(x.w, kueue.ReasonDeactivated, kueue.ReasonRequeuingLimitExceeded, "", x.now)
			}, []string{"tell WorkloadEvictedDueToDeactivatedDueToRequeuingLimitExceeded a b c, Stopped", "delete a b c"}},
			{func(x *world) { x.now = metav1.NewTime(x.now.Add(time.Hour)) }, []string{
				"status QuotaReserved=False/PendingEvaluation Admitted=False/NoReservation Requeued=False/DeactivatedDueToRequeuingLimitExceeded",
				"let go a b c",
			}},
		}},
		"over before it had a workload, and not complete": {newWorld, []step{
			{func(x *world) {
				x.add(2, "a:A")
				x.each(annotate(kueue.RetriableInGroupAnnotation, "false"))
				x.phase(corev1.PodFailed)
			}, []string{"let go a"}},
		}},
		"a workload that nobody marked, where that is not asked for": {newWorld, []step{
			{func(x *world) {
				x.set(feature.PodIntegrationValidateGroupOwner, false)
				x.add(1, "a:A")
			}, []string{"create A:1 of a, CreatedWorkload"}},
			{func(x *world) {
				delete(x.w.Annotations, kueue.IsGroupWorkloadAnnotation)
				x.admit()
			}, []string{"status PodsReady=False/WaitForStart", "open a, Started"}},
		}},
		"all pods go at last": {running, []step{
			{func(x *world) { x.pods = nil }, []string{"let the workload go"}},
		}},
		"the namespace is no longer managed": {running, []step{
			{func(x *world) {
				x.phase(corev1.PodFailed, "a")
				x.mode = job.Unmanaged
			}, []string{"status Finished=True/OutOfSync, NamespaceUnmanaged", "let the workload go", "let go a"}},
		}},
		"pods of two queues": {newWorld, []step{
			{func(x *world) {
				x.add(2, "a:A", "b:A")
				x.pods[1].Labels[kueue.QueueNameLabel] = "other"
			}, []string{`waits: pods of group g name the queues "lq" and "other": give all the same label kueue.x-k8s.io/queue-name`}},
		}},
		"pods of two sizes": {newWorld, []step{
			{func(x *world) { x.add(2, "a:A"); x.add(3, "b:A") }, []string{`waits: pods of group g disagree about its size, 2 and "3": give all the same annotation kueue.x-k8s.io/pod-group-total-count`}},
		}},
		"a rank beyond the size": {newWorld, []step{
			{func(x *world) { x.add(1, "a:A"); x.pods[0].Labels[kueue.PodGroupPodIndexLabel] = "1" }, []string{`waits: label kueue.x-k8s.io/pod-group-pod-index of pod a is "1": it must be a number from 0 to 0`}},
		}},
		"too many roles": {newWorld, []step{
			{func(x *world) {
				for r := range strings.SplitSeq("abcdefghijklmnopqrs", "") {
					x.add(19, r+":"+r)
				}
			}, []string{"waits: the job has 19 pod sets: a workload takes 1 to 18"}},
		}},
		"a workload of that name is another's": {newWorld, []step{
			{func(x *world) {
				x.add(1, "a:A", "b:A")
				x.phase(corev1.PodFailed, "b")
				x.w = &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "other"}}
			}, []string{"let go b", "waits: workload ns/g has the name of the pod group and does not belong to it: delete it, or give the group another name"}},
			{func(x *world) { x.w = nil }, []string{"create A:1 of a, CreatedWorkload"}},
		}},
		"the queue changes": {newWorld, []step{
			{add(2, "a:A", "b:A"), []string{"create A:2 of a b, CreatedWorkload"}},
			{func(x *world) {
				x.each(func(p *corev1.Pod) { p.Labels[kueue.QueueNameLabel] = "other" }, "a")
			}, nil},
			{func(x *world) {
				x.each(func(p *corev1.Pod) { p.Labels[kueue.QueueNameLabel] = "other" }, "b")
			}, []string{"update A:2 of a b to A:2 of a b"}},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := tc.start()
			for i, s := range tc.steps {
				s.do(x)
				if diff := cmp.Diff(s.want, x.runUntilStable()); diff != "" {
					t.Errorf("step %d -want +got:\n%s", i, diff)
				}
			}
		})
	}
}

// TestManyRoles: a group may have a role for each of its pods. It is refused without the pod sets.
func TestManyRoles(t *testing.T) {
	const pods = 1000
	x := newWorld()
	for i := range pods {
		x.add(pods, fmt.Sprintf("p%d:r%d", i, i))
	}
	o := x.observed()
	in := job.NewSetting(x.cfg, o)
	var err error
	made := testing.AllocsPerRun(3, func() { _, err = in.PodSets(x.of.Jobs, o.Job) })
	if want := "the job has 1000 pod sets: a workload takes 1 to 18"; err == nil || err.Error() != want {
		t.Errorf("error %v, not %s", err, want)
	}
	if made > pods/4 {
		t.Errorf("%v allocations for %d pods", made, pods)
	}
}

// TestPrebuilt is a group whose Workload somebody else made: its pods are owners and start as they come.
func TestPrebuilt(t *testing.T) {
	x := newWorld()
	x.cfg.WaitForPodsReady = false
	made := newWorld()
	made.add(3, "a:A", "b:A", "c:A")
	made.runUntilStable()
	x.w = made.w
	x.w.OwnerReferences, x.w.Annotations = nil, nil
	x.admit()
	prebuilt := func(p *corev1.Pod) { p.Labels[kueue.PrebuiltWorkloadLabel] = "g" }
	x.add(3, "a:A")
	x.each(prebuilt)
	if diff := cmp.Diff([]string{"update A:3 of  to A:3 of a, OwnerReferencesAdded", "open a, Started"}, x.runUntilStable()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	x.add(3, "b:A", "c:A")
	x.each(prebuilt)
	if diff := cmp.Diff([]string{"update A:3 of a to A:3 of a b c, OwnerReferencesAdded", "open b c, Started"}, x.runUntilStable()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	x.add(3, "d:X")
	x.each(prebuilt)
	if x.runUntilStable(); x.finished() != kueue.ReasonOutOfSync {
		t.Errorf("pods of another role are %q, want out of sync:\n%s", x.finished(), x.log)
	}
}

// TestCopies: a pod of a manager is released once it is deleted and cannot run, because that manager creates it again. Any other
// pod keeps its place until it is replaced.
func TestCopies(t *testing.T) {
	for name, origin := range map[string]string{"a copy": "hub", "a pod of our own": ""} {
		x := newWorld()
		x.add(2, "a:A", "b:A")
		if x.runUntilStable(); x.w == nil {
			t.Fatal(x.log)
		}
		x.admit()
		x.runUntilStable()
		x.schedule()
		if origin != "" {
			x.each(func(p *corev1.Pod) { p.Labels[kueue.MultiKueueOriginLabel] = origin })
		}
		x.remove("a")
		if x.runUntilStable(); len(x.pods) != 2 {
			t.Errorf("%s on its node is gone", name)
		}
		x.phase(corev1.PodFailed, "a")
		x.runUntilStable()
		if gone := len(x.pods) == 1; gone != (origin != "") {
			t.Errorf("%s: gone %v\n%s", name, gone, x.log)
		}
	}
}
