package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/goldentest"
)

// TestScenarios plays testdata/*.txt: a header in prose, a JobSet, and commands with what the plan says to them.
//
//	gates NAME...                   turns gates on; lazy is LazyChildren, early FailEarly
//	jobset                          the JobSet, in the indented lines below, defaulted; raw as a second word: as it is
//	job NAME active N | ready N | suspended | terminating N | failing | fail REASON MESSAGE |
//	                                succeed | deleting | gone | unlabelled KEY | labelled KEY=VALUE | unmarked | selects KEY=VALUE...
//	pod NAME attempt N | restarts N | failed | gone
//	set PATCH                       merges JSON into the JobSet
//	after DURATION                  moves the clock
//	foreign NAME                    makes a claim that is not ours
//	decide                          makes a plan, prints it and carries it out; quietly as a second word: prints nothing
//	show NAME                       prints the Job, Service or claim
//	status                          prints the status
func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(src))
			goldentest.Check(t, path, got)
			if !strings.HasPrefix(got, "# ") {
				t.Error("it does not begin with prose")
			}
		})
	}
}

// tester is what tests, benchmarks and properties have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is what the plan acts upon.
type world struct {
	t        tester
	c        Config
	js       *jobsetv1alpha2.JobSet
	jobs     map[string]*batchv1.Job
	pods     map[string]*corev1.Pod
	claims   map[string]metav1.Object
	service  *corev1.Service
	now      time.Time
	uids     int
	out      strings.Builder
	deleted  bool
	plans    int
	lastPlan Plan
}

func newWorldAt(t tester) *world {
	return &world{
		t: t, jobs: map[string]*batchv1.Job{}, pods: map[string]*corev1.Pod{}, claims: map[string]metav1.Object{},
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

// play runs a scenario and returns it with the output of now.
func play(t tester, src string) string {
	w := newWorldAt(t)
	lines := strings.Split(src, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "= ") || line == "=" {
			continue
		}
		w.out.WriteString(line)
		if i < len(lines)-1 {
			w.out.WriteString("\n")
		}
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, " ") {
			continue
		}
		if strings.HasPrefix(line, "jobset") {
			var doc []string
			for k := i + 1; k < len(lines) && strings.HasPrefix(lines[k], " "); k++ {
				doc = append(doc, lines[k])
			}
			w.create(strings.Join(doc, "\n"), line == "jobset raw")
			continue
		}
		w.command(line)
	}
	return w.out.String()
}

func (w *world) create(doc string, raw bool) {
	w.t.Helper()
	js := &jobsetv1alpha2.JobSet{}
	if err := yaml.UnmarshalStrict([]byte(doc), js); err != nil {
		w.t.Fatal(err)
	}
	if js.Name == "" {
		js.Name = "ring"
	}
	js.Namespace, js.UID = "lab", "uid-js"
	for i := range js.Spec.ReplicatedJobs { // as the schema does
		if rj := &js.Spec.ReplicatedJobs[i]; rj.Replicas == nil {
			rj.Replicas = new(int32(1))
		}
	}
	if !raw {
		Default(js)
		if errs := w.c.Validate(js, nil); len(errs) > 0 {
			w.t.Fatalf("the JobSet is refused: %v", errs.ToAggregate())
		}
	}
	w.js = js
}

func (w *world) print(format string, args ...any) {
	for line := range strings.Lines(strings.TrimRight(fmt.Sprintf(format, args...), "\n")) {
		w.out.WriteString("= " + strings.TrimRight(line, "\n") + "\n")
	}
}

func (w *world) command(line string) {
	w.t.Helper()
	words := strings.Fields(line)
	switch words[0] {
	case "gates":
		for _, gate := range words[1:] {
			on := map[string]*bool{
				"InPlaceRestart": &w.c.InPlaceRestart, "RestartJob": &w.c.RestartJob, "ElasticJobSet": &w.c.ElasticJobSet, "lazy": &w.c.LazyChildren, "early": &w.c.FailEarly,
			}[gate]
			*on = true
		}
	case "job":
		w.job(words[1], words[2], words[3:])
	case "pod":
		w.pod(words[1], words[2:])
	case "set":
		w.merge(strings.TrimPrefix(line, "set "))
	case "after":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(d)
	case "foreign":
		w.claims[words[1]] = &metav1.ObjectMeta{Name: words[1]}
	case "decide":
		plan := w.c.Decide(w.observed())
		if len(words) == 1 {
			w.print("%s", render(&plan, w.js))
		}
		w.carryOut(&plan)
	case "show":
		w.print("%s", w.show(words[1]))
	case "status":
		w.print("%s", toYAML(w.t, &w.js.Status))
	default:
		w.t.Fatalf("%s is no command", words[0])
	}
}

