package toppage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/berth-project/berth/internal/cli/ctl/terminal"
	"github.com/berth-project/berth/internal/core/trace"
)

// gap is between columns.
const gap = "  "

// cell is a column of a table.
type cell[T any] struct {
	header string
	width  int
	right  bool
	text   func(row T) string
	sort   column // by which its header is marked, columns for none
	rank   int    // how important it is: 1 is most
}

// fitted returns the columns that fit into a width, the most important ones first, in their order; the last one gets what is left.
func fitted[T any](cells []cell[T], width int) (out []cell[T]) {
	byRank := slices.SortedFunc(slices.Values(cells), func(a, b cell[T]) int { return cmp.Compare(a.rank, b.rank) })
	left := width + len(gap)
	var kept []int
	for _, c := range byRank {
		if need := c.width + len(gap); need <= left {
			left -= need
			kept = append(kept, c.rank)
		}
	}
	for _, c := range cells {
		if slices.Contains(kept, c.rank) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		cells[0].width = width
		return cells[:1]
	}
	out[len(out)-1].width += left
	return out
}

// render renders one row of columns.
func render[T any](cells []cell[T], text func(c *cell[T]) string) string {
	var b strings.Builder
	for i := range cells {
		if i > 0 {
			b.WriteString(gap)
		}
		fit := terminal.Fit
		if cells[i].right {
			fit = terminal.FitRight
		}
		b.WriteString(fit(text(&cells[i]), cells[i].width))
	}
	return b.String()
}

// widest is the width of the longest of some texts, within bounds.
func widest[T any](rows []T, text func(T) string, least, most int) int {
	for _, row := range rows {
		least = max(least, terminal.Cells(terminal.Printable(text(row))))
	}
	return min(least, most)
}

// waits is how long ago a time is, "" for none.
func waits(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(now.Sub(since), 0).Truncate(time.Second))
}

// startsHeader is the header of the column of starts.
const startsHeader = "STARTS"

// barCells is the width of the bar of a queue.
const barCells = 8

// queueCells are the columns of the table of queues. They depend on all queues, so that they keep their place while the page is scrolled.
func (s *State) queueCells(rows []*Queue, now time.Time) []cell[*Queue] {
	name := func(q *Queue) string {
		if q.Off != "" {
			return q.Name + " (" + q.Off + ")"
		}
		return q.Name
	}
	cohort := func(q *Queue) string { return q.Cohort }
	fullest := func(q *Queue) string { return q.Fullest }
	borrowed := func(q *Queue) string { return q.Borrowed }
	starts := func(q *Queue) string { return q.Starts }
	names := widest(rows, name, 13, 40)
	names = min(names, max(14, s.columns-64)) // long names leave room for the others
	return fitted([]cell[*Queue]{
		{header: "CLUSTERQUEUE", width: names, text: name, rank: 1, sort: byName},
		{header: "COHORT", width: widest(rows, cohort, 6, 20), text: cohort, rank: 10, sort: columns},
		{header: "USE", width: barCells + 7, rank: 4, sort: byUse, text: func(q *Queue) string {
			if q.Fullest == "" {
				return ""
			}
			return terminal.Fit(q.Use.Bar(barCells), barCells+1) + terminal.FitRight(q.Use.Percent(), 6)
		}},
		{header: "OF", width: widest(rows, fullest, 4, 28), text: fullest, rank: 9, sort: columns},
		{header: "BORROWED", width: widest(rows, borrowed, 9, 10), text: borrowed, rank: 6, sort: byBorrowed},
		{header: "ADMITTED", width: 8, right: true, text: func(q *Queue) string { return strconv.Itoa(q.Admitted) }, rank: 8, sort: columns},
		{header: "PENDING", width: 8, right: true, text: func(q *Queue) string { return strconv.Itoa(q.Pending) }, rank: 2, sort: byPending},
		{header: "WAITS", width: 6, right: true, text: func(q *Queue) string { return waits(q.Waits, now) }, rank: 3, sort: byWait},
		{header: startsHeader, width: widest(rows, starts, 6, 19), text: starts, rank: 7, sort: columns},
		{header: "WHY THE FIRST", width: 15, text: func(q *Queue) string { return q.Why }, rank: 5, sort: columns},
	}, s.columns)
}

