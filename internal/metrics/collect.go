package metrics

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/state"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
)

// Describe sends what may be exported.
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range r.descs {
		ch <- d
	}
	for _, v := range r.vectors {
		v.Describe(ch)
	}
}

// Collect sends what is exported now. Where the engine does not answer in time, the gauges
// that need it are left out.
func (r *Recorder) Collect(ch chan<- prometheus.Metric) {
	ch <- r.buildInfo()
	lanes, workloads := r.lanesNow()
	seen := survey(workloads, lanes, &r.options)
	if census, ok := r.look(seen.backedOff); ok {
		for _, m := range r.gauges(census, seen, workloads) {
			ch <- m
		}
	} else {
		r.with(func(role []string) { r.scheduler.looksFailed.add(1, role) })
	}
	for _, m := range slices.Concat(r.phases(), r.connections()) {
		ch <- m
	}
	for _, v := range r.vectors {
		v.Collect(ch)
	}
}

// phases counts the TrainJobs in each phase.
func (r *Recorder) phases() []prometheus.Metric {
	r.mu.Lock()
	look := r.trainJobs
	r.mu.Unlock()
	if look == nil {
		return nil
	}
	counts := map[string]float64{}
	for _, phase := range look() {
		counts[phase]++
	}
	g := &gauges{Recorder: r, role: []string{r.options.role()}}
	for _, phase := range trainingplan.Phases {
		g.put(r.scheduler.phase, counts[phase], []string{phase})
	}
	return g.out
}

// look asks the engine for a census.
func (r *Recorder) look(backedOff []string) (*state.Statistics, bool) {
	if r.options.Ask == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	asked := state.Asked{Classes: r.options.Hashes, Keys: len(r.custom[fromWorkload]) > 0, BackedOff: backedOff}
	got := make(chan state.Statistics, 1) // the answer may come when nobody waits for it any more
	if err := r.options.Ask(ctx, func(s *state.State) { got <- s.Statistics(asked) }); err != nil {
		return nil, false
	}
	census := <-got
	return &census, true
}

func (r *Recorder) buildInfo() prometheus.Metric {
	b := r.options.Build
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = cmp.Or(b.Commit, s.Value)
			case "vcs.time":
				b.Date = cmp.Or(b.Date, s.Value)
			}
		}
	}
	return prometheus.MustNewConstMetric(r.scheduler.build, prometheus.GaugeValue, 1,
		b.Version, b.Commit, b.Date, runtime.Version(), runtime.Compiler, runtime.GOOS+"/"+runtime.GOARCH)
}

// gauges are the gauges of one scrape.
func (r *Recorder) gauges(census *state.Statistics, seen *surveyed, workloads Workloads) []prometheus.Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &gauges{Recorder: r, seen: seen, cache: workloads, role: []string{r.options.role()}}
	for i := range census.Queues {
		g.ofQueue(&census.Queues[i])
	}
	g.keptShares()
	if r.options.localQueues() {
		for i := range census.LocalQueues {
			g.ofLane(&census.LocalQueues[i])
		}
	}
	if r.options.Cohorts {
		g.ofCohorts(census)
	}
	return g.out
}

// gauges makes the gauges of one scrape.
type gauges struct {
	*Recorder
	seen  *surveyed
	cache Workloads
	role  []string
	out   []prometheus.Metric
}

// put adds a series, unless its family is turned off.
func (g *gauges) put(family *prometheus.Desc, value float64, labels ...[]string) {
	if family == nil {
		return
	}
	all := slices.Concat(append(labels, g.role)...)
	g.out = append(g.out, prometheus.MustNewConstMetric(family, prometheus.GaugeValue, value, all...))
}

// putOne adds a series for each state that something can have: 1 for the one that it has.
func (g *gauges) putOne(family *prometheus.Desc, is string, states, own, custom []string) {
	for _, s := range states {
		value := 0.0
		if s == is {
			value = 1
		}
		g.put(family, value, own, []string{s}, custom)
	}
}

const (
	active       = "active"
	inadmissible = "inadmissible"
	pending      = "pending"
	terminating  = "terminating"
)

func (g *gauges) ofQueue(q *state.QueueStatistics) {
	f := &g.queue
	own, custom := []string{q.Name}, g.queueValues(q.Name)
	g.byWorkload(f.pending, q.Active.Workloads, q.Active.Keys, []string{q.Name, active}, custom)
	g.byWorkload(f.pending, q.Inadmissible.Workloads, q.Inadmissible.Keys, []string{q.Name, inadmissible}, custom)
	g.put(f.hashes, float64(q.Active.Classes), own, []string{active}, custom)
	g.put(f.hashes, float64(q.Inadmissible.Classes), own, []string{inadmissible}, custom)
	g.put(f.finishedNow, float64(g.seen.finished[q.Name]), own, custom)
	g.put(f.reserving, float64(q.Reserved), own, custom)
	g.byWorkload(f.admittedNow, q.Admitted, q.AdmittedKeys, own, custom)
	status := active
	switch o := g.queues[q.Name]; {
	case o != nil && o.terminating:
		status = terminating
	case q.Closed:
		status = pending
	}
	g.putOne(f.status, status, []string{pending, active, terminating}, own, custom)
	for why, n := range g.seen.unadmitted[q.Name] {
		g.put(f.unadmitted, float64(n), own, []string{why.reason, why.cause}, custom)
	}
	g.put(f.info, 1, own, []string{q.Cohort, q.Root}, custom)
	if n, noted := g.skips[q.Name]; noted {
		g.put(g.scheduler.skips, float64(n), own, custom)
	}
	if f.share != nil {
		g.keep(q, custom)
	}
	g.quotas(q, custom)
}

