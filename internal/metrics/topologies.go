package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-project/berth/internal/occupancy"
)

// topologyFamilies are the series of the nodes of flavors with a topology. There is one of each flavor, level and resource, but none
// of each domain or node.
type topologyFamilies struct {
	capacity, free, largest, fragmentation, domains, nodes *prometheus.Desc
}

func (m *maker) topologies() topologyFamilies {
	gauge := func(name, help string, own ...string) *prometheus.Desc {
		return m.gauge("berth_topology_"+name, help, nil, append([]string{"topology", flavorLabel}, own...)...)
	}
	return topologyFamilies{
		capacity: gauge("capacity", "What the nodes that count have, less what pods outside of placements use.", resourceLabel),
		free:     gauge("free", "What is free on the nodes that count.", resourceLabel),
		largest:  gauge("largest_free", "What is free in the one domain of a level that has most.", "level", resourceLabel),
		fragmentation: gauge("fragmentation_ratio",
			"How far the largest free amount in one domain of a level is below what it would be if all that is free were packed together: 0 to 1.", "level", resourceLabel),
		domains: gauge("domains", "Domains of a level.", "level"),
		nodes:   gauge("nodes", "Nodes by their state: counted, not_ready, cordoned, unlabeled.", "state"),
	}
}

// topologyGauges are the gauges of all flavors with a topology.
func (r *Recorder) topologyGauges() []prometheus.Metric {
	if r.options.Places == nil || r.families.topology.free == nil {
		return nil
	}
	g := &gauges{Recorder: r, role: []string{r.options.role()}}
	r.options.Places.Read(func(places *occupancy.Reader) {
		for _, f := range places.Flavors("") {
			g.ofPlaces(places, &f)
		}
	})
	return g.out
}

func (g *gauges) ofPlaces(r *occupancy.Reader, flavor *occupancy.Flavor) {
	f, own := &g.topology, []string{flavor.Topology, flavor.Name}
	nodes := r.NodesOf(flavor)
	for _, n := range []struct {
		state string
		count int
	}{{"counted", nodes.Counted}, {"not_ready", nodes.NotReady}, {"cordoned", nodes.Cordoned}, {"unlabeled", nodes.Unlabeled}} {
		g.put(f.nodes, float64(n.count), own, []string{n.state})
	}
	for i, level := range flavor.Levels {
		domains := r.Domains(flavor, i, nil)
		g.put(f.domains, float64(len(domains)), own, []string{level})
		for _, fill := range occupancy.FillOf(flavor, domains) {
			if i == 0 {
				g.put(f.capacity, number(fill.Resource, fill.Capacity), own, []string{fill.Resource})
				g.put(f.free, number(fill.Resource, fill.Free), own, []string{fill.Resource})
			}
			g.put(f.largest, number(fill.Resource, fill.LargestFree), own, []string{level, fill.Resource})
			g.put(f.fragmentation, fill.Fragmentation(), own, []string{level, fill.Resource})
		}
	}
}
