package simulation

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Generator makes a trace: jobs come more often by day than by night, most are small and most work is in big ones, and run times are
// log-normal. No job is larger than the quota.
type Generator struct {
	Jobs int
	Over workload.Instant // the time in which they come
	// Load is the work of all jobs as a share of what Quota of Resource could do meanwhile.
	Load     float64
	Quota    int64
	Resource string
	Unit     int64 // what a device is in the engine's unit, 1000 for cpu
	Seed     uint64
	// Required and Preferred are levels of a topology, for jobs of several pods; "" for none.
	Required, Preferred string
	// Queues are the LocalQueues, as namespace and name, with their shares of the jobs.
	Queues []Share
}

// Share is a LocalQueue, and its weight.
type Share struct {
	Namespace, Name string
	Weight          float64
}

// sizes are the classes of generated jobs: how often they come, pods, devices of a pod, how long they run relative to each other, and
// their priority.
var sizes = []struct {
	name     string
	often    float64
	pods     int32
	devices  int64
	longer   float64
	priority int64
}{
	{"interactive", 0.35, 1, 1, 0.3, 100},
	{"single", 0.35, 1, 4, 1, 0},
	{"node", 0.18, 1, 8, 2, 0},
	{"gang of 4 nodes", 0.08, 4, 8, 4, 0},
	{"gang of 16 nodes", 0.03, 16, 8, 6, 50},
	{"gang of 64 nodes", 0.01, 64, 8, 8, 50},
}

const (
	spread = 1.2 // of the logarithm of run times
	swing  = 0.6 // how much busier than the mean the busiest hour is
	day    = 24 * 3600
)

// Make makes the jobs. The same generator makes the same jobs.
func (g *Generator) Make() []Job {
	random := rand.New(rand.NewPCG(g.Seed, 1)) //nolint:gosec // the same seed has to make the same jobs
	jobs := make([]Job, g.Jobs)
	var work float64 // in device seconds, with a median of 1 s
	lengths := make([]float64, g.Jobs)
	for i := range jobs {
		size := sizes[pick(random.Float64())]
		size.devices = min(size.devices, g.Quota/g.Unit)
		size.pods = min(size.pods, int32(min(math.MaxInt32, g.Quota/g.Unit/size.devices)))
		lengths[i] = size.longer * math.Exp(spread*random.NormFloat64())
		work += lengths[i] * float64(int64(size.pods)*size.devices)
		q := g.queue(random.Float64())
		jobs[i] = Job{
			Class: size.name, Pods: size.pods, Priority: size.priority, Namespace: q.Namespace, LocalQueue: q.Name,
			Submit: workload.Instant(g.moment(random) * float64(g.Over)), PerPod: []state.Request{{Resource: g.Resource, Amount: resource.Amount(size.devices * g.Unit)}},
		}
		if size.pods > 1 {
			jobs[i].Required, jobs[i].Preferred = g.Required, g.Preferred
		}
	}
	scale := g.Load * float64(g.Quota/g.Unit) * seconds(g.Over) / work
	for i := range jobs {
		jobs[i].Run = max(Second, workload.Instant(lengths[i]*scale)*Second)
		jobs[i].Name = fmt.Sprintf("job-%d", i)
	}
	InOrder(jobs)
	return jobs
}

func pick(x float64) int {
	for i := range sizes {
		if x -= sizes[i].often; x < 0 {
			return i
		}
	}
	return 0
}

func (g *Generator) queue(x float64) Share {
	total := 0.0
	for _, q := range g.Queues {
		total += q.Weight
	}
	x *= total
	for _, q := range g.Queues {
		if x -= q.Weight; x < 0 {
			return q
		}
	}
	return g.Queues[len(g.Queues)-1]
}

// moment draws a moment of the time, from 0 to 1: more of them in the middle of each day.
func (g *Generator) moment(random *rand.Rand) float64 {
	for {
		x := random.Float64()
		hour := math.Mod(x*seconds(g.Over), day) / day
		if random.Float64()*(1+swing) <= 1-swing*math.Cos(2*math.Pi*hour) {
			return x
		}
	}
}
