// Package spark is the integration of SparkApplication: one descriptor. A driver
// and executors are its pod sets. The application has no complete pod templates:
// they are built from the fields of each role, as the operator does, and the
// values of the admission are written to those fields (spec: 30 §4.9).
package spark

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

// Roles of an application: names of fields and of pod sets.
const (
	driver   = "driver"
	executor = "executor"
)

// States of an application.
const (
	stateCompleted        = "COMPLETED"
	stateFailed           = "FAILED"
	stateRunning          = "RUNNING"
	stateSubmissionFailed = "SUBMISSION_FAILED"
)

// quiet are the states in which an application has no pods, and the operator makes none.
var quiet = []string{"", "SUSPENDED", stateCompleted, stateFailed, stateSubmissionFailed}

// Descriptors returns SparkApplication for a manager with the given configuration; nil is the default configuration.
func Descriptors(o *options.Options) []*plan.Descriptor {
	counted, free := false, false
	if o != nil {
		free = !o.Gates.On(feature.ValidateRayAndSparkJobUpdates)
		spark := o.Effective.Integrations.Spark
		counted = spark != nil && spark.ImplicitMemoryOverhead
	}
	d := Descriptor(counted)
	d.FreeLeaving = free
	return []*plan.Descriptor{d}
}

// overhead reports whether unrequested overhead memory is counted.
type overhead bool

// Descriptor describes SparkApplication.
func Descriptor(counted bool) *plan.Descriptor {
	with := overhead(counted)
	d := view.Kind{
		Framework:  "sparkoperator.k8s.io/sparkapplication",
		GVK:        schema.GroupVersionKind{Group: "sparkoperator.k8s.io", Version: "v1beta2", Kind: "SparkApplication"},
		Resource:   "sparkapplications",
		Suspend:    []string{"spec", "suspend"},
		Roles:      with.roles,
		Finished:   finished,
		IsActive:   func(o view.Object) bool { return !slices.Contains(quiet, state(o)) },
		PodsReady:  podsReady,
		Validate:   with.validate,
		NoPrebuilt: true,
	}.Descriptor()
	d.Listing = plan.Listing{Gate: feature.SparkApplicationIntegration.String()}
	d.FreeUnmanaged = true
	d.Owns = []plan.Child{{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Relayed: true, Made: madeDriver}}
	d.Start = with.start
	d.Restore = restore
	d.PodLabels = plan.PodsByName("sparkoperator.k8s.io/app-name")
	return d
}

func state(o view.Object) string { return view.String(o.Object, "status", "applicationState", "state") }

// finished depends on the state. A failed submission is final only if it will not be retried.
func finished(o view.Object) (message string, success, done bool) {
	message = view.String(o.Object, "status", "applicationState", "errorMessage")
	switch state(o) {
	case stateCompleted:
		return "The application completed", true, true
	case stateFailed:
		return cmp.Or(message, "The application failed"), false, true
	case stateSubmissionFailed:
		return cmp.Or(message, "The application could not be submitted"), false, !isSubmittedAgain(o)
	}
	return "", false, false
}

func isSubmittedAgain(o view.Object) bool {
	policy := view.Map(o.Object, "spec", "restartPolicy")
	switch view.String(policy, "type") {
	case "Always":
		return true
	case "OnFailure":
		return view.Int(o.Object, 0, "status", "submissionAttempts") <= view.Int(policy, 0, "onSubmissionFailureRetries")
	}
	return false
}

// podsReady requires a running driver, and that every executor has run.
func podsReady(o view.Object, _ []view.Role) bool {
	n := int32(0)
	for _, s := range view.Map(o.Object, "status", "executorState") { //berth:unordered only counts
		if s == stateRunning || s == stateCompleted {
			n++
		}
	}
	return state(o) == stateRunning && n >= instances(o)
}

// instances is the number of executors.
func instances(o view.Object) int32 { return view.Int(o.Object, 0, "spec", executor, "instances") }

// roles are the driver and the executors, with the pods that the operator makes for them.
func (with overhead) roles(o view.Object, _ *plan.Setting) ([]view.Role, error) {
	var out []view.Role
	for _, name := range []string{driver, executor} {
		template, err := assemble(o, name, bool(with))
		if err != nil {
			return nil, err
		}
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
		if err != nil {
			return nil, err
		}
		count := int32(1)
		if name == executor {
			count = instances(o)
		}
		out = append(out, view.Role{Name: name, Count: count, Template: tree, Path: field.NewPath("spec", name), CountPath: field.NewPath("spec", name, "instances")})
	}
	return out, nil
}

