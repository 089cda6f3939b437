package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	plan "github.com/berth-project/berth/internal/workload/plan/variants"
)

// TestSchedulesOfVariants lets the controller of variants run for two jobs that compete for three flavors, beside the engine, the writers of
// its decisions, admission checks, the jobs, and users, in any order: also between two writes of one reconcile, which then conflict. Caches lag,
// answers to writes are lost, and managers end between two writes. Never are two variants of a job admitted, never is more of a
// flavor reserved than there is, nor counted twice by the engine, and pods run on what their variant holds. At last
// each job runs, with TryPreferredFlavors on the best flavors.
func TestSchedulesOfVariants(t *testing.T) {
	first, n := embeddedtest.Seed(t, 0), uint64(60)
	if embeddedtest.Long() {
		n = 5000
	}
	for seed := first; seed < first+n; seed++ {
		for _, mode := range []kueue.ConcurrentAdmissionMode{kueue.TryPreferredFlavors, kueue.RetainFirstAdmission} {
			t.Run(fmt.Sprintf("seed %d %s", seed, mode), func(t *testing.T) {
				s := newVariantSchedule(t, seed, mode)
				for range 250 {
					s.act()
				}
				s.calm()
			})
			if t.Failed() {
				t.Fatalf("repeat it with -seed %d", seed)
			}
		}
	}
}

// TestScheduleOfAnOutdatedAdmission deactivates a variant and activates it again before its admission is written. The engine, which knows of
// both, keeps the quota until the writer reports that it did not write; then it decides about the new spec.
func TestScheduleOfAnOutdatedAdmission(t *testing.T) {
	s := newVariantSchedule(t, 1, kueue.TryPreferredFlavors)
	ofA := map[string]string{}
	for _, job := range []string{"job0", "job1"} {
		if err := s.reconcileAlone(job); err != nil {
			t.Fatal(err)
		}
		for _, v := range s.variantsOf(job) {
			if plan.FlavorOf(v) == "a" {
				ofA[job] = v.Name
			} else {
				s.setActive(v.Name, false)
			}
		}
	}
	s.showAll()
	s.decide()
	first, second := s.live[ofA["job0"]], s.live[ofA["job1"]]
	if _, granted := s.grants[first.UID]; !granted || len(s.grants) > 1 {
		t.Fatalf("%d admissions, want one of %s", len(s.grants), first.Name)
	}
	for _, active := range []bool{false, true} {
		s.setActive(first.Name, active)
		s.feed(first.Name)
		s.decide()
		if len(s.grants) > 1 {
			s.fail("%s gets the quota of %s, whose admission is being written", second.Name, first.Name)
		}
	}
	for len(s.grants) > 0 {
		s.writeGrant(smallest(s.grants))
		s.check()
	}
	if lifecycle.IsReserved(s.live[first.Name]) {
		s.fail("an admission was written for another spec than was decided about")
	}
	s.decide()
	for len(s.grants) > 0 {
		s.writeGrant(smallest(s.grants))
		s.check()
	}
	if !lifecycle.IsReserved(s.live[first.Name]) || lifecycle.IsReserved(s.live[second.Name]) {
		s.fail("%s does not hold the quota", first.Name)
	}
}

const divided = 2 // jobs

var rivals = []kueue.ResourceFlavorReference{"a", "b", "c"}

// variantSchedule is an API server in memory, and who works with it.
type variantSchedule struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	machine lifecycle.Machine
	log     []string

	live          map[string]*kueue.Workload // by name
	version, uids int
	queue         *kueue.ClusterQueue
	localQueue    *kueue.LocalQueue

	shown   map[string]*kueue.Workload // what the cache of the controller has
	divider *Divider
	left    int  // writes until the manager ends
	inside  bool // a reconcile is under way

	engine *state.State
	fed    map[string]*kueue.Workload // what the engine knows
	grants map[types.UID]grant        // not written yet
	evicts map[types.UID]string       // the reasons of evictions that are not written

	pods map[string]kueue.ResourceFlavorReference // on which the pods of a job run
}

// grant is an admission, and the version of the Workload on which it was written without an answer, "" for none.
type grant struct {
	state.Grant
	tried string
}

