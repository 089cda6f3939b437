package state

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/workload"
)

// The machine's worlds with jobs that are queued as variants. Their controller deactivates variants that may not run, and admits one that
// holds quota.

// drawPolicy draws whether jobs of a queue are queued as variants, and how far they may migrate.
func (m *machine) drawPolicy(t *rapid.T, def *Queue) {
	if !m.variants {
		return
	}
	had, known := m.queues[def.Name]
	if def.Variants = had.Variants; !known || rapid.IntRange(0, 7).Draw(t, "policy changes") == 7 {
		def.Variants = rapid.IntRange(0, 3).Draw(t, "policy") > 0
	}
	if def.Variants {
		def.MigratesTo = rapid.Int32Range(0, 2).Draw(t, "migrates to")
	}
}

// divide submits a job: a parent, and a variant for each flavor.
func (m *machine) divide(t *rapid.T) {
	if !m.variants {
		t.Skip("no variants")
	}
	m.submit(t)
	parent := m.objects[fmt.Sprintf("u%02d", m.serial)]
	parent.def.Divisible = true
	m.set(parent)
	for rank := range int32(2) {
		m.serial++
		o := &object{def: parent.def, checked: parent.checked}
		o.def.UID, o.def.Name, o.def.Version = fmt.Sprintf("u%02d", m.serial), fmt.Sprintf("w%02d", m.serial), 0
		o.def.Divisible, o.def.VariantOf, o.def.Rank = false, parent.def.UID, rank
		o.def.Since += workload.Instant(rank)
		m.restrict(&o.def)
		m.objects[o.def.UID] = o
		m.set(o)
	}
}

// restrict lets a variant have its flavor only.
func (m *machine) restrict(def *Workload) {
	if def.VariantOf == "" {
		return
	}
	def.PodSets = slices.Clone(def.PodSets)
	for i := range def.PodSets {
		ps, flavor := &def.PodSets[i], fmt.Sprintf("f%d", def.Rank)
		ps.MinCount, ps.Shape, ps.Constraints = 0, flavor, &workload.Constraints{Flavors: []string{flavor}}
	}
}

// siblings are the other variants of a variant's job, by UID.
func (m *machine) siblings(of *object) (out []*object) {
	for _, uid := range slices.Sorted(maps.Keys(m.objects)) {
		if o := m.objects[uid]; of.def.VariantOf != "" && o != of && o.def.VariantOf == of.def.VariantOf {
			out = append(out, o)
		}
	}
	return out
}

func (o *object) runs() bool { return o.def.Reserved && o.def.Admitted }

// mayAdmit reports whether the controller of variants admits one that passed its checks: no other one is admitted. One with a worse flavor
// is evicted for it.
func (m *machine) mayAdmit(o *object) bool {
	for _, other := range m.siblings(o) {
		if other.runs() {
			if !other.def.Evicting && o.def.Rank < other.def.Rank {
				other.def.Evicting, other.evicting = true, false
				m.set(other)
			}
			return false
		}
	}
	return true
}

// followJob deactivates the pending variants of a job that may not replace the admitted one, and activates them when none is admitted.
func (m *machine) followJob(t *rapid.T) {
	_, first := pick(t, "job", m.objects, func(o *object) bool { return o.def.VariantOf != "" })
	family := append(m.siblings(first), first)
	running := slices.IndexFunc(family, func(o *object) bool { return o.runs() && !o.def.Evicting })
	for i, o := range family {
		lq := m.lqs[o.def.Namespace+"/"+o.def.LocalQueue]
		may := running < 0 || (o.def.Rank < family[running].def.Rank && o.def.Rank < m.queues[lq.Queue].MigratesTo)
		if i == running || o.def.Reserved || o.admission != nil || may == o.def.Queueable {
			continue
		}
		o.def.Queueable = may
		m.set(o)
	}
}

// checkAlone: a variant gets quota only while no other one of its job is admitted, or is getting quota.
func (m *machine) checkAlone(t *rapid.T, o *object) {
	for _, other := range m.siblings(o) {
		if other.runs() || (other.admission != nil && other.admission != o.admission) {
			t.Fatalf("%s gets quota, and the job runs on %s, or is about to\n%s", o.def.Key(), other.def.Key(), m.s.Dump())
		}
	}
}

// checkVariants: of the variants of a job at most one is admitted, and a parent that is queued as variants neither waits nor holds quota.
func (m *machine) checkVariants(t *rapid.T) {
	for _, uid := range slices.Sorted(maps.Keys(m.objects)) {
		o := m.objects[uid]
		for _, other := range m.siblings(o) {
			if o.runs() && other.runs() {
				t.Fatalf("%s and %s of one job are admitted", o.def.Key(), other.def.Key())
			}
		}
	}
}
