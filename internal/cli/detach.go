package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/local"
	"github.com/berth-project/berth/internal/embedded"
)

// background runs `berth up` with the given flags in a new session, with its output in the directory's logs/berth.log, and returns its
// record once it is ready. If it ends before that, the error is its last output; if ctx ends, it is stopped.
func background(ctx context.Context, dir string, flags ...string) (local.Record, error) {
	self, err := os.Executable()
	if err != nil {
		return local.Record{}, fmt.Errorf("find this program: %w", err)
	}
	if err := embedded.Private(dir); err != nil {
		return local.Record{}, fmt.Errorf("--dir: %w", err)
	}
	path := filepath.Join(dir, "logs", "berth.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return local.Record{}, fmt.Errorf("--dir: %w", err)
	}
	log, err := embedded.OpenOwned(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return local.Record{}, fmt.Errorf("--dir: %w", err)
	}
	defer log.Close()
	command := exec.Command(self, append([]string{"up"}, flags...)...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return local.Record{}, fmt.Errorf("start %s: %w", self, err)
	}
	ended := make(chan struct{})
	var exit error // set before ended is closed
	go func() {
		exit = command.Wait()
		close(ended)
	}()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return local.Record{}, lastWords(exit, path)
		case <-ctx.Done():
			_ = command.Process.Signal(syscall.SIGTERM) // fails only if it has ended
			<-ended
			return local.Record{}, cluster.ErrInterrupted
		case <-tick.C:
		}
		record, found, err := local.Find(dir)
		if err != nil {
			return local.Record{}, err
		}
		if found && record.Ready && record.PID == command.Process.Pid {
			return record, nil
		}
	}
}

// detach is `berth up --detach`.
func detach(ctx context.Context, cmd *cobra.Command, dir string, ready func(local.Record)) error {
	flags := slices.DeleteFunc(given(cmd.Flags()), func(flag string) bool {
		return strings.HasPrefix(flag, "--detach=") || strings.HasPrefix(flag, "--dir=")
	})
	fmt.Fprintf(cmd.ErrOrStderr(), "starting in the background; log in %s\n", filepath.Join(dir, "logs", "berth.log"))
	record, err := background(ctx, dir, append(flags, "--dir="+dir)...)
	if err != nil {
		return err
	}
	ready(record)
	return nil
}

// given returns the flags that were set, as arguments.
func given(flags *pflag.FlagSet) (args []string) {
	flags.Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok { // its text is for people
			values = list.GetSlice()
		}
		for _, value := range values {
			args = append(args, "--"+f.Name+"="+value)
		}
	})
	return args
}

// exitError is the failure of the program in the background, with its own exit code.
type exitError struct {
	text string
	code int
}

func (e exitError) Error() string { return e.text }
func (e exitError) ExitCode() int { return e.code }

// lastWords returns the error that the program logged last, or else the end of its log.
func lastWords(exit error, log string) error {
	code := exitFailed
	if status, ok := errors.AsType[*exec.ExitError](exit); ok && status.ExitCode() == exitUsage {
		code = exitUsage
	}
	text, err := tail(log, 16<<10)
	if err != nil {
		return err
	}
	const mark = "\nerror: "
	if at := strings.LastIndex("\n"+text, mark); at >= 0 {
		return exitError{strings.TrimSpace(("\n" + text)[at+len(mark):]), code}
	}
	how := "without an error"
	if exit != nil {
		how = exit.Error()
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-15):]
	return exitError{fmt.Sprintf("berth up ended in the background (%s). The end of %s:\n  %s", how, log, strings.Join(lines, "\n  ")), code}
}

// tail reads at most the last bytes of a file.
func tail(path string, bytes int64) (string, error) {
	file, err := embedded.OpenOwned(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > bytes {
		if _, err := file.Seek(-bytes, io.SeekEnd); err != nil {
			return "", err
		}
	}
	data, err := io.ReadAll(file)
	return string(data), err
}
