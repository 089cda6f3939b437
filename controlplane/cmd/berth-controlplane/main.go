// Command berth-controlplane is a whole Kubernetes control plane in one file: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler and KWOK nodes, with a supervisor that runs them together.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/berth-project/berth/controlplane/program"
	"github.com/berth-project/berth/controlplane/supervise"
)

const usage = `berth-controlplane is a Kubernetes control plane in one file. Everything listens on 127.0.0.1 only.

Usage:
  berth-controlplane up --dir DIR [flags]   run etcd, the API server, the controllers, the scheduler and simulated nodes
  berth-controlplane PROGRAM [flags]        run one of them: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok
  berth-controlplane --version

A link named like a program behaves as that program, so a directory with links named etcd and kube-apiserver can be used as
KUBEBUILDER_ASSETS. "berth-controlplane up --help" and "berth-controlplane PROGRAM --help" list the flags.
`

func main() {
	os.Exit(run(os.Args))
}

// run picks what to be from the name that the binary was called by, or else from its first argument.
func run(args []string) int {
	name := filepath.Base(args[0])
	if slices.Contains(program.Names(), name) {
		code, _ := program.Run(name, args)
		return code
	}
	if len(args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	switch args[1] {
	case "up":
		return supervise.Main(args[2:], os.Stdin, os.Stdout, os.Stderr)
	case "--version", "-version", "version":
		fmt.Println(supervise.Version())
		return 0
	case "--help", "-help", "-h", "help":
		fmt.Print(usage)
		return 0
	}
	if code, ok := program.Run(args[1], args[1:]); ok {
		return code
	}
	fmt.Fprintf(os.Stderr, "error: unknown program %q: use up, or one of %v\n", args[1], program.Names())
	return 2
}
