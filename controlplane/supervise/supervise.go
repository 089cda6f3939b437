// Package supervise runs a Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and simulated nodes,
// each as a child process of this one, in one directory, on 127.0.0.1 only.
//
//	DIR/lock         held while a supervisor runs there: its pid and the address of its API server
//	DIR/version      the version that wrote the directory; data of another version is not touched
//	DIR/pki/         certificates, keys, tokens and the kubeconfigs of the children, made at the first start
//	DIR/etcd/        the data
//	DIR/logs/        one log for each child, of the latest run
//	DIR/kubeconfig   the administrator's, written once everything is ready
//
// A child ends when its standard input, a pipe from the supervisor, is closed, which happens even after kill -9, so no child outlives the
// supervisor. If a child ends by itself, all are stopped and the error names it.
package supervise

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-project/berth/controlplane/capacity"
	"github.com/berth-project/berth/controlplane/simnode"
)

// The names of the programs; a link to the binary with such a name is that program.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
)

// KubernetesVersion is the built-in release.
const KubernetesVersion = "v1.37.1"

// format is the version of the directory's layout. It is raised when data of an earlier layout can no longer be used.
const format = "berth-controlplane/1"

// ChildEnv is set in the environment of children: they watch their standard input.
const ChildEnv = "BERTH_CONTROLPLANE_CHILD"

// Version is the line in DIR/version, and the output of --version.
func Version() string { return format + " kubernetes " + KubernetesVersion }

// options is the command line of "up".
type options struct {
	dir           string
	port          int
	portReserved  bool
	nodes         []simnode.Node
	count         int    // of nodes without a topology
	topology      string // as given
	nodeCapacity  string
	resources     corev1.ResourceList // parsed nodeCapacity
	noNodes       bool
	bare          bool
	exitWithStdin bool
	startTimeout  time.Duration
}

const help = `Runs a Kubernetes control plane with simulated nodes in a directory, until SIGTERM or SIGINT.
Prints one JSON line on standard output when everything is ready, and progress on standard error. Use it with
  kubectl --kubeconfig DIR/kubeconfig get nodes

Pods on the nodes run for the seconds in their annotation berth.dev/run-seconds (default 2; for ever with restartPolicy Always) and then
exit with the code in berth.dev/exit-code (default 0). A node fails while its annotation berth.dev/simulated-failure is "true".
Data survives a restart, but not a crash of the machine: etcd does not fsync.

Usage: berth-controlplane up --dir DIR [flags]

`

// Main is "berth-controlplane up". It returns the exit code: 0 after a clean stop, 1 when something failed, 2 for a wrong command line.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	opts, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "error: %v\n", err)
		return 2
	}
	// The reader of the output may have ended; that must not kill the supervisor before it has stopped its children.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	// A second signal ends the supervisor at once; the children follow.
	context.AfterFunc(ctx, stop)
	if opts.exitWithStdin {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	if err := up(ctx, opts, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return 1
	}
	return 0
}

// gnu rewrites the messages of package flag, which writes flags with one dash.
var gnu = strings.NewReplacer("flag provided but not defined: -", "unknown flag --", "flag needs an argument: -", "missing value of flag --",
	" for flag -", " for flag --", ": parse error", "")

func parse(args []string, stdout io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&opts.dir, "dir", "", "directory for data, certificates, logs and the kubeconfig (required)")
	flags.IntVar(&opts.port, "port", 0, "port of the API server on 127.0.0.1; 0 takes a free one")
	flags.BoolVar(&opts.portReserved, "port-reserved", false, "whoever starts this has reserved --port, and shares it (SO_REUSEPORT)")
	flags.IntVar(&opts.count, "nodes", 4, "how many nodes to simulate")
	flags.StringVar(&opts.topology, "topology", "",
		"simulate nodes in labelled levels instead, such as block=2,rack=4,host=8: 2 blocks of 4 racks of 8 hosts")
	flags.StringVar(&opts.nodeCapacity, "node-capacity", capacity.Default, "what each node has; pods=110 unless given")
	flags.BoolVar(&opts.noNodes, "no-nodes", false, "make no nodes (nodes that you make yourself are simulated all the same)")
	flags.BoolVar(&opts.bare, "bare", false, "only etcd and the API server: no controllers, scheduler or nodes; for tests")
	flags.BoolVar(&opts.exitWithStdin, "exit-with-stdin", false, "stop when standard input ends, so that it ends with the process that started it")
	flags.DurationVar(&opts.startTimeout, "start-timeout", 2*time.Minute, "give up when it is not ready by then")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, help)
			flags.SetOutput(stdout)
			flags.PrintDefaults()
			return opts, err
		}
		return opts, fmt.Errorf("%s: see berth-controlplane up --help", gnu.Replace(err.Error()))
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q: see berth-controlplane up --help", flags.Arg(0))
	}
	if opts.dir == "" {
		return opts, errors.New("--dir is missing: name a directory for the control plane's data")
	}
	if opts.port < 0 || opts.port > 65535 {
		return opts, fmt.Errorf("--port %d: must be from 0 to 65535", opts.port)
	}
	if opts.portReserved && opts.port == 0 {
		return opts, errors.New("--port-reserved: name the port that is reserved: --port")
	}
	if err := opts.chooseNodes(flags); err != nil {
		return opts, err
	}
	var err error
	if opts.resources, err = capacity.Parse(opts.nodeCapacity); err != nil {
		return opts, fmt.Errorf("--node-capacity: %w", err)
	}
	opts.dir, err = filepath.Abs(opts.dir)
	return opts, err
}

// chooseNodes sets the nodes that the flags describe.
func (o *options) chooseNodes(flags *flag.FlagSet) error {
	if o.count < 0 || o.count > simnode.MaxNodes {
		return fmt.Errorf("--nodes %d: must be from 0 to %d", o.count, simnode.MaxNodes)
	}
	if o.topology == "" {
		if !o.noNodes {
			o.nodes = simnode.Plain(o.count)
		}
		return nil
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "nodes" })
	if given || o.noNodes {
		return errors.New("--topology: it says how many nodes there are: leave out --nodes and --no-nodes")
	}
	topology, err := simnode.ParseTopology(o.topology)
	if err != nil {
		return fmt.Errorf("--topology: %w", err)
	}
	o.nodes = topology.Nodes()
	return nil
}

// writeFile replaces a file atomically.
func writeFile(path string, data []byte) error {
	temporary := path + ".new"
	if err := writeOwned(temporary, data); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
