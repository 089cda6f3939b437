package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// maxName is the maximum length of the names of pod sets.
const maxName = 63

// Demand describes the next slice of a service.
type Demand struct {
	PodSets []kueue.PodSet
	// Held names the clusters that wait for it.
	Held []string
	// Crowded is why clusters wait for another reason than quota: there would be too many pod sets with them.
	Crowded error
}

// Demand computes the next slice. If running clusters need more than they have, it has these alone: an upgrade that is too big must
// not keep the serving cluster from growing. Otherwise it includes the waiting clusters (spec: 30 §4.10.3, Slices).
func (s *Service) Demand() Demand {
	n := s.names()
	if !slices.ContainsFunc(s.Clusters, func(c Cluster) bool { return s.counts(&c) }) {
		return Demand{PodSets: s.fromSpec(n)}
	}
	waits := s.waiting()
	running := s.demand(n, func(c *Cluster) bool { return !s.Waits(c) })
	all := s.demand(n, func(*Cluster) bool { return true })
	if len(all) > podset.Most && n.fold(all) {
		all = s.demand(n, func(*Cluster) bool { return true })
	}
	serves := len(waits) > 0 && slices.ContainsFunc(s.Clusters, func(c Cluster) bool { return s.counts(&c) && !s.Waits(&c) })
	switch {
	case serves && s.Granting() != nil && !s.hasRoomFor(running):
		return Demand{PodSets: s.steady(running)}
	case len(all) > podset.Most && serves:
		return Demand{PodSets: s.steady(running), Crowded: fmt.Errorf("cluster %s has to wait: with it there are %d different pod sets, and a workload takes %d at most; "+
			"use fewer groups, or the same requests, selectors and tolerations in both versions", strings.Join(waits, ", "), len(all), podset.Most)}
	default:
		return Demand{PodSets: s.steady(all), Held: waits}
	}
}

// waiting are the names of the clusters that wait for quota.
func (s *Service) waiting() []string {
	var out []string
	for _, c := range s.ranked() {
		if s.Waits(c) {
			out = append(out, c.Name)
		}
	}
	return out
}

// steady are pod sets that do not shrink while pods of a deleted cluster end: their quota is released at once with the last pod,
// and not in one write per pod.
func (s *Service) steady(wanted []kueue.PodSet) []kueue.PodSet {
	w := s.Granting()
	leaving := slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool {
		c := s.cluster(p)
		return Runs(p) && (c == nil || c.Rank == Deleting)
	})
	if w == nil || !leaving || chain.CompareShaped(w, wanted) != chain.Shrinks {
		return wanted
	}
	out := make([]kueue.PodSet, len(w.Spec.PodSets))
	for i := range out {
		w.Spec.PodSets[i].DeepCopyInto(&out[i])
	}
	return out
}

// fromSpec is the demand of a service without a usable cluster: a new one, and the pods that still run of earlier ones.
func (s *Service) fromSpec(n *names) []kueue.PodSet {
	a := adder{counts: map[kueue.PodSetReference]int{}}
	for i := range s.Spec {
		a.add(&s.Spec[i], n.of(&s.Spec[i]), s.Spec[i].Count)
	}
	s.leftovers(&a, n, s.live(n, func(*Cluster) bool { return true }))
	return a.inOrder(n)
}

// demand sums all pods of the clusters that take part, and the running pods of the others.
func (s *Service) demand(n *names, takesPart func(*Cluster) bool) []kueue.PodSet {
	a := adder{counts: map[kueue.PodSetReference]int{}}
	for _, c := range s.ranked() {
		live := s.live(n, func(x *Cluster) bool { return x == c })
		if s.counts(c) && takesPart(c) {
			for i := range c.Groups {
				name := n.of(&c.Groups[i])
				a.add(&c.Groups[i], name, max(c.Groups[i].Count, live[name]))
				delete(live, name)
			}
		}
		s.leftovers(&a, n, live)
	}
	s.leftovers(&a, n, s.live(n, func(x *Cluster) bool { return x == nil }))
	return a.inOrder(n)
}

// live counts the running pods, by pod set, of the clusters that match; nil stands for a deleted one.
func (s *Service) live(n *names, match func(*Cluster) bool) map[kueue.PodSetReference]int32 {
	out := map[kueue.PodSetReference]int32{}
	for _, pod := range s.Pods {
		if Runs(pod) && match(s.cluster(pod)) {
			out[n.ofPod(s, pod)]++
		}
	}
	return out
}

// leftovers adds running pods whose set no group wants. Their template comes from the slice that admitted them, or from their
// group.
func (s *Service) leftovers(a *adder, n *names, live map[kueue.PodSetReference]int32) {
	for _, name := range slices.Sorted(maps.Keys(live)) {
		if set := s.setNamed(n, name); set != nil {
			a.add(set, name, live[name])
		}
	}
}

