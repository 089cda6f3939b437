package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/goldentest"
)

func TestTable(t *testing.T) {
	const says = "team-b takes its quota back"
	finished := told(t)
	finish(finished)
	borrowing := &story{jobs: []*life{{order: order{"team-a", "sweep", "low", 24, time.Second}, spans: []span{{running, at(1)}}}}}
	for name, tc := range map[string]struct {
		story         *story
		at            float64
		width, height int
		colour        paint
	}{
		"table":          {told(t), 6, 100, 40, plain},
		"table-borrows":  {borrowing, 3.9, 100, 40, plain},
		"table-narrow":   {told(t), 6, 50, 40, plain},
		"table-low":      {told(t), 6, 100, 10, plain},
		"table-colours":  {told(t), 6, 80, 40, ansi},
		"table-finished": {finished, 21, 100, 40, plain},
		"table-hidden":   {finished, 21, 100, 9, plain},
	} {
		t.Run(name, func(t *testing.T) {
			goldentest.Check(t, "testdata/"+name+".txt", strings.Join(table(tc.story, says, at(tc.at), tc.width, tc.height, tc.colour), "\n")+"\n")
		})
	}
}

// The picture fits into any terminal.
func TestTableFits(t *testing.T) {
	s := told(t)
	rapid.Check(t, func(r *rapid.T) {
		width, height := rapid.IntRange(1, 200).Draw(r, "width"), rapid.IntRange(2, 60).Draw(r, "height")
		lines := table(s, "team-b takes its quota back", at(6), width, height, plain)
		if len(lines) > height {
			r.Fatalf("%d lines on %d", len(lines), height)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > min(width, maxWidth) {
				r.Fatalf("%d columns on %d: %q", n, width, line)
			}
		}
	})
}

func TestCut(t *testing.T) {
	for name, tc := range map[string]struct {
		line  string
		width int
		want  string
	}{
		"fits":                      {"abc", 3, "abc"},
		"long":                      {"abcd", 3, "abc"},
		"wide":                      {"█·▓x", 3, "█·▓"},
		"colours":                   {"a\x1b[32mbc\x1b[0md", 3, "a\x1b[32mbc\x1b[0m\x1b[0m"},
		"fit, but for their length": {"\x1b[32mabc\x1b[0m", 3, "\x1b[32mabc\x1b[0m"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Cut(tc.line, tc.width); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	for name, tc := range map[string]struct {
		width int
		want  string
	}{
		"wide":     {80, "one two three"},
		"narrow":   {8, "one two|three"},
		"narrower": {1, "one|two|three"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(Wrap("one two  three", tc.width), "|"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// terminal interprets the few escape sequences that the screen writes.
type terminal struct {
	lines []string
	row   int
}

func (v *terminal) feed(t *testing.T, text string) {
	t.Helper()
	put := func(s string) {
		for len(v.lines) <= v.row {
			v.lines = append(v.lines, "")
		}
		v.lines[v.row] += s
	}
	for text != "" {
		switch text[0] {
		case '\n':
			put("")
			v.row++
			text = text[1:]
		case '\r':
			text = text[1:]
		case '\x1b':
			end := strings.IndexAny(text, "ABCDHJKlhm")
			sequence := text[:end+1]
			text = text[end+1:]
			switch sequence[end] {
			case 'A':
				var up int
				if _, err := fmt.Sscanf(sequence, "\x1b[%dA", &up); err != nil {
					t.Fatal(err)
				}
				v.row -= up
				for i := v.row; i < len(v.lines); i++ {
					v.lines[i] = "" // the screen clears each line to its end
				}
			case 'H':
				v.row = 0
			case 'J':
				v.lines = v.lines[:min(len(v.lines), map[string]int{"\x1b[2J": 0, "\x1b[J": v.row}[sequence])]
			case 'K', 'l', 'h', 'm':
			default:
				t.Fatalf("unexpected sequence %q", sequence)
			}
		default:
			end := strings.IndexAny(text, "\n\r\x1b")
			put(text[:end])
			text = text[end:]
		}
	}
}

func TestScreen(t *testing.T) {
	var out bytes.Buffer
	width, height := 80, 30
	v := &screen{canvas: &Canvas{out: &out, size: func() (int, int) { return width, height }}, colour: plain}
	s := told(t)
	v.says(0, "hello")
	before := &terminal{}
	for _, when := range []float64{1, 6} {
		v.draw(s, at(when))
		before.feed(t, out.String())
		out.Reset()
	}
	want := append([]string{""}, table(s, "hello", at(6), 79, 29, plain)...)
	if got, wanted := strings.Join(before.lines, "\n"), strings.Join(want, "\n"); got != wanted {
		t.Errorf("one sees\n%s\nwant\n%s", got, wanted)
	}
	width, height = 50, 12
	v.draw(s, at(7))
	before.feed(t, out.String())
	out.Reset()
	if got, wanted := strings.Join(before.lines, "\n"), strings.Join(table(s, "hello", at(7), 49, 11, plain), "\n"); got != wanted {
		t.Errorf("after a change of the size one sees\n%s\nwant\n%s", got, wanted)
	}
	v.close()
	if out.String() != "\x1b[?25h" {
		t.Errorf("at the end the cursor is not shown: %q", out.String())
	}
}

// Plain lines show each change once.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	s := &story{total: 1}
	v.says(0, "hello")
	s.submit(order{"team-a", "sweep", "low", 8, time.Second}, 0)
	for i, conditions := range [][]string{
		{}, {short}, {short}, {reserved}, {reserved, evicted}, {"QuotaReserved=False: no", evicted}, {reserved}, {reserved, "Finished=True/Succeeded"},
	} {
		if n, changed := s.sawWorkload(workload("team-a", conditions...), "sweep", at(float64(i))); changed {
			v.tells(n)
		}
		v.draw(s, at(float64(i)))
	}
	v.close()
	goldentest.Check(t, "testdata/lines.txt", out.String())
}
