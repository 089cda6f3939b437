package plan

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// walk visits the replicated jobs in their order. Of each that may start, it creates the missing Jobs and resumes the
// suspended ones. It reports whether all have started, or need not start in order (spec: 60 §4.4, §4.7).
func (p *pass) walk(lazy bool) bool {
	policy := p.js.Spec.StartupPolicy
	inOrder := policy != nil && policy.StartupPolicyOrder == jobsetv1alpha2.StartupInOrder && !p.suspended()
	for i := range p.replicated {
		if !p.mayStart(i) {
			continue
		}
		if !lazy && !p.blocked() {
			p.findMissing(i)
		}
		if !p.suspended() {
			p.resume(i)
		}
		if inOrder && !p.isStarted(i) {
			p.startup(false)
			return false
		}
	}
	if inOrder {
		p.startup(true)
	}
	return true
}

// blocked reports whether Jobs of an older attempt prevent creations.
func (p *pass) blocked() bool {
	policy := p.js.Spec.FailurePolicy
	return p.previous > 0 && policy != nil && policy.RestartStrategy == jobsetv1alpha2.RestartBlockingRecreate
}

// isStarted reports whether every Job of a replicated job is ready or finished.
func (p *pass) isStarted(i int) bool {
	n := &p.counts[i]
	return n.Ready+n.Failed+n.Succeeded == p.replicated[i].replicas
}

// mayStart reports whether the dependencies of a replicated job are fulfilled.
func (p *pass) mayStart(i int) bool {
	for _, d := range p.replicated[i].DependsOn {
		on, ok := p.byName[d.Name]
		if !ok {
			return false
		}
		holds := p.isStarted(on)
		if d.Status == jobsetv1alpha2.DependencyComplete {
			holds = p.counts[on].Succeeded == p.replicated[on].replicas
		}
		if !holds {
			return false
		}
	}
	return true
}

// findMissing plans the creation of the Jobs of a replicated job whose names do not exist in any state: a Job that is
// still being deleted delays only its own replacement.
func (p *pass) findMissing(i int) {
	if !isComplete(p.childrenOf(i), p.replicated[i].replicas) {
		p.missing = append(p.missing, i)
		p.plan.Create = p.eachMissing
	}
}

func (p *pass) eachMissing(yield func(Missing) bool) {
	existing := make(map[string]bool, len(p.children))
	for k := range p.children {
		existing[p.children[k].Object.Name] = true
	}
	for _, i := range p.missing {
		r := &p.replicated[i]
		for index := range int(r.replicas) {
			if !existing[JobName(p.js.Name, r.Name, index)] && !yield(Missing{p, r, index}) {
				return
			}
		}
	}
}

// isComplete reports whether the children of a replicated job, sorted by index, are exactly its Jobs. That is
// the usual case, so it is checked without a table of names.
func isComplete(children []child, replicas int32) bool {
	if len(children) != int(replicas) {
		return false
	}
	for i := range children {
		if c := &children[i]; !c.regular || int(c.index) != i {
			return false
		}
	}
	return true
}

func (p *pass) childrenOf(i int) []child {
	from, _ := slices.BinarySearchFunc(p.children, i, func(c child, rj int) int { return int(c.rj) - rj })
	to, _ := slices.BinarySearchFunc(p.children, i+1, func(c child, rj int) int { return int(c.rj) - rj })
	return p.children[from:to]
}

func (p *pass) suspend() {
	for i := range p.children {
		if c := &p.children[i]; c.state == active && !c.suspended && !c.deleting {
			p.patch(c.Object, jobPatch{Spec: specPatch{Suspend: new(true)}})
		}
	}
	const message = "the jobset is suspended"
	p.set(jobsetv1alpha2.ConditionSuspended, metav1.ConditionTrue, jobsetv1alpha2.ReasonSuspended, message)
	p.set(jobsetv1alpha2.ConditionRestarting, metav1.ConditionFalse, jobsetv1alpha2.ReasonJobSetSuspended, message)
}

// resumed turns Suspended off; with an in-order start only once all have started.
func (p *pass) resumed(started bool) {
	if started {
		p.set(jobsetv1alpha2.ConditionSuspended, metav1.ConditionFalse, jobsetv1alpha2.ReasonResumed, "the jobset is resumed")
	}
}

