package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/local"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/simnode"
	"github.com/berth-project/berth/internal/metrics"
)

const upHelp = `Starts a Kubernetes control plane of its own with simulated nodes, installs Berth in it and runs the manager, all on 127.0.0.1.
It runs until Ctrl-C, or in the background with --detach until "berth down". The data stays in the directory and is used again.
A directory that another user could have prepared is refused: it and what Berth keeps in it must be yours, be no symbolic link, and not be
writable by others.

Nothing is pulled and no container runs: a pod on a simulated node runs for the seconds in its annotation berth.dev/run-seconds
(default 2), and ends with the code in berth.dev/exit-code (default 0).

  berth up --detach
  export KUBECONFIG=~/.berth/kubeconfig
  kubectl get nodes

  berth up --dir /tmp/big --nodes 100 --node-capacity cpu=64,memory=256Gi,nvidia.com/gpu=8

--topology makes nodes in levels, the broadest first and the hosts last. Each node has a label for each level, such as
cloud.provider.com/topology-rack, whose value is the name of the node down to that level: rack b1-r2 is in block b1 and has the host
b1-r2-h03. zone and region are the labels topology.kubernetes.io/zone and .../region; any other label can be given in full. The file
topology.yaml in the directory has a Topology of these levels and a ResourceFlavor that is placed by it, to be applied or copied.

  berth up --topology block=2,rack=4,host=8
  kubectl apply -f ~/.berth/topology.yaml

  berth up --topology example.com/hall=2,rack=4,host=8

The nodes are those of the latest start: other flags replace them, and the pods of nodes that are gone are deleted. A node fails, as a
machine that loses its network does, while its annotation berth.dev/simulated-failure is "true", and recovers without it:

  kubectl annotate node b1-r2-h03 berth.dev/simulated-failure=true
  kubectl annotate node b1-r2-h03 berth.dev/simulated-failure-`

// up is the command line of `berth up`.
type up struct {
	build        metrics.Build
	dir          string
	port         int
	portReserved bool
	nodes        int
	topology     string
	levels       simnode.Topology // of topology
	nodeCapacity string
	noManager    bool
	noNodes      bool
	detach       bool
	logLevel     string
	settings     settings
	addresses    addresses
	dashboard    dashboard
}

func newUp(build metrics.Build) *cobra.Command {
	u := &up{build: build}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "run a control plane with simulated nodes, and Berth in it",
		Long:  upHelp,
		RunE:  func(cmd *cobra.Command, _ []string) error { return u.run(cmd) },
	}
	flags := cmd.Flags()
	dirFlag(flags, &u.dir)
	flags.IntVar(&u.port, "port", 0, "port of the API server on 127.0.0.1; 0 takes a free one")
	flags.BoolVar(&u.portReserved, "port-reserved", false, "the program that runs this one has reserved --port, and shares it (SO_REUSEPORT)")
	_ = flags.MarkHidden("port-reserved") // it is for programs
	flags.IntVar(&u.nodes, "nodes", 4, "how many nodes to simulate")
	flags.StringVar(&u.topology, "topology", "",
		"simulate nodes in labelled levels instead, such as block=2,rack=4,host=8: 2 blocks of 4 racks of 8 hosts")
	flags.StringVar(&u.nodeCapacity, "node-capacity", "cpu=32,memory=128Gi,nvidia.com/gpu=8", "what each node has")
	flags.BoolVar(&u.noNodes, "no-nodes", false, "make no nodes (nodes that you make yourself are simulated all the same)")
	flags.BoolVar(&u.noManager, "no-manager", false, "run the control plane alone and install nothing in it")
	flags.BoolVar(&u.detach, "detach", false, "return once everything is ready, and leave it running until berth down")
	u.settings.add(flags)
	u.addresses.add(flags, "a free port", "a free port", "a free port")
	u.dashboard.add(flags)
	logFlag(flags, &u.logLevel)
	return cmd
}

func (u *up) run(cmd *cobra.Command) error {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	cfg, err := u.config(stderr)
	if err != nil {
		return err
	}
	if u.topology != "" && (cmd.Flags().Changed("nodes") || u.noNodes) {
		return cluster.Usage("--topology: it says how many nodes there are: leave out --nodes and --no-nodes")
	}
	if err := local.Occupied(cfg.Plane.Dir); err != nil {
		return err
	}
	if u.detach {
		return detach(ctx, cmd, cfg.Plane.Dir, func(r local.Record) { u.ready(stdout, r) })
	}
	fmt.Fprintf(stderr, "berth %s: starting a Kubernetes control plane in %s\n", u.build.Version, cfg.Plane.Dir)
	cfg.OnReady = func(r local.Record) {
		u.ready(stdout, r)
		fmt.Fprintln(stderr, "It stops on Ctrl-C.")
	}
	if err := local.Run(ctx, cfg); err != nil {
		return misuse(err)
	}
	fmt.Fprintln(stderr, "stopped")
	return nil
}

