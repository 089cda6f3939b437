// Package resource holds quantities and the interned names they are counted under.
package resource

import (
	"math"
	"strconv"
)

// Amount is a quantity in the smallest unit that quota is counted in: millicores
// for cpu, bytes for memory, whole units for everything else. Arithmetic saturates
// instead of wrapping. spec: 10 §4.3.1.
type Amount int64

// Unlimited is the amount that no request exhausts: ∞±x = ∞, x−∞ is the least
// amount there is, and ∞−∞ = 0.
const Unlimited Amount = math.MaxInt64

const least Amount = math.MinInt64

// within is half of the range. Where −within ≤ a, b < within, as nearly always, a+b and a−b
// cannot overflow; Add and Sub are small enough to be inlined for that case.
const within Amount = 1 << 62

// Add returns a+b.
func (a Amount) Add(b Amount) Amount {
	if (a+within)|(b+within) >= 0 { // a+within wraps to below 0 where a is outside
		return a + b
	}
	return add(a, b)
}

func add(a, b Amount) Amount {
	if a == Unlimited || b == Unlimited {
		return Unlimited
	}
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return Unlimited
	case a < 0 && b < 0 && sum >= 0:
		return least
	}
	return sum
}

// Sub returns a−b.
func (a Amount) Sub(b Amount) Amount {
	if (a+within)|(b+within) >= 0 { // a+within wraps to below 0 where a is outside
		return a - b
	}
	return sub(a, b)
}

func sub(a, b Amount) Amount {
	switch {
	case a == Unlimited && b == Unlimited:
		return 0
	case a == Unlimited:
		return Unlimited
	case b == Unlimited:
		return least
	case b == least:
		return add(a, Unlimited)
	}
	return add(a, -b)
}

// Mul returns a·n.
func (a Amount) Mul(n int64) Amount {
	if a == 0 || n == 0 {
		return 0
	}
	product := a * Amount(n)
	if product/Amount(n) == a && !(a == least && n == -1) && !(n == math.MinInt64 && a == -1) {
		return product
	}
	if (a > 0) == (n > 0) {
		return Unlimited
	}
	return least
}

// Scale returns what to of a total for from parts amounts to: the total is divided
// first, so that shrinking and growing again gives the same figures. spec: 10 §4.6.1.
func (a Amount) Scale(from, to int32) Amount {
	if from == to {
		return a
	}
	if from <= 0 {
		return 0
	}
	return (a / Amount(from)).Mul(int64(to))
}

// Format writes the amount in the unit people use for the resource: cores for cpu,
// Ki to Ei where they divide a size, plain counts otherwise.
func (a Amount) Format(resource string) string {
	if a == Unlimited {
		return "<unlimited>"
	}
	switch {
	case resource == "cpu":
		if a%1000 == 0 {
			return strconv.FormatInt(int64(a/1000), 10)
		}
		return strconv.FormatInt(int64(a), 10) + "m"
	case isSize(resource):
		return formatSize(a)
	}
	return strconv.FormatInt(int64(a), 10)
}

func isSize(resource string) bool {
	return resource == "memory" || resource == "ephemeral-storage" || resource == "storage" ||
		(len(resource) > 10 && resource[:10] == "hugepages-")
}

func formatSize(a Amount) string {
	suffixes := [...]string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	i := 0
	for a != 0 && a%1024 == 0 && i < len(suffixes)-1 {
		a /= 1024
		i++
	}
	return strconv.FormatInt(int64(a), 10) + suffixes[i]
}
