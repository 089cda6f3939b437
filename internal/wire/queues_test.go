package wire

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/placement/plan/nodequota"
)

// active waits until a ClusterQueue is active, or is not, for a reason and with words in the message.
func (s *seen) active(name, reason string, words ...string) {
	s.Helper()
	status := metav1.ConditionFalse
	if reason == kueue.ReasonReady {
		status = metav1.ConditionTrue
	}
	wait.Until(s.T, fmt.Sprintf("ClusterQueue %s: %s", name, reason), func() error {
		conditions := s.clusterQueue(name).Status.Conditions
		if err := is(conditions, kueue.ClusterQueueActive, status, reason); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(conditions, kueue.ClusterQueueActive)
		for _, w := range words {
			if !strings.Contains(c.Message, w) {
				return fmt.Errorf("message %q has no %q", c.Message, w)
			}
		}
		if c.ObservedGeneration == 0 {
			return fmt.Errorf("condition without generation: %+v", c)
		}
		return nil
	})
}

func (s *seen) localActive(room, reason string) {
	s.Helper()
	status := metav1.ConditionFalse
	if reason == kueue.ReasonReady {
		status = metav1.ConditionTrue
	}
	wait.Until(s.T, fmt.Sprintf("LocalQueue %s: %s", room, reason), func() error {
		return is(s.localQueue(room).Status.Conditions, kueue.LocalQueueActive, status, reason)
	})
}

func check(name, controller string) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}
}

func (s *seen) checkIs(c *kueue.AdmissionCheck, status metav1.ConditionStatus) {
	s.Helper()
	changeStatus(s, c, func(c *kueue.AdmissionCheck) {
		apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: status, Reason: "Tested", Message: "."})
	})
}

// checkActive makes a check active that its own controller finds inactive, once that has said so.
func (s *seen) checkActive(c *kueue.AdmissionCheck) {
	s.Helper()
	wait.Until(s, "both controllers of "+c.Name+" have written it", func() error {
		if err := s.c.Get(s.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if len(c.Finalizers) == 0 || len(c.Status.Conditions) == 0 {
			return fmt.Errorf("finalizers %v, conditions %v", c.Finalizers, c.Status.Conditions)
		}
		return nil
	})
	s.checkIs(c, metav1.ConditionTrue)
}

func needs(names ...string) func(*kueue.ClusterQueueSpec) {
	return func(q *kueue.ClusterQueueSpec) {
		q.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
		for _, name := range names {
			q.AdmissionChecksStrategy.AdmissionChecks = append(q.AdmissionChecksStrategy.AdmissionChecks,
				kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(name)})
		}
	}
}

// clusterQueueActive: every reason, the first in order, all in the message, and how to fix it. A Workload waits meanwhile and runs
// afterwards.
func (s *seen) clusterQueueActive() {
	const room = "cq-active"
	s.space(room, nil)
	cq := clusterQueue(room, "1")
	cq.Spec.ResourceGroups[0].Flavors[0].Name = "cq-active-f"
	cq.Spec.StopPolicy = kueue.StopPolicyHold
	needs("cq-active-a", "cq-active-b")(&cq.Spec)
	s.create(cq, localQueue(room, "lq", room), work(room, "w", 1, "cpu=1"))
	s.active(room, kueue.ReasonStopped, "stopPolicy Hold", "ResourceFlavors not found: cq-active-f", "AdmissionChecks not found: cq-active-a, cq-active-b")
	change(s, cq, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	s.active(room, kueue.ReasonFlavorNotFound)
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "cq-active-f"}}
	s.create(flavor)
	s.active(room, kueue.ReasonAdmissionCheckNotFound)
	s.waits(room, "w", kueue.ReasonSuspended)
	a, b := check("cq-active-a", kueue.MultiKueueControllerName), check("cq-active-b", kueue.MultiKueueControllerName)
	s.create(a, b)
	s.active(room, kueue.ReasonAdmissionCheckInactive, "only one MultiKueue check")
	for _, c := range []*kueue.AdmissionCheck{a, b} {
		s.checkActive(c)
	}
	s.active(room, kueue.ReasonMultipleMultiKueueAdmissionChecks)
	s.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "cq-active-g"}})
	change(s, cq, func(q *kueue.ClusterQueue) {
		needs("cq-active-a")(&q.Spec)
		q.Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = []kueue.ResourceFlavorReference{"cq-active-f"}
		q.Spec.ResourceGroups[0].Flavors = append(q.Spec.ResourceGroups[0].Flavors, kueue.FlavorQuotas{
			Name: "cq-active-g", Resources: q.Spec.ResourceGroups[0].Flavors[0].Resources,
		})
	})
	s.active(room, kueue.ReasonMultiKueueAdmissionCheckAppliedPerFlavor)
	c := check("cq-active-c", kueue.ProvisioningRequestControllerName)
	s.create(c)
	s.checkActive(c)
	change(s, cq, func(q *kueue.ClusterQueue) { needs("cq-active-a", "cq-active-c")(&q.Spec) })
	s.active(room, kueue.ReasonMultiKueueWithProvisioningRequest)
	change(s, cq, func(q *kueue.ClusterQueue) { q.Spec.AdmissionChecksStrategy = nil })
	s.active(room, kueue.ReasonReady)
	s.runs(room, "w")
	change(s, flavor, func(f *kueue.ResourceFlavor) {
		f.Spec.NodeLabels, f.Spec.TopologyName = map[string]string{"pool": "a"}, "cq-active-t"
	})
	s.active(room, kueue.ReasonTopologyNotFound, "cq-active-t of flavor cq-active-f")
	s.create(work(room, "later", 1, "cpu=0"))
	s.waits(room, "later", kueue.ReasonSuspended, "cq-active-t")
	s.create(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "cq-active-t"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "pool"}}}})
	s.active(room, kueue.ReasonReady)
	s.runs(room, "later")
}

