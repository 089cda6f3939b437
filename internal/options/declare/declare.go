// Package declare compiles job kinds that the configuration declares in CEL (spec: 30 §4.13).
//
//	expressions ─► Compile: parse, check, bound ─► Kind ─► pod sets, states and patches of a job, as plain values
//
// A job is a tree of maps; another package makes descriptors of kinds. Evaluation is deterministic: see package cel. An expression that
// costs too much, takes too long or meets an unexpected value is an error of that job only.
package declare

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/cel"
)

// Kind is a declared kind, checked and compiled.
type Kind struct {
	// Resource is the plural in URLs.
	GVK      schema.GroupVersionKind
	Resource string
	// Owns are the kinds of objects that its controller creates; nil is any.
	Owns    []schema.GroupVersionKind
	suspend suspendField

	podSets, inject, stop, started, finished, ready, reclaimable *expression
}

type suspendField struct {
	path          []string
	value, resume any // resume nil removes the field
}

// ParseName splits Kind.version.group at its first two dots.
func ParseName(name string) (schema.GroupVersionKind, bool) {
	parts := strings.SplitN(name, ".", 3)
	if len(parts) != 3 || slices.Contains(parts, "") {
		return schema.GroupVersionKind{}, false
	}
	return schema.GroupVersionKind{Group: parts[2], Version: parts[1], Kind: parts[0]}, true
}

// WantedName is the error of an invalid name.
const WantedName = "must have the form Kind.version.group, such as PipelineRun.v1.tekton.dev"

// ParseOwned reads a list of kinds as Kind.version.group, where Pod.v1 and the like have no group. It is nil only if the list is.
func ParseOwned(list []string, path *field.Path) (out []schema.GroupVersionKind, errs field.ErrorList) {
	if list != nil {
		out = []schema.GroupVersionKind{}
	}
	for i, name := range list {
		kind, ok := ParseName(name)
		if parts := strings.Split(name, "."); !ok && len(parts) == 2 && !slices.Contains(parts, "") {
			kind, ok = schema.GroupVersionKind{Version: parts[1], Kind: parts[0]}, true
		}
		if !ok {
			errs = append(errs, field.Invalid(path.Index(i), name, "must have the form Kind.version.group, such as Job.v1.batch, or Pod.v1"))
		}
		out = append(out, kind)
	}
	return out, errs
}

// Compile compiles the declared kinds at path. taken are kinds with other integrations. Two versions of a kind are the same objects, so
// only one may be declared.
func Compile(list []configv1beta2.DeclaredKind, taken []schema.GroupVersionKind, path *field.Path) ([]*Kind, field.ErrorList) {
	var out []*Kind
	var errs field.ErrorList
	seen := map[schema.GroupKind]bool{}
	for _, gvk := range taken {
		seen[gvk.GroupKind()] = true
	}
	for i := range list {
		at := path.Index(i)
		gvk, ok := ParseName(list[i].Name)
		switch {
		case list[i].Name == "":
			errs = append(errs, field.Required(at.Child("name"), WantedName))
		case !ok:
			errs = append(errs, field.Invalid(at.Child("name"), list[i].Name, WantedName))
		case seen[gvk.GroupKind()]:
			errs = append(errs, field.Duplicate(at.Child("name"), list[i].Name))
		}
		seen[gvk.GroupKind()] = true
		kind, invalid := compileKind(&list[i], gvk, at)
		errs = append(errs, invalid...)
		out = append(out, kind)
	}
	return out, errs
}