// resume starts the suspended Jobs of a replicated job with the pod template of the present spec.
//
// The fields that a resume changes are rebuilt from the spec, without remains of an earlier placement. A Job waits until the pods of
// its old template are deleted. A running Job with an old template, after a suspend and a resume in one change, is
// suspended and then resumed.
func (p *pass) resume(i int) {
	r := &p.replicated[i]
	children := p.childrenOf(i)
	for k := range children {
		c := &children[k]
		if c.state != active || c.deleting {
			continue
		}
		stale := isStale(r, c.Job)
		switch {
		case !c.suspended && stale:
			p.patch(c.Object, jobPatch{Spec: specPatch{Suspend: new(true)}})
		case c.suspended && !stale:
			p.patch(c.Object, jobPatch{Spec: specPatch{Suspend: new(false)}})
		case c.suspended && c.Object.Status.Active == 0 && ptr.Deref(c.Object.Status.Terminating, 0) == 0: // it has no pods
			p.patch(c.Object, rebuild(r, c))
		}
	}
}

// FingerprintAnnotation is the version of the fields that a resume changes, on every Job that Berth creates or resumes. Fields that
// other clients add to a Job make no difference, as they would in a comparison of the fields.
const FingerprintAnnotation = "berth.dev/resume-fields"

// scheduling are the fields of a pod template that may change while a JobSet is suspended (spec: 60 §3.4).
type scheduling struct {
	Labels          map[string]string          `json:"labels,omitempty"`
	Annotations     map[string]string          `json:"annotations,omitempty"`
	NodeSelector    map[string]string          `json:"nodeSelector,omitempty"`
	Tolerations     []corev1.Toleration        `json:"tolerations,omitempty"`
	SchedulingGates []corev1.PodSchedulingGate `json:"schedulingGates,omitempty"`
}

func schedulingOf(t *corev1.PodTemplateSpec) scheduling {
	return scheduling{t.Labels, t.Annotations, t.Spec.NodeSelector, t.Spec.Tolerations, t.Spec.SchedulingGates}
}

// fingerprint returns 16 hexadecimal digits that change with those fields.
func fingerprint(rj *jobsetv1alpha2.ReplicatedJob) string {
	h := fnv.New64a()
	text, err := json.Marshal(schedulingOf(&rj.Template.Spec.Template)) // with sorted keys
	if err != nil {
		panic(err) // strings and numbers
	}
	_, _ = h.Write(text)
	out := strconv.FormatUint(h.Sum64(), 16)
	return "0000000000000000"[len(out):] + out
}

// isStale reports whether a Job has other fields than the spec. A Job of an upstream controller has no fingerprint:
// if suspended, it is compared field by field; if running, it is stale only if it lacks a field, because upstream
// retains fields of earlier admissions, and a running Job must not be stopped for that.
func isStale(r *replicated, j *Job) bool {
	if j.stamped {
		return j.fingerprint != r.hash
	}
	have, want := schedulingOf(&j.Object.Spec.Template), schedulingOf(&r.Template.Spec.Template)
	if lacks(have.Labels, want.Labels) || lacks(have.Annotations, want.Annotations) || lacks(have.NodeSelector, want.NodeSelector) ||
		lacksAny(have.Tolerations, want.Tolerations) || lacksAny(have.SchedulingGates, want.SchedulingGates) {
		return true
	}
	if !j.suspended {
		return false
	}
	has := slices.DeleteFunc(slices.Clone(have.Tolerations), func(t corev1.Toleration) bool { return t.Key == jobsetv1alpha2.NoScheduleTaint })
	return lacks(want.Labels, have.Labels) || lacks(want.Annotations, have.Annotations) || lacks(want.NodeSelector, have.NodeSelector) ||
		lacksAny(want.Tolerations, has) || lacksAny(want.SchedulingGates, have.SchedulingGates)
}

// lacks reports whether have lacks a pair of want. Keys that are not the user's do not count.
func lacks(have, want map[string]string) bool {
	for k, v := range want { //berth:unordered the answer is the same in any order
		if got, ok := have[k]; (!ok || got != v) && !owned(k) && !madeByAPIServer(k) {
			return true
		}
	}
	return false
}

func lacksAny[T any](have, want []T) bool {
	return slices.ContainsFunc(want, func(w T) bool {
		return !slices.ContainsFunc(have, func(h T) bool { return equality.Semantic.DeepEqual(h, w) })
	})
}

// madeByAPIServer reports whether the API server adds a label to the pod template of a new Job, which is not valid without it.
func madeByAPIServer(key string) bool {
	switch key {
	case batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name":
		return true
	}
	return false
}

