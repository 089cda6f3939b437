package flavor

import (
	"os"
	"testing"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/worldtest"
)

func TestMain(m *testing.M) { os.Exit(worldtest.Main(m, "rapid.checks=5000")) }

// world is a queue two cohorts deep, where every flavor can be given a grade.
type world struct {
	Search
	root, mid quota.Node
	cells     map[quota.Node][]quota.Cell
	used      resource.Vector
	oracle    map[resource.FR]grade
}

func newWorld() *world {
	table := resource.NewTable()
	l := ledger.New(table)
	f := l.Quota
	w := &world{cells: map[quota.Node][]quota.Cell{}, oracle: map[resource.FR]grade{}}
	w.root, w.mid = f.Add("root", true), f.Add("mid", true)
	w.Search = Search{Table: table, Ledger: l, Node: f.Add("q", false)}
	f.SetParent(w.mid, w.root)
	f.SetParent(w.Node, w.mid)
	w.Oracle = func(q *Question) (Mode, trace.Reach) {
		mode := Reclaim
		for i, fr := range q.Short {
			mode, q.Levels[i] = min(mode, w.oracle[fr].mode), w.oracle[fr].level
		}
		return mode, trace.Reach{Within: "asked"}
	}
	return w
}

// offer makes a flavor that grades a request of 10 as told.
func (w *world) offer(name, res string, g grade) resource.FR {
	fr := w.Table.FR(name, res)
	cell := quota.Cell{FR: fr, Nominal: 10, Borrow: quota.NoLimit, Lend: quota.NoLimit}
	switch g.mode {
	case NoFit, trace.Held:
	case Fit:
		at := []quota.Node{w.Node, w.mid, w.root}[g.level]
		w.cells[at] = append(w.cells[at], cell)
	case NoCandidates, Preempt, Reclaim: // the queue owns it, and it is in use: what then is up to the oracle
		w.cells[w.Node] = append(w.cells[w.Node], cell)
		w.used = w.used.Plus(fr, 10)
		w.oracle[fr] = g
	}
	return fr
}

// add adds a resource group of one resource, with flavors of these grades in order.
func (w *world) add(res string, flavors []*Flavor, grades ...grade) {
	g := Group{Resources: []resource.ID{w.Table.ID(res)}}
	for i, f := range flavors {
		g.Offers = append(g.Offers, Offer{Flavor: f, FRs: []resource.FR{w.offer(f.Name, res, grades[i])}})
	}
	w.Groups = append(w.Groups, g)
}

// ask makes a request of 10.
func (w *world) ask(res string) workload.Request {
	return workload.Request{Resource: w.Table.ID(res), Amount: 10}
}

func (w *world) recompute() {
	for n, cells := range w.cells {
		w.Quota.SetQuota(n, cells)
	}
	for fr := range w.Table.Len() {
		w.Quota.Reach(resource.FR(fr))
	}
	w.Quota.Recompute()
	w.Ledger.Charge(w.Node, ledger.Usage{Quota: w.used})
}

// assign is Assign in memory of its own.
func (w *world) assign(podSets ...workload.PodSet) *Assignment {
	var a Assignment
	w.Assign(podSets, &a)
	return &a
}

func podSet(name string, requests ...workload.Request) workload.PodSet {
	return workload.PodSet{Name: name, Count: 1, Requests: requests}
}
