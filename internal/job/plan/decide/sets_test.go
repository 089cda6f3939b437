package decide_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	"github.com/berth-project/berth/internal/job/kind/statefulset"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// served is an object with groups and its observation.
type served struct {
	cfg *job.Config
	d   *job.Descriptor
	o   *decide.ObservedSets
}

func newServed(d *job.Descriptor, owner job.Object) *served {
	return &served{
		cfg: &job.Config{AnnotationIdentifiers: true, AdmissionGatedBy: true, Kinds: job.Kinds{d.GVK: true}},
		d:   d,
		o: &decide.ObservedSets{
			Observed: job.Observed{
				Job: owner, Verdict: job.Verdict{Mode: job.Managed}, Now: at(100),
				Classes: job.Classes{Workload: map[string]*kueue.WorkloadPriorityClass{"gold": {ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Value: 9}}},
			},
			Makers: map[string]job.Object{},
		},
	}
}

// runUntilStable makes all writes and lists them.
func (s *served) runUntilStable() []string {
	var log []string
	for range 50 {
		a, pods := decide.Sets(s.cfg, s.d, s.o)
		var line string
		for _, p := range pods {
			at := slices.IndexFunc(s.o.Pods, func(x *corev1.Pod) bool { return x.Name == p.Name })
			what := "stamp"
			if len(p.Spec.SchedulingGates) < len(s.o.Pods[at].Spec.SchedulingGates) {
				what = "open"
			}
			s.o.Pods[at] = p
			line += what + " " + p.Name + " "
		}
		find := func() int {
			return slices.IndexFunc(s.o.Workloads, func(w *kueue.Workload) bool { return w.Name == a.Workload.Name })
		}
		switch a.Verb {
		case job.CreateWorkload:
			line = "create " + about(a.Workload)
			s.o.Workloads = append(s.o.Workloads, a.Workload)
		case job.UpdateWorkload:
			line = "update " + about(a.Workload)
			s.o.Workloads[find()] = a.Workload
			if a.Workload.DeletionTimestamp != nil && len(a.Workload.Finalizers) == 0 {
				s.o.Workloads = slices.Delete(s.o.Workloads, find(), find()+1)
			}
		case job.DeleteWorkload:
			line = "delete " + a.Workload.Name
			s.o.Workloads = slices.Delete(s.o.Workloads, find(), find()+1)
		case job.WriteStatus:
			c := lifecycle.Condition(a.Workload, kueue.WorkloadFinished)
			if c == nil {
				c = lifecycle.Condition(a.Workload, kueue.WorkloadQuotaReserved)
			}
			line = "status " + a.Workload.Name + ": " + c.Reason
			s.o.Workloads[find()] = a.Workload
		case job.Fail, job.Stall:
			if len(pods) == 0 { // the reconciler writes pods first
				return append(log, "waits: "+a.Err.Error())
			}
		default:
		}
		if line == "" {
			return log
		}
		log = append(log, strings.TrimSpace(line))
	}
	return append(log, "… and so on for ever")
}

func about(w *kueue.Workload) string {
	out := w.Name + " in " + string(w.Spec.QueueName)
	for _, s := range w.Spec.PodSets {
		out += fmt.Sprintf(" %s:%d", s.Name, s.Count)
	}
	if len(w.Finalizers) == 0 {
		out += " let go"
	}
	return out
}

// pod adds a gated pod of a StatefulSet.
func (s *served) pod(name, set string, labels, annotations map[string]string) {
	s.o.Pods = append(s.o.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: types.UID(name), Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set, UID: "uid-1", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}, {Name: kueue.TopologySchedulingGate}, {Name: "other"}}},
	})
}

func newStatefulSet(replicas int32) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid-1", Labels: map[string]string{kueue.QueueNameLabel: "lq"}},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas},
	}
	s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "x"}}
	return s
}

// nameOfWeb is that of the Workload of newStatefulSet.
var nameOfWeb = (&job.Config{}).WorkloadName(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "web", "uid-1")

