package quota

import (
	"slices"
	"strings"
)

// Circle returns the cohorts above a node that form a circle, beginning with the first by
// name, nil if there is none: first is the parent of the node, parent that of a cohort, and
// "" is no cohort. spec: 10 §4.3.5.
func Circle(first string, parent func(cohort string) string) []string {
	var path []string
	for name := first; name != ""; name = parent(name) {
		at := slices.Index(path, name)
		if at < 0 {
			path = append(path, name)
			continue
		}
		circle := path[at:]
		least := slices.Index(circle, slices.Min(circle))
		return slices.Concat(circle[least:], circle[:least])
	}
	return nil
}

// InCircle describes why no workload is admitted below cohorts that form a circle.
func InCircle(circle []string) string {
	return "the cohorts above it form a circle: " + strings.Join(slices.Concat(circle, circle[:1]), " below ")
}
