package variants_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/variants"
)

var (
	t0      = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	machine = lifecycle.Machine{}
	config  = variants.Config{Machine: machine, On: true}
)

// world is one parent, its variants and their ClusterQueue. The test is the engine, and the job.
type world struct {
	o    variants.Observed
	uids int
	pods string // the flavor on which the pods of the job run, "" for none
}

func newWorld(mode kueue.ConcurrentAdmissionMode, last string, flavors ...string) *world {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}}
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu"}}
	for _, f := range flavors {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(f)})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	cq.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: mode}}
	if last != "" {
		cq.Spec.ConcurrentAdmissionPolicy.Migration.Constraints = &kueue.ConcurrentAdmissionConstraints{LastAcceptableFlavorName: kueue.ResourceFlavorReference(last)}
	}
	return &world{o: variants.Observed{Queue: cq, Now: t0, Parent: &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "parent", Labels: map[string]string{"team": "x"}},
		Spec:       kueue.WorkloadSpec{QueueName: "q", PodSets: []kueue.PodSet{{Name: "main", Count: 1, MinCount: new(int32(1))}}},
	}}}
}

// step makes the next write and returns its text.
func (w *world) step(c variants.Config) string {
	s := c.Next(&w.o)
	if s.Verb == variants.Nothing {
		return s.String()
	}
	stored := s.Workload.DeepCopy()
	if s.Verb == variants.Create {
		w.uids++
		stored.UID = types.UID(fmt.Sprintf("v%d", w.uids))
	}
	w.o.Apply(&s, stored)
	return s.String()
}

// makeSteps makes all writes.
func (w *world) makeSteps(t *testing.T, c variants.Config) (steps []string) {
	t.Helper()
	for range 200 {
		step := w.step(c)
		if step == "nothing" {
			return steps
		}
		steps = append(steps, step)
	}
	t.Fatalf("it never ends: %q", steps[190:])
	return nil
}

func (w *world) variant(flavor string) *kueue.Workload {
	for _, v := range w.o.Variants {
		if string(variants.FlavorOf(v)) == flavor {
			return v
		}
	}
	return nil
}

// reserve is what the engine does: it admits a variant alone unless another one holds quota, or checks are pending.
func (w *world) reserve(flavor string, checks ...kueue.AdmissionCheckReference) {
	v := w.variant(flavor)
	admission := &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": kueue.ResourceFlavorReference(flavor)},
	}}}
	contested := slices.ContainsFunc(w.o.Variants, func(o *kueue.Workload) bool { return o != v && lifecycle.IsReserved(o) })
	machine.Reserve(v, admission, checks, w.o.Now)
	if !contested {
		machine.AdmitVariant(v, w.o.Now)
	}
}

// gate says that a variant is blocked by its gate.
func (w *world) gate(flavor string) {
	v := w.variant(flavor)
	machine.Pending(v, kueue.ReasonPendingEvaluation, "gated", w.o.Now)
	machine.BlockOnPreemptionGates(v, "gated", w.o.Now)
}

// active are the flavors whose variants are active.
func (w *world) active() (out []string) {
	for _, f := range w.o.Queue.Spec.ResourceGroups[0].Flavors {
		if v := w.variant(string(f.Name)); v != nil && lifecycle.IsActive(v) {
			out = append(out, string(f.Name))
		}
	}
	return out
}

func (w *world) runs() string {
	if v := variants.RunsOn(w.o.Parent, w.o.Variants); v != nil {
		return string(variants.FlavorOf(v))
	}
	return ""
}

func TestBecomesAParent(t *testing.T) {
	w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
	w.o.Parent.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: "x"}}
	w.o.Parent.Labels[kueue.MultiKueueOriginLabel] = "hub"
	w.o.Parent.Annotations = map[string]string{lifecycle.MultiKueuePrefix + "origin-uid": "1", "note": "y"}
	steps := w.makeSteps(t, config)
	a := w.variant("a")
	want := []string{"patch p", "create " + a.Name + " CreatedVariant", "create " + w.variant("b").Name + " CreatedVariant"}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if !lifecycle.IsParent(w.o.Parent) || lifecycle.IsParent(a) || lifecycle.VariantOf(a) != "parent" || a.Labels["team"] != "x" ||
		lifecycle.VariantRank(w.variant("b")) != 1 || a.Spec.PodSets[0].MinCount != nil || len(a.Spec.PreemptionGates) != 2 {
		t.Errorf("the variant is %+v", a)
	}
	if _, mine := a.Annotations[lifecycle.MultiKueuePrefix+"origin-uid"]; mine || a.Labels[kueue.MultiKueueOriginLabel] != "" || a.Annotations["note"] != "y" {
		t.Errorf("it passes for what a manager of MultiKueue made: labels %v, annotations %v", a.Labels, a.Annotations)
	}
	off := config
	off.On = false
	steps = w.makeSteps(t, off)
	if len(w.o.Variants) > 0 || lifecycle.IsParent(w.o.Parent) {
		t.Errorf("without the gate: steps %q, %d variants", steps, len(w.o.Variants))
	}
}

