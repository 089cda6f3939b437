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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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

// Known has what workloads refer to.
type Known interface {
	// Claim returns the charges of a claim that is made from a ResourceClaimTemplate, nil if there is no such template; see Rules.Charge.
	Claim(namespace, template string) (*Claim, *Problem)
	// Backing returns the DeviceClass that backs an extended resource, nil for none; see Backs and Newest.
	Backing(corev1.ResourceName) (*resourcev1.DeviceClass, *Problem)
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

// Changed are the workloads that may be charged in another way.
type Changed struct {
	// All workloads, or Claiming: all that claim devices.
	All, Claiming bool
	// Templates: those with claims from them.
	Templates sets.Set[types.NamespacedName]
}

// Any reports whether there are any.
func (c *Changed) Any() bool { return c.All || c.Claiming || len(c.Templates) > 0 }

// Namespaces are where they are, sorted; "" alone for everywhere.
func (c *Changed) Namespaces() []string {
	if c.All || c.Claiming {
		return []string{""}
	}
	namespaces := sets.New[string]()
	for of := range c.Templates { //berth:unordered a set again
		namespaces.Insert(of.Namespace)
	}
	return sets.List(namespaces)
}

// Has reports whether a workload is one of them.
func (c *Changed) Has(w *kueue.Workload) bool {
	return c.All || slices.ContainsFunc(w.Spec.PodSets, func(ps kueue.PodSet) bool {
		return slices.ContainsFunc(ps.Template.Spec.ResourceClaims, func(claim corev1.PodResourceClaim) bool {
			return c.Claiming || c.Templates.Has(types.NamespacedName{Namespace: w.Namespace, Name: ptr.Deref(claim.ResourceClaimTemplateName, "")})
		})
	})
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

// count is one run of Count.
type count struct {
	*Rules
	Known
	tally
	namespace, path string // path of the pods
	replaced        []corev1.ResourceName
}

// tally sums charges. The first problem stays, and charges after it still count.
type tally struct {
	charged map[corev1.ResourceName]resource.Amount
	problem *Problem
}

func (t *tally) inadmissible(format string, args ...any) {
	t.fail(&Problem{Text: fmt.Sprintf(format, args...)})
}

func (t *tally) fail(p *Problem) {
	if t.problem == nil {
		t.problem = p
	}
}

func (t *tally) charge(name corev1.ResourceName, each resource.Amount, times int64) {
	if t.charged == nil {
		t.charged = map[corev1.ResourceName]resource.Amount{}
	}
	t.charged[name] = t.charged[name].Add(max(0, each).Mul(times))
}

// claim charges one claim of a pod.
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
	of, problem := c.Claim(c.namespace, *pc.ResourceClaimTemplateName)
	switch {
	case problem != nil:
		c.fail(problem)
		return
	case of == nil:
		c.inadmissible("%s: there is no ResourceClaimTemplate %s in the namespace", at, *pc.ResourceClaimTemplateName)
		return
	}
	//berth:unordered sums
	for name, amount := range of.Charged {
		c.charge(name, amount, 1)
	}
	if p := of.Problem; p != nil {
		c.fail(&Problem{Text: at + ": " + p.Text, Reading: p.Reading})
	}
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
