package controller_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/training/controller"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// denied checks that a request was refused by the webhook, with status 403 and a text.
func denied(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request:`) {
		t.Errorf("want a refusal by the webhook, got %v", err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("want %q in %q", text, err)
		}
	}
}

func invalid(t *testing.T, err error, text string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("want status 422 with %q, got %v", text, err)
	}
}

func selector(zone string) string { return "{nodeSelector: {zone: " + zone + "}}" }

// TestTransitions is 50 §7, 37 to 39: the table, and a JobSet that is still active.
func TestTransitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	bad := w.newJob("bad", "")
	bad.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("nodomain", "{}")}
	denied(t, w.c.Create(w.ctx, bad), "spec.runtimePatches[0].manager")
	twice := w.newJob("twice", "")
	twice.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", "{}"), patchOf("a.io/x", "{}")}
	invalid(t, w.c.Create(w.ctx, twice), "Duplicate value")

	w.create(w.newJob("lark", ""))
	w.jobset("lark", suspendIs(false))
	w.waitQuiet()
	set := func(suspend bool, zone string) error {
		return w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) {
			j.Spec.Suspend = new(suspend)
			j.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", selector(zone))}
		})
	}
	denied(t, set(false, "a"), "spec.runtimePatches: Forbidden: RuntimePatches can only be modified when the TrainJob is suspended before or after the update")
	w.report("lark", func(s *jobsetv1alpha2.JobSetStatus) {
		s.ReplicatedJobsStatus = []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Active: 2}, {Name: "side", Active: 1}}
	})
	denied(t, set(true, "a"), "ReplicatedJob node is still active", "ReplicatedJob side is still active")
	w.report("lark", active(0))
	w.must(set(true, "a"))
	w.jobset("lark", suspendIs(true))
	w.has("lark", isSuspended) // only then it can be resumed
	w.must(set(true, "b"))
	w.report("lark", active(1))
	denied(t, set(true, "c"), "ReplicatedJob node")
	denied(t, set(false, "c"), "ReplicatedJob node")
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Labels = map[string]string{"a": "b"} }))
	w.report("lark", active(0))
	w.must(set(false, "c"))
	jobset := w.jobset("lark", suspendIs(false))
	if got := jobset.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector; !cmp.Equal(got, map[string]string{"zone": "c"}) {
		t.Errorf("it runs with node selector %v", got)
	}
	denied(t, set(false, "d"), patch.TransitionMessage)
	w.report("lark", ends("Completed", "AllJobsCompleted"))
	const complete = "Complete=True/AllJobsCompleted: the JobSet's words"
	w.has("lark", isResumed, complete)
	denied(t, set(false, "e"), patch.TransitionMessage) // that it has finished changes nothing
	w.must(set(true, "e"))
	w.has("lark", isSuspended, complete)
	w.must(set(true, "f"))
}

// atOnce is how many of the hundred clients of a race have a request under way: if all had, nearly every request would be a conflict.
const atOnce = 8

// TestRace has a hundred clients at one TrainJob. Whichever wins, the stored object never violates the table; and no running JobSet
// has another selector than the TrainJob had when it started.
func TestRace(t *testing.T) {
	w := newWorld(t, nil)
	w.create(w.newJob("lark", "suspend: true"))
	w.jobset("lark", suspendIs(true))
	live, err := client.NewWithWatch(w.rest, client.Options{Scheme: newScheme()})
	w.must(err)
	stored := w.job("lark")
	jobs, err := live.Watch(w.ctx, &trainerv1alpha1.TrainJobList{}, client.InNamespace(w.namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: stored.ResourceVersion}})
	w.must(err)
	jobsets, err := live.Watch(w.ctx, &jobsetv1alpha2.JobSetList{}, client.InNamespace(w.namespace))
	w.must(err)
	seen := make(chan [2]int, 1)
	go func() { seen <- watchTable(t, stored, jobs, jobsets) }()

	var clients sync.WaitGroup
	var mu sync.Mutex
	outcomes, turns, seed := map[string]int{}, make(chan struct{}, atOnce), embeddedtest.Seed(t, 7)
	for i := range 100 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for outcome := "conflict"; outcome == "conflict"; { // until there is an answer to what is stored
				turns <- struct{}{}
				job := w.job("lark")
				job.Spec.Suspend = new(random.IntN(2) == 0)
				if random.IntN(3) > 0 {
					job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", selector(fmt.Sprintf("z%d", random.IntN(5))))}
				}
				err := live.Update(w.ctx, job)
				<-turns
				outcome = "stored"
				switch {
				case apierrors.IsConflict(err):
					outcome = "conflict"
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), patch.TransitionMessage):
					outcome = "refused"
				case err != nil:
					outcome = err.Error()
				}
				mu.Lock()
				outcomes[outcome]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	w.waitQuiet()
	jobs.Stop()
	jobsets.Stop()
	counted := <-seen
	t.Logf("%v; %d versions of the TrainJob and %d of the JobSet were looked at", outcomes, counted[0], counted[1])
	if outcomes["stored"] < 20 || outcomes["refused"] == 0 || len(outcomes) > 3 || counted[0] < outcomes["stored"]/2 || counted[1] == 0 {
		t.Errorf("outcomes %v, seen %v", outcomes, counted)
	}
	job := w.job("lark")
	wait.Until(w.t, "the JobSet follows, unless it runs", func() error {
		if got := w.findJobSet("lark"); *got.Spec.Suspend != *job.Spec.Suspend {
			return fmt.Errorf("suspended %v and %v", *got.Spec.Suspend, *job.Spec.Suspend)
		}
		return nil
	})
}

// TestRaceWhileActive has a hundred clients at a TrainJob whose JobSet is still active. Its patches stay as they are, whatever
// the transition, while it is suspended and resumed again and again.
func TestRaceWhileActive(t *testing.T) {
	w := newWorld(t, nil)
	job := w.newJob("lark", "suspend: true")
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", selector("first"))}
	w.create(job)
	w.jobset("lark", suspendIs(true))
	w.report("lark", active(1))
	update := func(suspend bool, patched string) string {
		job := w.job("lark")
		before := *job.Spec.Suspend
		job.Spec.Suspend = &suspend
		if patched != "" {
			job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", selector(patched))}
		}
		switch err := w.c.Update(w.ctx, job); {
		case apierrors.IsConflict(err):
			return "conflict"
		case err == nil && patched != "":
			return "patched"
		case err == nil:
			return "stored"
		case patched != "" && !before && !suspend && strings.Contains(err.Error(), patch.TransitionMessage):
			return "refused, since it runs"
		case patched != "" && (before || suspend) && strings.Contains(err.Error(), "ReplicatedJob node is still active"):
			return fmt.Sprintf("refused from %v to %v", before, suspend)
		default:
			return err.Error()
		}
	}
	outcomes, turns, seed := make([]map[string]int, 100), make(chan struct{}, atOnce), embeddedtest.Seed(t, 11)
	var clients sync.WaitGroup
	for i := range outcomes {
		clients.Go(func() {
			outcomes[i] = map[string]int{}
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for outcome := "conflict"; outcome == "conflict"; {
				patched := ""
				suspend := random.IntN(2) == 0
				if random.IntN(3) > 0 {
					patched = fmt.Sprintf("z%d", random.IntN(5))
				}
				turns <- struct{}{}
				outcome = update(suspend, patched)
				<-turns
				outcomes[i][outcome]++
			}
		})
	}
	clients.Wait()
	total := map[string]int{}
	for _, some := range outcomes {
		for outcome, n := range some {
			total[outcome] += n
		}
	}
	t.Logf("%v", total)
	if total["stored"] == 0 {
		t.Error("none was stored")
	}
	settled := func(suspend bool, patched string) string { // the controller still writes the status of what the last update did
		for {
			if outcome := update(suspend, patched); outcome != "conflict" {
				return outcome
			}
		}
	}
	delete(total, "conflict")
	delete(total, "stored")
	for _, to := range []bool{true, false} {
		for _, from := range []bool{true, false} { // which of these came up before was a matter of luck
			want := fmt.Sprintf("refused from %v to %v", from, to)
			if !from && !to {
				want = "refused, since it runs"
			}
			if got := settled(from, ""); got != "stored" {
				t.Fatalf("suspend %v: %s", from, got)
			}
			if got := settled(to, "late"); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			delete(total, want)
		}
	}
	if len(total) > 0 {
		t.Errorf("and %v", total)
	}
	if got := w.job("lark").Spec.RuntimePatches; len(got) != 1 || got[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["zone"] != "first" {
		t.Errorf("the patches are %+v", got)
	}
}

// watchTable follows what is stored: of a TrainJob that runs before and after an update the patches never change, and
// neither does the template of a JobSet.
func watchTable(t *testing.T, job *trainerv1alpha1.TrainJob, jobs, jobsets watch.Interface) (counted [2]int) {
	is := func(suspend *bool) bool { return suspend != nil && *suspend }
	var jobset *jobsetv1alpha2.JobSet
	fromJobs, fromJobSets := jobs.ResultChan(), jobsets.ResultChan()
	for fromJobs != nil || fromJobSets != nil {
		select {
		case e, ok := <-fromJobs:
			if !ok || e.Type == watch.Error { // stopped
				fromJobs = nil
				continue
			}
			next := e.Object.(*trainerv1alpha1.TrainJob)
			same := equality.Semantic.DeepEqual(patch.WithoutTimes(job.Spec.RuntimePatches), patch.WithoutTimes(next.Spec.RuntimePatches))
			if !is(job.Spec.Suspend) && !is(next.Spec.Suspend) && !same {
				t.Errorf("the patches changed from version %s to %s of a TrainJob that runs", job.ResourceVersion, next.ResourceVersion)
			}
			job = next
			counted[0]++
		case e, ok := <-fromJobSets:
			if !ok || e.Type == watch.Error {
				fromJobSets = nil
				continue
			}
			next := e.Object.(*jobsetv1alpha2.JobSet)
			if jobset != nil && !is(jobset.Spec.Suspend) && !is(next.Spec.Suspend) && !equality.Semantic.DeepEqual(jobset.Spec, next.Spec) {
				t.Errorf("the spec of a JobSet that runs changed:\n%s", cmp.Diff(jobset.Spec, next.Spec))
			}
			jobset = next
			counted[1]++
		}
	}
	return counted
}

// TestPatchRules is 50 §7, 43 to 51, 57 and 59, through the API server.
func TestPatchRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *controller.Options) { o.Config.Patches.ConflictPolicy = patch.ConflictReject })
	create := func(name string, patches ...trainerv1alpha1.RuntimePatch) error {
		job := w.newJob(name, "suspend: true")
		job.Spec.RuntimePatches = patches
		return w.c.Create(w.ctx, job)
	}
	w.must(create("grace", patchOf("a.io/x", "{terminationGracePeriodSeconds: 300}")))
	if g := w.jobset("grace", suspendIs(true)).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.TerminationGracePeriodSeconds; *g != 300 {
		t.Errorf("grace period %d", *g)
	}
	invalid(t, w.change(w.c, "grace", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches[0] = patchOf("a.io/x", "{terminationGracePeriodSeconds: 200}")
	}), "field is immutable")
	invalid(t, create("negative", patchOf("a.io/x", "{terminationGracePeriodSeconds: -1}")), "terminationGracePeriodSeconds")
	denied(t, create("ghost", patchOf("a.io/x", "{containers: [{name: ghost}]}")), "containers[ghost]")
	denied(t, create("env", patchOf("a.io/x", "{containers: [{name: node, env: [{name: A}]}]}")), "containers[node].env: Forbidden")
	w.must(create("side", patchOf("a.io/x", "{containers: [{name: proxy, env: [{name: A}]}]}")))
	denied(t, create("directive", patchOf("a.io/x", "{nodeSelector: {$patch: replace}}")), "nodeSelector[$patch]")
	denied(t, create("clash", patchOf("a.io/x", selector("a")), patchOf("b.io/y", selector("b"))), "managers a.io/x and b.io/y", "nodeSelector[zone]")
	w.must(create("shared", patchOf("a.io/x", selector("a")), patchOf("b.io/y", selector("a"))))
	meta := trainerv1alpha1.RuntimePatch{Manager: "a.io/x", TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{Template: &trainerv1alpha1.JobSetTemplatePatch{
		Metadata: &metav1.ObjectMeta{Finalizers: []string{"a.io/f"}, Labels: map[string]string{trainerv1alpha1.AncestorStepLabel: "trainer"}},
	}}}
	denied(t, create("meta", meta), "only labels and annotations may be patched", "labels["+trainerv1alpha1.AncestorStepLabel+"]")
	w.must(create("tolerant", patchOf(trainerv1alpha1.QueuePatchManager, "{tolerations: [{key: t1, operator: Exists}]}")))
	if got := w.jobset("tolerant", suspendIs(true)).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Tolerations; len(got) != 2 {
		t.Errorf("tolerations %v", got)
	}

	at := func() *metav1.Time { return w.job("side").Spec.RuntimePatches[0].Time }
	first := at()
	if first == nil || time.Since(first.Time) > time.Minute || time.Until(first.Time) > 0 {
		t.Errorf("stamped %v", first)
	}
	w.must(w.change(w.c, "side", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches[0].Time = &metav1.Time{Time: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}
		j.Labels = map[string]string{"a": "b"}
	}))
	if !at().Equal(first) {
		t.Errorf("without a change of the content the time went from %v to %v", first, at())
	}
	wait.NextSecond(w.t)
	w.must(w.change(w.c, "side", func(j *trainerv1alpha1.TrainJob) {
		p := patchOf("a.io/x", "{nodeSelector: {a: b}, containers: [{name: proxy, env: [{name: A}]}]}")
		p.Time = &metav1.Time{Time: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}
		j.Spec.RuntimePatches[0] = p
	}))
	if !at().After(first.Time) || time.Until(at().Time) > 0 {
		t.Errorf("with a change of the content the time went from %v to %v", first, at())
	}
}

// TestPolicyWarn is the other half of 50 §7, 50, and 52: by default a conflict is accepted, with a warning, and the status and an event
// name the manager that lost.
func TestPolicyWarn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var mu sync.Mutex
	var heard []string
	cfg := rest.CopyConfig(w.rest)
	cfg.WarningHandlerWithContext = hears(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, text)
	})
	c, err := client.New(cfg, client.Options{Scheme: newScheme()})
	w.must(err)
	job := w.newJob("lark", "")
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", selector("a")), patchOf("b.io/y", selector("b"))}
	w.must(c.Create(w.ctx, job))
	mu.Lock()
	if len(heard) != 1 || !strings.Contains(heard[0], "managers a.io/x and b.io/y set") || !strings.Contains(heard[0], "nodeSelector[zone]") {
		t.Errorf("warnings %q", heard)
	}
	mu.Unlock()
	if got := w.jobset("lark", suspendIs(false)).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["zone"]; got != "b" {
		t.Errorf("zone %s", got)
	}
	wait.Until(w.t, "the status says who was overridden", func() error {
		s := w.job("lark").Status.RuntimePatches
		if len(s) != 2 || s[0].State != trainerv1alpha1.RuntimePatchOverridden || s[0].OverriddenBy[0].Manager != "b.io/y" || s[1].State != trainerv1alpha1.RuntimePatchApplied {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.hasEvent("lark", "Warning RuntimePatchesOverridden")
	for _, e := range w.eventsOf("lark") {
		if e.Reason == trainerv1alpha1.EventRuntimePatchesOverridden && (!strings.Contains(e.Message, "a.io/x") || !strings.Contains(e.Message, "b.io/y")) {
			t.Errorf("the event says %q", e.Message)
		}
	}
	w.options.Config.Patches.ConflictPolicy = patch.ConflictReject
	w.stop()
	w.start()
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Labels = map[string]string{"a": "b"} }))
}

// TestSelectors is 50 §7, 58: a patch applies to the jobs that its selector matches, whatever their names.
func TestSelectors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *controller.Options) { o.Config.Patches.Selectors = true })
	selecting := func(name, label string) *trainerv1alpha1.TrainJob {
		job := w.newJob(name, "suspend: true")
		job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{{Manager: "a.io/x"}}
		must(yaml.UnmarshalStrict([]byte(`template: {spec: {selectedReplicatedJobs: [{name: all, selector: {matchLabels: {`+
			trainerv1alpha1.AncestorStepLabel+`: `+label+`}}, template: {spec: {template: {spec: {nodeSelector: {zone: a}}}}}}]}}`), &job.Spec.RuntimePatches[0].TrainingRuntimeSpec))
		return job
	}
	w.create(selecting("lark", "trainer"))
	if got := w.jobset("lark", suspendIs(true)).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector; !cmp.Equal(got, map[string]string{"zone": "a"}) {
		t.Errorf("node selector %v", got)
	}
	wait.Until(w.t, "it is recorded", func() error {
		if s := w.job("lark").Status.RuntimePatches; len(s) != 1 || s[0].State != trainerv1alpha1.RuntimePatchApplied || len(s[0].Fields) != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	denied(t, w.c.Create(w.ctx, selecting("none", "nobody")), "selectedReplicatedJobs[0].selector", "matches no replicated job")
	w.stop()
	off := newWorld(t, nil)
	job := selecting("off", "trainer")
	job.Namespace = off.namespace
	denied(t, off.c.Create(off.ctx, job), "RuntimePatchSelectors")
}

// TestOwners is 50 §7, 53 to 55, with users of the API server and its RBAC.
func TestOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *controller.Options) {
		o.Config.Patches.Ownership.Self = "system:serviceaccount:berth-system:berth"
		o.Config.Patches.Ownership.Reserved = append(o.Config.Patches.Ownership.Reserved, patch.ReservedManager{Manager: "acme.io/*"})
	})
	ann, berth, ops := w.as("ann"), w.as("system:serviceaccount:berth-system:berth"), w.as("olga", "ml-ops")
	queue := func(zone string) func(*trainerv1alpha1.TrainJob) {
		return func(j *trainerv1alpha1.TrainJob) {
			j.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf(trainerv1alpha1.QueuePatchManager, selector(zone))}
		}
	}
	job := w.newJob("lark", "suspend: true")
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patch.Skeleton(trainerv1alpha1.QueuePatchManager)}
	w.must(ann.Create(w.ctx, job))
	w.must(w.change(berth, "lark", queue("a")))
	denied(t, w.change(ann, "lark", queue("b")), "spec.runtimePatches[kueue.x-k8s.io/manager]: Forbidden: manager kueue.x-k8s.io/manager is owned by another actor")
	denied(t, w.change(ann, "lark", func(j *trainerv1alpha1.TrainJob) { j.Spec.RuntimePatches = nil }), "owned by another actor")
	w.must(w.change(ann, "lark", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, patchOf("ann.io/x", "{nodeSelector: {ann: a}}"))
	}))
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { // a cluster administrator
		j.Spec.RuntimePatches[0] = patchOf(trainerv1alpha1.QueuePatchManager, selector("c"))
	}))

	exported := w.job("lark").Spec
	copied := w.newJob("copy", "")
	copied.Spec = exported
	w.must(ann.Create(w.ctx, copied))
	want := patch.Skeleton(trainerv1alpha1.QueuePatchManager)
	want.Time = copied.Spec.RuntimePatches[0].Time
	if diff := cmp.Diff(want, copied.Spec.RuntimePatches[0]); diff != "" || len(copied.Spec.RuntimePatches) != 2 {
		t.Errorf("the queue's entry in a copy (-want +got):\n%s", diff)
	}

	tune := func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, patchOf("acme.io/tuner", "{nodeSelector: {tuned: a}}"))
	}
	denied(t, w.change(ann, "lark", tune), "manager acme.io/tuner is owned by another actor")
	w.must(w.change(ops, "lark", tune))
}

// TestStrictOwners is 50 §7, 56.
func TestStrictOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *controller.Options) { o.Config.Patches.Ownership.Mode = patch.OwnershipStrict })
	ann, bob := w.as("ann"), w.as("bob")
	job := w.newJob("lark", "suspend: true")
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("bob.io/p", selector("a"))}
	w.must(bob.Create(w.ctx, job))
	denied(t, w.change(ann, "lark", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches[0] = patchOf("bob.io/p", selector("b"))
		j.Annotations = map[string]string{patch.OwnersAnnotation: `{"bob.io/p":"ann"}`}
	}), "owned by another actor")
	w.must(w.change(ann, "lark", func(j *trainerv1alpha1.TrainJob) {
		j.Annotations = map[string]string{patch.OwnersAnnotation: `{"bob.io/p":"ann"}`}
	}))
	if got := w.job("lark").Annotations[patch.OwnersAnnotation]; got != `{"bob.io/p":"bob"}` {
		t.Errorf("the owners are %s", got)
	}
	w.must(w.change(bob, "lark", func(j *trainerv1alpha1.TrainJob) { j.Spec.RuntimePatches[0] = patchOf("bob.io/p", selector("b")) }))
}

// TestRecreated is 50 §7, 48: what a JobSet cannot take up makes it be made again, once nothing of it runs. A policy stands
// for the webhook of JobSets.
func TestRecreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "fixed-" + w.namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{NamespaceSelector: here, ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"jobset.x-k8s.io"}, APIVersions: []string{"v1alpha2"}, Resources: []string{"jobsets"}},
			}}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "object.spec.replicatedJobs.all(j, oldObject.spec.replicatedJobs.all(o, has(o.template.spec.template.spec.affinity) == has(j.template.spec.template.spec.affinity)))",
				Message:    "spec.replicatedJobs: field is immutable", Reason: new(metav1.StatusReasonInvalid),
			}},
		},
	}
	w.create(policy)
	w.create(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	})
	w.create(w.newJob("probe", "suspend: true"))
	probe := w.jobset("probe", suspendIs(true))
	w.waitQuiet()
	wait.Until(w.t, "the policy is in force", func() error {
		changed := probe.DeepCopy()
		changed.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		if err := w.c.Update(w.ctx, changed, client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	const affinity = "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}}"
	w.create(w.newJob("lark", ""))
	first := w.jobset("lark", suspendIs(false))
	w.report("lark", active(0))
	// Suspended and patched at once: the JobSet stops first.
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.Suspend = new(true)
		j.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", affinity)}
	}))
	second := w.remade(first)
	if second.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Affinity == nil || !*second.Spec.Suspend {
		t.Errorf("JobSet %+v", second.Spec)
	}
	w.hasEvent("lark", "Normal JobSetRecreated")

	w.create(w.newJob("wren", "suspend: true"))
	third := w.jobset("wren", suspendIs(true))
	w.must(w.change(w.c, "wren", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", selector("a"))}
	}))
	w.jobset("wren", func(j *jobsetv1alpha2.JobSet) bool {
		return j.UID == third.UID && j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["zone"] == "a"
	})
	w.must(w.change(w.c, "wren", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, patchOf("b.io/y", affinity))
	}))
	w.remade(third)

	if slices.Contains(append(w.events("lark"), w.events("wren")...), "Warning TrainJobResourcesCreationFailed") {
		t.Error("waiting was reported as a failure")
	}

	// While pods end it waits. The test holds the deletion back until they are there.
	w.create(w.newJob("owl", ""))
	fourth := w.jobset("owl", suspendIs(false))
	w.waitQuiet()
	var held atomic.Bool
	held.Store(true)
	w.traffic.failing(func(r *http.Request) bool {
		return held.Load() && r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/jobsets/owl")
	})
	w.must(w.change(w.c, "owl", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.Suspend = new(true)
		j.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", affinity)}
	}))
	w.jobset("owl", suspendIs(true))
	w.report("owl", active(1))
	wait.Until(w.t, "the manager knows of the pods", func() error {
		if s := w.job("owl").Status.JobsStatus; len(s) == 0 || s[0].Active != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	held.Store(false)
	w.waitQuiet()
	if now := w.findJobSet("owl"); now == nil || now.UID != fourth.UID || now.DeletionTimestamp != nil {
		t.Error("a JobSet whose pods have not ended was deleted")
	}
	w.report("owl", active(0))
	w.remade(fourth)
}

// remade waits for the JobSet that replaces another. There is no garbage collector here, so the test removes the finalizers of the first.
func (w *world) remade(first *jobsetv1alpha2.JobSet) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	return w.jobset(first.Name, func(j *jobsetv1alpha2.JobSet) bool {
		if j.UID != first.UID {
			return true
		}
		if slices.Contains(j.Finalizers, metav1.FinalizerDeleteDependents) {
			j.Finalizers = nil
			_ = w.c.Update(w.ctx, j)
		}
		return false
	})
}

// TestRecord is 50 §7, 40 and 60: one update patches and starts, and the status lists the applied patches.
func TestRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	job := w.newJob("lark", "suspend: true")
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", "{nodeSelector: {a: b}}"), patch.Skeleton(trainerv1alpha1.QueuePatchManager)}
	w.create(job)
	w.has("lark", isSuspended)
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.Suspend = new(false)
		j.Spec.RuntimePatches[1] = patchOf(trainerv1alpha1.QueuePatchManager, selector("a"))
	}))
	jobset := w.jobset("lark", suspendIs(false))
	if got := jobset.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector; !cmp.Equal(got, map[string]string{"a": "b", "zone": "a"}) || len(jobset.Annotations) > 0 {
		t.Errorf("node selector %v, annotations %v", got, jobset.Annotations)
	}
	applied := func() error {
		var snapshot corev1.ConfigMap
		w.must(w.c.Get(w.ctx, snapshotKey(w, "lark"), &snapshot))
		hashes, _ := patch.BuiltFrom(snapshot.Annotations)
		s := w.job("lark").Status.RuntimePatches
		if len(s) != 2 || len(hashes) != 2 {
			return fmt.Errorf("%v %+v", hashes, s)
		}
		for _, p := range s {
			if p.State != trainerv1alpha1.RuntimePatchApplied || p.Hash != hashes[p.Manager] || p.AppliedTime == nil || p.ObservedTime == nil {
				return fmt.Errorf("%v %+v", hashes, s)
			}
		}
		return nil
	}
	wait.Until(w.t, "both are applied", applied)
	var snapshot corev1.ConfigMap
	w.must(w.c.Get(w.ctx, snapshotKey(w, "lark"), &snapshot))
	snapshot.Annotations = nil
	w.must(w.c.Update(w.ctx, &snapshot))
	// ConfigMaps are not watched: something else wakes the TrainJob.
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Labels = map[string]string{"woken": "yes"} }))
	wait.Until(w.t, "the record is found out again", applied)

	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(true) }))
	w.jobset("lark", suspendIs(true))
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches[1] = patch.Skeleton(trainerv1alpha1.QueuePatchManager)
	}))
	w.jobset("lark", func(j *jobsetv1alpha2.JobSet) bool {
		return cmp.Equal(j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector, map[string]string{"a": "b"})
	})
	wait.Until(w.t, "the queue's entry drops out", func() error {
		if s := w.job("lark").Status.RuntimePatches; len(s) != 1 || s[0].Manager != "a.io/x" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// TestTrainJobRules is 50 §7, 2, 6, 32 to 34, through the API server.
func TestTrainJobRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	denied(t, w.c.Create(w.ctx, w.newJob("env", "trainer: {env: [{name: PET_NNODES, value: '9'}]}")), "spec.trainer.env")
	denied(t, w.c.Create(w.ctx, w.newJob("none", "runtimeRef: {name: none}")), "spec.runtimeRef", "must be created before the TrainJob")
	denied(t, w.c.Create(w.ctx, w.newJob("kind", "runtimeRef: {name: a, kind: Strange}")), "unsupported runtime: Strange.trainer.kubeflow.org")
	invalid(t, w.c.Create(w.ctx, w.newJob("managed", "managedBy: foo/bar")), "managedBy")
	invalid(t, w.c.Create(w.ctx, w.newJob("Lark", "")), "metadata.name")
	w.must(w.c.Create(w.ctx, w.newJob(strings.Repeat("l", 63), "")))
	w.create(w.newJob("lark", "trainer: {numNodes: 5, numProcPerNode: 2}"))
	env := map[string]string{}
	for _, v := range w.jobset("lark", suspendIs(false)).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	want := map[string]string{"PET_NNODES": "5", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "", "PET_MASTER_ADDR": "lark-node-0-0.lark", "PET_MASTER_PORT": "29500"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	denied(t, w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Spec.Trainer = nil }), "spec.trainer: Forbidden: field is immutable")
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Finalizers = []string{"a.io/f"} }))
	w.must(w.c.Delete(w.ctx, w.job("lark")))
	w.must(w.c.Delete(w.ctx, &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "acme-torch"}}))
	w.must(w.c.Delete(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "lark-runtime-snapshot"}}))
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Finalizers = nil }))
}

// TestRuntimeRules is 50 §7, 12, 35 and 36, through the API server, with what clients are warned of.
func TestRuntimeRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var mu sync.Mutex
	var heard []string
	cfg := rest.CopyConfig(w.rest)
	cfg.WarningHandlerWithContext = hears(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, text)
	})
	c, err := client.New(cfg, client.Options{Scheme: newScheme()})
	w.must(err)
	warned := func(what, text string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if !slices.ContainsFunc(heard, func(s string) bool { return strings.Contains(s, text) }) {
			t.Errorf("%s: warnings %q, want %q", what, heard, text)
		}
		heard = nil
	}
	runtime := func(name, ancestor string, labels map[string]string) *trainerv1alpha1.TrainingRuntime {
		r := &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels}, Spec: acmeTorch()}
		rj := &r.Spec.Template.Spec.ReplicatedJobs[0]
		rj.Replicas, rj.Template.Labels = new(int32(2)), map[string]string{trainerv1alpha1.AncestorStepLabel: ancestor}
		return r
	}
	err = c.Create(w.ctx, runtime("two", "trainer", nil))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "replicatedJobs[0].replicas") {
		t.Errorf("two replicas of the trainer: %v", err)
	}
	w.must(c.Create(w.ctx, runtime("unchecked", "trainer", map[string]string{"trainer.kubeflow.org/webhook-validation": "disabled"})))
	w.must(c.Create(w.ctx, runtime("mine", "mine", nil)))

	old := &trainerv1alpha1.TrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "old", Labels: map[string]string{"trainer.kubeflow.org/support": "deprecated"}}, Spec: acmeTorch(),
	}
	w.must(c.Create(w.ctx, old))
	warned("creating a deprecated runtime", "old is deprecated")
	w.must(c.Create(w.ctx, w.newJob("lark", "{suspend: true, runtimeRef: {name: old, kind: TrainingRuntime}}")))
	warned("creating a TrainJob of it", "old is deprecated")
	w.must(w.change(c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Labels = map[string]string{"a": "b"} }))
	warned("updating that", "old is deprecated")

	steps := acmeTorch()
	steps.Template.Spec.ReplicatedJobs[0] = jobsetv1alpha2.ReplicatedJob{}
	must(yaml.UnmarshalStrict([]byte(`
name: dataset-initializer
template:
  metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
  spec: {template: {spec: {containers: [{name: dataset-initializer, volumeMounts: [{name: initializer, mountPath: /w}]}]}}}
`), &steps.Template.Spec.ReplicatedJobs[0]))
	fetching := &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "fetching"}, Spec: steps}
	w.must(c.Create(w.ctx, fetching))
	const spec = "{suspend: true, runtimeRef: {name: fetching, kind: TrainingRuntime}, initializer: {dataset: {storageUri: 'hf://a/b'}}}"
	w.must(c.Create(w.ctx, w.newJob("first", spec)))
	fetching.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "other"
	w.must(c.Update(w.ctx, fetching))
	warned("a runtime that loses its container", "must have a container dataset-initializer")
	wait.Until(w.t, "the next TrainJob of it is refused", func() error { // once the cache has seen the change
		second := w.newJob("second", spec)
		if err := c.Create(w.ctx, second, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.runtimeRef") {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})

	// Clients that can name no kind get the runtime of their namespace if there is no other.
	bare := w.newJob("bare", "suspend: true")
	bare.Spec.RuntimeRef = trainerv1alpha1.RuntimeRef{Name: "acme-torch"}
	w.must(c.Create(w.ctx, bare))
	warned("a TrainJob that names no kind", "there is no ClusterTrainingRuntime acme-torch; the TrainingRuntime of that name is used")
	if *bare.Spec.RuntimeRef.Kind != trainerv1alpha1.KindTrainingRuntime {
		t.Errorf("runtimeRef %+v", bare.Spec.RuntimeRef)
	}
	w.jobset("bare", suspendIs(true))
}

// hears takes warnings of the API server.
// childJob makes a Job with the labels of a JobSet.
func (w *world) childJob(jobset, name string) *batchv1.Job {
	w.t.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: jobset}}}
	j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}}}
	w.create(j)
	return j
}

type hears func(text string)

func (h hears) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) { h(text) }

// A TrainJob that a queue started fails if its JobSet can never be created, so that its quota is
// released. One that is suspended has no active Jobs once its JobSet is deleted, upon which the queue releases its quota. One without a queue has
// an event, once, and no condition. A policy stands for the webhook of JobSets.
func TestQuotaIsReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *controller.Options) { o.Patience = time.Second })
	ran := w.newJob("ran", "")
	ran.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf(trainerv1alpha1.QueuePatchManager, selector("a"))}
	w.create(ran)
	w.jobset("ran", suspendIs(false))
	w.report("ran", runs)
	counts := func(active int32) {
		t.Helper()
		wait.Until(w.t, "the counters are as wanted", func() error {
			if got := w.job("ran").Status.JobsStatus; len(got) != 1 || got[0].Active != active || got[0].Ready != active {
				return fmt.Errorf("%+v, want %d", got, active)
			}
			return nil
		})
	}
	counts(1)
	w.must(w.change(w.c, "ran", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(true) }))
	w.jobset("ran", suspendIs(true))
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "none-" + w.namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"jobset.x-k8s.io"}, APIVersions: []string{"v1alpha2"}, Resources: []string{"jobsets"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no JobSets today"}},
		},
	}
	w.create(policy)
	w.create(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	})
	wait.Until(w.t, "the policy is in force", func() error {
		probe := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: w.namespace}}
		if err := w.c.Create(w.ctx, probe, client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	// Its Jobs outlive it, as after a deletion in the background: one runs, one has ended.
	over, left := w.childJob("ran", "ran-node-0"), w.childJob("ran", "ran-node-1")
	over.Status.StartTime = new(metav1.Now())
	over.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionTrue},
	}
	w.must(w.c.Status().Update(w.ctx, over))
	w.must(w.c.Delete(w.ctx, w.findJobSet("ran")))
	w.hasEvent("ran", "Warning TrainJobResourcesCreationFailed")
	w.waitQuiet()
	counts(1)
	w.must(w.c.Delete(w.ctx, left, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	counts(0)
	w.create(w.newJob("free", ""))
	queued := w.newJob("queued", "suspend: true")
	queued.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf(trainerv1alpha1.QueuePatchManager, selector("a"))}
	w.create(queued)
	w.hasEvent("free", "Warning TrainJobResourcesCreationFailed")
	w.hasEvent("queued", "Warning TrainJobResourcesCreationFailed")
	w.must(w.change(w.c, "queued", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(false) }))
	wait.Until(w.t, "the TrainJob has failed", func() error {
		c := apimeta.FindStatusCondition(w.job("queued").Status.Conditions, string(trainerv1alpha1.ConditionFailed))
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != trainerv1alpha1.ReasonResourcesCreationFailed || !strings.Contains(c.Message, "no JobSets today") {
			return fmt.Errorf("conditions %+v", w.job("queued").Status.Conditions)
		}
		return nil
	})
	if got := w.job("free").Status.Conditions; len(got) > 0 {
		t.Errorf("without a queue: %+v", got)
	}
	for _, name := range []string{"free", "queued"} {
		if got := w.times(name, "TrainJobResourcesCreationFailed"); got != 1 {
			t.Errorf("%s: told %d times of the same", name, got)
		}
	}
}
