package compat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// world is a corner of the cluster for one test: a namespace, and cluster-scoped objects with its name before theirs.
type world struct {
	t    *testing.T
	c    client.WithWatch
	name string
	made int // Workloads without a name of their own
}

var worlds atomic.Int64

// newWorld makes a namespace in the shared cluster. Its remaining objects are deleted at the end, so that later managers need not handle
// them.
func newWorld(t *testing.T) *world {
	t.Helper()
	return cluster(t).world(t)
}

func (s *site) world(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, c: connect(t, s.admin), name: fmt.Sprintf("w%d", worlds.Add(1))}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}})
	t.Cleanup(w.clear)
	return w
}

// clear deletes the queues and the Workloads of the world.
func (w *world) clear() {
	ctx := context.Background()
	var list kueue.WorkloadList
	if err := w.c.List(ctx, &list, client.InNamespace(w.name)); err != nil {
		return // the API server ended, and everything with it
	}
	for i := range list.Items {
		wl := &list.Items[i]
		wl.Finalizers, wl.ResourceVersion = nil, ""
		_ = w.c.Delete(ctx, wl)
		_ = w.c.Patch(ctx, wl, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	}
	_ = w.c.DeleteAllOf(ctx, &kueue.LocalQueue{}, client.InNamespace(w.name))
	_ = w.c.DeleteAllOf(ctx, &kueue.ClusterQueue{}, client.MatchingLabels{"world": w.name})
	_ = w.c.DeleteAllOf(ctx, &kueue.Cohort{}, client.MatchingLabels{"world": w.name})
}

func (w *world) ctx() context.Context { return context.Background() }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// denied demands that the API server refuses with a status code, and says why in these words.
func (w *world) denied(err error, code int32, words ...string) {
	w.t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code != code {
		w.t.Errorf("answered %v, want status %d", err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			w.t.Errorf("refused with %q, which does not say %q", err, word)
		}
	}
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.c.Create(w.ctx(), o); err != nil {
			w.t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

// own is the name of a cluster-scoped object of this world.
func (w *world) own(name string) string { return w.name + "-" + name }

func (w *world) flavor(name string, tune ...func(*kueue.ResourceFlavor)) *kueue.ResourceFlavor {
	w.t.Helper()
	f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.own(name), Labels: map[string]string{"world": w.name}}}
	for _, set := range tune {
		set(f)
	}
	w.create(f)
	return f
}

type queueSetting func(*kueue.ClusterQueue)

func in(cohort string) queueSetting {
	return func(q *kueue.ClusterQueue) { q.Spec.CohortName = kueue.CohortReference(cohort) }
}

func preempting(within kueue.PreemptionPolicy, reclaim kueue.ReclaimPolicy) queueSetting {
	return func(q *kueue.ClusterQueue) {
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within, ReclaimWithinCohort: reclaim}
	}
}

func checked(rules ...kueue.AdmissionCheckStrategyRule) queueSetting {
	return func(q *kueue.ClusterQueue) {
		q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: rules}
	}
}

// every is the rule of a check that holds for all flavors.
func every(names ...string) (rules []kueue.AdmissionCheckStrategyRule) {
	for _, n := range names {
		rules = append(rules, kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(n)})
	}
	return rules
}

// quota of cpu for a list of "flavor=amount".
func quota(flavors ...string) queueSetting {
	return func(q *kueue.ClusterQueue) {
		group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu"}}
		for _, f := range flavors {
			name, amount, _ := strings.Cut(f, "=")
			group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
				Name:      kueue.ResourceFlavorReference(name),
				Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse(amount)}},
			})
		}
		q.Spec.ResourceGroups = append(q.Spec.ResourceGroups, group)
	}
}

// queue makes a ClusterQueue, and a LocalQueue of the same short name that points to it. It has some cpu of the flavor "f", which is made
// at its first use, and the given settings.
func (w *world) queue(name, cpu string, settings ...queueSetting) *kueue.ClusterQueue {
	w.t.Helper()
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: w.own(name), Labels: map[string]string{"world": w.name}}}
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	if cpu != "" {
		f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.own("f")}}
		if err := w.c.Create(w.ctx(), f); client.IgnoreAlreadyExists(err) != nil {
			w.t.Fatal(err)
		}
		quota(f.Name + "=" + cpu)(q)
	}
	for _, set := range settings {
		set(q)
	}
	w.create(q, w.localQueue(name, q.Name))
	return q
}

