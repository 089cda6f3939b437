package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// class is an equivalence class: workloads that differ only in age, for any decision.
// spec: 10 §4.4.
type class struct {
	classKey
	id, members int32
	space       int32 // the number of its namespace
	hash        uint64
	next        *class // another class of the same hash
}

// classKey is the part of a definition that is equal in a class. The namespace counts, since a
// queue may not take workloads of every namespace.
type classKey struct {
	shape     *shape
	namespace string
	apart     string // shared by no other workload, or only by slices that are to replace the same one
	priority  int64
	line      int32 // of its LocalQueue, see localQueue.lineNumber
	// bound is that of the run, 0 while no queue has Backfill.
	bound workload.Instant
}

// shape is the pod sets of any number of classes.
type shape struct {
	podSets []workload.PodSet
	texts   []string // PodSet.Shape of each
	users   int32    // classes and definitions
	hash    uint64
	next    *shape // another shape of the same hash
}

func (s *State) classKeyOf(r *record) classKey {
	k := classKey{shape: r.def.shape, namespace: r.lq.name.Namespace, priority: r.def.Priority, line: r.lq.lineNumber()}
	if s.backfilling > 0 {
		k.bound = r.def.Bound
	}
	if r.def.Replaces != "" {
		k.apart = r.def.Replaces + "/" + r.def.Owner // no name has a slash
	}
	if s.options.NoClasses || r.def.Gated { // each gated one is told that its gate keeps it
		k.apart = r.uid()
	}
	return k
}

func (k *classKey) hash() uint64 {
	h := trace.Hash(k.shape.hash)
	h.Text(k.namespace)
	h.Text(k.apart)
	h.Number(k.priority)
	h.Number(int64(k.line))
	if k.bound > 0 {
		h.Number(int64(k.bound))
	}
	return h.Sum()
}

func hashOf(podSets []PodSet) uint64 {
	var h trace.Hash
	for i := range podSets {
		ps := &podSets[i]
		h.Text(ps.Name)
		h.Number(int64(ps.Count))
		h.Text(ps.Shape)
		for _, r := range ps.Requests {
			h.Number(int64(len(r.Resource)))
			h.Number(int64(r.Amount))
		}
	}
	return h.Sum()
}

// is reports whether pod sets have a shape.
func (s *State) is(of *shape, podSets []PodSet) bool {
	if len(of.podSets) != len(podSets) {
		return false
	}
	for i := range podSets {
		x, y := &of.podSets[i], &podSets[i]
		if x.Name != y.Name || x.Count != y.Count || x.MinCount != y.MinCount || x.Group != y.Group || of.texts[i] != y.Shape ||
			!s.same(x.Requests, y.Requests) || !s.same(x.PerPod, y.PerPod) || !x.Topology.Equal(y.Topology) || x.Elastic != y.Elastic {
			return false
		}
	}
	return true
}

func (s *State) same(requests []workload.Request, defs []Request) bool {
	return slices.EqualFunc(requests, defs, func(r workload.Request, q Request) bool {
		name := s.world.Table.Name(r.Resource)
		return r.Amount == q.Amount && (name == q.Resource || name == resource.Beyond && s.world.Table.Requested(q.Resource) == r.Resource)
	})
}

// definition returns the pod sets that a shape was made of. resources are the names of resources by number.
func (of *shape) definition(resources []string) []PodSet {
	defs := make([]PodSet, len(of.podSets))
	for i := range defs {
		ps := &of.podSets[i]
		defs[i] = PodSet{
			Name: ps.Name, Count: ps.Count, MinCount: ps.MinCount, Group: ps.Group, Constraints: ps.Constraints,
			Shape: of.texts[i], Requests: make([]Request, len(ps.Requests)), Topology: ps.Topology, Elastic: ps.Elastic,
		}
		for _, q := range ps.PerPod {
			defs[i].PerPod = append(defs[i].PerPod, Request{resources[q.Resource], q.Amount})
		}
		for j, q := range ps.Requests {
			defs[i].Requests[j] = Request{resources[q.Resource], q.Amount}
		}
	}
	return defs
}

// joinShape finds the shape of pod sets for another user. before, unless nil, is the most
// likely one.
func (s *State) joinShape(podSets []PodSet, before *shape) *shape {
	of := before
	if of == nil || !s.is(of, podSets) {
		hash := hashOf(podSets)
		for of = s.shapes[hash]; of != nil && !s.is(of, podSets); {
			of = of.next
		}
		if of == nil {
			of = s.newShape(podSets)
			of.hash, of.next = hash, s.shapes[hash]
			s.shapes[hash] = of
		}
	}
	of.users++
	return of
}

// leaveShape removes one user of a shape, and the shape with its last user.
func (s *State) leaveShape(of *shape) {
	if of == nil {
		return
	}
	if of.users--; of.users == 0 {
		unlink(s.shapes, of.hash, of, func(of *shape) **shape { return &of.next })
	}
}

// joinClass finds the class of a record.
func (s *State) joinClass(r *record) {
	classKey := s.classKeyOf(r)
	hash := classKey.hash()
	c := s.classes[hash]
	for c != nil && c.classKey != classKey {
		c = c.next
	}
	if c == nil {
		s.lastClass++
		c = &class{id: s.lastClass, hash: hash, next: s.classes[hash], classKey: classKey}
		s.classes[hash] = c
		classKey.shape.users++
		c.space = s.space(classKey.namespace)
		s.spaces.All[c.space].classes++
	}
	c.members++
	s.leaveClass(r)
	r.class = c
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
	unlink(s.classes, c.hash, c, func(c *class) **class { return &c.next })
	s.spaces.All[c.space].classes--
	s.sweepSpace(c.namespace)
	s.leaveShape(c.shape)
}

// unlink removes an item from a hash table whose items of one hash are linked.
func unlink[T any](all map[uint64]*T, hash uint64, it *T, next func(*T) **T) {
	at := all[hash]
	if at == it {
		if *next(it) == nil {
			delete(all, hash)
		} else {
			all[hash] = *next(it)
		}
		return
	}
	for *next(at) != it {
		at = *next(at)
	}
	*next(at) = *next(it)
}

// newShape makes a shape. Most have one pod set: these are one allocation, which keeps their
// data adjacent.
func (s *State) newShape(defs []PodSet) *shape {
	n := 0
	for i := range defs {
		n += len(defs[i].Requests)
	}
	var of *shape
	var requests []workload.Request
	if len(defs) == 1 && n <= 4 {
		block := &struct {
			shape
			podSets  [1]workload.PodSet
			texts    [1]string
			requests [4]workload.Request
		}{}
		of, requests = &block.shape, block.requests[:0]
		of.podSets, of.texts = block.podSets[:], block.texts[:]
	} else {
		of, requests = &shape{podSets: make([]workload.PodSet, len(defs)), texts: make([]string, len(defs))}, make([]workload.Request, 0, n)
	}
	for i := range defs {
		ps, from := &defs[i], len(requests)
		for _, req := range ps.Requests {
			requests = append(requests, workload.Request{Resource: s.world.Table.Requested(req.Resource), Amount: req.Amount})
		}
		of.texts[i] = ps.Shape
		of.podSets[i] = workload.PodSet{
			Name: ps.Name, Count: ps.Count, MinCount: ps.MinCount, Group: ps.Group,
			Requests: requests[from:len(requests):len(requests)], Constraints: ps.Constraints,
			PerPod: interned(ps.PerPod, s.world.Table.Requested), Topology: ps.Topology, Elastic: ps.Elastic,
		}
	}
	return of
}
