// Package trainjob is the descriptor of TrainJob.
//
// The pod sets of a TrainJob come from the plan of its JobSet. Berth starts and stops it
// by one runtime patch, of its own manager:
//
//	start   the patch and suspend: false, in one write
//	stop    suspend: true, and the patch emptied: in one write if no Job is active,
//	        else later, because Trainer refuses it while Jobs are active
//
// So pods that could start always have the patch. Patches of other managers, and unknown
// fields, are never written (spec: 30 §4.9).
package trainjob

import (
	"errors"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	jobsetplan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/options"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// manager is Berth's manager of runtime patches.
const manager = "kueue.x-k8s.io/manager"

// ownManager is the value of spec.managedBy for the TrainJob controller.
const ownManager = "trainer.kubeflow.org/trainjob-controller"

var (
	suspendPath   = []string{"spec", "suspend"}
	managedByPath = []string{"spec", "managedBy"}
	patchedJobs   = []string{"trainingRuntimeSpec", "template", "spec", "replicatedJobs"}
)

// Descriptors returns TrainJob for a manager with the given configuration; nil is the default configuration.
func Descriptors(o *options.Options) []*plan.Descriptor {
	if o == nil {
		return []*plan.Descriptor{Descriptor(trainingplan.DefaultConfig())}
	}
	return []*plan.Descriptor{Descriptor(lookup.TrainingConfig(o, ""))}
}

// Descriptor describes TrainJob. cfg is the configuration of the TrainJob controller.
func Descriptor(cfg *trainingplan.Config) *plan.Descriptor {
	k := kind{cfg}
	d := view.Kind{
		Framework:  "trainer.kubeflow.org/trainjob",
		GVK:        trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob),
		Resource:   "trainjobs",
		Suspend:    suspendPath,
		ManagedBy:  managedByPath,
		OwnManager: ownManager,
		Finished:   view.FinishedBy("Complete", "Failed"),
		IsActive:   isActive,
	}.Descriptor()
	d.Listing = plan.Listing{Workers: 5, Rules: []rbacv1.PolicyRule{
		plan.Allow("", []string{"configmaps"}, "get"),
		plan.Allow(jobsetv1alpha2.GroupVersion.Group, []string{jobsetv1alpha2.ResourceJobSets}, "get", "list", "watch"),
		plan.Allow(trainerv1alpha1.GroupVersion.Group, []string{"clustertrainingruntimes", "trainingruntimes"}, "get", "list", "watch"),
	}}
	d.Refers = k.refers
	d.PodSets = k.podSets
	d.IsSuspended = func(o plan.Object) bool { return isSuspended(view.Of(o)) && !isPatched(view.Of(o)) }
	d.Stops = &plan.Stops{Next: stop, Begun: func(o plan.Object) bool { return isSuspended(view.Of(o)) && isPatched(view.Of(o)) }}
	d.Start = k.start
	d.Restore = func(o plan.Object, _ []kueue.PodSet) bool { return emptyPatch(view.Of(o)) }
	d.Planned = &plan.Planned{
		Runs:    runs,
		Refused: func(err error) bool { return apierrors.IsForbidden(err) && patch.IsFinal(err.Error()) },
		Passes:  func(err error) bool { return apierrors.IsForbidden(err) && patch.IsPassing(err.Error()) },
	}
	d.PodsReady = k.podsReady
	d.Reclaimable = k.reclaimable
	d.Default = func(o plan.Object, managed bool, _ *plan.Setting) {
		if managed {
			patchEntry(view.Of(o))
		}
	}
	d.Validate, d.Sizes = k.validate, nil                       // plan.Validate of training checks the size
	d.PodLabels = plan.PodsByName(jobsetv1alpha2.JobSetNameKey) // its JobSet has its name
	d.Remote.Prepare = removePatch
	d.Owns = []plan.Child{{GVK: jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet), Made: k.madeJobSet}}
	return d
}

// removePatch removes Berth's patch from the copy for a worker, whose webhook adds its own.
func removePatch(tree map[string]any) {
	patches, _, _ := unstructured.NestedSlice(tree, "spec", "runtimePatches")
	rest := slices.DeleteFunc(patches, func(p any) bool {
		m, ok := p.(map[string]any)
		return ok && m["manager"] == manager
	})
	if len(rest) == 0 {
		unstructured.RemoveNestedField(tree, "spec", "runtimePatches")
	} else {
		_ = unstructured.SetNestedSlice(tree, rest, "spec", "runtimePatches") // spec exists
	}
}

type kind struct{ cfg *trainingplan.Config }

func isSuspended(o view.Object) bool { return view.Bool(o.Object, suspendPath...) }

