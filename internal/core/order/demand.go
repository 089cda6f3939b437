package order

import "github.com/berth-project/berth/internal/core/workload"

// demand is the wants of a workload, in clauses of offers.
type demand struct {
	by    *workload.Workload
	wants []workload.Want
}

// Lacks reports whether some clause of the wants of w is not met, so that an evaluation would
// fail.
func Lacks(w *workload.Workload, wants []workload.Want, now Figures) bool {
	d := demand{w, wants}
	for from := 0; from < len(wants); {
		to, met := d.clause(from, now, nil)
		if !met {
			return true
		}
		from = to
	}
	return false
}

// clause evaluates the clause that begins at index from, and returns where it ends and
// whether one of its offers is complete. For each incomplete offer before that one it calls
// lacking, unless nil, with the want that the offer lacks most: it is likely to be lacking
// for long.
func (d *demand) clause(from int, now Figures, lacking func(want int)) (to int, met bool) {
	same := func(i int) bool { return i < len(d.wants) && d.wants[i].Clause == d.wants[from].Clause }
	for to = from; same(to); {
		offer, lack, most := d.wants[to].Offer, -1, 0.0
		for ; same(to) && d.wants[to].Offer == offer; to++ {
			if met || (lack >= 0 && lacking == nil) {
				continue
			}
			if part, short := d.short(to, now); short && (lack < 0 || part > most) {
				lack, most = to, part
			}
		}
		switch {
		case lack < 0:
			met = true
		case lacking != nil:
			lacking(lack)
		}
	}
	return to, met
}

// lack returns the want that the offer of a want lacks most, −1 if none.
func (d *demand) lack(want int, now Figures) int {
	same := func(i int) bool {
		return i >= 0 && i < len(d.wants) && d.wants[i].Clause == d.wants[want].Clause && d.wants[i].Offer == d.wants[want].Offer
	}
	from := want
	for same(from - 1) {
		from--
	}
	lack, most := -1, 0.0
	for i := from; same(i); i++ {
		if part, short := d.short(i, now); short && (lack < 0 || part > most) {
			lack, most = i, part
		}
	}
	return lack
}

// short reports whether a want is not available, and the part of it that is missing.
func (d *demand) short(i int, now Figures) (part float64, short bool) {
	w := &d.wants[i]
	available := now.Available(w.FR)
	if w.Least <= available || (w.Winnable && now.Winnable(d.by, w.FR, w.Least)) {
		return 0, false
	}
	return 1 - float64(available)/float64(w.Least), true
}
