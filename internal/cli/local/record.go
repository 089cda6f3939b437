package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berth-project/berth/internal/embedded"
)

// recordName is the file with the Record of the running process.
const recordName = "berth.json"

// Record is the content of DIR/berth.json. Addresses are empty until they are known.
type Record struct {
	PID         int    `json:"pid"` // SIGTERM stops it
	Version     string `json:"version"`
	Server      string `json:"server,omitempty"` // of the API server, such as https://127.0.0.1:6443
	Kubeconfig  string `json:"kubeconfig,omitempty"`
	Health      string `json:"healthAddress,omitempty"`
	Metrics     string `json:"metricsAddress,omitempty"`
	Dashboard   string `json:"dashboardAddress,omitempty"` // empty if it is off
	WebhookPort int    `json:"webhookPort,omitempty"`
	Ready       bool   `json:"ready"`
}

// Find returns the record of the process that runs in a directory; empty while that process writes it.
func Find(dir string) (Record, bool, error) {
	file, err := embedded.OpenOwned(filepath.Join(dir, recordName), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, err
	}
	defer file.Close()
	// A shared lock is refused only while another process holds the lock; closing the file releases the shared one.
	switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return Record{}, false, nil
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return Record{}, false, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	var found Record
	if err := json.NewDecoder(file).Decode(&found); err != nil {
		return Record{}, true, nil // it is being written; only the lock is certain
	}
	return found, true, nil
}

// Occupied is the error for a directory with a running process: it names the process and the way out. Nil without one.
func Occupied(dir string) error {
	other, found, err := Find(dir)
	if err != nil || !found {
		return err
	}
	if other.Server == "" {
		return fmt.Errorf("berth is starting in %s (pid %d): wait for it, or choose another --dir", dir, other.PID)
	}
	return fmt.Errorf("berth already runs in %s (pid %d, %s): use it (export KUBECONFIG=%s), stop it (berth down --dir %s), or choose another --dir",
		dir, other.PID, other.Server, other.Kubeconfig, dir)
}

// holding is a directory that this process has locked.
type holding struct {
	file   *os.File
	record Record
}

// acquire locks the directory, which is made if necessary, for this process.
func acquire(dir string, record Record) (*holding, error) {
	if dir == "" {
		return nil, errors.New("no directory to run in")
	}
	if err := embedded.Private(dir); err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	file, err := embedded.OpenOwned(filepath.Join(dir, recordName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	held := &holding{file: file}
	// A process that only checks for a running one holds the lock for a moment.
	for range 10 {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return held, held.write(record)
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = file.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	if err := Occupied(dir); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("berth was just stopping in %s: try again", dir)
}

// write replaces the record.
func (h *holding) write(record Record) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	h.record = record
	if err := h.file.Truncate(0); err != nil {
		return err
	}
	_, err = h.file.WriteAt(append(data, '\n'), 0)
	return err
}

// ready writes the record as usable, and calls tell.
func (h *holding) ready(record Record, tell func(Record)) error {
	record.Ready = true
	if err := h.write(record); err != nil {
		return err
	}
	if tell != nil {
		tell(record)
	}
	return nil
}

// release unlocks the directory. The empty file stays: removing it would let two processes lock two files.
func (h *holding) release() {
	_ = h.file.Truncate(0) // a record without a lock is ignored
	_ = h.file.Close()
}

// alive finds the process that runs in the directory: an `up`, or a control plane without one.
func alive(dir string) (pid int, found bool, err error) {
	record, found, err := Find(dir)
	if err != nil || found {
		return record.PID, found, err
	}
	plane, found, err := embedded.Find(dir)
	return plane.PID, found, err
}
