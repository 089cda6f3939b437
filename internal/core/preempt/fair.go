package preempt

import (
	"strings"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
)

// rival is a queue with candidates.
type rival struct {
	node  quota.Node
	at    [parts]cursor      // at the first candidate left of each part
	head  *workload.Workload // the first candidate left, nil for none
	part  int                // of the head
	retry *workload.Workload // the first one that failed its test
}

// branch is a node of the tree in which the next victim is searched.
type branch struct {
	node   quota.Node
	share  quota.Share
	rival  int32 // index in rivals, none for a cohort
	inside bool  // it contains the preemptor's queue
	// For a branch that is not inside: the two nodes just below its common ancestor with the
	// preemptor, on the preemptor's side and on its own.
	mine, theirs quota.Node
	// Of a cohort: branches[first:left] are its remaining children, as a heap, and the others up
	// to end were pruned.
	first, left, end int32
}

const none = -1

// fair is spec 20 §4.3. Shares are computed in the forest with the preemptor in and the
// victims so far out.
func (s *Search) fair() []Victim {
	mark := s.Ledger.Mark()
	defer s.Ledger.Rollback(mark)
	s.Ledger.Charge(s.Node, s.Requests)
	s.taken, s.from, s.to = s.taken[:0], leaving, early
	s.plant()
	if len(s.rivals) == 0 {
		return nil
	}
	if s.rounds() || (s.sparing && s.roundsOfEarly()) {
		return s.fillBack(func(back *taken) bool { return s.fitsOnceMore() && s.justified(back) })
	}
	s.tally()
	return nil
}

// rounds reports whether the preemptor fits after both rounds with the present heads.
func (s *Search) rounds() bool {
	s.arrange()
	return s.firstRound() || (len(s.Fair.Strategies) > 1 && s.secondRound())
}

// roundsOfEarly is rounds with the candidates that are Early.
func (s *Search) roundsOfEarly() bool {
	s.from, s.to = early, parts
	for i := range s.rivals {
		r := &s.rivals[i]
		r.retry = nil
		s.setHead(r)
	}
	return s.rounds()
}

// fitsOnceMore reports whether the preemptor, which is charged, fits.
func (s *Search) fitsOnceMore() bool {
	mark := s.Ledger.Mark()
	defer s.Ledger.Rollback(mark)
	s.Ledger.Release(s.Node, s.Requests)
	return s.fits(true)
}

// firstRound takes from the queue with the highest share, again and again, until the
// preemptor fits or no candidate is left that the first strategy allows.
func (s *Search) firstRound() bool {
	entitled := s.Fair.WithinNominal && s.Quota.WithinNominal(s.Node, s.Need)
	for b := s.pick(); b != nil; b = s.pick() {
		r := &s.rivals[b.rival]
		switch {
		case b.inside:
			s.takeVictim(r.head, r.node, InClusterQueue)
		case entitled:
			s.takeVictim(r.head, r.node, InCohortReclamation).mine = b.mine
		case !s.test(b, r):
			s.update()
			continue
		}
		if s.fitsOnceMore() {
			return true
		}
		s.advance(r)
		s.update()
	}
	return false
}

// test takes the first candidate of the queue that passes the first strategy, and notes the
// first that fails; with false there is no candidate left. No eviction makes the share of its
// side larger: where the preemptor's share is above that, all fail, which covers an infinite
// share against a finite one.
func (s *Search) test(b *branch, r *rival) bool {
	initial := len(s.Fair.Strategies) > 0 && s.Fair.Strategies[0] == LessThanInitialShare
	p, limit := s.Quota.Share(b.mine), bound{s.Quota.Share(b.theirs), initial}
	if !limit.allows(p) {
		r.fail()
		r.head = nil
	}
	for ; r.head != nil; s.advance(r) {
		if !initial {
			limit.share = s.shareWithout(b.theirs, r)
		}
		if limit.allows(p) {
			s.takeFairly(b, r, limit)
			return true
		}
		r.fail()
	}
	return false
}

func (r *rival) fail() {
	if r.retry == nil {
		r.retry = r.head
	}
}

