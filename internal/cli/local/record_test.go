package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// A shorter record leaves nothing of a longer one behind.
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

// The moment between taking the lock and writing the record.
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

func TestFreePort(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if port < firstPort || port >= lastPort {
		t.Errorf("port %d", port)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	_ = listener.Close()
}

func TestProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		writes []string
		want   string
	}{
		"lines":              {[]string{"one\n", "two\nthree\n"}, "one\ntwo\nthree\n"},
		"pieces":             {[]string{"o", "ne\nt", "wo\n"}, "one\ntwo\n"},
		"complaint":          {[]string{"one\nerror: x\n  log\n", "more\n"}, "one\n"},
		"complaint in parts": {[]string{"one\ner", "ror: x\n"}, "one\n"},
		"the word elsewhere": {[]string{"an error: x\n"}, "an error: x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			p := &progress{next: &out}
			for _, w := range tc.writes {
				if n, err := fmt.Fprint(p, w); n != len(w) || err != nil {
					t.Fatalf("wrote %d of %q: %v", n, w, err)
				}
			}
			if out.String() != tc.want {
				t.Errorf("got %q, want %q", out.String(), tc.want)
			}
		})
	}
}