func TestStatefulSet(t *testing.T) {
	set := newStatefulSet(3)
	s := newServed(statefulset.Descriptor(), set)
	w := func() *kueue.Workload { return s.o.Workloads[0] }
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, s.runUntilStable()); diff != "" {
			t.Errorf("%s -want +got:\n%s", what, diff)
		}
	}
	check("new", "create "+nameOfWeb+" in lq main:3")
	owned := w().OwnerReferences
	if len(owned) != 1 || owned[0].Controller != nil || w().Annotations[kueue.JobOwnerGVKAnnotation] != "apps/v1, Kind=StatefulSet" ||
		w().Annotations[kueue.JobOwnerNameAnnotation] != "web" || w().Labels[kueue.JobUIDLabel] != "uid-1" || w().Annotations[kueue.IsGroupWorkloadAnnotation] != "true" {
		t.Errorf("owners %v, annotations %v, labels %v", owned, w().Annotations, w().Labels)
	}
	s.pod("web-0", "web", map[string]string{"controller-revision-hash": "r1"}, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset", kueue.RoleHashAnnotation: "abc"})
	check("its first pod", "stamp web-0")
	want := map[string]string{
		"kueue.x-k8s.io/pod-group-name": nameOfWeb, "kueue.x-k8s.io/prebuilt-workload-name": nameOfWeb, "kueue.x-k8s.io/pod-group-total-count": "3",
		"kueue.x-k8s.io/pod-group-fast-admission": "true", "kueue.x-k8s.io/pod-group-serving": "true", "kueue.x-k8s.io/role-hash": "main",
		"kueue.x-k8s.io/pod-group-pod-index-label": "apps.kubernetes.io/pod-index", kueue.PodSuspendingParentAnnotation: "statefulset",
	}
	if diff := cmp.Diff(want, s.o.Pods[0].Annotations); diff != "" || s.o.Pods[0].Labels[kueue.ManagedLabel] != "true" || s.o.Pods[0].Labels[kueue.QueueNameLabel] != "lq" {
		t.Errorf("labels %v, annotations -want +got:\n%s", s.o.Pods[0].Labels, diff)
	}
	set.Labels[kueue.QueueNameLabel] = "other"
	check("another queue", "update "+nameOfWeb+" in other main:3", "stamp web-0")
	set.Labels[kueue.PriorityClassLabel] = "gold"
	check("a class", "update "+nameOfWeb+" in other main:3")
	if *w().Spec.Priority != 9 {
		t.Errorf("priority %d", *w().Spec.Priority)
	}
	set.Spec.Replicas = new(int32(0))
	check("scaled to 0 while it waits", "status "+nameOfWeb+": OnHold")
	s.o.Pods = nil
	set.Spec.Replicas = new(int32(5))
	set.Spec.Template.Spec.Containers[0].Image = "y"
	check("and to another size", "update "+nameOfWeb+" in other main:5", "status "+nameOfWeb+": PendingEvaluation")
	s.cfg.Lifecycle.Reserve(w(), &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
	set.Labels[kueue.QueueNameLabel] = "third"
	check("a queue while it has quota: cannot be")
	set.Spec.Replicas = new(int32(0))
	check("scaled to 0 while it runs", "status "+nameOfWeb+": OnHold")
	if lifecycle.IsAdmitted(w()) || w().Status.Admission != nil {
		t.Error("still admitted")
	}
	s.o.Pods, s.o.Job = nil, nil
	check("deleted", "update "+nameOfWeb+" in other main:5 let go")
}

// TestStatefulSetDeletedOnHold: no other reconciler ends the Workload of a deleted StatefulSet without pods. If there is a pod, its
// group does.
func TestStatefulSetDeletedOnHold(t *testing.T) {
	for name, tc := range map[string]struct {
		finish, pod, orphan bool
		want                []string
	}{
		"without a pod":          {true, false, false, []string{"status " + nameOfWeb + ": OwnerNotFound", "update " + nameOfWeb + " in lq main:2 let go"}},
		"with a pod":             {true, true, false, []string{"update " + nameOfWeb + " in lq main:2 let go"}},
		"with a pod of no owner": {true, false, true, []string{"update " + nameOfWeb + " in lq main:2 let go"}},
		"the feature gate off":   {false, false, false, []string{"update " + nameOfWeb + " in lq main:2 let go"}},
	} {
		set := newStatefulSet(2)
		s := newServed(statefulset.Descriptor(), set)
		s.cfg.FinishOrphans = tc.finish
		s.runUntilStable()
		set.Spec.Replicas = new(int32(0))
		s.runUntilStable()
		if tc.pod {
			s.pod("web-0", "web", map[string]string{}, map[string]string{kueue.PodGroupNameLabel: nameOfWeb})
		}
		s.o.Job, s.o.Alive = nil, map[string]bool{nameOfWeb: tc.orphan}
		if diff := cmp.Diff(tc.want, s.runUntilStable()); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

// TestStatefulSetOfEarlierName: an object of the same name that is not queued releases the Workload of the earlier one.
func TestStatefulSetOfEarlierName(t *testing.T) {
	for name, tc := range map[string]struct {
		pods bool
		want []string
	}{
		"its pods are gone": {false, []string{"status " + nameOfWeb + ": OwnerNotFound", "update " + nameOfWeb + " in lq main:2 let go"}},
		"its pods are left": {true, nil},
	} {
		s := newServed(statefulset.Descriptor(), newStatefulSet(2))
		s.cfg.FinishOrphans = true
		s.runUntilStable()
		lifecycle.Machine{}.Reserve(s.o.Workloads[0], &kueue.Admission{ClusterQueue: "cq"}, nil, at(10))
		again := newStatefulSet(2)
		again.UID, again.Labels = "uid-2", nil
		s.o.Job, s.o.Alive, s.o.Verdict.Mode = again, map[string]bool{nameOfWeb: tc.pods}, job.Ignored
		if diff := cmp.Diff(tc.want, s.runUntilStable()); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

// TestStatefulSetMadeAgain: an object that adopts the pods of an earlier one of its name takes over their Workload, which holds their quota. Later
// pods join its group.
func TestStatefulSetMadeAgain(t *testing.T) {
	second := (&job.Config{}).WorkloadName(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "web", "uid-2")
	parent := func(group string) map[string]string {
		return map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset", kueue.PodGroupNameLabel: group}
	}
	create, take, release := "create "+second+" in lq main:2", "update "+nameOfWeb+" in lq main:2", "update "+nameOfWeb+" in lq main:2 let go"
	late := []string{release, create, "update " + second + " in lq main:2 let go", "delete " + second, take}
	sized := func(n int32) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n }
	}
	requests := func(set *appsv1.StatefulSet) {
		set.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	}
	for name, tc := range map[string]struct {
		late       bool // the pods are adopted after the first decisions
		controller types.UID
		finished   bool
		change     func(*appsv1.StatefulSet)
		want       []string
		group      string // of the next pod
	}{
		"its pods are adopted":       {false, "uid-2", false, nil, []string{take}, nameOfWeb},
		"they are adopted late":      {true, "uid-2", false, nil, late, nameOfWeb},
		"they are the earlier one's": {false, "uid-1", false, nil, []string{release, create}, second},
		"the Workload has finished":  {false, "uid-2", true, nil, []string{release, create}, second},
		"its pods are never adopted": {true, "uid-1", false, nil, []string{release, create}, second},
		"with more replicas":         {false, "uid-2", false, sized(3), []string{release, "create " + second + " in lq main:3"}, second},
		"with more replicas, late":   {true, "uid-2", false, sized(3), []string{release, "create " + second + " in lq main:3"}, second},
		"with larger requests":       {false, "uid-2", false, requests, []string{release, create}, second},
		"with larger requests, late": {true, "uid-2", false, requests, []string{release, create}, second},
		"without replicas":           {false, "uid-2", false, sized(0), []string{release}, second},
		"with another image": {
			false, "uid-2", false, func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = "y" }, []string{take}, nameOfWeb,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(statefulset.Descriptor(), newStatefulSet(2))
			s.cfg.FinishOrphans = true
			s.runUntilStable()
			lifecycle.Machine{}.Reserve(s.o.Workloads[0], &kueue.Admission{ClusterQueue: "cq"}, nil, at(10))
			if tc.finished {
				lifecycle.Machine{}.Finish(s.o.Workloads[0], kueue.ReasonSucceeded, "", at(20))
			}
			again := newStatefulSet(2)
			again.UID = "uid-2"
			if tc.change != nil {
				tc.change(again)
			}
			s.o.Job, s.o.Alive = again, map[string]bool{nameOfWeb: true}
			s.pod("web-0", "web", map[string]string{}, parent(nameOfWeb))
			pods := s.o.Pods
			pods[0].OwnerReferences[0].UID, pods[0].Spec.SchedulingGates = tc.controller, nil
			var log []string
			if tc.late {
				s.o.Pods = nil
				log = s.runUntilStable()
				s.o.Pods = pods
			}
			log = append(log, s.runUntilStable()...)
			if diff := cmp.Diff(tc.want, log); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			s.pod("web-1", "web", map[string]string{}, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"})
			s.o.Pods[1].OwnerReferences[0].UID = "uid-2"
			s.runUntilStable()
			if got := s.o.Pods[1].Annotations[kueue.PodGroupNameLabel]; got != tc.group {
				t.Errorf("the next pod is in group %q, want %q", got, tc.group)
			}
			s.o.Pods, s.o.Alive = nil, nil // all pods are replaced at once
			before := len(s.o.Workloads)
			if log := s.runUntilStable(); tc.group == nameOfWeb && (len(log) > 0 || before != 1) {
				t.Errorf("without pods: %v, %d Workloads", log, before)
			}
		})
	}
}

// TestStatefulSetKeepsTakenWorkload: a Workload that was taken over is that of the object also when it is deleted, has ended or is delegated, as
// long as its pods are in its group.
func TestStatefulSetKeepsTakenWorkload(t *testing.T) {
	second := (&job.Config{}).WorkloadName(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "web", "uid-2")
	for name, tc := range map[string]struct {
		change func(s *served, w *kueue.Workload)
		gone   []string // the decisions once its pods are gone
		size   int32    // of the object by then
	}{
		"deleted": {
			func(_ *served, w *kueue.Workload) { w.DeletionTimestamp = new(at(20)) },
			[]string{"update " + nameOfWeb + " in lq main:2 let go", "create " + second + " in lq main:2"},
			2,
		},
		"finished": {func(_ *served, w *kueue.Workload) { lifecycle.Machine{}.Finish(w, kueue.ReasonSucceeded, "", at(20)) }, nil, 2},
		"delegated": {func(s *served, w *kueue.Workload) {
			s.o.Delegated = map[kueue.AdmissionCheckReference]bool{"mk": true}
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStatePending}}
		}, nil, 2},
		"scaled to 0 and to another size between two decisions": {
			func(*served, *kueue.Workload) {},
			[]string{"status " + nameOfWeb + ": OnHold", "update " + nameOfWeb + " in lq main:5", "status " + nameOfWeb + ": PendingEvaluation"},
			5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(statefulset.Descriptor(), newStatefulSet(2))
			s.runUntilStable()
			lifecycle.Machine{}.Reserve(s.o.Workloads[0], &kueue.Admission{ClusterQueue: "cq"}, nil, at(10))
			again := newStatefulSet(2)
			again.UID, s.o.Job = "uid-2", again
			s.pod("web-0", "web", map[string]string{}, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset", kueue.PodGroupNameLabel: nameOfWeb})
			s.o.Pods[0].OwnerReferences[0].UID = "uid-2"
			s.runUntilStable()
			tc.change(s, s.o.Workloads[0])
			if log := s.runUntilStable(); len(log) > 0 || len(s.o.Workloads) != 1 || s.o.Workloads[0].Name != nameOfWeb {
				t.Errorf("with gated pods: %v", log)
			}
			s.o.Pods, again.Spec.Replicas = nil, &tc.size
			if diff := cmp.Diff(tc.gone, s.runUntilStable()); diff != "" {
				t.Errorf("without pods -want +got:\n%s", diff)
			}
		})
	}
}

