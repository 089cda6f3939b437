package state

import (
	"maps"
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
)

func (e SetLocalQueue) apply(s *State) {
	def := LocalQueue(e)
	l := s.localQueueNamed(def.key())
	if l.exists && l.def == def {
		return
	}
	s.lead(l, false)
	if !l.exists {
		s.wake(l)
	}
	l.def, l.exists = def, true
	keepDefinition(&s.defined.localQueues, &def, true, compareQueuesOf)
	s.lead(l, true)
	s.weigh(l)
	s.read.define(l, s.recordsOf(l))
	s.reroute([]*localQueue{l})
}

func (e DeleteLocalQueue) apply(s *State) {
	l := s.localQueues[Name(e)]
	if l == nil || !l.exists {
		return
	}
	s.lead(l, false)
	l.exists = false
	keepDefinition(&s.defined.localQueues, &l.def, false, compareQueuesOf)
	s.forgetUsage(l)
	s.rank(l)
	s.see(&l.seen)
	s.read.define(l, s.recordsOf(l))
	s.reroute([]*localQueue{l})
	s.dropLocalQueue(l)
}

// localQueueNamed returns a LocalQueue, one that does not exist on first use.
func (s *State) localQueueNamed(name Name) *localQueue {
	l := s.localQueues[name]
	if l == nil {
		l = &localQueue{}
		l.seen = seen{name: name, lq: l}
		s.localQueues[name] = l
	}
	return l
}

// dropLocalQueue forgets a LocalQueue that neither exists nor is named.
func (s *State) dropLocalQueue(l *localQueue) {
	if !l.exists && l.records == nil {
		delete(s.localQueues, l.name)
	}
}

// leadingTo returns the LocalQueues that lead to a ClusterQueue.
func (s *State) leadingTo(queue string) []*localQueue { return s.leads[queue] }

// lead adds a LocalQueue, if it exists, to the list of its ClusterQueue, or removes it.
func (s *State) lead(l *localQueue, does bool) {
	queue := l.def.Queue
	s.seeQueue(queue)
	switch {
	case !l.exists:
	case does:
		s.leads[queue] = append(s.leads[queue], l)
	default:
		s.leads[queue] = slices.DeleteFunc(s.leads[queue], func(o *localQueue) bool { return o == l })
		if len(s.leads[queue]) == 0 {
			delete(s.leads, queue)
		}
	}
}

// matchingLocalQueues returns the LocalQueues that match, in no particular order.
func (s *State) matchingLocalQueues(match func(*localQueue) bool) (out []*localQueue) {
	for _, l := range s.localQueues { //berth:unordered every caller sorts its result
		if match(l) {
			out = append(out, l)
		}
	}
	return out
}

func (e SetNamespace) apply(s *State) {
	number := s.space(e.Name)
	n := &s.spaces.All[number]
	if n.exists && maps.Equal(n.labels, e.Labels) {
		return
	}
	n.labels, n.exists = e.Labels, true
	keepDefinition(&s.defined.namespaces, &Namespace{e.Name, e.Labels}, true, compareNamespaces)
	s.reevaluateNamespace(e.Name)
}

func (e DeleteNamespace) apply(s *State) {
	name := string(e)
	number, known := s.namespaces[name]
	if known && s.spaces.All[number].exists {
		s.spaces.All[number] = space{classes: s.spaces.All[number].classes}
		keepDefinition(&s.defined.namespaces, &Namespace{Name: name}, false, compareNamespaces)
		s.sweepSpace(name)
		s.reevaluateNamespace(name)
	}
}

// reevaluateNamespace causes an evaluation of the pending workloads of a namespace.
func (s *State) reevaluateNamespace(namespace string) {
	nodes := map[quota.Node]bool{}
	for _, l := range s.matchingLocalQueues(func(l *localQueue) bool { return l.name.Namespace == namespace }) {
		for r := range s.recordsOf(l) {
			if r.in != nil && !r.wl.Reserved {
				nodes[r.in.Node] = true
			}
		}
	}
	s.edited(slices.Sorted(maps.Keys(nodes))...)
}
