package order

import "github.com/berth-project/berth/internal/core/workload"

// Packing makes the PackedClasses of a line as it is when the packing begins, in pieces, while the line goes on. The classes of a chunk
// are packed together: before the first of them changes, or when Continue comes to them. With the results of InadmissibleAlone,
// Prioritized and Released, for which there are setters, it is all that a line with the same workloads needs to be equal.
type Packing struct {
	of      *Pending
	chunks  int // how many the line had; later ones are not packed
	next    int // the first chunk that Continue has not visited
	number  int // of inadmissible classes
	packed  []uint64
	few     [2]uint64 // the first memory of packed
	classes PackedClasses
}

// BeginPacking begins a packing of the inadmissible classes. One that has begun before is completed first.
func (p *Pending) BeginPacking() *Packing {
	p.packing.complete()
	k := &Packing{of: p, chunks: len(p.chunks), number: p.inadmissible}
	if k.number == 0 {
		k.chunks = 0
		return k
	}
	k.packed = k.few[:]
	if words := (k.chunks + 63) / 64; words > len(k.few) {
		k.packed = make([]uint64, words)
	}
	p.packing = k
	return k
}

// Done reports whether the packing is complete. Then it does not change any more.
func (k *Packing) Done() bool { return k.next >= k.chunks }

// Continue packs classes: at least so many, if there are, and at most the rest of a chunk more. It returns how many it has visited.
func (k *Packing) Continue(classes int) (visited int) {
	for !k.Done() && visited < classes {
		if k.save(k.next) {
			visited += chunkLen
		}
		if k.next++; k.Done() {
			k.of.packing = nil
		}
	}
	return visited
}

func (k *Packing) complete() {
	if k != nil {
		k.Continue(k.chunks * chunkLen)
	}
}

// save packs the classes of a chunk, and reports whether they were not packed.
func (k *Packing) save(chunk int) bool {
	if chunk >= k.chunks || k.packed[chunk/64]>>(chunk%64)&1 > 0 {
		return false
	}
	k.packed[chunk/64] |= 1 << (chunk % 64)
	in := k.of.chunks[chunk]
	if in == nil {
		return true
	}
	if k.classes == nil {
		k.classes = make(PackedClasses, 0, k.number)
	}
	for i := range in.classes {
		if c := &in.classes[i]; len(c.members) > 0 && c.stage != awake {
			k.classes = append(k.classes, packedClass{c.head(), c.by, c.stage == tried, c.packedWants.clone()})
		}
	}
	if len(k.classes) == k.number {
		k.of.packing, k.next = nil, k.chunks
	}
	return true
}

// changes is called before the head, the stage, the representative or the wants of a class change.
func (p *Pending) changes(c *class) {
	if p.packing != nil {
		p.packing.save(int(c.slot) / chunkLen)
	}
}

// Classes returns the packed classes of a complete packing.
func (k *Packing) Classes() PackedClasses { return k.classes }

// Restore makes the packed classes inadmissible in another line. find returns the workload of that line that is equal to one of the
// packed line, nil if there is none. It reports whether it found a member of every class.
func (k *Packing) Restore(p *Pending, find func(*workload.Workload) *workload.Workload, now Figures) bool {
	var wants []workload.Want
	var left *workload.Workload // a representative that has left the line
	for i := range k.classes {
		c := &k.classes[i]
		member, by := find(c.member), find(c.by)
		if member == nil {
			return false
		}
		if by == nil {
			if left == nil || left.UID != c.by.UID {
				left = &workload.Workload{UID: c.by.UID}
			}
			by = left
		}
		wants = c.wants.unpack(wants[:0])
		p.Restore(InadmissibleClass{Member: member, By: by, Wants: wants, Tried: c.tried}, now)
	}
	return true
}
