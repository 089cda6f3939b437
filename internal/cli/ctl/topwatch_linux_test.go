package ctl

import (
	"bufio"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// display is a terminal with its picture, as far as the page uses it.
type display struct {
	testing.TB
	user, program *os.File
	before        unix.Termios

	mu                   sync.Mutex
	lines                [][]rune
	row                  int
	second, hidden, cuts bool // the second screen, no cursor, lines cut at the edge
	colors               bool // there was a color
	rest                 string
}

func newDisplay(t testing.TB, columns, lines uint16) *display {
	d := &display{TB: t, lines: make([][]rune, 500)}
	d.user, d.program = openTerminal(t)
	resize(t, d.user, columns, lines)
	d.before = modes(t, d.program)
	go func() {
		sent := bufio.NewReader(d.user)
		for {
			r, _, err := sent.ReadRune()
			if err != nil {
				return
			}
			d.write(string(r))
		}
	}()
	return d
}

var escape = regexp.MustCompile(`^\x1b\[(\??)([0-9;]*)([A-Za-z])`)

// write is what the program sends.
func (d *display) write(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.rest += text; d.rest != ""; {
		if d.rest[0] != 0x1b {
			end := strings.IndexByte(d.rest, 0x1b)
			if end < 0 {
				end = len(d.rest)
			}
			for i, part := range strings.Split(strings.ReplaceAll(d.rest[:end], "\r", ""), "\n") {
				if i > 0 {
					d.row = min(d.row+1, len(d.lines)-1)
				}
				d.lines[d.row] = append(d.lines[d.row], []rune(part)...)
			}
			d.rest = d.rest[end:]
			continue
		}
		m := escape.FindStringSubmatch(d.rest)
		if m == nil {
			return // it is incomplete
		}
		d.rest = d.rest[len(m[0]):]
		switch number, _ := strconv.Atoi(strings.Split(m[2], ";")[0]); m[1] + m[3] {
		case "H":
			d.row = max(number, 1) - 1
		case "K":
			if number == 2 {
				d.lines[d.row] = nil
			}
		case "J":
			from := d.row
			if number == 2 {
				from = 0
			}
			clear(d.lines[from:])
		case "m":
			if number >= 30 || strings.Contains(m[2], ";3") {
				d.colors = true
			}
		case "?h", "?l":
			switch on := m[3] == "h"; number {
			case 1049:
				d.second = on
			case 25:
				d.hidden = !on
			case 7:
				d.cuts = !on
			}
		}
	}
}

// text is what the user sees.
func (d *display) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, line := range d.lines {
		out = append(out, string(line))
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n")
}

// widest is the length of the longest line in characters.
func (d *display) widest() (n int) {
	for line := range strings.Lines(d.text()) {
		n = max(n, len([]rune(strings.TrimSuffix(line, "\n"))))
	}
	return n
}

// shows waits until the page has each of some texts, and misses each that begins with a !.
func (d *display) shows(texts ...string) {
	d.Helper()
	wait.Until(d.TB, fmt.Sprint("the page shows ", texts), func() error {
		now := d.text()
		for _, text := range texts {
			if want, not := strings.CutPrefix(text, "!"); strings.Contains(now, want) == not {
				return fmt.Errorf("%q in\n%s", text, now)
			}
		}
		return nil
	})
}

func (d *display) hasColors() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.colors
}

// lost forgets what is on the screen, as after other programs have used it.
func (d *display) lost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.lines)
}

func (d *display) types(keys string) {
	d.Helper()
	if _, err := d.user.WriteString(keys); err != nil {
		d.Fatal(err)
	}
}

// isPage waits until the terminal is set for the page, or as it was before.
func (d *display) isPage(is bool) {
	d.Helper()
	wait.Until(d.TB, "the terminal is set", func() error {
		m := modes(d.TB, d.program)
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case is && !isRaw(m), d.second != is, d.hidden != is, d.cuts != is:
			return fmt.Errorf("raw %v, second screen %v, cursor hidden %v, cut lines %v", isRaw(m), d.second, d.hidden, d.cuts)
		case !is && m != d.before:
			return fmt.Errorf("%+v, before %+v", m, d.before)
		}
		return nil
	})
}

