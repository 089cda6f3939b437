package ctl

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// asBerth has the test program run a command line, as berth does, instead of tests.
const asBerth = "BERTH_TEST_RUN_AS_BERTH"

func TestMain(m *testing.M) {
	line := os.Getenv(asBerth)
	if line == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{Use: "berth", SilenceErrors: true, SilenceUsage: true}
	addTo(root, &tool{version: "test", now: time.Now})
	root.SetArgs(strings.Fields(line))
	root.SetOut(os.Stdout)
	root.SetErr(os.Stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}
