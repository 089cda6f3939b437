// Package embedded starts and stops the embedded control plane: a child process, berth-controlplane, that runs a whole Kubernetes (or,
// bare, only its API server) on 127.0.0.1. The control plane ends with the process that started it, even if that is killed.
package embedded

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Config configures a control plane. The zero value of every field but Dir is valid.
type Config struct {
	// Dir holds the data, certificates, logs and the kubeconfig; it is made if missing. Existing data is used again.
	Dir string
	// Port of the API server on 127.0.0.1; 0 takes a free one.
	Port int
	// PortReserved means that the caller has reserved Port, and lets programs of the same user share it (SO_REUSEPORT), until the control
	// plane has ended for the last time. Otherwise the control plane reserves it while it runs.
	PortReserved bool
	// Nodes is how many nodes to simulate; 0 means 4. See NoNodes.
	Nodes int
	// Topology simulates nodes in labelled levels instead of Nodes, such as "block=2,rack=4,host=8"; see simnode.ParseTopology.
	Topology string
	// NodeCapacity is the capacity of each node; the default is "cpu=32,memory=128Gi,nvidia.com/gpu=8".
	NodeCapacity string
	// NoNodes makes no nodes. Nodes of other creators are simulated all the same.
	NoNodes bool
	// Bare runs only etcd and the API server: no controllers, scheduler or nodes. Pods need no service account there.
	Bare bool
	// Stderr gets the progress, in plain lines; nil discards it.
	Stderr io.Writer
}

// args is the command line of "berth-controlplane".
func (c Config) args() []string {
	args := []string{"up", "--exit-with-stdin", "--dir", c.Dir, "--port", strconv.Itoa(c.Port)}
	if c.PortReserved {
		args = append(args, "--port-reserved")
	}
	if c.Nodes != 0 {
		args = append(args, "--nodes", strconv.Itoa(c.Nodes))
	}
	if c.Topology != "" {
		args = append(args, "--topology", c.Topology)
	}
	if c.NodeCapacity != "" {
		args = append(args, "--node-capacity", c.NodeCapacity)
	}
	if c.NoNodes {
		args = append(args, "--no-nodes")
	}
	if c.Bare {
		args = append(args, "--bare")
	}
	return args
}

// ControlPlane is a control plane that this process started.
type ControlPlane struct {
	ready struct {
		Kubeconfig, Server string
	}
	process *os.Process
	done    chan struct{}
	err     error // set before done is closed
}

// Start starts a control plane and returns once it can be used. ctx bounds the start only; Stop ends the control plane. The error is one
// line, or for a program that ended unexpectedly also the end of its log; no process is left then.
func Start(ctx context.Context, cfg Config) (*ControlPlane, error) {
	if cfg.Dir == "" {
		return nil, errors.New("no directory for the control plane: set Dir")
	}
	binary, err := find()
	if err != nil {
		return nil, err
	}
	command := exec.Command(binary, cfg.args()...)
	// A process group of its own: Ctrl-C reaches only this process, which stops the control plane when its own work is done.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The control plane ends with this pipe, and so with this process. No data is written to it.
	if _, err := command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	lastWords := &complaint{next: cfg.Stderr}
	command.Stderr = lastWords
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}

	plane := &ControlPlane{process: command.Process, done: make(chan struct{})}
	started := make(chan struct{})
	go func() {
		reader := bufio.NewReader(stdout)
		// Without a line the start has failed; the exit status and the last output have the reason.
		if line, err := reader.ReadBytes('\n'); err == nil && json.Unmarshal(line, &plane.ready) == nil {
			close(started)
		}
		_, _ = io.Copy(io.Discard, reader)
		plane.err = lastWords.explain(command.Wait())
		close(plane.done)
	}()

	select {
	case <-started:
		return plane, nil
	case <-plane.done:
		if plane.err == nil {
			return nil, errors.New("the control plane stopped before it was ready: somebody told it to")
		}
		return nil, plane.err
	case <-ctx.Done():
		_ = plane.Stop(context.WithoutCancel(ctx)) // the start's own error is returned
		return nil, fmt.Errorf("start the control plane: %w", context.Cause(ctx))
	}
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.ready.Kubeconfig }

// Server is the address of the API server, such as https://127.0.0.1:6443.
func (c *ControlPlane) Server() string { return c.ready.Server }

// PID is the process that runs the control plane. SIGTERM stops it cleanly.
func (c *ControlPlane) PID() int { return c.process.Pid }

// Done is closed when the control plane has ended for any reason.
func (c *ControlPlane) Done() <-chan struct{} { return c.done }

// Err returns the reason why the control plane ended: nil after a clean stop, otherwise the program that ended unexpectedly and the end
// of its log. It is nil while the control plane runs.
func (c *ControlPlane) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop stops the control plane and waits until all its processes have ended. When ctx ends first, it is killed. Data stays in the
// directory. The error is that of Err. A second Stop has no effect.
func (c *ControlPlane) Stop(ctx context.Context) error {
	_ = c.process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-c.done:
	case <-ctx.Done():
		_ = c.process.Kill() // its children end with it
		<-c.done
	}
	return c.err
}

// maxComplaint bounds the kept part of standard error: more than an error with the end of a log.
const maxComplaint = 64 << 10

// mark begins the error, which the control plane prints last.
const mark = "error: "

// complaint keeps the end of its input, and passes on the output before the error: the caller reports the error.
type complaint struct {
	next io.Writer

	mutex sync.Mutex
	text  []byte
	line  []byte // the unfinished line
	over  bool   // the error has begun
}

func (c *complaint) Write(data []byte) (int, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.text = append(c.text, data...)
	c.text = c.text[max(0, len(c.text)-maxComplaint):]
	c.line = append(c.line, data...)
	for {
		line, rest, whole := bytes.Cut(c.line, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		c.over = c.over || bytes.HasPrefix(line, []byte(mark))
		if c.next != nil && !c.over {
			_, _ = c.next.Write(c.line[:len(line)+1]) // a closed reader must not stop the control plane
		}
		c.line = rest
	}
}

// explain turns an exit status into the error that the control plane printed last.
func (c *complaint) explain(exit error) error {
	if exit == nil {
		return nil
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	text := append([]byte("\n"), bytes.TrimSpace(c.text)...)
	if at := bytes.LastIndex(text, []byte("\n"+mark)); at >= 0 {
		return errors.New(string(text[at+1+len(mark):]))
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("the control plane ended: %w (it said last: %q)", exit, lines[len(lines)-1])
}
