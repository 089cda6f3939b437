package feed

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// clusterQueue converts with the problems that the object itself shows; whether its
// flavors exist and whether its cohorts form a circle, the state knows.
func (f *Feed) clusterQueue(ctx context.Context) func(*kueue.ClusterQueue) []state.Event {
	get := func(name string, into client.Object) bool {
		return f.Cache.Get(ctx, client.ObjectKey{Name: name}, into, client.UnsafeDisableDeepCopy) == nil
	}
	// What is missing comes with an event, and then the queue is converted again.
	known := convert.Known{
		Variants: f.Requests.Variants,
		Flavor: func(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor {
			flavor := &kueue.ResourceFlavor{}
			if !get(string(name), flavor) {
				return &kueue.ResourceFlavor{}
			}
			return flavor
		},
		Check: func(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
			check := &kueue.AdmissionCheck{}
			if !get(string(name), check) {
				return nil
			}
			return check
		},
		Topology: func(name kueue.TopologyReference) bool {
			return get(string(name), &kueue.Topology{}) && f.knowsNodes(ctx)
		},
		Parent: func(string) string { return "" },
	}
	return func(o *kueue.ClusterQueue) []state.Event {
		problems := convert.Problems(o, known)
		def, err := convert.Queue(o, problems)
		convert.Delay(&def, o, known)
		convert.Divide(&def, o, f.Requests.Variants)
		def.UsageBased = def.UsageBased && f.Sampling > 0
		if err != nil {
			log.FromContext(ctx).Error(err, "ClusterQueue cannot be used and is closed until it is mended", "clusterQueue", o.Name)
			def.Closed = err.Error()
		}
		return []state.Event{state.SetQueue(def)}
	}
}

// clusterQueues converts the ClusterQueues that match, which may have been opened or closed.
func (f *Feed) clusterQueues(ctx context.Context, match func(*kueue.ClusterQueue) bool) []state.Event {
	var list kueue.ClusterQueueList
	if err := f.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing ClusterQueues")
	}
	set := f.clusterQueue(ctx)
	var events []state.Event
	for i := range list.Items {
		if match(&list.Items[i]) {
			events = append(events, set(&list.Items[i])...)
		}
	}
	return events
}

// admissionCheck converts the ClusterQueues that name a check.
func (f *Feed) admissionCheck(ctx context.Context) func(*kueue.AdmissionCheck) []state.Event {
	return func(o *kueue.AdmissionCheck) []state.Event {
		return f.clusterQueues(ctx, func(cq *kueue.ClusterQueue) bool { return convert.NamesCheck(cq, o.Name) })
	}
}

// flavor converts a flavor, and the ClusterQueues that its topology may open or
// close.
func (f *Feed) flavor(ctx context.Context) func(*kueue.ResourceFlavor) []state.Event {
	return func(o *kueue.ResourceFlavor) []state.Event {
		events := []state.Event{f.setFlavor(ctx, o)}
		if o.Spec.TopologyName != "" { // it may be added, but not changed or removed
			events = append(events, f.clusterQueues(ctx, func(cq *kueue.ClusterQueue) bool { return convert.NamesFlavor(cq, o.Name) })...)
		}
		return events
	}
}

// setFlavor converts a flavor with its topology. Without the gate of topologies that is missing, which the engine ignores.
func (f *Feed) setFlavor(ctx context.Context, o *kueue.ResourceFlavor) state.Event {
	topology := &kueue.Topology{}
	key := client.ObjectKey{Name: string(o.Spec.TopologyName)}
	if key.Name == "" || !f.Requests.Topology || f.Cache.Get(ctx, key, topology, client.UnsafeDisableDeepCopy) != nil || !f.knowsNodes(ctx) {
		topology = nil // what is missing comes with an event, and then the flavor is converted again
	}
	return state.SetFlavor(convert.Flavor(o, topology))
}

// knowsNodes reports whether flavors may have their topologies: the engine knows the nodes, or does not decide before it does. It starts
// the watches of nodes when they are needed first. A topology that is created while the engine decides is missing until they are filled:
// a failed node could not be told from one that is not known yet (spec: 20 §4.5).
func (f *Feed) knowsNodes(ctx context.Context) bool {
	if f.Capacity == nil {
		return true
	}
	if f.nodes == nil {
		f.nodes = f.Capacity()
		if f.late {
			go f.addTopologies(ctx)
		}
	}
	if !f.late {
		return true
	}
	select {
	case <-f.nodes:
		return true
	default:
		return false
	}
}

// addTopologies converts all topologies once the nodes are known.
func (f *Feed) addTopologies(ctx context.Context) {
	select {
	case <-f.nodes:
	case <-ctx.Done():
		return
	}
	f.posting.Lock()
	defer f.posting.Unlock()
	var list kueue.TopologyList
	if err := f.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing Topologies")
	}
	set := f.topology(ctx)
	for i := range list.Items {
		f.Engine.Post(set(&list.Items[i])...)
	}
}

// topology converts the flavors that name a topology, and their ClusterQueues.
func (f *Feed) topology(ctx context.Context) func(*kueue.Topology) []state.Event {
	return func(o *kueue.Topology) []state.Event {
		var flavors kueue.ResourceFlavorList
		if err := f.Cache.List(ctx, &flavors, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Listing ResourceFlavors of a Topology", "topology", o.Name)
		}
		var events []state.Event
		for i := range flavors.Items {
			if string(flavors.Items[i].Spec.TopologyName) == o.Name {
				name := flavors.Items[i].Name
				events = append(events, f.setFlavor(ctx, &flavors.Items[i]))
				events = append(events, f.clusterQueues(ctx, func(cq *kueue.ClusterQueue) bool { return convert.NamesFlavor(cq, name) })...)
			}
		}
		return events
	}
}
