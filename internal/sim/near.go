package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// quote makes a word of a script fit to be shown.
func quote(word string) string {
	const long = 60
	if len(word) > long {
		word = word[:long] + "..."
	}
	return strconv.Quote(word)
}

// didYouMean suggests a known word for an unknown one.
func didYouMean(word string, known []string) string {
	if near := nearest(word, known); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	return "what there is: " + strings.Join(known, " ")
}

// nearest returns the known word that a misspelt one most likely meant, or "" if there is none. Ties go to the first.
func nearest(word string, known []string) string {
	if len(word) > maxName {
		return ""
	}
	best, bestCost := "", max(1, len(word)/3)+1
	for _, k := range known {
		if cost := distance(word, k); cost < bestCost && cost < len(word) {
			best, bestCost = k, cost
		}
	}
	return best
}

// distance is the number of bytes to insert, delete or change to turn one word into
// another.
func distance(from, to string) int {
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(from) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(to) {
			cost := diagonal
			if from[i] != to[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(to)]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