func snapshotRef(o plan.Object) plan.Reference {
	return plan.Reference{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Name: o.GetName() + trainerv1alpha1.SuffixRuntimeSnapshot, Uncached: true}
}

// runtimeRef refers to the runtime of a TrainJob. The last is false if its kind is not supported.
func runtimeRef(job *trainerv1alpha1.TrainJob) (plan.Reference, bool) {
	_, name := trainingplan.RefKind(&job.Spec.RuntimeRef)
	return plan.Reference{
		GVK: trainerv1alpha1.GroupVersion.WithKind(name), Name: job.Spec.RuntimeRef.Name, Cluster: name == trainerv1alpha1.KindClusterTrainingRuntime,
	}, trainingplan.IsSupported(&job.Spec.RuntimeRef)
}

func (k kind) refers(o plan.Object) []plan.Reference {
	job, err := userJob(view.Of(o))
	if err != nil {
		return nil
	}
	var refs []plan.Reference
	if k.recorded(job) == nil {
		refs = append(refs, snapshotRef(o))
	}
	if ref, ok := runtimeRef(job); ok {
		refs = append(refs, ref)
	}
	if mayRun(o) {
		refs = append(refs, jobSetRef(o))
	}
	return refs
}

// mayRun reports whether the JobSet of a TrainJob may run.
func mayRun(o plan.Object) bool { return !isSuspended(view.Of(o)) || isActive(view.Of(o)) }

func jobSetRef(o plan.Object) plan.Reference {
	return plan.Reference{GVK: jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet), Name: o.GetName()}
}

func (k kind) recorded(job *trainerv1alpha1.TrainJob) *trainingplan.Runtime {
	if k.cfg.Recorded == nil {
		return nil
	}
	return k.cfg.Recorded(job)
}

// userJob returns a TrainJob without Berth's patch and spec.suspend, so that a start does not change the pod sets.
func userJob(o view.Object) (*trainerv1alpha1.TrainJob, error) {
	var job trainerv1alpha1.TrainJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &job); err != nil {
		return nil, podset.Permanent("the TrainJob cannot be read: %s", err)
	}
	kept := job.Spec.RuntimePatches[:0]
	for _, p := range job.Spec.RuntimePatches {
		if p.Manager != manager {
			kept = append(kept, p)
		}
	}
	job.Spec.RuntimePatches, job.Spec.Suspend = kept, nil
	return &job, nil
}

func (k kind) plannedSets(o plan.Object, in *plan.Setting) ([]trainingplan.PodSet, error) {
	out, err := k.jobSet(o, in)
	if err != nil {
		return nil, err
	}
	return out.PodSets, nil
}

// derived is the plan of a TrainJob, or why there is none.
type derived struct {
	job  *trainerv1alpha1.TrainJob
	plan *trainingplan.Plan
	err  error
}

// isOf reports whether the plan was made from this state of the TrainJob.
func (d *derived) isOf(job *trainerv1alpha1.TrainJob) bool {
	return d.job.Name == job.Name && d.job.GenerateName == job.GenerateName && d.job.Namespace == job.Namespace && d.job.UID == job.UID &&
		equality.Semantic.DeepEqual(&d.job.Spec, &job.Spec) && equality.Semantic.DeepEqual(&d.job.Status, &job.Status)
}

// jobSet plans the JobSet of a TrainJob, once in a setting. The plan is shared: it must not be changed.
func (k kind) jobSet(o plan.Object, in *plan.Setting) (*trainingplan.Plan, error) {
	job, err := userJob(view.Of(o))
	if err != nil {
		return nil, err
	}
	if d, ok := in.Derived().(*derived); ok && d.isOf(job) {
		return d.plan, d.err
	}
	d := &derived{job: job}
	var r *trainingplan.Runtime
	if r, d.err = k.runtimeOf(job, in); d.err == nil {
		d.plan, d.err = trainingplan.BuildJobSet(&trainingplan.Input{TrainJob: job, Runtime: r, Config: k.cfg})
	}
	in.Derive(d)
	return d.plan, d.err
}