// With the feature gate off, a job that ran on a variant is stopped, and queued without variants.
func TestGateOff(t *testing.T) {
	w, off := newWorld(kueue.TryPreferredFlavors, "", "a", "b"), config
	off.On = false
	w.makeSteps(t, config)
	w.reserve("a")
	w.makeSteps(t, config)
	w.o.Queue = nil // which is not read then
	w.makeSteps(t, off)
	if c := lifecycle.Condition(w.o.Parent, kueue.WorkloadEvicted); c == nil || c.Reason != kueue.ReasonConcurrentAdmission || w.variant("a") == nil {
		t.Fatalf("the parent is evicted, and its variant holds the quota: %+v", c)
	}
	machine.Release(w.o.Parent, false, t0)
	w.makeSteps(t, off)
	if len(w.o.Variants) > 0 || lifecycle.KeptOut(w.o.Parent, false) != lifecycle.NoObstacle || lifecycle.IsRequeueBlocked(w.o.Parent) {
		t.Errorf("%d variants, the parent has labels %v and conditions %v", len(w.o.Variants), w.o.Parent.Labels, w.o.Parent.Status.Conditions)
	}
}

// Which variants are active, by what is admitted. spec: 20 §4.13.
func TestActive(t *testing.T) {
	const prefer, retain = kueue.TryPreferredFlavors, kueue.RetainFirstAdmission
	for name, tc := range map[string]struct {
		mode     kueue.ConcurrentAdmissionMode
		last     string
		admitted string
		want     []string
	}{
		"none is admitted":              {prefer, "", "", []string{"a", "b", "c", "d"}},
		"retained":                      {retain, "", "c", []string{"c"}},
		"better ones stay":              {prefer, "", "c", []string{"a", "b", "c"}},
		"the best":                      {prefer, "", "a", []string{"a"}},
		"up to the last acceptable one": {prefer, "a", "c", []string{"a", "c"}},
		"the admitted one is better":    {prefer, "d", "b", []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.mode, tc.last, "a", "b", "c", "d")
			w.makeSteps(t, config)
			if tc.admitted != "" {
				w.reserve(tc.admitted)
			}
			w.makeSteps(t, config)
			if got := w.active(); !slices.Equal(got, tc.want) || w.runs() != tc.admitted {
				t.Errorf("active %v, want %v; it runs on %q", got, tc.want, w.runs())
			}
			w.o.Parent.Spec.Active = new(false)
			w.makeSteps(t, config)
			if got := w.active(); len(got) > 0 {
				t.Errorf("active though the parent is not: %v", got)
			}
		})
	}
}

// A job that is activated again returns to its queue with its preferred flavor first: it does not start with another one.
func TestActivatedInOrder(t *testing.T) {
	w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
	w.makeSteps(t, config)
	w.reserve("a")
	w.makeSteps(t, config)
	is := func(want ...string) {
		t.Helper()
		w.makeSteps(t, config)
		if got := w.active(); !slices.Equal(got, want) {
			t.Errorf("active: %v, want %v", got, want)
		}
	}
	w.o.Parent.Spec.Active = new(false)
	is()
	w.follow()
	w.o.Parent.Spec.Active = new(true)
	is() // a still holds its quota, which another Workload may have got meanwhile
	machine.Release(w.o.Parent, false, t0)
	w.makeSteps(t, config)
	if lifecycle.IsReserved(w.variant("a")) {
		t.Fatal("its quota is not released")
	}
	is("a")
	w.follow()
	is("a", "b")
}

