package patch

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

const maxConflicts = 10

type conflict struct {
	// first and second are indexes of entries.
	first, second int
	path          string
}

// conflictsOf returns the fields that managers set to different values, in the order of the second entry (spec: 50 §4.13.1).
func conflictsOf(patches []trainerv1alpha1.RuntimePatch, cfg *Config) []conflict {
	if len(patches) < 2 {
		return nil
	}
	type setting struct {
		entry int
		leaf  leaf
	}
	set := map[string][]setting{}
	var out []conflict
	for i := range patches {
		mine := map[string]leaf{} // what the entry says in the end: an entry with selectors can set a field twice
		var order []string
		for _, l := range leavesOf(&patches[i]) {
			if _, ok := mine[l.path]; !ok {
				order = append(order, l.path)
			}
			mine[l.path] = l
		}
		for _, path := range order {
			l := mine[path]
			for _, s := range set[path] {
				if s.leaf.value != l.value && !cfg.mayDiffer(&l, patches[s.entry].Manager, patches[i].Manager) {
					out = append(out, conflict{first: s.entry, second: i, path: path})
				}
			}
			set[path] = append(set[path], setting{i, l})
		}
	}
	return out
}

// mayDiffer reports whether two managers may set a field to different values: scheduling managers add to lists, and every manager sets
// labels and annotations of pods under its own domain.
func (c *Config) mayDiffer(l *leaf, managers ...string) bool {
	for _, m := range managers {
		if !c.schedules(m) {
			continue
		}
		domain, _, _ := strings.Cut(m, "/")
		if l.kind == leafAdded || (l.kind == leafPodMeta && strings.HasPrefix(l.key, domain+"/")) {
			return true
		}
	}
	return false
}

// winner returns the manager whose value is merged last (spec: 50 §4.9).
func (c *Config) winner(a, b *trainerv1alpha1.RuntimePatch) string {
	if c.schedules(a.Manager) && !c.schedules(b.Manager) {
		return a.Manager
	}
	return b.Manager
}

// validateConflicts refuses conflicts, or warns. Conflicts between two unchanged entries are warnings.
func (v *checker) validateConflicts(patches []trainerv1alpha1.RuntimePatch, changed func(*trainerv1alpha1.RuntimePatch) bool) {
	refused, warned := 0, 0
	for _, c := range conflictsOf(patches, v.Config) {
		if v.Conflicts++; v.Config.ConflictPolicy == ConflictIgnore {
			continue
		}
		a, b := &patches[c.first], &patches[c.second]
		detail := fmt.Sprintf("managers %s and %s set %s "+differentValues, a.Manager, b.Manager, c.path)
		if v.Config.ConflictPolicy == ConflictWarn || (!changed(a) && !changed(b)) {
			if warned++; warned <= maxConflicts {
				v.warn("spec.runtimePatches: " + detail + "; the value of " + v.Config.winner(a, b) + " is used")
			}
			continue
		}
		if refused++; refused <= maxConflicts {
			path := listPath.Index(c.second).Child("trainingRuntimeSpec").Child(c.path)
			v.refuse(DeniedConflict, field.Forbidden(path, detail+"; agree on one value, or leave the field to one of them"))
		}
	}
	if warned > maxConflicts {
		v.warn(fmt.Sprintf("spec.runtimePatches: %d more conflicts between managers", warned-maxConflicts))
	}
	if refused > maxConflicts {
		v.refuse(DeniedConflict, field.Forbidden(listPath, fmt.Sprintf("%d more conflicts between managers", refused-maxConflicts)))
	}
}

// overridden returns, by manager, the fields whose value another manager replaced.
func overridden(patches []trainerv1alpha1.RuntimePatch, cfg *Config) map[string][]trainerv1alpha1.RuntimePatchOverride {
	if len(patches) < 2 {
		return nil
	}
	ordered := make([]trainerv1alpha1.RuntimePatch, 0, len(patches))
	for _, p := range inOrder(patches, cfg) {
		ordered = append(ordered, *p)
	}
	out := map[string][]trainerv1alpha1.RuntimePatchOverride{}
	for _, c := range conflictsOf(ordered, cfg) {
		loser, winner := ordered[c.first].Manager, ordered[c.second].Manager
		out[loser] = append(out[loser], trainerv1alpha1.RuntimePatchOverride{Manager: winner, Field: c.path})
	}
	return out
}
