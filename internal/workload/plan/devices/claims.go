package devices

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
)

// World has what the requests of claims refer to. Objects that it returns are not changed.
type World interface {
	// Class returns a DeviceClass, nil if there is none.
	Class(name string) (*resourcev1.DeviceClass, *Problem)
	// Select returns the devices of a selection.
	Select(Selection) (*Selected, *Problem)
	// Compiles returns why an expression is no selector of devices, "" if it is one.
	Compiles(expression string) string
}

// Claim has the charges of a claim. It is not changed.
type Claim struct {
	// Charged are whole units of resources of quota.
	Charged map[corev1.ResourceName]resource.Amount
	// Problem is why they are incomplete, nil if they are not. Its text names the request and the template.
	Problem *Problem
}

// Charge returns the charges of a claim that is made from a template.
func (r *Rules) Charge(t *resourcev1.ResourceClaimTemplate, w World) *Claim {
	c := &claiming{Rules: r, World: w, taken: map[device]bool{}}
	for i := range t.Spec.Spec.Devices.Requests {
		q := &t.Spec.Spec.Devices.Requests[i]
		c.request(q, fmt.Sprintf("request %s of ResourceClaimTemplate %s", q.Name, t.Name))
	}
	return &Claim{Charged: c.charged, Problem: c.problem}
}

// claiming is one run of Charge.
type claiming struct {
	*Rules
	World
	tally
	taken map[device]bool // devices that serve earlier requests
}

// request charges one request.
func (c *claiming) request(r *resourcev1.DeviceRequest, at string) {
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
	q := &request{ExactDeviceRequest: e, at: at, selectors: selectors, count: max(e.Count, 1)}
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
}

// compiled returns the expressions of selectors, or why one is none.
func (c *claiming) compiled(list []resourcev1.DeviceSelector) (expressions []string, why string) {
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
func (c *claiming) expressions(q *request) (out []string, ok bool) {
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
func (c *claiming) available(q *request) bool {
	expressions, ok := c.expressions(q)
	if !ok {
		return false
	}
	found, ok := c.selected(q, Selection{Expressions: expressions})
	if !ok {
		return false
	}
	left := q.count
	for m := range found {
		if d := m.device(); !c.taken[d] {
			c.taken[d] = true
			if left--; left == 0 {
				return true
			}
		}
	}
	c.inadmissible("%s selects %d devices of DeviceClass %s, and %d of the known ones match and serve no other request",
		q.at, q.count, q.DeviceClassName, q.count-left)
	return false
}

func (c *claiming) selected(q *request, s Selection) (iter.Seq[Match], bool) {
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