func compileKind(k *configv1beta2.DeclaredKind, gvk schema.GroupVersionKind, path *field.Path) (*Kind, field.ErrorList) {
	out := &Kind{GVK: gvk, Resource: k.Resource}
	if out.Resource == "" {
		out.Resource = Resource(gvk)
	}
	owns, errs := ParseOwned(k.Owns, path.Child("owns"))
	out.Owns = owns
	if msgs := validation.IsDNS1035Label(out.Resource); len(msgs) > 0 && gvk.Kind != "" {
		errs = append(errs, field.Invalid(path.Child("resource"), out.Resource, strings.Join(msgs, "; ")))
	}
	var invalid field.ErrorList
	out.suspend, invalid = compileSuspend(&k.Suspend, path.Child("suspend"))
	errs = append(errs, invalid...)
	for _, e := range []struct {
		into     **expression
		name     string
		text     string
		vars     cel.Scope
		gives    cel.Result
		required bool
	}{
		{&out.podSets, "podSets", k.PodSets, objectOnly, cel.List, true},
		{&out.inject, "inject", k.Inject, withPodSets, cel.Map, false},
		{&out.stop, "stop", k.Stop, objectOnly, cel.Map, false},
		{&out.started, "started", k.Started, objectOnly, cel.Bool, true},
		{&out.finished, "finished", k.Finished, objectOnly, cel.Map, true},
		{&out.ready, "ready", k.Ready, objectOnly, cel.Bool, false},
		{&out.reclaimable, "reclaimable", k.Reclaimable, objectOnly, cel.Map, false},
	} {
		at := path.Child(e.name)
		switch {
		case strings.TrimSpace(e.text) != "":
			compiled, err := compile(k.Name+" "+e.name, e.text, e.vars, e.gives)
			if err != nil {
				errs = append(errs, field.Invalid(at, cel.Short(e.text), k.Name+": "+err.Error()))
			}
			*e.into = compiled
		case e.required:
			errs = append(errs, field.Required(at, k.Name+": an expression such as "+examples[e.name]))
		}
	}
	if out.ready == nil {
		out.ready = out.started
	}
	return out, errs
}

// Resource guesses the plural of a kind in URLs.
func Resource(gvk schema.GroupVersionKind) string {
	plural, _ := apimeta.UnsafeGuessKindToResource(gvk)
	return plural.Resource
}

// examples are examples of the mandatory expressions, for errors.
var examples = map[string]string{
	"podSets":  `[{"name": "main", "count": object.spec.replicas, "path": "spec.template"}]`,
	"started":  `has(object.status) && has(object.status.active) && object.status.active > 0`,
	"finished": `has(object.status) && has(object.status.phase) && object.status.phase == "Done" ? {"success": true, "message": "done"} : {}`,
}

// fieldName is a part of a path: a field of an object, without lists.
var fieldName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// suspendRoot contains the field: other parts are not written by users, or not read by controllers.
const suspendRoot = "spec"

func compileSuspend(s *configv1beta2.SuspendField, path *field.Path) (suspendField, field.ErrorList) {
	out := suspendField{path: strings.Split(strings.TrimPrefix(s.Path, "."), "."), value: true, resume: false}
	var errs field.ErrorList
	switch {
	case s.Path == "":
		errs = append(errs, field.Required(path.Child("path"), "the field that keeps a job from running, such as spec.suspend"))
	case len(out.path) < 2 || out.path[0] != suspendRoot || slices.ContainsFunc(out.path, func(p string) bool { return !fieldName.MatchString(p) }):
		errs = append(errs, field.Invalid(path.Child("path"), s.Path, "must be a field below spec, such as spec.suspend: names with dots between them"))
	}
	if s.Value != "" {
		out.value, out.resume = s.Value, nil
	}
	switch {
	case s.Resume != "" && s.Value == "":
		errs = append(errs, field.Forbidden(path.Child("resume"), "needs value: without one the field is a bool"))
	case s.Resume != "" && s.Resume == s.Value:
		errs = append(errs, field.Invalid(path.Child("resume"), s.Resume, "must not be the same as value"))
	case s.Resume != "":
		out.resume = s.Resume
	}
	return out, errs
}

// Suspended reports whether the job is suspended.
func (k *Kind) Suspended(tree map[string]any) bool {
	value, _, _ := unstructured.NestedFieldNoCopy(tree, k.suspend.path...)
	return value == k.suspend.value
}

// Suspend suspends the job.
func (k *Kind) Suspend(tree map[string]any) { set(tree, k.suspend.path, k.suspend.value) }

// Resume resumes the job.
func (k *Kind) Resume(tree map[string]any) { set(tree, k.suspend.path, k.suspend.resume) }

// HasInject reports whether the kind has the expression inject.
func (k *Kind) HasInject() bool { return k.inject != nil }

// HasStop reports whether the kind has the expression stop.
func (k *Kind) HasStop() bool { return k.stop != nil }

// HasReclaimable reports whether the kind has the expression reclaimable.
func (k *Kind) HasReclaimable() bool { return k.reclaimable != nil }

// PodSet is a group of pods.
type PodSet struct {
	Name            string
	Count, MinCount *int32
	// Template is the pod template: at Path in the job, or created by the expression, without a Path.
	Template map[string]any
	Path     string
}

