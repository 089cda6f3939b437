package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measurement is what came of a load.
type measurement struct {
	shape        *shape
	ledger       *ledger
	requests     requests
	start, usage usage    // before the first creation, and in the end
	restart      *restart // nil without -restart
	looks        *looks   // nil without -dashboard
}

// print writes the figures, the table and the drawing, the last also to a file if one is
// named.
func (m *measurement) print(out io.Writer, file string) error {
	var text strings.Builder
	m.figures(func(name string, value float64) { fmt.Fprintf(&text, "%s: %s\n", name, number(value)) })
	text.WriteByte('\n')
	m.table(&text)
	end := m.end()
	text.WriteByte('\n')
	drawText(&text, m.ledger.utilisation(end, drawColumns), end)
	if _, err := io.WriteString(out, text.String()); err != nil || file == "" {
		return err
	}
	var drawing strings.Builder
	if filepath.Ext(file) == ".svg" {
		drawSVG(&drawing, m.ledger.utilisation(end, svgColumns), end, "Quota in use, "+m.shape.name)
	} else {
		drawText(&drawing, m.ledger.utilisation(end, drawColumns), end)
	}
	return os.WriteFile(file, []byte(drawing.String()), 0o600)
}

// kept returns an error if a promise was broken.
func (m *measurement) kept() error {
	if n := m.ledger.broken; n > 0 {
		return fmt.Errorf("%d promises were broken:\n  %s", n, strings.Join(m.ledger.problems, "\n  "))
	}
	return nil
}

// end is the last finish.
func (m *measurement) end() time.Duration {
	points := m.ledger.usage
	return points[len(points)-1].at
}

// figures prints all lines, about the workloads that finished. Writes are the accepted writes of all clients at the API server;
// processor times are measured during the load, the manager's from its start.
func (m *measurement) figures(line func(name string, value float64)) {
	l, n := m.ledger, float64(m.ledger.done-m.ledger.doneBefore)
	wall, limit := (m.end() - l.from).Seconds(), m.shape.limit().Seconds()
	waits := l.waits(-1)
	line("workloads", n)
	line("wall_s", wall)
	line("limit_s", limit)
	line("wall_over_limit", wall/limit)
	line("writes_per_workload", sum(m.requests.accepted)/n)
	line("events_per_workload", m.requests.events/n)
	line("webhook_calls_per_workload", m.requests.webhooks/n)
	line("manager_cpu_s", m.usage.manager.Seconds())
	line("manager_peak_rss_mb", m.usage.peakRSS)
	line("admission_p50_ms", percentile(waits, 50))
	line("admission_p99_ms", percentile(waits, 99))
	line("release_to_admission_p50_ms", percentile(l.idle, 50)) // of a core, while the workload that takes it waits
	line("release_to_admission_p99_ms", percentile(l.idle, 99))
	line("evictions", float64(l.evictions))
	line("repeated_work_s", l.lost/float64(m.shape.quota())/float64(m.shape.cohorts)) // of the whole quota
	line("utilisation_percent", 100*l.utilisation(m.end(), 1)[0])
	line("refused_writes_per_workload", sum(m.requests.refused)/n)
	for _, name := range slices.Sorted(maps.Keys(m.requests.accepted)) {
		line("writes_per_workload["+name+"]", m.requests.accepted[name]/n)
	}
	for _, name := range slices.Sorted(maps.Keys(m.requests.refused)) {
		line("refused_writes_per_workload["+name+"]", m.requests.refused[name]/n)
	}
	line("manager_start_cpu_s", m.start.manager.Seconds())
	spent := func(at func(*usage) time.Duration) float64 { return (at(&m.usage) - at(&m.start)).Seconds() }
	generator := spent(func(u *usage) time.Duration { return u.generator })
	apiServer := spent(func(u *usage) time.Duration { return u.apiServer })
	etcd := spent(func(u *usage) time.Duration { return u.etcd })
	manager := spent(func(u *usage) time.Duration { return u.manager })
	line("manager_cpu_ms_per_workload", 1000*manager/n)
	line("apiserver_cpu_ms_per_workload", 1000*apiServer/n)
	line("generator_cpu_s", generator)
	line("apiserver_cpu_s", apiServer)
	line("etcd_cpu_s", etcd)
	if r := m.restart; r != nil {
		line("restart_ready_s", r.ready.Seconds())
		line("restart_admits_s", r.admits.Seconds())
		line("restart_cpu_s", r.cpu.Seconds())
		line("restart_peak_rss_mb", r.peakRSS)
	}
	if l := m.looks; l != nil {
		line("dashboard_cores", l.open.cores()-l.closed.cores())
		line("dashboard_closed_cores", l.closed.cores())
		line("dashboard_first_view_s", l.first.Seconds())
	}
	// Programs that have nothing to do with the load: without them, wall_s would be less.
	line("others_cpu_s", max(0, spent(func(u *usage) time.Duration { return u.machine })-generator-apiServer-etcd-manager))
}

func (m *measurement) table(out io.Writer) {
	fmt.Fprintf(out, "%-8s %9s %10s %10s %9s\n", "class", "workloads", "p50 ms", "p99 ms", "evictions")
	for k, c := range m.shape.classes {
		count, evicted := 0, 0
		for i := range m.ledger.entries {
			if e := &m.ledger.entries[i]; e.class == k {
				count++
				evicted += e.evicted
			}
		}
		waits := m.ledger.waits(k)
		fmt.Fprintf(out, "%-8s %9d %10s %10s %9d\n", c.name, count, number(percentile(waits, 50)), number(percentile(waits, 99)), evicted)
	}
}

// percentile returns the smallest of the samples that at least p percent of them do not
// exceed, and NaN for no samples.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[max(0, at)]
}

// number writes a figure with three digits at least, and without an exponent.
func number(v float64) string {
	digits := 0
	if v != math.Trunc(v) {
		for x := math.Abs(v); x < 100 && digits < 3; x *= 10 {
			digits++
		}
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