func TestMigration(t *testing.T) {
	w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
	w.makeSteps(t, config)
	w.reserve("b")
	w.makeSteps(t, config)
	w.reserve("a", "check")
	w.makeSteps(t, config)
	if w.runs() != "b" || lifecycle.IsEvicted(w.variant("b")) {
		t.Fatal("it moves before the better variant can be admitted")
	}
	w.variant("a").Status.AdmissionChecks[0].State = kueue.CheckStateReady
	w.makeSteps(t, config)
	if c := lifecycle.Condition(w.variant("b"), kueue.WorkloadEvicted); c == nil || c.Reason != kueue.ReasonFlavorMigration {
		t.Errorf("evicted: %+v", c)
	}
	if c := lifecycle.Condition(w.o.Parent, kueue.WorkloadEvicted); c == nil || c.Reason != kueue.ReasonVariantEvicted || lifecycle.IsAdmitted(w.variant("a")) {
		t.Errorf("the parent is evicted: %+v", c)
	}
	machine.Release(w.o.Parent, false, t0)
	w.makeSteps(t, config)
	if w.runs() != "a" || lifecycle.IsReserved(w.variant("b")) || !lifecycle.IsAdmitted(w.variant("a")) {
		t.Errorf("it runs on %q", w.runs())
	}
}

// A variant that made room for a better one, which then did not get the quota, is queued again though a worse one is admitted by then.
func TestMadeRoomInVain(t *testing.T) {
	w := newWorld(kueue.TryPreferredFlavors, "", "a", "b", "c")
	w.makeSteps(t, config)
	w.reserve("b")
	w.makeSteps(t, config)
	machine.Evict(w.variant("b"), kueue.ReasonFlavorMigration, "", "", t0) // for a
	w.makeSteps(t, config)
	machine.Release(w.o.Parent, false, t0)
	w.makeSteps(t, config)
	w.reserve("c")
	w.makeSteps(t, config)
	if w.runs() != "c" || !lifecycle.IsRequeueBlocked(w.variant("b")) {
		t.Fatalf("it runs on %q, and b has conditions %v", w.runs(), w.variant("b").Status.Conditions)
	}
	w.o.Now = metav1.NewTime(t0.Add(time.Minute))
	w.makeSteps(t, config)
	if b := w.variant("b"); lifecycle.IsRequeueBlocked(b) || !lifecycle.IsActive(b) {
		t.Errorf("b is not queued again: %v", b.Status.Conditions)
	}
}

// What ends a parent for a reason of its own ends its variant too, which does not start it again on the same nodes.
func TestTakesItsVariantAlong(t *testing.T) {
	for name, fail := range map[string]func(*kueue.Workload){
		"an eviction": func(p *kueue.Workload) { machine.Evict(p, kueue.ReasonNodeFailures, "", "two nodes failed", t0) },
	} {
		w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
		w.makeSteps(t, config)
		w.reserve("a")
		w.makeSteps(t, config)
		fail(w.o.Parent)
		w.makeSteps(t, config)
		if c := lifecycle.Condition(w.variant("a"), kueue.WorkloadEvicted); c == nil || c.Reason != kueue.ReasonNodeFailures || !lifecycle.IsEvicted(w.o.Parent) {
			t.Errorf("%s: the variant is evicted: %+v", name, c)
		}
		machine.Release(w.o.Parent, false, t0)
		w.makeSteps(t, config)
		if v := w.variant("a"); lifecycle.IsReserved(v) || lifecycle.IsRequeueBlocked(v) || w.runs() != "" {
			t.Errorf("%s: the variant is not queued again: %+v", name, v.Status.Conditions)
		}
	}
}

