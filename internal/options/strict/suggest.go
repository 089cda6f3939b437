package strict

import (
	"fmt"
	"slices"
	"strings"
)

// Nearest returns the known name that a misspelt one most likely meant, the first one of equally near names, or "" if none is near.
func Nearest(name string, known []string) string {
	best, bestCost := "", min(max(1, len(name)/2), max(2, len(name)/3), 6)+1
	for _, k := range known {
		if cost := distance(strings.ToLower(name), strings.ToLower(k)); cost < bestCost {
			best, bestCost = k, cost
		}
	}
	return best
}

// DidYouMean returns advice about an unknown name: the nearest known one, or all of them.
func DidYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	if len(known) == 0 {
		return "nothing may be written here"
	}
	return "known here: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
}

// OrAll suggests the known name that is nearest to a name, or lists all.
func OrAll(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(known) == 0 {
		return "there are none"
	}
	return "there are " + strings.Join(known, ", ")
}

// distance returns the number of single-byte edits and swaps of neighbours between a and b.
func distance(a, b string) int {
	const tooLong = 128
	if len(a) > tooLong || len(b) > tooLong {
		return tooLong
	}
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := old[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, old[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, old, row = old, row, older
	}
	return old[len(b)]
}
