package racks

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/berth-project/berth/internal/cli/demo"
)

const (
	maxWidth = 100

	idleNode   = '·'
	failedNode = 'x'
)

// paint colours a text that belongs to a node or a job with a letter; plain does not.
type paint func(text string, letter rune) string

func plain(text string, _ rune) string { return text }

// ansi paints with the colours of a terminal: one for each job, and red for what has failed.
func ansi(text string, letter rune) string {
	code := map[rune]string{idleNode: "2", failedNode: "1;31", 'P': "34", 'A': "32", 'B': "36", 'C': "33", 'U': "1;35"}[unicode.ToUpper(letter)]
	if letter == failedNode {
		code = "1;31"
	}
	if code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// picture draws the racks of each block with a character for each node, the jobs, and the latest notes, in at most height lines of at most
// width columns.
func picture(w world, notes []string, at time.Duration, width, height int, colour paint) []string {
	width = min(width, maxWidth)
	all, _ := w.idle()
	lines := []string{fmt.Sprintf("%5.1fs  %d nodes, %d idle", at.Seconds(), len(w.hosts), all), ""}
	lines = append(lines, blocks(w, colour)...)
	lines = append(lines, "", "    JOB        PODS  PRIORITY  STATE")
	for _, g := range gangs {
		lines = append(lines, row(w, g, width, colour)...)
	}
	var foot []string
	for _, note := range notes {
		for i, part := range demo.Wrap(strings.TrimLeft(note, "» "), width-4) {
			mark := "   "
			if i == 0 && strings.HasPrefix(note, "»") {
				mark = " » "
			}
			foot = append(foot, mark+part)
		}
	}
	if room := max(0, height-len(lines)-1); len(foot) > room {
		foot = foot[len(foot)-room:]
	}
	if len(foot) > 0 {
		lines = append(append(lines, ""), foot...)
	}
	lines = lines[:min(len(lines), max(0, height))]
	for i, line := range lines {
		lines[i] = demo.Cut(line, width)
	}
	return lines
}

// blocks has a line for each block: its racks side by side.
func blocks(w world, colour paint) (lines []string) {
	block, rack := "", ""
	for _, h := range w.hosts { // sorted by name, and so by block and rack
		if h.block != block || len(lines) == 0 {
			lines, block, rack = append(lines, fmt.Sprintf(" %-4s", h.block)), h.block, ""
		}
		last := &lines[len(lines)-1]
		if h.rack != rack {
			rack = h.rack
			*last += fmt.Sprintf("   %s ", rack)
		}
		letter := w.letter(h)
		*last += " " + colour(string(letter), letter)
	}
	return lines
}

// letter is the character of a node: that of the job on it, in lower case while its pod starts or stops.
func (w world) letter(h host) rune {
	if !h.ready {
		return failedNode
	}
	at := slices.IndexFunc(w.pods, func(p pod) bool { return p.node == h.name })
	if at < 0 {
		return idleNode
	}
	letter := '?'
	for _, g := range gangs {
		if g.name == w.pods[at].job {
			letter = g.letter
		}
	}
	if !w.pods[at].running || w.pods[at].stopping {
		letter = unicode.ToLower(letter)
	}
	return letter
}

// row is a line about a job, and lines with the reason while it does not run; none before it is submitted.
func row(w world, g gang, width int, colour paint) []string {
	j, found := w.job(g.name)
	if !found {
		return nil
	}
	lines := []string{fmt.Sprintf(" %s  %-9s  %4d  %-8s  %s", colour(string(g.letter), g.letter), g.name, g.pods, g.priority, w.state(g))}
	if j.why != "" {
		for _, part := range demo.Wrap(j.why, width-9) {
			lines = append(lines, "        "+part)
		}
	}
	return lines
}
