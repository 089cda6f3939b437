package trainjob_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/jobset"
	"github.com/berth-project/berth/internal/job/kind/trainjob"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/job/plan/view/viewtest"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

var parse = viewtest.Parse

// setting has a runtime of one job, node, with a toleration and the zone that is given.
func setting(t *testing.T, d *plan.Descriptor, o plan.Object, zone string) *plan.Setting {
	t.Helper()
	runtime := parse(t, `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: plain}
spec:
  mlPolicy: {numNodes: 2}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {nodeSelector: {zone: `+zone+`}, containers: [{name: node, image: x}], tolerations: [{key: T1, operator: Exists}]}}}
`)
	in := &plan.Setting{Config: &plan.Config{Topology: true}, Objects: map[plan.Reference]plan.Object{}}
	for _, ref := range d.Refers(o) {
		if ref.GVK.Kind == trainerv1alpha1.KindClusterTrainingRuntime && ref.Cluster && ref.Name == "plain" {
			in.Objects[ref] = runtime
		}
	}
	return in
}

const job = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: lark, namespace: lab, uid: u1}
spec:
  suspend: true
  future: {field: kept}
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: plain}
  runtimePatches:
  - {manager: acme.io/tuner, time: "2026-01-02T03:04:05Z", future: kept, trainingRuntimeSpec: {template: {spec: {}}}}
`

// TestMadeJobSet: the JobSet of a TrainJob has at most the pods of its plan, or those for which its Workload holds quota.
func TestMadeJobSet(t *testing.T) {
	held := func(n int32) []kueue.PodSet {
		return []kueue.PodSet{{Name: "node", Count: n, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node"}}}}}}
	}
	for name, test := range map[string]struct {
		pods string
		held []kueue.PodSet
		made bool
	}{
		"as planned":            {"2", nil, true},
		"larger":                {"3", nil, false},
		"larger, with quota":    {"3", held(3), true},
		"larger than its quota": {"4", held(3), false},
	} {
		t.Run(name, func(t *testing.T) {
			d := trainjob.Descriptor(trainingplan.DefaultConfig())
			o := parse(t, job)
			in := setting(t, d, o, "a")
			jobSet := parse(t, `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: lark, namespace: lab}
spec:
  replicatedJobs:
  - {name: node, template: {spec: {parallelism: `+test.pods+`, completions: `+test.pods+`, template: {spec: {containers: [{name: node, image: x}]}}}}}
`)
			err := d.Owns[0].Made(&plan.OwnedBy{Config: in.Config, Owner: o, Objects: in.Objects, Held: test.held, Child: jobSet, Kind: jobset.Descriptor()})
			if (err == nil) != test.made {
				t.Errorf("made: %v", err)
			}
		})
	}
}

var info = plan.PodSetInfo{
	Name: "node", Count: 2, NodeSelector: map[string]string{"pool": "h100"}, Labels: map[string]string{"l": "v"},
	Tolerations: []corev1.Toleration{{Key: "T2", Operator: corev1.TolerationOpExists}},
}

// TestRuns: a TrainJob runs with the pod sets of its own JobSet, whichever version planned that.
func TestRuns(t *testing.T) {
	const jobSet = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: lark
  namespace: lab
  ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: lark, uid: u1, controller: true}]
spec:
  replicatedJobs:
  - {name: node, replicas: 2, template: {spec: {parallelism: 3, completions: 3, template: {spec: {containers: [{name: node, image: x}]}}}}}
  - {name: launcher, template: {spec: {template: {spec: {containers: [{name: node, image: z}]}}}}}
`
	active := `
status: {jobsStatus: [{name: node, active: 1}]}
`
	for name, test := range map[string]struct{ job, jobSet, want string }{
		"runs":                 {strings.Replace(job, "suspend: true", "suspend: false", 1), jobSet, "node 6 x, launcher 1 z"},
		"is being stopped":     {job + active, jobSet, "node 6 x, launcher 1 z"},
		"is suspended":         {job, jobSet, ""},
		"has none":             {strings.Replace(job, "suspend: true", "suspend: false", 1), "", ""},
		"is of an earlier one": {strings.Replace(job, "suspend: true", "suspend: false", 1), strings.Replace(jobSet, "u1", "u0", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := trainjob.Descriptor(trainingplan.DefaultConfig())
			o := parse(t, test.job)
			in := setting(t, d, o, "a")
			for _, ref := range d.Refers(o) {
				if ref.GVK.Kind == "JobSet" && ref.Name == "lark" && test.jobSet != "" {
					in.Objects[ref] = parse(t, test.jobSet)
				}
			}
			var got []string
			for _, set := range d.Planned.Runs(o, in) {
				got = append(got, fmt.Sprint(set.Name, " ", set.Count, " ", set.Template.Spec.Containers[0].Image))
			}
			if is := strings.Join(got, ", "); is != test.want {
				t.Errorf("got %q, want %q", is, test.want)
			}
		})
	}
}