func (s *Search) takeFairly(b *branch, r *rival, limit bound) {
	t := s.takeVictim(r.head, r.node, InCohortFairSharing)
	t.mine, t.limit = b.mine, limit
}

// shareWithout returns the share of n, above r, without r's first candidate.
func (s *Search) shareWithout(n quota.Node, r *rival) quota.Share {
	mark := s.Ledger.Mark()
	defer s.Ledger.Rollback(mark)
	s.Ledger.Release(r.node, r.head.Usage)
	return s.Quota.Share(n)
}

// secondRound tries the first failed candidate of each queue again: the share of its side has
// to be larger now than the preemptor's.
func (s *Search) secondRound() bool {
	for i := range s.rivals {
		s.rivals[i].head = s.rivals[i].retry
	}
	s.arrange()
	for b := s.pick(); b != nil; b = s.pick() {
		r := &s.rivals[b.rival]
		limit := bound{s.Quota.Share(b.theirs), true}
		if limit.allows(s.Quota.Share(b.mine)) {
			s.takeFairly(b, r, limit)
			if s.fitsOnceMore() {
				return true
			}
		}
		r.head = nil
		s.update()
	}
	return false
}

// bound is an upper limit of the preemptor's share, exclusive with less.
type bound struct {
	share quota.Share
	less  bool
}

func (b bound) allows(p quota.Share) bool {
	c := p.Compare(b.share)
	return c < 0 || (c == 0 && !b.less)
}

// justified reports whether every remaining victim that was taken for a fair share would still
// be taken, with back in again. Otherwise a preemptor whose share was low only because more of
// its side were to be evicted would keep quota that it had no right to, and the victim's queue
// would reclaim it, forever (spec: 10 §6 #5).
//
// Each victim is compared with the share of its test. Later victims only lower the
// preemptor's share, so before any is spared all pass; and a spared workload on the victim's
// side only makes its test easier. So it is enough to test when the preemptor's side grows,
// and not to spare that workload: the victims are then more than the fewest, and the outcome is
// stable.
func (s *Search) justified(back *taken) bool {
	if back.Node != s.Node && s.Quota.Parent(s.Quota.Parent(back.mine)) == quota.None {
		return true // it shares nothing but the root with the preemptor
	}
	of, p := quota.None, quota.Share{}
	for i := range s.taken {
		t := &s.taken[i]
		if t.back || t.Reason != InCohortFairSharing {
			continue
		}
		if t.mine != of {
			of, p = t.mine, s.Quota.Share(t.mine)
		}
		if !t.limit.allows(p) {
			return false
		}
	}
	return true
}

// plant makes the branches, each cohort's children adjacent and after it: queues with
// candidates, and cohorts that borrow or contain the preemptor.
func (s *Search) plant() {
	s.branches, s.rivals = s.branches[:0], s.rivals[:0]
	root := s.Quota.Root(s.Node)
	s.sprout(branch{node: root, inside: true, rival: none, mine: quota.None, theirs: quota.None})
	for i := 0; i < len(s.branches); i++ {
		b := s.branches[i]
		if b.rival != none {
			continue
		}
		mine := b.mine
		if b.inside {
			mine = s.childToward(b.node)
		}
		first := len(s.branches)
		for _, kid := range s.Quota.Kids(b.node) {
			k := branch{node: kid, inside: kid == mine && b.inside, rival: none, mine: mine, theirs: b.theirs}
			if b.inside {
				k.theirs = kid
			}
			s.sprout(k)
		}
		s.branches[i].first, s.branches[i].end = int32(first), int32(len(s.branches))
	}
}

// childToward returns the child of a cohort on the path to the preemptor's queue.
func (s *Search) childToward(cohort quota.Node) quota.Node {
	n := s.Node
	for s.Quota.Parent(n) != cohort {
		n = s.Quota.Parent(n)
	}
	return n
}

