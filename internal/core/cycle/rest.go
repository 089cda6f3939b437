package cycle

import (
	"slices"
	"time"

	"github.com/berth-project/berth/internal/core/workload"
)

// A cycle that refuses all heads may cause another one: a head has more flavors to try, or no longer keeps quota from others. Such cycles come to an
// end, or there is a mistake in the rules. Then a tree would take all of the time that trees share, and so it rests.

// A tree may have mostVain cycles without progress, and vainPerPending for each of its pending workloads, before it rests: each may be refused
// once with each of the 64 flavors that a resource group may have. Random worlds of four queues need up to a hundred in all.
var mostVain, vainPerPending = 1000, 64

// restTime is how long a tree rests.
const restTime = workload.Instant(time.Second)

// progress is how far a tree came since it was touched.
type progress struct {
	gained, most int // admissions and evictions, less retracted admissions
	vain         int // cycles since there were never more
}

// countCycle counts a cycle of trees that run together, and reports whether they come no further.
func (w *World) countCycle(trees []*tree) (vain bool) {
	for _, t := range trees {
		p := &t.progress
		p.vain++
		if p.gained += w.gained; p.gained > p.most {
			p.most, p.vain = p.gained, 0
		}
		vain = vain || p.vain >= mostVain && p.vain >= mostVain+vainPerPending*pending(trees)
	}
	w.gained = 0
	return vain
}

// pending is how many workloads wait in trees.
func pending(trees []*tree) (n int) {
	for _, t := range trees {
		for _, q := range t.queues {
			n += q.Pending.Active() + q.Pending.Inadmissible()
		}
	}
	return n
}

// rest ends the cycles of trees for a while. What touches them meanwhile counts afterwards.
func (w *World) rest(trees []*tree) {
	for _, t := range trees {
		t.touched, t.runSince, t.restsUntil = false, 0, w.round.now+restTime
		w.resting, w.endless = append(w.resting, t), append(w.endless, t.name)
	}
}

// endRests touches the trees that have rested, and returns when the next one will have, 0 for none.
func (w *World) endRests(now workload.Instant) (next workload.Instant) {
	w.resting = slices.DeleteFunc(w.resting, func(t *tree) bool {
		t.restsUntil = min(t.restsUntil, now+restTime) // the clock may have been set back
		if now < t.restsUntil {
			next = earlier(next, t.restsUntil)
			return false
		}
		t.restsUntil = 0
		w.touch(t)
		return true
	})
	return next
}