func TestStartAndStop(t *testing.T) {
	d := trainjob.Descriptor(trainingplan.DefaultConfig())
	before := parse(t, job)
	o := before.DeepCopy()
	in := setting(t, d, o, "a")
	if err := d.Start(o, []plan.PodSetInfo{info}, in); err != nil {
		t.Fatal(err)
	}
	want := parse(t, strings.Replace(job, "suspend: true", "suspend: false", 1)+`
  - manager: kueue.x-k8s.io/manager
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template:
              spec:
                template:
                  metadata: {labels: {l: v}}
                  spec:
                    nodeSelector: {pool: h100}
                    tolerations: [{key: T1, operator: Exists}, {key: T2, operator: Exists}]
`)
	if diff := cmp.Diff(want.Object, o.Object); diff != "" {
		t.Errorf("started -want +got:\n%s", diff)
	}
	was, err := d.PodSets(before, in)
	if err != nil {
		t.Fatal(err)
	}
	is, err := d.PodSets(o, in)
	if diff := cmp.Diff(was, is); diff != "" || err != nil || len(is) != 1 || is[0].Count != 2 {
		t.Errorf("what was written changes the pod sets (%v) -want +got:\n%s", err, diff)
	}

	view.Set(o.Object, []any{map[string]any{"name": "node", "active": int64(1)}}, "status", "jobsStatus")
	step, next := d.Stops.Next(o, nil, plan.WorkloadEvicted)
	if step != plan.Change || d.IsSuspended(next) || !d.IsStopping(next) || !view.Bool(view.Of(next).Object, "spec", "suspend") {
		t.Fatalf("while a Job is active the stop only suspends: step %v, %v", step, next)
	}
	if waiting, _ := d.Stops.Next(next, nil, plan.WorkloadEvicted); waiting != plan.Wait {
		t.Errorf("the patch cannot change while a Job is active: step %v", waiting)
	}
	view.Set(view.Of(next).Object, []any{}, "status", "jobsStatus")
	step, end := d.Stops.Next(next, nil, plan.WorkloadEvicted)
	if step != plan.Change || !d.IsSuspended(end) || d.IsStopping(end) {
		t.Fatalf("the patch is emptied once no Job is active: step %v, %v", step, end)
	}
	if again, _ := d.Stops.Next(end, nil, plan.WorkloadEvicted); again != plan.Stopped {
		t.Errorf("a stop that is over goes on: step %v", again)
	}
	delete(o.Object, "status")
	if _, once := d.Stops.Next(o, nil, plan.WorkloadEvicted); !d.IsSuspended(once) || d.IsStopping(once) {
		t.Error("without an active Job one write is enough")
	}
}

// TestPlannedOnce: one plan answers all calls in one setting about one state of a TrainJob, including the start, whose writes are
// not an input of the plan.
func TestPlannedOnce(t *testing.T) {
	d := trainjob.Descriptor(trainingplan.DefaultConfig())
	o := parse(t, job)
	in := plan.NewSetting(&plan.Config{Topology: true}, &plan.Observed{Objects: setting(t, d, o, "a").Objects})
	if _, err := d.PodSets(o, in); err != nil {
		t.Fatal(err)
	}
	first := in.Derived()
	d.PodsReady(o, in)
	d.Reclaimable(o, in)
	started := o.DeepCopy()
	if err := d.Start(started, []plan.PodSetInfo{info}, in); err != nil {
		t.Fatal(err)
	}
	if _, err := d.PodSets(started, in); err != nil || in.Derived() != first || first == nil {
		t.Errorf("it was planned again: %v", err)
	}
	view.Set(o.Object, int64(5), "spec", "trainer", "numNodes")
	if sets, err := d.PodSets(o, in); err != nil || sets[0].Count != 5 || in.Derived() == first {
		t.Errorf("the plan of another state is used: %v, %v", sets, err)
	}
}

