package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// record is a workload with the place it has in the world.
//
//	            SetWorkload                     Step admits
//	(nowhere) ───────────────► in line ─────────────────────────► assumed
//	    ▲                        ▲  ▲                            │       │
//	    │ not queueable,         │  └───── AdmissionFailed ──────┘       │ SetWorkload,
//	    │ deleted                └───────── SetWorkload, not reserved    ▼ reserved
//	    └───────────────────────────────────────────────────────────── held
type record struct {
	def     Workload
	wl      *workload.Workload
	in      *cycle.Queue // in whose line it stands or whose quota it holds, nil nowhere
	assumed bool         // Step admitted it, and that is not written yet
	class   string       // the key of its class, see classKey
}

// heads tells whether the record belongs, now or by its definition, to a queue.
func (r *record) heads(s *State, queue string) bool {
	if r.def.Reserved {
		return r.def.Queue == queue
	}
	if r.in != nil && r.in.Name == queue {
		return true
	}
	lq, ok := s.localQueues[r.def.Namespace+"/"+r.def.LocalQueue]
	return ok && lq.Queue == queue
}

// SetWorkload adds or changes a workload. Versions older than one already seen are
// ignored; while an admission is being written, so is everything that the writing
// does not contradict.
func (s *State) SetWorkload(def Workload) {
	r := s.records[def.UID]
	if r == nil {
		r = &record{}
		s.records[def.UID] = r
	} else if def.Version < r.def.Version {
		return
	}
	s.touch(r)
	before := r.def
	r.def = def
	defer s.touch(r)
	if r.assumed && s.asAssumed(r) {
		return
	}
	if r.wl != nil && !r.assumed && samePlace(&before, &def) {
		r.wl.Evicting = r.wl.Evicting || def.Evicting
		return
	}
	if r.wl != nil {
		// Being told to go outlives an update that does not know of it yet, but not
		// one that takes it back, nor a new reservation.
		sameOne := r.assumed || before.ReservedAt == def.ReservedAt
		r.wl.Evicting = r.wl.Evicting && sameOne && !before.Evicting
	}
	s.place(r)
}

// Written is SetWorkload for the outcome of a write of our own: it changes nothing for
// a workload that was deleted meanwhile.
func (s *State) Written(def Workload) {
	if s.records[def.UID] != nil {
		s.SetWorkload(def)
	}
}

// AdmissionWritten is the outcome of writing an admission. When what came after the
// write is known already, which happens when a watch starts over and leaves versions
// out, that is what counts: the assumption ends here or never.
func (s *State) AdmissionWritten(def Workload) {
	r := s.records[def.UID]
	switch {
	case r == nil: // deleted meanwhile
	case def.Version >= r.def.Version:
		s.SetWorkload(def)
	case r.assumed:
		s.place(r)
		s.touch(r)
	}
}

// asAssumed tells whether an assumed workload can stay where it is: its definition knows
// nothing of the admission yet, or confirms it. Then nothing is released and nobody woken.
func (s *State) asAssumed(r *record) bool {
	def := &r.def
	if !def.Reserved {
		return def.Queueable
	}
	if r.in == nil || def.Queue != r.in.Name || def.Priority != r.wl.Priority || def.Since != r.wl.Since ||
		!slices.Equal(s.amounts(def.Held), r.wl.Usage) {
		return false
	}
	r.assumed = false
	r.wl.ReservedAt, r.wl.Evicting = def.ReservedAt, r.wl.Evicting || def.Evicting
	return true
}

// samePlace tells whether nothing changed that decisions depend on.
func samePlace(a, b *Workload) bool {
	if a.LocalQueue != b.LocalQueue || a.Priority != b.Priority || a.Since != b.Since ||
		a.Queueable != b.Queueable || a.Reserved != b.Reserved || a.Queue != b.Queue ||
		a.ReservedAt != b.ReservedAt || (a.Evicting && !b.Evicting) || !slices.Equal(a.Held, b.Held) {
		return false
	}
	return slices.EqualFunc(a.PodSets, b.PodSets, func(x, y PodSet) bool {
		return x.Name == y.Name && x.Count == y.Count && x.Shape == y.Shape && slices.Equal(x.Requests, y.Requests)
	})
}

// DeleteWorkload forgets a workload and gives back what it held.
func (s *State) DeleteWorkload(uid string) {
	r := s.records[uid]
	if r == nil {
		return
	}
	s.touch(r)
	s.unplace(r)
	s.leaveClass(r)
	delete(s.records, uid)
	delete(s.looks, uid)
}

// AdmissionFailed takes back an admission that could not be written: the workload
// returns to its place in line.
func (s *State) AdmissionFailed(uid string) {
	if r := s.records[uid]; r != nil && r.assumed {
		s.place(r)
	}
}

// EvictionFailed takes back that a workload was told to go.
func (s *State) EvictionFailed(uid string) {
	r := s.records[uid]
	if r == nil || r.def.Evicting {
		return
	}
	r.wl.Evicting = false
	if r.wl.Reserved {
		s.world.EvictionFailed(r.wl)
	}
}

// replace puts the records that match at their place again. Those that hold quota
// stay where they are.
func (s *State) replace(match func(*record) bool) {
	for _, uid := range slices.Sorted(maps.Keys(s.records)) {
		if r := s.records[uid]; !r.assumed && !r.wl.Reserved && match(r) {
			s.place(r)
		}
	}
}