func (w *world) job(name, verb string, args []string) {
	w.t.Helper()
	j := w.jobs[name]
	if j == nil {
		w.t.Fatalf("there is no Job %s", name)
	}
	s := &j.Status
	amount := func() int32 {
		n, err := strconv.ParseInt(args[0], 10, 32)
		if err != nil {
			w.t.Fatal(err)
		}
		return int32(n)
	}
	condition := func(t batchv1.JobConditionType, reason, message string) {
		s.Conditions = append(s.Conditions, batchv1.JobCondition{
			Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(w.now),
		})
	}
	switch verb {
	case "active":
		s.Active, s.Ready = amount(), new(int32(0))
		if s.StartTime == nil {
			s.StartTime = new(metav1.NewTime(w.now))
		}
	case "ready":
		s.Active, s.Ready = amount(), new(amount())
	case "suspended":
		s.Active, s.Ready = 0, nil
	case "failing":
		s.Active, s.Ready = 0, nil
		condition(batchv1.JobFailureTarget, "BackoffLimitExceeded", "")
	case "fail":
		s.Active, s.Ready = 0, nil
		condition(batchv1.JobFailed, args[0], strings.Join(args[1:], " "))
	case "succeed":
		s.Active, s.Ready = 0, nil
		condition(batchv1.JobComplete, "CompletionsReached", "")
	case "terminating":
		s.Active, s.Ready, s.Terminating = 0, nil, new(amount())
	case "deleting":
		j.DeletionTimestamp = new(metav1.NewTime(w.now))
	case "gone":
		delete(w.jobs, name)
	case "unlabelled":
		delete(j.Labels, args[0])
	case "labelled":
		k, v, _ := strings.Cut(args[0], "=")
		j.Labels[k] = v
	case "unmarked": // as an upstream controller left it
		delete(j.Annotations, FingerprintAnnotation)
	case "selects": // as an upstream controller merged it
		j.Spec.Template.Spec.NodeSelector = map[string]string{}
		for _, arg := range args {
			k, v, _ := strings.Cut(arg, "=")
			j.Spec.Template.Spec.NodeSelector[k] = v
		}
	default:
		w.t.Fatalf("%s is nothing that happens to a Job", verb)
	}
}

func (w *world) pod(name string, args []string) {
	if args[0] == "gone" {
		delete(w.pods, name)
		return
	}
	if w.pods[name] == nil {
		w.pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	}
	switch args[0] {
	case "attempt":
		w.pods[name].Annotations[jobsetv1alpha2.InPlaceRestartAttemptAnnotation] = args[1]
	case "restarts":
		n, _ := strconv.ParseInt(args[1], 10, 32)
		w.pods[name].Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: int32(n)}}
	case "failed":
		w.pods[name].Status.Phase = corev1.PodFailed
	default:
		w.t.Fatalf("%s is nothing that happens to a pod", args[0])
	}
}

func (w *world) merge(patch string) {
	w.t.Helper()
	w.js = mergeJSON(w.t, w.js, []byte(patch))
}

