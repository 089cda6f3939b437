package plan

import (
	"encoding/json"
	"slices"
	"strings"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/podset"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// A remote service runs on another cluster than the one where its slices are made: the manager decides, the worker executes. The
// manager reads the clusters on the worker, but not their pods. It forwards a changed spec only once the worker has admitted a slice
// with room for the new cluster (spec: 30 §4.10.3, Limitation 3).
//
//	worker: clusters ─► ExpectClusters ─┬─► FitsIn: may the change be forwarded?
//	                                    └─► Counts ─► annotation of the service ─► RestoreClusters ─► Demand: the next slice

// ClustersAnnotation is, on a remote service, the Counts of its clusters, as JSON.
const ClustersAnnotation = "berth.dev/rayservice-clusters"

// Count is the number of pods of a set in a remote cluster. A cluster without a name is still to be made.
type Count struct {
	Cluster string                `json:"cluster"`
	PodSet  kueue.PodSetReference `json:"podSet"`
	Count   int32                 `json:"count"`
}

// ExpectClusters replaces the clusters on a worker by the clusters that the service is charged for: all that may have pods, in full
// until they are deleted, since their pods are not visible here; the one that waits to take over; and, if none matches the spec,
// the one that the worker will make after the change is forwarded.
func (s *Service) ExpectClusters() {
	wanted := false
	var out []Cluster
	for _, c := range s.Clusters {
		expected := (c.Current || s.Stays) && !c.Twin && c.Rank <= Pending
		if c.Held && !expected {
			continue // it will be deleted without having had a pod
		}
		if expected && len(c.Groups) < len(s.Spec) { // KubeRay adds groups in place
			c.Groups = slices.Concat(c.Groups, s.Spec[len(c.Groups):])
		}
		wanted = wanted || expected
		c.Rank, c.Held, c.Current = min(c.Rank, Pending), false, true
		out = append(out, c)
	}
	if !wanted {
		out = append(out, s.expected())
	}
	s.Clusters = out
}

// expected is a cluster that is still to be made.
func (s *Service) expected() Cluster {
	return Cluster{Rank: Pending, Held: true, Current: true, Groups: s.Spec}
}

// FitsIn reports whether a slice has room for all clusters of the service.
func (s *Service) FitsIn(w *kueue.Workload) bool {
	n, every := s.names(), func(*Cluster) bool { return true }
	all := s.demand(n, every)
	if len(all) > podset.Most && n.fold(all) {
		all = s.demand(n, every)
	}
	return chain.CompareShaped(w, all) != chain.Grows
}

// Counts is the value of ClustersAnnotation.
func (s *Service) Counts() string {
	n, out := s.names(), []Count{}
	for _, c := range s.ranked() {
		for i := range c.Groups {
			out = append(out, Count{c.Name, n.of(&c.Groups[i]), c.Groups[i].Count})
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return ""
	}
	return string(text)
}

// RestoreClusters makes the clusters of the service from the text of Counts, with templates of the slices. Without a valid text the
// demand is the current slice.
func (s *Service) RestoreClusters(text string) {
	var counts []Count
	if err := json.Unmarshal([]byte(text), &counts); err != nil {
		if w := s.current(); w != nil {
			s.Clusters = []Cluster{{Name: w.Name, Current: true, Groups: w.Spec.PodSets}}
		}
		return
	}
	s.Clusters = nil
	for _, count := range counts {
		at := slices.IndexFunc(s.Clusters, func(c Cluster) bool { return c.Name == count.Cluster })
		if at < 0 {
			c := Cluster{Name: count.Cluster, Current: true}
			if c.Name == "" {
				c = s.expected()
			}
			s.Clusters, at = append(s.Clusters, c), len(s.Clusters)
		}
		if like := s.like(count.PodSet); count.Cluster != "" && like != nil {
			set := like.DeepCopy()
			set.Count = count.Count
			s.Clusters[at].Groups = append(s.Clusters[at].Groups, *set)
		}
	}
}

// like is the set of a name in the newest slice that has it, or in the spec; nil if there is none.
func (s *Service) like(name kueue.PodSetReference) *kueue.PodSet {
	if set := s.setOfSlice(name); set != nil {
		return set
	}
	if at := slices.IndexFunc(s.Spec, func(p kueue.PodSet) bool { return strings.EqualFold(string(p.Name), string(name)) }); at >= 0 {
		return &s.Spec[at]
	}
	return nil
}
