// Package node simulates the nodes of the control plane and their kubelets, with KWOK: nodes that are Ready unless an annotation makes them
// fail, and pods that run for as long as an annotation says.
package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/log"

	"github.com/berth-project/berth/controlplane/capacity"
	"github.com/berth-project/berth/controlplane/simnode"
)

const (
	kwokVersion = "v0.8.0"
	podCIDR     = "10.64.0.1/10" // addresses of simulated pods; they do not answer
)

// Main runs the simulated nodes until SIGTERM or SIGINT and returns the exit code: 0 after a signal, 1 if it could not start, 2 for a
// wrong command line.
func Main(args []string) int {
	flags := flag.NewFlagSet("kwok", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server (required)")
	count := flags.Int("nodes", 0, "how many nodes to make; nodes that others make are simulated as well")
	levels := flags.String("topology", "", "make nodes in levels instead, such as block=2,rack=4,host=8")
	size := flags.String("node-capacity", capacity.Default, "what each node has")
	version := flags.String("kubelet-version", "", "the version that nodes report")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	resources, err := capacity.Parse(*size)
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: --node-capacity: %v\n", err)
		return 2
	}
	nodes := fleet{nodes: simnode.Plain(*count), capacity: resources, version: *version}
	if *levels != "" {
		topology, err := simnode.ParseTopology(*levels)
		if err != nil {
			fmt.Fprintf(os.Stderr, "error: --topology: %v\n", err)
			return 2
		}
		nodes.nodes, nodes.levels = topology.Nodes(), topology.Labels()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *kubeconfig, nodes); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, kubeconfig string, nodes fleet) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "berth-controlplane/kwok"
	config.QPS = -1 // no limit: the API server is local and has no other users
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := nodes.sync(ctx, client, time.Now()); err != nil {
		return err
	}
	go heartbeats(ctx, client)
	controller, err := newController(client, nodes)
	if err != nil {
		return err
	}
	if err := controller.Start(log.NewContext(ctx, log.NewLogger(os.Stderr, log.LevelWarn))); err != nil {
		return fmt.Errorf("start KWOK: %w", err)
	}
	if err := followFailures(ctx, client, controller.ListNodes); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func newController(client kubernetes.Interface, nodes fleet) (*controllers.Controller, error) {
	local, err := stages()
	if err != nil {
		return nil, err
	}
	var controller *controllers.Controller
	isManaged := func(name string) bool {
		_, found := controller.GetNodeCache().Get(name)
		return found
	}
	controller, err = controllers.NewController(controllers.Config{
		Clock:                     clock.RealClock{},
		RESTClient:                client.CoreV1().RESTClient(),
		TypedClient:               responsive{client},
		ManageAllNodes:            true,
		CIDR:                      podCIDR,
		LocalStages:               local,
		PodPlayStageParallelism:   8,
		NodePlayStageParallelism:  2,
		PodsOnNodeSyncParallelism: 2,
		NodeLeaseDurationSeconds:  0, // see heartbeats
		ID:                        "berth-controlplane",
		FuncMap:                   functions(nodes, isManaged, time.Now),
	})
	return controller, err
}
