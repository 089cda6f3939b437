package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Units of the requests.
const (
	core   resource.Amount = 1000
	gib    resource.Amount = 1 << 30
	millis                 = workload.Instant(1e6)
)

// perCohort is how many queues a cohort has: five in each of four teams, two of which
// make a division. So there are three levels of cohorts above a queue.
const perCohort, teams = 20, 4

// resources are in the order of requests.
var resources = []string{"cpu", "memory", "nvidia.com/gpu"}

var pools = []string{"reserved", "on-demand", "spot-east", "spot-west"}

// amounts are of one flavor, in the order of resources.
type amounts [3]resource.Amount

// gpus is a typical node's worth of everything for some GPUs.
func gpus(n resource.Amount) amounts { return amounts{n * 10 * core, n * 80 * gib, n} }

// queueSpec is what differs between the queues of a world.
type queueSpec struct {
	nominal    amounts // of each flavor
	borrow     resource.Amount
	lend       resource.Amount // GPUs of each flavor, or quota.NoLimit
	preemption preempt.Policy
	weight     *quota.Weight
	idle       bool // unused; others borrow its quota
}

// newState returns a state with four flavors that records its events, as in a manager.
func newState(o cycle.Options) *state.State {
	s := state.New(state.Options{Options: o})
	s.Record(recorded)
	for _, pool := range pools {
		s.Apply(state.SetFlavor(flavor.Flavor{Name: pool, Labels: map[string]string{"pool": pool}}))
	}
	return s
}

func queueName(i int) string     { return fmt.Sprintf("queue-%04d", i) }
func namespaceName(i int) string { return fmt.Sprintf("team-%04d", i) }

// addQueue adds a queue with a namespace and a LocalQueue, below a cohort.
func addQueue(s *state.State, i int, cohort string, spec *queueSpec) {
	borrow, lend := amounts{}, amounts{}
	for r := range resources {
		borrow[r], lend[r] = spec.borrow, spec.lend
		if spec.borrow != quota.NoLimit {
			borrow[r] = gpus(spec.borrow)[r]
		}
		if spec.lend != quota.NoLimit {
			lend[r] = gpus(spec.lend)[r]
		}
	}
	s.Apply(state.SetNamespace{Name: namespaceName(i), Labels: map[string]string{"kubernetes.io/metadata.name": namespaceName(i)}})
	s.Apply(state.SetQueue(state.Queue{
		Name: queueName(i), Cohort: cohort, Namespaces: []workload.Term{{}}, Preemption: spec.preemption,
		Weight: spec.weight, Groups: groupsOf(spec.nominal, borrow, lend),
	}))
	s.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: namespaceName(i), Name: "main", Queue: queueName(i)}))
}

// addCohort adds a cohort of three levels with its own quota at the root and in each team,
// and returns the names of its teams.
func addCohort(s *state.State, i int, atRoot, inTeam amounts) (names [teams]string) {
	none := amounts{quota.NoLimit, quota.NoLimit, quota.NoLimit}
	root := fmt.Sprintf("org-%02d", i)
	s.Apply(state.SetCohort(state.Cohort{Name: root, Groups: groupsOf(atRoot, none, none)}))
	for d := range 2 {
		s.Apply(state.SetCohort(state.Cohort{Name: fmt.Sprintf("%s-division-%d", root, d), Parent: root}))
	}
	for t := range teams {
		names[t] = fmt.Sprintf("%s-team-%d", root, t)
		s.Apply(state.SetCohort(state.Cohort{
			Name: names[t], Parent: fmt.Sprintf("%s-division-%d", root, t/2), Groups: groupsOf(inTeam, none, none),
		}))
	}
	return names
}

// groupsOf gives every flavor the same quota.
func groupsOf(nominal, borrow, lend amounts) []state.Group {
	g := state.Group{Resources: resources}
	for _, pool := range pools {
		fq := state.FlavorQuota{Flavor: pool}
		for r, name := range resources {
			fq.Resources = append(fq.Resources, state.Quota{Resource: name, Nominal: nominal[r], Borrow: borrow[r], Lend: lend[r]})
		}
		g.Flavors = append(g.Flavors, fq)
	}
	return []state.Group{g}
}

// shape is the requests of one kind of workload.
type shape struct {
	ask  amounts
	pool string // the only flavor it can use, "" for any
}

// newShapes draws shapes: one to eight GPUs with more or less of the rest, every fifth
// bound to one flavor.
func newShapes(rnd *rand.Rand, n int) []shape {
	shapes := make([]shape, n)
	sizes := []resource.Amount{1, 1, 1, 2, 2, 4, 4, 8}
	for i := range shapes {
		g := sizes[rnd.IntN(len(sizes))]
		shapes[i].ask = amounts{g * core * resource.Amount(4+rnd.IntN(9)), g * gib * 8 * resource.Amount(4+rnd.IntN(9)), g}
		if i%5 == 4 {
			shapes[i].pool = pools[rnd.IntN(len(pools))]
		}
	}
	return shapes
}

// podSets makes the values as a decoder would: they share no memory with another workload. The requests are split among the pod sets.
func (sh *shape) podSets(names ...string) []state.PodSet {
	sets := make([]state.PodSet, len(names))
	for i, name := range names {
		requests := make([]state.Request, 0, len(resources))
		for r, res := range resources {
			share := sh.ask[r] / resource.Amount(len(names))
			if i == 0 {
				share = sh.ask[r] - share*resource.Amount(len(names)-1)
			}
			requests = append(requests, state.Request{Resource: strings.Clone(res), Amount: share})
		}
		sets[i] = state.PodSet{Name: strings.Clone(name), Count: 1, Requests: requests}
		if sh.pool != "" {
			sets[i].Constraints = &workload.Constraints{Selector: map[string]string{strings.Clone("pool"): strings.Clone(sh.pool)}}
			sets[i].Shape = `{"Selector":{"pool":"` + sh.pool + `"},"Affinity":null,"Tolerations":null}`
		}
	}
	return sets
}

// identity returns the UID and name of the nth workload there ever was.
func identity(n int) (uid, name string) {
	return fmt.Sprintf("%08x-5c5b-4f0e-9d3a-0242ac120002", n), fmt.Sprintf("train-%08d", n)
}

// arrival is a workload that joins the line of a queue.
func arrival(n, queue int, priority int64, at workload.Instant, sets []state.PodSet) state.Workload {
	uid, name := identity(n)
	return state.Workload{
		UID: uid, Namespace: namespaceName(queue), Name: name, Version: 1, LocalQueue: strings.Clone("main"),
		Priority: priority, Created: at, Since: at, PodSets: sets, Queueable: true,
	}
}

// running is a workload that holds one flavor of a queue since some time.
func running(n, queue int, priority int64, at workload.Instant, pool string, has amounts) state.Workload {
	def := arrival(n, queue, priority, at, (&shape{ask: has}).podSets("main"))
	def.Reserved, def.Admitted, def.Queue, def.ReservedAt = true, true, queueName(queue), at
	for r, name := range resources {
		def.Held = append(def.Held, state.Held{PodSet: "main", Flavor: pool, Resource: name, Amount: has[r]})
	}
	return def
}