// Merge patch of a Job.
type (
	jobPatch struct {
		Metadata metadataPatch `json:"metadata"`
		Spec     specPatch     `json:"spec"`
	}
	metadataPatch struct {
		UID         types.UID          `json:"uid,omitempty"` // pins the patch to this very Job
		Labels      map[string]*string `json:"labels,omitempty"`
		Annotations map[string]*string `json:"annotations,omitempty"`
	}
	specPatch struct {
		Suspend     *bool          `json:"suspend,omitempty"`
		Parallelism *int32         `json:"parallelism,omitempty"`
		Completions *int32         `json:"completions,omitempty"`
		Template    *templatePatch `json:"template,omitempty"`
	}
	templatePatch struct {
		Metadata metadataPatch `json:"metadata"`
		Spec     podPatch      `json:"spec"`
	}
	podPatch struct {
		NodeSelector    map[string]*string          `json:"nodeSelector,omitempty"`
		Tolerations     *[]corev1.Toleration        `json:"tolerations,omitempty"`
		SchedulingGates *[]corev1.PodSchedulingGate `json:"schedulingGates,omitempty"`
	}
)

func (p *pass) patch(j *batchv1.Job, patch jobPatch) {
	patch.Metadata.UID = j.UID
	data, err := json.Marshal(patch)
	if err != nil {
		panic(err) // strings, numbers and flags
	}
	p.plan.Patches = append(p.plan.Patches, Patch{Job: j, Data: data, Template: patch.Spec.Template != nil})
}

// rebuild resumes a Job with the fields of the spec. The identity of the Job and its pods is retained, and so is their
// placement by the annotations of the Job.
func rebuild(r *replicated, c *child) jobPatch {
	have, want := schedulingOf(&c.Object.Spec.Template), schedulingOf(r.Template.Spec.Template.DeepCopy())
	keep := func(to *map[string]string, from map[string]string) {
		maps.DeleteFunc(*to, func(k, _ string) bool { return owned(k) })
		for k, v := range from { //berth:unordered into a map
			if owned(k) || madeByAPIServer(k) {
				put(to, k, v)
			}
		}
	}
	keep(&want.Labels, have.Labels)
	keep(&want.Annotations, have.Annotations)
	if usesNodeSelector(c.Object.Annotations) {
		put(&want.NodeSelector, jobsetv1alpha2.NamespacedJobLabel, namespacedJob(c.Object))
		want.Tolerations = withToleration(want.Tolerations)
	}
	t := &templatePatch{
		Metadata: metadataPatch{Labels: difference(have.Labels, want.Labels), Annotations: difference(have.Annotations, want.Annotations)},
		Spec:     podPatch{NodeSelector: difference(have.NodeSelector, want.NodeSelector)},
	}
	if !equality.Semantic.DeepEqual(have.Tolerations, want.Tolerations) {
		t.Spec.Tolerations = nonNil(want.Tolerations)
	}
	if !equality.Semantic.DeepEqual(have.SchedulingGates, want.SchedulingGates) {
		t.Spec.SchedulingGates = nonNil(want.SchedulingGates)
	}
	return jobPatch{
		Metadata: metadataPatch{Annotations: map[string]*string{FingerprintAnnotation: &r.hash}},
		Spec:     specPatch{Suspend: new(false), Template: t},
	}
}

// difference returns the merge patch from one map to another.
func difference(from, to map[string]string) map[string]*string {
	out := map[string]*string{}
	for k := range from { //berth:unordered into a map
		if _, ok := to[k]; !ok {
			out[k] = nil
		}
	}
	for k, v := range to { //berth:unordered into a map
		if have, ok := from[k]; !ok || have != v {
			out[k] = &v
		}
	}
	return out
}

// nonNil returns a pointer to a list that is encoded even if it is empty.
func nonNil[T any](list []T) *[]T {
	if list == nil {
		list = []T{}
	}
	return &list
}

// resize sets the numbers of pods of running Jobs to those in their templates (spec: 60 §4.8). An absent number is one.
func (p *pass) resize() {
	if !p.ElasticJobSet {
		return
	}
	for i := range p.children {
		c := &p.children[i]
		if c.state != active || c.rj < 0 || c.deleting || !isIndexed(c.Object.Spec.CompletionMode) {
			continue
		}
		t := &p.replicated[c.rj].Template.Spec
		pods := ptr.Deref(t.Parallelism, 1)
		if (t.Parallelism == nil) != (t.Completions == nil) || pods != ptr.Deref(t.Completions, 1) {
			continue
		}
		if ptr.Deref(c.Object.Spec.Parallelism, 1) != pods || ptr.Deref(c.Object.Spec.Completions, 1) != pods {
			p.patch(c.Object, jobPatch{Spec: specPatch{Parallelism: &pods, Completions: &pods}})
		}
	}
}

func isIndexed(mode *batchv1.CompletionMode) bool {
	return mode != nil && *mode == batchv1.IndexedCompletion
}
