package topology

import (
	"cmp"
	"slices"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Charge is a placement with the requests of one of its pods, `pods` included.
type Charge struct {
	Placement *Placement
	Requests  []workload.Request
}

// part is the placed pods of a workload, as amounts by domain: the ledger.Part of a Space. It is immutable.
type part struct {
	entries []holding // sorted by flavor and leaf
}

// holding is the amounts of one leaf.
type holding struct {
	flavor  string
	key     accountKey
	account int32 // where the key was last found; it is checked at each use
	amounts []workload.Request
}

// Part returns what placements hold, for a ledger.Usage; nil for nothing.
func (s *Space) Part(charges []Charge) ledger.Part {
	total := 0
	for _, c := range charges {
		if c.Placement != nil {
			total += len(c.Placement.Domains)
		}
	}
	if total == 0 {
		return nil
	}
	p := &part{entries: make([]holding, 0, total)}
	for _, c := range charges {
		if c.Placement == nil {
			continue
		}
		pod := c.Requests
		if !slices.IsSortedFunc(pod, byResource) {
			pod = slices.SortedFunc(slices.Values(pod), byResource)
		}
		amounts := make([]workload.Request, len(c.Placement.Domains)*len(pod))
		for _, d := range c.Placement.Domains {
			key := s.keyOf(c.Placement.Flavor, c.Placement.Levels, d.Values)
			h := holding{flavor: c.Placement.Flavor, key: key, account: s.account(key), amounts: amounts[:len(pod):len(pod)]}
			amounts = amounts[len(pod):]
			for i, r := range pod {
				h.amounts[i] = workload.Request{Resource: r.Resource, Amount: r.Amount.Mul(int64(d.Count))}
			}
			p.entries = append(p.entries, h)
		}
	}
	for _, h := range p.entries {
		if len(s.accounts.All[h.account].leaves) == 0 { // of an unknown domain, and not charged yet
			s.idle = append(s.idle, h.account)
		}
	}
	slices.SortStableFunc(p.entries, compareHoldings)
	p.merge()
	return p
}

func compareHoldings(a, b holding) int {
	if c := compare(a.flavor, b.flavor); c != 0 {
		return c
	}
	return compare(a.key.leaf, b.key.leaf)
}

// merge adds up the entries of one leaf.
func (p *part) merge() {
	out := p.entries[:0]
	for _, h := range p.entries {
		if n := len(out); n > 0 && compareHoldings(out[n-1], h) == 0 {
			out[n-1].amounts = sum(out[n-1].amounts, h.amounts)
			continue
		}
		out = append(out, h)
	}
	p.entries = out
}

func sum(a, b []workload.Request) []workload.Request {
	out := slices.Clone(a)
	for _, r := range b {
		if i := slices.IndexFunc(out, func(o workload.Request) bool { return o.Resource == r.Resource }); i >= 0 {
			out[i].Amount = out[i].Amount.Add(r.Amount)
		} else {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, byResource)
	return out
}

func byResource(a, b workload.Request) int { return cmp.Compare(a.Resource, b.Resource) }

// Beyond returns the amounts past the ones of o.
func (p *part) Beyond(o ledger.Part) ledger.Part {
	out, rest := &part{}, o.(*part).entries
	for _, h := range p.entries {
		for len(rest) > 0 && compareHoldings(rest[0], h) < 0 {
			rest = rest[1:]
		}
		if len(rest) > 0 && compareHoldings(rest[0], h) == 0 {
			h.amounts = beyond(h.amounts, rest[0].amounts)
		}
		if len(h.amounts) > 0 {
			out.entries = append(out.entries, h)
		}
	}
	if len(out.entries) == 0 {
		return nil
	}
	return out
}

func beyond(a, b []workload.Request) (out []workload.Request) {
	for _, r := range a {
		for _, o := range b {
			if o.Resource == r.Resource {
				r.Amount = r.Amount.Sub(o.Amount)
			}
		}
		if r.Amount > 0 {
			out = append(out, r)
		}
	}
	return out
}

// Equal reports whether o is the same amounts of the same domains.
func (p *part) Equal(o ledger.Part) bool {
	return slices.EqualFunc(p.entries, o.(*part).entries, func(a, b holding) bool {
		return a.flavor == b.flavor && a.key == b.key && slices.Equal(a.amounts, b.amounts)
	})
}

// Dimension is the usage of a Space as a dimension of a ledger. Its figures are the amounts by account and resource.
type Dimension struct{ s *Space }

var _ ledger.Dimension = Dimension{}

// Dimension returns the usage of the Space for ledger.Extend.
func (s *Space) Dimension() Dimension { return Dimension{s} }

// columnBits is how many bits of a figure's number name the resource.
const columnBits = 16

// Charge counts the pods of a part, also where there is too little room for them.
func (d Dimension) Charge(_ quota.Node, p ledger.Part, undo ledger.Undo) {
	d.s.apply(p.(*part), 1, &undo)
}

// Release is the inverse of Charge.
func (d Dimension) Release(_ quota.Node, p ledger.Part, undo ledger.Undo) {
	d.s.apply(p.(*part), -1, &undo)
}

// Restore sets the amount of an account and resource.
func (d Dimension) Restore(figure int, was resource.Amount) {
	slot := int32(figure >> columnBits)
	d.s.used[int(slot)*d.s.stride+figure&(1<<columnBits-1)] = was
	d.s.changed(slot, true)
}

// apply adds or subtracts the amounts of a part.
func (s *Space) apply(p *part, sign int64, undo *ledger.Undo) {
	for i := range p.entries {
		h := &p.entries[i]
		slot := s.find(h)
		for _, r := range h.amounts {
			c := s.column(r.Resource)
			used := row(s.used, slot, s.stride)
			if undo != nil {
				undo.Note(int(slot)<<columnBits|c, used[c])
			}
			if sign > 0 {
				used[c] = used[c].Add(r.Amount)
			} else {
				used[c] = used[c].Sub(r.Amount)
			}
		}
		if s.changed(slot, true); sign < 0 && len(s.accounts.All[slot].leaves) == 0 {
			s.idle = append(s.idle, slot)
		}
	}
}

// find returns the account of a holding: that of its number, unless it was dropped since, or the part comes from
// another Space.
func (s *Space) find(h *holding) int32 {
	if int(h.account) < len(s.accounts.All) {
		if a := &s.accounts.All[h.account]; a.live && a.key == h.key {
			return h.account
		}
	}
	return s.account(h.key)
}

// Fits reports whether every domain of a part exists in its flavor's tree, and has room for all of it.
func (d Dimension) Fits(_ quota.Node, p ledger.Part) bool {
	s, entries := d.s, p.(*part).entries
	fits, at := true, 0
	for ; fits && at < len(entries); at++ {
		h := &entries[at]
		slot := s.find(h)
		s.assumeAll(h, 1)
		fits = s.hasRoom(h, slot)
	}
	for i := range entries[:at] {
		s.assumeAll(&entries[i], -1)
	}
	return fits
}

func (s *Space) assumeAll(h *holding, sign int64) {
	assumed := row(s.assumed, s.find(h), s.stride)
	for _, r := range h.amounts {
		if c := s.known(r.Resource); c >= 0 {
			assumed[c] = assumed[c].Add(r.Amount.Mul(sign))
		}
	}
}

// hasRoom reports whether the leaf of a holding in its own tree has room for what is used and assumed.
func (s *Space) hasRoom(h *holding, slot int32) bool {
	t, ok := s.trees[h.flavor]
	if !ok {
		return false
	}
	leaf, ok := t.leafOf[h.key.leaf]
	if !ok || t.leaves[leaf].account != slot || t.leaves[leaf].active == 0 {
		return false
	}
	capacity, used, assumed := row(t.capacity, leaf, s.stride), row(s.used, slot, s.stride), row(s.assumed, slot, s.stride)
	for _, r := range h.amounts {
		if c := s.known(r.Resource); r.Amount > 0 && (c < 0 || capacity[c].Sub(used[c]).Sub(assumed[c]) < 0) {
			return false
		}
	}
	return true
}
