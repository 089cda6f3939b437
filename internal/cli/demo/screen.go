package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// view displays the story.
type view interface {
	// says begins a new step.
	says(at time.Duration, sentence string)
	// tells displays a change of a job.
	tells(n news)
	// draw is called after changes, and from time to time.
	draw(s *story, at time.Duration)
	// close leaves the last picture on the screen.
	close()
}

// newView draws in place on a terminal, and writes lines about changes to anything else.
func newView(out io.Writer) view {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		size := func() (int, int) {
			if width, height, err := term.GetSize(int(file.Fd())); err == nil && width > 0 && height > 0 {
				return width, height
			}
			return 80, 24
		}
		colour := ansi
		if os.Getenv("NO_COLOR") != "" {
			colour = plain
		}
		return &screen{out: out, size: size, colour: colour}
	}
	return &lines{out: out}
}

// screen redraws a table in place.
type screen struct {
	out    io.Writer
	size   func() (width, height int)
	colour paint

	sentence      string
	drawn         int // lines of the last picture
	width, height int // of the terminal, then
}

func (v *screen) says(_ time.Duration, sentence string) { v.sentence = sentence }
func (*screen) tells(news)                              {}

func (v *screen) draw(s *story, at time.Duration) {
	width, height := v.size()
	var b strings.Builder
	switch {
	case v.drawn == 0:
		b.WriteString("\x1b[?25l\n") // hides the cursor
	case width != v.width || height != v.height:
		// The terminal has rewrapped the lines: only clearing the screen is reliable.
		b.WriteString("\x1b[2J\x1b[H")
	default:
		fmt.Fprintf(&b, "\x1b[%dA\r", v.drawn)
	}
	picture := table(s, v.sentence, at, width-1, height-1, v.colour)
	for _, line := range picture {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	v.drawn, v.width, v.height = len(picture), width, height
	_, _ = io.WriteString(v.out, b.String()) // an error of a closed terminal cannot be shown
}

func (v *screen) close() {
	if v.drawn > 0 {
		fmt.Fprint(v.out, "\x1b[?25h")
	}
}

// lines writes a line for each change.
type lines struct {
	out io.Writer
}

func (v *lines) says(at time.Duration, sentence string) {
	fmt.Fprintf(v.out, "%6.1fs  » %s\n", at.Seconds(), sentence)
}

func (v *lines) tells(n news) {
	now := n.job.now()
	text := now.phase.String()
	switch {
	case now.phase == n.from && n.job.why != "":
		text += " still"
	case now.phase == waiting && n.job.preemptions > 0:
		text = "preempted, waiting again"
	}
	if n.job.why != "" {
		text += ": " + n.job.why
	}
	fmt.Fprintf(v.out, "%6.1fs  %s/%-9s %2d GPUs  %s\n", n.at.Seconds(), n.job.team, n.job.name, n.job.gpus, text)
}

func (*lines) draw(*story, time.Duration) {}
func (*lines) close()                     {}
