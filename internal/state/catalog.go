package state

import (
	"cmp"
	"strings"

	"github.com/berth-project/berth/internal/core/flavor"
)

// catalog is the definitions of all that exists but workloads. A copy of it stays as it is, at the cost of some words.
type catalog struct {
	namespaces  sorted[*Namespace]
	flavors     sorted[*flavor.Flavor]
	cohorts     sorted[*Cohort] // the defined ones
	queues      sorted[*definedQueue]
	localQueues sorted[*LocalQueue]
}

// definedQueue is the definition of a ClusterQueue with its Queue.Index.
type definedQueue struct {
	index int32
	def   *Queue
}

func compareNamespaces(a, b *Namespace) int  { return strings.Compare(a.Name, b.Name) }
func compareFlavors(a, b *flavor.Flavor) int { return strings.Compare(a.Name, b.Name) }
func compareDefined(a, b *Cohort) int        { return strings.Compare(a.Name, b.Name) }
func compareIndexes(a, b *definedQueue) int  { return cmp.Compare(a.index, b.index) }
func compareQueuesOf(a, b *LocalQueue) int   { return a.key().compare(b.key()) }

// keepDefinition adds a definition, or removes it.
func keepDefinition[T any](in *sorted[*T], def *T, exists bool, compare func(a, b *T) int) {
	if exists {
		*in = in.put(def, compare)
	} else {
		*in = in.drop(def, compare)
	}
}

// definitions returns copies of the definitions, in their order, nil for none.
func definitions[T any](of sorted[*T]) []T {
	if of.Len() == 0 {
		return nil
	}
	out := make([]T, 0, of.Len())
	for def := range of.all() {
		out = append(out, *def)
	}
	return out
}