func (s *State) unplace(r *record) {
	r.assumed = false
	if r.in == nil {
		return
	}
	if r.wl.Reserved {
		s.world.Release(r.wl)
	} else {
		s.world.Dequeue(r.wl)
	}
	r.in = nil
}

// place moves a record where its definition says it belongs.
func (s *State) place(r *record) {
	s.unplace(r)
	evicting := r.def.Evicting || (r.wl != nil && r.wl.Evicting && r.def.Reserved)
	r.wl = s.intern(r)
	if r.def.Reserved {
		r.wl.Evicting = evicting
		if q := s.queues[r.def.Queue]; q != nil {
			r.in = q.q
			r.wl.Queue, r.wl.Usage = q.q.Index, s.amounts(r.def.Held)
			r.wl.ReservedAt = r.def.ReservedAt
			s.world.Reserve(r.wl)
		}
		return
	}
	if !r.def.Queueable {
		return
	}
	q, reason, note := s.route(&r.def)
	if q != nil {
		r.in = q.q
		r.wl.Queue = q.q.Index
		s.world.Enqueue(r.wl)
	}
	switch {
	case reason != "":
		s.notice(r, q, trace.Look{Reason: reason, Note: note})
	case r.def.Told:
		s.bypass(r, q)
	}
}

// bypass tells a workload that joins a parked class, and has said before that it
// waits, what the class waits for. spec: 10 §4.4.
func (s *State) bypass(r *record, q *queue) {
	by := r.in.Pending.ParkedBy(r.wl)
	if by == nil {
		return
	}
	if look := s.looks[by.UID]; look != nil && look.Verdict == trace.Waits {
		s.notice(r, q, *look)
	}
}

// route finds the queue in which a workload waits, and why it cannot be admitted
// there whatever quota is free. spec: 10 §4.10.
func (s *State) route(def *Workload) (q *queue, reason trace.Reason, note string) {
	if def.LocalQueue == "" {
		return nil, trace.Misconfigured, "it names no LocalQueue; set the label kueue.x-k8s.io/queue-name"
	}
	lq, ok := s.localQueues[def.Namespace+"/"+def.LocalQueue]
	if !ok {
		return nil, trace.Misconfigured, fmt.Sprintf("LocalQueue %s doesn't exist in namespace %s; create it or name another", def.LocalQueue, def.Namespace)
	}
	if lq.Stopped {
		return nil, trace.Suspended, fmt.Sprintf("LocalQueue %s is stopped (stopPolicy)", def.LocalQueue)
	}
	q = s.queues[lq.Queue]
	if q == nil {
		return nil, trace.Misconfigured, fmt.Sprintf("ClusterQueue %s, which LocalQueue %s points to, doesn't exist", lq.Queue, def.LocalQueue)
	}
	if q.q.Closed != "" {
		return q, trace.Suspended, fmt.Sprintf("ClusterQueue %s is inactive: %s", lq.Queue, q.q.Closed)
	}
	return q, "", ""
}

// notice makes what is known of a workload without a look a record of one.
func (s *State) notice(r *record, q *queue, look trace.Look) {
	look.Workload, look.UID, look.Queue = r.def.Key(), r.def.UID, ""
	look.Priority, look.Verdict = r.def.Priority, trace.Waits
	if q != nil {
		look.Queue = q.def.Name
	}
	s.notices = append(s.notices, cycle.Decision{Workload: r.wl, Queue: look.Queue, Look: &look})
}

// intern makes the core's value of a record's definition.
func (s *State) intern(r *record) *workload.Workload {
	def := &r.def
	wl := &workload.Workload{
		UID: def.UID, Key: def.Key(), Queue: -1, Priority: def.Priority, Created: def.Created, Since: def.Since,
		PodSets: make([]workload.PodSet, len(def.PodSets)), Class: s.joinClass(r),
	}
	for i, ps := range def.PodSets {
		requests := make([]workload.Request, len(ps.Requests))
		for j, r := range ps.Requests {
			requests[j] = workload.Request{Resource: s.world.Table.ID(r.Resource), Amount: r.Amount}
		}
		wl.PodSets[i] = workload.PodSet{Name: ps.Name, Count: ps.Count, Requests: requests, Constraints: ps.Constraints}
	}
	return wl
}

// class is those that no decision can tell apart but by age. spec: 10 §4.4.
type class struct {
	id      int32
	members int
}

func (s *State) joinClass(r *record) int32 {
	s.leaveClass(r)
	r.class = classKey(&r.def)
	c := s.classes[r.class]
	if c == nil {
		s.lastClass++
		c = &class{id: s.lastClass}
		s.classes[r.class] = c
	}
	c.members++
	return c.id
}

func (s *State) leaveClass(r *record) {
	if c := s.classes[r.class]; c != nil {
		if c.members--; c.members == 0 {
			delete(s.classes, r.class)
		}
	}
	r.class = ""
}

// classKey is the same for all members of a class. The namespace is part of it, since a
// queue may not take workloads of every namespace.
func classKey(def *Workload) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", def.Namespace, def.Priority)
	for _, ps := range def.PodSets {
		fmt.Fprintf(&b, "|%s %d %s", ps.Name, ps.Count, ps.Shape)
		for _, r := range ps.Requests {
			fmt.Fprintf(&b, " %s=%d", r.Resource, r.Amount)
		}
	}
	return b.String()
}