// circle: no Workload is admitted below cohorts in a cycle, and all statuses say why.
func (s *seen) circle() {
	below := func(q *kueue.ClusterQueueSpec) { q.CohortName = "circle-x" }
	s.room("circle", "1", below)
	x := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "circle-x"}, Spec: kueue.CohortSpec{ParentName: "circle-y"}}
	y := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "circle-y"}, Spec: kueue.CohortSpec{ParentName: "circle-x"}}
	s.create(x, y)
	s.active("circle", kueue.ReasonUnknown, "circle: circle-x below circle-y below circle-x")
	s.localActive("circle", kueue.ReasonClusterQueueIsInactive)
	s.create(work("circle", "w", 1, "cpu=1"))
	s.waits("circle", "w", kueue.ReasonSuspended, "circle-x below circle-y below circle-x")
	change(s, y, func(c *kueue.Cohort) { c.Spec.ParentName = "" })
	s.active("circle", kueue.ReasonReady)
	s.runs("circle", "w")
}

// localQueueActive: every reason, and the counts meanwhile.
func (s *seen) localQueueActive() {
	const room = "lq-active"
	s.space(room, nil)
	unset, bare := localQueue(room, "unset", ""), &unstructured.Unstructured{} // as a manifest without spec, which Go types cannot write
	bare.SetGroupVersionKind(kueue.GroupVersion.WithKind("LocalQueue"))
	bare.SetNamespace(room)
	bare.SetName(unset.Name)
	s.create(localQueue(room, "lq", room), bare, work(room, "w", 1, "cpu=1"))
	s.localActive(room, kueue.ReasonClusterQueueDoesNotExist)
	wait.Until(s.T, "a LocalQueue without a ClusterQueue says so", func() error {
		lq := read(s, room, "unset", &kueue.LocalQueue{})
		return is(lq.Status.Conditions, kueue.LocalQueueActive, metav1.ConditionFalse, kueue.ReasonClusterQueueDoesNotExist)
	})
	s.waits(room, "w", kueue.ReasonMisconfigured)
	cq := clusterQueue(room, "1")
	cq.Spec.StopPolicy = kueue.StopPolicyHold
	s.create(cq)
	s.localActive(room, kueue.ReasonClusterQueueIsInactive)
	s.counts(room, 1, 0, 0)
	change(s, cq, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	s.localActive(room, kueue.ReasonReady)
	s.runs(room, "w")
	s.create(work(room, "behind", 1, "cpu=1"))
	s.counts(room, 1, 1, 1)
	change(s, unset, func(q *kueue.LocalQueue) { q.Spec.ClusterQueue = room })
	wait.Until(s.T, "the other LocalQueue got its ClusterQueue", func() error {
		lq := read(s, room, "unset", &kueue.LocalQueue{})
		return is(lq.Status.Conditions, kueue.LocalQueueActive, metav1.ConditionTrue, kueue.ReasonReady)
	})
	// By force: no queue has the quota, and running Workloads continue.
	s.remove(cq)
	change(s, cq, func(q *kueue.ClusterQueue) { q.Finalizers = nil })
	s.gone(cq)
	s.localActive(room, kueue.ReasonClusterQueueDoesNotExist)
	s.counts(room, 0, 0, 0)
	if lq := s.localQueue(room); len(lq.Status.FlavorsReservation)+len(lq.Status.FlavorsUsage) > 0 {
		s.Errorf("usage of no ClusterQueue: %+v", lq.Status)
	}
	s.runs(room, "w")
}

// counts waits until a LocalQueue has the counts.
func (s *seen) counts(room string, pending, reserving, admitted int32) {
	s.Helper()
	wait.Until(s.T, fmt.Sprintf("LocalQueue %s counts %d %d %d", room, pending, reserving, admitted), func() error {
		st := s.localQueue(room).Status
		if st.PendingWorkloads != pending || st.ReservingWorkloads != reserving || st.AdmittedWorkloads != admitted {
			return fmt.Errorf("it counts %d %d %d", st.PendingWorkloads, st.ReservingWorkloads, st.AdmittedWorkloads)
		}
		return nil
	})
}

// manyFlavors: a ClusterQueue shows them all, a LocalQueue the first 64.
func (s *seen) manyFlavors() {
	const room, n = "many-flavors", 70
	s.space(room, nil)
	cq := clusterQueue(room, "1")
	cq.Spec.ResourceGroups = nil
	for i := range n {
		name := fmt.Sprintf("many-%02d", i)
		s.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}})
		res := corev1.ResourceName("cpu")
		if i >= 64 {
			res = "memory"
		}
		if i%64 == 0 {
			cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{res}})
		}
		g := &cq.Spec.ResourceGroups[len(cq.Spec.ResourceGroups)-1]
		g.Flavors = append(g.Flavors, kueue.FlavorQuotas{
			Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{{Name: res, NominalQuota: resource.MustParse("1")}},
		})
	}
	s.create(cq, localQueue(room, "lq", room))
	s.active(room, kueue.ReasonReady)
	wait.Until(s.T, "the flavors are shown", func() error {
		c, l := s.clusterQueue(room).Status, s.localQueue(room).Status
		if len(c.FlavorsReservation) != n || len(c.FlavorsUsage) != n || len(l.FlavorsReservation) != 64 || len(l.FlavorsUsage) != 64 {
			return fmt.Errorf("%d, %d, %d and %d", len(c.FlavorsReservation), len(c.FlavorsUsage), len(l.FlavorsReservation), len(l.FlavorsUsage))
		}
		if last := l.FlavorsUsage[63].Name; last != "many-63" {
			return fmt.Errorf("the last one is %s", last)
		}
		return nil
	})
}

