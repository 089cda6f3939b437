package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/test/process"
)

// leaseLimit is how long a lease without its holder lasts. spec: 70 §4.3.
const leaseLimit = 15 * time.Second

// TestFailover runs two managers behind one address, like a Service, while Jobs arrive all the time. The standby is ready, serves
// webhooks and answers pending lists, but decides nothing. When the leader is killed the standby takes over with its state; when the next
// leader ends in order, the other need not wait for its lease. Every Job runs once, none is refused.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane, and waits for a lease to end")
	}
	const quota = 8
	c := up(t)
	service := &balancer{}
	service.listen(t)
	leader := c.replica(t, service, true)
	standby := c.replica(t, service, false)
	c.leads(t, leader)
	c.queues(t, "shift", map[string]string{"red": "4", "blue": "4"})
	long := job("red", "long", "main", 4, "3600")
	c.create(t, long)
	wait.Until(t, "a Job fills the queue", c.runs(t, long))
	waiting := job("red", "waiting", "main", 8, "1")
	c.create(t, waiting)
	wait.Until(t, "another waits", c.waits(t, waiting, "WaitingForQuota"))
	samePending(t, c, leader, standby)

	load := c.submit(t, service)
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	peak := make(chan usage, 1)
	go func() { peak <- c.peakUse(watching) }()
	load.until(t, 10, "Jobs are admitted under the first leader")

	lease, err := c.lease()
	if err != nil {
		t.Fatal(err)
	}
	if lasts := time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second; lasts > leaseLimit {
		t.Errorf("the lease lasts %s", lasts)
	}
	killed := time.Now()
	leader.Kill()
	if err := standby.Ready(); err != nil {
		t.Errorf("the standby is not ready while there is no leader: %v", err)
	}
	gap := load.gap(t, killed)
	t.Logf("failover after kill -9: nothing was admitted for %.1f s", gap.Seconds())
	samePending(t, c, standby)

	next := c.replica(t, service, false)
	before, err := c.lease()
	if err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	standby.Signal(syscall.SIGTERM)
	<-standby.Ended
	if lease, err = c.lease(); err != nil || *lease.Spec.HolderIdentity == *before.Spec.HolderIdentity {
		t.Errorf("the lease was not given back: %v, %+v", err, lease)
	}
	gap = load.gap(t, ended)
	t.Logf("failover after an orderly end: nothing was admitted for %.1f s", gap.Seconds())
	if err := next.Ready(); err != nil {
		t.Error(err)
	}

	all := load.stop()
	for _, j := range all {
		wait.Until(t, j.Name+" completes", c.completed(t, j))
		wait.Until(t, "the Workload of "+j.Name+" is finished", func() error { return c.finished(t, j, kueue.ReasonSucceeded) })
	}
	stop()
	if most := <-peak; most.gpus > quota {
		t.Errorf("%d GPUs were in use at once, the quota is %d: %v", most.gpus, quota, most.by)
	}
	t.Logf("%d Jobs, %d refused while a replica was down", len(all), load.refused.Load())
	if load.lost.Load() > 0 {
		t.Errorf("%d Jobs were refused although a replica served webhooks", load.lost.Load())
	}
}

// replica starts one of several managers behind the balancer.
func (c *cluster) replica(t *testing.T, service *balancer, first bool) *process.Manager {
	t.Helper()
	port := strconv.Itoa(embeddedtest.FreePort(t))
	args := []string{"--leader-elect", "--webhook-port", port, "--webhook-url", "https://" + service.address}
	if first {
		args = append(args, "--install")
	}
	m := c.start(t, args...)
	service.add(m, "127.0.0.1:"+port)
	return m
}

// leads checks that one manager holds the lease, however many are ready.
func (c *cluster) leads(t *testing.T, m *process.Manager) {
	t.Helper()
	wait.Until(t, "somebody leads", func() error {
		lease, err := c.lease()
		if err == nil && *lease.Spec.HolderIdentity == "" {
			err = fmt.Errorf("the lease is %+v", lease.Spec)
		}
		return err
	})
	if err := m.Ready(); err != nil {
		t.Error(err)
	}
}

// lease is the one lease of the managers; its holder is "" after it was given back.
func (c *cluster) lease() (*coordinationv1.Lease, error) {
	var leases coordinationv1.LeaseList
	if err := c.List(context.Background(), &leases, client.InNamespace("berth-system")); err != nil {
		return nil, err
	}
	if len(leases.Items) != 1 || leases.Items[0].Spec.HolderIdentity == nil || leases.Items[0].Spec.LeaseDurationSeconds == nil {
		return nil, fmt.Errorf("leases are %+v", leases.Items)
	}
	return &leases.Items[0], nil
}

