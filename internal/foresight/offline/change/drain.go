package change

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/placement/plan/nodequota"
	"github.com/berth-project/berth/internal/state"
)

// drain appends the events of drained nodes: they take no pods, and Workloads that are placed on them lose them as when nodes fail. One
// failed node of a Workload is replaced, with two it is evicted. spec: 20 §4.9.
func (e *edit) drain(events []state.Event) ([]state.Event, error) {
	if len(e.change.Drains) == 0 {
		return events, nil
	}
	from := e.b.State.Checkpoint().Snapshot()
	nodes, flavors := placesAfter(from, events)
	hosts := map[string]string{} // the names of the drained nodes by their hostnames
	var failed Mistakes
	for i, name := range e.change.Drains {
		n, known := nodes[name]
		err := error(nil)
		if !known {
			err = fmt.Errorf("there is no such node: %s", strict.OrAll(name, slices.Sorted(maps.Keys(nodes))))
		} else {
			err = e.checkDrain(&n, flavors, from.Options.Topology != nil)
		}
		if err != nil {
			failed = append(failed, &Mistake{OfDrain, i, "", err})
			continue
		}
		n.Schedulable = false
		hosts[n.Labels[corev1.LabelHostname]] = name
		events = append(events, n)
	}
	if failed != nil {
		return nil, failed
	}
	return append(events, e.failures(from, hosts)...), nil
}

// failures returns the events of Workloads that are placed on drained nodes. hosts has the names of these by their hostnames.
func (e *edit) failures(from *state.Snapshot, hosts map[string]string) (events []state.Event) {
	elsewhere := 0
	for i := range from.Workloads {
		def := &from.Workloads[i].Def
		if !def.Reserved || def.Evicting {
			continue
		}
		failed, byHost := failedNodes(def, hosts)
		if !byHost {
			elsewhere++
		}
		switch changed := *def; {
		case len(failed) > 1:
			events = append(events, eviction(e.b.State, def.UID))
		case len(failed) == 1 && !slices.Equal(failed, def.Unhealthy):
			changed.Unhealthy = failed
			changed.Version++
			events = append(events, state.SetWorkload(changed))
		}
	}
	if elsewhere > 0 {
		e.b.note("%s with quota and without places on nodes: those that run on a drained node are not known, and stay", trace.Plural(elsewhere, "workload"))
	}
	return events
}

// placesAfter returns the nodes and the flavors after events, by name.
func placesAfter(from *state.Snapshot, events []state.Event) (map[string]state.SetNode, map[string]flavor.Flavor) {
	nodes := map[string]state.SetNode{}
	for _, n := range from.Nodes {
		nodes[n.Name] = n
	}
	flavors := map[string]flavor.Flavor{}
	for _, f := range from.Flavors {
		flavors[f.Name] = f
	}
	for _, ev := range events {
		switch ev := ev.(type) {
		case state.SetNode:
			nodes[ev.Name] = ev
		case state.SetFlavor:
			flavors[ev.Name] = flavor.Flavor(ev)
		}
	}
	return nodes, flavors
}

// failedNodes returns the nodes of a Workload that fail or are drained, and whether its places are on nodes.
func failedNodes(def *state.Workload, hosts map[string]string) (failed []string, byHost bool) {
	failed = slices.Clone(def.Unhealthy)
	for i := range def.Placed {
		p := &def.Placed[i]
		if len(p.Levels) == 0 || p.Levels[len(p.Levels)-1] != topology.Hostname {
			continue
		}
		byHost = true
		for _, d := range p.Domains {
			if node, drained := hosts[d.Values[len(d.Values)-1]]; drained && !slices.Contains(failed, node) {
				failed = append(failed, node)
			}
		}
	}
	return failed, byHost
}

// checkDrain refuses to drain a node whose loss the state cannot express.
func (e *edit) checkDrain(n *state.SetNode, flavors map[string]flavor.Flavor, topologies bool) error {
	counts := func(f *flavor.Flavor) bool {
		if len(f.Levels) == 0 {
			return false
		}
		for key, value := range f.Labels { //berth:unordered each must match
			if n.Labels[key] != value {
				return false
			}
		}
		return !slices.ContainsFunc(f.Levels, func(level string) bool { _, has := n.Labels[level]; return !has })
	}
	is := false
	for _, f := range flavors { //berth:unordered whether there is one
		is = is || counts(&f)
	}
	if !topologies || !is {
		return errors.New("no flavor with a topology has the node, so its loss moves no quota: change quotas instead")
	}
	var follow []client.Object
	for _, o := range offline.All[*kueue.ClusterQueue](e.after) {
		follow = append(follow, o)
	}
	for _, o := range offline.All[*kueue.Cohort](e.after) {
		follow = append(follow, o)
	}
	for _, o := range follow {
		if o.GetAnnotations()[nodequota.Annotation] != "" {
			return fmt.Errorf("%s %s follows its nodes (%s), which a what-if does not compute: remove the annotation by an object of that name, and change its quota",
				kindOf(o), o.GetName(), nodequota.Annotation)
		}
	}
	return nil
}