// workloadCells are the columns of the table of pending Workloads.
func (s *State) workloadCells(rows []*Workload, now time.Time) []cell[*Workload] {
	name := func(w *Workload) string { return w.Name }
	queue := func(w *Workload) string { return w.JobQueue }
	starts := func(w *Workload) string { return w.Starts }
	return fitted([]cell[*Workload]{
		{header: "WORKLOAD", width: min(widest(rows, name, 12, 60), max(24, s.columns-60)), text: name, rank: 1, sort: columns},
		{header: "LOCALQUEUE", width: widest(rows, queue, 10, 24), text: queue, rank: 7, sort: columns},
		{header: "POSITION", width: 8, right: true, text: func(w *Workload) string { return w.Position }, rank: 2, sort: columns},
		{header: "PRIORITY", width: 8, right: true, text: func(w *Workload) string { return w.Priority }, rank: 6, sort: columns},
		{header: "WAITS", width: 6, right: true, text: func(w *Workload) string { return waits(w.Waits, now) }, rank: 4, sort: columns},
		{header: startsHeader, width: widest(rows, starts, 6, 19), text: starts, rank: 3, sort: columns},
		{header: "BECAUSE", width: 12, text: func(w *Workload) string { return w.Why }, rank: 5, sort: columns},
	}, s.columns)
}

// heading is a cell's header, marked if the table is sorted by it.
func heading[T any](s *State, c *cell[T]) string {
	switch {
	case c.sort != s.sort:
		return c.header
	case s.reverse != (c.sort == byName): // the natural order of names ascends, and that of amounts descends
		return c.header + "▲"
	}
	return c.header + "▼"
}

// table returns the header and the rows of a table on the page.
func table[T any](s *State, rows []T, names []string, cells []cell[T], style func(T) terminal.Style) (out []terminal.Line) {
	if !s.NoHeaders {
		out = append(out, terminal.Line{Text: render(cells, func(c *cell[T]) string { return heading(s, c) }), Style: terminal.Bold})
	}
	from, to := s.list().show(names, s.rows())
	chosen := s.list().row(names)
	for i := from; i < to; i++ {
		line := terminal.Line{Text: render(cells, func(c *cell[T]) string { return c.text(rows[i]) }), Style: style(rows[i])}
		if i == chosen {
			line.Style = terminal.Selected
		}
		out = append(out, line)
	}
	return out
}

// helpText explains the page.
var helpText = strings.Split(strings.TrimSpace(`
up, down, PgUp, PgDn, Home, End   scroll (also k, j, g, G)
s or >, <      sort by the next column: name, use, borrowed, pending, waits
r              reverse the order
/              show only names with a text in them; Esc clears it
Enter          show the Workloads in line of a ClusterQueue; Esc returns
q or Ctrl-C    leave
Ctrl-Z         stop, until fg
Ctrl-L         draw the page again

The first lines are all quota of ClusterQueues and Cohorts, and its use since
the page was opened. In a bar, █ runs, and ▒ is reserved for what will run.
Evicted are Workloads that have neither been admitted again nor ended since.
USE is that of the fullest resource of a flavor (OF). What goes beyond 100% is
BORROWED. WAITS is how long the oldest in line has waited. STARTS is when the
first in line is expected to start, where the page is wide enough for it.

Any key returns.
`), "\n")

// note is the line between the header and the table: first what is wrong, then what is typed.
func (s *State) noteLine(now time.Time) terminal.Line {
	l := s.list()
	switch stale := s.stale(now); {
	case stale != "":
		return s.line(stale, terminal.Alert)
	case s.typing:
		return s.line("names with: "+l.filter+"█", terminal.Bold)
	case l.filter != "":
		return s.line("names with: "+l.filter+"   (Esc clears it)", terminal.Bold)
	case s.opened != "" && s.figures.Workloads != nil && s.figures.Workloads.Note != "":
		return s.line(s.figures.Workloads.Note, terminal.Dim)
	}
	return s.line(s.figures.Note, terminal.Dim)
}

// patience is how long a refresh may take before its figures count as stale, beside two intervals.
const patience = 3 * time.Second

// stale returns since when the figures are stale and why, "" if they are not.
func (s *State) stale(now time.Time) string {
	since := "stale since " + s.figures.At.Local().Format("15:04:05")
	if took := now.Sub(s.asked); !s.asked.IsZero() && took > 2*s.Interval+patience {
		switch {
		case s.note != "":
			return since + ": " + s.note
		case s.failure == "":
			return since + fmt.Sprintf(": no answer for %s", took.Truncate(time.Second))
		}
	}
	if s.failure != "" {
		return since + ", trying again: " + s.failure
	}
	return ""
}

func (s *State) line(text string, style terminal.Style) terminal.Line {
	return terminal.Line{Text: terminal.Fit(text, s.columns), Style: style}
}

// title is the first line: what and when, and at the right how much there is.
func (s *State) title(now time.Time) terminal.Line {
	right := fmt.Sprintf("%s, %d pending", trace.Plural(len(s.figures.Queues), "queue"), s.figures.pending())
	left := now.Local().Format("15:04:05") + "  berth top  " + s.Server + fmt.Sprintf("  every %s", s.Interval)
	room := s.columns - terminal.Cells(right) - len(gap)
	if room < len("15:04:05") {
		return s.line(left, terminal.Bold)
	}
	return s.line(terminal.Fit(left, room)+gap+right, terminal.Bold)
}