// A failed node under the parent reaches the variant, for the engine to replace it, and the new places reach the parent. spec: 20 §4.9.
func TestFailedNode(t *testing.T) {
	w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
	w.makeSteps(t, config)
	w.reserve("a")
	a, placed := w.variant("a"), func(node string) *kueue.TopologyAssignment {
		return assignment.Encode([]string{corev1.LabelHostname}, []assignment.Domain{{Values: []string{node}, Count: 1}}, true)
	}
	a.Status.Admission.PodSetAssignments[0].TopologyAssignment = placed("n1")
	w.makeSteps(t, config)
	failed := []kueue.UnhealthyNode{{Name: "n1"}}
	w.o.Parent.Status.UnhealthyNodes = failed
	w.makeSteps(t, config)
	if a = w.variant("a"); !slices.Equal(a.Status.UnhealthyNodes, failed) || lifecycle.IsEvicted(a) {
		t.Fatalf("the variant has failed nodes %v, conditions %v", a.Status.UnhealthyNodes, a.Status.Conditions)
	}
	admission := a.Status.Admission.DeepCopy()
	admission.PodSetAssignments[0].TopologyAssignment = placed("n2")
	machine.Placed(a, admission, t0)
	w.makeSteps(t, config)
	p := w.o.Parent
	if got := p.Status.Admission.PodSetAssignments[0].TopologyAssignment; !equality.Semantic.DeepEqual(got, placed("n2")) ||
		len(p.Status.UnhealthyNodes)+len(w.variant("a").Status.UnhealthyNodes) > 0 || !lifecycle.IsAdmitted(p) {
		t.Errorf("the parent is placed on %v, failed nodes %v", got, p.Status.UnhealthyNodes)
	}
	w.o.Parent.Status.UnhealthyNodes = []kueue.UnhealthyNode{{Name: "n2"}}
	w.makeSteps(t, config)
	w.o.Parent.Status.UnhealthyNodes = nil // it recovered
	w.makeSteps(t, config)
	if nodes := w.variant("a").Status.UnhealthyNodes; len(nodes) > 0 {
		t.Errorf("the variant keeps %v", nodes)
	}
}

// The gate of the preferred variant that is blocked opens, at most one in five minutes. spec: 20 §4.13, §5.7.
func TestGates(t *testing.T) {
	w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
	w.makeSteps(t, config)
	w.gate("b")
	if steps := w.makeSteps(t, config); len(steps) > 0 {
		t.Errorf("a was never evaluated, but: %q", steps)
	}
	w.gate("a")
	want := "status " + w.variant("a").Name + " PreemptionUngatedVariant"
	if steps := w.makeSteps(t, config); !slices.Equal(steps, []string{want}) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if s := config.Next(&w.o); !s.Wake.Equal(t0.Add(variants.Spacing)) {
		t.Errorf("wakes at %s", s.Wake)
	}
	w.o.Now = metav1.NewTime(t0.Add(variants.Spacing))
	if steps := w.makeSteps(t, config); len(steps) != 1 || steps[0] != "status "+w.variant("b").Name+" PreemptionUngatedVariant" {
		t.Errorf("steps %q", steps)
	}
}

// TestFailedCreation: a variant that cannot be created delays neither the others nor their gates. The parent waits for it.
func TestFailedCreation(t *testing.T) {
	w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
	w.o.Failed = []kueue.ResourceFlavorReference{"a"}
	if steps := w.makeSteps(t, config); len(steps) != 2 || steps[0] != "patch p" || steps[1] != "create "+w.variant("b").Name+" CreatedVariant" {
		t.Errorf("steps %q", steps)
	}
	w.gate("b")
	if steps := w.makeSteps(t, config); len(steps) != 1 || steps[0] != "status "+w.variant("b").Name+" PreemptionUngatedVariant" {
		t.Errorf("steps %q", steps)
	}
	machine.RequestDeactivation(w.variant("b"), "", "by the test", w.o.Now)
	machine.Evict(w.variant("b"), kueue.ReasonDeactivated, "", "by the test", w.o.Now)
	if w.makeSteps(t, config); !lifecycle.IsActive(w.o.Parent) {
		t.Error("the parent was given up")
	}
}

// TestClassOfAReservedVariant: the API refuses another kind of class while a variant holds quota, so it keeps the one that it has, and runs.
func TestClassOfAReservedVariant(t *testing.T) {
	class := func(kind kueue.PriorityClassKind, name string) *kueue.PriorityClassRef {
		return &kueue.PriorityClassRef{Group: kueue.WorkloadPriorityClassGroup, Kind: kind, Name: name}
	}
	for name, tc := range map[string]struct{ have, want, kept *kueue.PriorityClassRef }{
		"added":         {nil, class(kueue.WorkloadPriorityClassKind, "gold"), nil},
		"another class": {class(kueue.WorkloadPriorityClassKind, "tin"), class(kueue.WorkloadPriorityClassKind, "gold"), class(kueue.WorkloadPriorityClassKind, "gold")},
		"of pods":       {class(kueue.PodPriorityClassKind, "tin"), class(kueue.PodPriorityClassKind, "gold"), class(kueue.PodPriorityClassKind, "tin")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
			w.o.Parent.Spec.PriorityClassRef = tc.have
			w.makeSteps(t, config)
			w.reserve("a")
			w.o.Parent.Spec.PriorityClassRef = tc.want
			w.makeSteps(t, config)
			if got := w.variant("a").Spec.PriorityClassRef; !equality.Semantic.DeepEqual(got, tc.kept) {
				t.Errorf("class %+v, want %+v", got, tc.kept)
			}
			if got := w.runs(); got != "a" {
				t.Errorf("it runs on %q", got)
			}
		})
	}
}

