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
	canvas := NewCanvas(out)
	if canvas == nil {
		return &lines{out: out}
	}
	colour := ansi
	if !canvas.Colours {
		colour = plain
	}
	return &screen{canvas: canvas, colour: colour}
}

// Canvas redraws a picture in place on a terminal.
type Canvas struct {
	// Colours is false if the user wants none.
	Colours bool

	out           io.Writer
	size          func() (width, height int)
	drawn         int // lines of the last picture
	width, height int // of the terminal, then
}

// NewCanvas returns the canvas of a terminal; nil if out is none.
func NewCanvas(out io.Writer) *Canvas {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Canvas{Colours: os.Getenv("NO_COLOR") == "", out: out, size: func() (int, int) {
		if width, height, err := term.GetSize(int(file.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
		return 80, 24
	}}
}

// Draw draws a picture over the last one. It has to fit the given width and height.
func (c *Canvas) Draw(picture func(width, height int) []string) {
	width, height := c.size()
	var b strings.Builder
	switch {
	case c.drawn == 0:
		b.WriteString("\x1b[?25l\n") // hides the cursor
	case width != c.width || height != c.height:
		// The terminal has rewrapped the lines: only clearing the screen is reliable.
		b.WriteString("\x1b[2J\x1b[H")
	default:
		fmt.Fprintf(&b, "\x1b[%dA\r", c.drawn)
	}
	lines := picture(width-1, height-1)
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	c.drawn, c.width, c.height = len(lines), width, height
	_, _ = io.WriteString(c.out, b.String()) // an error of a closed terminal cannot be shown
}

// Close leaves the last picture on the terminal.
func (c *Canvas) Close() {
	if c.drawn > 0 {
		fmt.Fprint(c.out, "\x1b[?25h")
	}
}

// screen redraws a table in place.
type screen struct {
	canvas   *Canvas
	colour   paint
	sentence string
}

func (v *screen) says(_ time.Duration, sentence string) { v.sentence = sentence }
func (*screen) tells(news)                              {}

func (v *screen) draw(s *story, at time.Duration) {
	v.canvas.Draw(func(width, height int) []string { return table(s, v.sentence, at, width, height, v.colour) })
}

func (v *screen) close() { v.canvas.Close() }

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