// figures: usage and reservation, borrowed and not, including zeros, in the order of the spec, resources by name.
func (s *seen) figures() {
	const room = "figures"
	ac := check("figures-check", "example.com/nobody")
	s.create(ac)
	s.checkIs(ac, metav1.ConditionTrue)
	s.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "figures-b"}})
	s.room("figures-lender", "4", func(q *kueue.ClusterQueueSpec) { q.CohortName = "figures" })
	s.room(room, "1", func(q *kueue.ClusterQueueSpec) {
		q.CohortName = "figures"
		needs("figures-check")(q)
		g := &q.ResourceGroups[0]
		g.CoveredResources = append(g.CoveredResources, "a.example.com/x")
		g.Flavors[0].Resources = append(g.Flavors[0].Resources, kueue.ResourceQuota{Name: "a.example.com/x"})
		second := *g.Flavors[0].DeepCopy()
		second.Name = "figures-b"
		g.Flavors = append(g.Flavors, second)
	})
	s.create(work(room, "w", 3, "cpu=1"))
	wait.Until(s.T, "it has a reservation", func() error {
		return is(s.workload(room, "w").Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved)
	})
	const free = "figures-b[a.example.com/x 0 0, cpu 0 0]"
	s.usage(room, "f[a.example.com/x 0 0, cpu 3 2] "+free, "f[a.example.com/x 0 0, cpu 0 0] "+free)
	s.counts(room, 0, 1, 0)
	changeStatus(s, s.workload(room, "w"), func(w *kueue.Workload) { w.Status.AdmissionChecks[0].State = kueue.CheckStateReady })
	s.runs(room, "w")
	s.usage(room, "f[a.example.com/x 0 0, cpu 3 2] "+free, "f[a.example.com/x 0 0, cpu 3 2] "+free)
	s.counts(room, 0, 1, 1)
	change(s, s.clusterQueue(room), func(q *kueue.ClusterQueue) { q.Spec.CohortName = "" })
	s.usage(room, "f[a.example.com/x 0 0, cpu 3 0] "+free, "f[a.example.com/x 0 0, cpu 3 0] "+free)
	// A removed flavor is not shown, even if it is in use. spec: 10 §7 example 74.
	change(s, s.clusterQueue(room), func(q *kueue.ClusterQueue) {
		q.Spec.ResourceGroups[0].Flavors = q.Spec.ResourceGroups[0].Flavors[1:]
	})
	s.usage(room, free, free)
	lq := s.localQueue(room).Status
	if len(lq.FlavorsUsage) != 1 || lq.FlavorsUsage[0].Name != "figures-b" {
		wait.Until(s.T, "the LocalQueue follows", func() error {
			if lq := s.localQueue(room).Status; len(lq.FlavorsUsage) != 1 || lq.FlavorsUsage[0].Name != "figures-b" {
				return fmt.Errorf("it shows %+v", lq.FlavorsUsage)
			}
			return nil
		})
	}
}

