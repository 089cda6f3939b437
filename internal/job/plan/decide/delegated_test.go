package decide_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	jobkind "github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	podkind "github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/kind/statefulset"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestDelegatedPod is a pod whose copy runs on a worker: it keeps its gate, holds quota while the copy runs, and goes back into its queue
// when it is evicted, since it is not gone (spec: 30 §4.12).
func TestDelegatedPod(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{kueue.ManagedLabel: "true", kueue.QueueNameLabel: "lq"}},
		Spec:       corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}}, Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	s := &scene{d: podkind.Descriptor(), cfg: &job.Config{FinishOrphans: true}, o: &job.Observed{
		Job: pod, Verdict: job.Verdict{Mode: job.Managed}, Now: at(100), Delegated: map[kueue.AdmissionCheckReference]bool{"mk": true, "other": false},
	}}
	w := s.decide().Workload
	w.UID = "w"
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStateReady}}
	lifecycle.Machine{}.Reserve(w, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main"}}}, nil, at(1))
	lifecycle.Machine{}.SyncAdmitted(w, at(1))
	s.o.Workloads = []*kueue.Workload{w}
	if a := s.decide(); !lifecycle.IsAdmitted(w) || a.Verb != job.Nothing {
		t.Fatalf("admitted %v, then %s", lifecycle.IsAdmitted(w), describeAction(a))
	}
	w.Status.AdmissionChecks[0].Name = "other"
	if a := s.decide(); a.Verb != job.PatchJob {
		t.Errorf("with another check: %s", describeAction(a))
	}
	w.Status.ClusterName, s.o.Delegated = "w1", nil // MultiKueue was turned off, or its check left the ClusterQueue
	if a := s.decide(); a.Verb != job.Nothing {
		t.Errorf("on a worker, without a check: %s", describeAction(a))
	}
	w.Status.ClusterName, s.o.Delegated = "", map[kueue.AdmissionCheckReference]bool{"mk": true}
	w.Status.AdmissionChecks[0].Name = "mk"
	pod.Status.Phase = corev1.PodRunning // its copy does
	lifecycle.Machine{}.Preempt(w, kueue.ReasonInClusterQueue, "needed", at(2))
	if a := s.decide(); a.Verb != job.Nothing {
		t.Errorf("evicted while the copy runs: %s", describeAction(a))
	}
	pod.Status.Phase = corev1.PodPending
	a := s.decide()
	if a.Verb != job.WriteStatus || lifecycle.IsReserved(a.Workload) || lifecycle.Condition(a.Workload, kueue.WorkloadRequeued).Status != metav1.ConditionTrue {
		t.Errorf("evicted, and the copy is gone: %s", describeAction(a))
	}
}

// TestForgedOrigin: the origin label, which any user may set on a job, is not copied to its Workload.
func TestForgedOrigin(t *testing.T) {
	for name, d := range map[string]*job.Descriptor{"Pod": podkind.Descriptor(), "Job": jobkind.Descriptor()} {
		o := d.New()
		o.SetNamespace("ns")
		o.SetName("p")
		o.SetUID("u")
		o.SetLabels(map[string]string{kueue.ManagedLabel: "true", kueue.QueueNameLabel: "lq", kueue.MultiKueueOriginLabel: "hub", "own": "l"})
		d.Suspend(o)
		if pod, ok := o.(*corev1.Pod); ok {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}}
		}
		s := &scene{d: d, cfg: &job.Config{LabelKeysToCopy: []string{"own"}}, o: &job.Observed{Job: o, Verdict: job.Verdict{Mode: job.Managed}, Now: at(100)}}
		a := s.decide()
		if a.Verb != job.CreateWorkload || a.Workload.Labels["own"] != "l" || a.Workload.Labels[kueue.MultiKueueOriginLabel] != "" {
			t.Errorf("%s: %s with labels %v", name, describeAction(a), a.Workload)
		}
	}
}

// sentTo marks all Workloads as dispatched to a worker.
func (s *served) sentTo(cluster string) {
	s.o.Delegated = map[kueue.AdmissionCheckReference]bool{"mk": true}
	for _, w := range s.o.Workloads {
		w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStateReady}}
		w.Status.ClusterName = cluster
	}
}