// TestRecordedRuntime: a snapshot that is in memory is not asked for, and its runtime is used.
func TestRecordedRuntime(t *testing.T) {
	cfg, o := trainingplan.DefaultConfig(), parse(t, job)
	d := trainjob.Descriptor(cfg)
	in := setting(t, d, o, "b")
	var recorded trainingplan.Runtime
	for _, found := range in.Objects {
		raw, err := view.Of(found).MarshalJSON()
		if err != nil || yaml.Unmarshal([]byte(strings.ReplaceAll(string(raw), `"zone":"b"`, `"zone":"a"`)), &recorded) != nil {
			t.Fatal(err)
		}
	}
	cfg.Recorded = func(job *trainerv1alpha1.TrainJob) *trainingplan.Runtime {
		if job.Status.RuntimeSnapshot == nil {
			return nil
		}
		return &recorded
	}
	o.Object["status"] = map[string]any{"runtimeSnapshot": map[string]any{"hash": "h"}}
	for _, ref := range d.Refers(o) {
		if ref.Uncached {
			t.Errorf("%s is read", ref.Name)
		}
	}
	if sets, err := d.PodSets(o, in); err != nil || sets[0].Template.Spec.NodeSelector["zone"] != "a" {
		t.Errorf("%v, %v", sets, err)
	}
	if errs := d.Validate(o, nil, in); len(errs) > 0 {
		t.Errorf("a new TrainJob whose status says so: %v", errs)
	}
}

