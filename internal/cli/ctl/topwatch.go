package ctl

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/berth-project/berth/internal/cli/ctl/terminal"
	"github.com/berth-project/berth/internal/cli/ctl/toppage"
)

// pager is a terminal for a page, and the messages that would break it.
type pager struct {
	in, out  *os.File
	messages *messages
}

// pager returns the terminal of a command that is watched on one, nil otherwise.
func (o *top) pager(cmd *cobra.Command) *pager {
	in, fromFile := cmd.InOrStdin().(*os.File)
	out, toFile := cmd.OutOrStdout().(*os.File)
	switch kind := os.Getenv("TERM"); {
	case !o.watch || o.topology || o.fair.on || o.what != "top" && o.what != "clusterqueue":
	case !fromFile || !toFile || kind == "" || kind == "dumb":
	case term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())):
		return &pager{in, out, &messages{to: cmd.ErrOrStderr()}}
	}
	return nil
}

// messages is stderr, of which the last line is kept while a page is shown.
type messages struct {
	mu   sync.Mutex
	to   io.Writer
	held bool
	last string
}

// Write implements io.Writer.
func (m *messages) Write(text []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.held {
		return m.to.Write(text)
	}
	if line := strings.TrimSpace(string(text)); line != "" {
		m.last = line[strings.LastIndex(line, "\n")+1:]
	}
	return len(text), nil
}

// hold keeps messages from stderr, or does so no longer.
func (m *messages) hold(held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.last = held, ""
}

// line returns the last line, "" for none since the last hold.
func (m *messages) line() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// readKeys reads what is typed until that fails; then it closes the channel.
func readKeys(ctx context.Context, in io.Reader) <-chan []byte {
	typed := make(chan []byte)
	go func() {
		defer close(typed)
		for {
			b := make([]byte, 256)
			n, err := in.Read(b)
			if err != nil {
				return
			}
			select {
			case typed <- b[:n]:
			case <-ctx.Done():
				return
			}
		}
	}()
	return typed
}

// escapeWait is how long a terminal may take to send a key whose first byte is that of Esc.
const escapeWait = 50 * time.Millisecond

// page is a running page.
type page struct {
	*top
	*session
	messages *messages
	screen   *terminal.Screen
	state    *toppage.State
	decoder  terminal.Decoder
	escape   <-chan time.Time // when an incomplete key counts as it is; nil without one
	signals  chan os.Signal

	answers chan answer
	running bool // a refresh
	due     *time.Timer
	began   time.Time
}

// answer is the outcome of a refresh.
type answer struct {
	figures *toppage.Figures
	err     string
}

// page shows the page until the user leaves it. The first figures are read before: if that fails, so does the command.
func (o *top) page(ctx context.Context, s *session, at *pager) (err error) {
	began := time.Now()
	first, err := o.figures(ctx, s, "", nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &page{
		top: o, session: s, messages: at.messages, screen: terminal.NewScreen(at.in, at.out, os.Getenv("NO_COLOR") == ""),
		signals: make(chan os.Signal, 8), answers: make(chan answer, 1), began: began,
	}
	signal.Notify(p.signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGQUIT)
	defer signal.Stop(p.signals)
	at.messages.hold(true)
	defer at.messages.hold(false)
	klog.SetLogger(logr.Discard()) // which logs to stderr otherwise
	defer func() { err = errors.Join(err, p.screen.End()) }()
	if err := p.screen.Begin(); err != nil {
		return err
	}
	columns, lines := p.screen.Size()
	p.state = toppage.New(toppage.Options{Server: s.Config.Host, Interval: o.interval, NoHeaders: o.noHeaders}, first, columns, lines)
	p.due = time.NewTimer(time.Since(began)) // soon: only then is it known which queues are on the page
	defer p.due.Stop()
	return p.loop(ctx, readKeys(ctx, at.in))
}

// pause is how long after a refresh the next one begins: at most half of the time is spent on them.
func (p *page) pause() time.Duration {
	took := time.Since(p.began)
	return max(p.interval-took, took)
}

// loop draws the page, and waits for what changes it.
func (p *page) loop(ctx context.Context, typed <-chan []byte) error {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		if _, known := p.state.Opened(); !known && !p.running {
			p.refresh(ctx)
		}
		if p.running {
			p.state.Waits(p.messages.line())
		}
		if err := p.screen.Draw(p.state.Lines(p.Now())); err != nil {
			return err
		}
		if leave, err := p.await(ctx, typed, clock.C); leave || err != nil {
			return err
		}
	}
}

