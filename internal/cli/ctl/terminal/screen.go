package terminal

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// Style of a line.
type Style int

// Styles. Bold and Selected are no colors, and stay where colors are off.
const (
	Plain Style = iota
	Bold
	Selected
	Dim
	Alert
)

var sequences = map[Style]string{Bold: "\x1b[1m", Selected: "\x1b[7m", Dim: "\x1b[90m", Alert: "\x1b[1;31m"}

// Line is one line of a page.
type Line struct {
	Text string // printable, and no wider than the screen
	Style
}

// Sequences that begin and end a page: the second screen, no cursor, and no line that goes on below. The end undoes the beginning.
const (
	beginPage = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	endPage   = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// Screen is a terminal that shows a page.
type Screen struct {
	in, out *os.File
	colors  bool
	before  *term.State // nil while no page is shown
	shown   []Line
}

// NewScreen makes a Screen of a terminal. It changes nothing yet.
func NewScreen(in, out *os.File, colors bool) *Screen {
	return &Screen{in: in, out: out, colors: colors}
}

// Begin sets the terminal for a page, also if something else has set it differently in between.
func (s *Screen) Begin() error {
	before, err := term.MakeRaw(int(s.in.Fd()))
	if err != nil {
		return fmt.Errorf("setting the terminal to raw mode: %w", err)
	}
	if s.before == nil {
		s.before = before
	}
	s.Forget()
	_, err = s.out.WriteString(beginPage)
	return err
}

// End restores the terminal. It does nothing where no page is shown.
func (s *Screen) End() error {
	if s.before == nil {
		return nil
	}
	before := s.before
	s.before = nil
	_, err := s.out.WriteString(endPage)
	if restore := term.Restore(int(s.in.Fd()), before); restore != nil {
		return fmt.Errorf("restoring the terminal: %w", restore)
	}
	return err
}

// Size returns the columns and lines of the terminal.
func (s *Screen) Size() (columns, lines int) {
	columns, lines, err := term.GetSize(int(s.out.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		return 80, 24 // as a serial line, which has no size
	}
	return columns, lines
}

// Forget has the next Draw write all lines.
func (s *Screen) Forget() { s.shown = nil }

// Draw shows lines, and writes only the changed ones.
func (s *Screen) Draw(lines []Line) error {
	var b strings.Builder
	if s.shown == nil || len(lines) < len(s.shown) { // before the lines: below a full screen this is its last line
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[J", len(lines)+1)
	}
	for i, line := range lines {
		if i < len(s.shown) && s.shown[i] == line {
			continue
		}
		// The line is cleared first: after its last column the cursor is still on that, which would be cleared.
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[2K", i+1)
		sequence := sequences[line.Style]
		switch {
		case s.colors:
		case line.Style == Dim:
			sequence = ""
		case line.Style == Alert:
			sequence = sequences[Bold]
		}
		b.WriteString(sequence + line.Text)
		if sequence != "" {
			b.WriteString("\x1b[0m")
		}
	}
	s.shown = lines
	if b.Len() == 0 {
		return nil
	}
	_, err := s.out.WriteString(b.String())
	return err
}
