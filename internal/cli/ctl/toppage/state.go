package toppage

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-project/berth/internal/cli/ctl/terminal"
)

// column by which queues are sorted.
type column int

const (
	byName column = iota
	byUse
	byBorrowed
	byPending
	byWait
	columns // their number
)

// compares have the comparison of each column in its natural order: names from a to z, amounts from the highest down.
var compares = [columns]func(a, b *Queue) int{
	byName:     func(*Queue, *Queue) int { return 0 },
	byUse:      func(a, b *Queue) int { return cmp.Compare(b.Use.Full(), a.Use.Full()) },
	byBorrowed: func(a, b *Queue) int { return cmp.Compare(b.Borrows, a.Borrows) },
	byPending:  func(a, b *Queue) int { return cmp.Compare(b.Pending, a.Pending) },
	byWait: func(a, b *Queue) int {
		if a.Waits.IsZero() || b.Waits.IsZero() {
			return cmp.Compare(boolean(a.Waits.IsZero()), boolean(b.Waits.IsZero()))
		}
		return a.Waits.Compare(b.Waits)
	},
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// list is what is shown of a list.
type list struct {
	filter string
	chosen string // name of the chosen row; "" for the first one, whichever it is
	offset int    // of the first row on the page
}

// row returns the index of the chosen row, 0 if it is gone.
func (l *list) row(names []string) int { return max(slices.Index(names, l.chosen), 0) }

// move chooses the row that is so many rows further.
func (l *list) move(names []string, by int) {
	if len(names) == 0 {
		return
	}
	l.chosen = names[min(max(l.row(names)+by, 0), len(names)-1)]
}

// show returns which of the rows fit on the page, so that the chosen one is among them.
func (l *list) show(names []string, lines int) (from, to int) {
	at := l.row(names)
	l.offset = min(max(l.offset, at-lines+1, 0), at)
	l.offset = max(min(l.offset, len(names)-lines), 0)
	return l.offset, min(l.offset+lines, len(names))
}

// Options of a page.
type Options struct {
	Server    string // its URL
	Interval  time.Duration
	NoHeaders bool
}

// State is the state of a page.
type State struct {
	Options
	columns, lines int

	figures *Figures
	asked   time.Time // when the running refresh began; zero if none runs
	note    string    // what is known about the running refresh
	failure string    // of the last refresh

	began   time.Time
	use     map[string]*history // by resource
	waiting history

	sort    column
	reverse bool
	queues  list

	opened    string // the queue whose Workloads are shown, "" for none
	workloads list

	typing, help bool
}

// New makes the state of a page that has its first figures.
func New(o Options, first *Figures, columns, lines int) *State {
	s := &State{Options: o, sort: byWait, began: first.At, use: map[string]*history{}}
	s.Resize(columns, lines)
	s.Refreshed(first)
	return s
}

// Resize sets the size of the terminal.
func (s *State) Resize(columns, lines int) { s.columns, s.lines = max(columns, 0), max(lines, 0) }

// Asking notes that a refresh begins.
func (s *State) Asking(now time.Time) { s.asked, s.note = now, "" }

// Waits notes what is known about the running refresh.
func (s *State) Waits(note string) { s.note = note }

// Failed notes that the refresh failed. The last figures stay.
func (s *State) Failed(why string) { s.asked, s.note, s.failure = time.Time{}, "", why }

// Refreshed shows new figures.
func (s *State) Refreshed(f *Figures) {
	joined := s.failure == ""
	if s.figures != nil && s.figures.Workloads != nil && f.Workloads == nil && s.figures.Workloads.Queue == s.opened {
		f.Workloads = s.figures.Workloads // the queue was opened after this refresh began
	}
	s.figures, s.asked, s.note, s.failure = f, time.Time{}, "", ""
	for i := range f.Resources {
		r := &f.Resources[i]
		if s.use[r.Name] == nil {
			s.use[r.Name] = &history{}
		}
		s.use[r.Name].add(f.At, r.Use.Full(), joined)
	}
	s.waiting.add(f.At, float64(f.pending()), joined)
}

// Opened returns the queue whose Workloads are shown, and whether they are known.
func (s *State) Opened() (queue string, known bool) {
	return s.opened, s.opened == "" || s.figures.Workloads != nil && s.figures.Workloads.Queue == s.opened
}

// AsksStarts returns the queues on the page in which Workloads wait; none where the page has no room for their starts.
func (s *State) AsksStarts() (out []string) {
	rows := s.sorted()
	hasRoom := slices.ContainsFunc(s.queueCells(rows, s.figures.At), func(c cell[*Queue]) bool { return c.header == startsHeader })
	if s.opened != "" || !hasRoom {
		return nil
	}
	from, to := s.queues.show(s.names(), s.rows())
	for _, q := range rows[from:to] {
		if q.Pending > 0 {
			out = append(out, q.Name)
		}
	}
	return out
}

// list returns the list on the page.
func (s *State) list() *list {
	if s.opened != "" {
		return &s.workloads
	}
	return &s.queues
}

// names returns the names of the rows of the list on the page.
func (s *State) names() (out []string) {
	if s.opened == "" {
		for _, q := range s.sorted() {
			out = append(out, q.Name)
		}
		return out
	}
	for _, w := range s.pendingRows() {
		out = append(out, w.Name)
	}
	return out
}

// sorted returns the queues that the filter passes, in order.
func (s *State) sorted() (out []*Queue) {
	for i := range s.figures.Queues {
		if strings.Contains(s.figures.Queues[i].Name, s.queues.filter) {
			out = append(out, &s.figures.Queues[i])
		}
	}
	slices.SortFunc(out, func(a, b *Queue) int {
		by := cmp.Or(compares[s.sort](a, b), strings.Compare(a.Name, b.Name))
		if s.reverse {
			by = -by
		}
		return by
	})
	return out
}

// pendingRows returns the Workloads that the filter passes, in the order of their line.
func (s *State) pendingRows() (out []*Workload) {
	if _, known := s.Opened(); !known {
		return nil
	}
	all := s.figures.Workloads.Workloads
	for i := range all {
		if strings.Contains(all[i].Name, s.workloads.filter) {
			out = append(out, &all[i])
		}
	}
	return out
}

// Press handles a key, and reports whether it ends the page.
func (s *State) Press(key terminal.Key) (leave bool) {
	switch {
	case key == terminal.CtrlC:
		return true
	case s.help:
		s.help = false // any key
		return key == "q"
	case s.typing && s.typed(key):
		return false
	}
	if steps, is := s.steps(key); is {
		s.list().move(s.names(), steps)
		return false
	}
	if s.typing {
		return false
	}
	switch key {
	case "q":
		return true
	case "?":
		s.help = true
	case "/":
		s.typing = true
	case terminal.Esc, terminal.Backspace:
		s.back()
	case terminal.Enter:
		s.open()
	default:
		s.arrange(key)
	}
	return false
}

// steps returns how far a key moves.
func (s *State) steps(key terminal.Key) (rows int, is bool) {
	page := max(s.rows()-1, 1)
	switch key {
	case terminal.Up, "k":
		return -1, true
	case terminal.Down, "j":
		return 1, true
	case terminal.PageUp:
		return -page, true
	case terminal.PageDown, " ":
		return page, true
	case terminal.End, "G":
		return len(s.names()), true
	case terminal.Home, "g":
		s.list().chosen = "" // the first one, also when the order changes
		return 0, false
	default:
		return 0, false
	}
}

// arrange handles the keys of the order.
func (s *State) arrange(key terminal.Key) {
	if s.opened != "" {
		return // a line has one order
	}
	switch key {
	case "s", ">", terminal.Right:
		s.sort = (s.sort + 1) % columns
	case "<", terminal.Left:
		s.sort = (s.sort + columns - 1) % columns
	case "r":
		s.reverse = !s.reverse
	default: // has no meaning here
	}
}

// open shows the Workloads of the chosen queue.
func (s *State) open() {
	if names := s.names(); s.opened == "" && len(names) > 0 {
		s.opened, s.workloads = names[s.queues.row(names)], list{}
		s.queues.chosen = s.opened
	}
}

// back clears the filter, or returns to the queues.
func (s *State) back() {
	if l := s.list(); l.filter != "" {
		l.filter = ""
	} else {
		s.opened = ""
	}
}

// maxFilter bounds the typed text.
const maxFilter = 253

// typed handles a key while the filter is typed, and reports whether it belongs to that.
func (s *State) typed(key terminal.Key) bool {
	l := s.list()
	switch key {
	case terminal.Enter:
		s.typing = false
	case terminal.Esc:
		s.typing, l.filter = false, ""
	case terminal.CtrlU:
		l.filter = ""
	case terminal.Backspace:
		_, n := utf8.DecodeLastRuneInString(l.filter)
		l.filter = l.filter[:len(l.filter)-n]
	default:
		if utf8.RuneCountInString(string(key)) != 1 {
			return false
		}
		if len(l.filter) < maxFilter {
			l.filter += string(key)
		}
	}
	return true
}