// samePending asks the managers directly for the pending list of red: each gives the same answer.
func samePending(t *testing.T, c *cluster, managers ...*process.Manager) {
	t.Helper()
	cfg := embeddedtest.ConfigOf(t, c.kubeconfig)
	for _, m := range managers {
		wait.Until(t, "a manager says what is pending", func() error {
			names, err := pending(cfg, m.Visibility)
			if err == nil && !slices.Contains(names, "waiting") {
				err = fmt.Errorf("pending are %v", names)
			}
			return err
		})
	}
}

func pending(cfg *rest.Config, address string) (owners []string, err error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the test is about its answer
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodGet, "https://"+address+"/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/red/pendingworkloads", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+cfg.BearerToken)
	response, err := (&http.Client{Transport: transport, Timeout: wait.Patience}).Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s %w", response.StatusCode, bytes.TrimSpace(body), err)
	}
	var summary struct {
		Items []metav1.PartialObjectMetadata `json:"items"`
	}
	if err := json.Unmarshal(body, &summary); err != nil {
		return nil, err
	}
	for _, item := range summary.Items {
		for _, o := range item.OwnerReferences {
			owners = append(owners, o.Name)
		}
	}
	return owners, nil
}

// balancer passes connections on to any manager that listens, as a Service does for ready ones.
type balancer struct {
	address string
	targets atomic.Pointer[[]target]
}

type target struct {
	m       *process.Manager
	address string
}

func (b *balancer) add(m *process.Manager, address string) {
	var all []target
	if have := b.targets.Load(); have != nil {
		all = slices.Clone(*have)
	}
	all = append(all, target{m, address})
	b.targets.Store(&all)
}

func (b *balancer) listen(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address = l.Addr().String()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go b.pass(conn)
		}
	}()
}

// alive counts the managers that run.
func (b *balancer) alive() (n int) {
	for _, t := range *b.targets.Load() {
		select {
		case <-t.m.Ended:
		default:
			n++
		}
	}
	return n
}

func (b *balancer) pass(from net.Conn) {
	defer func() { _ = from.Close() }()
	for _, t := range slices.Backward(*b.targets.Load()) { // the standby first: it has to serve
		to, err := net.Dial("tcp", t.address)
		if err != nil {
			continue
		}
		go func() {
			_, _ = io.Copy(to, from)
			_ = to.Close()
		}()
		_, _ = io.Copy(from, to)
		return
	}
}

// submission creates small Jobs in blue all the time, and records their admissions.
type submission struct {
	c             *cluster
	cancel        func()
	done          chan []*batchv1.Job
	refused, lost atomic.Int32
}

func (c *cluster) submit(t *testing.T, service *balancer) *submission {
	ctx, cancel := context.WithCancel(t.Context())
	s := &submission{c: c, cancel: cancel, done: make(chan []*batchv1.Job, 1)}
	go func() {
		var made []*batchv1.Job
		for n := 0; ctx.Err() == nil; n++ {
			j := job("blue", fmt.Sprintf("j%d", n), "main", 1, "0.5")
			err := c.Create(ctx, j)
			switch {
			case err == nil:
				made = append(made, j)
			case ctx.Err() != nil:
			default: // a connection that breaks with its manager is no fault, one refused while another serves is
				s.refused.Add(1)
				if j.ResourceVersion = ""; c.Create(ctx, j) == nil {
					made = append(made, j)
				} else if service.alive() > 0 && ctx.Err() == nil {
					s.lost.Add(1)
				}
			}
			time.Sleep(400 * time.Millisecond)
		}
		s.done <- made
	}()
	return s
}

func (s *submission) stop() []*batchv1.Job {
	s.cancel()
	return <-s.done
}

// admissions are the times of the admissions in blue, which are whole seconds.
func (s *submission) admissions() (out []time.Time, err error) {
	var list kueue.WorkloadList
	if err := s.c.List(context.Background(), &list, client.InNamespace("blue")); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if c := apimeta.FindStatusCondition(list.Items[i].Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionTrue {
			out = append(out, c.LastTransitionTime.Time)
		}
	}
	return out, nil
}

func (s *submission) until(t *testing.T, n int, what string) {
	t.Helper()
	wait.Until(t, what, func() error {
		all, err := s.admissions()
		if err == nil && len(all) < n {
			err = fmt.Errorf("%d are admitted", len(all))
		}
		return err
	})
}

// gap waits for an admission after a moment, and returns how long it took.
func (s *submission) gap(t *testing.T, since time.Time) (gap time.Duration) {
	t.Helper()
	before, err := s.admissions()
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "Jobs are admitted again", func() error {
		now, err := s.admissions()
		if err == nil && len(now) <= len(before) {
			err = errors.New("none more is admitted")
		}
		gap = time.Since(since)
		return err
	})
	return gap
}
