package preempt

import (
	"fmt"
	"testing"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// cohortOf is 10,000 workloads of 1 cpu each in a number of queues of one cohort, of
// priorities 0 to 9, and one more queue, idle, that owns 50 cpus of the 10,000: the
// others borrow them, or, where there are many, some of what the cohort owns as well.
type cohortOf struct {
	l       *ledger.Ledger
	f       *quota.Forest
	holders []*Holders
	idle    quota.Node
	first   quota.Node
}

func newCohortOf(queues int) *cohortOf {
	const all, owned = 10000, 50
	l := ledger.New(newTable())
	c := &cohortOf{l: l, f: l.Quota}
	add := func(name string, cohort bool, parent quota.Node, nominal resource.Amount) quota.Node {
		n := c.f.Add(name, cohort)
		c.f.SetParent(n, parent)
		c.f.SetQuota(n, []quota.Cell{{FR: cpu, Nominal: nominal, Borrow: quota.NoLimit, Lend: quota.NoLimit}})
		c.holders = append(c.holders, &Holders{})
		return n
	}
	root := add("root", true, quota.None, resource.Amount((all-owned)%queues))
	c.idle = add("idle", false, root, owned)
	for i := range queues {
		add(fmt.Sprintf("q%03d", i), false, root, resource.Amount((all-owned)/queues))
	}
	c.first = c.idle + 1
	c.f.Recompute()
	for i := range all {
		n := c.first + quota.Node(i%queues)
		w := &workload.Workload{UID: fmt.Sprintf("%08d-%08d", i*7919%all, i), Priority: int64(i / 7 % 10)}
		w.ReservedAt = workload.Instant(1 + i%1000)
		w.Usage = used(resource.Vector{{FR: cpu, Amount: 1}})
		c.holders[n].Add(w)
		c.l.Charge(n, w.Usage)
	}
	return c
}

func (c *cohortOf) search(n quota.Node, p Policy, fair *Fair) *Search {
	return &Search{
		Ledger: c.l, Node: n, Policy: p, Fair: fair,
		Holders:   func(n quota.Node) *Holders { return c.holders[n] },
		Preemptor: &workload.Workload{UID: "p", Priority: 8, Since: 1},
		Requests:  used(resource.Vector{{FR: cpu, Amount: 50}}), Need: []resource.FR{cpu},
	}
}

// BenchmarkInVain looks at every one of 10,000 holders, of which 8,000 may be asked.
func BenchmarkInVain(b *testing.B) {
	c := newCohortOf(1)
	for name, fair := range map[string]*Fair{"classical": nil, "fair": {}} {
		b.Run(name, func(b *testing.B) {
			s := c.search(c.first, Policy{Within: LowerPriority}, fair)
			s.Requests.Quota[0].Amount = 9000
			b.ReportAllocs()
			for b.Loop() {
				targets(s)
			}
		})
	}
}

// BenchmarkTargets finds 50 victims of 10,000 holders.
func BenchmarkTargets(b *testing.B) {
	fair := &Fair{Strategies: []Strategy{LessThanOrEqualToFinalShare, LessThanInitialShare}}
	for _, queues := range []int{1, 10, 100, 1000} {
		run := func(name string, search func(c *cohortOf) *Search) {
			b.Run(fmt.Sprintf("%s of %d", name, queues), func(b *testing.B) {
				s := search(newCohortOf(queues))
				if got := targets(s); len(got) != 50 {
					b.Fatalf("%d victims, not 50", len(got))
				}
				b.ReportAllocs()
				for b.Loop() {
					targets(s)
				}
			})
		}
		if queues < 1000 {
			run("own queue", func(c *cohortOf) *Search { return c.search(c.first, Policy{Within: LowerPriority}, nil) })
		}
		run("reclaim", func(c *cohortOf) *Search { return c.search(c.idle, Policy{Reclaim: Any}, nil) })
		run("fair", func(c *cohortOf) *Search { return c.search(c.idle, Policy{Reclaim: Any}, fair) })
	}
}
