package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// class is those that no decision can tell apart but by age, with what they have in
// common. spec: 10 §4.4.
type class struct {
	id      int32
	members int32
	hash    uint64
	next    *class // another class of the same hash
	kin     kin
	podSets []workload.PodSet
	shapes  []string // of the pod sets
}

// kin is what the definitions of a class have in common. The namespace counts, since a
// queue may not take workloads of every namespace.
type kin struct {
	namespace, replaces, owner, uid string
	priority                        int64
	gated                           bool
}

func (s *State) kinOf(def *Workload) kin {
	k := kin{namespace: def.Namespace, priority: def.Priority, gated: def.Gated}
	if def.Replaces != "" {
		k.replaces, k.owner = def.Replaces, def.Owner
	}
	if s.options.NoClasses {
		k.uid = def.UID
	}
	return k
}

// hash is equal for the definitions of one class.
func (k *kin) hash(podSets []PodSet) uint64 {
	h := trace.NewHash()
	h.Text(k.namespace)
	h.Number(k.priority)
	h.Text(k.uid)
	for i := range podSets {
		ps := &podSets[i]
		h.Text(ps.Name)
		h.Number(int64(ps.Count))
		h.Text(ps.Shape)
		for _, r := range ps.Requests {
			h.Text(r.Resource)
			h.Number(int64(r.Amount))
		}
	}
	return h.Sum()
}

// is tells whether the pod sets of a class are these.
func (s *State) is(c *class, podSets []PodSet) bool {
	if len(c.podSets) != len(podSets) {
		return false
	}
	for i := range podSets {
		x, y := &c.podSets[i], &podSets[i]
		if x.Name != y.Name || x.Count != y.Count || x.MinCount != y.MinCount || x.Group != y.Group || c.shapes[i] != y.Shape ||
			!slices.EqualFunc(x.Requests, y.Requests, func(r workload.Request, q Request) bool {
				return r.Amount == q.Amount && s.world.Table.Name(r.Resource) == q.Resource
			}) {
			return false
		}
	}
	return true
}

// ofClass tells whether the pod sets of a record are those of its class.
func (s *State) ofClass(r *record) bool { return r.def.PodSets == nil || s.is(r.class, r.def.PodSets) }

// shed lets go of a record's pod sets if its class has them as well.
func (s *State) shed(r *record) {
	if r.class != nil && s.ofClass(r) {
		r.def.PodSets = nil
	}
}

// podSetsOf returns the pod sets of a record as they were defined.
func (s *State) podSetsOf(r *record) []PodSet {
	if r.def.PodSets != nil || r.class == nil {
		return r.def.PodSets
	}
	defs := make([]PodSet, len(r.class.podSets))
	for i := range defs {
		ps := &r.class.podSets[i]
		defs[i] = PodSet{
			Name: ps.Name, Count: ps.Count, MinCount: ps.MinCount, Group: ps.Group, Constraints: ps.Constraints,
			Shape: r.class.shapes[i], Requests: make([]Request, len(ps.Requests)),
		}
		for j, q := range ps.Requests {
			defs[i].Requests[j] = Request{s.world.Table.Name(q.Resource), q.Amount}
		}
	}
	return defs
}

// joinClass finds the class of a record, which from then on shares its pod sets.
func (s *State) joinClass(r *record) {
	podSets, kin := s.podSetsOf(r), s.kinOf(&r.def)
	hash := kin.hash(podSets)
	c := s.classes[hash]
	for c != nil && (c.kin != kin || !s.is(c, podSets)) {
		c = c.next
	}
	if c == nil {
		s.lastClass++
		c = &class{id: s.lastClass, hash: hash, next: s.classes[hash], kin: kin, podSets: s.podSets(podSets), shapes: make([]string, len(podSets))}
		for i := range podSets {
			c.shapes[i] = podSets[i].Shape
		}
		s.classes[hash] = c
	}
	c.members++
	s.leaveClass(r)
	r.class, r.def.PodSets = c, nil
}

func (s *State) leaveClass(r *record) {
	c := r.class
	if c == nil {
		return
	}
	r.class = nil
	if c.members--; c.members > 0 {
		return
	}
	switch at := s.classes[c.hash]; {
	case at != c:
		for at.next != c {
			at = at.next
		}
		at.next = c.next
	case c.next != nil:
		s.classes[c.hash] = c.next
	default:
		delete(s.classes, c.hash)
	}
}

func (s *State) podSets(defs []PodSet) []workload.PodSet {
	podSets := make([]workload.PodSet, len(defs))
	n := 0
	for _, ps := range defs {
		n += len(ps.Requests)
	}
	all := make([]workload.Request, 0, n)
	for i, ps := range defs {
		from := len(all)
		for _, req := range ps.Requests {
			all = append(all, workload.Request{Resource: s.world.Table.ID(req.Resource), Amount: req.Amount})
		}
		podSets[i] = workload.PodSet{
			Name: ps.Name, Count: ps.Count, MinCount: ps.MinCount, Group: ps.Group,
			Requests: all[from:len(all):len(all)], Constraints: ps.Constraints,
		}
	}
	return podSets
}
