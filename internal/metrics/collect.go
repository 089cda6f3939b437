package metrics

import (
	"cmp"
	"maps"
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

// Describe sends all families.
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range r.descs {
		ch <- d
	}
	for _, v := range r.vectors {
		v.Describe(ch)
	}
}

// Collect sends all series. Without an engine its gauges are left out.
func (r *Recorder) Collect(ch chan<- prometheus.Metric) {
	ch <- r.buildInfo()
	localQueues, workloads := r.localQueuesNow()
	seen := survey(workloads, localQueues, &r.options)
	if statistics, ok := r.readState(); ok {
		for _, m := range r.gauges(statistics, seen, workloads) {
			ch <- m
		}
	} else {
		r.with(func(role []string) { r.scheduler.scrapesFailed.add(1, role) })
	}
	for _, m := range slices.Concat(r.phases(), r.connections(), r.topologyGauges(), r.forecastGauges()) {
		ch <- m
	}
	for _, v := range r.vectors {
		v.Collect(ch)
	}
}

func (r *Recorder) phases() []prometheus.Metric {
	r.mu.Lock()
	trainJobs := r.trainJobs
	r.mu.Unlock()
	if trainJobs == nil {
		return nil
	}
	counts := map[string]float64{}
	for _, phase := range trainJobs() {
		counts[phase]++
	}
	g := &gauges{Recorder: r, role: []string{r.options.role()}}
	for _, phase := range trainingplan.Phases {
		g.put(r.scheduler.phase, counts[phase], []string{phase})
	}
	return g.out
}

func (r *Recorder) readState() (*state.Statistics, bool) {
	if r.options.Model == nil {
		return nil, false
	}
	model := r.options.Model()
	if model == nil {
		return nil, false
	}
	statistics := model.Statistics(state.Asked{Classes: r.options.Hashes, Keys: len(r.custom[fromWorkload]) > 0})
	return &statistics, true
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

func (r *Recorder) gauges(statistics *state.Statistics, seen *surveyed, workloads Workloads) []prometheus.Metric {
	g := &gauges{Recorder: r, seen: seen, cache: workloads, role: []string{r.options.role()}}
	r.lockedByTurns(len(statistics.Queues), func(i int) { g.ofQueue(&statistics.Queues[i]) })
	g.allShares()
	if r.options.localQueues() {
		r.lockedByTurns(len(statistics.LocalQueues), func(i int) { g.ofLocalQueue(&statistics.LocalQueues[i]) })
	}
	if r.options.Cohorts {
		g.ofCohorts(statistics)
	}
	return g.out
}

// lockedByTurns runs f for all numbers below n under the lock, and releases it every few of them: turns of the engine wait for it.
func (r *Recorder) lockedByTurns(n int, f func(i int)) {
	const few = 8
	for from := 0; from < n; from += few {
		r.locked(func() {
			for i := from; i < min(from+few, n); i++ {
				f(i)
			}
		})
	}
}

type gauges struct {
	*Recorder
	seen  *surveyed
	cache Workloads
	role  []string
	out   []prometheus.Metric
}

func (g *gauges) put(family *prometheus.Desc, value float64, labels ...[]string) {
	g.putAs(prometheus.GaugeValue, family, value, labels...)
}

func (g *gauges) putAs(kind prometheus.ValueType, family *prometheus.Desc, value float64, labels ...[]string) {
	if family == nil {
		return
	}
	all := slices.Concat(append(labels, g.role)...)
	g.out = append(g.out, prometheus.MustNewConstMetric(family, kind, value, all...))
}

// putOne adds a series for each state: 1 for the current one, 0 for the others.
func (g *gauges) putOne(family *prometheus.Desc, current string, states, own, custom []string) {
	for _, s := range states {
		g.put(family, zeroOrOne(s == current), own, []string{s}, custom)
	}
}

func zeroOrOne(one bool) float64 {
	if one {
		return 1
	}
	return 0
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
		g.rememberShare(q, custom)
	}
	g.quotas(q, custom)
}

// byWorkload adds one series or, if Workloads have custom labels, one for each combination of their values. spec: 70 §5.3.
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

// number returns an amount in cores of cpu, bytes or whole units; +Inf for no limit.
func number(name string, a resource.Amount) float64 {
	switch {
	case a == resource.Unlimited || a == quota.NoLimit:
		return math.Inf(1)
	case name == "cpu":
		return float64(a) / 1000
	}
	return float64(a)
}

// rememberShare stores the weighted share of a ClusterQueue. NaN is infinite. spec: 20 §4.1.
func (g *gauges) rememberShare(q *state.QueueStatistics, custom []string) {
	share := q.Share.Value()
	if q.Share.Infinite() {
		share = math.NaN()
	}
	g.shares[q.Name] = lastShare{q.Cohort, custom, share}
}

// allShares adds the weighted shares of all ClusterQueues, also of deleted ones.
func (g *gauges) allShares() {
	var all map[string]lastShare
	g.locked(func() { all = maps.Clone(g.shares) })
	for name, k := range all {
		g.put(g.queue.share, k.share, []string{name, k.cohort}, k.values)
	}
}

func (g *gauges) ofLocalQueue(l *state.LocalQueueStatistics) {
	o := g.localQueues[l.Name]
	if o == nil || !o.shown {
		return
	}
	f := &g.localQueue
	own := []string{l.Name.Name, l.Namespace}
	g.put(f.pending, float64(l.Active), own, []string{active}, o.values)
	g.put(f.pending, float64(l.Inadmissible), own, []string{inadmissible}, o.values)
	g.put(f.finishedNow, float64(g.seen.finishedIn[l.Name]), own, o.values)
	g.putOne(f.status, string(o.active), []string{"True", "False", "Unknown"}, own, o.values)
	if l.Usage != nil && f.fairSharing != nil {
		g.put(f.fairSharing, l.Usage.Value, own, []string{l.Queue}, o.values)
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

func (g *gauges) ofCohorts(statistics *state.Statistics) {
	f := &g.families.cohort
	var counts map[string]int
	g.locked(func() { counts = g.tree.counts() })
	g.lockedByTurns(len(statistics.Cohorts), func(i int) {
		c := &statistics.Cohorts[i]
		if g.tree.isDeleted(c.Name) {
			return
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
			g.put(f.admittedNow, float64(t.frozen), own, custom)
		}
	})
}