// config checks the command line before anything is started.
func (u *up) config(stderr io.Writer) (local.Config, error) {
	dir, err := expand(u.dir)
	if err != nil {
		return local.Config{}, err
	}
	if u.port < 0 || u.port > maxPort {
		return local.Config{}, cluster.Usage("--port %d: must be from 0 to %d", u.port, maxPort)
	}
	if u.portReserved && u.port == 0 {
		return local.Config{}, cluster.Usage("--port-reserved: name the port that is reserved: --port")
	}
	if u.nodes < 0 {
		return local.Config{}, cluster.Usage("--nodes %d: must not be negative", u.nodes)
	}
	if u.topology != "" {
		if u.levels, err = simnode.ParseTopology(u.topology); err != nil {
			return local.Config{}, cluster.Usage("--topology: %w", err)
		}
	}
	o, groups, err := u.settings.load()
	if err != nil {
		return local.Config{}, err
	}
	if err := u.addresses.apply(&o); err != nil {
		return local.Config{}, err
	}
	if err := u.dashboard.apply(&o, "127.0.0.1", os.Getenv); err != nil {
		return local.Config{}, err
	}
	log, err := newLog(stderr, u.logLevel)
	if err != nil {
		return local.Config{}, err
	}
	return local.Config{
		Plane: embedded.Config{
			Dir: dir, Port: u.port, PortReserved: u.portReserved, Nodes: u.countedNodes(), Topology: u.topology,
			NodeCapacity: u.nodeCapacity, NoNodes: u.noNodes || u.nodes == 0, Stderr: stderr,
		},
		Build: u.build, NoManager: u.noManager, Options: o, Reload: u.settings.reload(), Groups: groups, Log: log,
	}, nil
}

// countedNodes is the number of nodes without a topology; 0 with one.
func (u *up) countedNodes() int {
	if u.topology != "" {
		return 0
	}
	return u.nodes
}

// misuse turns the control plane's errors about flags that only it can check into usage errors.
func misuse(err error) error {
	for _, flag := range []string{"--node-capacity", "--nodes", "--topology"} {
		if strings.HasPrefix(err.Error(), flag) {
			return cluster.UsageError{Err: err}
		}
	}
	return err
}

// ready lists the addresses of the running parts, and commands to try.
func (u *up) ready(stdout io.Writer, r local.Record) {
	nodes := fmt.Sprintf("%d simulated nodes", u.nodes)
	switch {
	case u.topology != "":
		nodes = fmt.Sprintf("%d simulated nodes (%s)", u.levels.Count(), u.levels)
	case u.noNodes || u.nodes == 0:
		nodes = "no nodes"
	}
	dir, _ := expand(u.dir) // it was checked before
	fmt.Fprintf(stdout, "Ready: Kubernetes at %s with %s\n\n", r.Server, nodes)
	try := []string{"export KUBECONFIG=" + r.Kubeconfig, "kubectl get nodes" + u.columns()}
	if u.noManager {
		try = append(try, "berth manager --install --leader-elect=false")
	} else {
		try = append(try, "kubectl get clusterqueues,localqueues,workloads -A")
	}
	if u.topology != "" {
		try = append(try, "kubectl apply -f "+filepath.Join(dir, local.TopologyName))
	}
	for _, line := range append(try, "berth down"+forDir(dir)) {
		fmt.Fprintf(stdout, "  %s\n", line)
	}
	if r.Dashboard != "" {
		fmt.Fprintf(stdout, "\nThe dashboard is at http://%s\n", r.Dashboard)
	}
	fmt.Fprintln(stdout)
}

// columns shows the domains of nodes in the output of kubectl get nodes.
func (u *up) columns() string {
	if len(u.levels) < 2 {
		return ""
	}
	return " -L " + strings.Join(u.levels.Labels()[:len(u.levels)-1], ",")
}

// interrupted reports whether the user ended the command.
func interrupted(ctx context.Context) bool { return ctx.Err() != nil }