// PodSets returns the pod sets of the job.
func (k *Kind) PodSets(tree map[string]any) ([]PodSet, error) {
	value, err := k.podSets.eval(tree, nil)
	if err != nil {
		return nil, err
	}
	list := value.([]any) // the expression has checked it
	out := make([]PodSet, 0, len(list))
	for i, entry := range list {
		set, err := podSet(tree, entry)
		if err != nil {
			return nil, k.podSets.Fail(fmt.Errorf("entry %d: %w", i, err))
		}
		out = append(out, set)
	}
	return out, nil
}

var podSetKeys = []string{"name", "count", "minCount", "path", "template"}

func podSet(tree map[string]any, entry any) (PodSet, error) {
	m, ok := entry.(map[string]any)
	if !ok {
		return PodSet{}, fmt.Errorf("is %s and not a map with %s", cel.Describe(entry), strings.Join(podSetKeys, ", "))
	}
	for _, key := range sortedKeys(m) {
		if !slices.Contains(podSetKeys, key) {
			return PodSet{}, fmt.Errorf("has %q: only %s are read", key, strings.Join(podSetKeys, ", "))
		}
	}
	var out PodSet
	var err error
	if out.Name, ok = m["name"].(string); !ok || len(validation.IsDNS1123Label(strings.ToLower(out.Name))) > 0 {
		return PodSet{}, fmt.Errorf("has the name %s: it must be a DNS label", cel.Describe(m["name"]))
	}
	if out.Count, err = count(m, "count"); err != nil {
		return PodSet{}, err
	}
	if out.MinCount, err = count(m, "minCount"); err != nil {
		return PodSet{}, err
	}
	if out.Count == nil {
		return PodSet{}, fmt.Errorf("%s has no count", out.Name)
	}
	path, hasPath := m["path"].(string)
	template, hasTemplate := m["template"].(map[string]any)
	if hasPath == hasTemplate {
		return PodSet{}, fmt.Errorf("%s needs either a path, the place of its pod template in the job, or a template", out.Name)
	}
	if out.Template = template; hasPath {
		if out.Path, out.Template = path, at(tree, path); out.Template == nil {
			return PodSet{}, fmt.Errorf("%s has the path %s, where the job has no pod template", out.Name, path)
		}
	}
	return out, nil
}

// count returns a number of pods; nil if it is not set.
func count(m map[string]any, key string) (*int32, error) {
	value, ok := m[key]
	if !ok || value == nil {
		return nil, nil
	}
	n, ok := value.(int64)
	if !ok || n < 0 || n > 1<<31-1 {
		return nil, fmt.Errorf("has the %s %s: it must be a whole number of pods", key, cel.Describe(value))
	}
	return new(int32(n)), nil
}

// Started reports whether pods of the job may use resources.
func (k *Kind) Started(tree map[string]any) (bool, error) { return k.started.bool(tree) }

// Ready reports whether all pods of the job are ready or have succeeded.
func (k *Kind) Ready(tree map[string]any) (bool, error) { return k.ready.bool(tree) }

// End is the result of a finished job.
type End struct {
	Success bool
	Message string
}

// Finished returns the result of the job, nil unless it has finished.
func (k *Kind) Finished(tree map[string]any) (*End, error) {
	value, err := k.finished.eval(tree, nil)
	if err != nil {
		return nil, err
	}
	m := value.(map[string]any) // the expression has checked it
	if len(m) == 0 {
		return nil, nil
	}
	success, ok := m["success"].(bool)
	message, isText := m["message"].(string)
	if !ok || (!isText && m["message"] != nil) {
		return nil, k.finished.Fail(fmt.Errorf("gives %s: it must be {}, or have success, a bool, and message, a text", cel.Describe(m)))
	}
	return &End{success, message}, nil
}

// Reclaimable returns the number of pods of each pod set that no longer need their quota.
func (k *Kind) Reclaimable(tree map[string]any) (map[string]int32, error) {
	value, err := k.reclaimable.eval(tree, nil)
	if err != nil {
		return nil, err
	}
	m := value.(map[string]any) // the expression has checked it
	out := map[string]int32{}
	for name := range m { //berth:unordered copies a map
		n, err := count(m, name)
		if err != nil {
			return nil, k.reclaimable.Fail(err)
		}
		if n != nil {
			out[name] = *n
		}
	}
	return out, nil
}

// Inject applies the assignments of pod sets to the job.
func (k *Kind) Inject(tree map[string]any, podSets []any) error { return k.inject.patch(tree, podSets) }

// Stop changes the job so that it stops, in addition to Suspend.
func (k *Kind) Stop(tree map[string]any) error { return k.stop.patch(tree, nil) }