func (w *world) localQueue(name, clusterQueue string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)},
	}
}

type workloadSetting func(*kueue.Workload)

func priority(p int32) workloadSetting {
	return func(wl *kueue.Workload) { wl.Spec.Priority = &p }
}

func count(n int32) workloadSetting {
	return func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = n }
}

// workload makes one with a pod that requests some cpu. It is made by hand: no job stops or releases it.
func (w *world) workload(name, queue, cpu string, settings ...workloadSetting) *kueue.Workload {
	w.t.Helper()
	wl := workloadOf(w.name, name, queue, cpu, settings...)
	w.create(wl)
	return wl
}

func workloadOf(namespace, name, queue, cpu string, settings ...workloadSetting) *kueue.Workload {
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), PodSets: []kueue.PodSet{{
			Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: podSpec("cpu", cpu)},
		}}},
	}
	for _, set := range settings {
		set(wl)
	}
	return wl
}

// podSpec wants amounts of resources, given in pairs.
func podSpec(pairs ...string) corev1.PodSpec {
	requests := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		requests[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "c", Image: "any", Resources: corev1.ResourceRequirements{Requests: requests},
	}}}
}

// read reads an object anew.
func read[T any, P interface {
	*T
	client.Object
}](w *world, o P) P {
	w.t.Helper()
	out := P(new(T))
	if err := w.c.Get(w.ctx(), client.ObjectKeyFromObject(o), out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// edit changes an object; conflicts with controllers are tried again.
func edit[T any, P interface {
	*T
	client.Object
}](w *world, o P, change func(P)) {
	w.t.Helper()
	w.must(tryEdit(w, o, change))
}

// change edits a ClusterQueue, and waits until the manager knows: Workloads reach it by another watch, which may be faster.
func (w *world) change(q *kueue.ClusterQueue, change func(*kueue.ClusterQueue)) {
	w.t.Helper()
	edit(w, q, change)
	wait.Until(w.t, "the manager knows of the change of "+q.Name, func() error {
		now := read(w, q)
		active := apimeta.FindStatusCondition(now.Status.Conditions, kueue.ClusterQueueActive)
		if active == nil || active.ObservedGeneration != now.Generation {
			return fmt.Errorf("generation %d, %+v", now.Generation, active)
		}
		return nil
	})
}

func tryEdit[T any, P interface {
	*T
	client.Object
}](w *world, o P, change func(P)) error {
	for {
		now := P(new(T))
		if err := w.c.Get(w.ctx(), client.ObjectKeyFromObject(o), now); err != nil {
			return err
		}
		change(now)
		if err := w.c.Update(w.ctx(), now); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// editStatus changes a status as another client does: by Update.
func (w *world) editStatus(wl *kueue.Workload, change func(*kueue.WorkloadStatus)) {
	w.t.Helper()
	w.must(w.tryEditStatus(wl, change))
}

func (w *world) tryEditStatus(wl *kueue.Workload, change func(*kueue.WorkloadStatus)) error {
	for {
		var now kueue.Workload
		if err := w.c.Get(w.ctx(), client.ObjectKeyFromObject(wl), &now); err != nil {
			return err
		}
		change(&now.Status)
		if err := w.c.Status().Update(w.ctx(), &now, client.FieldOwner("a-client")); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// conditions are "Type=Status/Reason", sorted.
func conditions(list []metav1.Condition) []string {
	out := make([]string, 0, len(list))
	for _, c := range list {
		out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	slices.Sort(out)
	return out
}

// lacks returns the conditions that an object does not have; one with a "-" before it must be absent.
func lacks(have []metav1.Condition, want ...string) error {
	got := conditions(have)
	for _, c := range want {
		absent, negative := strings.CutPrefix(c, "-")
		there := slices.ContainsFunc(got, func(g string) bool {
			return g == absent || strings.HasPrefix(g, absent+"=") || strings.HasPrefix(g, absent+"/")
		})
		if there == negative {
			return fmt.Errorf("want %s, has %v", c, got)
		}
	}
	return nil
}

// until waits for conditions of a Workload, and returns it as it is then.
func (w *world) until(wl *kueue.Workload, want ...string) *kueue.Workload {
	w.t.Helper()
	var got *kueue.Workload
	wait.Until(w.t, wl.Name+" has "+strings.Join(want, ", "), func() error {
		got = read(w, wl)
		return lacks(got.Status.Conditions, want...)
	})
	return got
}

// keeps demands that a Workload has the conditions for a while.
func (w *world) keeps(wl *kueue.Workload, d time.Duration, want ...string) {
	w.t.Helper()
	wait.Stays(w.t, d, wl.Name+" has "+strings.Join(want, ", "), func() error { return lacks(read(w, wl).Status.Conditions, want...) })
}

const (
	admitted = "Admitted=True/Admitted"
	reserved = "QuotaReserved=True/QuotaReserved"
)

func (w *world) admits(workloads ...*kueue.Workload) {
	w.t.Helper()
	for _, wl := range workloads {
		w.until(wl, admitted)
	}
}

// waits demands that Workloads come to wait for a reason.
func (w *world) waits(reason string, workloads ...*kueue.Workload) {
	w.t.Helper()
	for _, wl := range workloads {
		w.until(wl, "QuotaReserved=False/"+reason)
	}
}

// release acts as the owner of the pods when the last one has ended.
func (w *world) release(wl *kueue.Workload) {
	w.t.Helper()
	w.must(w.tryRelease(wl))
}

func (w *world) tryRelease(wl *kueue.Workload) error {
	return w.transition(wl, func(now *kueue.Workload) bool {
		return lifecycle.Machine{}.Release(now, false, metav1.Now())
	})
}

// finish acts as the owner of the pods when they have succeeded.
func (w *world) finish(wl *kueue.Workload) {
	w.t.Helper()
	w.must(w.tryFinish(wl))
}

func (w *world) tryFinish(wl *kueue.Workload) error {
	return w.transition(wl, func(now *kueue.Workload) bool {
		return lifecycle.Machine{}.Finish(now, kueue.ReasonSucceeded, "done", metav1.Now())
	})
}

// podsReady acts as the owner of the pods when they become ready or unready.
func (w *world) podsReady(wl *kueue.Workload, ready bool) {
	w.t.Helper()
	w.must(w.transition(wl, func(now *kueue.Workload) bool {
		return lifecycle.Machine{}.PodsReady(now, ready, metav1.Now())
	}))
}

// transition writes a status as the integrations of jobs do.
func (w *world) transition(wl *kueue.Workload, change func(*kueue.Workload) bool) error {
	status := reconcile.NewWorkloadStatus(w.c)
	for {
		var now kueue.Workload
		if err := w.c.Get(w.ctx(), client.ObjectKeyFromObject(wl), &now); err != nil {
			return err
		}
		if _, _, err := status.Transition(w.ctx(), &now, change); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// activate sets spec.active.
func (w *world) activate(wl *kueue.Workload, active bool) {
	w.t.Helper()
	edit(w, wl, func(wl *kueue.Workload) { wl.Spec.Active = &active })
}

// check makes an AdmissionCheck whose controller is the test.
func (w *world) check(name string) string {
	w.t.Helper()
	return w.checkOf(name, "example.com/test")
}

// checkOf makes an AdmissionCheck of a controller, for which the test answers.
func (w *world) checkOf(name, controller string) string {
	w.t.Helper()
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.own(name)}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}
	w.create(ac)
	active := []byte(`{"status":{"conditions":[{"type":"Active","status":"True","reason":"Active","message":"the test makes it","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	w.must(w.c.Status().Patch(w.ctx(), ac, client.RawPatch("application/merge-patch+json", active)))
	return ac.Name
}

// answer gives a check of a Workload a state, as its controller does.
func (w *world) answer(wl *kueue.Workload, check string, state kueue.CheckState, tune ...func(*kueue.AdmissionCheckState)) {
	w.t.Helper()
	wait.Until(w.t, "the workload lists "+check, func() error {
		found := errors.New("it does not")
		w.editStatus(wl, func(s *kueue.WorkloadStatus) {
			for i := range s.AdmissionChecks {
				if c := &s.AdmissionChecks[i]; string(c.Name) == check {
					found = nil
					if c.State != state {
						c.LastTransitionTime = metav1.Now()
					}
					c.State, c.Message = state, "said so"
					for _, set := range tune {
						set(c)
					}
				}
			}
		})
		return found
	})
}

// checks are "name=State", and the retries if there were any, without the world's name.
func (w *world) checks(wl *kueue.Workload) []string {
	out := []string{}
	for _, c := range wl.Status.AdmissionChecks {
		text := strings.TrimPrefix(string(c.Name), w.name+"-") + "=" + string(c.State)
		if c.RetryCount != nil {
			text += fmt.Sprintf(" retry %d", *c.RetryCount)
		}
		out = append(out, text)
	}
	return out
}

// events are the reasons of the events about an object, one for each Event object, sorted.
func (w *world) events(o client.Object) []string {
	w.t.Helper()
	var out []string
	for _, e := range w.eventsOf(o, "") {
		if e.Action != e.Reason {
			w.t.Errorf("event %s has action %s", e.Reason, e.Action)
		}
		out = append(out, e.Type+" "+e.Reason)
	}
	slices.Sort(out)
	return out
}

// eventsOf are the Event objects about an object with a reason, "" for any.
func (w *world) eventsOf(o client.Object, reason string) []eventsv1.Event {
	w.t.Helper()
	var list eventsv1.EventList
	w.must(w.c.List(w.ctx(), &list, client.InNamespace(w.name)))
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.UID != o.GetUID() || reason != "" && e.Reason != reason
	})
}

// tells waits until there are events about an object, among others.
func (w *world) tells(o client.Object, want ...string) {
	w.t.Helper()
	wait.Until(w.t, "there are events "+strings.Join(want, ", "), func() error {
		got := w.events(o)
		for _, e := range want {
			if !slices.Contains(got, e) {
				return fmt.Errorf("no %q among %q", e, got)
			}
		}
		return nil
	})
}

// evictions are "Reason/Cause count" of schedulingStats.
func evictions(wl *kueue.Workload) []string {
	out := []string{}
	if s := wl.Status.SchedulingStats; s != nil {
		for _, e := range s.Evictions {
			out = append(out, fmt.Sprintf("%s/%s %d", e.Reason, e.UnderlyingCause, e.Count))
		}
	}
	slices.Sort(out)
	return out
}

// usage waits until a ClusterQueue shows so much cpu reserved and, with a second value, so much in use by admitted ones.
func (w *world) usage(q *kueue.ClusterQueue, want ...string) {
	w.t.Helper()
	wait.Until(w.t, "usage of "+q.Name, func() error {
		now := &kueue.ClusterQueue{}
		if err := w.c.Get(w.ctx(), client.ObjectKeyFromObject(q), now); err != nil {
			return err // the API server may be restarted
		}
		got := []string{total(now.Status.FlavorsReservation), total(now.Status.FlavorsUsage)}
		if !slices.Equal(got[:len(want)], want) {
			return fmt.Errorf("reserved and used %v, want %v", got, want)
		}
		return nil
	})
}

// total of the cpu over all flavors.
func total(flavors []kueue.FlavorUsage) string {
	sum := resource.Quantity{}
	for _, f := range flavors {
		for _, r := range f.Resources {
			if r.Name == "cpu" {
				sum.Add(r.Total)
			}
		}
	}
	return sum.String()
}

// history records the conditions of a Workload at each of its versions, the first one too: it has to run before
// the Workload is created, because the manager can be faster than a watch.
func (w *world) history(name string) (stop func() [][]string) {
	w.t.Helper()
	watch, err := w.c.Watch(w.ctx(), &kueue.WorkloadList{}, client.InNamespace(w.name))
	w.must(err)
	seen, done := [][]string{}, make(chan struct{})
	go func() {
		defer close(done)
		for e := range watch.ResultChan() {
			if o, ok := e.Object.(*kueue.Workload); ok && o.Name == name {
				seen = append(seen, conditions(o.Status.Conditions))
			}
		}
	}()
	return func() [][]string {
		watch.Stop()
		<-done
		return seen
	}
}

// label sets a label of the world's namespace, or removes it with "".
func (w *world) label(name, value string) {
	w.t.Helper()
	edit(w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, func(ns *corev1.Namespace) {
		ns.Labels[name] = value
		if value == "" {
			delete(ns.Labels, name)
		}
	})
}

func key(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

func cpus(n string) resource.Quantity { return resource.MustParse(n) }

func equal[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

func firstError(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// errStill is nil for a deleted object.
func errStill(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it is there")
	}
	return err
}

// condition makes one, as a client does.
func condition(kind, status, reason string) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: "a client says so", LastTransitionTime: metav1.Now(),
	}
}