// TestDelegatedSets: pods of an object that runs on a worker are never ungated here, where they would run.
func TestDelegatedSets(t *testing.T) {
	set := newStatefulSet(1)
	s := newServed(statefulset.Descriptor(), set)
	s.runUntilStable()
	set.Status.CurrentRevision, set.Status.UpdateRevision = "1", "2"
	s.o.Makers["web"] = set
	s.pod("web-0", "web", map[string]string{appsv1.StatefulSetRevisionLabel: "1"}, nil)
	s.runUntilStable() // it gets its group
	s.pod("web-1", "web", map[string]string{appsv1.StatefulSetRevisionLabel: "1", kueue.PodGroupNameLabel: "g"}, map[string]string{kueue.PodGroupNameLabel: "g"})
	s.sentTo("w1")
	if got := s.runUntilStable(); slices.Contains(got, "open web-1") {
		t.Errorf("an outdated pod: %v", got)
	}
	s.sentTo("")
	s.o.Delegated = nil
	if got := s.runUntilStable(); len(got) == 0 {
		t.Error("an outdated pod that runs here keeps its gate")
	}

	lws := newServed(leaderworkerset.Descriptor(), newLeaderWorkerSet(t))
	lws.runUntilStable()
	lws.pod("p", "gone", nil, map[string]string{})
	lws.sentTo("w1")
	lws.o.Job = nil
	if _, pods := decide.Sets(lws.cfg, lws.d, lws.o); len(pods) > 0 {
		t.Error("a pod of an object that is gone is let through")
	}
	lws.o.Delegated = nil
	if _, pods := decide.Sets(lws.cfg, lws.d, lws.o); len(pods) > 0 {
		t.Error("a pod of an object that is gone is let through once MultiKueue is off")
	}
	lws.sentTo("")
	lws.o.Delegated = nil
	if _, pods := decide.Sets(lws.cfg, lws.d, lws.o); len(pods) == 0 {
		t.Error("a pod of an object that is gone, and ran here, is not let through")
	}
}

// TestDelegatedSetsKeepTheirQuota is that the quota of an object whose pods run on a worker is given back when those have ended, which its own
// pods do not tell: they wait all the time, or are not there (spec: 40 §4.7).
func TestDelegatedSetsKeepTheirQuota(t *testing.T) {
	var m lifecycle.Machine
	runs := func(w *kueue.Workload) { m.RunOn(w, "w1", at(1)) }
	for name, tc := range map[string]struct {
		change    func(*kueue.Workload)
		delegated bool
		released  bool
	}{
		"its pods run there":             {runs, true, false},
		"they have ended":                {func(w *kueue.Workload) { runs(w); m.RunNowhere(w, at(2)) }, true, true},
		"they never ran":                 {func(*kueue.Workload) {}, true, true},
		"the check does not send it now": {runs, false, true},
		"the check is gone":              {func(w *kueue.Workload) { runs(w); w.Status.AdmissionChecks = nil }, true, true},
		"nothing will be sent":           {func(w *kueue.Workload) { runs(w); w.Status.AdmissionChecks[0].State = kueue.CheckStateRejected }, true, true},
		"they run on another worker":     {func(w *kueue.Workload) { m.RunOn(w, "w2", at(3)) }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(statefulset.Descriptor(), newStatefulSet(2))
			s.runUntilStable()
			w := s.o.Workloads[0]
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStateReady}}
			m.Reserve(w, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main"}}}, nil, at(1))
			m.Evict(w, kueue.ReasonPreempted, "", "needed", at(2))
			tc.change(w)
			s.o.Delegated = map[kueue.AdmissionCheckReference]bool{"mk": tc.delegated}
			a, _ := decide.Sets(s.cfg, s.d, s.o) // it has no pods here yet
			if got := a.Verb == job.WriteStatus && !lifecycle.IsReserved(a.Workload); got != tc.released {
				t.Errorf("without pods here: released %v (%s)", got, describeAction(a))
			}
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "web-0", UID: "u", Labels: map[string]string{kueue.ManagedLabel: "true", kueue.QueueNameLabel: "lq", kueue.PodGroupNameLabel: w.Name},
					Annotations: map[string]string{
						kueue.PodGroupTotalCountAnnotation: "2", kueue.PodGroupServingAnnotation: "true", kueue.RoleHashAnnotation: "main",
						kueue.PodGroupFastAdmissionAnnotation: "true", kueue.PrebuiltWorkloadLabel: w.Name,
					},
				},
				Spec:   corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}}, Containers: []corev1.Container{{Name: "c"}}},
				Status: corev1.PodStatus{Phase: corev1.PodPending},
			}
			w.OwnerReferences = append(w.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
			groups := podgroup.Groups(func(o job.Object, cfg *job.Config) string { return cfg.GroupName(o) }, podgroup.Rules{})
			group := &scene{d: groups.Jobs, cfg: &job.Config{AnnotationIdentifiers: true}, o: &job.Observed{
				Verdict: job.Verdict{Mode: job.Managed}, Now: at(100), Delegated: s.o.Delegated, Workloads: []*kueue.Workload{w},
			}}
			group.o.Job = groups.Join(w.Name, []job.Object{pod}, group.cfg, at(100).Time)
			a = group.decide()
			if got := a.Verb == job.WriteStatus && !lifecycle.IsReserved(a.Workload); got != tc.released {
				t.Errorf("with a pod that waits here: released %v (%s)", got, describeAction(a))
			}
		})
	}
}

