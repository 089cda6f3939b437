package topology

import (
	"maps"

	"github.com/berth-project/berth/internal/core/workload"
)

// Nodes is the nodes of a Space at one moment: references to definitions that do not change.
type Nodes struct {
	All     []Node // in no order
	Foreign map[string][]workload.Request
}

// Nodes returns the nodes, and the usage of foreign pods by the name of the node.
func (s *Space) Nodes() Nodes {
	out := Nodes{Foreign: maps.Clone(s.foreign)}
	for i := range s.nodes.All {
		if n := &s.nodes.All[i]; n.Name != "" {
			out.All = append(out.All, n.Node)
		}
	}
	return out
}
