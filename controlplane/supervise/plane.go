package supervise

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berth-project/berth/controlplane/simnode"
)

// How long a program may take to end before it is killed. The API server needs a second, but waits for open watches of clients; killing
// it loses no data, because etcd has all.
const (
	stopLimit          = 5 * time.Second
	apiServerStopLimit = 3 * time.Second
)

// plane is a control plane that runs, starts or stops.
type plane struct {
	opts     options
	dir      dir
	pki      pki
	ports    ports
	reserved []*Reservation
	stderr   io.Writer
	children map[string]*child
	died     chan *child // receives every child once, when it has ended
}

// up runs a control plane until ctx ends. It returns nil after a clean stop, and otherwise the reason why it did not start or ended.
func up(ctx context.Context, opts options, stdout, stderr io.Writer) error {
	p := &plane{opts: opts, dir: dir(opts.dir), stderr: stderr, children: map[string]*child{}, died: make(chan *child, 5)}
	lock, err := p.dir.lock()
	if err != nil {
		return err
	}
	// The lock also ends with the process; it is released last.
	defer func() { _ = lock.Close() }()
	defer func() {
		for _, r := range p.reserved {
			r.Release()
		}
	}()
	if err := p.prepare(lock); err != nil {
		return err
	}
	defer p.stop()
	limited, cancel := context.WithTimeoutCause(ctx, opts.startTimeout,
		fmt.Errorf("not ready within %v (--start-timeout): see the logs in %s", opts.startTimeout, p.dir.path("logs")))
	defer cancel()
	if err := p.start(limited); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting
		}
		return err
	}
	if err := p.announce(stdout); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case dead := <-p.died:
		return dead.obituary()
	}
}

// reservePorts chooses free ports where the user named none, and reserves all of them until the control plane has ended.
func (p *plane) reservePorts() error {
	p.ports = ports{apiServer: p.opts.port}
	for _, port := range []*int{&p.ports.apiServer, &p.ports.etcd, &p.ports.etcdPeer} {
		if p.opts.portReserved && port == &p.ports.apiServer {
			continue
		}
		r, err := Reserve(*port)
		switch {
		case *port != 0 && errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("port %d on 127.0.0.1 is in use: choose another --port, or 0 for a free one", *port)
		case *port != 0 && err != nil:
			return fmt.Errorf("--port %d: %w", *port, err)
		case err != nil:
			return err
		}
		p.reserved = append(p.reserved, r)
		*port = r.Port
	}
	return nil
}

// prepare does everything that can fail before a program runs.
func (p *plane) prepare(lock *os.File) (err error) {
	if err := p.dir.checkVersion(); err != nil {
		return err
	}
	if err := p.reservePorts(); err != nil {
		return err
	}
	if p.pki, err = p.dir.ensurePKI(time.Now()); err != nil {
		return err
	}
	for _, user := range users[1:] {
		config, err := p.pki.kubeconfig(p.ports.server(), user.token)
		if err != nil {
			return err
		}
		if err := writeFile(p.pki.file(user.token+".kubeconfig"), config); err != nil {
			return err
		}
	}
	if err := writeFile(p.pki.file("scheduler.yaml"), schedulerConfig(p.pki)); err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir.path("logs"), 0o700); err != nil {
		return err
	}
	// The kubeconfig of an earlier run has another address.
	if err := os.Remove(p.dir.kubeconfig()); err != nil && !os.IsNotExist(err) {
		return err
	}
	return publish(lock, holder{PID: os.Getpid(), Server: p.ports.server()})
}

// start starts the programs in order and returns when the control plane is usable.
func (p *plane) start(ctx context.Context) error {
	etcd, err := p.client("etcd-ca", "etcd-client", "")
	if err != nil {
		return err
	}
	token, err := p.pki.token(users[0].token)
	if err != nil {
		return err
	}
	api, err := p.client("ca", "", token)
	if err != nil {
		return err
	}
	if err := p.run(ctx, Etcd, etcdArgs(p.dir, p.pki, p.ports), func() bool { return etcd.ok(p.ports.etcdURL() + "/health") }); err != nil {
		return err
	}
	if err := p.run(ctx, APIServer, apiServerArgs(p.pki, p.ports, p.opts.bare), func() bool { return api.ok(p.ports.server() + "/readyz") }); err != nil {
		return err
	}
	if p.opts.bare {
		return nil
	}
	for _, program := range []struct {
		name string
		args []string
	}{
		{Kwok, kwokArgs(p.pki, p.opts)},
		{ControllerManager, controllerManagerArgs(p.pki)},
		{Scheduler, schedulerArgs(p.dir)},
	} {
		if err := p.run(ctx, program.name, program.args, nil); err != nil {
			return err
		}
	}
	if err := p.wait(ctx, "nodes", func() bool { return p.nodesReady(api) }); err != nil {
		return err
	}
	// Without it no pod can be created in the namespace default.
	return p.wait(ctx, ControllerManager, func() bool {
		return api.ok(p.ports.server() + "/api/v1/namespaces/default/serviceaccounts/default")
	})
}

