package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// mostInjected is the maximum that other webhooks and LimitRanges may add to one pod: the requests of containers that are not in the
// template of its owner, and requests of resources that the template does not state. Devices are not in it.
var mostInjected = corev1.ResourceList{
	corev1.ResourceCPU:              resource.MustParse("4"),
	corev1.ResourceMemory:           resource.MustParse("8Gi"),
	corev1.ResourceEphemeralStorage: resource.MustParse("64Gi"),
}

// HasPrefix reports whether the name of an object begins with a prefix, which the API server truncates before it appends a suffix.
// A new object may have only generateName.
func HasPrefix(o metav1.Object, prefix string) bool {
	if o.GetName() == "" {
		return strings.HasPrefix(o.GetGenerateName(), prefix)
	}
	return strings.HasPrefix(o.GetName(), prefix[:min(len(prefix), maxGenerated)])
}

// Ordinal returns n of a name PREFIXn; false for any other name.
func Ordinal(name, prefix string) (int64, bool) {
	text, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == text
}

// ErrOtherName means that the controller of the owner names its objects differently.
var ErrOtherName = errors.New("its objects have other names")

// PodExceeds returns an error that names a request of a pod beyond the template of its owner. Devices, huge pages and claims are
// compared strictly, container by container, and so are CPU, memory and storage where the template states them. Unstated CPU,
// memory and storage may be [Injected].
func PodExceeds(pod, template *corev1.PodSpec) error {
	added := corev1.ResourceList{}
	type container struct {
		name    string
		sidecar bool
	}
	for _, of := range [][2][]corev1.Container{{pod.InitContainers, template.InitContainers}, {pod.Containers, template.Containers}} {
		templates := make(map[container]*corev1.Container, len(of[1]))
		for i := range of[1] {
			templates[container{of[1][i].Name, isSidecar(&of[1][i])}] = &of[1][i]
		}
		for i := range of[0] {
			c := &of[0][i]
			var stated corev1.ResourceList
			if t := templates[container{c.Name, isSidecar(c)}]; t != nil {
				stated = requests(&t.Resources)
			}
			if err := requestExceeds(requests(&c.Resources), stated, added); err != nil {
				return fmt.Errorf("container %s %w", c.Name, err)
			}
		}
	}
	if pod.Resources != nil {
		var stated corev1.ResourceList
		if template.Resources != nil {
			stated = requests(template.Resources)
		}
		if err := requestExceeds(requests(pod.Resources), stated, added); err != nil {
			return fmt.Errorf("the pod %w", err)
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, most := added[name], mostInjected[name]; q.Cmp(most) > 0 {
			return fmt.Errorf("containers request %s %s beyond its template, and %s is allowed", q.String(), name, most.String())
		}
	}
	return claimsExceed(pod, template)
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// requests returns the effective requests: a limit is the request where none is stated.
func requests(r *corev1.ResourceRequirements) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, r.Limits)
	maps.Copy(out, r.Requests)
	return out
}

// requestExceeds compares requests with the stated ones of the template, and adds unstated ones to added.
func requestExceeds(asked, stated, added corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		q := asked[name]
		most, ok := stated[name]
		_, injectable := mostInjected[name]
		switch {
		case !ok && injectable:
			sum := added[name]
			sum.Add(q)
			added[name] = sum
		case q.Cmp(most) > 0:
			return fmt.Errorf("requests %s %s, and its template %s", q.String(), name, most.String())
		}
	}
	return nil
}

// claimsExceed finds a resource claim that the template does not have.
func claimsExceed(pod, template *corev1.PodSpec) error {
	type claim struct{ name, template string }
	of := func(c *corev1.PodResourceClaim) claim {
		return claim{ptr.Deref(c.ResourceClaimName, ""), ptr.Deref(c.ResourceClaimTemplateName, "")}
	}
	left := map[claim]int{}
	for i := range template.ResourceClaims {
		left[of(&template.ResourceClaims[i])]++
	}
	for i := range pod.ResourceClaims {
		c := of(&pod.ResourceClaims[i])
		if left[c]--; left[c] < 0 {
			return fmt.Errorf("the resource claim %s is not in its template", pod.ResourceClaims[i].Name)
		}
	}
	return nil
}

// SetsExceed returns an error that names a pod set, a pod or a request beyond the pod sets of an owner. Counts are not compared
// with anyCount, for callers whose pods are held in another way.
func SetsExceed(sets, of []kueue.PodSet, anyCount bool) error {
	for i := range sets {
		s := &sets[i]
		at := slices.IndexFunc(of, func(o kueue.PodSet) bool { return o.Name == s.Name })
		switch {
		case at < 0:
			return fmt.Errorf("there are no pods %s", s.Name)
		case s.Count > of[at].Count && !anyCount:
			return fmt.Errorf("there are %d pods %s, and not %d", of[at].Count, s.Name, s.Count)
		}
		if err := PodExceeds(&s.Template.Spec, &of[at].Template.Spec); err != nil {
			return fmt.Errorf("pods %s: %w", s.Name, err)
		}
	}
	return nil
}

// MadePod checks a pod against a template.
func MadePod(o Object, template *corev1.PodSpec) error {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	return PodExceeds(&pod.Spec, template)
}