// TestDelegatedSetsAreNotJudgedByTheirPods: while the pods of a set may run on a worker, its waiting pods here do not make it unready.
func TestDelegatedSetsAreNotJudgedByTheirPods(t *testing.T) {
	s := newScene()
	s.running()
	s.cfg.WaitForPodsReady = true
	w := s.o.Workloads[0]
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStateReady}}
	s.o.Delegated = map[kueue.AdmissionCheckReference]bool{"mk": true}
	var m lifecycle.Machine
	m.PodsReady(w, true, at(1))
	for _, tc := range []struct {
		change func()
		want   string
	}{
		{func() { w.Status.ClusterName = "w1"; m.RunOn(w, "w1", at(1)) }, "nothing"},
		{func() { s.o.Delegated = nil }, "nothing"}, // the check is deleted, and the dispatcher follows on
		{func() { w.Status.ClusterName = "" }, "pods ready: WaitForRecovery"},
		{func() { w.Status.ClusterName = "w1" }, "nothing"},
		{func() { m.RunNowhere(w, at(2)) }, "pods ready: WaitForRecovery"},
	} {
		tc.change()
		if got := describeAction(s.decide()); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// TestSetsOfAManager: a copy of an object on a worker creates no Workload and uses its manager's.
func TestSetsOfAManager(t *testing.T) {
	set := newStatefulSet(2)
	set.UID = "here"
	set.Labels[kueue.MultiKueueOriginLabel] = "hub"
	set.Annotations = map[string]string{kueue.MultiKueueOriginUIDAnnotation: "uid-1", kueue.PrebuiltWorkloadLabel: nameOfWeb}
	s := newServed(statefulset.Descriptor(), set)
	if got := s.runUntilStable(); len(got) > 0 {
		t.Errorf("without the Workload: %v", got)
	}
	if diff := cmp.Diff([]string{nameOfWeb}, decide.NamesOfParts(s.cfg, s.d, set)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	made := newServed(statefulset.Descriptor(), newStatefulSet(2))
	made.runUntilStable()
	given := made.o.Workloads[0].DeepCopy()
	given.OwnerReferences, given.Finalizers = nil, nil
	given.Labels = map[string]string{kueue.MultiKueueOriginLabel: "hub"}
	s.o.Workloads = []*kueue.Workload{given}
	s.pod("web-0", "web", nil, nil)
	s.runUntilStable()
	if got := s.o.Workloads[0]; len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != "here" || s.cfg.GroupName(s.o.Pods[0]) != nameOfWeb {
		t.Errorf("owners %v, the pod is of %q", got.OwnerReferences, s.cfg.GroupName(s.o.Pods[0]))
	}

	lws := newLeaderWorkerSet(t)
	there := lws.DeepCopy()
	there.SetUID("here")
	there.SetLabels(map[string]string{kueue.MultiKueueOriginLabel: "hub"})
	there.SetAnnotations(map[string]string{kueue.MultiKueueOriginUIDAnnotation: string(lws.GetUID())})
	d := leaderworkerset.Descriptor()
	if diff := cmp.Diff(decide.NamesOfParts(s.cfg, d, lws), decide.NamesOfParts(s.cfg, d, there)); diff != "" {
		t.Errorf("names differ, -here +there:\n%s", diff)
	}
}

// TestDelegatedGroup: the pods of a group that runs on a worker keep their gates, whatever becomes of its check.
func TestDelegatedGroup(t *testing.T) {
	for cluster, want := range map[string]job.Verb{"w1": job.Nothing, "": job.PatchJob} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "1", kueue.RoleHashAnnotation: "main"},
				Labels: map[string]string{kueue.ManagedLabel: "true", kueue.QueueNameLabel: "lq", kueue.PodGroupNameLabel: "g"},
			},
			Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}}, Containers: []corev1.Container{{Name: "c"}}},
		}
		groups := podgroup.Groups(func(o job.Object, cfg *job.Config) string { return cfg.GroupName(o) }, podgroup.Rules{})
		s := &scene{d: groups.Jobs, cfg: &job.Config{}, o: &job.Observed{Verdict: job.Verdict{Mode: job.Managed}, Now: at(100)}}
		s.o.Job = groups.Join("g", []job.Object{pod}, s.cfg, at(100).Time)
		w := s.decide().Workload
		if w == nil {
			t.Fatalf("no workload: %s", describeAction(s.decide()))
		}
		lifecycle.Machine{}.Reserve(w, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}, nil, at(1))
		lifecycle.Machine{}.SyncAdmitted(w, at(1))
		w.Status.ClusterName, s.o.Workloads = cluster, []*kueue.Workload{w}
		if a := s.decide(); a.Verb != want {
			t.Errorf("on cluster %q: %s", cluster, describeAction(a))
		}
	}
}

// TestStartsWhileItRunsElsewhere: the job of a kind without managedBy, which an external framework sends, is started here too. Its controller leaves
// it alone (spec: 40 §4.6).
func TestStartsWhileItRunsElsewhere(t *testing.T) {
	s := newScene()
	s.d.ManagedBy, s.d.Remote = nil, nil
	s.admitted().Status.ClusterName = "w1"
	if a := s.decide(); a.Verb != job.PatchJob || s.d.IsSuspended(a.Job) {
		t.Errorf("got %s", describeAction(a))
	}
}
