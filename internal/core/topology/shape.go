package topology

import (
	"slices"
	"strconv"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// plenty bounds the count of one leaf, so that sums do not overflow.
const plenty = 1 << 40

// count is how much of a shape fits into a domain. spec: 20 §4.6, phase 1.
type count struct {
	pods     int64
	podsWL   int64 // with the leader in the domain as well
	slices   int64 // 0 below the slice level
	slicesWL int64
	score    int32 // affinity
	leader   bool  // the leader fits
}

// need is a positive request of one pod.
type need struct {
	column   int32 // -1 for none: no node reports the resource
	resource resource.ID
	amount   resource.Amount
}

// shape is what the counts of domains depend on: requests of one pod, filter, and the layers of slices.
type shape struct {
	key       string
	filter    *filter // nil for none
	workers   []need
	leader    []need
	hasLeader bool    // a leader is wanted
	slice     int     // the level of slices
	size      int64   // pods of a slice
	inner     []int64 // by level: pods that stay together in a domain below the slice level, 1 for single pods
	empty     bool    // the usage of placed pods is ignored

	counts  [][]count // by level and domain
	cursor  int       // the position in the tree's journal up to which counts are right
	used    uint64    // when it was last used
	version uint64    // counts the times that a count changed
	last    answer

	// A shape of one placement alone may be confined to one domain, and keep away from hosts.
	confined *confinement
}

// answer is the last placement of a shape: what has room is placed a moment later, on the same counts.
type answer struct {
	to     question
	shares []share // at most mostKept
}

// mostKept is how many shares an answer may have.
const mostKept = 64

// question is what a placement of a shape depends on, beside the gates.
type question struct {
	version, revision       uint64 // of the counts, and of the tree
	needed                  int64
	requested               int
	required, unconstrained bool
}

// confinement restricts a shape of a replacement. spec: 20 §4.9.
type confinement struct {
	level int // -1 for no confinement
	id    int32
	hosts []string // leaves that are excluded
}

// scratch is memory that is used again.
type scratch struct {
	key      []byte
	selected []string
	marks    [][]uint64 // by level and domain: the round in which it was last touched
	round    uint64
	touched  [][]int32 // by level
	stretch  stretch
	list     []candidate
	kids     []candidate
	shares   [2][]share
	answer   []share
	even     evenScratch
}

// shapeOf returns the counts of a shape, up to date. A shape that is not kept yet is computed.
func (t *tree) shapeOf(g *group, empty bool) *shape {
	s := t.s
	b := append(s.scratch.key[:0], 0)
	if empty {
		b[0] = 1
	}
	b = strconv.AppendInt(append(b, 'z'), int64(g.slice), 10)
	b = strconv.AppendInt(append(b, ','), g.size, 10)
	for _, n := range g.inner {
		b = strconv.AppendInt(append(b, '/'), n, 10)
	}
	b = appendNeeds(append(b, 'w'), g.workers.Requests)
	if g.leader != nil {
		b = appendNeeds(append(b, 'l'), g.leader.Requests)
	}
	begin := len(b)
	filtered := t.hosts || s.gates.ExcludeUntolerated
	if filtered {
		b, s.scratch.selected = filterKey(b, g.workers, t.hosts, s.gates.Affinity, s.scratch.selected)
	}
	s.scratch.key = b
	if sh, ok := t.shapes[string(b)]; ok && g.confined == nil {
		t.refresh(sh)
		return sh
	}
	sh := &shape{key: string(b), slice: g.slice, size: g.size, inner: g.inner, empty: empty, hasLeader: g.leader != nil, confined: g.confined}
	sh.workers = s.needs(nil, g.workers.Requests)
	if sh.hasLeader {
		sh.leader = s.needs(nil, g.leader.Requests)
	}
	if filtered {
		sh.filter = s.filterOf(sh.key[begin:], t.hosts, g.workers, sh.confined == nil)
	}
	if sh.confined == nil {
		t.keepShape(sh)
	}
	t.recomputeShape(sh)
	return sh
}

func appendNeeds(b []byte, requests []workload.Request) []byte {
	for _, r := range requests {
		if r.Amount > 0 {
			b = strconv.AppendInt(append(b, ' '), int64(r.Resource), 10)
			b = strconv.AppendInt(append(b, '='), int64(r.Amount), 10)
		}
	}
	return b
}

// needs appends the requests that limit how many pods fit.
func (s *Space) needs(out []need, requests []workload.Request) []need {
	for _, r := range requests {
		if r.Amount > 0 {
			out = append(out, need{s.known(r.Resource), r.Resource, r.Amount})
		}
	}
	return out
}

func (s *Space) filterOf(key string, hosts bool, p *PodSet, keep bool) *filter {
	if hosts { // the same text means more there
		key = "h" + key
	}
	f, ok := s.filters[key]
	if !ok {
		f = newFilter(key, p, hosts, s.gates.Affinity, s.scratch.selected)
		if keep {
			s.filters[key] = f
		}
	}
	return f
}

// keepShape adds a shape to the ones of the tree; where there are too many, the one that was not used for longest is dropped.
func (t *tree) keepShape(sh *shape) {
	if len(t.shapes) >= t.s.gates.Shapes {
		var oldest *shape
		for _, o := range t.shapes { //berth:unordered each use has a time of its own
			if oldest == nil || o.used < oldest.used {
				oldest = o
			}
		}
		t.dropShape(oldest)
	}
	t.shapes[sh.key] = sh
	if sh.filter != nil {
		sh.filter.shapes++
	}
}

func (t *tree) dropShape(sh *shape) {
	delete(t.shapes, sh.key)
	if f := sh.filter; f != nil {
		if f.shapes--; f.shapes == 0 {
			delete(t.s.filters, f.key)
		}
	}
}

// dropUnknown drops the shapes that need a resource without a column.
func (t *tree) dropUnknown() {
	unknown := func(n need) bool { return n.column < 0 }
	for _, sh := range t.shapes { //berth:unordered all of them are dropped
		if slices.ContainsFunc(sh.workers, unknown) || slices.ContainsFunc(sh.leader, unknown) {
			t.dropShape(sh)
		}
	}
}

func (t *tree) dropShapes() {
	for _, sh := range t.shapes { //berth:unordered all are dropped
		t.dropShape(sh)
	}
}

// recomputeShape computes all counts of a shape.
func (t *tree) recomputeShape(sh *shape) {
	if sh.counts == nil {
		sh.counts = make([][]count, len(t.levels))
	}
	sh.version++
	for l := t.lowest(); l >= 0; l-- {
		all := t.levels[l].All
		sh.counts[l] = slices.Grow(sh.counts[l][:0], len(all))[:len(all)]
		for id := range all {
			sh.counts[l][id] = t.countOf(sh, l, int32(id))
		}
	}
	t.readAll(sh)
}

func (t *tree) readAll(sh *shape) {
	t.s.clock++
	sh.cursor, sh.used = t.base+len(t.journal), t.s.clock
	t.read = max(t.read, sh.cursor)
}

// Refresh brings the counts of all shapes up to date, so that no placement has to.
func (s *Space) Refresh() {
	for _, t := range s.inOrder {
		for _, sh := range t.shapes { //berth:unordered each is brought up to date alone
			used := sh.used
			t.refresh(sh)
			sh.used = used
		}
	}
}

// refresh brings the counts of a shape up to date: it recomputes the leaves that the journal names, and what is above
// a count that changed.
func (t *tree) refresh(sh *shape) {
	if sh.cursor < t.base || t.base+len(t.journal)-sh.cursor > max(64, len(t.leaves)) {
		t.recomputeShape(sh)
		return
	}
	sc := &t.s.scratch
	sc.begin(t)
	for l := range t.levels {
		for len(sh.counts[l]) < len(t.levels[l].All) {
			sh.counts[l] = append(sh.counts[l], count{})
		}
	}
	for _, e := range t.journal[sh.cursor-t.base:] {
		if !sh.empty || !e.usage() {
			sc.touch(e.level(), e.domain())
		}
	}
	for l := t.lowest(); l >= 0; l-- {
		for _, id := range sc.touched[l] {
			now := t.countOf(sh, l, id)
			if now == sh.counts[l][id] {
				continue
			}
			sh.counts[l][id] = now
			sh.version++
			if d := &t.levels[l].All[id]; d.live && l > 0 {
				sc.touch(l-1, d.parent)
			}
		}
	}
	t.readAll(sh)
}

// begin begins a round in which no domain of a tree is touched.
func (sc *scratch) begin(t *tree) {
	sc.round++
	for len(sc.marks) < len(t.levels) {
		sc.marks, sc.touched = append(sc.marks, nil), append(sc.touched, nil)
	}
	for l := range t.levels {
		sc.touched[l] = sc.touched[l][:0]
		for len(sc.marks[l]) < len(t.levels[l].All) {
			sc.marks[l] = append(sc.marks[l], 0)
		}
	}
}

func (sc *scratch) touch(l int, id int32) {
	if sc.marks[l][id] != sc.round {
		sc.marks[l][id] = sc.round
		sc.touched[l] = append(sc.touched[l], id)
	}
}

// countOf computes the count of one domain, from its nodes or from the counts of its children.
func (t *tree) countOf(sh *shape, l int, id int32) count {
	d := &t.levels[l].All[id]
	switch {
	case !d.live:
		return count{}
	case l == t.lowest():
		return t.leafCount(sh, id)
	}
	return t.sumOf(sh, l, d.kids)
}

func (t *tree) sumOf(sh *shape, l int, kids []int32) (c count) {
	counts, inner := sh.counts[l+1], sh.inner[l+1]
	lost, lostSlices := int64(plenty), int64(plenty)
	for _, id := range kids {
		k := &counts[id]
		pods, with := k.pods, k.podsWL
		if inner > 1 {
			pods, with = pods-pods%inner, with-with%inner
		}
		c.pods, c.slices, c.score = c.pods+pods, c.slices+k.slices, c.score+k.score
		if k.leader {
			c.leader = true
			lost, lostSlices = min(lost, pods-with), min(lostSlices, k.slices-k.slicesWL)
		}
	}
	switch {
	case !sh.hasLeader:
		c.podsWL, c.slicesWL = c.pods, c.slices
	case c.leader:
		c.podsWL, c.slicesWL = c.pods-lost, c.slices-lostSlices
	}
	sh.countSlices(l, &c)
	return c
}

// countSlices counts slices at their level.
func (sh *shape) countSlices(l int, c *count) {
	if l == sh.slice {
		c.slices, c.slicesWL = c.pods/sh.size, c.podsWL/sh.size
	}
}

// leafCount computes the count of a leaf.
func (t *tree) leafCount(sh *shape, id int32) (c count) {
	lf, stride := &t.leaves[id], t.s.stride
	if lf.active == 0 || (sh.confined != nil && !sh.confined.has(t, id)) {
		return c
	}
	capacity := row(t.capacity, id, stride)
	if sh.filter != nil {
		matched, score := t.matching(sh.filter, lf)
		if matched == 0 {
			return c
		}
		if c.score = score; matched < lf.active {
			capacity = t.capacityFor(sh.filter, lf)
		}
	}
	var used, assumed []resource.Amount
	if !sh.empty {
		used = row(t.s.used, lf.account, stride)
	}
	assumed = row(t.s.assumed, lf.account, stride)
	free := func(column int32) resource.Amount {
		if column < 0 {
			return 0
		}
		n := capacity[column].Sub(assumed[column])
		if used != nil {
			n = n.Sub(used[column])
		}
		return n
	}
	c.pods = fitting(sh.workers, nil, free)
	c.podsWL = c.pods
	if sh.hasLeader && fitting(sh.leader, nil, free) > 0 {
		c.leader = true
		c.podsWL = fitting(sh.workers, sh.leader, free)
	}
	sh.countSlices(t.lowest(), &c)
	return c
}

// matching returns how many nodes of a leaf pass a filter, and the sum of their scores.
func (t *tree) matching(f *filter, lf *leaf) (matched, score int32) {
	for _, slot := range lf.nodes {
		n := &t.s.nodes.All[slot]
		if !n.active() || !t.counts(lf, n) {
			continue
		}
		if m := f.match(t.s, slot); m.verdict == passes {
			matched, score = matched+1, score+m.score
		}
	}
	return matched, score
}

// fitting returns how many pods fit into what is free, besides another pod.
func fitting(pod, besides []need, free func(int32) resource.Amount) int64 {
	pods := int64(plenty)
	for _, n := range pod {
		room := free(n.column)
		for _, o := range besides {
			if o.column == n.column {
				room = room.Sub(o.amount)
			}
		}
		pods = min(pods, int64(max(0, room)/n.amount))
	}
	return pods
}

// capacityFor returns the capacity of the nodes of a leaf that a filter does not exclude.
func (t *tree) capacityFor(f *filter, lf *leaf) []resource.Amount {
	sum := make([]resource.Amount, t.s.stride)
	for _, slot := range lf.nodes {
		n := &t.s.nodes.All[slot]
		if !n.active() || !t.counts(lf, n) || f.match(t.s, slot).verdict != passes {
			continue
		}
		for c, amount := range row(t.s.net, slot, t.s.stride) {
			sum[c] = sum[c].Add(amount)
		}
	}
	return sum
}

// has reports whether a leaf is inside the confinement.
func (c *confinement) has(t *tree, id int32) bool {
	if slices.Contains(c.hosts, t.leaves[id].id) {
		return false
	}
	if c.level < 0 {
		return true
	}
	for l := t.lowest(); l > c.level; l-- {
		id = t.levels[l].All[id].parent
	}
	return id == c.id
}