func newVariantSchedule(t *testing.T, seed uint64, mode kueue.ConcurrentAdmissionMode) *variantSchedule {
	s := &variantSchedule{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_800_000_000, 0), live: map[string]*kueue.Workload{}, left: -1,
		pods: map[string]kueue.ResourceFlavorReference{}, queue: &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}},
		localQueue: &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}},
	}
	s.queue.Spec.NamespaceSelector = &metav1.LabelSelector{}
	s.queue.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: mode}}
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu"}}
	for _, name := range rivals {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
			Name: name, Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("1")}},
		})
	}
	s.queue.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	for i := range divided {
		pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}}}
		s.store(&kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("job", i)},
			Spec:       kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: pod}}}},
		})
	}
	s.restart()
	return s
}

// restart begins a manager, which reads all that there is. What the one before had decided and not written is lost.
func (s *variantSchedule) restart() {
	s.left = -1
	s.shown, s.fed = maps.Clone(s.live), map[string]*kueue.Workload{}
	s.grants, s.evicts = map[types.UID]grant{}, map[types.UID]string{}
	cached := &cachedClient{s: s}
	s.divider = &Divider{
		Client: cached, Reader: liveReader{s: s}, Status: reconcile.NewWorkloadStatus(cached),
		Events: reconcile.NewEvents(events.NewFakeRecorder(1<<16), nil), Plan: plan.Config{Machine: s.machine, On: true}, Now: func() time.Time { return s.now },
	}
	core := cycle.Defaults()
	core.EditWindow = 0
	s.engine = state.New(state.Options{Options: core})
	s.engine.Apply(state.SetNamespace{Name: "ns"})
	for _, name := range rivals {
		s.engine.Apply(state.SetFlavor(flavor.Flavor{Name: string(name)}))
	}
	def, err := convert.Queue(s.queue, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	convert.Divide(&def, s.queue, true)
	s.engine.Apply(state.SetQueue(def))
	s.engine.Apply(state.SetLocalQueue(convert.LocalQueue(s.localQueue)))
	for _, name := range s.names() {
		s.feed(name)
	}
}

func (s *variantSchedule) names() []string {
	all := maps.Clone(s.live)
	maps.Copy(all, s.shown)
	maps.Copy(all, s.fed)
	return slices.Sorted(maps.Keys(all))
}

// store makes a Workload live as of a new version.
func (s *variantSchedule) store(w *kueue.Workload) *kueue.Workload {
	w = w.DeepCopy()
	old := s.live[w.Name]
	if old == nil {
		s.uids++
		w.UID, w.CreationTimestamp, w.Generation = types.UID(fmt.Sprint("uid-", s.uids)), metav1.NewTime(s.now), 1
	} else if !equality.Semantic.DeepEqual(old.Spec, w.Spec) {
		w.Generation = old.Generation + 1
	}
	s.version++
	w.ResourceVersion = strconv.Itoa(s.version)
	s.live[w.Name] = w
	return w
}

// change changes the live Workload of a name, as another client does.
func (s *variantSchedule) change(name string, change func(*kueue.Workload) bool) bool {
	next := s.live[name].DeepCopy()
	if !change(next) {
		return false
	}
	s.store(next)
	return true
}

// setActive activates or deactivates a Workload, as a user does.
func (s *variantSchedule) setActive(name string, active bool) {
	s.change(name, func(w *kueue.Workload) bool {
		was := lifecycle.IsActive(w)
		w.Spec.Active = new(active)
		return was != active
	})
}

var requests = convert.Requests{Variants: true}

// feed tells the engine the present version of a Workload.
func (s *variantSchedule) feed(name string) {
	was, is := s.fed[name], s.live[name]
	if was != nil && (is == nil || is.UID != was.UID) {
		s.engine.Apply(state.DeleteWorkload(string(was.UID)))
		delete(s.fed, name)
	}
	if is != nil && s.fed[name] != is {
		s.fed[name] = is
		s.engine.Apply(state.SetWorkload(convert.Workload(is, requests)))
	}
}

// show makes the present version of a Workload visible in the cache of the controller.
func (s *variantSchedule) show(name string) {
	if is := s.live[name]; is != nil {
		s.shown[name] = is
	} else {
		delete(s.shown, name)
	}
}

// decide runs the engine.
func (s *variantSchedule) decide() {
	for _, d := range s.engine.Step(workload.Instant(s.now.UnixNano()), 1000).Decisions {
		uid := types.UID(d.Workload.UID)
		if d.Admitted != nil {
			s.grants[uid] = grant{Grant: s.engine.Grant(&d)}
		}
		for _, v := range d.Evict {
			s.evicts[types.UID(v.Workload.UID)] = v.Reason
		}
	}
}

// of returns the name of the live Workload of a UID, "" for none.
func (s *variantSchedule) of(uid types.UID) string {
	for name, w := range s.live {
		if w.UID == uid {
			return name
		}
	}
	return ""
}

// writeGrant writes an admission, as package admit does: it fails if the spec has changed since the decision. If the answer is lost it is
// written again, while the Workload has the same version, until it is known what came of it.
func (s *variantSchedule) writeGrant(uid types.UID) {
	decided, name := s.grants[uid], s.of(uid)
	delete(s.grants, uid)
	failed := state.AdmissionFailed{UID: string(uid), Version: decided.Version}
	w := s.live[name]
	switch {
	case w == nil:
		s.engine.Apply(failed)
		return
	case lifecycle.IsReserved(w):
	case !lifecycle.MayQueue(w, false), decided.Generation != w.Generation, decided.tried != "" && decided.tried != w.ResourceVersion:
		s.engine.Apply(failed)
		return
	default:
		answer := s.r.IntN(8) // 0: the write is lost, 1: its answer
		if answer < 2 {
			decided.tried = w.ResourceVersion
			s.grants[uid] = decided
		}
		if answer == 0 {
			return
		}
		s.change(name, func(w *kueue.Workload) bool {
			var checks []kueue.AdmissionCheckReference
			if s.r.IntN(2) == 0 {
				checks = append(checks, "check")
			}
			changed := s.machine.Reserve(w, convert.Admission(decided.Grant, requests), checks, metav1.NewTime(s.now))
			if !decided.Contested {
				s.machine.AdmitVariant(w, metav1.NewTime(s.now))
			}
			return changed
		})
		if answer == 1 {
			return
		}
	}
	s.engine.Apply(state.AdmissionWritten(convert.Workload(s.live[name], requests)))
}

// writeEviction writes an eviction, as package evict does.
func (s *variantSchedule) writeEviction(uid types.UID) {
	reason, name := s.evicts[uid], s.of(uid)
	delete(s.evicts, uid)
	written := name != "" && s.r.IntN(5) > 0 && s.change(name, func(w *kueue.Workload) bool {
		return lifecycle.IsReserved(w) && s.machine.Evict(w, reason, "", "", metav1.NewTime(s.now))
	})
	if !written {
		s.engine.Apply(state.EvictionFailed(string(uid)))
	}
}

func smallest[V any](of map[types.UID]V) types.UID { return slices.Min(slices.Collect(maps.Keys(of))) }

// act lets somebody do something.
func (s *variantSchedule) act() {
	s.now = s.now.Add(time.Second)
	names := s.names()
	name := names[s.r.IntN(len(names))]
	job := fmt.Sprint("job", s.r.IntN(divided))
	what := ""
	switch n := s.r.IntN(26); {
	case n < 6 && !s.inside:
		what = "reconcile " + job
		s.reconcile(job)
	case n < 10:
		what = "show " + name
		s.show(name)
	case n < 13:
		what = "feed " + name
		s.feed(name)
	case n < 16:
		what = "engine"
		s.decide()
	case n < 18 && len(s.grants) > 0:
		what = "write an admission"
		s.writeGrant(smallest(s.grants))
	case n < 19 && len(s.evicts) > 0:
		what = "write an eviction"
		s.writeEviction(smallest(s.evicts))
	case n < 21:
		what = "pods of " + job
		s.runJob(job)
	case n < 23:
		what = "check of " + name
		s.passChecks(name)
	case n < 25:
		what = "other controllers"
		s.followOthers()
	case s.inside:
	case s.r.IntN(3) == 0:
		what = "restart"
		s.restart()
	default:
		what = s.disturb(job, name)
	}
	s.log = append(s.log, what)
	s.check()
}

// disturb is what happens seldom.
func (s *variantSchedule) disturb(job, name string) string {
	w := s.live[name]
	switch s.r.IntN(3) {
	case 0:
		s.setActive(job, !lifecycle.IsActive(s.live[job]))
		return "activity of " + job
	case 1:
		if w != nil && lifecycle.VariantOf(w) != "" && lifecycle.IsReserved(w) {
			s.change(name, func(w *kueue.Workload) bool { return s.machine.Preempt(w, "InClusterQueue", "", metav1.NewTime(s.now)) })
		}
		return "preemption of " + name
	}
	if w != nil && lifecycle.VariantOf(w) != "" && len(s.pods) == 0 {
		delete(s.live, name)
	}
	return "deletion of " + name
}

// reconcile runs the controller, which may end after some writes.
func (s *variantSchedule) reconcile(job string) {
	if s.r.IntN(6) == 0 {
		s.left = s.r.IntN(3)
	}
	s.inside = true
	_ = s.reconcileAlone(job)
	s.inside = false
	if s.left == 0 {
		s.log = append(s.log, "the manager ends")
		s.restart()
	}
	s.left = -1
}

// reconcileAlone runs the controller.
func (s *variantSchedule) reconcileAlone(job string) error {
	_, err := s.divider.Reconcile(s.quiet(), ctrlreconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: job}})
	return err
}

