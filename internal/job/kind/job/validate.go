package job

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
)

var (
	annotationsPath = field.NewPath("metadata", "annotations")
	specPath        = field.NewPath("spec")
	minPath         = annotationsPath.Key(kueue.JobMinParallelismAnnotation)
	equalPath       = annotationsPath.Key(kueue.JobCompletionsEqualParallelismAnnotation)
)

// validate checks the annotations for partial admission and topology (spec: 30 §4.9).
func validate(o, oldObject plan.Object, in *plan.Setting) field.ErrorList {
	job := o.(*batchv1.Job)
	old, update := oldObject.(*batchv1.Job)
	var errs field.ErrorList
	if !update || job.Annotations[kueue.JobMinParallelismAnnotation] != old.Annotations[kueue.JobMinParallelismAnnotation] {
		errs = append(errs, validateMinParallelism(job)...)
	}
	errs = append(errs, validateCompletions(job)...)
	templatePath := specPath.Child("template", "metadata")
	count := podCount(job)
	if _, ok := minParallelism(job); ok && update && suspended(old) && !suspended(job) {
		count = max(count, podCount(old)) // partial admission may start fewer pods than a slice has
	}
	errs = append(errs, in.ValidateTopology(&job.Spec.Template.ObjectMeta, templatePath, count)...)
	errs = append(errs, validateElastic(job, in.Config)...)
	if update {
		errs = append(errs, validateChange(job, old)...)
	}
	return errs
}

func validateMinParallelism(job *batchv1.Job) field.ErrorList {
	text, ok := job.Annotations[kueue.JobMinParallelismAnnotation]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(minPath, text, "must be a whole number"))
	case n < 1 || n >= int64(podCount(job)):
		errs = append(errs, field.Invalid(minPath, text, "must be at least 1 and less than the number of pods, "+strconv.Itoa(int(podCount(job)))))
	}
	if plan.IsElastic(job) {
		errs = append(errs, field.Forbidden(minPath, "may not be set on an elastic job"))
	}
	return errs
}

func validateCompletions(job *batchv1.Job) field.ErrorList {
	text, ok := job.Annotations[kueue.JobCompletionsEqualParallelismAnnotation]
	if !ok {
		return nil
	}
	follow, err := strconv.ParseBool(text)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(equalPath, text, "must be true or false")}
	case !follow:
		return nil
	}
	var errs field.ErrorList
	if job.Spec.CompletionMode == nil || *job.Spec.CompletionMode != batchv1.IndexedCompletion {
		errs = append(errs, field.Invalid(equalPath, text, "needs spec.completionMode Indexed"))
	}
	if completions := ptr.Deref(job.Spec.Completions, 1); completions != parallelism(job) {
		errs = append(errs, field.Invalid(specPath.Child("completions"), completions, "must equal parallelism while "+kueue.JobCompletionsEqualParallelismAnnotation+" is true"))
	}
	return errs
}

func validateElastic(job *batchv1.Job, cfg *plan.Config) field.ErrorList {
	if !cfg.Topology || !plan.IsElastic(job) {
		return nil
	}
	var errs field.ErrorList
	path := specPath.Child("template", "metadata", "annotations")
	for _, key := range []string{kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation} {
		if _, ok := job.Spec.Template.Annotations[key]; ok {
			errs = append(errs, field.Forbidden(path.Key(key), "may not be set on an elastic job"))
		}
	}
	return errs
}

// validateChange refuses to resize a partially admitted Job while it runs, and to change the annotations for partial admission.
func validateChange(job, old *batchv1.Job) field.ErrorList {
	var errs field.ErrorList
	if _, ok := old.Annotations[kueue.JobMinParallelismAnnotation]; ok && !suspended(old) && parallelism(job) != parallelism(old) {
		errs = append(errs, field.Forbidden(specPath.Child("parallelism"), "cannot change while the job runs and has "+kueue.JobMinParallelismAnnotation))
	}
	if isSuspended(job) || isSuspended(old) {
		return errs
	}
	if completionsFollow(job) != completionsFollow(old) {
		errs = append(errs, field.Forbidden(equalPath, "cannot change while the job runs"))
	}
	if job.Annotations[kueue.JobMinParallelismAnnotation] != old.Annotations[kueue.JobMinParallelismAnnotation] {
		errs = append(errs, field.Forbidden(minPath, "cannot change while the job runs"))
	}
	return errs
}
