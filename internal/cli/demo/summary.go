package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// columns bounds the columns of a time line.
const columns = 62

// scales are the possible durations of a column.
var scales = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, time.Minute}

// scale returns the duration of a column, and the number of columns.
func scale(end time.Duration) (time.Duration, int) {
	for _, s := range scales {
		if n := int((end + s - 1) / s); n <= columns {
			return s, max(n, 1)
		}
	}
	last := scales[len(scales)-1]
	return last, int((end + last - 1) / last)
}

// summary is the last output of the demo: a time line for each job, and the use of GPUs over time.
func summary(s *story) []string {
	step, n := scale(s.end())
	lines := []string{fmt.Sprintf("Timeline (a column is %s; · waits, ░ starts, █ runs, x is preempted)", step), ""}
	for _, l := range s.jobs {
		text := fmt.Sprintf("waited %s, ran %s", seconds(l.spent(func(p phase) bool { return p == submitted || p == waiting })),
			seconds(l.spent(func(p phase) bool { return p == running || p == stopping })))
		lines = append(lines, fmt.Sprintf("  %-6s %-9s %2d  %s  %s", l.team, l.name, l.gpus, pad(gantt(l, step, n), n), text))
	}
	lines = append(lines, "  "+strings.Repeat(" ", 21)+ruler(step, n), "", fmt.Sprintf("GPUs in use (%s)", legend()), "")
	lines = append(lines, plot(s, step, n)...)
	return append(lines, "  "+strings.Repeat(" ", 21)+ruler(step, n), "", peaks(s))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// symbols of the phases in a time line.
var symbols = map[phase]string{submitted: "·", waiting: "·", starting: "░", running: "█", stopping: "x"}

// gantt is the time line of a job. A column shows the longest phase in it, but every preemption is shown.
func gantt(l *life, step time.Duration, n int) string {
	var b strings.Builder
	for i := range n {
		from, to := time.Duration(i)*step, time.Duration(i+1)*step
		p, there := during(l, from, to)
		symbol, drawn := symbols[p]
		if !there || !drawn {
			symbol = " "
		}
		b.WriteString(symbol)
	}
	return strings.TrimRight(b.String(), " ")
}

// during returns the longest phase of a job in a time; false before its submission.
func during(l *life, from, to time.Duration) (most phase, there bool) {
	var longest time.Duration
	for i, s := range l.spans {
		end := to
		if i+1 < len(l.spans) {
			end = min(to, l.spans[i+1].from)
			if ended := l.spans[i+1]; s.holds() && (ended.phase == waiting || ended.phase == stopping) && ended.from >= from && ended.from < to {
				return stopping, true
			}
		}
		if length := end - max(from, s.from); length > longest {
			most, longest, there = s.phase, length, true
		}
	}
	return most, there
}

// fills of the teams in the plot.
var fills = []string{"█", "▒"}

func legend() string {
	parts := make([]string, 0, len(teams))
	for i, team := range teams {
		parts = append(parts, fills[i]+" "+team)
	}
	return strings.Join(parts, ", ") + fmt.Sprintf("; each has a quota of %d", quota)
}

// plot stacks the teams' use, one cell for the GPUs of a pod. A column shows the middle of its time.
func plot(s *story, step time.Duration, n int) []string {
	total := quota * len(teams)
	rows := make([][]string, total/podGPUs)
	for i := range rows {
		rows[i] = slices.Repeat([]string{" "}, n)
	}
	for x := range n {
		y := 0
		for i, team := range teams {
			for range s.inUse(team, time.Duration(x)*step+step/2) / podGPUs {
				if y < len(rows) {
					rows[y][x] = fills[i]
				}
				y++
			}
		}
	}
	out := make([]string, 0, len(rows))
	for y, row := range slices.Backward(rows) {
		label := "   "
		if top := (y + 1) * podGPUs; top%(quota/2) == 0 {
			label = fmt.Sprintf("%2d ", top)
		}
		out = append(out, strings.TrimRight(fmt.Sprintf("%22s┤%s", label, strings.Join(row, "")), " "))
	}
	return out
}

// ruler marks the seconds under a time line.
func ruler(step time.Duration, n int) string {
	var b strings.Builder
	every := max(1, int(5*time.Second/step))
	for x := 0; x < n; x += every {
		mark := fmt.Sprintf("└%ds", int((time.Duration(x) * step).Seconds()))
		b.WriteString(pad(mark, every))
	}
	return strings.TrimRight(b.String(), " ")
}

// pad fills with spaces up to a width in columns.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-len([]rune(text))))
}

func peaks(s *story) string {
	parts := []string{fmt.Sprintf("Peak use of quota: %d of %d GPUs", s.peak(teams...), quota*len(teams))}
	for _, team := range teams {
		most := s.peak(team)
		text := fmt.Sprintf("%s %d of %d", team, most, quota)
		if most > quota {
			text += fmt.Sprintf(" (%d borrowed)", most-quota)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ") + fmt.Sprintf(". Preemptions: %d.", s.preemptions())
}
