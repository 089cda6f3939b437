// Package declared is the integration of kinds that a configuration describes
// in CEL: one descriptor for each. The expressions are evaluated at every
// reconcile; a job on which one fails is not changed, and gets an event
// (spec: 30 §4.13).
package declared

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/declare"
)

// Framework is the name of a declared kind in events and logs, such as tekton.dev/pipelinerun.
func Framework(k *declare.Kind) string { return k.GVK.Group + "/" + strings.ToLower(k.GVK.Kind) }

// Descriptors returns the kinds of a configuration, nil if it declares none.
func Descriptors(o *options.Options) []*plan.Descriptor {
	if o == nil {
		return nil
	}
	out := make([]*plan.Descriptor, 0, len(o.DeclaredKinds))
	for _, k := range o.DeclaredKinds {
		out = append(out, descriptor(kind{k}))
	}
	return out
}

// kind is a declared kind with its compiled expressions.
type kind struct{ *declare.Kind }

func descriptor(k kind) *plan.Descriptor {
	d := &plan.Descriptor{
		Framework: Framework(k.Kind), GVK: k.GVK, Resource: k.Resource, Declared: &plan.Declared{Unreadable: k.unreadable}, Prebuilt: true,
		New:         func() plan.Object { return view.New(k.GVK) },
		NewList:     func() runtime.Object { return view.NewList(k.GVK) },
		PodSets:     k.podSets,
		IsSuspended: func(o plan.Object) bool { return k.Suspended(tree(o)) },
		Suspend:     func(o plan.Object) { k.Suspend(tree(o)) },
		Resume:      func(o plan.Object) { k.Resume(tree(o)) },
		Start:       k.start,
		Restore:     k.restore,
		Finished:    k.finished,
		IsActive:    k.isActive,
		PodsReady:   func(o plan.Object, _ *plan.Setting) bool { ready, err := k.Ready(tree(o)); return err == nil && ready },
		Validate:    k.validate,
		Sizes:       k.sizes,
	}
	d.Owns = k.owns()
	if k.HasStop() {
		d.Stops = &plan.Stops{Next: k.stopStep}
	}
	if k.HasReclaimable() {
		d.Reclaimable = k.reclaimable
	}
	return d
}

func tree(o plan.Object) map[string]any { return view.Of(o).Object }

// finished is evaluated after unreadable found no error.
func (k kind) finished(o plan.Object) (message string, success, finished bool) {
	end, err := k.Finished(tree(o))
	if err != nil || end == nil {
		return "", false, false
	}
	return end.Message, end.Success, true
}

// isActive is true for a job whose expression fails, so that it keeps its quota.
func (k kind) isActive(o plan.Object) bool {
	started, err := k.Started(tree(o))
	return started || err != nil
}

// unreadable returns the first error of an expression on this job.
func (k kind) unreadable(o plan.Object, in *plan.Setting) error {
	if _, err := k.podSets(o, in); err != nil {
		return err
	}
	if _, err := k.Finished(tree(o)); err != nil {
		return err
	}
	if _, err := k.Started(tree(o)); err != nil {
		return err
	}
	if in.WaitForPodsReady {
		if _, err := k.Ready(tree(o)); err != nil {
			return err
		}
	}
	if in.ReclaimablePods && k.HasReclaimable() {
		_, err := k.Reclaimable(tree(o))
		return err
	}
	return nil
}

// podSet is a group of pods with its template in Go.
type podSet struct {
	declare.PodSet
	template *corev1.PodTemplateSpec
}

// sets returns the pod sets of the job.
func (k kind) sets(o plan.Object) ([]podSet, error) {
	list, err := k.PodSets(tree(o))
	if err != nil {
		return nil, err
	}
	out := make([]podSet, 0, len(list))
	for _, s := range list {
		template := &corev1.PodTemplateSpec{}
		// Templates of an expression are strict: an unknown field is a mistake. In a job it may be a field of a later version.
		strict := s.Path == ""
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(s.Template, template, strict); err != nil {
			return nil, fmt.Errorf("%s podSets: %s has no pod template: %w", k.name(), s.Name, err)
		}
		out = append(out, podSet{s, template})
	}
	return out, nil
}

func (k kind) name() string { return k.GVK.Kind + "." + k.GVK.Version + "." + k.GVK.Group }

func (k kind) podSets(o plan.Object, in *plan.Setting) ([]kueue.PodSet, error) {
	sets, err := k.sets(o)
	if err != nil {
		return nil, err
	}
	out := make([]kueue.PodSet, 0, len(sets))
	for _, s := range sets {
		out = append(out, kueue.PodSet{
			Name: kueue.PodSetReference(s.Name), Count: *s.Count, MinCount: s.MinCount, Template: *s.template,
			TopologyRequest: in.TopologyRequest(&s.template.ObjectMeta, plan.Ranks{}),
		})
	}
	return out, nil
}