// quiet is a context for reconciles, most of which end with a conflict.
func (s *variantSchedule) quiet() context.Context {
	return log.IntoContext(s.t.Context(), logr.Discard())
}

// runJob starts and stops pods as the parent says, and releases the quota once they have ended.
func (s *variantSchedule) runJob(job string) {
	p := s.live[job]
	switch {
	case lifecycle.IsEvicted(p) && s.pods[job] != "":
		delete(s.pods, job)
	case lifecycle.IsEvicted(p):
		s.change(job, func(p *kueue.Workload) bool { return s.machine.Release(p, false, metav1.NewTime(s.now)) })
	case lifecycle.IsAdmitted(p) && s.pods[job] == "" && plan.AsStarted(p, s.variantsOf(job)) != nil:
		s.pods[job] = p.Status.Admission.PodSetAssignments[0].Flavors["cpu"]
	}
}

func (s *variantSchedule) passChecks(name string) {
	if w := s.live[name]; w != nil && len(w.Status.AdmissionChecks) > 0 {
		s.change(name, func(w *kueue.Workload) bool {
			for i := range w.Status.AdmissionChecks {
				w.Status.AdmissionChecks[i].State = kueue.CheckStateReady
			}
			return true
		})
	}
}

// followOthers is what the other controllers of this package do with inactive Workloads.
func (s *variantSchedule) followOthers() {
	for _, name := range slices.Sorted(maps.Keys(s.live)) {
		s.change(name, func(w *kueue.Workload) bool {
			switch c := lifecycle.Condition(w, kueue.WorkloadRequeued); {
			case !lifecycle.IsActive(w):
				return s.machine.Deactivate(w, metav1.NewTime(s.now))
			case c != nil && c.Reason == kueue.ReasonDeactivated && !lifecycle.IsReserved(w):
				return s.machine.Requeue(w, kueue.ReasonReactivated, "", metav1.NewTime(s.now))
			}
			return false
		})
	}
}

