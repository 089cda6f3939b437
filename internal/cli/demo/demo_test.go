package demo

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"

	"github.com/berth-project/berth/internal/cli/local"
)

// TestRun plays a short scenario on a real control plane: a team borrows, and the owner of the quota returns.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	dir := t.TempDir()
	var out bytes.Buffer
	log := func(io.Writer) (logr.Logger, error) { return testr.New(t), nil }
	err := run(context.Background(), Config{Dir: dir, Version: "test", Out: &out, Log: log}, []step{
		{0, "team-a borrows", []order{{"team-a", "sweep", "low", 24, 3 * time.Second}}},
		{2 * time.Second, "team-b returns", []order{{"team-b", "train", "normal", 16, time.Second}}},
	})
	text := out.String()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{
		"starting kube-apiserver\n", "» team-b returns\n", "team-a/sweep     24 GPUs  stopping: Preempted to accommodate a workload due to reclamation within the cohort",
		"team-b/train     16 GPUs  finished\n", "team-a/sweep     24 GPUs  finished\n", "team-a 24 of 16 (8 borrowed); team-b 16 of 16. Preemptions: 1.\n",
		"API writes by Berth: ", ", the same.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if strings.Contains(text, "stopped after") {
		t.Error("it tells how the control plane stops")
	}
	if _, found, err := local.Find(dir); found || err != nil {
		t.Errorf("something still runs (%v)", err)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// A demo that cannot start returns the reason.
func TestRunFails(t *testing.T) {
	t.Setenv("BERTH_CONTROLPLANE", "/nonexistent")
	err := Run(context.Background(), Config{Dir: t.TempDir(), Out: io.Discard, Log: func(io.Writer) (logr.Logger, error) { return logr.Discard(), nil }})
	if err == nil || !strings.Contains(err.Error(), "BERTH_CONTROLPLANE=/nonexistent is not a program") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}