// await handles the next event, and reports whether it ends the page.
func (p *page) await(ctx context.Context, typed <-chan []byte, clock <-chan time.Time) (leave bool, err error) {
	select {
	case <-ctx.Done():
		return true, nil
	case data, open := <-typed:
		if !open {
			return true, nil // the terminal is gone
		}
		keys := p.decoder.Decode(data)
		if p.escape = nil; p.decoder.Incomplete() {
			p.escape = time.After(escapeWait)
		}
		return p.press(ctx, keys)
	case <-p.escape:
		p.escape = nil
		return p.press(ctx, p.decoder.Flush())
	case got := <-p.signals:
		if got == syscall.SIGQUIT {
			return true, nil
		}
		return false, p.signaled(ctx, got)
	case <-clock:
	case <-p.due.C:
		p.refresh(ctx)
	case a := <-p.answers:
		p.answered(a)
	}
	return false, nil
}

// press handles keys, and reports whether one of them ends the page.
func (p *page) press(ctx context.Context, keys []terminal.Key) (leave bool, err error) {
	for _, key := range keys {
		switch key {
		case terminal.CtrlL:
			p.screen.Forget()
		case terminal.CtrlZ:
			err = p.suspend(ctx)
		default:
			leave = p.state.Press(key)
		}
		if leave || err != nil {
			return leave, err
		}
	}
	return false, nil
}

// signaled follows the size of the terminal and the job control of the shell.
func (p *page) signaled(ctx context.Context, got os.Signal) error {
	switch got {
	case syscall.SIGTSTP:
		return p.suspend(ctx)
	case syscall.SIGCONT:
		if err := p.screen.Begin(); err != nil { // the shell may have set the terminal for itself
			return err
		}
	}
	p.state.Resize(p.screen.Size())
	p.screen.Forget()
	return nil
}

// suspend restores the terminal and stops the process, with the others of its job, until it is continued.
func (p *page) suspend(ctx context.Context) error {
	if err := p.screen.End(); err != nil {
		return err
	}
	// SIGTSTP would be ignored where no shell can continue the process.
	if err := syscall.Kill(0, syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case got := <-p.signals:
			if got == syscall.SIGCONT {
				return p.signaled(ctx, got)
			}
		}
	}
}

// refresh begins to read the figures, unless that is being done.
func (p *page) refresh(ctx context.Context) {
	if p.running {
		return
	}
	p.running, p.began = true, time.Now()
	p.messages.hold(true)
	p.state.Asking(p.Now())
	opened, _ := p.state.Opened()
	shown := p.state.AsksStarts()
	go func() {
		defer func() {
			if fault := recover(); fault != nil { // it ends the program without the end of page
				_ = p.screen.End()
				panic(fault)
			}
		}()
		figures, err := p.figures(ctx, p.session, opened, shown)
		if err != nil {
			p.answers <- answer{err: p.Advise(ctx, err).Error()}
			return
		}
		p.answers <- answer{figures: figures}
	}()
}

// answered shows the outcome of a refresh.
func (p *page) answered(a answer) {
	p.running = false
	if a.figures == nil {
		p.state.Failed(a.err)
	} else {
		p.state.Refreshed(a.figures)
	}
	p.screen.Forget() // what other programs wrote into the page goes away
	p.due.Reset(p.pause())
}
