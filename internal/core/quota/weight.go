package quota

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Weight is a weight in fair sharing, in billionths: the finest that an API object can have. JSON has it in thousandths, as the flight
// records of earlier versions do.
type Weight int64

// DefaultWeight is the weight of a node without a configured one.
const DefaultWeight Weight = 1e9

// millionths are the billionths of a thousandth.
const millionths = 1_000_000

// MarshalJSON writes thousandths with up to six decimals.
func (w Weight) MarshalJSON() ([]byte, error) {
	text := fmt.Sprintf("%d.%06d", w/millionths, w%millionths)
	return []byte(strings.TrimRight(strings.TrimRight(text, "0"), ".")), nil
}

// UnmarshalJSON is the inverse. A weight that is too large is the largest.
func (w *Weight) UnmarshalJSON(text []byte) error {
	whole, decimals, _ := strings.Cut(string(text), ".")
	n, err := strconv.ParseUint(whole+(decimals + "000000")[:6], 10, 63)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("weight %s is no number of thousandths: %w", text, err)
	}
	*w = Weight(n)
	return nil
}
