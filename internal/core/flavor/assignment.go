package flavor

import (
	"slices"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Assignment is the outcome for a whole workload.
type Assignment struct {
	PodSets  []trace.PodSet  // in the workload's order; when NoFit, the ones assigned before
	Mode     Mode            // the worst of its pod sets
	Level    int             // the farthest any of its requests borrows
	Usage    ledger.Usage    // by FR, without zeros
	Refusals []trace.Refusal // flavors that were refused, in order
	// Reason is why nothing fits, when Mode is NoFit: of the flavors of the resource group that
	// failed the least severe, of the resources of one flavor the most severe. The search ends at
	// the first group that fails, and groups before it have no reason, so it is also the most
	// severe over the resource groups and pod sets. spec: 10 §4.6.7.
	Reason trace.Reason
	// Tried is where the next search resumes, for groups with flavors left. A group of pod sets
	// that failed has no part in it, unless another pick for it could help.
	Tried []workload.Tried
	// Resumed reports that a search did not start at its first flavor: the reason and the
	// refusals are not about all flavors then.
	Resumed bool

	// Placed is the groups of pod sets that need places, with their flavors.
	Placed []PlaceGroup

	flat []trace.Choice // of all pod sets
}

// Needs writes the FRs that require preemption, sorted, into the memory of into.
func (a *Assignment) Needs(into []resource.FR) []resource.FR {
	into = into[:0]
	for _, ps := range a.PodSets {
		for _, r := range ps.Resources {
			if r.Mode != Fit {
				into = insert(into, r.FR)
			}
		}
	}
	return into
}

// Holding is the part of a charged assignment that is kept.
type Holding struct {
	PodSets []trace.PodSet
	ledger.Usage
	// Version and Generation are what the workload had that was decided about. The core does not read them.
	Version    uint64 `json:",omitempty"`
	Generation int64  `json:",omitempty"`
}

// Holding returns a copy of the charge of a. Short lists are allocated with the copy: up to
// four FRs, as many resources and a pod set.
func (a *Assignment) Holding() *Holding {
	block := &struct {
		Holding
		usage   [4]resource.Entry
		flat    [4]trace.Choice
		podSets [1]trace.PodSet
	}{}
	h := &block.Holding
	h.Usage = a.Usage.Copy(ledger.Usage{Quota: block.usage[:0]})
	h.PodSets = append(block.podSets[:0], a.PodSets...)
	flat := block.flat[:0]
	if len(a.flat) > len(block.flat) {
		flat = make([]trace.Choice, 0, len(a.flat))
	}
	for i := range h.PodSets {
		from := len(flat)
		flat = append(flat, h.PodSets[i].Resources...)
		h.PodSets[i].Resources = flat[from:len(flat):len(flat)]
	}
	return h
}

// add adds amount at fr in v's own memory; nothing leaves no entry.
func add(v resource.Vector, fr resource.FR, amount resource.Amount) resource.Vector {
	if amount <= 0 {
		return v
	}
	i := 0
	for i < len(v) && v[i].FR < fr {
		i++
	}
	if i < len(v) && v[i].FR == fr {
		v[i].Amount = v[i].Amount.Add(amount)
		return v
	}
	return slices.Insert(v, i, resource.Entry{FR: fr, Amount: amount})
}

// insert adds fr to sorted frs, unless it is there.
func insert(frs []resource.FR, fr resource.FR) []resource.FR {
	i, found := slices.BinarySearch(frs, fr)
	if found {
		return frs
	}
	return slices.Insert(frs, i, fr)
}
