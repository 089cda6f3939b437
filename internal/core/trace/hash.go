package trace

import "github.com/berth-project/berth/internal/core/resource"

// Hash is a running FNV-1a hash of records: equal records in equal order give equal
// sums, on every machine.
type Hash uint64

// NewHash returns the hash of nothing.
func NewHash() Hash { return 14695981039346656037 }

// Sum is the hash of everything so far.
func (h *Hash) Sum() uint64 { return uint64(*h) }

func (h *Hash) text(s string) {
	h.number(int64(len(s)))
	for i := range len(s) {
		*h = (*h ^ Hash(s[i])) * 1099511628211
	}
}

func (h *Hash) number(n int64) {
	for shift := 0; shift < 64; shift += 8 {
		*h = (*h ^ Hash(byte(n>>shift))) * 1099511628211
	}
}

func (h *Hash) flag(b bool) {
	if b {
		h.number(1)
	} else {
		h.number(0)
	}
}

func (h *Hash) amount(a resource.Amount) { h.number(int64(a)) }

// Hash adds everything that the record says.
func (l *Look) Hash(h *Hash) {
	for _, s := range [...]string{l.Workload, l.UID, l.Queue, string(l.Verdict), string(l.Reason), l.Note} {
		h.text(s)
	}
	h.number(l.Priority)
	h.number(int64(len(l.Choices)))
	for i := range l.Choices {
		c := &l.Choices[i]
		h.text(c.PodSet)
		h.text(c.Resource)
		h.text(c.Flavor)
		h.text(c.Mode)
		h.amount(c.Amount)
		h.number(int64(c.Level))
	}
	h.number(int64(len(l.Refusals)))
	for i := range l.Refusals {
		l.Refusals[i].hash(h)
	}
	h.number(int64(len(l.Victims)))
	for i := range l.Victims {
		v := &l.Victims[i]
		h.text(v.UID)
		h.text(v.Reason)
	}
	h.number(int64(len(l.WakesOn)))
	for _, fr := range l.WakesOn {
		h.number(int64(fr))
	}
}

func (r *Refusal) hash(h *Hash) {
	for _, s := range [...]string{r.PodSet, r.Resource, r.Flavor, string(r.Reason), r.Detail, r.Node} {
		h.text(s)
	}
	h.amount(r.Asked)
	h.amount(r.Available)
	h.amount(r.Potential)
	h.flag(r.Limited)
	h.flag(r.Preemptible)
	if r.Reach == nil {
		return
	}
	h.text(r.Reach.Within)
	h.text(r.Reach.Reclaim)
	for _, n := range [...]int{r.Reach.Own, r.Reach.OwnAllowed, r.Reach.Queues, r.Reach.Others, r.Reach.OthersAllowed} {
		h.number(int64(n))
	}
}