func TestStartRefuses(t *testing.T) {
	d := trainjob.Descriptor(trainingplan.DefaultConfig())
	for name, infos := range map[string][]plan.PodSetInfo{
		"another number of pod sets": {info, info},
		"another value":              {{NodeSelector: map[string]string{"zone": "b"}}},
	} {
		o := parse(t, job)
		err := d.Start(o, infos, setting(t, d, o, "a"))
		if !errors.Is(err, podset.ErrPermanent) {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(parse(t, job).Object, o.Object); diff != "" {
			t.Errorf("%s: it was changed all the same:\n%s", name, diff)
		}
	}
}

// TestRefused: a start that is refused for its owner or for a conflict is refused for good, and no other.
func TestRefused(t *testing.T) {
	d := trainjob.Descriptor(trainingplan.DefaultConfig())
	jobs := trainerv1alpha1.GroupVersion.WithResource("trainjobs").GroupResource()
	config := patch.DefaultConfig()
	config.ConflictPolicy = patch.ConflictReject
	config.Ownership.Reserved = []patch.ReservedManager{{Manager: "kueue.x-k8s.io/*", Users: []string{"berth"}}}
	entry := func(manager, zone string) trainerv1alpha1.RuntimePatch {
		var p trainerv1alpha1.RuntimePatch
		if err := yaml.UnmarshalStrict([]byte("{manager: "+manager+", trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {nodeSelector: {zone: "+zone+"}}}}}}]}}}}"), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	job, idle := &trainerv1alpha1.TrainJob{}, &trainerv1alpha1.TrainJob{}
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{entry("a.io/x", "a"), entry("kueue.x-k8s.io/manager", "b")}
	job.Spec.Suspend = new(true)
	idle.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{entry("a.io/x", "a")}
	refusals := func(r *patch.Request) error { return patch.Validate(r, nil, &patch.Reserved{}).Errors.ToAggregate() }
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"the webhook, for its owner":  {refusals(&patch.Request{New: idle, Old: job, Config: &config, User: patch.User{Name: "ann"}}), true},
		"the webhook, for a conflict": {refusals(&patch.Request{New: job, Old: idle, Config: &config, User: patch.User{Name: "berth"}}), true},
		"the policy":                  {errors.New("spec.runtimePatches: another actor owns the entries of kueue.x-k8s.io/manager"), true},
		"the JobSet cannot be read":   {patch.Transition(job, idle, nil, errors.New("no answer")).ToAggregate(), false},
		"while it runs":               {errors.New("spec.runtimePatches: Forbidden: " + patch.TransitionMessage), false},
		"another rule":                {errors.New("no rights; ask another actor"), false},
	} {
		if tt.err == nil {
			t.Fatalf("%s: nothing is refused", name)
		}
		if got := d.Planned.Refused(apierrors.NewForbidden(jobs, "lark", tt.err)); got != tt.want {
			t.Errorf("%s: %v, for %v", name, got, tt.err)
		}
		if passes := name == "while it runs"; d.Planned.Passes(apierrors.NewForbidden(jobs, "lark", tt.err)) != passes {
			t.Errorf("%s: passes %v", name, !passes)
		}
		if d.Planned.Refused(tt.err) {
			t.Errorf("%s: for good, and not refused", name)
		}
	}
}

// TestLongNames: a queued TrainJob is refused if a pod of its JobSet would have too long a name. One without a queue holds
// no quota, and a change of one that exists is not refused for its name.
func TestLongNames(t *testing.T) {
	d := trainjob.Descriptor(trainingplan.DefaultConfig())
	for name, tt := range map[string]struct {
		length    int
		generated bool
		queue     string
		old       bool
		want      bool
	}{
		"as long as can be":          {length: 48, queue: "lq"},
		"one more":                   {length: 49, queue: "lq", want: true},
		"generated":                  {length: 43, generated: true, queue: "lq"},
		"generated, one more":        {length: 44, generated: true, queue: "lq", want: true},
		"without a queue":            {length: 63},
		"it was stored before":       {length: 49, queue: "lq", old: true},
		"as long as a TrainJob's is": {length: 63, queue: "lq", want: true},
	} {
		o := parse(t, job)
		o.SetName(strings.Repeat("l", tt.length))
		if tt.generated {
			o.SetGenerateName(o.GetName())
			o.SetName("")
		}
		o.SetLabels(map[string]string{kueue.QueueNameLabel: tt.queue})
		var old plan.Object
		if tt.old {
			old = o
		}
		errs := d.Validate(o, old, setting(t, d, o, "a"))
		if len(errs) > 0 != tt.want {
			t.Errorf("%s: %v", name, errs)
		}
		if name == "one more" && !strings.Contains(errs.ToAggregate().Error(), "would have 64 characters and may have 63; choose a name that is 1 shorter") {
			t.Errorf("%v tells neither the limit nor the length", errs)
		}
	}
}

func TestRuntimes(t *testing.T) {
	d := trainjob.Descriptor(trainingplan.DefaultConfig())
	o := parse(t, job)
	in := setting(t, d, o, "b")
	var live trainingplan.Runtime
	for ref, found := range in.Objects {
		raw, err := view.Of(found).MarshalJSON()
		if err == nil {
			err = yaml.Unmarshal([]byte(strings.ReplaceAll(string(raw), `"zone":"b"`, `"zone":"a"`)), &live)
		}
		if err != nil || ref.Name != "plain" {
			t.Fatal(ref, err)
		}
	}
	live.APIVersion, live.Kind = trainerv1alpha1.GroupVersion.String(), trainerv1alpha1.KindClusterTrainingRuntime
	var typed trainerv1alpha1.TrainJob
	if err := yaml.Unmarshal([]byte(job), &typed); err != nil {
		t.Fatal(err)
	}
	snapshot, err := trainingplan.Snapshot(&typed, &live, nil)
	if err != nil {
		t.Fatal(err)
	}
	zone := func() string {
		sets, err := d.PodSets(o, in)
		if err != nil {
			return err.Error()
		}
		return sets[0].Template.Spec.NodeSelector["zone"]
	}
	if got := zone(); got != "b" {
		t.Errorf("without a snapshot: %s", got)
	}
	raw, err := yaml.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range d.Refers(o) {
		if ref.GVK.Kind == "ConfigMap" && ref.Uncached {
			in.Objects[ref] = parse(t, string(raw))
		}
	}
	if got := zone(); got != "b" {
		t.Errorf("with a snapshot that the status does not confirm: %s", got)
	}
	o.Object["status"] = map[string]any{"runtimeSnapshot": map[string]any{"hash": trainingplan.SnapshotHash(snapshot)}}
	if got := zone(); got != "a" {
		t.Errorf("with a snapshot: %s", got)
	}
	in.Objects = nil
	if _, err := d.PodSets(o, in); !errors.Is(err, podset.ErrNotYet) {
		t.Errorf("without a runtime: %v", err)
	}
	if got := fmt.Sprint(d.Validate(o, nil, in)); !strings.Contains(got, "spec.runtimeRef") {
		t.Errorf("without a runtime: %s", got)
	}
	suspended, running := parse(t, job), parse(t, job)
	view.Set(suspended.Object, true, "spec", "suspend")
	view.Set(running.Object, false, "spec", "suspend")
	if errs := d.Validate(suspended, running, in); len(errs) > 0 {
		t.Errorf("a stop without a runtime: %v", errs)
	}
	if got := fmt.Sprint(d.Validate(running, suspended, in)); !strings.Contains(got, "spec.runtimeRef") {
		t.Errorf("a start without a runtime: %s", got)
	}
}

func TestDefault(t *testing.T) {
	d := trainjob.Descriptor(trainingplan.DefaultConfig())
	for _, managed := range []bool{true, false} {
		o := parse(t, job)
		for range 2 { // webhooks may be called again
			d.Default(o, managed, nil)
		}
		want := parse(t, job)
		if managed {
			want = parse(t, job+"  - {manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {spec: {}}}}\n")
		}
		if diff := cmp.Diff(want.Object, o.Object); diff != "" {
			t.Errorf("managed %v -want +got:\n%s", managed, diff)
		}
	}
}
