package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// dir is a control plane's directory, by its absolute path.
type dir string

func (d dir) path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}
func (d dir) kubeconfig() string     { return d.path("kubeconfig") }
func (d dir) log(name string) string { return d.path("logs", name+".log") }

// holder is the content of DIR/lock: the supervisor that runs there.
type holder struct {
	PID    int    `json:"pid"`
	Server string `json:"server"`
}

// lock makes the directory, refuses one that another user could have prepared, and locks it for this process until the file is closed. If
// another supervisor runs there it fails at once and names it.
func (d dir) lock() (*os.File, error) {
	if err := Private(string(d)); err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	file, err := OpenOwned(d.path("lock"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	// A process that only checks for a running supervisor holds the lock for a moment.
	for range 10 {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, file.Truncate(0)
		}
		time.Sleep(20 * time.Millisecond)
	}
	defer func() { _ = file.Close() }()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	var other holder
	if json.NewDecoder(file).Decode(&other) != nil {
		return nil, fmt.Errorf("a control plane is starting in %s: wait for it, or choose another --dir", d)
	}
	return nil, fmt.Errorf("a control plane already runs in %s (pid %d, %s): use it, stop it (berth down, or kill %d), or choose another --dir",
		d, other.PID, other.Server, other.PID)
}

// publish writes the holder into the lock file.
func publish(lock *os.File, who holder) error {
	data, err := json.Marshal(who)
	if err != nil {
		return err
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt(append(data, '\n'), 0)
	return err
}

// checkVersion refuses a directory of another version, and marks a new one.
func (d dir) checkVersion() error {
	path := d.path("version")
	data, err := readOwned(path)
	found := strings.TrimSpace(string(data))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(d.path("etcd")); errors.Is(err, fs.ErrNotExist) {
			return writeFile(path, []byte(Version()+"\n"))
		}
		found = "an unknown version (the file version is missing)"
	} else if err != nil {
		return err
	}
	if found != Version() {
		return fmt.Errorf("the data in %s is of %s, this is %s: remove it with berth down --purge, or choose another --dir", d, found, Version())
	}
	return nil
}

// readOwned is OpenOwned for reading a whole file.
func readOwned(path string) ([]byte, error) {
	file, err := OpenOwned(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(file)
}

// writeOwned is OpenOwned for writing a whole file.
func writeOwned(path string, data []byte) error {
	file, err := OpenOwned(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}
