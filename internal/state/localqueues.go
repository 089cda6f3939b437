package state

import (
	"maps"
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
)

// SetLocalQueue adds or changes a LocalQueue.
func (s *State) SetLocalQueue(def LocalQueue) {
	s.flight.note(Event{SetLocalQueue: &def})
	l := s.lane(def.key())
	if l.exists && l.def == def {
		return
	}
	s.lead(l, false)
	l.def, l.exists = def, true
	s.lead(l, true)
	s.see(&l.seen)
	s.replace([]*localQueue{l})
}

// DeleteLocalQueue takes a LocalQueue away; whoever waits in it waits for it to return.
func (s *State) DeleteLocalQueue(namespace, name string) {
	s.flight.note(Event{DeleteLocalQueue: &Name{namespace, name}})
	l := s.localQueues[Name{namespace, name}]
	if l == nil || !l.exists {
		return
	}
	s.lead(l, false)
	l.exists = false
	s.see(&l.seen)
	s.replace([]*localQueue{l})
	s.dropLane(l)
}

// lane returns what is known of a LocalQueue, at its first use that it does not exist.
func (s *State) lane(name Name) *localQueue {
	l := s.localQueues[name]
	if l == nil {
		l = &localQueue{seen: seen{name: name}}
		s.localQueues[name] = l
	}
	return l
}

// dropLane forgets a LocalQueue that does not exist and that nobody names.
func (s *State) dropLane(l *localQueue) {
	if !l.exists && l.records == nil {
		delete(s.localQueues, l.name)
	}
}

// heading returns the LocalQueues that lead to a ClusterQueue.
func (s *State) heading(queue string) []*localQueue { return s.leads[queue] }

// lead reports whether a LocalQueue, if it exists, leads to its ClusterQueue.
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

// lanes returns the LocalQueues that match, in no order that means anything.
func (s *State) lanes(match func(*localQueue) bool) (out []*localQueue) {
	for _, l := range s.localQueues { //berth:unordered every caller sorts what it makes of it
		if match(l) {
			out = append(out, l)
		}
	}
	return out
}

// SetNamespace says which labels a namespace has.
func (s *State) SetNamespace(name string, labels map[string]string) {
	s.flight.note(Event{SetNamespace: &Namespace{name, labels}})
	number := s.space(name)
	n := &s.spaces.All[number]
	if n.exists && maps.Equal(n.labels, labels) {
		return
	}
	n.labels, n.exists = labels, true
	s.rouse(name)
}

// DeleteNamespace forgets a namespace.
func (s *State) DeleteNamespace(name string) {
	s.flight.note(Event{DeleteNamespace: name})
	number, known := s.namespaces[name]
	if known && s.spaces.All[number].exists {
		s.spaces.All[number] = space{classes: s.spaces.All[number].classes}
		s.sweepSpace(name)
		s.rouse(name)
	}
}

// rouse has the workloads that wait in a namespace looked at again.
func (s *State) rouse(namespace string) {
	nodes := map[quota.Node]bool{}
	for _, l := range s.lanes(func(l *localQueue) bool { return l.name.Namespace == namespace }) {
		for r := l.records; r != nil; r = r.next {
			if r.in != nil && !r.wl.Reserved {
				nodes[r.in.Node] = true
			}
		}
	}
	s.edited(slices.Sorted(maps.Keys(nodes))...)
}