// runs starts a command line in the terminal.
func (d *display) runs(env []string, line string) *exec.Cmd {
	d.Helper()
	itself, err := os.Executable()
	if err != nil {
		d.Fatal(err)
	}
	cmd := exec.CommandContext(d.Context(), itself)
	cmd.Env = append(append(os.Environ(), asBerth+"="+line, "TERM=xterm"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = d.program, d.program, d.program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	return cmd
}

// ends waits until a command has ended, and the terminal is as before.
func (d *display) ends(cmd *exec.Cmd, code int) {
	d.Helper()
	err := cmd.Wait()
	if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || failed.ExitCode() != code) || err == nil && code != 0 {
		d.Errorf("%v, want exit code %d\n%s", err, code, d.text())
	}
	d.isPage(false)
}

// TestPageEnds: however the page ends or stops, the terminal is as it was.
func TestPageEnds(t *testing.T) {
	server := httptest.NewServer(&manyQueues{counts: map[string]int{}})
	defer server.Close()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	d := newDisplay(t, 80, 24)
	for name, end := range map[string]func(*exec.Cmd){
		"Ctrl-C":  func(*exec.Cmd) { d.types("\x03") },
		"SIGTERM": func(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGTERM) },
		"SIGQUIT": func(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGQUIT) },
	} {
		t.Log(name)
		berth := d.runs(nil, "top clusterqueue team-001 --watch --no-headers -r cpu -s "+server.URL)
		d.isPage(true)
		d.shows("1-1 of 1", "team-001", "!CLUSTERQUEUE", "!team-002", "cpu")
		end(berth)
		d.ends(berth, 0)
	}
	berth := d.runs(nil, "top --watch -s "+server.URL)
	for name, stop := range map[string]func(){
		"Ctrl-Z":  func() { d.types("\x1a") },
		"SIGTSTP": func() { _ = berth.Process.Signal(syscall.SIGTSTP) },
	} {
		t.Log(name)
		d.isPage(true)
		d.shows("1-17 of 1000")
		stop()
		wait.Until(t, name+" stops it", func() error {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", berth.Process.Pid))
			if text := string(stat); err == nil && !strings.HasPrefix(text[strings.LastIndex(text, ")")+1:], " T ") {
				err = errors.New(text)
			}
			return err
		})
		d.isPage(false)
		d.lost()
		if err := berth.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	d.isPage(true)
	d.shows("1-17 of 1000") // it is drawn anew
	d.types("q")
	d.ends(berth, 0)
}

// page runs the page of top against the objects of the test, which no manager looks after.
func (w *world) page() {
	d := newDisplay(w, 80, 24)
	berth := d.runs(nil, "top --watch")
	d.shows("team-a", "team-b (not ac", "alone (stopped)", "nvidia.com/gpu", "150%", "8 gpu", "no manager answers: computed here", "4 queues, 2 pending", "last hour       0 started", "1-4 of 4")
	d.isPage(true)
	if !d.hasColors() {
		w.Error("there is no color")
	}
	if n := d.widest(); n != 80 {
		w.Errorf("a line of %d cells of 80:\n%s", n, d.text())
	}
	d.types("/team\r")
	d.shows("1-2 of 2", "!alone")
	d.types("\x1b")
	d.shows("1-4 of 4", "alone")
	d.types("s/team-a\r\r")
	d.shows("Workloads in line of ClusterQueue team-a", "team-a/job-train", "POSITION", "1-1 of 1", "!asking")
	resize(w, d.user, 120, 30)
	d.shows("LOCALQUEUE", "PRIORITY", "main")
	wait.Until(w.T, "lines are as long as the terminal", func() error {
		if n := d.widest(); n != 120 {
			return fmt.Errorf("%d of 120:\n%s", n, d.text())
		}
		return nil
	})
	d.types("\x1b\x1b[H?")
	d.shows("Any key returns")
	d.types("xq")
	d.ends(berth, 0)

	// An error before the page ends the command, and a terminal without control sequences has the tables.
	d.ends(d.runs(nil, "top clusterqueue none --watch"), 1)
	d.shows(`error: there is no clusterqueue "none"`)
	dumb := d.runs([]string{"TERM=dumb"}, "top --watch --interval 100ms")
	d.shows("FLAVOR", "WORKLOADS")
	_ = dumb.Process.Signal(syscall.SIGTERM)
	d.ends(dumb, 0)
}
