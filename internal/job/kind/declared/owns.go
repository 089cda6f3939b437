package declared

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
)

// owns are the kinds in the declaration, or all.
func (k kind) owns() []plan.Child {
	if k.Owns == nil {
		return []plan.Child{{}}
	}
	out := make([]plan.Child, 0, len(k.Owns))
	for _, gvk := range k.Owns {
		out = append(out, plan.Child{GVK: gvk, Made: k.made})
	}
	return out
}

// made returns why an object does not belong to a job: it has pods of no pod set of the job, or more of them.
func (k kind) made(of *plan.OwnedBy) error {
	sets, err := k.podSets(of.Owner, of.Setting())
	if err != nil {
		return err
	}
	var children []kueue.PodSet
	for _, o := range append([]plan.Object{of.Child}, of.Below...) { // a serving object has no pod sets, but pods below it
		if pod, ok := o.(*corev1.Pod); ok {
			children = append(children, kueue.PodSet{Name: "pod", Count: 1, Template: corev1.PodTemplateSpec{Spec: pod.Spec}})
		}
	}
	if of.Kind != nil && of.Kind.PodSets != nil {
		if children, err = of.Kind.PodSets(of.Child, of.Setting()); err != nil {
			return err
		}
	}
	for i := range children {
		c := &children[i]
		fits := slices.ContainsFunc(sets, func(s kueue.PodSet) bool {
			return c.Count <= s.Count && plan.PodExceeds(&c.Template.Spec, &s.Template.Spec) == nil
		})
		if !fits {
			return errors.New("none of its podSets has as many pods of that size")
		}
	}
	return nil
}
