package plan

import (
	"fmt"
	"slices"
	"strings"
)

// nominateTogether nominates clusters for one of several Workloads of a job. The first is dispatched like any other once all exist, and
// the others follow it to its cluster (spec: 40 §4.9).
func (d *decider) nominateTogether(s *Siblings) []string {
	switch {
	case len(s.Clusters) > 1:
		d.plan.Err = fmt.Errorf("the workloads of one %s are on several clusters: %s", d.o.Job.Kind, strings.Join(s.Clusters, ", "))
		return d.w.Status.NominatedClusterNames
	case len(s.Clusters) == 1:
		return d.follow(s.Clusters[0])
	case s.Present < s.Wanted || !s.First:
		return nil // events of the others requeue the Workload
	}
	return d.nominateByMode()
}

func (d *decider) follow(name string) []string {
	if c := d.cluster(name); c == nil || (!c.Connected && !c.Busy) {
		d.plan.Err = fmt.Errorf("cluster %s, which has the other workloads of the %s, cannot be reached", name, d.o.Job.Kind)
	}
	if !slices.Equal(d.w.Status.NominatedClusterNames, []string{name}) {
		d.nominate([]string{name})
	}
	return []string{name}
}
