// Command berth queues, admits, places and runs batch and AI jobs on Kubernetes.
package main

import (
	"os"

	"github.com/berth-project/berth/internal/cli"
	"github.com/berth-project/berth/internal/metrics"
)

// The Makefile and the Dockerfile set these.
var (
	version      = "dev"
	commit, date string
)

func main() {
	os.Exit(cli.Main(metrics.Build{Version: version, Commit: commit, Date: date}, os.Args, os.Stdout, os.Stderr))
}