// run starts a program and, if ready is not nil, waits until it is ready.
func (p *plane) run(ctx context.Context, name string, args []string, ready func() bool) error {
	p.say("starting %s", name)
	c, err := start(p.dir, name, args, p.died)
	if err != nil {
		return err
	}
	p.children[name] = c
	if ready == nil {
		return nil
	}
	return p.wait(ctx, name, ready)
}

// wait waits until ready returns true, a child ends, or ctx ends.
func (p *plane) wait(ctx context.Context, what string, ready func() bool) error {
	began := time.Now()
	ticker := time.NewTicker(25 * time.Millisecond)
	defer ticker.Stop()
	for !ready() {
		select {
		case dead := <-p.died:
			return dead.obituary()
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
	p.say("%s ready after %.1fs", what, time.Since(began).Seconds())
	return nil
}

// nodesReady reports whether exactly the requested nodes exist, with their labels and capacity, and are Ready without a taint that says
// otherwise. Nodes that are made to fail are not waited for.
func (p *plane) nodesReady(api client) bool {
	var list corev1.NodeList
	query := "/api/v1/nodes?labelSelector=" + url.QueryEscape(simnode.Label)
	if !api.get(p.ports.server()+query, &list) || len(list.Items) != len(p.opts.nodes) {
		return false
	}
	labels := map[string]map[string]string{}
	for _, node := range p.opts.nodes {
		labels[node.Name] = node.Labels
	}
	for i := range list.Items {
		node := &list.Items[i]
		want, known := labels[node.Name]
		if !known || !equality.Semantic.DeepEqual(node.Status.Allocatable, p.opts.resources) {
			return false
		}
		for key, value := range want {
			if node.Labels[key] != value {
				return false
			}
		}
		if !simnode.HasFailed(node) && !isReady(node) {
			return false
		}
	}
	return true
}

// isReady reports whether pods can run on a node, as far as its health is concerned.
func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	}) && !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable
	})
}

// announce writes the administrator's kubeconfig and the one line on standard output.
func (p *plane) announce(stdout io.Writer) error {
	config, err := p.pki.kubeconfig(p.ports.server(), users[0].token)
	if err != nil {
		return err
	}
	if err := writeFile(p.dir.kubeconfig(), config); err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(struct {
		Ready      bool   `json:"ready"`
		Kubeconfig string `json:"kubeconfig"`
		Server     string `json:"server"`
		PID        int    `json:"pid"`
	}{true, p.dir.kubeconfig(), p.ports.server(), os.Getpid()})
}

// stop ends all children in the reverse order of their dependencies.
func (p *plane) stop() {
	if len(p.children) > 0 {
		p.say("stopping")
	}
	p.stopSome(stopLimit, Kwok, Scheduler, ControllerManager)
	p.stopSome(apiServerStopLimit, APIServer)
	p.stopSome(stopLimit, Etcd)
}

func (p *plane) stopSome(limit time.Duration, names ...string) {
	began := time.Now()
	var running []*child
	for _, name := range names {
		if c := p.children[name]; c != nil {
			running = append(running, c)
		}
	}
	if len(running) == 0 {
		return
	}
	stop(limit, running...)
	p.say("%s stopped after %.1fs", strings.Join(names, ", "), time.Since(began).Seconds())
}

func (p *plane) say(format string, args ...any) { fmt.Fprintf(p.stderr, format+"\n", args...) }

// client sends requests to a server of this control plane.
type client struct {
	http  *http.Client
	token string
}

func (p *plane) client(authority, certificate, token string) (client, error) {
	config, err := p.pki.clientTLS(authority, certificate)
	if err != nil {
		return client{}, err
	}
	return client{http: &http.Client{Timeout: 5 * time.Second, Transport: transport(config)}, token: token}, nil
}

// transport never uses a proxy: the servers are on this machine.
func transport(config *tls.Config) *http.Transport {
	return &http.Transport{TLSClientConfig: config}
}

// ok reports whether the address answers 200.
func (c client) ok(url string) bool { return c.get(url, nil) }

// get reports whether the address answers 200, and decodes the answer unless into is nil.
func (c client) get(url string, into any) bool {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	if into != nil {
		return response.StatusCode == http.StatusOK && json.NewDecoder(response.Body).Decode(into) == nil
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}
