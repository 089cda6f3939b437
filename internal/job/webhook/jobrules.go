package webhook

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

var (
	labelsPath      = field.NewPath("metadata", "labels")
	annotationsPath = field.NewPath("metadata", "annotations")
	queuePath       = labelsPath.Key(kueue.QueueNameLabel)
	classPath       = labelsPath.Key(kueue.PriorityClassLabel)
	maxTimePath     = labelsPath.Key(kueue.MaxExecTimeSecondsLabel)
	elasticPath     = annotationsPath.Key(kueue.ElasticJobAnnotation)
)

// jobRules are the rules for the metadata of every kind of jobs.
type jobRules struct {
	cfg      *job.Config
	d        *job.Descriptor
	job, old client.Object // old is nil for a new job
	// hasDefaultQueue reports that the namespace has a queue for jobs without a queue name.
	hasDefaultQueue bool
}

// create are the rules for any job, new or changed.
func (r *jobRules) create() field.ErrorList {
	errs := subdomain(queuePath, job.QueueName(r.job))
	if !r.d.Serving {
		errs = append(errs, r.prebuilt()...)
		errs = append(errs, r.maxTime()...)
	}
	errs = append(errs, r.runTimes()...)
	if _, ok := r.job.GetAnnotations()[kueue.ElasticJobAnnotation]; ok && r.d.Elastic == nil {
		errs = append(errs, field.Forbidden(elasticPath, "may not be set on a "+r.d.GVK.Kind))
	}
	if r.cfg.AdmissionGatedBy {
		errs = append(errs, review.ValidateGates(r.job)...)
	}
	return errs
}

// runTimes checks the run time that the user expects, and the one that is asked for before a preemption: labels or annotations.
func (r *jobRules) runTimes() (errs field.ErrorList) {
	check := func(path *field.Path, values map[string]string, key string) {
		text, ok := values[key]
		if n, err := strconv.ParseInt(text, 10, 32); ok && (err != nil || n <= 0) {
			errs = append(errs, field.Invalid(path.Key(key), text, "must be a number of seconds greater than 0"))
		}
	}
	for _, key := range [...]string{berthv1alpha1.ExpectedRunSecondsKey, berthv1alpha1.MinRunSecondsKey} {
		check(labelsPath, r.job.GetLabels(), key)
		check(annotationsPath, r.job.GetAnnotations(), key)
	}
	return errs
}

// shortened returns a warning about a job that asks for a longer time before a preemption than it gets.
func (r *jobRules) shortened() []string {
	asked, err := convert.MinRun(r.job)
	most := r.cfg.MaxMinRunTime
	switch {
	case err != nil || time.Duration(asked) <= most:
		return nil
	case most == 0:
		return []string{berthv1alpha1.MinRunSecondsKey + " has no effect: the manager's configuration sets no preemption.maxMinRunTime"}
	}
	return []string{fmt.Sprintf("%s is more than the manager's configuration allows: it counts as %d (preemption.maxMinRunTime)",
		berthv1alpha1.MinRunSecondsKey, int64(most.Seconds()))}
}

func (r *jobRules) maxTime() field.ErrorList {
	if text, ok := r.job.GetLabels()[kueue.MaxExecTimeSecondsLabel]; ok {
		if n, err := strconv.ParseInt(text, 10, 32); err != nil || n <= 0 {
			return field.ErrorList{field.Invalid(maxTimePath, text, "must be a number of seconds greater than 0")}
		}
	}
	return nil
}

// prebuilt checks the name of a prebuilt Workload, label or annotation.
func (r *jobRules) prebuilt() field.ErrorList {
	name := r.cfg.PrebuiltName(r.job)
	if name == "" {
		return nil
	}
	if !r.d.Prebuilt {
		return field.ErrorList{field.Forbidden(r.prebuiltPath(), "may not be set on a "+r.d.GVK.Kind)}
	}
	return subdomain(r.prebuiltPath(), name)
}

// prebuiltPath is where the job names its Workload, or named it.
func (r *jobRules) prebuiltPath() *field.Path {
	at, name := r.job, r.cfg.PrebuiltName(r.job)
	if name == "" && r.old != nil {
		at, name = r.old, r.cfg.PrebuiltName(r.old)
	}
	if name != "" && at.GetLabels()[kueue.PrebuiltWorkloadLabel] == name {
		return labelsPath.Key(kueue.PrebuiltWorkloadLabel)
	}
	return annotationsPath.Key(kueue.PrebuiltWorkloadLabel)
}

