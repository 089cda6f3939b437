package dash

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// shownChoices is how many names of a kind the form of a what-if suggests at most.
const shownChoices = 1000

var priorityClassesResource = resource{kueue.GroupVersion.WithResource("workloadpriorityclasses"), "WorkloadPriorityClass"}

// choices are the names that the form of a what-if suggests, as far as the caller may list them.
type choices struct {
	ClusterQueues   []queueChoice      `json:"clusterQueues"`
	LocalQueues     []localQueueChoice `json:"localQueues"`
	PriorityClasses []string           `json:"priorityClasses"`
	Levels          []string           `json:"levels"` // of topologies
	Nodes           []string           `json:"nodes"`
	// Topology: the manager places pods by topology.
	Topology bool `json:"topology"`
}

type queueChoice struct {
	Name    string         `json:"name"`
	Flavors []flavorChoice `json:"flavors"`
}

type flavorChoice struct {
	Name      string   `json:"name"`
	Resources []string `json:"resources"`
}

type localQueueChoice struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// whatIfForm is the view of the form of a what-if: a refusal, or the names to choose from.
func (s *Server) whatIfForm(ctx context.Context, a *ask) (any, error) {
	if err := s.mayAll(ctx, a.who, []resource{workloadsResource, clusterQueuesResource}); err != nil {
		return nil, err
	}
	if s.WhatIf.Checkpoint == nil {
		return missing{noEngine}, nil
	}
	out := choices{
		ClusterQueues: []queueChoice{}, LocalQueues: []localQueueChoice{}, PriorityClasses: []string{}, Levels: []string{}, Nodes: []string{},
		Topology: s.WhatIf.Settings.Requests.Topology,
	}
	queues, _, err := s.allClusterQueues(ctx, a)
	if err != nil {
		return nil, err
	}
	for _, q := range queues[:min(len(queues), shownChoices)] {
		out.ClusterQueues = append(out.ClusterQueues, queueChoice{q.Name, flavorChoices(q)})
	}
	local, err := s.queues(ctx, a, func(*kueue.LocalQueue) bool { return true })
	if err != nil {
		return nil, err
	}
	for _, q := range local[:min(len(local), shownChoices)] {
		out.LocalQueues = append(out.LocalQueues, localQueueChoice{q.Namespace, q.Name})
	}
	var classes kueue.WorkloadPriorityClassList
	some, _, err := clusterWide(ctx, s, a, priorityClassesResource, &classes, &classes.Items)
	if err != nil {
		return nil, err
	}
	for _, c := range some[:min(len(some), shownChoices)] {
		out.PriorityClasses = append(out.PriorityClasses, c.Name)
	}
	if out.Topology {
		err = s.topologyChoices(ctx, a, &out)
	}
	return out, err
}

func (s *Server) topologyChoices(ctx context.Context, a *ask, out *choices) error {
	var all kueue.TopologyList
	topologies, _, err := clusterWide(ctx, s, a, topologiesResource, &all, &all.Items)
	if err != nil {
		return err
	}
	for _, t := range topologies {
		for _, l := range t.Spec.Levels {
			if !slices.Contains(out.Levels, l.NodeLabel) && len(out.Levels) < shownChoices {
				out.Levels = append(out.Levels, l.NodeLabel)
			}
		}
	}
	var list corev1.NodeList
	nodes, _, err := clusterWide(ctx, s, a, nodesResource, &list, &list.Items)
	for _, n := range nodes[:min(len(nodes), shownChoices)] {
		out.Nodes = append(out.Nodes, n.Name)
	}
	return err
}

func flavorChoices(q *kueue.ClusterQueue) []flavorChoice {
	out := []flavorChoice{}
	for _, g := range q.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			c := flavorChoice{Name: string(f.Name)}
			for _, r := range f.Resources {
				c.Resources = append(c.Resources, string(r.Name))
			}
			out = append(out, c)
		}
	}
	return out
}
