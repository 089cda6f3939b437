package trace

import "github.com/berth-project/berth/internal/core/resource"

// Hash is a running FNV-1a hash of records: equal records in equal order give equal
// sums, on every machine.
type Hash uint64

// NewHash returns the hash of nothing.
func NewHash() Hash { return 14695981039346656037 }

// Sum is the hash of everything so far.
func (h *Hash) Sum() uint64 { return uint64(*h) }

// Text adds a text.
func (h *Hash) Text(s string) {
	h.Number(int64(len(s)))
	for i := range len(s) {
		*h = (*h ^ Hash(s[i])) * 1099511628211
	}
}

// Number adds a number.
func (h *Hash) Number(n int64) {
	for shift := 0; shift < 64; shift += 8 {
		*h = (*h ^ Hash(byte(n>>shift))) * 1099511628211
	}
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
func (l *Look) Hash(h *Hash) {
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
	}
	h.Number(int64(len(l.WakesOn)))
	for _, fr := range l.WakesOn {
		h.Number(int64(fr))
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
