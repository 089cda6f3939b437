// Package devices counts the devices that pods claim, as quantities of quota: claims made from ResourceClaimTemplates, by the mappings of
// the configuration, and extended resources that a DeviceClass backs. spec: 20 §4.12.
package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
)

// Rules are the settings for devices.
type Rules struct {
	Mappings []configv1beta2.DeviceClassMapping
	// Integrated: claims are charged. If not, workloads with claims stay pending with Reject, and are admitted as if they claimed none
	// without. Feature gates KueueDRAIntegration and KueueDRARejectWorkloadsWhenDRADisabled.
	Integrated, Reject bool
	// Extended: extended resources that a DeviceClass backs are charged as devices. Feature gate KueueDRAIntegrationExtendedResource.
	Extended bool
}

// Inactive reports that no workload is affected.
func (r *Rules) Inactive() bool { return !r.Integrated && !r.Reject }

// Known is what the API server has. Objects that it returns are not changed.
type Known interface {
	// Template returns a ResourceClaimTemplate, nil if there is none.
	Template(namespace, name string) (*resourcev1.ResourceClaimTemplate, *Problem)
	// Class returns a DeviceClass, nil if there is none.
	Class(name string) (*resourcev1.DeviceClass, *Problem)
	// Backing returns the DeviceClass that backs an extended resource, nil for none; see Newest.
	Backing(corev1.ResourceName) (*resourcev1.DeviceClass, *Problem)
	// Select returns the devices of a selection.
	Select(Selection) (*Selected, *Problem)
	// Compiles returns why an expression is no selector of devices, "" if it is one.
	Compiles(expression string) string
}

// Problem is why the devices of a workload cannot be charged.
type Problem struct {
	// Text describes the mistake and its place.
	Text string
	// Reading: objects are being read, and the answer is known in a moment.
	Reading bool
}

// Charges are the charges for the devices of a workload, for each pod set.
type Charges struct {
	PodSets []PodSet
	// Problem is why they are incomplete, nil if they are not.
	Problem *Problem
}

// PodSet has the charges for each pod of a pod set.
type PodSet struct {
	// Charged are whole units of resources of quota.
	Charged map[corev1.ResourceName]resource.Amount
	// Replaced are the extended resources for which devices are charged instead.
	Replaced []corev1.ResourceName
}

// HasClaims reports whether pods of a workload claim devices.
func HasClaims(w *kueue.Workload) bool {
	return slices.ContainsFunc(w.Spec.PodSets, func(ps kueue.PodSet) bool { return len(ps.Template.Spec.ResourceClaims) > 0 })
}

// Count returns the charges for the devices of a workload. pods has the resources of its pods, one for each pod set.
func (r *Rules) Count(w *kueue.Workload, pods []corev1.PodSpec, known Known) Charges {
	c := &count{Rules: r, Known: known, namespace: w.Namespace}
	if !r.Integrated {
		if r.Reject && HasClaims(w) {
			c.inadmissible("spec.podSets[].template.spec.resourceClaims: devices are not charged while the feature gate KueueDRAIntegration is off; " +
				"with KueueDRARejectWorkloadsWhenDRADisabled off, workloads are admitted as if they claimed none")
		}
		return Charges{Problem: c.problem}
	}
	var out Charges
	for i := range pods {
		ps := &w.Spec.PodSets[i]
		c.path, c.charged, c.replaced = "spec.podSets["+string(ps.Name)+"].template.spec", nil, nil
		for j := range ps.Template.Spec.ResourceClaims {
			c.claim(&ps.Template.Spec.ResourceClaims[j])
		}
		if r.Extended {
			c.extended(&pods[i]) //nolint:gosec // there is one for each pod set
		}
		if c.charged != nil && out.PodSets == nil {
			out.PodSets = make([]PodSet, len(w.Spec.PodSets))
		}
		if c.charged != nil {
			out.PodSets[i] = PodSet{c.charged, c.replaced}
		}
	}
	out.Problem = c.problem
	return out
}

// count is one run of Count. The first problem stays; what comes after it is still counted.
type count struct {
	*Rules
	Known
	namespace, path string // path of the pods, or of the claim
	charged         map[corev1.ResourceName]resource.Amount
	replaced        []corev1.ResourceName
	problem         *Problem
}