// TestGatesOfTheParent blocks variants by a gate whose owner knows the parent only, such as a manager of MultiKueue.
func TestGatesOfTheParent(t *testing.T) {
	w := newWorld(kueue.TryPreferredFlavors, "", "a", "b")
	gate := []kueue.PreemptionGate{{Name: kueue.MultiKueuePreemptionGate}}
	w.o.Parent.Spec.PreemptionGates = gate
	w.makeSteps(t, config)
	position := func(v *kueue.Workload) kueue.PreemptionGatePosition {
		if g := lifecycle.GateOf(v, gate[0].Name); g != nil {
			return g.Position
		}
		return kueue.PreemptionGateClosed
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if steps := w.makeSteps(t, config); !slices.Equal(steps, want) {
			t.Errorf("%s: steps %q, want %q", when, steps, want)
		}
	}
	a, b := w.variant("a").Name, w.variant("b").Name

	w.gate("a")
	w.gate("b")
	expect("its gate is closed", "status p")
	if c := lifecycle.Condition(w.o.Parent, kueue.WorkloadBlockedOnPreemptionGates); !lifecycle.IsBlocked(w.o.Parent) || c.Message != "Variant "+a+": gated" {
		t.Errorf("the parent says %+v", c)
	}
	machine.OpenGate(w.o.Parent, gate[0].Name, w.o.Now)
	expect("it is opened", "status "+a, "status "+b, "status "+a+" PreemptionUngatedVariant")
	if lifecycle.IsBlocked(w.o.Parent) || lifecycle.IsBlocked(w.variant("a")) || !lifecycle.IsBlocked(w.variant("b")) {
		t.Errorf("blocked: the parent %t, a %t, b %t; only b is", lifecycle.IsBlocked(w.o.Parent), lifecycle.IsBlocked(w.variant("a")), lifecycle.IsBlocked(w.variant("b")))
	}

	w.reserve("a") // which closes the gates
	w.makeSteps(t, config)
	if w.runs() != "a" {
		t.Fatalf("runs on %q", w.runs())
	}
	for _, v := range append([]*kueue.Workload{w.o.Parent}, w.o.Variants...) {
		if position(v) != kueue.PreemptionGateClosed {
			t.Errorf("once it runs, the gate of %s is %s", v.Name, position(v))
		}
	}

	w.o.Now = metav1.NewTime(t0.Add(time.Hour))
	machine.OpenGate(w.variant("b"), gate[0].Name, w.o.Now)
	expect("another client opened the gate of one variant")
	w.o.Parent.Spec.PreemptionGates = nil
	expect("the parent has no gate any more", "patch "+a, "patch "+b)
}

// TestSchedules lets an engine, checks, a job, users and a manager that is interrupted between any two writes act in a random order. Never are
// two variants admitted, a job has pods only on quota that its variant holds, and in the end the job runs on the best flavor that there is.
func TestSchedules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		mode := []kueue.ConcurrentAdmissionMode{kueue.TryPreferredFlavors, kueue.RetainFirstAdmission}[r.IntN(2)]
		w := newWorld(mode, "", "a", "b", "c")
		for i := range 150 {
			what := w.act(r)
			w.o.Now = metav1.NewTime(w.o.Now.Add(time.Second))
			if wrong := w.wrong(); wrong != "" {
				rt.Fatalf("step %d, after %s: %s", i, what, wrong)
			}
		}
		w.calm(t)
		if best := w.runs(); best == "" || (mode == kueue.TryPreferredFlavors && best != "a") || w.pods != best {
			rt.Fatalf("in the end it runs on %q, its pods on %q, active %v", best, w.pods, w.active())
		}
	})
}