// variantsOf returns the live variants of a job.
func (s *variantSchedule) variantsOf(job string) (out []*kueue.Workload) {
	for _, name := range slices.Sorted(maps.Keys(s.live)) {
		if w := s.live[name]; lifecycle.VariantOf(w) == string(s.live[job].UID) {
			out = append(out, w)
		}
	}
	return out
}

func (s *variantSchedule) fail(format string, args ...any) {
	s.t.Helper()
	var text string
	for _, name := range slices.Sorted(maps.Keys(s.live)) {
		w := s.live[name]
		text += fmt.Sprintf("%s: active %v, checks %v", name, lifecycle.IsActive(w), len(w.Status.AdmissionChecks))
		for _, c := range w.Status.Conditions {
			text += fmt.Sprintf(", %s=%s (%s)", c.Type, c.Status, c.Reason)
		}
		text += "\n"
	}
	s.t.Fatalf("%s\nlast steps: %q\npods: %v\n%s%s", fmt.Sprintf(format, args...), s.log[max(0, len(s.log)-40):], s.pods, text, s.engine.Dump())
}

// check checks what holds all the time.
func (s *variantSchedule) check() {
	reserved := map[kueue.ResourceFlavorReference]int{}
	for i := range divided {
		job := fmt.Sprint("job", i)
		admitted, holds := 0, map[kueue.ResourceFlavorReference]bool{}
		for _, v := range s.variantsOf(job) {
			if lifecycle.IsAdmitted(v) {
				admitted++
			}
			if lifecycle.IsReserved(v) && lifecycle.IsActive(v) && !lifecycle.IsFinished(v) {
				reserved[plan.FlavorOf(v)]++
			}
			if lifecycle.IsReserved(v) {
				holds[plan.FlavorOf(v)] = true
			}
		}
		if admitted > 1 {
			s.fail("%d variants of %s are admitted", admitted, job)
		}
		if on := s.pods[job]; on != "" && lifecycle.IsActive(s.live[job]) && !holds[on] { // a deactivation frees quota while pods end
			s.fail("pods of %s run on %s without its quota", job, on)
		}
	}
	for _, f := range rivals {
		if reserved[f] > 1 {
			s.fail("%d of flavor %s are reserved, and there is 1", reserved[f], f)
		}
		for _, q := range s.engine.Figures(string(f), "cpu") {
			if q.Usage > 1000 {
				s.fail("the engine counts %d of flavor %s", q.Usage, f)
			}
		}
	}
}