// mergeJSON applies a JSON merge patch.
func mergeJSON[T any](t tester, object *T, patch []byte) *T {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var base, changes map[string]any
	if err := json.Unmarshal(raw, &base); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(patch, &changes); err != nil {
		t.Fatal(err)
	}
	mergeMap(base, changes)
	if raw, err = json.Marshal(base); err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func mergeMap(base, changes map[string]any) {
	for k, v := range changes {
		inner, isMap := v.(map[string]any)
		old, wasMap := base[k].(map[string]any)
		switch {
		case v == nil:
			delete(base, k)
		case isMap && !wasMap:
			old = map[string]any{}
			base[k] = old
			mergeMap(old, inner)
		case isMap:
			mergeMap(old, inner)
		default:
			base[k] = v
		}
	}
}

func (w *world) observed() *Observed {
	var jobs []Job
	for _, j := range w.jobs {
		jobs = append(jobs, NewJob(j))
	}
	return &Observed{
		JobSet: w.js, Jobs: jobs, Pods: slices.Collect(maps.Values(w.pods)), // in no order
		ServiceExists: w.service != nil, Claims: w.claims, Now: w.now,
		Priorities: Priorities{Classes: map[string]int32{"high": 1000}},
	}
}

// carryOut does what a plan says, as far as it has to do with the JobSet. Jobs that are deleted stay until they are gone.
func (w *world) carryOut(p *Plan) {
	w.t.Helper()
	w.plans++
	w.lastPlan = *p
	if p.Status != nil {
		w.js = w.js.DeepCopy()
		w.js.Status = *p.Status
	}
	w.deleted = w.deleted || p.DeleteJobSet
	for _, j := range p.Delete {
		w.jobs[j.Name] = w.jobs[j.Name].DeepCopy()
		w.jobs[j.Name].DeletionTimestamp = new(metav1.NewTime(w.now))
	}
	for _, patch := range p.Patches {
		changed := mergeJSON(w.t, w.jobs[patch.Job.Name], patch.Data)
		if patch.Template && changed.Status.Active > 0 {
			w.t.Fatalf("the template of %s changes while it has pods", patch.Job.Name)
		}
		w.jobs[patch.Job.Name] = changed
	}
	if p.Service != nil {
		w.service = p.Service
	}
	for _, policy := range p.Claims {
		for _, claim := range policy {
			w.claims[claim.Name] = claim
		}
	}
	for _, j := range built(p) {
		if w.jobs[j.Name] != nil {
			w.t.Fatalf("Job %s is created while it exists", j.Name)
		}
		w.uids++
		j.UID = types.UID("uid-" + strconv.Itoa(w.uids))
		put(&j.Spec.Template.Labels, batchv1.JobNameLabel, j.Name) // as the API server does
		w.jobs[j.Name] = j
	}
}

func (w *world) show(name string) string {
	w.t.Helper()
	if w.service != nil && name == "service" {
		return toYAML(w.t, w.service)
	}
	if claim := w.claims[name]; claim != nil {
		return toYAML(w.t, claim)
	}
	return toYAML(w.t, w.jobs[name])
}

func toYAML(t tester, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// render is a plan in lines.
func render(p *Plan, before *jobsetv1alpha2.JobSet) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if p.Status != nil {
		line("status: %s", statusLine(p.Status, &before.Status))
	}
	for _, e := range p.Events {
		kind := "event"
		if e.Warning {
			kind = "warning"
		}
		line("%s %s: %s", kind, e.Reason, e.Note)
	}
	if p.DeleteJobSet {
		line("delete the JobSet")
	}
	names := func(jobs []*batchv1.Job) string {
		out := make([]string, 0, len(jobs))
		for _, j := range jobs {
			out = append(out, j.Name)
		}
		return strings.Join(out, " ")
	}
	if len(p.Delete) > 0 {
		line("delete %s", names(p.Delete))
	}
	for _, patch := range p.Patches {
		line("patch %s %s", patch.Job.Name, patch.Data)
	}
	if p.Service != nil {
		line("create Service %s", p.Service.Name)
	}
	for _, policy := range p.Claims {
		for _, claim := range policy {
			line("create claim %s", claim.Name)
		}
	}
	if made := built(p); len(made) > 0 {
		line("create %s", names(made))
	}
	if p.After > 0 {
		line("again in %s", p.After)
	}
	for _, warning := range p.Warnings {
		line("log: %s", warning)
	}
	if p.Err != nil {
		line("error: %v", p.Err)
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}

// statusLine is what a status says now: counters that are not 0, conditions that changed.
func statusLine(s, old *jobsetv1alpha2.JobSetStatus) string {
	var parts []string
	if s.TerminalState != old.TerminalState {
		parts = append(parts, s.TerminalState)
	}
	if s.Restarts != old.Restarts {
		parts = append(parts, fmt.Sprintf("restarts %d (%d count)", s.Restarts, s.RestartsCountTowardsMax))
	}
	for _, c := range s.Conditions {
		if was := condition(old, c.Type); was == nil || *was != c {
			parts = append(parts, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
		}
	}
	for _, r := range s.ReplicatedJobsStatus {
		text := r.Name
		for _, n := range []struct {
			name  string
			value int32
		}{{"ready", r.Ready}, {"succeeded", r.Succeeded}, {"failed", r.Failed}, {"active", r.Active}, {"suspended", r.Suspended}} {
			if n.value > 0 {
				text += fmt.Sprintf(" %s=%d", n.name, n.value)
			}
		}
		if r.JobRestarts != nil {
			text += fmt.Sprint(" restarts=", r.JobRestarts)
		}
		if r.JobRestartsCountTowardsMax != nil {
			text += fmt.Sprint(" count=", r.JobRestartsCountTowardsMax)
		}
		parts = append(parts, text)
	}
	if d := s.PreviousInPlaceRestartAttempt; d != nil {
		parts = append(parts, fmt.Sprintf("previous attempt %d", *d))
	}
	if d := s.CurrentInPlaceRestartAttempt; d != nil {
		parts = append(parts, fmt.Sprintf("current attempt %d", *d))
	}
	return strings.Join(parts, "; ")
}

func condition(s *jobsetv1alpha2.JobSetStatus, t string) *metav1.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// built are the Jobs that a plan creates.
func built(p *Plan) []*batchv1.Job {
	var out []*batchv1.Job
	for _, m := range missing(p) {
		out = append(out, m.Build())
	}
	return out
}

// missing are all Jobs that a plan creates.
func missing(p *Plan) []Missing {
	if p.Create == nil {
		return nil
	}
	return slices.Collect(p.Create)
}
