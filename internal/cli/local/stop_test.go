package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStop(t *testing.T) {
	for name, tc := range map[string]struct {
		stubborn bool
		limit    time.Duration
		messages string
	}{
		"ends by itself": {limit: 20 * time.Second},
		"is killed":      {stubborn: true, limit: 200 * time.Millisecond, messages: "process %d did not stop within 200ms: killing it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			pid := holder(t, dir, tc.stubborn)
			var messages bytes.Buffer
			if ran, err := Stop(context.Background(), dir, tc.limit, &messages); !ran || err != nil {
				t.Errorf("Stop: %v, %v", ran, err)
			}
			want := tc.messages
			if want != "" {
				want = fmt.Sprintf(want, pid)
			}
			if messages.String() != want {
				t.Errorf("messages %q, want %q", messages.String(), want)
			}
			if _, found, err := Find(dir); found || err != nil {
				t.Errorf("it still runs: %v, %v", found, err)
			}
			if ran, err := Stop(context.Background(), dir, tc.limit, &messages); ran || err != nil {
				t.Errorf("second Stop: %v, %v", ran, err)
			}
		})
	}
}

func TestStopNothing(t *testing.T) {
	if ran, err := Stop(context.Background(), filepath.Join(t.TempDir(), "missing"), time.Second, &bytes.Buffer{}); ran || err != nil {
		t.Errorf("Stop: %v, %v", ran, err)
	}
}

func TestStopIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	holder(t, dir, true)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if _, err := Stop(ctx, dir, time.Minute, &bytes.Buffer{}); !errors.Is(err, cause) {
		t.Errorf("Stop: %v, want %v", err, cause)
	}
}

func TestPurge(t *testing.T) {
	const signed = "berth-controlplane/1 kubernetes v1.37.1\n"
	for name, tc := range map[string]struct {
		files   map[string]string
		problem string
		stay    []string // nil when the directory is gone
	}{
		"all of an up": {files: map[string]string{
			"version": signed, "berth.json": "", "lock": "", "kubeconfig": "x", "etcd/member/x": "x", "pki/ca.crt": "x", "logs/berth.log": "x", "job.yaml": "x",
		}},
		"of another version":      {files: map[string]string{"version": "berth-controlplane/0 x\n", "etcd/x": "x"}},
		"a start that failed":     {files: map[string]string{"berth.json": "", "logs/berth.log": "x"}},
		"something else's folder": {files: map[string]string{"logs/x": "x"}, problem: "does not look like", stay: []string{"logs"}},
		"something else's version": {
			files: map[string]string{"version": "1.0\n", "lock": "", "etcd/x": ""}, problem: "does not look like", stay: []string{"etcd", "lock", "version"},
		},
		"unsigned, with others in it": {files: map[string]string{"lock": "", "src/x": ""}, problem: "does not look like", stay: []string{"lock", "src"}},
		"ours, with others in it":     {files: map[string]string{"version": signed, "mine.yaml": "x"}, problem: "did not make mine.yaml", stay: []string{"mine.yaml"}},
		"empty":                       {files: map[string]string{}, problem: "does not look like", stay: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for path, content := range tc.files {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Purge(dir)
			if tc.problem == "" && err != nil || tc.problem != "" && (err == nil || !strings.Contains(err.Error(), tc.problem)) {
				t.Errorf("error %v, want one with %q", err, tc.problem)
			}
			entries, err := os.ReadDir(dir)
			if tc.stay == nil {
				if !os.IsNotExist(err) {
					t.Errorf("the directory is still there: %v, %v", entries, err)
				}
				return
			}
			got := []string{}
			for _, e := range entries {
				got = append(got, e.Name())
			}
			if !slices.Equal(got, tc.stay) {
				t.Errorf("what stays is %v, want %v", got, tc.stay)
			}
		})
	}
	if removed, err := Purge(filepath.Join(t.TempDir(), "missing")); removed || err != nil {
		t.Errorf("a missing directory: %v, %v", removed, err)
	}
}

// A link to another place is removed; its target is not.
func TestPurgeFollowsNoLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	precious := filepath.Join(elsewhere, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "version"), []byte("berth-controlplane/1 x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	if _, err := Purge(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}
