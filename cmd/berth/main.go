// Command berth queues, admits, places and runs batch and AI jobs on Kubernetes.
package main

import (
	"os"

	"github.com/berth-project/berth/internal/cli"
)

// version is set by the Makefile.
var version = "dev"

func main() { os.Exit(cli.Main(version, os.Args, os.Stdout, os.Stderr)) }