func TestStatefulSetRollsOut(t *testing.T) {
	set := newStatefulSet(2)
	set.Status.CurrentRevision, set.Status.UpdateRevision = "r1", "r2"
	s := newServed(statefulset.Descriptor(), set)
	s.o.Makers["web"] = set
	parent := map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"}
	s.pod("web-0", "web", map[string]string{"controller-revision-hash": "r1"}, parent)
	s.pod("web-1", "web", map[string]string{"controller-revision-hash": "r2"}, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"})
	want := []string{"create " + nameOfWeb + " in lq main:2", "stamp web-0 stamp web-1", "open web-0"}
	if diff := cmp.Diff(want, s.runUntilStable()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if gates := s.o.Pods[0].Spec.SchedulingGates; len(gates) != 1 || gates[0].Name != "other" {
		t.Errorf("gates %v", gates)
	}
}

// TestOldRevisionIsOpened: a pod is always ungated if its controller waits for it to run before it replaces it.
func TestOldRevisionIsOpened(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(s *served, set *appsv1.StatefulSet)
		gates  []string
	}{
		"it waits":                             {func(*served, *appsv1.StatefulSet) {}, []string{kueue.AdmissionSchedulingGate, kueue.TopologySchedulingGate}},
		"it is admitted and waits for a place": {func(*served, *appsv1.StatefulSet) {}, []string{kueue.TopologySchedulingGate}},
		"its priority class does not exist": {
			func(_ *served, set *appsv1.StatefulSet) { set.Labels[kueue.PriorityClassLabel] = "gone" },
			[]string{kueue.AdmissionSchedulingGate, kueue.TopologySchedulingGate},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := newStatefulSet(1)
			set.Status.CurrentRevision, set.Status.UpdateRevision = "r1", "r2"
			s := newServed(statefulset.Descriptor(), set)
			s.o.Makers["web"] = set
			tc.change(s, set)
			s.pod("web-0", "web", map[string]string{"controller-revision-hash": "r1"}, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"})
			pod := s.o.Pods[0]
			pod.Finalizers, pod.Spec.SchedulingGates = []string{kueue.ManagedFinalizer}, []corev1.PodSchedulingGate{{Name: "other"}}
			for _, gate := range tc.gates {
				pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
			}
			s.runUntilStable()
			got := s.o.Pods[0]
			if len(got.Spec.SchedulingGates) != 1 || got.Spec.SchedulingGates[0].Name != "other" || len(got.Finalizers) != 1 {
				t.Errorf("gates %v, finalizers %v", got.Spec.SchedulingGates, got.Finalizers)
			}
		})
	}
}

func TestStatefulSetOfAnOlderVersion(t *testing.T) {
	legacy := (&job.Config{}).WorkloadName(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "web", "")
	s := newServed(statefulset.Descriptor(), newStatefulSet(1))
	s.runUntilStable()
	s.o.Workloads[0].Name, s.o.Workloads[0].OwnerReferences = legacy, nil
	delete(s.o.Workloads[0].Annotations, kueue.JobOwnerGVKAnnotation)
	s.pod("web-0", "web", nil, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"})
	want := []string{"update " + legacy + " in lq main:1", "stamp web-0"}
	if diff := cmp.Diff(want, s.runUntilStable()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if name := s.o.Pods[0].Annotations[kueue.PodGroupNameLabel]; name != legacy {
		t.Errorf("the pod is in group %s", name)
	}
}

// TestStatefulSetLeftAlone: these are never written.
func TestStatefulSetLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*served){
		"ignored":             func(s *served) { s.o.Verdict.Mode = job.Ignored },
		"under another":       func(s *served) { s.o.Verdict.Mode = job.Follows },
		"unmanaged":           func(s *served) { s.o.Verdict.Mode = job.Unmanaged },
		"from a manager, new": func(s *served) { s.o.Job.SetLabels(map[string]string{kueue.MultiKueueOriginLabel: "m"}) },
		"no replicas":         func(s *served) { s.o.Job.(*appsv1.StatefulSet).Spec.Replicas = new(int32(0)) },
	} {
		s := newServed(statefulset.Descriptor(), newStatefulSet(2))
		change(s)
		if log := s.runUntilStable(); len(log) > 0 {
			t.Errorf("%s: %v", name, log)
		}
	}
}

// newLeaderWorkerSet is one of three groups of a leader and three workers.
func newLeaderWorkerSet(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	err := yaml.Unmarshal([]byte(`
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {namespace: ns, name: llm, uid: uid-2, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: 4
    leaderTemplate:
      metadata: {labels: {app: x, leaderworkerset.sigs.k8s.io/name: llm, leaderworkerset.sigs.k8s.io/group-index: "7"}}
      spec: {containers: [{name: c, image: x}]}
    workerTemplate:
      spec: {containers: [{name: c, image: x}]}
`), &o.Object)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestLeaderWorkerSet(t *testing.T) {
	set := newLeaderWorkerSet(t)
	s := newServed(leaderworkerset.Descriptor(), set)
	name := func(i int) string { return s.cfg.WorkloadName(s.d.GVK, fmt.Sprintf("llm-%d", i), "uid-2") }
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, s.runUntilStable()); diff != "" {
			t.Errorf("%s -want +got:\n%s", what, diff)
		}
	}
	check("new", "create "+name(0)+" in lq leader:1 worker:3", "create "+name(1)+" in lq leader:1 worker:3", "create "+name(2)+" in lq leader:1 worker:3")
	if !strings.HasPrefix(name(0), "leaderworkerset-llm-0-") {
		t.Error(name(0))
	}
	w := s.o.Workloads[2]
	if w.Annotations[kueue.ComponentWorkloadIndexAnnotation] != "2" || w.Annotations[kueue.JobOwnerGVKAnnotation] != "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet" {
		t.Errorf("annotations %v", w.Annotations)
	}
	if diff := cmp.Diff(map[string]string{"app": "x", "leaderworkerset.sigs.k8s.io/name": "llm"}, w.Spec.PodSets[0].Template.Labels); diff != "" {
		t.Errorf("labels of the leader -want +got:\n%s", diff)
	}
	parent := func(extra ...string) map[string]string {
		out := map[string]string{kueue.PodSuspendingParentAnnotation: "leaderworkerset.x-k8s.io/leaderworkerset"}
		for _, key := range extra {
			out[key] = "llm-0"
		}
		return out
	}
	index := map[string]string{"leaderworkerset.sigs.k8s.io/name": "llm", "leaderworkerset.sigs.k8s.io/group-index": "0"}
	for _, owner := range []string{"llm", "llm-0"} {
		s.o.Makers[owner] = newStatefulSet(1)
	}
	s.pod("llm-0", "llm", index, parent())
	s.pod("llm-0-1", "llm-0", map[string]string{"leaderworkerset.sigs.k8s.io/name": "llm"}, parent("leaderworkerset.sigs.k8s.io/leader-name"))
	check("a leader, and a worker without a number", "stamp llm-0")
	s.o.Pods[1].Labels["leaderworkerset.sigs.k8s.io/group-index"] = "0"
	check("the worker has its number", "stamp llm-0-1")
	for i, role := range []string{"leader", "worker"} {
		a := s.o.Pods[i].Annotations
		if a[kueue.RoleHashAnnotation] != role || a[kueue.PodGroupTotalCountAnnotation] != "4" || a[kueue.PodGroupNameLabel] != name(0) || a[kueue.PodGroupFastAdmissionAnnotation] != "" {
			t.Errorf("%s: %v", role, a)
		}
	}
	_ = unstructured.SetNestedField(set.Object, int64(2), "spec", "replicas")
	check("one less", "update "+name(2)+" in lq leader:1 worker:3 let go", "delete "+name(2))
	s.o.Makers["llm-0"] = nil
	check("the StatefulSet of the worker is gone", "open llm-0-1")
	s.o.Job = nil
	check("all is gone", "open llm-0", "update "+name(0)+" in lq leader:1 worker:3 let go", "update "+name(1)+" in lq leader:1 worker:3 let go")
}

