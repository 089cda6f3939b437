package foresight

import (
	"fmt"
	"math"
)

// Length is a time of s seconds as text, in two units at most.
func Length(s float64) string {
	n := int64(math.Round(s))
	switch {
	case n < 60:
		return fmt.Sprintf("%ds", n)
	case n < 3600:
		return fmt.Sprintf("%dm%02ds", n/60, n%60)
	case n < 48*3600:
		return fmt.Sprintf("%dh%02dm", n/3600, n%3600/60)
	}
	return fmt.Sprintf("%dd%02dh", n/86400, n%86400/3600)
}
