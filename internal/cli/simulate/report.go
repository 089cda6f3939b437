package simulate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/foresight/simulation"
)

// writeText writes tables, the sides next to each other.
func writeText(w io.Writer, sides []named) error {
	t := tabwriter.NewWriter(w, 6, 1, 3, ' ', 0)
	row := func(label string, cell func(named) string) {
		cells := []string{label}
		for _, s := range sides {
			cells = append(cells, cell(s))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	row("", func(s named) string { return strings.ToUpper(s.Name) })
	row("JOBS", func(s named) string { return fmt.Sprint(s.Jobs) })
	row("  finished", func(s named) string { return fmt.Sprint(s.Finished) })
	row("  never started", func(s named) string { return fmt.Sprint(s.Refused) })
	row("ALL IS OVER AFTER", func(s named) string { return foresight.Length(s.Makespan) })
	for _, u := range sides[0].Utilisation {
		row("USE OF "+u.Resource, func(s named) string { return percent(use(s, u.Resource).Share) })
		row("  until the last submission", func(s named) string { return percent(use(s, u.Resource).Loaded) })
	}
	row("IDLE", func(s named) string { return percent(s.IdleWhileWaiting) })
	row("PREEMPTIONS", func(s named) string { return fmt.Sprint(s.Preemptions) })
	row("REPEATED", func(s named) string { return percent(s.Repeated) })
	row("FAIRNESS", func(s named) string { return fmt.Sprintf("%.2f", s.Fairness) })
	for _, of := range sides[0].Fragmentation {
		row("FRAGMENTED "+of.Flavor+", "+of.Level, func(s named) string { return fragmented(s, of) })
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		of    func(*simulation.Result) []simulation.Class
	}{
		{"WAITS BY CLASS", func(r *simulation.Result) []simulation.Class { return r.Classes }},
		{"WAITS BY QUEUE", func(r *simulation.Result) []simulation.Class { return r.Queues }},
	} {
		fmt.Fprintln(w)
		t = tabwriter.NewWriter(w, 6, 1, 3, ' ', 0)
		cells := []string{part.title, "JOBS"}
		for _, s := range sides {
			cells = append(cells, strings.ToUpper(s.Name)+": P50", "P90", "P99", "PREEMPTED", "SLOWDOWN")
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
		for i, first := range part.of(sides[0].Result) {
			cells := []string{first.Name, fmt.Sprint(first.Jobs)}
			for _, s := range sides {
				c := part.of(s.Result)[i] // the jobs are the same
				cells = append(cells, foresight.Length(c.P50), foresight.Length(c.P90), foresight.Length(c.P99), fmt.Sprint(c.Preemptions), fmt.Sprintf("%.1f", c.Slowdown))
			}
			fmt.Fprintln(t, strings.Join(cells, "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// use returns the use of a resource, none of one that no job of a side held.
func use(s named, resource string) (of simulation.Utilisation) {
	for _, u := range s.Utilisation {
		if u.Resource == resource {
			of = u
		}
	}
	return of
}

// fragmented returns the fragmentation of a flavor and level, "" where a side does not have it.
func fragmented(s named, of simulation.Fragmentation) string {
	for _, f := range s.Fragmentation {
		if f.Flavor == of.Flavor && f.Level == of.Level {
			return percent(f.Share)
		}
	}
	return ""
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

//go:embed report.html
var page string

var report = template.Must(template.New("report").Funcs(template.FuncMap{
	"percent": percent, "length": foresight.Length,
	"line": line, "use": use, "fragmented": fragmented,
	"bar": bar, "colour": func(i int) string { return colours[i%len(colours)] },
	"at": func(list []simulation.Class, i int) simulation.Class { return list[i] },
	"y":  func(i int) int { return 20 * i },
}).Parse(page))

// colours can be told apart by most readers who do not see all colours.
var colours = []string{"#0b6bcb", "#d9730d", "#2f855a", "#8e44ad", "#b83280", "#4a5568"}

// The size of the picture of the use.
const width, height = 900, 220

// line is the points of a polyline: the use of the quota over time.
func line(s simulation.Series, longest float64) string {
	var b strings.Builder
	for i, used := range s.Used {
		fmt.Fprintf(&b, "%.1f,%.1f ", (float64(i)+0.5)*s.Interval/longest*width, height-used*height)
	}
	return b.String()
}

// bar is the length of a bar for a wait, on a scale of logarithms from 1 s to the longest.
func bar(wait, longest float64) float64 {
	return math.Round(600 * math.Log1p(wait) / math.Log1p(max(1, longest)))
}

func writeHTML(w io.Writer, sides []named) error {
	longest, wait := 1.0, 1.0
	for _, s := range sides {
		longest = max(longest, s.Makespan)
		for _, c := range s.Classes {
			wait = max(wait, c.P90)
		}
	}
	return report.Execute(w, map[string]any{"Sides": sides, "First": sides[0], "Longest": longest, "Wait": wait, "Width": width, "Height": height, "Across": width + 80})
}