// TestSetsRetention: an object whose Workloads Berth deactivated, all of them, is deleted some time after the last.
func TestSetsRetention(t *testing.T) {
	s := newServed(leaderworkerset.Descriptor(), newLeaderWorkerSet(t))
	s.runUntilStable()
	s.cfg.DeleteDeactivatedAfter = new(10 * time.Minute)
	next := func(now int) string {
		s.o.Now = at(now)
		a, pods := decide.Sets(s.cfg, s.d, s.o)
		if len(pods) > 0 || a.Verb == job.DeleteJob && a.Job.GetUID() != s.o.Job.GetUID() {
			t.Errorf("%v, pods %v", a.Job, pods)
		}
		return fmt.Sprint(a.Verb == job.DeleteJob, " ", a.After)
	}
	for i, want := range []string{"false 0s", "false 0s", "false 9m30s"} {
		w := s.o.Workloads[i]
		s.cfg.Lifecycle.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(100))
		w.Spec.Active = new(false)
		s.cfg.Lifecycle.RequestDeactivation(w, kueue.ReasonRequeuingLimitExceeded, "", at(100))
		s.cfg.Lifecycle.Deactivate(w, at(100+10*i))
		s.cfg.Lifecycle.Release(w, false, at(130))
		if got := next(150); got != want {
			t.Errorf("after %d: %s, want %s", i+1, got, want)
		}
	}
	if got := next(719); got != "false 1s" {
		t.Errorf("too early: %s", got)
	}
	if got := next(720); got != "true 0s" {
		t.Errorf("in time: %s", got)
	}
	s.cfg.DeleteDeactivatedAfter = nil
	if got := next(720); got != "false 0s" {
		t.Errorf("kept: %s", got)
	}
}

