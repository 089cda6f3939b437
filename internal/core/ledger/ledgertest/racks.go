// Package ledgertest has a small dimension of capacity: it proves that package ledger alone knows
// how many there are.
package ledgertest

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
)

// Racks is free seats by rack, whatever the queue: a ledger.Dimension.
type Racks struct{ Free []resource.Amount }

// Seats is a number of seats in each rack: the ledger.Part of Racks.
type Seats []resource.Amount

// Charge takes seats, also where too few are free.
func (r *Racks) Charge(_ quota.Node, p ledger.Part, undo ledger.Undo) { r.add(p.(Seats), -1, undo) }

// Release gives seats back.
func (r *Racks) Release(_ quota.Node, p ledger.Part, undo ledger.Undo) { r.add(p.(Seats), 1, undo) }

func (r *Racks) add(seats Seats, sign resource.Amount, undo ledger.Undo) {
	for rack, n := range seats {
		if n != 0 {
			undo.Note(rack, r.Free[rack])
			r.Free[rack] += sign * n
		}
	}
}

// Fits reports whether all seats are free.
func (r *Racks) Fits(_ quota.Node, p ledger.Part) bool {
	for rack, n := range p.(Seats) {
		if n > r.Free[rack] {
			return false
		}
	}
	return true
}

// Restore sets the free seats of a rack.
func (r *Racks) Restore(rack int, was resource.Amount) { r.Free[rack] = was }

// Measure returns the free seats of a rack.
func (r *Racks) Measure(rack int) resource.Amount { return r.Free[rack] }

// AtMost returns the measure itself.
func (r *Racks) AtMost(rack int) resource.Amount { return r.Measure(rack) }

// MeasureName names a rack.
func (r *Racks) MeasureName(rack int) resource.Pair {
	return resource.Pair{Flavor: "racks", Resource: fmt.Sprint("seats-", rack)}
}

// Forget does nothing: a rack is its measure.
func (r *Racks) Forget(int) {}

// Raises reports whether any of the seats are in the rack.
func (r *Racks) Raises(p ledger.Part, rack int) bool {
	seats := p.(Seats)
	return rack < len(seats) && seats[rack] > 0
}

// Remember returns the seats of each rack.
func (r *Racks) Remember(p ledger.Part) (items []ledger.Item) {
	for rack, n := range p.(Seats) {
		items = append(items, ledger.Item{Of: "racks", At: strconv.Itoa(rack), Amount: n})
	}
	return items
}

// Recall is the inverse of Remember.
func (r *Racks) Recall(items []ledger.Item) ledger.Part {
	s := make(Seats, len(items))
	for i, item := range items {
		s[i] = item.Amount
	}
	return s
}

// Beyond returns the seats past the ones of o.
func (s Seats) Beyond(o ledger.Part) ledger.Part {
	more, out := false, slices.Clone(s)
	for rack, n := range o.(Seats) {
		out[rack] = max(0, out[rack]-n)
	}
	for _, n := range out {
		more = more || n > 0
	}
	if !more {
		return nil
	}
	return out
}

// Equal reports whether o is the same seats.
func (s Seats) Equal(o ledger.Part) bool { return slices.Equal(s, o.(Seats)) }