// resources is how many lines of resources fit.
func (s *State) resources() int { return min(len(s.figures.Resources), max(0, (s.lines-8)/3), 4) }

// lastHour is the longest name of a line of [State.full] that is not the name of a resource.
const lastHour = "last hour"

// full are the lines of the resources, of what is pending, and of the last hour.
func (s *State) full(now time.Time) (out []terminal.Line) {
	shown := s.figures.Resources[:s.resources()]
	name := func(r Resource) string { return r.Name }
	amount := func(r Resource) string { return r.Amount }
	pending := fmt.Sprintf("%d, most %.0f", s.figures.pending(), s.waiting.most)
	names, bar := widest(shown, name, len(lastHour), 20), 20
	switch {
	case s.columns < 70:
		bar = 8
	case s.columns < 100:
		bar = 12
	}
	amounts := max(widest(shown, amount, 6, 24), min(len(pending)-bar-1-7, 24))
	spark := s.columns - names - bar - 1 - 7 - amounts - 3*len(gap)
	for _, r := range shown {
		text := terminal.Fit(r.Name, names) + gap + terminal.Fit(r.Use.Bar(bar), bar+1) + terminal.FitRight(r.Use.Percent(), 7) +
			gap + terminal.Fit(r.Amount, amounts) + gap + s.use[r.Name].sparkline(now, s.Interval, spark, 1)
		out = append(out, s.line(text, terminal.Plain))
	}
	text := terminal.Fit("pending", names) + gap + terminal.Fit(pending, bar+1+7+len(gap)+amounts) + gap +
		s.waiting.sparkline(now, s.Interval, spark, s.waiting.most)
	out = append(out, s.line(text, terminal.Plain))
	if s.hours() == 0 {
		return out
	}
	happened := "unknown"
	if of := s.figures.LastHour; of != nil {
		happened = fmt.Sprintf("%d started, %d finished, %d failed, %d evicted", of.Admitted, of.Finished, of.Failed, of.Evicted)
	}
	return append(out, s.line(terminal.Fit(lastHour, names)+gap+happened, terminal.Plain))
}

// hours is how many lines are about the last hour: none on a small page.
func (s *State) hours() int {
	if s.lines < 14 {
		return 0
	}
	return 1
}

// rows is how many rows of the list fit on the page.
func (s *State) rows() int {
	fixed := 1 + s.resources() + 1 + s.hours() + 1 + 1 // the title, resources, what is pending, the last hour, a note, and the keys
	if s.opened != "" {
		fixed++
	}
	if !s.NoHeaders {
		fixed++
	}
	return max(s.lines-fixed, 1)
}

// keys is the last line.
func (s *State) keys(names []string) terminal.Line {
	from, to := s.list().show(names, s.rows())
	right := fmt.Sprintf("%d-%d of %d", min(from+1, to), to, len(names))
	left := "q leave  ? help  / filter  s sort  r reverse  Enter Workloads"
	if s.opened != "" {
		left = "q leave  ? help  / filter  Esc back"
	}
	room := max(s.columns-len(right)-len(gap), 0)
	return s.line(terminal.Fit(left, room)+gap+right, terminal.Dim)
}

// Lines returns the page: at most as many lines as the terminal has, each as wide as that.
func (s *State) Lines(now time.Time) []terminal.Line {
	out := []terminal.Line{s.title(now)}
	if s.help {
		out = append(out, s.line("", terminal.Plain))
		for _, text := range helpText {
			out = append(out, s.line(text, terminal.Plain))
		}
		return out[:min(len(out), s.lines)]
	}
	out = append(out, s.full(now)...)
	out = append(out, s.noteLine(now))
	var names []string
	var empty string
	if s.opened == "" {
		rows := s.sorted()
		names = s.names()
		empty = "no ClusterQueue"
		out = append(out, table(s, rows, names, s.queueCells(rows, now), func(q *Queue) terminal.Style {
			if q.Off != "" {
				return terminal.Dim
			}
			return terminal.Plain
		})...)
	} else {
		rows := s.pendingRows()
		names = s.names()
		_, known := s.Opened()
		empty = "no Workload waits"
		if !known {
			empty = "asking..."
		}
		out = append(out, s.line("Workloads in line of ClusterQueue "+s.opened, terminal.Bold))
		out = append(out, table(s, rows, names, s.workloadCells(rows, now), func(*Workload) terminal.Style { return terminal.Plain })...)
	}
	if len(names) == 0 {
		if s.list().filter != "" {
			empty += " has such a name"
		}
		out = append(out, s.line(empty, terminal.Dim))
	}
	for len(out) < s.lines-1 {
		out = append(out, s.line("", terminal.Plain))
	}
	if len(out) < s.lines {
		out = append(out, s.keys(names))
	}
	return out[:min(len(out), s.lines)]
}