// usage waits for the reservation and the usage in the status of a ClusterQueue: "flavor[resource total borrowed, …] …".
func (s *seen) usage(name, reservation, usage string) {
	s.Helper()
	flat := func(list []kueue.FlavorUsage) string {
		var flavors []string
		for _, f := range list {
			var resources []string
			for _, r := range f.Resources {
				resources = append(resources, fmt.Sprintf("%s %s %s", r.Name, r.Total.String(), r.Borrowed.String()))
			}
			flavors = append(flavors, fmt.Sprintf("%s[%s]", f.Name, strings.Join(resources, ", ")))
		}
		return strings.Join(flavors, " ")
	}
	wait.Until(s.T, "the figures of "+name, func() error {
		st := s.clusterQueue(name).Status
		if got := flat(st.FlavorsReservation); got != reservation {
			return fmt.Errorf("reservation %s, want %s", got, reservation)
		}
		if got := flat(st.FlavorsUsage); got != usage {
			return fmt.Errorf("usage %s, want %s", got, usage)
		}
		return nil
	})
}

// deletedQueue: it stays until the last admitted Workload has finished, with a current status.
func (s *seen) deletedQueue() {
	const room = "deleted"
	s.room(room, "2")
	cq := s.clusterQueue(room)
	if fmt.Sprint(cq.Finalizers) != "["+kueue.ResourceInUseFinalizer+"]" {
		s.Errorf("finalizers %v", cq.Finalizers)
	}
	s.create(work(room, "a", 1, "cpu=1"), work(room, "b", 1, "cpu=1"))
	s.runs(room, "a")
	s.runs(room, "b")
	s.create(work(room, "waits", 1, "cpu=1"))
	s.waits(room, "waits", kueue.ReasonWaitingForQuota)
	s.remove(cq)
	s.active(room, kueue.ReasonTerminating)
	s.localActive(room, kueue.ReasonClusterQueueIsInactive)
	s.waits(room, "waits", kueue.ReasonSuspended)
	s.finish(room, "a")
	wait.Until(s.T, "the figures move", func() error {
		if n := s.clusterQueue(room).Status.AdmittedWorkloads; n != 1 {
			return fmt.Errorf("%d admitted", n)
		}
		return nil
	})
	s.runs(room, "b")
	s.finish(room, "b")
	s.gone(cq)
	s.waits(room, "waits", kueue.ReasonMisconfigured)
	s.localActive(room, kueue.ReasonClusterQueueDoesNotExist)
	s.create(clusterQueue(room, "2"))
	s.runs(room, "waits")
}