// calm ends all disturbances, lets everything come to rest, and checks the end.
func (s *variantSchedule) calm() {
	s.log = append(s.log, "calm")
	for range 30 {
		s.now = s.now.Add(time.Minute)
		for i := range divided {
			job := fmt.Sprint("job", i)
			s.setActive(job, true)
			s.showAll()
			err := s.reconcileAlone(job)
			if err != nil && !apierrors.IsConflict(errors.Unwrap(err)) && !apierrors.IsConflict(err) {
				s.fail("reconciling %s: %v", job, err)
			}
			s.runJob(job)
		}
		s.followOthers()
		s.showAll()
		s.decide()
		for len(s.grants) > 0 {
			s.writeGrant(smallest(s.grants))
		}
		for len(s.evicts) > 0 {
			s.writeEviction(smallest(s.evicts))
		}
		for _, name := range s.names() {
			s.passChecks(name)
		}
		s.check()
	}
	s.showAll()
	best := map[kueue.ResourceFlavorReference]bool{}
	for i := range divided {
		job := fmt.Sprint("job", i)
		if s.pods[job] == "" || s.pods[job] != plan.FlavorOf(plan.RunsOn(s.live[job], s.variantsOf(job))) {
			s.fail("%s does not run at last", job)
		}
		best[s.pods[job]] = true
	}
	if s.queue.Spec.ConcurrentAdmissionPolicy.Migration.Mode == kueue.TryPreferredFlavors && (!best["a"] || !best["b"]) {
		s.fail("the jobs run on %v at last", s.pods)
	}
	for _, f := range rivals {
		held := 0
		for i := range divided {
			for _, v := range s.variantsOf(fmt.Sprint("job", i)) {
				if lifecycle.IsReserved(v) && plan.FlavorOf(v) == f {
					held += 1000
				}
			}
		}
		for _, q := range s.engine.Figures(string(f), "cpu") {
			if int(q.Usage) != held {
				s.fail("the engine counts %d of flavor %s, and variants hold %d", q.Usage, f, held)
			}
		}
	}
}

func (s *variantSchedule) showAll() {
	for _, name := range s.names() {
		s.show(name)
		s.feed(name)
	}
}

// errEnded is the answer to a write of a manager that ends, and errLost of one whose answer does not arrive.
var errEnded, errLost = errors.New("the manager ends"), errors.New("the answer is lost")

