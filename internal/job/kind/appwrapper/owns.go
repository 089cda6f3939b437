package appwrapper

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// wrapped returns why an object is not a component of an AppWrapper: its kind or name differs, or it has more or larger pods than
// the component counts.
func wrapped(k *plan.OwnedBy) error {
	child, err := treeOf(k.Child)
	if err != nil {
		return err
	}
	err = plan.ErrOtherName
	for i, c := range components(view.Of(k.Owner)) {
		template := view.Map(c, "template")
		if !isNamed(k, template) {
			continue
		}
		if err = counts(k, i, c, child); err == nil {
			return nil
		}
	}
	return err
}

// isNamed compares kind and name.
func isNamed(k *plan.OwnedBy, template map[string]any) bool {
	gvk := schema.FromAPIVersionAndKind(view.String(template, "apiVersion"), view.String(template, "kind"))
	if k.Kind != nil && gvk.GroupKind() != k.Kind.GVK.GroupKind() {
		return false
	}
	if name := view.String(template, "metadata", "name"); name != "" {
		return k.Child.GetName() == name
	}
	prefix := view.String(template, "metadata", "generateName")
	return prefix != "" && plan.HasPrefix(k.Child, prefix)
}

// treeOf converts an object to a tree.
func treeOf(o plan.Object) (map[string]any, error) {
	if u, ok := o.(view.Object); ok {
		return u.Object, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}

// counts compares the pods of an object with the pods that its component counts: those at the paths of a kind with inferred pod
// sets, the pod sets of any other kind of jobs, and else those at the declared paths.
func counts(k *plan.OwnedBy, index int, component, child map[string]any) error {
	declared, err := podSets(view.Of(k.Owner), index, component)
	if err != nil {
		return err
	}
	child = maps.Clone(child)
	made := map[string]any{"template": child}
	for _, key := range []string{"apiVersion", "kind"} { // a typed object may have none
		if view.String(child, key) == "" {
			child[key] = view.String(component, "template", key)
		}
	}
	known, err := inferred(child)
	if err != nil {
		return err
	}
	if known == nil {
		if sets, ok, err := setsOf(k); ok || err != nil {
			return cmp.Or(err, covers(declared, component, sets))
		}
		known = slices.Clone(declared)
	}
	for _, set := range known {
		at := slices.IndexFunc(declared, func(d declaredSet) bool { return d.path == set.path })
		switch {
		case set.replicas == 0:
			continue
		case at < 0:
			return fmt.Errorf("its component counts no pods at %s", set.path)
		case set.replicas > declared[at].replicas:
			return fmt.Errorf("its component counts %d pods at %s, and not %d", declared[at].replicas, set.path, set.replicas)
		}
		if err := fits(made, component, set.path); err != nil {
			return err
		}
	}
	return nil
}

// setsOf returns the pod sets of an object, in all of its parts; false for a kind without any.
func setsOf(k *plan.OwnedBy) (sets []kueue.PodSet, ok bool, err error) {
	switch {
	case k.Kind == nil:
		return nil, false, nil
	case k.Kind.PodSets != nil:
		sets, err = k.Kind.PodSets(k.Child, k.Setting())
		return sets, true, err
	case k.Kind.Sets != nil:
		parts, err := k.Kind.Sets.Parts(k.Child, k.Setting())
		for i := range parts {
			sets = append(sets, parts[i].PodSets...)
		}
		return sets, true, err
	}
	return nil, false, nil
}

// covers finds a declared pod set with as many pods of that size for each pod set of an object, and counts no declared pod twice.
func covers(declared []declaredSet, component map[string]any, sets []kueue.PodSet) error {
	left, templates := make([]int32, len(declared)), make([]*corev1.PodSpec, len(declared))
	for i, d := range declared {
		t, err := templateAt(component, d.path)
		if err != nil {
			return err
		}
		left[i], templates[i] = d.replicas, &t.Spec
	}
	type demand struct {
		*kueue.PodSet
		fits []int // positions of the declared pod sets with pods of that size, and as many
	}
	var demands []demand
	for i := range sets {
		d := demand{PodSet: &sets[i]}
		for at, t := range templates {
			if d.Count <= left[at] && plan.PodExceeds(&d.Template.Spec, t) == nil {
				d.fits = append(d.fits, at)
			}
		}
		if d.Count > 0 {
			demands = append(demands, d)
		}
	}
	slices.SortStableFunc(demands, func(a, b demand) int { return len(a.fits) - len(b.fits) }) // one with a choice leaves room for the others
	for _, d := range demands {
		at := slices.IndexFunc(d.fits, func(at int) bool { return d.Count <= left[at] })
		if at < 0 {
			return fmt.Errorf("its component does not count %d pods %s of that size", d.Count, d.Name)
		}
		left[d.fits[at]] -= d.Count
	}
	return nil
}

// fits compares the pod templates at a path.
func fits(made, component map[string]any, path string) error {
	pod, err := templateAt(made, path)
	if err != nil {
		return err
	}
	template, err := templateAt(component, path)
	if err != nil {
		return err
	}
	return plan.PodExceeds(&pod.Spec, &template.Spec)
}

func templateAt(tree map[string]any, path string) (*corev1.PodTemplateSpec, error) {
	template, err := find(tree, path)
	if err != nil {
		return nil, err
	}
	out := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, out); err != nil {
		return nil, errors.New("there is no pod template at " + path)
	}
	return out, nil
}