// byWorkload adds one series, or where Workloads have custom labels one for each
// combination of values that there is. spec: 70 §5.3.
func (g *gauges) byWorkload(family *prometheus.Desc, count int, keys, own, custom []string) {
	if len(g.custom[fromWorkload]) == 0 {
		g.put(family, float64(count), own, custom)
		return
	}
	type combination struct {
		values []string
		count  int
	}
	var all []combination
	for _, key := range keys {
		values := g.custom.values(fromWorkload, findWorkload(g.cache, key))
		i := slices.IndexFunc(all, func(c combination) bool { return slices.Equal(c.values, values) })
		if i < 0 {
			i = len(all)
			all = append(all, combination{values: values})
		}
		all[i].count++
	}
	for _, c := range all {
		g.put(family, float64(c.count), own, custom, c.values)
	}
}

func (g *gauges) quotas(q *state.QueueStatistics, custom []string) {
	f := &g.families.quota
	for _, p := range q.Pending {
		g.put(f.pending, number(p.Resource, p.Amount), []string{q.Name, p.Resource}, custom)
	}
	for _, c := range q.Cells {
		own := []string{q.Cohort, q.Name, c.Flavor, c.Resource}
		g.put(f.reservation, number(c.Resource, c.Reserved), own, custom)
		g.put(f.usage, number(c.Resource, c.Used), own, custom)
		g.put(f.nominal, number(c.Resource, c.Nominal), own, custom)
		g.put(f.borrowing, number(c.Resource, c.Borrow), own, custom)
		g.put(f.lending, number(c.Resource, c.Lend), own, custom)
	}
}

// number is an amount as people count it: cores of cpu, bytes, whole units. What has no
// limit is +Inf.
func number(name string, a resource.Amount) float64 {
	switch {
	case a == resource.Unlimited || a == quota.NoLimit:
		return math.Inf(1)
	case name == "cpu":
		return float64(a) / 1000
	}
	return float64(a)
}

// keep remembers the weighted share of a ClusterQueue: what becomes of it outlives the
// queue. NaN stands for infinite. spec: 20 §4.1.
func (g *gauges) keep(q *state.QueueStatistics, custom []string) {
	share := q.Share.Value()
	if q.Share.Infinite() {
		share = math.NaN()
	}
	g.kept[q.Name] = kept{q.Cohort, custom, share}
}

// keptShares adds the weighted shares of all ClusterQueues, also of those that are gone.
func (g *gauges) keptShares() {
	for name, k := range g.kept {
		g.put(g.queue.share, k.share, []string{name, k.cohort}, k.values)
	}
}

func (g *gauges) ofLane(l *state.LocalQueueStatistics) {
	o := g.lanes[l.Name]
	if o == nil || !o.shown {
		return
	}
	f := &g.lane
	own := []string{l.Name.Name, l.Namespace}
	g.put(f.pending, float64(l.Active), own, []string{active}, o.values)
	g.put(f.pending, float64(l.Inadmissible), own, []string{inadmissible}, o.values)
	g.put(f.finishedNow, float64(g.seen.finishedIn[l.Name]), own, o.values)
	g.putOne(f.status, string(o.active), []string{"True", "False", "Unknown"}, own, o.values)
	if g.options.Usage != nil && f.fairSharing != nil {
		if usage, ok := g.options.Usage(l.Name); ok {
			g.put(f.fairSharing, usage, own, []string{l.Queue}, o.values)
		}
	}
	if !l.Known {
		return
	}
	g.put(f.reserving, float64(l.Reserved), own, o.values)
	g.byWorkload(f.admittedNow, l.Admitted, l.AdmittedKeys, own, o.values)
	for at, n := range g.seen.unadmittedIn[l.Name] {
		g.put(f.unadmitted, float64(n), own, []string{at.queue, at.reason, at.cause}, o.values)
	}
	for _, c := range l.Cells {
		cell := []string{c.Flavor, c.Resource}
		g.put(f.reservation, number(c.Resource, c.Reserved), own, cell, o.values)
		g.put(f.usage, number(c.Resource, c.Used), own, cell, o.values)
	}
}

func (g *gauges) ofCohorts(census *state.Statistics) {
	f := &g.families.cohort
	counts := g.tree.counts()
	for i := range census.Cohorts {
		c := &census.Cohorts[i]
		if g.tree.isDeleted(c.Name) {
			continue
		}
		own, custom := []string{c.Name}, g.cohortValues(c.Name)
		g.put(f.share, c.Share.Value(), own, custom)
		g.put(f.info, 1, own, []string{c.Parent, c.Root}, custom)
		for _, h := range c.Subtree {
			g.put(f.quota, number(h.Resource, h.Amount), own, []string{h.Flavor, h.Resource}, custom)
		}
		for _, h := range c.Reserved {
			g.put(f.reservations, number(h.Resource, h.Amount), own, []string{h.Flavor, h.Resource}, custom)
		}
		switch t := g.tree.cohorts[c.Name]; {
		case t == nil || !t.known:
		case t.live:
			g.put(f.admittedNow, float64(counts[c.Name]), own, custom)
		default:
			g.put(f.admittedNow, float64(t.standing), own, custom)
		}
	}
}
