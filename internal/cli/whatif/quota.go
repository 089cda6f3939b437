package whatif

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// quotas appends the events of --quota.
func (e *edit) quotas(events []state.Event) ([]state.Event, error) {
	if len(e.c.quotas) == 0 {
		return events, nil
	}
	queues := e.b.knownQueues()
	for _, ev := range events {
		switch ev := ev.(type) {
		case state.SetQueue:
			queues[ev.Name] = state.Queue(ev)
		case state.DeleteQueue:
			delete(queues, string(ev))
		}
	}
	for _, text := range e.c.quotas {
		def, err := changeQuota(queues, text)
		if err != nil {
			return nil, cluster.Usage("--quota %s: %w", text, err)
		}
		queues[def.Name] = def
		events = append(events, state.SetQueue(def))
	}
	return events, nil
}

// changeQuota returns the ClusterQueue with another nominal quota, of a text such as research=on-demand/nvidia.com/gpu:+16.
func changeQuota(queues map[string]state.Queue, text string) (def state.Queue, err error) {
	name, rest, both := strings.Cut(text, "=")
	colon := strings.LastIndex(rest, ":")
	if !both || name == "" || colon < 1 || colon == len(rest)-1 {
		return def, fmt.Errorf("must be QUEUE=[FLAVOR/]RESOURCE:AMOUNT, such as research=nvidia.com/gpu:+16")
	}
	what, amount := rest[:colon], rest[colon+1:]
	def, known := queues[name]
	if !known {
		return def, fmt.Errorf("there is no ClusterQueue %s: %s", name, cluster.OrAll(name, slices.Sorted(maps.Keys(queues))))
	}
	def.Groups = cloneGroups(def.Groups)
	q, err := findQuota(&def, what)
	if err != nil {
		return def, err
	}
	sign := amount[0]
	if sign != '+' && sign != '-' && sign != '=' {
		return def, fmt.Errorf("the amount must begin with +, - or =, as in +%s", amount)
	}
	quantity, err := apiresource.ParseQuantity(amount[1:])
	if err != nil || quantity.Sign() < 0 {
		return def, fmt.Errorf("%s is no amount, such as 16 or 64Gi", amount[1:])
	}
	n := convert.Amount(corev1.ResourceName(q.Resource), quantity)
	switch sign {
	case '+':
		n = min(resource.Unlimited, q.Nominal.Add(n))
	case '-':
		n = q.Nominal.Add(-n)
	}
	if n < 0 {
		return def, fmt.Errorf("the quota is %s: it would be below 0", q.Nominal.Format(q.Resource))
	}
	q.Nominal = n
	return def, nil
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

// findQuota finds the quota of a resource, or of a flavor and a resource, in a ClusterQueue. The last part of a resource's name is enough if
// no other ends in it.
func findQuota(def *state.Queue, what string) (*state.Quota, error) {
	exact, short := map[string]*state.Quota{}, map[string]*state.Quota{}
	var all []string
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			for i := range f.Resources {
				q := &f.Resources[i]
				name := f.Flavor + "/" + q.Resource
				all = append(all, name)
				last := q.Resource[strings.LastIndex(q.Resource, "/")+1:]
				switch what {
				case name, q.Resource:
					exact[name] = q
				case last, f.Flavor + "/" + last:
					short[name] = q
				}
			}
		}
	}
	found := exact
	if len(found) == 0 {
		found = short
	}
	switch names := slices.Sorted(maps.Keys(found)); len(names) {
	case 0:
		return nil, fmt.Errorf("ClusterQueue %s has no quota of %s: %s", def.Name, what, cluster.OrAll(what, all))
	case 1:
		return found[names[0]], nil
	default:
		return nil, fmt.Errorf("ClusterQueue %s has several quotas of %s: name one of %s", def.Name, what, strings.Join(names, ", "))
	}
}
