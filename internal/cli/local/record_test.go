package local

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/options"
)

func TestAcquire(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	if _, found, err := Find(dir); found || err != nil {
		t.Errorf("Find before: %v, %v", found, err)
	}
	record := Record{PID: 42, Version: "v1", Server: "https://127.0.0.1:1", Kubeconfig: "/k", WebhookPort: 7}
	held, err := acquire(dir, record)
	if err != nil {
		t.Fatal(err)
	}
	found, ok, err := Find(dir)
	if diff := cmp.Diff(record, found); !ok || err != nil || diff != "" {
		t.Errorf("Find: %v, %v, (-want +got)\n%s", ok, err, diff)
	}
	if _, err := acquire(dir, Record{PID: 43}); err == nil || !strings.Contains(err.Error(), "already runs in "+dir+" (pid 42, https://127.0.0.1:1)") {
		t.Errorf("second acquire: %v", err)
	}
	var told []Record
	if err := held.ready(record, func(r Record) { told = append(told, r) }); err != nil {
		t.Fatal(err)
	}
	record.Ready = true
	if found, _, _ := Find(dir); found != record || len(told) != 1 || told[0] != record {
		t.Errorf("found %+v, told %+v, want %+v", found, told, record)
	}
	held.release()
	if _, found, err := Find(dir); found || err != nil {
		t.Errorf("Find after: %v, %v", found, err)
	}
	again, err := acquire(dir, Record{PID: 44})
	if err != nil {
		t.Fatal(err)
	}
	again.release()
}

// A shorter record replaces all of a longer one.
func TestRecordIsReplaced(t *testing.T) {
	dir := t.TempDir()
	held, err := acquire(dir, Record{PID: 1, Version: strings.Repeat("long", 100)})
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	if err := held.write(Record{PID: 2}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, recordName)); err != nil || string(data) != `{"pid":2,"version":"","ready":false}`+"\n" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestOccupied(t *testing.T) {
	for name, tc := range map[string]struct {
		record Record
		want   string
	}{
		"starting": {Record{PID: 42}, "berth is starting in DIR (pid 42): wait for it, or choose another --dir"},
		"running": {
			Record{PID: 42, Server: "S", Kubeconfig: "K"},
			"berth already runs in DIR (pid 42, S): use it (export KUBECONFIG=K), stop it (berth down --dir DIR), or choose another --dir",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := Occupied(dir); err != nil {
				t.Errorf("a free directory: %v", err)
			}
			held, err := acquire(dir, tc.record)
			if err != nil {
				t.Fatal(err)
			}
			defer held.release()
			if err := Occupied(dir); err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// The time between locking the file and writing the record.
func TestFindWithoutRecord(t *testing.T) {
	dir := t.TempDir()
	held, err := acquire(dir, Record{PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	if err := held.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if record, found, err := Find(dir); record != (Record{}) || !found || err != nil {
		t.Errorf("Find: %+v, %v, %v", record, found, err)
	}
}

func TestAcquireFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"a file": file, "below a file": filepath.Join(file, "x"), "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			if _, err := acquire(dir, Record{}); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line", err)
			}
		})
	}
}

// Another program tries to take the manager's ports between their choice and the start of its listeners.
func TestPortsOfManagerAreReserved(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	record := Record{Kubeconfig: kubeconfig}
	cfg, release, err := managerConfig(&Config{Options: options.Default()}, &record)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	addresses := []string{
		net.JoinHostPort(cfg.Options.Webhook.Host, strconv.Itoa(cfg.Options.Webhook.Port)), record.Health, record.Metrics, cfg.Options.VisibilityAddress,
		cfg.Options.Trainer.StatusAddress,
	}
	for _, address := range addresses {
		if !cfg.Reserved[address] {
			t.Errorf("%s is not reserved", address)
		}
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			t.Errorf("a neighbour listens on %s", address)
		}
	}
	chosen := options.Default()
	chosen.Metrics.Address = "127.0.0.1:1"
	cfg, second, err := managerConfig(&Config{Options: chosen}, &record)
	if err != nil {
		t.Fatal(err)
	}
	defer second()
	if cfg.Reserved["127.0.0.1:1"] {
		t.Error("the address that the user chose is shared with other programs of the user")
	}
}

// A directory that another user could have prepared is not locked, and a record in it that is a link names no process to stop.
func TestAcquireForeign(t *testing.T) {
	root := t.TempDir()
	for name, prepare := range map[string]func(dir string) error{
		"open to all": func(dir string) error { return os.Chmod(dir, 0o777) },
		"linked keys": func(dir string) error {
			if err := os.RemoveAll(filepath.Join(dir, "pki")); err != nil {
				return err
			}
			return os.Symlink(root, filepath.Join(dir, "pki"))
		},
		"linked record": func(dir string) error { return os.Symlink(filepath.Join(root, "else"), filepath.Join(dir, recordName)) },
	} {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := prepare(dir); err != nil {
			t.Fatal(err)
		}
		if held, err := acquire(dir, Record{PID: 1}); err == nil || !strings.Contains(err.Error(), "--dir: ") {
			t.Errorf("%s: taken as %+v: %v", name, held, err)
		}
		if _, err := os.Lstat(filepath.Join(root, "else")); err == nil {
			t.Errorf("%s: a file was made through a link", name)
		}
	}
	if _, found, err := Find(filepath.Join(root, "linked record")); found || err == nil {
		t.Errorf("a record that is a link: %v, %v", found, err)
	}
}
