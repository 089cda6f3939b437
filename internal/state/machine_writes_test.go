package state

import (
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// What comes of the writes that decisions need.

func (m *machine) written(t *rapid.T) {
	_, o := pick(t, "admission", m.objects, func(o *object) bool { return o.admission != nil })
	m.write(t, o)
}

func (m *machine) allWritten(t *rapid.T) {
	for _, uid := range slices.Sorted(maps.Keys(m.objects)) {
		if m.objects[uid].admission != nil {
			m.write(t, m.objects[uid])
		}
	}
}

// write reports that an admission is written. If the workload has finished meanwhile, or may not be queued, that was refused, or came before, and
// the Workload as reported holds nothing.
func (m *machine) write(t *rapid.T, o *object) {
	if !o.def.Queueable {
		if rapid.Bool().Draw(t, "refused") {
			m.fail(o)
			return
		}
		o.admission, o.evicting = nil, false
		o.def.Version++
		m.s.Apply(AdmissionWritten(o.def))
		return
	}
	o.def = m.asAdmitted(o)
	o.def.Admitted = !o.checked && !o.grant.Contested
	o.admission = nil
	m.set(o)
}

// passed: a workload with quota passes its checks.
func (m *machine) passed(t *rapid.T) {
	_, o := pick(t, "checked", m.objects, func(o *object) bool { return o.def.Reserved && !o.def.Admitted && !o.def.Evicting })
	if m.mayAdmit(o) {
		o.def.Admitted = true
		m.set(o)
	}
}

// asAdmitted is the object as it will be once its admission is written, if it has checks
// to pass.
func (m *machine) asAdmitted(o *object) Workload {
	def := o.def
	def.Reserved, def.Queue, def.Held = true, o.grant.Queue, nil
	def.ReservedAt = o.grant.At
	for _, ps := range o.grant.PodSets {
		def.Held = append(def.Held, ps.Held...)
		if ps.Placement != nil {
			def.Placed = append(def.Placed, PodSetPlacement{ps.Name, *ps.Placement})
		}
	}
	return def
}

func (m *machine) writeFails(t *rapid.T) {
	_, o := pick(t, "admission", m.objects, func(o *object) bool { return o.admission != nil })
	m.fail(o)
}

// fail takes back an admission that is not going to be written.
func (m *machine) fail(o *object) {
	o.admission, o.evicting = nil, false
	m.s.Apply(AdmissionFailed{o.def.UID, o.grant.Version})
}

// queueable ends the right of a workload to be queued while its admission is being written, or gives it back. The writer knows only the
// last of several versions.
func (m *machine) queueable(t *rapid.T) {
	_, o := pick(t, "admission", m.objects, func(o *object) bool { return o.admission != nil })
	o.def.Queueable = !o.def.Queueable
	m.set(o)
}

func (m *machine) evictWritten(t *rapid.T) {
	_, o := pick(t, "eviction", m.objects, func(o *object) bool { return o.evicting && o.admission == nil })
	o.evicting = false
	o.def.Evicting = true
	m.set(o)
}

func (m *machine) evictFails(t *rapid.T) {
	uid, o := pick(t, "eviction", m.objects, func(o *object) bool { return o.evicting && o.admission == nil })
	o.evicting = false
	m.s.Apply(EvictionFailed(uid))
}

func (m *machine) evicted(t *rapid.T) {
	_, o := pick(t, "leaving", m.objects, func(o *object) bool { return o.def.Reserved && o.def.Evicting })
	o.def.Reserved, o.def.Admitted, o.def.Evicting, o.def.Held, o.def.Queue = false, false, false, nil, ""
	o.def.Ready, o.def.Placed = false, nil
	m.set(o)
}

func (m *machine) evictedOutside(t *rapid.T) {
	_, o := pick(t, "running", m.objects, func(o *object) bool { return o.def.Reserved && !o.def.Evicting })
	o.def.Evicting, o.evicting = true, false
	m.set(o)
}

func (m *machine) mayStay(t *rapid.T) {
	_, o := pick(t, "leaving", m.objects, func(o *object) bool { return o.def.Reserved && o.def.Evicting })
	o.def.Evicting = false
	m.set(o)
}
