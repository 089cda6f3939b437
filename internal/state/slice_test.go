package state

import (
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
)

// checkSlices: a slice is charged its reservation, but while it is the only one that
// is to take the place of another, which keeps its own, it is charged the difference.
func (m *machine) checkSlices(t *rapid.T) {
	for _, o := range m.objects {
		def, place := m.counted(o), m.place(o)
		if !def.Reserved || place == "" {
			continue
		}
		want := map[string]resource.Amount{}
		for _, h := range def.Held {
			want[h.Flavor+"/"+h.Resource] += h.Amount
		}
		for _, before := range m.objects {
			if !m.follows(o, before) || def.Admitted {
				continue
			}
			if m.rivals(o, before) > 1 {
				want = nil
			}
			for _, h := range m.counted(before).Held {
				if key := h.Flavor + "/" + h.Resource; want != nil {
					want[key] -= h.Amount
				}
			}
		}
		for fr := range resource.FR(m.s.world.Table.Len()) {
			p := m.s.world.Table.Pair(fr)
			if have := m.s.records[def.UID].wl.Usage.Quota.Of(fr); want != nil && have != max(0, want[p.Flavor+"/"+p.Resource]) {
				t.Fatalf("%s is charged %d of %v, want %d", def.Key(), have, p, want[p.Flavor+"/"+p.Resource])
			}
		}
	}
}

// counted is the object as it counts: with what is being written.
func (m *machine) counted(o *object) Workload {
	if o.admission != nil {
		return m.asAdmitted(o)
	}
	return o.def
}

// follows reports whether both have quota of a queue, and one is to take the place of the other.
func (m *machine) follows(o, before *object) bool {
	a, b := m.counted(o), m.counted(before)
	return a.Reserved && b.Reserved && a.Queue == b.Queue && comesAfter(o, before)
}

// comesAfter reports whether one is to take the place of the other.
func comesAfter(o, before *object) bool {
	a, b := &o.def, &before.def
	return o != before && a.Replaces == b.Name && a.Namespace == b.Namespace && a.Owner == b.Owner
}
