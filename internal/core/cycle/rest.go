package cycle

import (
	"slices"
	"time"

	"github.com/berth-project/berth/internal/core/workload"
)

// A cycle that refuses all heads may cause another one: a head has more flavors to try, or no longer keeps quota from others. Such cycles come to an
// end, or there is a mistake in the rules. Then a tree would take all of the time that trees share, and so it rests.

// mostVain is how many cycles a tree may have without progress before it rests. Random worlds of four queues need up to a hundred.
var mostVain = 1000

// restTime is how long a tree rests.
const restTime = workload.Instant(time.Second)

// progress is how far a tree came since it was touched.
type progress struct {
	gained, most int // admissions and evictions, less retracted admissions
	vain         int // cycles since there were never more
}

// countCycle counts a cycle of trees, and reports whether they come no further.
func (w *World) countCycle(trees []*tree) (vain bool) {
	for _, t := range trees {
		p := &t.progress
		p.vain++
		if p.gained += w.gained; p.gained > p.most {
			p.most, p.vain = p.gained, 0
		}
		vain = vain || p.vain >= mostVain
	}
	w.gained = 0
	return vain
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
