package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// Request is a TrainJob to be validated, with the objects that the rules need.
type Request struct {
	patch.Request
	Config *Config

	// Runtime is that of the snapshot, or else the live one; nil if neither exists.
	Runtime *Runtime
	// JobSet is that of the TrainJob's name, or nil; JobSetErr is why it could not be read. They are needed if patch.NeedsJobSet.
	JobSet    *jobsetv1alpha2.JobSet
	JobSetErr error
	// PriorityClasses tells which of PriorityClassNames exist. Nil: they are not checked.
	PriorityClasses map[string]bool
}

// Findings are the result of a validation.
type Findings struct {
	patch.Findings
	// Unsupported is the error about the kind of runtime, which has no field.
	Unsupported error
}

// Err returns all errors as one, or nil.
func (f *Findings) Err() error {
	if f.Unsupported == nil {
		return f.Errors.ToAggregate()
	}
	all := []error{f.Unsupported}
	for _, e := range f.Errors {
		all = append(all, e)
	}
	return utilerrors.NewAggregate(all)
}

type validation struct {
	*Request
	Findings

	// draft has the patches of the new TrainJob merged into the runtime's template; nil without a runtime.
	draft *builder
}

func (v *validation) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(v.Warnings, w) {
		v.Warnings = append(v.Warnings, w)
	}
}

func (v *validation) refuse(errs ...*field.Error) { v.Errors = append(v.Errors, errs...) }

var (
	specPath       = field.NewPath("spec")
	trainerPath    = specPath.Child("trainer")
	runtimeRefPath = specPath.Child("runtimeRef")
)

// Stops reports whether an update leaves a TrainJob suspended, and changes nothing of its spec but suspend and the patch of the queue, which
// it may empty. It is valid whatever has become of the runtime: the quota of the TrainJob is released by it.
func Stops(job, old *trainerv1alpha1.TrainJob) bool {
	if old == nil || !IsSuspended(job) {
		return false
	}
	now, before := *job, *old
	now.Spec.Suspend, before.Spec.Suspend = nil, nil
	if !isPlaced(job) {
		now.Spec.RuntimePatches, before.Spec.RuntimePatches = withoutQueue(job), withoutQueue(old)
	}
	return sameSpec(&now, &before)
}

func withoutQueue(job *trainerv1alpha1.TrainJob) []trainerv1alpha1.RuntimePatch {
	return slices.DeleteFunc(slices.Clone(job.Spec.RuntimePatches), func(p trainerv1alpha1.RuntimePatch) bool {
		return p.Manager == trainerv1alpha1.QueuePatchManager
	})
}

// Validate applies the rules for TrainJobs (spec: 50 §3.2) that are not in the schema. An update that does not change the spec, or of an
// object that is being deleted, is always valid, so that finalizers can be removed after the runtime is deleted. An update that Stops the
// TrainJob is not compared with the runtime.
func Validate(r *Request) Findings { return validate(&validation{Request: r}) }

func validate(v *validation) Findings {
	if v.Runtime != nil {
		v.warnDeprecated()
	}
	if v.Old != nil && (v.New.DeletionTimestamp != nil || sameSpec(v.New, v.Old)) {
		return v.Findings
	}
	if !IsSupported(&v.New.Spec.RuntimeRef) {
		group, kind := RefKind(&v.New.Spec.RuntimeRef)
		v.Unsupported = fmt.Errorf("unsupported runtime: %s.%s", kind, group)
		return v.Findings
	}
	if v.Runtime == nil && v.Old == nil {
		_, kind := RefKind(&v.New.Spec.RuntimeRef)
		v.refuse(field.Invalid(runtimeRefPath, v.New.Spec.RuntimeRef.Name, fmt.Sprintf("%s %s does not exist; it must be created before the TrainJob", kind, v.New.Spec.RuntimeRef.Name)))
	}
	if v.Runtime != nil && v.draft == nil {
		v.draft = newBuilder(&Input{TrainJob: v.New, Runtime: v.Runtime, Config: v.Config})
	}
	v.validatePresence()
	if errs := patch.Transition(v.New, v.Old, v.JobSet, v.JobSetErr); len(errs) > 0 {
		v.refuse(errs...)
		v.Denied = append(v.Denied, patch.DeniedTransition)
	}
	v.validatePatches()
	if v.Runtime != nil && !Stops(v.New, v.Old) {
		v.validateFit()
	}
	return v.Findings
}

