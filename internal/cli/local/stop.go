package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-project/berth/internal/embedded"
)

// killLimit is the time that a killed process and its children may take to end.
const killLimit = 20 * time.Second

// Stop ends the processes of the directory and waits for their end. It reports whether any ran. After the limit they are killed, with a
// line to messages.
func Stop(ctx context.Context, dir string, limit time.Duration, messages io.Writer) (bool, error) {
	pid, found, err := alive(dir)
	if err != nil || !found {
		return false, err
	}
	// An `up` ends its control plane. If it ends before, the loop finds the control plane alone.
	for stopping := 0; found; pid, found, err = alive(dir) {
		if err != nil {
			return true, err
		}
		if pid == 0 || pid == stopping { // it has not written its pid yet, or is stopping
			gone, err := waitGone(ctx, dir, pid, limit)
			if err != nil {
				return true, err
			}
			if !gone {
				if pid == 0 {
					return true, fmt.Errorf("what runs in %s does not say its process id: look for it with fuser %s", dir, filepath.Join(dir, recordName))
				}
				fmt.Fprintf(messages, "process %d did not stop within %s: killing it\n", pid, limit)
				if err := send(pid, syscall.SIGKILL); err != nil {
					return true, err
				}
				if gone, err := waitGone(ctx, dir, pid, killLimit); err != nil || !gone {
					return true, errors.Join(err, fmt.Errorf("process %d in %s does not go away: stop it by hand", pid, dir))
				}
			}
			continue
		}
		if err := send(pid, syscall.SIGTERM); err != nil {
			return true, err
		}
		stopping = pid
	}
	return true, err
}

// waitGone waits until no process, or another one than pid, runs in the directory.
func waitGone(ctx context.Context, dir string, pid int, limit time.Duration) (bool, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now, found, err := alive(dir)
		if err != nil || !found || now != pid {
			return true, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-timeout.C:
			return false, nil
		case <-tick.C:
		}
	}
}

func send(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	return nil
}

// SampleName is a file for the user to try, one of embedded.Entries.
const SampleName = "job.yaml"

// Purge removes the files of an `up` from a directory, and the directory if it is empty then. It refuses a directory that no `up` made.
// It reports whether there was any. No process may run there.
func Purge(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("--dir: %w", err)
	}
	if !ours(dir, entries) {
		return false, fmt.Errorf("--purge: %s does not look like a directory of berth up (it has no version file of one): nothing was removed", dir)
	}
	var foreign []string
	for _, entry := range entries {
		if !slices.Contains(embedded.Entries, entry.Name()) {
			foreign = append(foreign, entry.Name())
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return true, fmt.Errorf("--purge: %w", err)
		}
	}
	if len(foreign) > 0 {
		return true, fmt.Errorf("--purge: the data is removed, but %s stays: berth did not make %s in it", dir, strings.Join(foreign, ", "))
	}
	return true, os.Remove(dir)
}

// ours reports whether an `up` made the directory: it has the control plane's version file, or, after a failed start, only known files.
func ours(dir string, entries []os.DirEntry) bool {
	if data, err := os.ReadFile(filepath.Join(dir, "version")); err == nil {
		return strings.HasPrefix(string(data), "berth-controlplane/")
	}
	signed := false
	for _, entry := range entries {
		if !slices.Contains(embedded.Entries, entry.Name()) {
			return false
		}
		signed = signed || entry.Name() == recordName || entry.Name() == "lock"
	}
	return signed
}