// deletedIdleQueue: neither pending Workloads nor mere reservations delay the deletion.
func (s *seen) deletedIdleQueue() {
	const room = "deleted-idle"
	ac := check("deleted-idle-check", "example.com/nobody")
	s.create(ac)
	s.checkIs(ac, metav1.ConditionTrue)
	s.room(room, "1", needs("deleted-idle-check"))
	s.create(work(room, "reserved", 1, "cpu=1"))
	wait.Until(s.T, "it has a reservation", func() error {
		return is(s.workload(room, "reserved").Status.Conditions, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved)
	})
	s.create(work(room, "waits", 1, "cpu=1"))
	s.waits(room, "waits", kueue.ReasonWaitingForQuota)
	s.remove(ac) // stays while it is referenced
	s.remove(s.clusterQueue(room))
	s.gone(clusterQueue(room, "1"))
	s.gone(ac)
	s.waits(room, "reserved", kueue.ReasonMisconfigured)
	if apimeta.FindStatusCondition(s.workload(room, "reserved").Status.Conditions, kueue.WorkloadEvicted) != nil {
		s.Error("losing a reservation is no eviction")
	}
}

// deletedFlavor: it stays while a ClusterQueue references it, and the queue stays active.
func (s *seen) deletedFlavor() {
	const room = "deleted-flavor"
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "deleted-flavor-b"}}
	s.create(flavor)
	s.room(room, "1", func(q *kueue.ClusterQueueSpec) { q.ResourceGroups[0].Flavors[0].Name = "deleted-flavor-b" })
	s.remove(flavor)
	s.create(work(room, "w", 1, "cpu=1"))
	s.runs(room, "w")
	s.active(room, kueue.ReasonReady)
	if f := read(s, "", "deleted-flavor-b", &kueue.ResourceFlavor{}); f.DeletionTimestamp == nil {
		s.Error("it is not being deleted")
	}
	change(s, s.clusterQueue(room), func(q *kueue.ClusterQueue) { q.Spec.ResourceGroups[0].Flavors[0].Name = "f" })
	s.gone(flavor)
	s.active(room, kueue.ReasonReady)
}

// namespaceSelector: only labels of the namespace, or another selector, admit the Workload; it does not block a StrictFIFO queue.
func (s *seen) namespaceSelector() {
	const room = "selector"
	s.space(room+"-other", map[string]string{"team": "red"})
	s.room(room, "1", func(q *kueue.ClusterQueueSpec) {
		q.QueueingStrategy = kueue.StrictFIFO
		q.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"red", "blue"}},
		}}
	})
	s.create(localQueue(room+"-other", "lq", room))
	s.create(work(room, "out", 1, "cpu=0", func(w *kueue.Workload) { w.Spec.Priority = new(int32(9)) }))
	s.waits(room, "out", kueue.ReasonMisconfigured, "namespaceSelector")
	s.create(work(room+"-other", "in", 1, "cpu=1"))
	s.runs(room+"-other", "in")
	change(s, read(s, "", room, &corev1.Namespace{}), func(n *corev1.Namespace) { n.Labels["team"] = "blue" })
	s.runs(room, "out")
	change(s, s.clusterQueue(room), func(q *kueue.ClusterQueue) { q.Spec.NamespaceSelector = nil })
	s.create(work(room+"-other", "none", 1, "cpu=0"))
	s.waits(room+"-other", "none", kueue.ReasonMisconfigured, "namespaceSelector")
	bad := s.clusterQueue(room)
	bad.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "not valid!"}}
	if err := s.c.Update(s.Context(), bad); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.namespaceSelector") {
		s.Errorf("a selector that does not parse: %v", err)
	}
}

