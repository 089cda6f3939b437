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

// start runs a command by a shell.
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

// exitCode is that of a command which ended, as a shell gives it.
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

// ended gets the exit code; without a worker never.
func (w *worker) ended() <-chan int {
	if w == nil {
		return nil
	}
	return w.done
}

// signal tells the worker's processes.
func (w *worker) signal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-w.cmd.Process.Pid, number) // fails when they are gone
	}
}

// kill ends what is left of the worker.
func (w *worker) kill() {
	if w != nil {
		w.signal(syscall.SIGKILL)
	}
}
