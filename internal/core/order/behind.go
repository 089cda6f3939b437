package order

import "github.com/berth-project/berth/internal/core/workload"

// position is the place of an active workload: its class among the active ones, and its index
// in that class.
type position struct{ class, at int }

// Behind appends up to n active workloads other than w to out, in the order of the line. It
// costs n·log n, however many are in line.
func (p *Pending) Behind(w *workload.Workload, n int, out []*workload.Workload) []*workload.Workload {
	if len(p.awake) == 0 {
		return out
	}
	at := func(x position) member { return p.awake[x.class].class.line[x.at] }
	next := []position{{0, 0}} // a heap of the workloads whose parents in both heaps were returned
	add := func(x position) {
		if x.class >= len(p.awake) || x.at >= len(p.awake[x.class].class.line) {
			return
		}
		next = append(next, x)
		for i := len(next) - 1; i > 0 && at(next[i]).before(at(next[(i-1)/2])); i = (i - 1) / 2 {
			next[i], next[(i-1)/2] = next[(i-1)/2], next[i]
		}
	}
	for n > 0 && len(next) > 0 {
		x := next[0]
		if found := at(x).Workload; found != w {
			out = append(out, found)
			n--
		}
		last := len(next) - 1
		next[0] = next[last]
		next = next[:last]
		for i := 0; ; {
			least := i
			for kid := 2*i + 1; kid <= 2*i+2 && kid < len(next); kid++ {
				if at(next[kid]).before(at(next[least])) {
					least = kid
				}
			}
			if least == i {
				break
			}
			next[i], next[least] = next[least], next[i]
			i = least
		}
		add(position{x.class, 2*x.at + 1})
		add(position{x.class, 2*x.at + 2})
		if x.at == 0 {
			add(position{2*x.class + 1, 0})
			add(position{2*x.class + 2, 0})
		}
	}
	return out
}