// held: no Workload is admitted while a ClusterQueue is held; only HoldAndDrain evicts running ones. Its status stays current.
func (s *seen) held() {
	const room = "held"
	s.room(room, "1")
	s.create(work(room, "runs", 1, "cpu=1"))
	s.runs(room, "runs")
	s.create(work(room, "a", 1, "cpu=1", func(w *kueue.Workload) { w.Spec.Priority = new(int32(1)) }), work(room, "b", 1, "cpu=1"))
	cq := s.clusterQueue(room)
	change(s, cq, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
	s.active(room, kueue.ReasonStopped)
	s.waits(room, "a", kueue.ReasonSuspended)
	s.counts(room, 2, 1, 1)
	wait.Until(s.T, "the ClusterQueue counts who waits", func() error {
		if st := s.clusterQueue(room).Status; st.PendingWorkloads != 2 || st.AdmittedWorkloads != 1 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if apimeta.FindStatusCondition(s.workload(room, "runs").Status.Conditions, kueue.WorkloadEvicted) != nil {
		s.Error("Hold evicted it")
	}
	change(s, cq, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHoldAndDrain })
	wait.Until(s.T, "it is drained", func() error {
		return is(s.workload(room, "runs").Status.Conditions, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.ReasonClusterQueueStopped)
	})
	s.finish(room, "runs")
	s.keepsWaiting(room, "a", kueue.ReasonSuspended)
	change(s, cq, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	s.active(room, kueue.ReasonReady)
	s.runs(room, "a")
}

// heldLocal: its Workloads leave the queue of the ClusterQueue; others continue.
func (s *seen) heldLocal() {
	const room = "held-local"
	s.room(room, "1")
	s.create(localQueue(room, "other", room), work(room, "runs", 1, "cpu=1"))
	s.runs(room, "runs")
	s.create(work(room, "waits", 1, "cpu=1", func(w *kueue.Workload) { w.Spec.Priority = new(int32(9)) }))
	s.counts(room, 1, 1, 1)
	lq := s.localQueue(room)
	change(s, lq, func(q *kueue.LocalQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
	s.localActive(room, kueue.ReasonStopped)
	s.waits(room, "waits", kueue.ReasonSuspended)
	s.counts(room, 0, 1, 1)
	wait.Until(s.T, "nobody waits in the ClusterQueue", func() error {
		if n := s.clusterQueue(room).Status.PendingWorkloads; n != 0 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	s.finish(room, "runs")
	s.create(work(room, "passes", 1, "cpu=1", func(w *kueue.Workload) { w.Spec.QueueName = "other" }))
	s.runs(room, "passes")
	change(s, lq, func(q *kueue.LocalQueue) { q.Spec.StopPolicy = kueue.StopPolicyHoldAndDrain })
	s.runs(room, "passes")
	change(s, lq, func(q *kueue.LocalQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	s.localActive(room, kueue.ReasonReady)
	s.counts(room, 1, 0, 0)
	s.finish(room, "passes")
	s.runs(room, "waits")
}

// share waits for the weightedShare of a ClusterQueue or a Cohort.
func (s *seen) share(o client.Object, want int64) {
	s.Helper()
	wait.Until(s.T, fmt.Sprintf("%T %s has the share %d", o, o.GetName(), want), func() error {
		if err := s.c.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if fs := fairSharingOf(o); fs == nil || fs.WeightedShare != want {
			return fmt.Errorf("fair sharing %+v", fs)
		}
		return nil
	})
}

func fairSharingOf(o client.Object) *kueue.FairSharingStatus {
	if c, ok := o.(*kueue.Cohort); ok {
		return c.Status.FairSharing
	}
	return o.(*kueue.ClusterQueue).Status.FairSharing
}

// shares: of queues and cohorts, after changes of usage, weights and quotas.
func (s *seen) shares() {
	root := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "shares-root"}}
	org := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "shares-org"}, Spec: kueue.CohortSpec{ParentName: "shares-root"}}
	s.create(root, org)
	s.share(root, 0)
	s.share(org, 0)
	s.room("shares-ml", "20", func(q *kueue.ClusterQueueSpec) { q.CohortName = "shares-org" })
	s.room("shares-lender", "80", func(q *kueue.ClusterQueueSpec) { q.CohortName = "shares-root" })
	ml, lender := clusterQueue("shares-ml", "0"), clusterQueue("shares-lender", "0")
	s.create(work("shares-ml", "w", 60, "cpu=1"))
	s.runs("shares-ml", "w")
	s.share(ml, 400) // 40 of 100
	s.share(org, 400)
	s.share(root, 0)
	s.share(lender, 0)
	change(s, ml, func(q *kueue.ClusterQueue) {
		q.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse("2"))}
	})
	s.share(ml, 200)
	change(s, org, func(c *kueue.Cohort) { c.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse("3"))} })
	s.share(org, 134) // rounded up
	change(s, ml, func(q *kueue.ClusterQueue) {
		q.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse("0"))}
	})
	s.share(ml, math.MaxInt64)
	change(s, lender, func(q *kueue.ClusterQueue) {
		q.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("180")
	})
	s.share(org, 67) // 40 of 200, by 3: the quota of another queue counts
	s.finish("shares-ml", "w")
	s.share(ml, 0)
	s.share(org, 0)
}

