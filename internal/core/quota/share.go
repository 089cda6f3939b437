package quota

import (
	"cmp"
	"math"

	"github.com/berth-project/berth/internal/core/resource"
)

// Share is how much of the quota that its cohort could lend a node borrows, in thousandths of
// the resource of which that is most, divided by the node's weight:
//
//	borrowed·1000 / lendable / weight
//
// Unlimited counts as the number that represents it, so that a share always exists and
// more borrowed is a larger share. The zero value is the share of a node that borrows nothing.
// spec: 20 §4.1.
type Share struct {
	borrowed, lendable resource.Amount // lendable > 0 where borrowed > 0
	weight             Weight
}

// Share returns the share of n, the zero value for a node without parent or below a cycle.
func (f *Forest) Share(n Node) Share {
	nd := &f.nodes[n]
	if nd.root == None || nd.parent == None {
		return Share{}
	}
	var most Share
	var sum resource.Amount // borrowed of one resource
	row, lendable := f.row(n), f.lendable[int(nd.parent)*f.stride:]
	for _, o := range f.byKind {
		if c := &row[o.fr]; c.listed && c.usage > c.subtree {
			sum = sum.Add(c.usage.Sub(c.subtree))
		}
		if o.last && sum > 0 {
			s := Share{sum, lendable[o.first], nd.weight}
			if s.lendable > 0 && s.Compare(most) > 0 {
				most = s
			}
			sum = 0
		}
	}
	return most
}

// Borrows reports whether n uses more than its own quota of any FR; a node without parent
// never does. spec: 20 §4.1.
func (f *Forest) Borrows(n Node) bool {
	if nd := &f.nodes[n]; nd.root == None || nd.parent == None {
		return false
	}
	row := f.row(n)
	for i := range row {
		if row[i].usage > row[i].subtree {
			return true
		}
	}
	return false
}

// IsZero reports whether the share is 0.
func (s Share) IsZero() bool { return s.borrowed == 0 }

// Infinite reports whether the node has weight 0 and borrows.
func (s Share) Infinite() bool { return s.weight == 0 && s.borrowed > 0 }

// Compare orders shares exactly: infinite ones come last, ordered by their shares without the
// weight.
func (s Share) Compare(o Share) int {
	switch {
	case s.borrowed == 0 || o.borrowed == 0:
		return cmp.Compare(s.borrowed, o.borrowed)
	case s.Infinite() && o.Infinite():
		return product(s.borrowed, o.lendable, 1).compare(product(o.borrowed, s.lendable, 1))
	case s.Infinite():
		return 1
	case o.Infinite():
		return -1
	}
	a, b := s.approximately(), o.approximately()
	if margin := max(a, b) * 1e-9; a > b+margin || b > a+margin {
		return cmp.Compare(a, b)
	}
	return product(s.borrowed, o.lendable, resource.Amount(o.weight)).compare(product(o.borrowed, s.lendable, resource.Amount(s.weight)))
}

// approximately is the share to some 15 digits, up to a constant factor.
func (s Share) approximately() float64 {
	return float64(s.borrowed) / (float64(s.lendable) * float64(s.weight))
}

// Value returns the share as a number, +Inf when infinite.
func (s Share) Value() float64 {
	switch {
	case s.borrowed == 0:
		return 0
	case s.weight == 0:
		return math.Inf(1)
	}
	// In lowest terms most products are exact.
	const thousand = 1000 * DefaultWeight
	ratio, scale := gcd(s.borrowed, s.lendable), gcd(thousand, s.weight)
	return float64(s.borrowed/ratio) * float64(thousand/scale) / (float64(s.lendable/ratio) * float64(s.weight/scale))
}

// Ceil returns the least integer that is not below the share, math.MaxInt64 when there
// is none. It is exact.
func (s Share) Ceil() int64 {
	low, high := resource.Amount(0), resource.Amount(math.MaxInt64)
	for low < high {
		middle := low + (high-low)/2
		if (Share{middle, 1000, DefaultWeight}).Compare(s) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return int64(low)
}

func gcd[T ~int64](a, b T) T {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// wide is an unsigned number of 192 bits, the highest first.
type wide [3]uint64

// product returns a·b·c for amounts ≥ 0.
func product(a, b, c resource.Amount) wide {
	high, low := multiply(uint64(a), uint64(b))
	middle, last := multiply(low, uint64(c))
	first, carried := multiply(high, uint64(c))
	middle += carried
	if middle < carried {
		first++
	}
	return wide{first, middle, last}
}

// multiply returns the 128 bits of a·b, by halves.
func multiply(a, b uint64) (high, low uint64) {
	const half = 1<<32 - 1
	a1, a0, b1, b0 := a>>32, a&half, b>>32, b&half
	t := a1*b0 + a0*b0>>32
	u := a0*b1 + t&half
	return a1*b1 + t>>32 + u>>32, a * b
}

func (w wide) compare(o wide) int {
	return cmp.Or(cmp.Compare(w[0], o[0]), cmp.Compare(w[1], o[1]), cmp.Compare(w[2], o[2]))
}
