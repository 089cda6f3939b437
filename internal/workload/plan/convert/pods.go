package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	"github.com/berth-project/berth/internal/workload/plan/devices"
)

// Around looks up objects that affect the pods of a workload beside its spec. A nil function
// finds nothing; found objects are not changed.
type Around struct {
	LimitRanges  func(namespace string) []corev1.LimitRange
	RuntimeClass func(name string) *nodev1.RuntimeClass // nil if there is none
	// HasTopology reports whether a flavor exists and names a topology.
	HasTopology func(flavor string) bool
	// Places returns the places of a pod set of a reservation: all of its assignment, or the ones that it still needs.
	Places func(*kueue.Workload, *kueue.PodSetAssignment) ([]assignment.Domain, error)
	// Devices returns the charges for the devices of a workload, given the resources of its pods.
	Devices func(*kueue.Workload, []corev1.PodSpec) devices.Charges
}

// pods returns the pod specs of a workload, one for each pod set, with the resources that Kubernetes' own
// admission would set, and nothing else. The Workload itself is not changed. spec: 10 §4.2.
func (a *Around) pods(w *kueue.Workload) ([]corev1.PodSpec, *bounds) {
	b := a.bounds(w.Namespace)
	out := make([]corev1.PodSpec, len(w.Spec.PodSets))
	for i := range w.Spec.PodSets {
		spec := &w.Spec.PodSets[i].Template.Spec
		pod := &out[i]
		pod.Overhead = boundedList(a.overhead(spec))
		pod.InitContainers, pod.Containers = b.container.containers(spec.InitContainers), b.container.containers(spec.Containers)
		if spec.Resources != nil {
			r := b.pod.fill(spec.Resources)
			pod.Resources = &r
		}
	}
	return out, b
}

// overhead returns the overhead of the pod or, without one, of its RuntimeClass.
func (a *Around) overhead(spec *corev1.PodSpec) corev1.ResourceList {
	if len(spec.Overhead) > 0 || spec.RuntimeClassName == nil || a.RuntimeClass == nil {
		return spec.Overhead
	}
	if class := a.RuntimeClass(*spec.RuntimeClassName); class != nil && class.Overhead != nil {
		return class.Overhead.PodFixed
	}
	return nil
}

// bounds are the combined LimitRanges of a namespace.
type bounds struct{ container, pod bound }

// bound is their content for one type of item: the narrowest limits, and the first defaults.
type bound struct{ highest, lowest, limits, requests corev1.ResourceList }

func (a *Around) bounds(namespace string) *bounds {
	b := &bounds{}
	if a.LimitRanges == nil {
		return b
	}
	ranges := slices.Clone(a.LimitRanges(namespace))
	slices.SortFunc(ranges, func(x, y corev1.LimitRange) int { return strings.Compare(x.Name, y.Name) })
	for i := range ranges {
		for _, item := range ranges[i].Spec.Limits {
			switch item.Type {
			case corev1.LimitTypeContainer:
				b.container.narrow(&item)
			case corev1.LimitTypePod:
				b.pod.narrow(&item)
			case corev1.LimitTypePersistentVolumeClaim:
			}
		}
	}
	return b
}

func (b *bound) narrow(item *corev1.LimitRangeItem) {
	b.highest = merge(b.highest, item.Max, func(have, q apiresource.Quantity) bool { return q.Cmp(have) < 0 })
	b.lowest = merge(b.lowest, item.Min, func(have, q apiresource.Quantity) bool { return q.Cmp(have) > 0 })
	never := func(apiresource.Quantity, apiresource.Quantity) bool { return false }
	b.limits = merge(b.limits, item.Default, never)
	b.requests = merge(b.requests, item.DefaultRequest, never)
}

// merge adds quantities. An existing quantity is replaced if the new one wins.
func merge(to, from corev1.ResourceList, wins func(have, q apiresource.Quantity) bool) corev1.ResourceList {
	//berth:unordered each key by itself
	for name, q := range boundedList(from) {
		if to == nil {
			to = corev1.ResourceList{}
		}
		if have, has := to[name]; !has || wins(have, q) {
			to[name] = q
		}
	}
	return to
}

// containers returns the containers of a pod with their resources alone.
func (b *bound) containers(in []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(in))
	for i := range in {
		out[i] = corev1.Container{Name: in[i].Name, RestartPolicy: in[i].RestartPolicy, Resources: b.fill(&in[i].Resources)}
	}
	return out
}