// start merges the admitted values into each role. The selector of the whole application is copied to both roles: the operator uses
// one or the other.
func (with overhead) start(o plan.Object, infos []plan.PodSetInfo, _ *plan.Setting) error {
	app := view.Of(o)
	names := []string{driver, executor}
	if len(infos) != len(names) {
		return podset.Permanent("the admission has %d pod sets and the SparkApplication has %d", len(infos), len(names))
	}
	for i, name := range names {
		template, err := assemble(app, name, bool(with))
		if err != nil {
			return err
		}
		if err := infos[i].MergeInto(template); err != nil {
			return err
		}
		if err := write(app, name, template); err != nil {
			return err
		}
	}
	delete(view.Map(app.Object, "spec"), "nodeSelector")
	view.Set(app.Object, false, "spec", "suspend")
	return nil
}

// restore removes the values of a start from each role.
func restore(o plan.Object, podSets []kueue.PodSet) bool {
	app := view.Of(o)
	names := []string{driver, executor}
	if len(podSets) != len(names) {
		return false
	}
	changed := false
	for i, name := range names {
		template, err := assemble(app, name, false)
		if err != nil || !podset.Restore(template, &podSets[i].Template) {
			continue
		}
		changed = write(app, name, template) == nil || changed
	}
	if n := podSets[1].Count; n != instances(app) {
		view.Set(app.Object, int64(n), "spec", executor, "instances")
		changed = true
	}
	return changed
}

// write sets the labels, annotations, node selector, tolerations and scheduling gates of a template on a role, except keys that the
// role's own template has.
func write(app view.Object, name string, template *corev1.PodTemplateSpec) error {
	spec := view.Map(app.Object, "spec")
	if view.Map(spec, name) == nil {
		view.Set(spec, map[string]any{}, name)
	}
	role := view.Map(spec, name)
	flat := map[string]any{}
	if err := view.Directives(flat, template); err != nil {
		return err
	}
	gates := view.Get(flat, "spec", "schedulingGates")
	own := view.Map(role, "template")
	for _, part := range []struct {
		field string
		value any
		own   map[string]any
	}{
		{"labels", view.Get(flat, "metadata", "labels"), view.Map(own, "metadata", "labels")},
		{"annotations", view.Get(flat, "metadata", "annotations"), view.Map(own, "metadata", "annotations")},
		{"nodeSelector", view.Get(flat, "spec", "nodeSelector"), view.Map(own, "spec", "nodeSelector")},
	} {
		m, _ := part.value.(map[string]any)
		maps.DeleteFunc(m, func(key string, value any) bool { return part.own[key] == value })
		put(role, part.field, part.value, len(m) == 0)
	}
	if tolerations := view.Get(flat, "spec", "tolerations"); !same(tolerations, view.Get(own, "spec", "tolerations")) {
		put(role, "tolerations", tolerations, tolerations == nil)
	} else {
		delete(role, "tolerations")
	}
	switch {
	case gates != nil:
		view.Set(role, gates, "template", "spec", "schedulingGates")
	case view.Map(own, "spec") != nil:
		delete(view.Map(own, "spec"), "schedulingGates")
		if len(view.Map(own, "spec")) == 0 && len(own) == 1 {
			delete(role, "template") // a start created it
		}
	}
	return nil
}

func put(m map[string]any, key string, value any, empty bool) {
	if empty {
		delete(m, key)
	} else {
		m[key] = value
	}
}

// validate are the rules for a queued application: its pods must be known in advance, and be in the cluster.
func (with overhead) validate(o, _ view.Object, _ []view.Role, in *plan.Setting) field.ErrorList {
	if !in.IsQueued(o) {
		return nil
	}
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if mode := view.String(o.Object, "spec", "mode"); mode != "cluster" {
		errs = append(errs, field.NotSupported(spec.Child("mode"), mode, []string{"cluster"}))
	}
	if view.Bool(o.Object, "spec", "dynamicAllocation", "enabled") {
		errs = append(errs, field.Forbidden(spec.Child("dynamicAllocation", "enabled"),
			"a queued application cannot change its size; set executor.instances"))
	}
	for _, name := range []string{driver, executor} {
		if _, err := assemble(o, name, bool(with)); err != nil {
			errs = append(errs, field.Invalid(spec.Child(name), name, err.Error()))
		}
	}
	return errs
}
