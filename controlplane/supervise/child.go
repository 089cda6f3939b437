package supervise

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// logTail is how many lines of its log are shown when a child ends unexpectedly.
const logTail = 15

// child is a running program.
type child struct {
	name    string
	log     string // path
	process *os.Process
	pipe    *os.File      // write end of its standard input: the child ends when this is closed
	done    chan struct{} // closed when it has ended
	state   string        // exit state, such as "exit status 1"; set before done is closed
}

// start runs this binary as the named program, with its output in its log.
func start(d dir, name string, args []string, died chan<- *child) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	log, err := OpenOwned(d.log(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	command := &exec.Cmd{
		Path: self,
		Args: append([]string{name}, args...),
		Env:  append(os.Environ(), ChildEnv+"=1"),
		Dir:  string(d), Stdin: theirs, Stdout: log, Stderr: log,
		// A process group of its own: Ctrl-C in a terminal must reach only the supervisor, which stops the children in order.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := command.Start(); err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{name: name, log: log.Name(), process: command.Process, pipe: ours, done: make(chan struct{})}
	go func() {
		_ = command.Wait() // ProcessState has the result
		c.state = command.ProcessState.String()
		_ = ours.Close()
		close(c.done)
		died <- c
	}()
	return c, nil
}

// stop sends SIGTERM to the children and waits; after the limit it kills the rest.
func stop(limit time.Duration, children ...*child) {
	for _, c := range children {
		_ = c.process.Signal(syscall.SIGTERM) // fails only if it has ended already
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, c := range children {
		select {
		case <-c.done:
			continue
		case <-timer.C:
			timer.Reset(0) // the limit is for all children
		}
		_ = c.process.Kill()
		<-c.done
	}
}

// obituary is the error for a child that ended unexpectedly, with the end of its log.
func (c *child) obituary() error {
	lines := append([]string{""}, tail(c.log, logTail)...)
	return fmt.Errorf("%s died (%s); everything was stopped. The end of %s:%s", c.name, c.state, c.log, strings.Join(lines, "\n  "))
}

// tail returns the last lines of a file, as far as they are in its last 32 KiB.
func tail(path string, lines int) []string {
	file, err := OpenOwned(path, os.O_RDONLY)
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > 32<<10 {
		_, _ = file.Seek(-32<<10, io.SeekEnd)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return []string{err.Error()}
	}
	data = bytes.TrimRight(data, "\n")
	if len(data) == 0 {
		return []string{"(the log is empty)"}
	}
	all := strings.Split(string(data), "\n")
	return all[max(0, len(all)-lines):]
}
