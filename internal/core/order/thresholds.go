package order

import "github.com/berth-project/berth/internal/core/resource"

// Thresholds are what the lines of one cohort tree wait for, together: a release after which less of an FR is available than the least threshold
// on it is of use to none of them, however many lines there are.
type Thresholds struct {
	least   []resource.Amount // by FR: no line that counts here has a lower threshold; 0 at first
	unfiled []*Pending        // every line with tried classes, and maybe others
}

// Join makes p count in t, which is new, and no longer where it counted before. It files by the given figures, of its queue.
func (p *Pending) Join(t *Thresholds, now Figures) {
	p.thresholds, p.now, p.unfiled = t, now, false
	if len(p.tried) > 0 {
		t.add(p)
	}
}

// add notes that p has tried classes.
func (t *Thresholds) add(p *Pending) {
	if t != nil && !p.unfiled {
		p.unfiled = true
		t.unfiled = append(t.unfiled, p)
	}
}

// File files the tried classes of all lines, as Release does for one.
func (t *Thresholds) File() {
	for i, p := range t.unfiled {
		t.unfiled[i] = nil
		if p.thresholds == t {
			p.unfiled = false
			p.fileTried(p.now)
		}
	}
	t.unfiled = t.unfiled[:0]
}

// Least returns an amount of fr that a release has to leave to be of use to a line.
func (t *Thresholds) Least(fr resource.FR) resource.Amount {
	if int(fr) >= len(t.least) {
		return 0
	}
	return t.least[fr]
}

// SetLeast sets the result of Least, until a condition with a lower threshold is added.
func (t *Thresholds) SetLeast(fr resource.FR, least resource.Amount) {
	for int(fr) >= len(t.least) {
		t.least = append(t.least, 0)
	}
	t.least[fr] = least
}

// lower notes a condition on fr, which may be a measure.
func (t *Thresholds) lower(fr resource.FR, least resource.Amount) {
	if t != nil && fr >= 0 && int(fr) < len(t.least) {
		t.least[fr] = min(t.least[fr], least)
	}
}

// Least returns the lowest threshold of a condition of the line on fr, Unlimited if there is none.
func (p *Pending) Least(fr resource.FR) resource.Amount {
	if s := p.wakeIndex(fr); s != nil {
		return s.least()
	}
	return resource.Unlimited
}

func (s *wakeIndex) least() resource.Amount {
	least := resource.Unlimited
	for i := range s.len() {
		if l := s.line(i); l.first != none {
			least = min(least, l.first)
		}
	}
	return least
}
