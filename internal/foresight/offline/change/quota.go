package change

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Quota is a change of a nominal quota.
type Quota struct {
	Queue string
	// Flavor may be empty where only one flavor has the Resource. Of the Resource, the part behind its last slash is enough if no other ends in it.
	Flavor, Resource string
	// Amount is a quantity with a sign: +16, -8, or =32 for the new quota.
	Amount string
}

// ParseQuota reads a text such as research=on-demand/nvidia.com/gpu:+16. Its flavor is part of the Resource.
func ParseQuota(text string) (q Quota, err error) {
	name, rest, both := strings.Cut(text, "=")
	colon := strings.LastIndex(rest, ":")
	if !both || name == "" || colon < 1 || colon == len(rest)-1 {
		return q, errors.New("must be QUEUE=[FLAVOR/]RESOURCE:AMOUNT, such as research=nvidia.com/gpu:+16")
	}
	return Quota{Queue: name, Resource: rest[:colon], Amount: rest[colon+1:]}, nil
}

// quotas appends the events of changed quotas.
func (e *edit) quotas(events []state.Event) ([]state.Event, error) {
	if len(e.change.Quotas) == 0 {
		return events, nil
	}
	queues := e.queuesOf(events)
	var failed Mistakes
	for i := range e.change.Quotas {
		def, field, err := e.change.Quotas[i].apply(queues)
		if err != nil {
			failed = append(failed, &Mistake{OfQuota, i, field, err})
			continue
		}
		queues[def.Name] = def
		events = append(events, state.SetQueue(def))
	}
	if failed != nil {
		return nil, failed
	}
	return events, nil
}

// queuesOf returns the ClusterQueues after events, by name.
func (e *edit) queuesOf(events []state.Event) map[string]state.Queue {
	queues := e.b.knownQueues()
	for _, ev := range events {
		switch ev := ev.(type) {
		case state.SetQueue:
			queues[ev.Name] = state.Queue(ev)
		case state.DeleteQueue:
			delete(queues, string(ev))
		}
	}
	return queues
}

// apply returns the ClusterQueue with the other nominal quota. field is what an error is about.
func (c *Quota) apply(queues map[string]state.Queue) (def state.Queue, field string, err error) {
	def, known := queues[c.Queue]
	if !known {
		return def, "queue", fmt.Errorf("there is no ClusterQueue %s: %s", c.Queue, strict.OrAll(c.Queue, slices.Sorted(maps.Keys(queues))))
	}
	def.Groups = cloneGroups(def.Groups)
	q, field, err := c.find(&def)
	if err != nil {
		return def, field, err
	}
	amount := c.Amount
	if amount == "" || !strings.Contains("+-=", amount[:1]) {
		return def, "amount", fmt.Errorf("the amount must begin with +, - or =, as in +%s", cmp.Or(amount, "16"))
	}
	quantity, err := apiresource.ParseQuantity(amount[1:])
	if err != nil || quantity.Sign() < 0 {
		return def, "amount", fmt.Errorf("%s is no amount, such as 16 or 64Gi", amount[1:])
	}
	n := convert.Amount(corev1.ResourceName(q.Resource), quantity)
	switch amount[0] {
	case '+':
		n = min(resource.Unlimited, q.Nominal.Add(n))
	case '-':
		n = q.Nominal.Add(-n)
	}
	if n < 0 {
		return def, "amount", fmt.Errorf("the quota is %s: it would be below 0", q.Nominal.Format(q.Resource))
	}
	q.Nominal = n
	return def, "", nil
}

func cloneGroups(in []state.Group) []state.Group {
	out := slices.Clone(in)
	for i := range out {
		out[i].Flavors = slices.Clone(out[i].Flavors)
		for k := range out[i].Flavors {
			out[i].Flavors[k].Resources = slices.Clone(out[i].Flavors[k].Resources)
		}
	}
	return out
}

// find finds the quota in a ClusterQueue. field is what an error is about.
func (c *Quota) find(def *state.Queue) (q *state.Quota, field string, err error) {
	exact, short := map[string]*state.Quota{}, map[string]*state.Quota{}
	var all, flavors []string
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			flavors = append(flavors, f.Flavor)
			if c.Flavor != "" && c.Flavor != f.Flavor {
				continue
			}
			for i := range f.Resources {
				q := &f.Resources[i]
				name := f.Flavor + "/" + q.Resource
				all = append(all, name)
				last := q.Resource[strings.LastIndex(q.Resource, "/")+1:]
				switch c.Resource {
				case name, q.Resource:
					exact[name] = q
				case last, f.Flavor + "/" + last:
					short[name] = q
				}
			}
		}
	}
	if c.Flavor != "" && !slices.Contains(flavors, c.Flavor) {
		return nil, "flavor", fmt.Errorf("ClusterQueue %s has no flavor %s: %s", def.Name, c.Flavor, strict.OrAll(c.Flavor, flavors))
	}
	found := exact
	if len(found) == 0 {
		found = short
	}
	switch names := slices.Sorted(maps.Keys(found)); len(names) {
	case 0:
		return nil, "resource", fmt.Errorf("ClusterQueue %s has no quota of %s: %s", def.Name, c.Resource, strict.OrAll(c.Resource, all))
	case 1:
		return found[names[0]], "", nil
	default:
		return nil, "resource", fmt.Errorf("ClusterQueue %s has several quotas of %s: name one of %s", def.Name, c.Resource, strings.Join(names, ", "))
	}
}