// start merges the admitted values: into the templates of the job, and through the expression that injects.
func (k kind) start(o plan.Object, infos []plan.PodSetInfo, _ *plan.Setting) error {
	sets, err := k.sets(o)
	if err != nil {
		return err
	}
	if len(infos) != len(sets) {
		return podset.Permanent("the admission has %d pod sets and the %s has %d", len(infos), k.GVK.Kind, len(sets))
	}
	if slices.ContainsFunc(infos, podset.IsPlaced) {
		if err := k.passesGates(o, sets); err != nil {
			return podset.Permanent("%s", err)
		}
	}
	for i := range sets {
		s := &sets[i]
		if err := infos[i].MergeInto(s.template); err != nil {
			return err
		}
		if infos[i].Count > 0 {
			s.Count = new(infos[i].Count)
		}
		if s.Path == "" {
			continue
		}
		if err := view.Directives(s.Template, s.template); err != nil {
			return err
		}
	}
	if err := k.injectAll(o, sets); err != nil {
		return err
	}
	k.Resume(tree(o))
	return nil
}

// injectAll evaluates the expression that injects, for each pod set.
func (k kind) injectAll(o plan.Object, sets []podSet) error {
	if !k.HasInject() {
		return nil
	}
	list := make([]any, 0, len(sets))
	for _, s := range sets {
		whole := map[string]any{}
		if err := view.Directives(whole, s.template); err != nil {
			return err
		}
		entry := map[string]any{
			"name": s.Name, "count": int64(*s.Count), "labels": map[string]any{}, "annotations": map[string]any{},
			"nodeSelector": map[string]any{}, "tolerations": []any{}, "schedulingGates": []any{},
		}
		maps.Copy(entry, view.Map(whole, "metadata"))
		maps.Copy(entry, view.Map(whole, "spec"))
		list = append(list, entry)
	}
	return k.Inject(tree(o), list)
}

// restore resets the templates of the job to its earlier pod sets.
func (k kind) restore(o plan.Object, podSets []kueue.PodSet) bool {
	before := o.DeepCopyObject()
	sets, err := k.sets(o)
	if err != nil || len(sets) != len(podSets) {
		return false
	}
	for i := range sets {
		s := &sets[i]
		changed := podset.Restore(s.template, &podSets[i].Template)
		if s.Count = new(podSets[i].Count); changed && s.Path != "" {
			if err := view.Directives(s.Template, s.template); err != nil {
				return false
			}
		}
	}
	if err := k.injectAll(o, sets); err != nil {
		return false
	}
	return !equality.Semantic.DeepEqual(before, o)
}

// stopStep is a stop for which the field of Suspend may not suffice. If the job still runs after the last step, it has to end by
// itself.
func (k kind) stopStep(o plan.Object, podSets []kueue.PodSet, _ plan.StopReason) (plan.Step, plan.Object) {
	if k.Suspended(tree(o)) {
		return plan.Stopped, nil
	}
	next := view.Of(o.DeepCopyObject().(plan.Object))
	k.Suspend(next.Object)
	suspended := next.DeepCopy()
	if err := k.Stop(next.Object); err != nil {
		next = suspended // without the expression
	}
	if k.Suspended(next.Object) {
		k.restore(next, podSets)
	}
	if equality.Semantic.DeepEqual(next.Object, tree(o)) {
		return plan.Wait, nil
	}
	return plan.Change, next
}

func (k kind) reclaimable(o plan.Object, in *plan.Setting) []kueue.ReclaimablePod {
	counts, err := k.Reclaimable(tree(o))
	if err != nil {
		return nil
	}
	sets, err := k.podSets(o, in)
	if err != nil {
		return nil
	}
	var out []kueue.ReclaimablePod
	for _, s := range sets {
		if n := counts[string(s.Name)]; n > 0 {
			out = append(out, kueue.ReclaimablePod{Name: kueue.PodSetReference(strings.ToLower(string(s.Name))), Count: n})
		}
	}
	return out
}

func (k kind) sizes(o plan.Object, _ *plan.Setting) []plan.Size {
	sets, err := k.sets(o)
	if err != nil {
		return nil
	}
	out := make([]plan.Size, 0, len(sets))
	for _, s := range sets {
		out = append(out, plan.Size{Path: s.at(), What: "pods of pod set " + s.Name, N: *s.Count})
	}
	return out
}

// at is the field of the template, or the spec for a template of an expression.
func (s *podSet) at() *field.Path {
	if s.Path == "" {
		return field.NewPath("spec")
	}
	return field.NewPath(strings.TrimPrefix(s.Path, "."))
}

// validate refuses a new job that could not be queued, and contradicting topology annotations. A stored job may always be changed,
// at least to be deleted.
func (k kind) validate(o, old plan.Object, in *plan.Setting) field.ErrorList {
	var errs field.ErrorList
	queued := in.IsQueued(o)
	err := k.unreadable(o, in)
	if err != nil && old == nil && queued {
		errs = append(errs, field.Invalid(field.NewPath("spec"), k.GVK.Kind, err.Error()))
	}
	sets, err := k.sets(o)
	if err != nil {
		return errs
	}
	for _, s := range sets {
		path := s.at().Child("metadata")
		errs = append(errs, in.ValidateTopology(&s.template.ObjectMeta, path, *s.Count)...)
		if old == nil && queued && in.TopologyRequest(&s.template.ObjectMeta, plan.Ranks{}) != nil {
			if err := k.passesGates(o, sets); err != nil {
				errs = append(errs, field.Forbidden(path.Child("annotations"), err.Error()))
			}
		}
	}
	names := map[string]bool{}
	for _, s := range sets {
		if names[strings.ToLower(s.Name)] && old == nil && queued {
			errs = append(errs, field.Invalid(field.NewPath("spec"), s.Name, "two pod sets have this name"))
		}
		names[strings.ToLower(s.Name)] = true
	}
	return errs
}
