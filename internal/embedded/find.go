package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// BinaryEnv names the control plane's binary, instead of a search for it.
	BinaryEnv = "BERTH_CONTROLPLANE"

	binaryName = "berth-controlplane"
	modulePath = "github.com/berth-project/berth"
)

// find returns the control plane's binary: from the environment, next to this program, in a test from bin/ of the source tree, or from
// the PATH.
func find() (string, error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		if !isProgram(path) {
			return "", fmt.Errorf("%s=%s is not a program: run make build, or unset it", BinaryEnv, path)
		}
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	candidates := []string{filepath.Join(filepath.Dir(self), binaryName)}
	if strings.HasSuffix(self, ".test") {
		if root, ok := moduleRoot(); ok {
			candidates = append(candidates, filepath.Join(root, "bin", binaryName))
		}
	}
	for _, path := range candidates {
		if isProgram(path) {
			return path, nil
		}
	}
	if path, err := exec.LookPath(binaryName); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("the program %s is missing (not at %s, nor on the PATH): run make build, or set %s to it",
		binaryName, strings.Join(candidates, " or "), BinaryEnv)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// moduleRoot returns the directory of Berth's go.mod above the working directory, which in a test is the package's.
func moduleRoot() (string, bool) {
	at, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		data, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if line, _, _ := bytes.Cut(data, []byte("\n")); err == nil && string(bytes.TrimSpace(line)) == "module "+modulePath {
			return at, true
		}
		parent := filepath.Dir(at)
		if parent == at {
			return "", false
		}
		at = parent
	}
}

// Running describes the control plane that runs in a directory.
type Running struct {
	PID    int    // SIGTERM stops it
	Server string // such as https://127.0.0.1:6443; empty with PID 0 during the start
}

// Find returns the control plane that runs in a directory, if one does. A missing directory has none.
func Find(dir string) (Running, bool, error) {
	file, err := OpenOwned(filepath.Join(dir, "lock"), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Running{}, false, nil
	}
	if err != nil {
		return Running{}, false, err
	}
	defer func() { _ = file.Close() }()
	// A shared lock is refused only while the control plane holds its own; closing the file releases the shared one.
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return Running{}, false, nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return Running{}, false, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	var found Running
	if err := json.NewDecoder(file).Decode(&found); err != nil {
		return Running{}, true, nil // it has not written its address yet
	}
	return found, true, nil
}
