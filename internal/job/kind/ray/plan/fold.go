package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// A Workload has a maximum number of pod sets. Beyond it, shapes of one group that differ only in amounts are folded into one set,
// which is charged at the largest amount of each. An annotation of the set lists its shapes, so that their pods are counted there
// as long as the slice lasts; the next slice is exact again if possible (spec: 30 §4.10.3, Limitation 1, 3).

// foldedAnnotation is on the template of a folded set: the digests of its shapes, sorted, with commas.
const foldedAnnotation = "berth.dev/folded-shapes"

// shapesOf are the digests of a set's shapes.
func shapesOf(set *kueue.PodSet) []string {
	if folded := set.Template.Annotations[foldedAnnotation]; folded != "" {
		return strings.Split(folded, ",")
	}
	return []string{Shape(&set.Template)}
}

// standsFor reports whether a set of the current slice includes a shape of a group.
func standsFor(set *kueue.PodSet, key groupShape) bool {
	name := string(set.Name)
	return (name == key.group || name == string(withSuffix(key.group, name[max(0, len(name)-shapeLength):]))) &&
		set.Template.Annotations[foldedAnnotation] != "" && slices.Contains(shapesOf(set), key.shape)
}

// fold adds the shapes of a set to another.
func fold(into, from *kueue.PodSet) {
	a, b := shapesOf(into), shapesOf(from)
	if slices.Equal(a, b) {
		return
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	p, q := &into.Template.Spec, &from.Template.Spec
	for i := range p.Containers {
		raise(&p.Containers[i], &q.Containers[i])
	}
	for i := range p.InitContainers {
		raise(&p.InitContainers[i], &q.InitContainers[i])
	}
	metav1.SetMetaDataAnnotation(&into.Template.ObjectMeta, foldedAnnotation, strings.Join(slices.Compact(all), ","))
}

// raise raises the requests and limits of a container to another's.
func raise(c, than *corev1.Container) {
	c.Resources.Requests = larger(c.Resources.Requests, than.Resources.Requests)
	c.Resources.Limits = larger(c.Resources.Limits, than.Resources.Limits)
}

func larger(a, b corev1.ResourceList) corev1.ResourceList {
	if a == nil && len(b) > 0 {
		a = corev1.ResourceList{}
	}
	for name, amount := range b { //berth:unordered each resource by itself
		if has, ok := a[name]; !ok || has.Cmp(amount) < 0 {
			a[name] = amount
		}
	}
	return a
}

// areFoldable reports whether two sets differ only in requests and limits of containers.
func areFoldable(a, b *kueue.PodSet) bool {
	return digest(withoutAmounts(&a.Template)) == digest(withoutAmounts(&b.Template))
}

func withoutAmounts(t *corev1.PodTemplateSpec) shape {
	s := shapeOf(t)
	for _, list := range [][]asks{s.Containers, s.Init} {
		for i := range list {
			list[i].Requests, list[i].Limits = nil, nil
		}
	}
	return s
}

// fold renames shapes that are not in the current slice to another shape of their group, until there are few enough sets. It
// reports whether there are fewer now.
func (n *names) fold(sets []kueue.PodSet) bool {
	few := len(sets)
	for i := range sets {
		if few <= podset.Most || n.place(sets[i].Name) < len(n.current) {
			continue
		}
		at := n.groupOf(sets[i].Name)
		for j := range sets {
			stays := j < i || n.place(sets[j].Name) < len(n.current) // a folded set has no group any more
			if i != j && stays && at != "" && n.groupOf(sets[j].Name) == at && areFoldable(&sets[j], &sets[i]) {
				n.rename(sets[i].Name, sets[j].Name)
				few--
				break
			}
		}
	}
	return few < len(sets)
}

// groupOf is the group of a set, empty if no cluster and not the spec has it.
func (n *names) groupOf(name kueue.PodSetReference) (group string) {
	for key, has := range n.byShape { //berth:unordered all with the name are of one group
		if has == name {
			group = key.group
		}
	}
	return group
}

func (n *names) rename(from, to kueue.PodSetReference) {
	for key, has := range n.byShape { //berth:unordered each by itself
		if has == from {
			n.byShape[key] = to
		}
	}
}
