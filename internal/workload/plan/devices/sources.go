package devices

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
)

// source charges a request by a counter or a capacity of the devices that may serve it: the largest amount of one, for each. Only devices of
// complete pools count.
func (c *claiming) source(q *request, into corev1.ResourceName, s *configv1beta2.DeviceClassSource) {
	m, what := s.Counter, "counter"
	if m == nil {
		m, what = s.Capacity, "capacity"
	}
	found, ok := c.measured(q, m)
	if !ok {
		return
	}
	most, has, fit, refused := resource.Amount(0), false, int64(0), false
	for d := range found {
		amount, is := int64(0), false
		if s.Counter != nil {
			amount, is = consumption(d.Device, m.Name)
			fit++
		} else {
			var allowed bool
			amount, is, allowed = consumed(q, &d, m.Name)
			if !allowed {
				refused = true
				continue
			}
			fit++
		}
		if is {
			most, has = max(most, resource.Amount(amount)), true
		}
	}
	switch of := "driver " + m.Driver; {
	case refused && fit == 0:
		c.inadmissible("%s cannot be served: the request policies of all matching devices of %s refuse the requested amount of the capacity %s", q.at, of, m.Name)
	case fit < q.count:
		c.inadmissible("%s needs %d devices, and %d of the devices of %s in complete pools match", q.at, q.count, fit, of)
	case !has:
		c.inadmissible("%s cannot be served: no matching device of %s has the %s %s", q.at, of, what, m.Name)
	default:
		c.charge(into, most, q.count)
	}
}

// measured returns the devices that a source measures; ok is false if they are not known.
func (c *claiming) measured(q *request, m *configv1beta2.DeviceMeasure) (iter.Seq[Match], bool) {
	expressions, ok := c.expressions(q)
	if !ok {
		return nil, false
	}
	if m.DeviceSelector.CEL != nil {
		expressions = append(expressions, m.DeviceSelector.CEL.Expression)
	}
	found, ok := c.selected(q, Selection{Driver: m.Driver, Expressions: expressions})
	return func(yield func(Match) bool) {
		for d := range found {
			if d.Complete && !yield(d) {
				return
			}
		}
	}, ok
}

// consumption returns how much of a counter a device consumes, over all sets of counters, in whole units.
func consumption(d *resourcev1.Device, name string) (amount int64, has bool) {
	var sum resource.Amount
	for i := range d.ConsumesCounters {
		if counter, is := d.ConsumesCounters[i].Counters[name]; is {
			sum, has = sum.Add(whole(&counter.Value)), true
		}
	}
	return int64(sum), has
}

// whole returns a quantity in whole units, rounded up, 0 for a negative one.
func whole(q *apiresource.Quantity) resource.Amount { return resource.Amount(max(0, q.Value())) }

// consumed returns how much of a capacity of a device a request consumes, in whole units. allowed is false if the policy of the device, or
// its size, refuses the amount. spec: 20 §4.12.
func consumed(q *request, m *Match, name string) (amount int64, has, allowed bool) {
	capacity, has := find(m.Device.Capacity, m.Driver, name)
	if !has {
		return 0, false, true
	}
	want := capacity.Value
	policy := capacity.RequestPolicy
	if policy != nil && policy.Default != nil {
		want = *policy.Default
	}
	if q.Capacity != nil {
		if asked, is := find(q.Capacity.Requests, m.Driver, name); is {
			want = asked
		}
	}
	amount = int64(whole(&want))
	if policy != nil {
		amount, allowed = policed(amount, policy)
		if !allowed {
			return 0, true, false
		}
	}
	return amount, true, amount <= int64(whole(&capacity.Value))
}

// policed rounds an amount up to what a policy allows.
func policed(amount int64, p *resourcev1.CapacityRequestPolicy) (rounded int64, allowed bool) {
	if len(p.ValidValues) > 0 {
		for i := range p.ValidValues { // ascending
			if v := int64(whole(&p.ValidValues[i])); v >= amount {
				return v, true
			}
		}
		return 0, false
	}
	r := p.ValidRange
	if r == nil {
		return amount, true
	}
	least := int64(0)
	if r.Min != nil {
		least = int64(whole(r.Min))
	}
	amount = max(amount, least)
	if r.Step != nil {
		if step := int64(whole(r.Step)); step > 0 && (amount-least)%step != 0 {
			steps := resource.Amount((amount-least)/step + 1)
			amount = int64(steps.Mul(step).Add(resource.Amount(least)))
		}
	}
	if r.Max != nil && amount > int64(whole(r.Max)) {
		return 0, false
	}
	return amount, true
}

// find returns the entry of a capacity. Names without a domain are in the domain of the driver.
func find[T any](of map[resourcev1.QualifiedName]T, driver, name string) (value T, has bool) {
	local, qualified := name, name
	if domain, id, full := strings.Cut(name, "/"); !full {
		qualified = driver + "/" + name
	} else if domain == driver {
		local = id
	}
	if value, has = of[resourcev1.QualifiedName(qualified)]; has {
		return value, true
	}
	value, has = of[resourcev1.QualifiedName(local)]
	return value, has
}