func (c *count) inadmissible(format string, args ...any) {
	c.fail(&Problem{Text: fmt.Sprintf(format, args...)})
}

func (c *count) fail(p *Problem) {
	if c.problem == nil {
		c.problem = p
	}
}

func (c *count) charge(name corev1.ResourceName, each resource.Amount, times int64) {
	if c.charged == nil {
		c.charged = map[corev1.ResourceName]resource.Amount{}
	}
	c.charged[name] = c.charged[name].Add(max(0, each).Mul(times))
}

// claim counts one claim of a pod.
func (c *count) claim(pc *corev1.PodResourceClaim) {
	at := fmt.Sprintf("%s.resourceClaims[%s]", c.path, pc.Name)
	switch {
	case pc.ResourceClaimName != nil:
		c.inadmissible("%s.resourceClaimName: the ResourceClaim %s may be shared, so it is charged to no workload; set resourceClaimTemplateName",
			at, *pc.ResourceClaimName)
		return
	case pc.ResourceClaimTemplateName == nil:
		c.inadmissible("%s: it names no ResourceClaimTemplate", at)
		return
	}
	t, problem := c.Template(c.namespace, *pc.ResourceClaimTemplateName)
	switch {
	case problem != nil:
		c.fail(problem)
		return
	case t == nil:
		c.inadmissible("%s: there is no ResourceClaimTemplate %s in the namespace", at, *pc.ResourceClaimTemplateName)
		return
	}
	taken := map[device]bool{}
	for i := range t.Spec.Spec.Devices.Requests {
		r := &t.Spec.Spec.Devices.Requests[i]
		c.request(r, fmt.Sprintf("%s: request %s of ResourceClaimTemplate %s", at, r.Name, t.Name), taken)
	}
}

// request counts one request of a claim. taken are the devices that serve earlier requests of it.
func (c *count) request(r *resourcev1.DeviceRequest, at string, taken map[device]bool) {
	e := r.Exactly
	switch {
	case len(r.FirstAvailable) > 0 || e == nil:
		c.inadmissible("%s has alternatives (firstAvailable), which cannot be charged; use exactly", at)
		return
	case e.AllocationMode != "" && e.AllocationMode != resourcev1.DeviceAllocationModeExactCount:
		c.inadmissible("%s has the allocation mode %s, which cannot be charged; use ExactCount", at, e.AllocationMode)
		return
	}
	selectors, why := c.compiled(e.Selectors)
	switch {
	case why != "":
		c.inadmissible("%s %s", at, why)
		return
	case ptr.Deref(e.AdminAccess, false):
		return
	}
	q := &request{ExactDeviceRequest: e, at: at, selectors: selectors, count: max(e.Count, 1), taken: taken}
	mappings := c.mappings(e.DeviceClassName)
	if len(mappings) == 0 {
		c.inadmissible("%s names the DeviceClass %s, which is in no mapping of the configuration (resources.deviceClassMappings)", at, e.DeviceClassName)
		return
	}
	if len(selectors) > 0 && !c.available(q) {
		return
	}
	for _, m := range mappings {
		if len(m.Sources) == 0 {
			c.charge(m.Name, resource.Amount(q.count), 1)
		}
		for i := range m.Sources {
			c.source(q, m.Name, &m.Sources[i])
		}
	}
}

// request is a request for a number of devices.
type request struct {
	*resourcev1.ExactDeviceRequest
	at        string // for messages
	selectors []string
	count     int64
	taken     map[device]bool
}

// compiled returns the expressions of selectors, or why one is none.
func (c *count) compiled(list []resourcev1.DeviceSelector) (expressions []string, why string) {
	for _, s := range list {
		if s.CEL == nil {
			return nil, "has a selector that is not CEL"
		}
		if why := c.Compiles(s.CEL.Expression); why != "" {
			return nil, fmt.Sprintf("has a selector that does not compile: %s", why)
		}
		expressions = append(expressions, s.CEL.Expression)
	}
	return expressions, ""
}

// mappings returns the mappings of a class: one, or several with distinct counters.
func (r *Rules) mappings(class string) (out []*configv1beta2.DeviceClassMapping) {
	for i := range r.Mappings {
		if slices.Contains(r.Mappings[i].DeviceClassNames, corev1.ResourceName(class)) {
			out = append(out, &r.Mappings[i])
		}
	}
	return out
}