// noShares: without fair sharing the status has no share, also no earlier one.
func (s *seen) noShares() {
	for _, o := range []client.Object{&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "shares-org"}}, clusterQueue("shares-ml", "0")} {
		wait.Until(s.T, fmt.Sprintf("%T %s has no share", o, o.GetName()), func() error {
			if err := s.c.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			if fs := fairSharingOf(o); fs != nil {
				return fmt.Errorf("share %+v", fs)
			}
			return nil
		})
	}
}

// coalesced: at any rate of Workloads, the status of their queues is written once a second, and is correct in the end.
func (s *seen) coalesced() {
	const room = "coalesced"
	s.room(room, "100")
	c, err := client.NewWithWatch(s.admin, client.Options{Scheme: install.Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	var mu sync.Mutex
	writes := map[string]int{}
	var counting sync.WaitGroup
	var watched []watch.Interface
	time.Sleep(1200 * time.Millisecond) // remaining writes of the beginning
	for kind, list := range map[string]client.ObjectList{"ClusterQueue": &kueue.ClusterQueueList{}, "LocalQueue": &kueue.LocalQueueList{}} {
		w, err := c.Watch(s.Context(), list)
		if err != nil {
			s.Fatal(err)
		}
		watched = append(watched, w)
		writes[kind] = 0
		counting.Go(func() {
			for e := range w.ResultChan() {
				o, ok := e.Object.(client.Object)
				if ok && e.Type == watch.Modified && (o.GetName() == room || o.GetNamespace() == room) {
					mu.Lock()
					writes[kind]++
					mu.Unlock()
				}
			}
		})
	}
	start := time.Now()
	const n = 90
	for i := range n {
		s.create(work(room, fmt.Sprint("w", i), 1, "cpu=1"))
		if i%2 == 1 {
			s.finish(room, fmt.Sprint("w", i-1))
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.counts(room, 0, n/2, n/2)
	s.usage(room, fmt.Sprintf("f[cpu %d 0]", n/2), fmt.Sprintf("f[cpu %d 0]", n/2))
	took := time.Since(start)
	for _, w := range watched {
		w.Stop()
	}
	counting.Wait()
	most := int(took/time.Second) + 2 // one more at each end
	for kind, count := range writes {
		if count == 0 || count > most {
			s.Errorf("%d writes of the status of the %s in %s, want 1 to %d", count, kind, took, most)
		}
	}
}

// quotaFromNodes: a Workload is admitted on nodes that come, and stays admitted when they go; only new ones wait.
func (s *seen) quotaFromNodes() {
	const room = "of-nodes"
	label := map[string]string{"nodes-of": room}
	s.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: room}, Spec: kueue.ResourceFlavorSpec{NodeLabels: label}})
	cq := clusterQueue(room, "100")
	cq.Annotations = map[string]string{nodequota.Annotation: "50%"}
	cq.Spec.ResourceGroups[0].Flavors[0].Name = room
	refused := cq.DeepCopy()
	refused.Annotations[nodequota.Annotation] = "half"
	if err := s.c.Create(s.Context(), refused); err == nil || !strings.Contains(err.Error(), nodequota.Annotation) {
		s.Errorf("half is refused by name: %v", err)
	}
	s.space(room, nil)
	s.create(cq, localQueue(room, "lq", room))
	wait.Until(s.T, "the quota is that of no node", wait.Is(func() bool {
		return s.clusterQueue(room).Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.IsZero()
	}))
	s.create(work(room, "first", 1, "cpu=3"))
	s.waits(room, "first", kueue.ReasonExceedsMaxQuota)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: room, Labels: label}}
	s.create(node)
	changeStatus(s, node, func(n *corev1.Node) {
		n.Status.Allocatable = amounts("cpu=8")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	})
	s.runs(room, "first")
	s.remove(node)
	wait.Until(s.T, "the node is gone", wait.Is(func() bool {
		return s.clusterQueue(room).Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.IsZero()
	}))
	s.create(work(room, "second", 1, "cpu=1"))
	s.waits(room, "second", kueue.ReasonExceedsMaxQuota)
	s.runs(room, "first")
}