func subdomain(path *field.Path, name string) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		return nil
	}
	for _, why := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(path, name, why))
	}
	return errs
}

// update are the rules for a changed job: the rules for any job, and for immutable fields.
func (r *jobRules) update() field.ErrorList {
	if r.d.Serving {
		return append(r.create(), r.serving()...)
	}
	var errs field.ErrorList
	suspended := r.isSuspended(r.job)
	mayRename := suspended || job.IsElastic(r.old)
	if !r.d.LaxUpdates {
		errs = r.create()
	} else if mayRename {
		errs = r.prebuilt()
	}
	queue, oldQueue := job.QueueName(r.job), job.QueueName(r.old)
	switch {
	case queue != oldQueue && !suspended:
		errs = append(errs, field.Forbidden(queuePath, fmt.Sprintf("cannot change from %q to %q %s", oldQueue, queue, r.whileItRuns())))
	case queue == "" && oldQueue != "" && r.hasDefaultQueue:
		errs = append(errs, field.Forbidden(queuePath, "cannot be removed in a namespace that has a LocalQueue named default"))
	}
	if r.cfg.PrebuiltName(r.job) != r.cfg.PrebuiltName(r.old) && !mayRename {
		errs = append(errs, field.Forbidden(r.prebuiltPath(), "cannot change "+r.whileItRuns()))
	}
	maxTime, oldMaxTime := r.job.GetLabels()[kueue.MaxExecTimeSecondsLabel], r.old.GetLabels()[kueue.MaxExecTimeSecondsLabel]
	if maxTime != oldMaxTime && (!suspended || !r.isSuspended(r.old)) {
		errs = append(errs, field.Forbidden(maxTimePath, "cannot change "+r.whileItRuns()))
	}
	errs = append(errs, r.priorityClass(suspended)...)
	return append(errs, r.fixed()...)
}

func (r *jobRules) isSuspended(o client.Object) bool {
	return r.d.IsSuspended(o) && (!r.d.ManagedChildren.CanGate() || r.d.ManagedChildren.Upgrades.HoldsChildren(o))
}

// fixed are the rules for fields that never change.
func (r *jobRules) fixed() (errs field.ErrorList) {
	if job.IsElastic(r.job) != job.IsElastic(r.old) {
		errs = append(errs, field.Forbidden(elasticPath, "cannot be turned on or off after creation"))
	}
	if r.cfg.AdmissionGatedBy {
		errs = append(errs, review.ValidateGatesChange(r.job, r.old)...)
	}
	return errs
}

// serving are the rules for a changed serving object, which counts as suspended while no replica is ready: the queue is never removed.
// spec: 30 §3.2.
func (r *jobRules) serving() (errs field.ErrorList) {
	suspended := r.d.IsSuspended(r.old)
	switch queue, old := job.QueueName(r.job), job.QueueName(r.old); {
	case queue == old:
	case queue == "":
		errs = append(errs, field.Forbidden(queuePath, "cannot be removed"))
	case !suspended:
		errs = append(errs, field.Forbidden(queuePath, fmt.Sprintf("cannot change from %q to %q %s", old, queue, r.whileItRuns())))
	}
	errs = append(errs, r.priorityClass(suspended)...)
	return append(errs, r.fixed()...)
}

// priorityClass allows the class of a job to change at any time, to be added while it waits, and never to be removed.
func (r *jobRules) priorityClass(suspended bool) field.ErrorList {
	class, old := r.job.GetLabels()[kueue.PriorityClassLabel], r.old.GetLabels()[kueue.PriorityClassLabel]
	switch {
	case old != "" && class == "":
		return field.ErrorList{field.Forbidden(classPath, "cannot be removed; name another class")}
	case old == "" && class != "" && !suspended:
		return field.ErrorList{field.Forbidden(classPath, "cannot be added "+r.whileItRuns())}
	}
	return nil
}

func (r *jobRules) whileItRuns() string {
	if r.d.Serving {
		return "while replicas are ready"
	}
	return "while the job is not suspended"
}