// runtimeOf returns the runtime of the snapshot, or else the live one. A snapshot of an earlier TrainJob of the same name, or one
// that the status does not confirm, is ignored: the controller replaces it.
func (k kind) runtimeOf(job *trainerv1alpha1.TrainJob, in *plan.Setting) (*trainingplan.Runtime, error) {
	if r := k.recorded(job); r != nil {
		return r, nil
	}
	if found, ok := in.Objects[snapshotRef(job)]; ok && !trainingplan.IsOfEarlier(job, found) {
		var snapshot corev1.ConfigMap
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(view.Of(found).Object, &snapshot)
		if err != nil {
			return nil, err
		}
		if out, err := trainingplan.ReadSnapshot(job, &snapshot); !errors.Is(err, trainingplan.ErrUnproven) {
			return out, err
		}
	}
	ref, supported := runtimeRef(job)
	if !supported {
		return nil, podset.Permanent("runtimes of kind %s are not supported", ref.GVK.Kind)
	}
	found, ok := in.Objects[ref]
	if !ok {
		return nil, podset.NotYet("%s %s does not exist: create it, or name another one in spec.runtimeRef", ref.GVK.Kind, ref.Name)
	}
	var out trainingplan.Runtime
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(view.Of(found).Object, &out); err != nil {
		return nil, podset.Permanent("%s %s cannot be read: %s", ref.GVK.Kind, ref.Name, err)
	}
	out.APIVersion, out.Kind = trainerv1alpha1.GroupVersion.String(), ref.GVK.Kind
	return &out, nil
}

func (k kind) podSets(o plan.Object, in *plan.Setting) ([]kueue.PodSet, error) {
	sets, err := k.plannedSets(o, in)
	if err != nil {
		return nil, err
	}
	return workloadSets(sets, in), nil
}

// runningSets are the pod sets of the JobSet of a TrainJob that runs, or is being stopped. A JobSet that runs is not changed, also if
// another version of the controller has planned it.
func runningSets(o plan.Object, in *plan.Setting) []trainingplan.PodSet {
	found, ok := in.Objects[jobSetRef(o)]
	if !ok || !mayRun(o) || !metav1.IsControlledBy(found, o) {
		return nil
	}
	var jobset jobsetv1alpha2.JobSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(view.Of(found).Object, &jobset); err != nil {
		return nil
	}
	return trainingplan.PodSetsOf(&jobset)
}

func runs(o plan.Object, in *plan.Setting) []kueue.PodSet {
	return workloadSets(runningSets(o, in), in)
}

func workloadSets(sets []trainingplan.PodSet, in *plan.Setting) []kueue.PodSet {
	out := make([]kueue.PodSet, 0, len(sets))
	for _, s := range sets {
		template := *s.Template.DeepCopy()
		ranks := plan.Ranks{PodIndex: batchv1.JobCompletionIndexAnnotation, SubGroup: jobsetv1alpha2.JobIndexKey, SubGroups: s.Replicas}
		out = append(out, kueue.PodSet{
			Name: kueue.PodSetReference(s.Name), Count: plan.Times(s.Replicas, s.Count), Template: template,
			TopologyRequest: in.TopologyRequest(&template.ObjectMeta, ranks),
		})
	}
	return out
}

// patchEntry returns Berth's runtime patch, or adds an empty one.
func patchEntry(o view.Object) map[string]any {
	patches, _ := view.Get(o.Object, "spec", "runtimePatches").([]any)
	for _, p := range view.Maps(o.Object, "spec", "runtimePatches") {
		if view.String(p, "manager") == manager {
			return p
		}
	}
	added := map[string]any{"manager": manager}
	view.Set(added, map[string]any{}, "trainingRuntimeSpec", "template", "spec")
	view.Set(o.Object, append(patches, added), "spec", "runtimePatches")
	return added
}

func isPatched(o view.Object) bool {
	for _, p := range view.Maps(o.Object, "spec", "runtimePatches") {
		if view.String(p, "manager") == manager {
			return len(view.Maps(p, patchedJobs...)) > 0
		}
	}
	return false
}

// emptyPatch empties Berth's patch. It returns false if the patch was empty.
func emptyPatch(o view.Object) bool {
	if !isPatched(o) {
		return false
	}
	delete(view.Map(patchEntry(o), "trainingRuntimeSpec", "template", "spec"), "replicatedJobs")
	return true
}

// start writes the patch and ends the suspension. The patch repeats the tolerations of the runtime, because tolerations of a patch
// replace them.
func (k kind) start(o plan.Object, infos []plan.PodSetInfo, in *plan.Setting) error {
	sets, err := k.plannedSets(o, in)
	if err != nil {
		return err
	}
	if len(infos) != len(sets) {
		return podset.Permanent("the admission has %d pod sets and the TrainJob has %d", len(infos), len(sets))
	}
	jobs := make([]any, 0, len(sets))
	for i, s := range sets {
		merged := s.Template.DeepCopy()
		if err := infos[i].MergeInto(merged); err != nil {
			return err
		}
		var template corev1.PodTemplateSpec
		if err := infos[i].MergeInto(&template); err != nil {
			return err
		}
		template.Spec.Tolerations = merged.Spec.Tolerations
		patch := map[string]any{}
		if err := view.Directives(patch, &template); err != nil {
			return err
		}
		job := map[string]any{"name": s.Name}
		view.Set(job, patch, "template", "spec", "template")
		jobs = append(jobs, job)
	}
	view.Set(patchEntry(view.Of(o)), jobs, patchedJobs...)
	view.Set(view.Of(o).Object, false, suspendPath...)
	return nil
}

