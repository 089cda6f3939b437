package trace

import "github.com/berth-project/berth/internal/core/resource"

// Hash is a running hash of numbers and texts: equal ones in equal order give equal sums, on every machine. It takes eight bytes at
// a time, since all decisions of the engine are hashed. The zero value is the hash of nothing.
type Hash uint64

// Sum is the hash of everything so far.
func (h *Hash) Sum() uint64 { return uint64(*h) }

// Text adds a text.
func (h *Hash) Text(s string) {
	h.Number(int64(len(s)))
	for ; len(s) >= 8; s = s[8:] {
		h.Number(int64(s[0]) | int64(s[1])<<8 | int64(s[2])<<16 | int64(s[3])<<24 |
			int64(s[4])<<32 | int64(s[5])<<40 | int64(s[6])<<48 | int64(s[7])<<56)
	}
	rest := int64(0)
	for i := range len(s) {
		rest = rest<<8 | int64(s[i])
	}
	h.Number(rest)
}

// Number adds a number.
func (h *Hash) Number(n int64) {
	*h = (*h ^ Hash(n)) * 0x9e3779b97f4a7c15
	*h ^= *h >> 32
}

func (h *Hash) flag(b bool) {
	if b {
		h.Number(1)
	} else {
		h.Number(0)
	}
}

func (h *Hash) amount(a resource.Amount) { h.Number(int64(a)) }

// Hash adds the whole record.
func (l *Attempt) Hash(h *Hash) {
	for _, s := range [...]string{l.Workload, l.UID, l.Queue, string(l.Verdict), string(l.Reason), l.Note} {
		h.Text(s)
	}
	h.Number(l.Priority)
	h.Number(int64(len(l.PodSets)))
	for i := range l.PodSets {
		ps := &l.PodSets[i]
		h.Text(ps.Name)
		h.Number(int64(ps.Count))
		h.Number(int64(len(ps.Resources)))
		for _, c := range ps.Resources {
			h.Number(int64(c.FR))
			h.Number(int64(c.Mode))
			h.amount(c.Amount)
			h.Number(int64(c.Level))
		}
		ps.Placement.hash(h)
	}
	h.Number(int64(len(l.Refusals)))
	for i := range l.Refusals {
		l.Refusals[i].hash(h)
	}
	h.Number(int64(len(l.Victims)))
	for i := range l.Victims {
		v := &l.Victims[i]
		h.Text(v.UID)
		h.Text(v.Reason)
		if v.MinRun > 0 {
			h.Number(int64(v.Ran))
			h.Number(int64(v.MinRun))
		}
	}
	h.Number(int64(len(l.WakesOn)))
	for _, fr := range l.WakesOn {
		h.Number(int64(max(fr, -1))) // the numbers of measures depend on the explanations in between
	}
	if s := l.Start; s != nil {
		h.Number(s.At)
		h.Number(int64(s.Ends))
		h.flag(s.Overdue)
	}
}

func (r *Refusal) hash(h *Hash) {
	for _, s := range [...]string{r.PodSet, r.Resource, r.Flavor, r.Detail, r.Node} {
		h.Text(s)
	}
	h.amount(r.Asked)
	h.amount(r.Available)
	h.amount(r.Potential)
	h.flag(r.Limited)
	if r.Placement {
		h.Text("placement")
	}
	h.flag(r.Reach != nil)
	if r.Reach == nil {
		return
	}
	h.Text(r.Reach.Within)
	h.Text(r.Reach.Reclaim)
	for _, n := range [...]int{r.Reach.Own, r.Reach.OwnAllowed, r.Reach.Queues, r.Reach.Others, r.Reach.OthersAllowed} {
		h.Number(int64(n))
	}
}

// hash adds a placement; nothing for none.
func (p *Placement) hash(h *Hash) {
	if p == nil {
		return
	}
	h.Text(p.Flavor)
	h.Number(int64(len(p.Domains)))
	for _, d := range p.Domains {
		for _, v := range d.Values {
			h.Text(v)
		}
		h.Number(int64(d.Count))
	}
}