// TestLeaderWorkerSetMadeAgain: each group keeps its Workload if its pods are adopted, and the others get new ones. So do groups of another size.
func TestLeaderWorkerSetMadeAgain(t *testing.T) {
	cfg, gvk := &job.Config{}, leaderworkerset.Descriptor().GVK
	name := func(i int, uid types.UID) string { return cfg.WorkloadName(gvk, fmt.Sprintf("llm-%d", i), uid) }
	for size, want := range map[int64][]string{
		4: {
			"update " + name(0, "uid-2") + " in lq leader:1 worker:3", "create " + name(1, "uid-3") + " in lq leader:1 worker:3",
			"update " + name(2, "uid-2") + " in lq leader:1 worker:3",
		},
		5: {
			"create " + name(0, "uid-3") + " in lq leader:1 worker:4", "create " + name(1, "uid-3") + " in lq leader:1 worker:4",
			"create " + name(2, "uid-3") + " in lq leader:1 worker:4",
		},
	} {
		s := newServed(leaderworkerset.Descriptor(), newLeaderWorkerSet(t))
		s.runUntilStable()
		leaders := newStatefulSet(3)
		leaders.Name, leaders.OwnerReferences = "llm", []metav1.OwnerReference{{UID: "uid-3", Controller: new(true)}}
		s.o.Makers["llm"], s.o.Alive = leaders, map[string]bool{}
		for _, i := range []int{0, 2} {
			s.pod(fmt.Sprintf("llm-%d", i), "llm", map[string]string{
				"leaderworkerset.sigs.k8s.io/name": "llm", "leaderworkerset.sigs.k8s.io/group-index": fmt.Sprint(i),
			}, map[string]string{kueue.PodSuspendingParentAnnotation: "leaderworkerset.x-k8s.io/leaderworkerset", kueue.PodGroupNameLabel: name(i, "uid-2")})
			s.o.Alive[name(i, "uid-2")] = true
		}
		again := newLeaderWorkerSet(t)
		again.SetUID("uid-3")
		_ = unstructured.SetNestedField(again.Object, size, "spec", "leaderWorkerTemplate", "size")
		s.o.Job = again
		got := s.runUntilStable()
		got = slices.DeleteFunc(got, func(line string) bool { return strings.Contains(line, "let go") || strings.HasPrefix(line, "stamp") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("size %d -want +got:\n%s", size, diff)
		}
	}
}

// TestManyGroupsAreNotCopied: a decision that changes none of many Workloads copies none. One that is changed is a copy.
func TestManyGroupsAreNotCopied(t *testing.T) {
	const n, each = 1000, 8 << 10
	set := newLeaderWorkerSet(t)
	env := make([]any, 200)
	for i := range env {
		env[i] = map[string]any{"name": fmt.Sprintf("V%d", i), "value": "v"}
	}
	containers := []any{map[string]any{"name": "c", "image": "x", "env": env}}
	_ = unstructured.SetNestedSlice(set.Object, containers, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers")
	_ = unstructured.SetNestedField(set.Object, int64(1), "spec", "replicas")
	s := newServed(leaderworkerset.Descriptor(), set)
	s.runUntilStable()
	first := s.o.Workloads[0]
	for i := 1; i < n; i++ {
		w := first.DeepCopy()
		w.Name, w.Annotations[kueue.ComponentWorkloadIndexAnnotation] = s.cfg.WorkloadName(s.d.GVK, fmt.Sprintf("llm-%d", i), "uid-2"), fmt.Sprint(i)
		s.o.Workloads = append(s.o.Workloads, w)
	}
	_ = unstructured.SetNestedField(set.Object, int64(n), "spec", "replicas")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a, pods := decide.Sets(s.cfg, s.d, s.o)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / n; a.Verb != job.Nothing || len(pods) > 0 || took > each {
		t.Errorf("action %v, %d pods, %d bytes for each Workload", a.Verb, len(pods), took)
	}

	was := first.DeepCopy()
	set.SetLabels(map[string]string{kueue.QueueNameLabel: "other"})
	a, _ = decide.Sets(s.cfg, s.d, s.o)
	if a.Verb != job.UpdateWorkload || a.Workload.Spec.QueueName != "other" {
		t.Fatalf("%v %+v", a.Verb, a.Workload)
	}
	a.Workload.Labels["x"], a.Workload.Spec.PodSets[1].Template.Spec.Containers[0].Env[0].Value = "y", "z"
	if diff := cmp.Diff(was, first); diff != "" {
		t.Errorf("what was observed has changed -was +is:\n%s", diff)
	}
}

// TestLeaderWorkerSetSurges: a roll-out with a surge has more groups than replicas.
func TestLeaderWorkerSetSurges(t *testing.T) {
	set := newLeaderWorkerSet(t)
	for _, tc := range []struct {
		surge, updated, groups int64
		want                   int
	}{{0, 0, 4, 3}, {1, 0, 4, 4}, {1, 3, 4, 3}, {1, 0, 2, 3}} {
		_ = unstructured.SetNestedField(set.Object, tc.surge, "spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
		_ = unstructured.SetNestedField(set.Object, tc.updated, "status", "updatedReplicas")
		_ = unstructured.SetNestedField(set.Object, tc.groups, "status", "replicas")
		parts, err := leaderworkerset.Descriptor().Sets.Parts(set, &job.Setting{Config: &job.Config{}})
		if err != nil || len(parts) != tc.want {
			t.Errorf("%+v: %d groups, %v", tc, len(parts), err)
		}
	}
}