// stop suspends, then empties the patch. Patches may change only while no Job is active.
func stop(o plan.Object, _ []kueue.PodSet, _ plan.StopReason) (plan.Step, plan.Object) {
	job := view.Of(o)
	changed := job.DeepCopy()
	switch {
	case !isSuspended(job):
		view.Set(changed.Object, true, suspendPath...)
		if !isActive(job) {
			emptyPatch(changed)
		}
		return plan.Change, changed
	case !isPatched(job):
		return plan.Stopped, nil
	case isActive(job):
		return plan.Wait, nil
	default:
		emptyPatch(changed)
		return plan.Change, changed
	}
}

func jobsStatus(o view.Object) []map[string]any { return view.Maps(o.Object, "status", "jobsStatus") }

func isActive(o view.Object) bool {
	return slices.ContainsFunc(jobsStatus(o), func(s map[string]any) bool { return view.Int(s, 0, "active") > 0 })
}

func (k kind) podsReady(o plan.Object, in *plan.Setting) bool {
	sets, err := k.plannedSets(o, in)
	if err != nil {
		return false
	}
	var ready, wanted int64
	for _, s := range sets {
		wanted += int64(s.Replicas)
	}
	for _, s := range jobsStatus(view.Of(o)) {
		ready += int64(view.Int(s, 0, "ready")) + int64(view.Int(s, 0, "succeeded"))
	}
	return ready == wanted
}

func (k kind) reclaimable(o plan.Object, in *plan.Setting) []kueue.ReclaimablePod {
	sets := runningSets(o, in)
	if sets == nil {
		var err error
		if sets, err = k.plannedSets(o, in); err != nil {
			return nil
		}
	}
	var out []kueue.ReclaimablePod
	for _, set := range sets {
		for _, s := range jobsStatus(view.Of(o)) {
			if n := view.Int(s, 0, "succeeded"); view.String(s, "name") == set.Name && n > 0 && n <= set.Replicas {
				out = append(out, kueue.ReclaimablePod{Name: kueue.PodSetReference(set.Name), Count: plan.Times(n, set.Count)})
			}
		}
	}
	return out
}

// validate plans the pod sets, which fails without a runtime, and checks their topology annotations. A new TrainJob has no
// snapshot: the API server refuses it if the name is taken. A stop is valid whatever has become of the runtime.
func (k kind) validate(o, old plan.Object, in *plan.Setting) field.ErrorList {
	if o.GetDeletionTimestamp() != nil || stops(o, old) {
		return nil
	}
	if old == nil {
		objects := maps.Clone(in.Objects)
		delete(objects, snapshotRef(o))
		fresh := plan.NewSetting(in.Config, &plan.Observed{Objects: objects})
		fresh.Mode, fresh.Ancestor = in.Mode, in.Ancestor
		in = fresh
		bare := maps.Clone(view.Of(o).Object)
		delete(bare, "status") // the API server drops it
		o = &unstructured.Unstructured{Object: bare}
	}
	if old == nil && in.IsQueued(o) {
		if errs := k.validateName(o, in); len(errs) > 0 {
			return errs
		}
	}
	if !in.Topology {
		return nil
	}
	path := field.NewPath("spec", "runtimeRef")
	sets, err := k.plannedSets(o, in)
	if err != nil {
		return field.ErrorList{field.Invalid(path, view.String(view.Of(o).Object, "spec", "runtimeRef", "name"), err.Error())}
	}
	var errs field.ErrorList
	for _, s := range sets {
		errs = append(errs, in.ValidateTopology(&s.Template.ObjectMeta, path.Key(s.Name), plan.Times(s.Replicas, s.Count))...)
	}
	return errs
}

func stops(o, old plan.Object) bool {
	var job, before trainerv1alpha1.TrainJob
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	return old != nil && convert(view.Of(o).Object, &job) == nil && convert(view.Of(old).Object, &before) == nil && trainingplan.Stops(&job, &before)
}

// validateName refuses a TrainJob that could not start, because the name of a pod of its JobSet would be too long. Without a queue it holds
// no quota, and the TrainJob webhook warns (spec: 50 §3.2 V13).
func (k kind) validateName(o plan.Object, in *plan.Setting) field.ErrorList {
	built, err := k.jobSet(o, in)
	if err != nil {
		return nil // other rules refuse it
	}
	named := *built.JobSet
	if named.Name == "" {
		named.GenerateName = o.GetGenerateName()
	}
	return plan.LongName(o, "a pod of its JobSet", jobsetplan.LongestName(&named), plan.MaxLabel)
}