// fill sets missing limits and requests: defaults, then limits for requests.
func (b *bound) fill(r *corev1.ResourceRequirements) corev1.ResourceRequirements {
	limits := fill(boundedList(r.Limits), b.limits)
	return corev1.ResourceRequirements{Limits: limits, Requests: fill(fill(boundedList(r.Requests), b.requests), limits)}
}

// fill returns list with the entries of defaults that it lacks. It changes neither.
func fill(list, defaults corev1.ResourceList) corev1.ResourceList {
	out, own := list, false
	//berth:unordered each key by itself
	for name, q := range defaults {
		if _, has := list[name]; has {
			continue
		}
		if !own {
			if out = maps.Clone(list); out == nil {
				out = corev1.ResourceList{}
			}
			own = true
		}
		out[name] = q
	}
	return out
}

// misfit returns why Kubernetes would refuse the pods of a workload regardless of quota: they
// request more than their own limits, or violate a LimitRange; "" if it would accept them.
// spec: 10 §4.5 step 3.
func (b *bounds) misfit(w *kueue.Workload, pods []corev1.PodSpec) string {
	var out []string
	for i := range pods {
		pod, at := &pods[i], fmt.Sprintf("spec.podSets[%s].template.spec", w.Spec.PodSets[i].Name)
		for _, list := range []struct {
			name       string
			containers []corev1.Container
		}{{"initContainers", pod.InitContainers}, {"containers", pod.Containers}} {
			for _, c := range list.containers {
				path := fmt.Sprintf("%s.%s[%s].resources", at, list.name, c.Name)
				out = append(out, aboveLimits(path, &c.Resources)...)
				out = append(out, b.container.outside(path, c.Resources.Requests, c.Resources.Limits)...)
				if len(out) > mostMisfits {
					return strings.Join(append(out[:mostMisfits], "and more"), "; ")
				}
			}
		}
		if pod.Resources != nil {
			out = append(out, aboveLimits(at+".resources", pod.Resources)...)
		}
		if len(b.pod.highest)+len(b.pod.lowest) > 0 {
			out = append(out, b.pod.outside(at, podRequests(pod), nil)...)
		}
	}
	return strings.Join(out, "; ")
}

// mostMisfits is how many reasons are given.
const mostMisfits = 64

func aboveLimits(path string, r *corev1.ResourceRequirements) (out []string) {
	for _, name := range byName(r.Limits) {
		limit := r.Limits[name]
		if q, has := r.Requests[name]; has && q.Cmp(limit) > 0 {
			out = append(out, fmt.Sprintf("%s: the request of %s %s is above the limit of %s", path, name, q.String(), limit.String()))
		}
	}
	return out
}

func (b *bound) outside(path string, requests, limits corev1.ResourceList) (out []string) {
	for _, name := range byName(b.highest) {
		most, bound := extreme(name, requests, limits, 1), b.highest[name]
		if most != nil && most.Cmp(bound) > 0 {
			out = append(out, fmt.Sprintf("%s: %s %s is above the maximum of %s that a LimitRange sets", path, name, most.String(), bound.String()))
		}
	}
	for _, name := range byName(b.lowest) {
		least, bound := extreme(name, requests, limits, -1), b.lowest[name]
		if least != nil && least.Cmp(bound) < 0 {
			out = append(out, fmt.Sprintf("%s: %s %s is below the minimum of %s that a LimitRange sets", path, name, least.String(), bound.String()))
		}
	}
	return out
}

// extreme returns the larger one of two quantities, the smaller with a sign of −1; nil if both
// lists lack it.
func extreme(name corev1.ResourceName, a, b corev1.ResourceList, sign int) *apiresource.Quantity {
	x, inA := a[name]
	y, inB := b[name]
	switch {
	case !inA && !inB:
		return nil
	case !inA, inB && sign*y.Cmp(x) > 0:
		return &y
	}
	return &x
}

func byName(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

// podRequests applies Kubernetes' formula: containers, sidecars among the init containers,
// overhead, and requests on the level of the pod.
func podRequests(pod *corev1.PodSpec) corev1.ResourceList {
	return resource.PodRequests(&corev1.Pod{Spec: *pod}, resource.PodResourcesOptions{})
}