// sprout adds a branch if it can contain victims.
func (s *Search) sprout(b branch) {
	var h *Holders
	switch {
	case s.Quota.IsCohort(b.node):
		if b.inside || (s.Policy.Reclaims() && s.Quota.Borrows(b.node)) {
			s.branches = append(s.branches, b)
		}
		return
	case b.inside:
		if h = s.Holders(b.node); h != nil {
			s.reach.Own = h.Len()
		}
	case s.Policy.Reclaims() && !s.Quota.WithinNominal(b.node, s.Need):
		h = s.holders(b.node)
	}
	if h == nil {
		return
	}
	if start, found := s.startOf(b.node, h); found {
		b.rival = int32(len(s.rivals))
		s.rivals = append(s.rivals, rival{node: b.node, at: start})
		s.setHead(&s.rivals[b.rival])
		s.branches = append(s.branches, b)
	}
}

// setHead finds the first candidate left of the parts of these rounds.
func (s *Search) setHead(r *rival) {
	r.head = nil
	for r.part = s.from; r.part < s.to; r.part++ {
		if r.head = r.at[r.part].get(); r.head != nil {
			return
		}
	}
}

// advance moves r past its first candidate.
func (s *Search) advance(r *rival) {
	at := &r.at[r.part]
	at.step()
	s.seek(at, s.candidatesOf(r.node))
	s.setHead(r)
}

// alive reports whether a branch can contain victims. A pruned one never can again: usage
// only decreases, and so do candidates.
func (s *Search) alive(b *branch) bool {
	if b.rival == none {
		return b.first < b.left && (b.inside || s.Quota.Borrows(b.node))
	}
	return s.rivals[b.rival].head != nil && (b.inside || s.Quota.Borrows(b.node))
}

// arrange prunes, computes all shares and builds the heaps, from the leaves up.
func (s *Search) arrange() {
	for i := len(s.branches) - 1; i >= 0; i-- {
		b := &s.branches[i]
		b.share = s.Quota.Share(b.node)
		b.left = b.first
		for k := b.first; k < b.end; k++ {
			if s.alive(&s.branches[k]) {
				s.branches[k], s.branches[b.left] = s.branches[b.left], s.branches[k]
				b.left++
			}
		}
		kids := s.branches[b.first:b.left]
		for k := len(kids)/2 - 1; k >= 0; k-- {
			s.down(kids, k)
		}
	}
}

// pick descends from the root into the child with the highest share, and notes the path.
func (s *Search) pick() *branch {
	if len(s.branches) == 0 || !s.alive(&s.branches[0]) {
		return nil
	}
	s.way = append(s.way[:0], 0)
	for at := int32(0); ; {
		b := &s.branches[at]
		if b.rival != none {
			return b
		}
		at = b.first
		s.way = append(s.way, at)
	}
}

// update restores the heaps along the path of the last pick: only there have shares or
// candidates changed, and every node on it is the first of its siblings.
func (s *Search) update() {
	for i := len(s.way) - 1; i > 0; i-- {
		b, up := &s.branches[s.way[i]], &s.branches[s.way[i-1]]
		if s.alive(b) {
			b.share = s.Quota.Share(b.node)
		} else {
			up.left--
			*b, s.branches[up.left] = s.branches[up.left], *b
		}
		s.down(s.branches[up.first:up.left], 0)
	}
}

func (s *Search) down(kids []branch, i int) {
	for {
		first := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(kids); k++ {
			if s.ahead(&kids[k], &kids[first]) {
				first = k
			}
		}
		if first == i {
			return
		}
		kids[i], kids[first] = kids[first], kids[i]
		i = first
	}
}

// ahead reports whether a is searched before b: the higher share first, a cohort before a
// queue, of two cohorts by name (spec: 20 §6 #3), of two queues by the first candidate.
func (s *Search) ahead(a, b *branch) bool {
	if c := a.share.Compare(b.share); c != 0 {
		return c > 0
	}
	switch {
	case (a.rival == none) != (b.rival == none):
		return a.rival == none
	case a.rival == none:
		return strings.Compare(s.Quota.Name(a.node), s.Quota.Name(b.node)) < 0
	}
	v, w := s.rivals[a.rival].head, s.rivals[b.rival].head
	switch {
	case v.Evicting != w.Evicting:
		return v.Evicting
	case a.inside != b.inside:
		return b.inside
	}
	return compare(v, w) < 0
}
