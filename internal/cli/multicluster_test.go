package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/listen"
)

// TestMachineStops: clusters may start while all are stopped, and every port is released once.
func TestMachineStops(t *testing.T) {
	m := &machine{dir: t.TempDir(), ports: map[string]*listen.Reservation{}}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	var starting sync.WaitGroup
	for i := range 50 {
		starting.Go(func() {
			if _, err := m.port(fmt.Sprint("w", i)); err != nil {
				t.Error(err)
			}
		})
	}
	for range 10 {
		if err := m.stopAll(cmd); err != nil {
			t.Error(err)
		}
	}
	starting.Wait()
	port, err := m.port("w0")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.stopAll(cmd); err != nil {
		t.Error(err)
	}
	if len(m.ports) > 0 {
		t.Errorf("the ports %v are kept", m.ports)
	}
	again, err := listen.Reserve(port)
	if err != nil {
		t.Fatalf("port %d is not released: %v", port, err)
	}
	again.Release()
}

// TestMachineKill: an error about the record does not also say that nothing runs.
func TestMachineKill(t *testing.T) {
	m := &machine{dir: t.TempDir()}
	if err := os.Mkdir(m.of("w1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.Kill("w1"); err == nil || !strings.HasPrefix(err.Error(), "nothing runs in ") {
		t.Errorf("without a process: %v", err)
	}
	if err := os.Symlink("elsewhere", filepath.Join(m.of("w1"), "berth.json")); err != nil {
		t.Fatal(err)
	}
	if err := m.Kill("w1"); err == nil || strings.Contains(err.Error(), "nothing runs") {
		t.Errorf("with a record that cannot be read: %v", err)
	}
}