// Fits returns why a TrainJob that starts does not fit its runtime, which may have changed since the webhook validated the TrainJob: the
// rules of creation except those about users (spec: 50 §3.2).
func (d *Draft) Fits(classes map[string]bool) error {
	in := d.b.Input
	free := in.Config.Patches
	free.Ownership.Mode = patch.OwnershipOff
	if free.ConflictPolicy == patch.ConflictReject {
		free.ConflictPolicy = patch.ConflictWarn // what got in is resolved by order, and shown in the status
	}
	f := validate(&validation{draft: d.b, Request: &Request{
		Request: patch.Request{New: in.TrainJob, Selected: patch.SelectedOf(in.TrainJob), Config: &free},
		Config:  in.Config, Runtime: in.Runtime, PriorityClasses: classes,
	}})
	return f.Err()
}

func sameSpec(job, old *trainerv1alpha1.TrainJob) bool {
	now, before := job.Spec, old.Spec
	now.RuntimePatches, before.RuntimePatches = patch.WithoutTimes(now.RuntimePatches), patch.WithoutTimes(before.RuntimePatches)
	return equality.Semantic.DeepEqual(&now, &before)
}

func (v *validation) validatePatches() {
	var template *trainerv1alpha1.JobSetTemplateSpec
	request, reserved := v.Request.Request, &patch.Reserved{}
	if v.Runtime != nil {
		template, request.Merged, reserved = &v.Runtime.Spec.Template, v.draft.merged, v.reserved()
	}
	found := patch.Validate(&request, template, reserved)
	v.refuse(found.Errors...)
	for _, w := range found.Warnings {
		v.warn("%s", w)
	}
	v.Denied, v.Conflicts = append(v.Denied, found.Denied...), found.Conflicts
}

// validatePresence refuses to add or remove immutable fields: CEL rules compare only fields that both versions have.
func (v *validation) validatePresence() {
	if v.Old == nil {
		return
	}
	for _, f := range []struct {
		name     string
		now, was bool
	}{
		{"initializer", v.New.Spec.Initializer != nil, v.Old.Spec.Initializer != nil},
		{"trainer", v.New.Spec.Trainer != nil, v.Old.Spec.Trainer != nil},
		{"activeDeadlineSeconds", v.New.Spec.ActiveDeadlineSeconds != nil, v.Old.Spec.ActiveDeadlineSeconds != nil},
	} {
		if f.now != f.was {
			v.refuse(field.Forbidden(specPath.Child(f.name), "field is immutable; create a new TrainJob to change "+f.name))
		}
	}
}

const runtimePolicy = "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"

func (v *validation) warnDeprecated() {
	if w := deprecation(v.Runtime); w != "" {
		v.warn("%s", w)
	}
}

func deprecation(r *Runtime) string {
	if r.Labels[trainerv1alpha1.SupportLabel] != trainerv1alpha1.SupportDeprecated {
		return ""
	}
	return fmt.Sprintf("%s %s is deprecated and will be removed: see %s", r.Kind, r.Name, runtimePolicy)
}

const maxHostName = 63

// warnHostNames warns of host names that are too long: the JobSet will be refused.
func (v *validation) warnHostNames(b *builder) {
	longest := ""
	for i := range b.steps {
		s := &b.steps[i]
		host := v.New.Name + "-" + s.job.Name + "-" + itoa(max(replicas(s.job)-1, 0)) + "-" + itoa(max(s.count-1, 0))
		if len(host) > len(longest) {
			longest = host
		}
	}
	if len(longest) > maxHostName {
		v.warn("metadata.name: the longest host name of a pod, %s, has %d characters and may have %d; choose a name that is %d shorter",
			longest, len(longest), maxHostName, len(longest)-maxHostName)
	}
}

// warnQueue warns of a queue that the template of the JobSet names alone: a JobSet is queued with its TrainJob.
func (v *validation) warnQueue(b *builder) {
	if b.merged.Labels[kueue.QueueNameLabel] != "" && v.New.Labels[kueue.QueueNameLabel] == "" {
		v.warn("metadata.labels[%s]: is not set, and on the template of the JobSet, as the runtime or a patch has it, the label has no effect: set it on the TrainJob",
			kueue.QueueNameLabel)
	}
}

func sortedList(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
