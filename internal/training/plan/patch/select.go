package patch

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// SelectedJob patches every replicated job whose Job template has certain labels in the unpatched runtime (spec: 50 §4.13.4).
type SelectedJob = trainerv1alpha1.SelectedReplicatedJobPatch

// Selected are the patches with selectors, by manager.
type Selected map[string][]SelectedJob

// SelectedOf returns the patches with selectors of a TrainJob, which may be nil.
func SelectedOf(job *trainerv1alpha1.TrainJob) Selected {
	if job == nil {
		return nil
	}
	var out Selected
	for i := range job.Spec.RuntimePatches {
		t := templateOf(&job.Spec.RuntimePatches[i])
		if t == nil || t.Spec == nil || len(t.Spec.SelectedReplicatedJobs) == 0 {
			continue
		}
		if out == nil {
			out = Selected{}
		}
		out[job.Spec.RuntimePatches[i].Manager] = t.Spec.SelectedReplicatedJobs
	}
	return out
}

const maxSelected = 32

// Expand prepends to the patches of each entry one patch for each replicated job that a selector matches, so that patches by name override
// them. Without selectors it returns the list itself.
func Expand(patches []trainerv1alpha1.RuntimePatch, selected Selected, runtime *trainerv1alpha1.JobSetTemplateSpec) []trainerv1alpha1.RuntimePatch {
	if len(selected) == 0 {
		return patches
	}
	out := slices.Clone(patches)
	for i := range out {
		var jobs []trainerv1alpha1.ReplicatedJobPatch
		for _, s := range selected[out[i].Manager] {
			for _, name := range selects(&s.Selector, runtime) {
				jobs = append(jobs, trainerv1alpha1.ReplicatedJobPatch{Name: name, Template: s.Template})
			}
		}
		if len(jobs) == 0 {
			continue
		}
		p := out[i].DeepCopy()
		if p.TrainingRuntimeSpec == nil {
			p.TrainingRuntimeSpec = &trainerv1alpha1.TrainingRuntimeSpecPatch{}
		}
		if p.TrainingRuntimeSpec.Template == nil {
			p.TrainingRuntimeSpec.Template = &trainerv1alpha1.JobSetTemplatePatch{}
		}
		if p.TrainingRuntimeSpec.Template.Spec == nil {
			p.TrainingRuntimeSpec.Template.Spec = &trainerv1alpha1.JobSetSpecPatch{}
		}
		spec := p.TrainingRuntimeSpec.Template.Spec
		spec.ReplicatedJobs = append(jobs, spec.ReplicatedJobs...)
		out[i] = *p
	}
	return out
}

func selects(of *metav1.LabelSelector, runtime *trainerv1alpha1.JobSetTemplateSpec) []string {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return nil
	}
	var out []string
	for i := range runtime.Spec.ReplicatedJobs {
		rj := &runtime.Spec.ReplicatedJobs[i]
		if selector.Matches(labels.Set(rj.Template.Labels)) {
			out = append(out, rj.Name)
		}
	}
	return out
}

// validateSelected checks the selectors of one entry, and not their templates.
func validateSelected(list []SelectedJob, runtime *trainerv1alpha1.JobSetTemplateSpec, cfg *Config, path *field.Path) (errs field.ErrorList) {
	if len(list) == 0 {
		return nil
	}
	if !cfg.Selectors {
		return field.ErrorList{field.Forbidden(path, "needs the feature gate RuntimePatchSelectors")}
	}
	if len(list) > maxSelected {
		errs = append(errs, field.TooMany(path, len(list), maxSelected))
	}
	seen := map[string]bool{}
	for i := range list {
		s, at := &list[i], path.Index(i)
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "must identify the patch within its entry"))
		case len(s.Name) > 63:
			errs = append(errs, field.TooLong(at.Child("name"), "", 63))
		case seen[s.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		seen[s.Name] = true
		if _, err := metav1.LabelSelectorAsSelector(&s.Selector); err != nil {
			errs = append(errs, field.Invalid(at.Child("selector"), metav1.FormatLabelSelector(&s.Selector), err.Error()))
			continue
		}
		if runtime != nil && len(selects(&s.Selector, runtime)) == 0 {
			errs = append(errs, field.Invalid(at.Child("selector"), metav1.FormatLabelSelector(&s.Selector), "matches no replicated job of the runtime"))
		}
	}
	if runtime != nil {
		errs = append(errs, selectedClash(list, runtime, path)...)
	}
	return errs
}

// selectedClash returns two patches of one entry that match the same job and set the same field to different values.
func selectedClash(list []SelectedJob, runtime *trainerv1alpha1.JobSetTemplateSpec, path *field.Path) (errs field.ErrorList) {
	type setting struct {
		by    int
		value string
	}
	set := map[string]setting{}
	for i := range list {
		for _, name := range selects(&list[i].Selector, runtime) {
			for _, l := range jobLeaves(&trainerv1alpha1.ReplicatedJobPatch{Name: name, Template: list[i].Template}) {
				if s, ok := set[l.path]; ok && s.value != l.value {
					errs = append(errs, field.Invalid(path.Index(i), list[i].Name, fmt.Sprintf("sets %s, which %s sets to another value", l.path, list[s.by].Name)))
				} else if !ok {
					set[l.path] = setting{i, l.value}
				}
			}
		}
	}
	return errs
}
