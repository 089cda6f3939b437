package all_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/jobtest"
	"github.com/berth-project/berth/internal/job/kind/job"
	planned "github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestSchedules runs random sequences of what happens to a job of each kind, its Workloads and a child, with namespace labels that change,
// other clients that finish, shrink, deactivate and reactivate Workloads, and owners that are deleted and made again. Reconciles, and the
// controllers of the job and of the child, have their turns in between in any order. It always settles, a child is not suspended while its
// parent runs for more than one pass, no job runs on unqueued in a managed namespace, and none that Berth suspended waits in another one.
func TestSchedules(t *testing.T) {
	for _, d := range descriptors(t) {
		kind := with(t, d)
		if d.Serving || kind == nil {
			continue
		}
		t.Run(d.Framework, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				s := newSchedule(t, kind)
				for range rapid.IntRange(1, 30).Draw(t, "turns") {
					s.pickTurn()
				}
				s.runUntilStable()
				s.check()
				s.flip()
				s.runUntilStable()
				s.check()
			})
		})
	}
}

// schedule is a job, its Workloads and a child, in memory.
type schedule struct {
	t         *rapid.T
	kind      *jobtest.Kind
	d, childs *plan.Descriptor
	cfg       *plan.Config
	managed   bool
	objects   map[plan.Reference]plan.Object

	top       plan.Object // nil: it was deleted
	child     plan.Object // nil: the kind is no owner
	workloads []*kueue.Workload
	byUser    bool // the user suspended it
	ended     bool // another client finished a Workload of the job
	made      int
	now       time.Time
	passes    int // how often the child was suspended while the job ran, since the last event
	log       []string
}

func newSchedule(t *rapid.T, kind *jobtest.Kind) *schedule {
	s := &schedule{
		t: t, kind: kind, d: kind.Descriptor, childs: job.Descriptor(), now: time.Unix(1_800_000_000, 0), objects: map[plan.Reference]plan.Object{},
		managed: rapid.Bool().Draw(t, "managed"),
		cfg: &plan.Config{
			FinishOrphans: true, ReclaimablePods: true, PartialAdmission: true, HonourUserSuspend: true, AnnotationIdentifiers: true,
			ManageAll: rapid.Bool().Draw(t, "all are managed"), ElasticJobs: rapid.Bool().Draw(t, "elastic"), Kinds: plan.Kinds{kind.Descriptor.GVK: true},
		},
	}
	s.make()
	return s
}

// parse reads an object in YAML.
func (s *schedule) parse(text string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = out.UnmarshalJSON(raw)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// make creates the job as its user wrote it, which is to run at once, and as the webhook leaves it.
func (s *schedule) make() {
	s.made++
	s.byUser, s.ended = false, false
	u := s.parse(s.kind.Manifest)
	u.SetName("train")
	u.SetNamespace("ns")
	u.SetUID(types.UID(fmt.Sprintf("uid-%d", s.made)))
	u.SetGeneration(1)
	if !s.cfg.ManageAll {
		u.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	}
	if s.cfg.ElasticJobs && s.d.Elastic != nil && !s.d.ManagedChildren.CanGate() {
		u.SetAnnotations(map[string]string{kueue.ElasticJobAnnotation: "true"})
	}
	s.top = s.d.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s.top); err != nil {
		s.t.Fatal(err)
	}
	for _, text := range s.kind.Objects {
		o := s.parse(text)
		for _, ref := range s.d.Refers(s.top) {
			if ref.GVK == o.GroupVersionKind() && ref.Name == o.GetName() {
				s.objects[ref] = o
			}
		}
	}
	if s.managed {
		if s.d.Default != nil {
			s.d.Default(s.top, true, s.setting())
		}
		if s.d.Suspend(s.top); s.d.Once == nil {
			plan.MarkSuspended(s.top)
		}
	} else {
		s.d.Resume(s.top)
	}
	s.child = nil
	if !s.kind.Deleted && !s.kind.Ends {
		s.child = &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "child", Namespace: "ns", UID: types.UID(fmt.Sprintf("child-%d", s.made)), Annotations: map[string]string{}},
			Spec:       batchv1.JobSpec{Suspend: new(s.d.IsSuspended(s.top))},
		}
	}
}

func (s *schedule) setting() *plan.Setting { return &plan.Setting{Config: s.cfg, Objects: s.objects} }

// finished reports whether the job is over.
func (s *schedule) finished() bool {
	_, _, over := s.d.Finished(s.top)
	return over
}

// stopping reports whether a stop of the job was begun.
func (s *schedule) stopping() bool { return s.d.IsStopping(s.top) }

// runs is the gate's answer about the ancestor of the child.
func (s *schedule) runs() bool { return !s.finished() && !s.d.IsSuspended(s.top) && !s.stopping() }