// write makes a write of the controller, beside which others act.
func (s *variantSchedule) write(name, version string, do func() error) error {
	if s.left == 0 {
		return errEnded
	}
	s.left--
	for s.inside && s.r.IntN(4) == 0 {
		s.act()
	}
	if live := s.live[name]; version != "" && (live == nil || live.ResourceVersion != version) {
		return apierrors.NewConflict(kueue.Resource("workloads"), name, errors.New("another version"))
	}
	if err := do(); err != nil {
		return err
	}
	s.check()
	if s.inside && s.r.IntN(15) == 0 {
		return errLost
	}
	return nil
}

// liveReader reads past the cache.
type liveReader struct {
	client.Reader
	s *variantSchedule
}

func (c liveReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return read(c.s.live, key, o)
}

func read(from map[string]*kueue.Workload, key client.ObjectKey, o client.Object) error {
	w := from[key.Name]
	if w == nil {
		return apierrors.NewNotFound(kueue.Resource("workloads"), key.Name)
	}
	w.DeepCopyInto(o.(*kueue.Workload))
	return nil
}

// cachedClient is the client of the controller.
type cachedClient struct {
	client.Client
	s *variantSchedule
}

func (c *cachedClient) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *kueue.LocalQueue:
		c.s.localQueue.DeepCopyInto(o)
	case *kueue.ClusterQueue:
		c.s.queue.DeepCopyInto(o)
	default:
		return read(c.s.shown, key, o)
	}
	return nil
}

func (c *cachedClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	parent := o.FieldSelector.Requirements()[0].Value
	for _, name := range slices.Sorted(maps.Keys(c.s.shown)) {
		if w := c.s.shown[name]; lifecycle.VariantOf(w) == parent {
			out := list.(*kueue.WorkloadList)
			out.Items = append(out.Items, *w.DeepCopy())
		}
	}
	return nil
}

func (c *cachedClient) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	w := o.(*kueue.Workload)
	return c.s.write(w.Name, "", func() error {
		if c.s.live[w.Name] != nil {
			return apierrors.NewAlreadyExists(kueue.Resource("workloads"), w.Name)
		}
		c.s.store(w).DeepCopyInto(w)
		return nil
	})
}

func (c *cachedClient) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	return c.s.write(o.GetName(), "", func() error {
		if live := c.s.live[o.GetName()]; live != nil && live.UID == o.GetUID() {
			delete(c.s.live, o.GetName())
		}
		return nil
	})
}

// Patch stores metadata and spec: the patches of the controller have the version that they are made from.
func (c *cachedClient) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	w := o.(*kueue.Workload)
	var from struct{ Metadata metav1.ObjectMeta }
	data, err := patch.Data(o)
	if err == nil {
		err = json.Unmarshal(data, &from)
	}
	if err != nil || from.Metadata.ResourceVersion == "" {
		return fmt.Errorf("a patch without a version: %s (%w)", data, err)
	}
	return c.s.write(w.Name, from.Metadata.ResourceVersion, func() error {
		next := c.s.live[w.Name].DeepCopy()
		next.Labels, next.Annotations, next.Spec = w.Labels, w.Annotations, w.Spec
		c.s.store(next).DeepCopyInto(w)
		return nil
	})
}

func (c *cachedClient) Status() client.SubResourceWriter { return statusClient{s: c.s} }

type statusClient struct {
	client.SubResourceWriter
	s *variantSchedule
}

// Apply stores the part of a status that belongs to a field manager.
func (c statusClient) Apply(_ context.Context, of runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	var o client.SubResourceApplyOptions
	o.ApplyOpts(opts)
	var part kueue.Workload
	data, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(data, &part)
	}
	if err != nil {
		return err
	}
	return c.s.write(part.Name, part.ResourceVersion, func() error {
		next := c.s.live[part.Name].DeepCopy()
		switch o.FieldManager {
		case "kueue-admission":
			reclaimable := next.Status.ReclaimablePods
			next.Status = part.Status
			next.Status.ReclaimablePods = reclaimable
		case "kueue-reclaimable-pods":
			next.Status.ReclaimablePods = part.Status.ReclaimablePods
		default:
			for _, condition := range part.Status.Conditions {
				apimeta.SetStatusCondition(&next.Status.Conditions, condition)
			}
		}
		if !equality.Semantic.DeepEqual(next, c.s.live[part.Name]) {
			next = c.s.store(next)
		}
		data, err := json.Marshal(next)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, of)
	})
}