// setOfSlice is the set of a name in the newest slice that has it; nil if there is none.
func (s *Service) setOfSlice(name kueue.PodSetReference) *kueue.PodSet {
	for _, w := range slices.Backward(chain.Live(s.Slices)) {
		if at := slices.IndexFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name }); at >= 0 {
			return &w.Spec.PodSets[at]
		}
	}
	return nil
}

func (s *Service) setNamed(n *names, name kueue.PodSetReference) *kueue.PodSet {
	if set := s.setOfSlice(name); set != nil {
		return set
	}
	for _, c := range s.ranked() {
		if at := slices.IndexFunc(c.Groups, func(p kueue.PodSet) bool { return n.of(&p) == name }); at >= 0 {
			return &c.Groups[at]
		}
	}
	return nil
}

// adder adds pod sets up by name.
type adder struct {
	sets   []kueue.PodSet
	counts map[kueue.PodSetReference]int // where a name is, plus one
}

func (a *adder) add(like *kueue.PodSet, name kueue.PodSetReference, count int32) {
	if at := a.counts[name]; at > 0 {
		if count > 0 {
			fold(&a.sets[at-1], like)
		}
		a.sets[at-1].Count = job.Saturate(int64(a.sets[at-1].Count) + int64(count))
		return
	}
	set := like.DeepCopy()
	set.Name, set.Count = name, count
	a.sets = append(a.sets, *set)
	a.counts[name] = len(a.sets)
}

// inOrder are the sets in the order of the slice that runs, then as they were added.
func (a *adder) inOrder(n *names) []kueue.PodSet {
	slices.SortStableFunc(a.sets, func(x, y kueue.PodSet) int { return n.place(x.Name) - n.place(y.Name) })
	return a.sets
}

// names gives every shape of every group a name that stays: the one that it has in the current slice, else that of the
// group if no other shape has it, else the name of the group with the digest of the shape.
type names struct {
	current []kueue.PodSet
	byShape map[groupShape]kueue.PodSetReference
	plain   map[string]bool // groups whose plain name is taken
}

type groupShape struct{ group, shape string }

// names assigns a name to each shape: first of the active cluster, then of the pending one, the others, and the spec.
func (s *Service) names() *names {
	n := &names{byShape: map[groupShape]kueue.PodSetReference{}, plain: map[string]bool{}}
	if w := s.current(); w != nil {
		n.current = w.Spec.PodSets
	}
	for i := range n.current {
		n.plain[string(n.current[i].Name)] = true
	}
	for _, c := range s.ranked() {
		for i := range c.Groups {
			n.nameShape(&c.Groups[i])
		}
	}
	for i := range s.Spec {
		n.nameShape(&s.Spec[i])
	}
	return n
}

// current is the slice whose names are kept: the one that the service runs by, or is about to.
func (s *Service) current() *kueue.Workload {
	if w := s.Granting(); w != nil {
		return w
	}
	for _, w := range slices.Backward(chain.Live(s.Slices)) {
		if lifecycle.IsReserved(w) && !lifecycle.IsEvicted(w) {
			return w
		}
	}
	return nil
}

// nameShape assigns a name to the shape of a group, once.
func (n *names) nameShape(set *kueue.PodSet) {
	group := strings.ToLower(string(set.Name))
	key := groupShape{group, Shape(&set.Template)}
	if _, ok := n.byShape[key]; ok {
		return
	}
	suffixed := withSuffix(group, key.shape)
	for i := range n.current {
		if name := n.current[i].Name; (name == kueue.PodSetReference(group) && Shape(&n.current[i].Template) == key.shape) || name == suffixed || standsFor(&n.current[i], key) {
			n.byShape[key] = name
			return
		}
	}
	if !n.plain[group] {
		n.plain[group] = true
		n.byShape[key] = kueue.PodSetReference(group)
		return
	}
	n.byShape[key] = suffixed
}

func (n *names) of(set *kueue.PodSet) kueue.PodSetReference {
	return n.byShape[groupShape{strings.ToLower(string(set.Name)), Shape(&set.Template)}]
}

// ofPod is the set of a pod: the one that it was ungated for, or its group's. Empty if it has none.
func (n *names) ofPod(s *Service, pod *corev1.Pod) kueue.PodSetReference {
	if stamped := pod.Labels[kueue.PodSetLabel]; stamped != "" && Runs(pod) {
		return kueue.PodSetReference(stamped)
	}
	if c := s.cluster(pod); c != nil {
		for i := range c.Groups {
			if strings.ToLower(string(c.Groups[i].Name)) == group(pod) {
				return n.of(&c.Groups[i])
			}
		}
	}
	return ""
}

// place is the index of a set in the current slice, or the number of its sets.
func (n *names) place(name kueue.PodSetReference) int {
	if at := slices.IndexFunc(n.current, func(p kueue.PodSet) bool { return p.Name == name }); at >= 0 {
		return at
	}
	return len(n.current)
}

func withSuffix(group, shape string) kueue.PodSetReference {
	return kueue.PodSetReference(group[:min(len(group), maxName-1-len(shape))] + "-" + shape)
}