// act lets somebody do something.
func (w *world) act(r *rand.Rand) string {
	flavor := []string{"a", "b", "c"}[r.IntN(3)]
	v := w.variant(flavor)
	switch n := r.IntN(12); {
	case n < 5:
		return w.step(config)
	case n < 7:
		w.job()
		return "the job"
	case v == nil:
		return "nothing"
	case n == 7:
		w.engine(flavor, r.IntN(2) == 0)
		return "the engine for " + flavor
	case n == 8:
		for i := range v.Status.AdmissionChecks {
			v.Status.AdmissionChecks[i].State = kueue.CheckStateReady
		}
		return "the check of " + flavor
	case n == 9:
		if lifecycle.IsReserved(v) && lifecycle.IsActive(v) {
			machine.Preempt(v, "InClusterQueue", "", w.o.Now)
		}
		return "preemption of " + flavor
	case n == 10 && r.IntN(3) == 0:
		w.o.Parent.Spec.Active = new(!lifecycle.IsActive(w.o.Parent))
		return "the user"
	}
	w.follow()
	return "deactivation"
}

// engine reserves quota for a variant as the engine may: none is admitted. One with a worse flavor is evicted for it.
func (w *world) engine(flavor string, checked bool) {
	v := w.variant(flavor)
	if lifecycle.IsReserved(v) || !lifecycle.IsActive(v) || lifecycle.IsRequeueBlocked(v) {
		return
	}
	for _, o := range w.o.Variants {
		if o == v || !lifecycle.IsAdmitted(o) || !lifecycle.IsReserved(o) || lifecycle.IsFinished(o) {
			continue
		}
		if rank := lifecycle.VariantRank(v); rank < lifecycle.VariantRank(o) && rank < variants.MigratesTo(w.o.Queue) {
			machine.Evict(o, kueue.ReasonFlavorMigration, "", "", w.o.Now)
		}
		return
	}
	if checked {
		w.reserve(flavor, "check")
	} else {
		w.reserve(flavor)
	}
}

// follow is what package follow does with inactive Workloads.
func (w *world) follow() {
	for _, o := range append([]*kueue.Workload{w.o.Parent}, w.o.Variants...) {
		switch c := lifecycle.Condition(o, kueue.WorkloadRequeued); {
		case !lifecycle.IsActive(o):
			machine.Deactivate(o, w.o.Now)
		case c != nil && c.Reason == kueue.ReasonDeactivated && !lifecycle.IsReserved(o):
			machine.Requeue(o, kueue.ReasonReactivated, "", w.o.Now)
		}
	}
}

// job starts and stops pods as its Workload says, and releases the quota once they have ended.
func (w *world) job() {
	p := w.o.Parent
	switch {
	case lifecycle.IsEvicted(p) && w.pods != "":
		w.pods = ""
	case lifecycle.IsEvicted(p):
		machine.Release(p, false, w.o.Now)
	case lifecycle.IsAdmitted(p) && w.pods == "":
		w.pods = string(p.Status.Admission.PodSetAssignments[0].Flavors["cpu"])
	}
}

// wrong returns which rule is broken.
func (w *world) wrong() string {
	admitted := 0
	for _, v := range w.o.Variants {
		if lifecycle.IsAdmitted(v) {
			admitted++
		}
	}
	if admitted > 1 {
		return fmt.Sprintf("%d variants are admitted", admitted)
	}
	if w.pods == "" || !lifecycle.IsActive(w.o.Parent) { // a deactivation frees quota while pods end (spec: 10 §4.11)
		return ""
	}
	if v := w.variant(w.pods); v == nil || !lifecycle.IsReserved(v) {
		return "pods run on " + w.pods + " without its quota"
	}
	return ""
}

// calm ends all disturbances and lets everything come to rest.
func (w *world) calm(t *testing.T) {
	t.Helper()
	w.o.Parent.Spec.Active = new(true)
	for range 20 {
		w.o.Now = metav1.NewTime(w.o.Now.Add(time.Minute))
		w.makeSteps(t, config)
		w.follow()
		w.job()
		for _, v := range w.o.Variants {
			w.engine(string(variants.FlavorOf(v)), false)
			for i := range v.Status.AdmissionChecks {
				v.Status.AdmissionChecks[i].State = kueue.CheckStateReady
			}
		}
	}
}
