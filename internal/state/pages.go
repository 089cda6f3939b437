package state

import (
	"iter"
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/workload"
)

// pages are the checkpoints of all records, by record number. A recorder keeps them up to date after every event, so that a checkpoint
// of the State only copies the table: copies share the pages, and a page that is shared is replaced before its next change.
type pages struct {
	table []*page
	own   []uint64 // a bit for each page: no copy of the table has it
	blank []rareCheckpoint
}

// pageLen makes a page nearly as large as one of the allocator's size classes.
const pageLen = 128

type page [pageLen]workloadCheckpoint

// workloadCheckpoint is a record at one moment.
type workloadCheckpoint struct {
	def  *definition // nil for a number without a record
	said *said
	rare *rareCheckpoint // nil for most
}

// rareCheckpoint is what most records lack. It is immutable.
type rareCheckpoint struct {
	assumed   *flavor.Holding // nil unless its admission is not written
	queue     int32           // the index of the queue of that admission or search
	at, since workload.Instant
	priority  int64
	evicting  bool
	scan      *workload.Scan // where its search for flavors resumes, nil for at the first
}

// same reports whether two checkpoints of a record are equal.
func (w *workloadCheckpoint) same(o *workloadCheckpoint) bool {
	return w.def == o.def && w.said == o.said && (w.rare == o.rare || w.rare != nil && o.rare != nil && *w.rare == *o.rare)
}

// set replaces the checkpoint of a record number.
func (p *pages) set(number int32, w workloadCheckpoint) {
	n, at := int(number)/pageLen, int(number)%pageLen
	for n >= len(p.table) {
		p.table = append(p.table, &page{})
		if len(p.table) > 64*len(p.own) {
			p.own = append(p.own, 0)
		}
		last := len(p.table) - 1
		p.own[last/64] |= 1 << (last % 64)
	}
	if p.table[n][at].same(&w) {
		return
	}
	if bit := uint64(1) << (n % 64); p.own[n/64]&bit == 0 {
		p.table[n], p.own[n/64] = new(*p.table[n]), p.own[n/64]|bit
	}
	p.table[n][at] = w
}

// share returns a copy of the table.
func (p *pages) share() []*page {
	clear(p.own)
	return slices.Clone(p.table)
}

// checkpointOf returns the checkpoint of a record, a blank one for nil.
func (p *pages) checkpointOf(r *record) workloadCheckpoint {
	if r == nil {
		return workloadCheckpoint{}
	}
	w := workloadCheckpoint{def: r.def, said: r.said}
	scan := r.wl.Scan
	if r.in == nil || r.wl.Reserved {
		scan = nil
	}
	if !r.assumed() && !r.wl.Evicting && scan == nil {
		return w
	}
	w.rare = takeBlank(&p.blank, 16)
	w.rare.queue, w.rare.evicting, w.rare.scan = r.wl.Queue, r.wl.Evicting, scan
	if r.assumed() {
		w.rare.assumed, w.rare.at, w.rare.since, w.rare.priority = r.got, r.wl.ReservedAt, r.wl.Since, r.wl.Priority
	}
	return w
}

// copyRecords makes the checkpoints of all records.
func (s *State) copyRecords() pages {
	var p pages
	for number := range s.byNumber.len {
		p.set(number, p.checkpointOf(s.byNumber.record(number)))
	}
	return p
}

// records returns the checkpoints of the records that exist: by number, in a part by LocalQueue.
func (c *Checkpoint) records() iter.Seq[*workloadCheckpoint] {
	return func(yield func(*workloadCheckpoint) bool) {
		for _, line := range c.lines {
			for _, w := range line {
				if !yield(w) {
					return
				}
			}
		}
		for _, p := range c.workloads {
			for i := range p {
				if p[i].def != nil && !yield(&p[i]) {
					return
				}
			}
		}
	}
}