// expressions returns the expressions of the class of a request, then its own; ok is false if the class cannot be read.
func (c *count) expressions(q *request) (out []string, ok bool) {
	class, problem := c.Class(q.DeviceClassName)
	switch {
	case problem != nil:
		c.fail(problem)
		return nil, false
	case class == nil:
		c.inadmissible("%s names the DeviceClass %s, which does not exist", q.at, q.DeviceClassName)
		return nil, false
	}
	for _, s := range class.Spec.Selectors {
		if s.CEL != nil {
			out = append(out, s.CEL.Expression)
		}
	}
	return append(out, q.selectors...), true
}

// available reports whether devices match a request with selectors, and takes them.
func (c *count) available(q *request) bool {
	expressions, ok := c.expressions(q)
	if !ok {
		return false
	}
	found, ok := c.selected(q, Selection{Expressions: expressions})
	if !ok {
		return false
	}
	left := q.count
	for i := range found {
		if d := found[i].device(); left > 0 && !q.taken[d] {
			q.taken[d] = true
			left--
		}
	}
	if left > 0 {
		c.inadmissible("%s selects %d devices of DeviceClass %s, and %d of the known ones match and serve no other request",
			q.at, q.count, q.DeviceClassName, q.count-left)
	}
	return left == 0
}

func (c *count) selected(q *request, s Selection) ([]Match, bool) {
	found, problem := c.Select(s)
	switch {
	case problem != nil:
		c.fail(problem)
		return nil, false
	case found.Problem != "":
		c.inadmissible("%s cannot be matched: %s", q.at, found.Problem)
		return nil, false
	}
	return found.Matches, true
}

// extended counts the extended resources of pods that a DeviceClass backs.
func (c *count) extended(pod *corev1.PodSpec) {
	for _, name := range requested(pod) {
		class, problem := c.Backing(name)
		if problem != nil {
			c.fail(problem)
			continue
		}
		if class == nil {
			continue
		}
		each, whole := largest(pod, name)
		key, mappings := name, c.mappings(class.Name)
		switch {
		case !whole:
			c.inadmissible("%s: %s is backed by the DeviceClass %s, and devices are whole", c.path, name, class.Name)
			continue
		case len(mappings) > 0 && len(mappings[0].Sources) > 0:
			c.inadmissible("%s: %s is backed by the DeviceClass %s, whose devices are charged by counters or capacities (%s), not by number; "+
				"claim them with a ResourceClaimTemplate", c.path, name, class.Name, mappings[0].Name)
			continue
		case len(mappings) > 0:
			key = mappings[0].Name
		}
		c.charge(key, each, 1)
		c.replaced = append(c.replaced, name)
	}
}

// requested returns the names of the resources that may be backed by devices, and of which a container requests some, in order.
func requested(pod *corev1.PodSpec) []corev1.ResourceName {
	var names map[corev1.ResourceName]bool
	for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range list {
			//berth:unordered sorted below
			for name, q := range list[i].Resources.Requests {
				if !MayBeBacked(name) || q.Sign() <= 0 {
					continue
				}
				if names == nil {
					names = map[corev1.ResourceName]bool{}
				}
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// MayBeBacked reports whether a resource has a name that an extended resource may have.
func MayBeBacked(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/")
}

// largest returns what a pod needs of an extended resource: the largest request of an init container, or the sum of the containers, if that
// is more. whole is false if a request is no integer.
func largest(pod *corev1.PodSpec, name corev1.ResourceName) (each resource.Amount, whole bool) {
	whole = true
	of := func(c *corev1.Container) resource.Amount {
		q, has := c.Resources.Requests[name]
		if !has {
			return 0
		}
		whole = whole && q.CmpInt64(q.Value()) == 0
		return resource.Amount(max(0, q.Value()))
	}
	var first, sum resource.Amount
	for i := range pod.InitContainers {
		first = max(first, of(&pod.InitContainers[i]))
	}
	for i := range pod.Containers {
		sum = sum.Add(of(&pod.Containers[i]))
	}
	return max(first, sum), whole
}
