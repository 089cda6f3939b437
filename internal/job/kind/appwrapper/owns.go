package appwrapper

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		if err = counts(view.Of(k.Owner), i, c, child); err == nil {
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

// counts compares the pods of an object with the pods that its component counts: the pod sets of a known kind, or the declared
// ones.
func counts(o view.Object, index int, component, child map[string]any) error {
	declared, err := podSets(o, index, component)
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

// fits compares the pod templates at a path.
func fits(made, component map[string]any, path string) error {
	var specs [2]corev1.PodTemplateSpec
	for i, tree := range []map[string]any{made, component} {
		template, err := find(tree, path)
		if err != nil {
			return err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &specs[i]); err != nil {
			return errors.New("there is no pod template at " + path)
		}
	}
	return plan.PodExceeds(&specs[0].Spec, &specs[1].Spec)
}
