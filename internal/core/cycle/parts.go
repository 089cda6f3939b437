package cycle

import "iter"

// Divide divides a complete checkpoint into n checkpoints of some trees each. of returns the number of the one that a queue belongs to: it is
// the same for all queues of a tree, and for the victims of a nomination.
func (c *Checkpoint) Divide(n int, of func(queue string) int) []*Checkpoint {
	parts := make([]*Checkpoint, n)
	for i := range parts {
		parts[i] = &Checkpoint{memory: c.memory, places: c.places}
		parts[i].memory.Trees, parts[i].memory.Queues = nil, nil
	}
	for _, t := range c.memory.Trees {
		m := &parts[of(t.Queue)].memory
		m.Trees = append(m.Trees, t)
	}
	for i := range c.memory.Queues {
		p := parts[of(c.memory.Queues[i].Queue)]
		p.memory.Queues, p.classes = append(p.memory.Queues, c.memory.Queues[i]), append(p.classes, c.classes[i])
		p.complete++
	}
	return parts
}

// Victims returns the queues with a nomination, and the UIDs of its victims that have not left.
func (c *Checkpoint) Victims() iter.Seq2[string, string] {
	return func(yield func(queue, uid string) bool) {
		for i := range c.memory.Queues {
			q := &c.memory.Queues[i]
			if q.Nomination == nil {
				continue
			}
			for _, v := range q.Nomination.Victims {
				if !yield(q.Queue, v.UID) {
					return
				}
			}
		}
	}
}
