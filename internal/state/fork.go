package state

import (
	"fmt"

	"github.com/berth-project/berth/internal/core/workload"
)

// fork makes a State of a checkpoint. What never changes is shared with the State of the checkpoint: texts, pod sets, decisions.
type fork struct {
	from    *Checkpoint
	s       *State
	shapes  map[*shape]*shape
	records map[int32]*record // by the number of the record in the State of the checkpoint

	blankRecords     []record
	blankDefinitions []definition
}

// Fork returns a State of its own that decides as the State of the checkpoint would. It may be called in any goroutine.
func (c *Checkpoint) Fork() (*State, error) {
	from := c.withoutWorkloads()
	f := &fork{from: c, s: newRestored(from, c.number), shapes: make(map[*shape]*shape, c.shapes), records: make(map[int32]*record, c.number)}
	if c.lines != nil && c.bounded {
		f.s.backfilling++ // maybe in another part: bounds belong to classes there as well
	}
	f.s.shapes, f.s.classes = make(map[uint64]*shape, c.shapes), make(map[uint64]*class, c.classes)
	lines := c.lines
	if lines == nil {
		lines = c.byLocalQueue()
	}
	for _, of := range lines {
		l := f.s.localQueueNamed(*of[0].def.localQueue)
		for _, w := range of {
			if err := f.add(w, l); err != nil {
				return nil, fmt.Errorf("workload %s: %w", w.def.r.first.Key, err)
			}
		}
	}
	f.s.restored()
	for _, d := range c.notices {
		if d.Workload = f.equal(d.Workload); d.Workload != nil { // else it is in another part
			f.s.notices = append(f.s.notices, d)
		}
	}
	return f.s, f.s.world.RecallCheckpoint(c.world, c.scans(), f.s.workload, f.equal)
}

// byLocalQueue returns the checkpoints of the records of each LocalQueue: one after another they find the data of their queue in the
// processor's cache.
func (c *Checkpoint) byLocalQueue() (all [][]*workloadCheckpoint) {
	numbers := make(map[*Name]int, c.defined.localQueues.Len())
	for w := range c.records() {
		n, known := numbers[w.def.localQueue]
		if !known {
			n = len(all)
			numbers[w.def.localQueue], all = n, append(all, nil)
		}
		all[n] = append(all[n], w)
	}
	return all
}

// add places a workload of a LocalQueue as it was.
func (f *fork) add(w *workloadCheckpoint, l *localQueue) error {
	s, old := f.s, w.def.r
	r := takeBlank(&f.blankRecords, 64)
	s.addRecord(r, old.first.UID, old.first.Key)
	f.records[old.first.Record] = r
	r.said = w.said
	s.joinLocalQueue(r, l)
	def := takeBlank(&f.blankDefinitions, 64)
	*def = *w.def
	def.r, def.localQueue, def.shape = r, &l.name, f.shape(w.def.shape)
	def.shape.users++
	s.setDefinition(r, def)
	return s.recallPlace(r, w.rare, f.from.world.QueueName)
}

// takeBlank returns a blank value, one of n that are allocated together.
func takeBlank[T any](blank *[]T, n int) *T {
	if len(*blank) == 0 {
		*blank = make([]T, n)
	}
	first := &(*blank)[0]
	*blank = (*blank)[1:]
	return first
}

// shape returns the shape that is equal to one in the State of the checkpoint.
func (f *fork) shape(old *shape) *shape {
	of := f.shapes[old]
	if of == nil {
		of = &shape{podSets: old.podSets, texts: old.texts, hash: old.hash, next: f.s.shapes[old.hash]}
		f.shapes[old], f.s.shapes[old.hash] = of, of
	}
	return of
}

// equal returns the workload that is equal to one in the State of the checkpoint, nil if that one has left since.
func (f *fork) equal(old *workload.Workload) *workload.Workload {
	if r := f.records[old.Record]; r != nil && r.first.UID == old.UID {
		return r.wl
	}
	return nil
}
