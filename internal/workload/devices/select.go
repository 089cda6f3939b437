package devices

import (
	"crypto/sha256"
	"fmt"
	"math/bits"

	resourcev1 "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

// inventory is the devices of all current slices, in order. Its devices are numbered. It is not changed.
type inventory struct {
	slices []plan.Slice
	starts map[*resourcev1.ResourceSlice]int // number of the first device of a slice
	total  int
}

func inventoryOf(list []*resourcev1.ResourceSlice) *inventory {
	out := &inventory{slices: plan.Current(list), starts: map[*resourcev1.ResourceSlice]int{}}
	for i := range out.slices {
		s := out.slices[i].ResourceSlice
		out.starts[s] = out.total
		out.total += len(s.Spec.Devices)
	}
	return out
}

// key is a hash of a selection.
type key [sha256.Size]byte

func keyOf(s plan.Selection) key { return sha256.Sum256([]byte(s.Key())) }

// answer is the answer to a selection: one bit for each device. Expressions are not part of it.
type answer struct {
	of *inventory
	// bits are set for devices that match, of those before next. Later devices are not evaluated yet.
	bits    []uint64
	next    int
	problem string // why the device next cannot be evaluated
	// former, unless nil, is the answer for an older inventory, which is being taken over.
	former *answer
	bytes  int // that are accounted for
}

// finished reports that the answer is one.
func (a *answer) finished() bool { return a.next == a.of.total || a.problem != "" }

// size is the number of bytes of an answer, with its entry in a map. The inventory is shared.
func (a *answer) size() int {
	const own = 2*(sha256.Size+8) + 96
	n := own + 8*len(a.bits) + len(a.problem)
	if a.former != nil {
		n += a.former.size()
	}
	return n
}

// matches yields the devices that match.
func (a *answer) matches(yield func(plan.Match) bool) {
	at := 0
	for i, word := range a.bits {
		for ; word != 0; word &= word - 1 {
			n := i*64 + bits.TrailingZeros64(word)
			for n >= a.of.starts[a.of.slices[at].ResourceSlice]+len(a.of.slices[at].Spec.Devices) {
				at++
			}
			s := &a.of.slices[at]
			d := &s.Spec.Devices[n-a.of.starts[s.ResourceSlice]]
			if !yield(plan.Match{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Device: d, Complete: s.Complete}) {
				return
			}
		}
	}
}

// takeOver copies the former answer for the devices of a slice, of which next is the first.
func (a *answer) takeOver(s *resourcev1.ResourceSlice) {
	old := a.former
	if old == nil {
		return
	}
	start, has := old.of.starts[s]
	known := min(old.next-start, len(s.Spec.Devices))
	if !has || known < 0 {
		return
	}
	for i := range known {
		a.set(a.next+i, old.bits[(start+i)/64]&(1<<((start+i)%64)) != 0)
	}
	a.next += known
	if known < len(s.Spec.Devices) {
		a.problem = old.problem
	}
}

func (a *answer) set(n int, matches bool) {
	if matches {
		a.bits[n/64] |= 1 << (n % 64)
	}
}

// answers are the answers to selections, in a limited number of bytes.
type answers struct {
	of           *inventory
	known        map[key]*answer
	bytes, limit int            // of the known ones
	quantum      int            // the constant, but in tests
	spent        map[string]int // by namespace, while claims wait
	evaluated    int            // devices
}

// answer returns the answer to a selection for the present inventory, which may be unfinished.
func (c *answers) answer(k key) *answer {
	a := c.known[k]
	if a != nil && a.of == c.of {
		return a
	}
	out := &answer{of: c.of, bits: make([]uint64, (c.of.total+63)/64), former: a}
	if a != nil {
		a.former = nil
	}
	return out
}

// keepAnswer stores an answer, and drops random other answers above the limit: claims are counted in turns, so the least recently used answer
// is the next to be needed. Unfinished answers stay: a namespace has one at most.
func (c *answers) keepAnswer(k key, a *answer) {
	c.drop(k)
	c.known[k], a.bytes = a, a.size()
	c.bytes += a.bytes
	for other, of := range c.known {
		if c.bytes <= c.limit {
			return
		}
		if other != k && of.finished() {
			c.drop(other)
		}
	}
}

func (c *answers) drop(k key) {
	if a := c.known[k]; a != nil {
		delete(c.known, k)
		c.bytes -= a.bytes
	}
}

// retain drops the answers that are not used.
func (c *answers) retain(used map[key]bool) {
	for k := range c.known {
		if !used[k] {
			c.drop(k)
		}
	}
}

// extend evaluates the remaining devices, until the quantum is spent.
func (w *world) extend(a *answer, s plan.Selection) {
	for i := range a.of.slices {
		slice := a.of.slices[i].ResourceSlice
		start, end := a.of.starts[slice], a.of.starts[slice]+len(slice.Spec.Devices)
		if end <= a.next {
			continue
		}
		if s.Driver != "" && s.Driver != slice.Spec.Driver {
			a.next = end
			continue
		}
		if a.next == start {
			a.takeOver(slice)
		}
		for a.next < end && a.problem == "" && w.left > 0 {
			d := &slice.Spec.Devices[a.next-start]
			matches, err := w.matches(s.Expressions, dracel.Device{
				Driver: slice.Spec.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
			})
			if err != nil {
				a.problem = fmt.Sprintf("device %s of pool %s of driver %s: %s", d.Name, slice.Spec.Pool.Name, slice.Spec.Driver, short(err.Error()))
				break
			}
			a.set(a.next, matches)
			a.next++
		}
		if a.next < end {
			break
		}
	}
	if a.finished() {
		a.former = nil
	}
}

// matches evaluates expressions over a device.
func (w *world) matches(expressions []string, d dracel.Device) (bool, error) {
	w.evaluated++
	for _, e := range expressions {
		compiled := w.compile(e)
		if compiled.Error != nil {
			return false, compiled.Error
		}
		is, details, err := compiled.DeviceMatches(w.ctx, d)
		w.left -= evaluating
		if details != nil && details.ActualCost() != nil {
			w.left -= int(min(*details.ActualCost(), quantum))
		}
		if err != nil || !is {
			return false, err
		}
	}
	return true, nil
}