// reconcile makes the next write for the job.
func (s *schedule) reconcile() bool {
	o := &plan.Observed{
		Job: s.top, Workloads: slices.Clone(s.workloads), Objects: s.objects, Now: metav1.NewTime(s.now), Flavors: plan.Flavors{"f": {}},
		Verdict: plan.Verdict{Mode: plan.Unmanaged},
	}
	if s.managed {
		o.Verdict.Mode = plan.Managed
	}
	if s.top != nil && s.d.Once != nil && s.managed && !s.d.Once.Marked(s.top, s.cfg) {
		o.Verdict.Mode = plan.Ignored
	}
	planned.SortByAge(o.Workloads)
	return s.apply(&s.top, planned.Next(s.cfg, s.d, o))
}

// reconcileChild makes the next write for the child.
func (s *schedule) reconcileChild() bool {
	if s.child == nil || s.top == nil {
		return false
	}
	o := &plan.Observed{Job: s.child, Now: metav1.NewTime(s.now), Verdict: plan.Verdict{Mode: plan.Unmanaged}}
	if s.managed {
		o.Verdict = plan.Verdict{Mode: plan.Follows, Ancestor: &plan.Owner{GVK: s.d.GVK, Object: s.top}}
		o.AncestorWorkloads, o.AncestorRuns = slices.Clone(s.workloads), s.runs()
	}
	was := s.childs.IsSuspended(s.child)
	wrote := s.apply(&s.child, planned.Next(s.cfg, s.childs, o))
	if !was && s.childs.IsSuspended(s.child) && s.runs() {
		s.passes++
	}
	return wrote
}

// apply makes a write, as the API server does.
func (s *schedule) apply(object *plan.Object, a plan.Action) bool {
	s.now = s.now.Add(time.Second)
	at := func() int {
		return slices.IndexFunc(s.workloads, func(w *kueue.Workload) bool { return w.UID == a.Workload.UID })
	}
	collect := func() {
		s.workloads = slices.DeleteFunc(s.workloads, func(w *kueue.Workload) bool { return w.DeletionTimestamp != nil && len(w.Finalizers) == 0 })
	}
	switch a.Verb {
	case plan.Nothing:
		return false
	case plan.Fail, plan.Stall:
		s.log = append(s.log, a.Err.Error())
		return false
	case plan.CreateWorkload:
		if slices.ContainsFunc(s.workloads, func(w *kueue.Workload) bool { return w.Name == a.Workload.Name }) {
			s.t.Fatalf("workload %s exists\n%s", a.Workload.Name, strings.Join(s.log, "\n"))
		}
		s.made++
		a.Workload.UID, a.Workload.CreationTimestamp = types.UID(fmt.Sprintf("w-%d", s.made)), metav1.NewTime(s.now)
		s.workloads = append(s.workloads, a.Workload)
	case plan.UpdateWorkload, plan.WriteStatus, plan.WriteReclaimable, plan.WritePodsReady:
		s.workloads[at()] = a.Workload
		collect()
	case plan.DeleteWorkload:
		s.workloads[at()].DeletionTimestamp = new(metav1.NewTime(s.now))
		collect()
	case plan.DeleteJob:
		*object = nil
	default:
		if next := a.Job; !equality.Semantic.DeepEqual(specOf(s.t, next), specOf(s.t, *object)) {
			next.SetGeneration(next.GetGeneration() + 1)
		}
		*object = a.Job
		if s.managed && object == &s.top && s.runs() {
			s.byUser = false // Berth started it
		}
	}
	s.log = append(s.log, fmt.Sprintf("  write %d %v", a.Verb, a.Events))
	return true
}

func specOf(t *rapid.T, o plan.Object) any {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return m["spec"]
}

// control is a turn of the controller of the job: its status follows, and the child runs exactly when the job does.
func (s *schedule) control() bool {
	if s.top == nil || s.finished() {
		return false
	}
	state := jobtest.Stopped
	if s.runs() {
		state = jobtest.Active
	}
	changed := s.status(state)
	if s.child == nil {
		return changed
	}
	switch wants := s.d.IsSuspended(s.top) || s.stopping(); {
	case s.childs.IsSuspended(s.child) == wants:
		return changed
	case wants:
		s.childs.Suspend(s.child)
	default:
		s.childs.Resume(s.child)
	}
	s.log = append(s.log, "  parent asserts")
	return true
}

// status writes the status of the job, if the kind has that one.
func (s *schedule) status(state jobtest.State) bool {
	text, ok := s.kind.Status[state]
	if !ok || (s.kind.Ends && state == jobtest.Stopped) {
		return false
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.top.DeepCopyObject())
	if err != nil {
		s.t.Fatal(err)
	}
	var next map[string]any
	if err := yaml.Unmarshal([]byte(text), &next); err != nil {
		s.t.Fatal(err)
	}
	status, _ := m["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	maps.Copy(status, next)
	m["status"] = status
	u := s.parse(mustYAML(s.t, m)) // numbers become int64, as from the API server
	changed := s.d.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, changed); err != nil {
		s.t.Fatal(err)
	}
	if equality.Semantic.DeepEqual(changed, s.top) {
		return false
	}
	s.log = append(s.log, "  "+string(state))
	s.top = changed
	return true
}

