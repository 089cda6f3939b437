package restartagent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// worker is the command that the agent runs, with all processes that it starts.
type worker struct {
	cmd  *exec.Cmd
	done chan int // gets the exit code
}

func start(shell, command string) (*worker, error) {
	w := &worker{cmd: exec.Command(shell, "-c", command), done: make(chan int, 1)}
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the worker: %w", err)
	}
	go func() { w.done <- exitCode(w.cmd.Wait()) }()
	return w, nil
}

// exitCode returns the exit code of a command that ended, like a shell.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return 1
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}

// ended returns the channel of the exit code; nil without a worker.
func (w *worker) ended() <-chan int {
	if w == nil {
		return nil
	}
	return w.done
}

func (w *worker) signal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-w.cmd.Process.Pid, number) // fails if they have ended
	}
}

func (w *worker) kill() {
	if w != nil {
		w.signal(syscall.SIGKILL)
	}
}
