package demo

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// maxWidth bounds the width of the table.
const maxWidth = 100

// paint colours a text; plain does not.
type paint func(text string, p phase) string

func plain(text string, _ phase) string { return text }

// ansi paints with the colours of a terminal.
func ansi(text string, p phase) string {
	code := map[phase]string{
		submitted: "2", waiting: "33", starting: "36", running: "32", stopping: "31", finished: "2", failed: "1;31",
	}[p]
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// indent is the position of sentences in the table.
const indent = "         "

// table draws the story at a time, in at most height lines of at most width columns. Jobs that are over are dropped first.
func table(s *story, says string, at time.Duration, width, height int, colour paint) []string {
	width = min(width, maxWidth)
	lines := []string{
		fmt.Sprintf("%5.1fs  %d GPUs in cohort %s, %d for each team", at.Seconds(), quota*len(teams), cohort, quota),
		"",
	}
	for _, team := range teams {
		lines = append(lines, " "+bar(s, team, at, colour))
	}
	lines = append(lines, "", " TEAM    JOB        GPUS  PRIORITY  STATE         FOR")
	foot := []string{"", " » " + says}
	room := height - len(lines) - len(foot)
	rows, hidden := 0, 0
	for _, l := range s.jobs {
		rows += len(row(l, at, width, plain))
	}
	for _, l := range s.jobs {
		if rows > room && l.now().over() {
			rows--
			hidden++
			continue
		}
		lines = append(lines, row(l, at, width, colour)...)
	}
	if hidden > 0 {
		foot[0] = fmt.Sprintf(" and %d that are finished", hidden)
	}
	if room = height - len(foot); len(lines) > room {
		lines = lines[:max(0, room)]
	}
	lines = append(lines, foot...)
	for i, line := range lines {
		lines[i] = Cut(line, width)
	}
	return lines
}

// row is a line about a job and, while it waits, lines with the reason.
func row(l *life, at time.Duration, width int, colour paint) []string {
	now := l.now()
	state := now.phase.String()
	if now.phase == waiting && l.preemptions > 0 {
		state = "preempted"
	}
	since := ""
	if !now.over() {
		since = seconds(at - now.from)
	}
	line := fmt.Sprintf(" %-6s  %-9s  %4d  %-8s  %s %6s", l.team, l.name, l.gpus, l.priority, colour(fmt.Sprintf("%-10s", state), now.phase), since)
	lines := []string{strings.TrimRight(line, " ")}
	if l.why != "" {
		for _, part := range Wrap(l.why, width-len(indent)) {
			lines = append(lines, indent+part)
		}
	}
	return lines
}

// bar shows a team's use, one cell for each GPU, and the borrowed part.
func bar(s *story, team string, at time.Duration, colour paint) string {
	used := int(s.inUse(team, at))
	own := min(used, quota)
	cells := colour(strings.Repeat("█", own), running) + strings.Repeat("·", quota-own) +
		"│" + colour(strings.Repeat("▓", used-own), waiting) + strings.Repeat(" ", max(0, quota-(used-own)))
	text := fmt.Sprintf("%-6s  %s %2d in use", team, cells, used)
	if used > own {
		text += fmt.Sprintf(", %d of them borrowed", used-own)
	}
	return text
}

// Wrap breaks a sentence into lines of at most width columns, between words.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Cut shortens a line to width columns. Colours take none.
func Cut(line string, width int) string {
	column, coloured, escape := 0, false, false
	for i, r := range line {
		switch {
		case r == '\x1b':
			escape, coloured = true, true
		case escape:
			escape = r != 'm'
		case column == width:
			if coloured {
				return line[:i] + "\x1b[0m"
			}
			return line[:i]
		default:
			column++
		}
	}
	return line
}
