// Package program runs one program of the control plane in this process, as if it had been started under its own name. The programs keep
// global state (flags, metrics, feature gates, loggers), so a process runs exactly one of them.
package program

import (
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on the programs' own /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info on the programs' own /metrics
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/berth-project/berth/controlplane/node"
	"github.com/berth-project/berth/controlplane/supervise"
)

// Names lists the programs in the order of their start.
func Names() []string {
	return []string{supervise.Etcd, supervise.APIServer, supervise.ControllerManager, supervise.Scheduler, supervise.Kwok}
}

// Run runs the named program with args (args[0] is its name) until it ends, and returns its exit code. ok is false if there is no such
// program. Some programs exit the process themselves.
func Run(name string, args []string) (code int, ok bool) {
	// The programs read os.Args themselves.
	os.Args = args
	switch name {
	case supervise.Etcd:
		dieWithParent()
		etcdmain.Main(args)
		return 0, true
	case supervise.APIServer:
		dieWithParent()
		return cli.Run(apiserver.NewAPIServerCommand()), true
	case supervise.ControllerManager:
		dieWithParent()
		return cli.Run(controllermanager.NewControllerManagerCommand()), true
	case supervise.Scheduler:
		dieWithParent()
		return cli.Run(scheduler.NewSchedulerCommand()), true
	case supervise.Kwok:
		dieWithParent()
		return node.Main(args[1:]), true
	}
	return 0, false
}

// dieWithParent ends this process with its supervisor, even after a crash: the supervisor holds the other end of the pipe that is the
// standard input, and never writes to it.
func dieWithParent() {
	if os.Getenv(supervise.ChildEnv) == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}