func mustYAML(t *rapid.T, m map[string]any) string {
	raw, err := yaml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// flip changes the label of the namespace.
func (s *schedule) flip() { s.managed = !s.managed }

// live is the Workload that counts, nil if there is none.
func (s *schedule) live() *kueue.Workload {
	at := slices.IndexFunc(s.workloads, func(w *kueue.Workload) bool { return !lifecycle.IsFinished(w) && w.DeletionTimestamp == nil })
	if at < 0 {
		return nil
	}
	return s.workloads[at]
}

// turn does one thing that happens in a cluster.
func (s *schedule) pickTurn() {
	t, w := s.t, s.live()
	what := rapid.SampledFrom([]string{
		"reconcile", "reconcile", "reconcile", "child", "child", "control", "control", "flip", "flip", "admit", "admit", "evict", "finish", "shrink",
		"deactivate", "reactivate", "user stops", "made again",
	}).Draw(t, "what")
	s.log, s.passes = append(s.log, fmt.Sprintf("%s (managed %v)", what, s.managed)), 0
	machine := s.cfg.Lifecycle
	switch {
	case what == "reconcile":
		s.reconcile()
	case what == "child":
		s.reconcileChild()
	case what == "control":
		s.control()
	case what == "flip":
		s.flip()
	case what == "made again" || s.top == nil:
		s.make()
	case what == "user stops":
		if s.runs() && !s.managed && s.d.Once == nil && !s.kind.Ends {
			s.d.Suspend(s.top)
			s.byUser = true
		}
	case w == nil:
	case what == "admit" && !lifecycle.IsReserved(w) && lifecycle.IsActive(w):
		s.admit(w)
	case what == "evict" && lifecycle.IsReserved(w):
		machine.Preempt(w, kueue.ReasonInClusterQueue, "", metav1.NewTime(s.now))
	case what == "finish" && s.managed:
		s.ended = machine.Finish(w, kueue.ReasonSucceeded, "said another client", metav1.NewTime(s.now))
	case what == "shrink" && w.Spec.PodSets[0].Count > 1:
		w.Spec.PodSets[0].Count--
	case what == "deactivate" || what == "reactivate":
		w.Spec.Active = new(what == "reactivate")
	}
}

func (s *schedule) admit(w *kueue.Workload) {
	a := &kueue.Admission{ClusterQueue: "cq"}
	for _, p := range w.Spec.PodSets {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: p.Name, Count: new(p.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "f"},
		})
	}
	s.cfg.Lifecycle.Reserve(w, a, nil, metav1.NewTime(s.now))
}

// runUntilStable runs all controllers until nothing changes.
func (s *schedule) runUntilStable() {
	s.passes = 0
	s.log = append(s.log, fmt.Sprintf("settle (managed %v)", s.managed))
	for range 60 {
		changed := false
		for _, do := range rapid.Permutation([]func() bool{s.reconcile, s.reconcileChild, s.control}).Draw(s.t, "order") {
			changed = do() || changed
		}
		if !changed {
			return
		}
	}
	s.t.Fatalf("it does not settle:\n%s", strings.Join(s.log, "\n"))
}

// check compares the final state with the expected one.
func (s *schedule) check() {
	fail := func(what string) { s.t.Fatalf("%s\n%s", what, strings.Join(s.log, "\n")) }
	if s.passes > 1 {
		fail(fmt.Sprintf("the child was suspended %d times while its parent ran", s.passes))
	}
	if s.top == nil || s.finished() || s.kind.Ends || (s.d.Once != nil && !s.d.Once.Marked(s.top, s.cfg)) {
		return
	}
	elastic := s.cfg.ElasticJobs && plan.IsElastic(s.top) // gates hold the pods of one that runs
	w := s.live()
	switch {
	case s.managed && w == nil && !s.ended:
		fail("a job is not queued in a managed namespace")
	case s.managed && !s.ended && !elastic && s.runs() && !lifecycle.IsAdmitted(w):
		fail("a job runs without an admission in a managed namespace")
	case !s.managed && s.d.IsSuspended(s.top) && !s.byUser:
		fail("a job that Berth suspended waits in a namespace that is not managed")
	case !s.managed && s.byUser && s.runs() && s.d.Once == nil:
		fail("a job that its user suspended runs")
	case !s.managed && w != nil && lifecycle.IsReserved(w):
		fail("a workload holds quota in a namespace that is not managed")
	case s.child != nil && s.childs.IsSuspended(s.child) != (s.d.IsSuspended(s.top) || s.stopping()):
		fail("the child does not do what its parent does")
	}
}
