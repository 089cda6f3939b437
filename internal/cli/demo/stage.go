package demo

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/cli/local"
	"github.com/berth-project/berth/internal/install"
)

const (
	// StepLimit is how long a step may take, several times the usual time.
	StepLimit = time.Minute
	// refresh is how often the cluster is read.
	refresh = 200 * time.Millisecond
)

// Stage is a running cluster for a demo in steps. A step is done when what is read from the API server is as expected.
type Stage struct {
	Client client.Client
	Began  time.Time
	Limit  time.Duration // of a step
	ended  chan error
}

// Perform is Play for a demo in steps.
func Perform(ctx context.Context, cfg Config, cluster Cluster, limit time.Duration, demo func(context.Context, *Stage) error) error {
	return Play(ctx, cfg, cluster, func(ctx context.Context, record local.Record, ended chan error) error {
		config, err := clientcmd.BuildConfigFromFlags("", record.Kubeconfig)
		if err != nil {
			return err
		}
		config.QPS = -1
		c, err := client.New(config, client.Options{Scheme: install.Scheme()})
		if err != nil {
			return err
		}
		return demo(ctx, &Stage{Client: c, Began: time.Now(), Limit: limit, ended: ended})
	})
}

// Create creates objects in their order.
func (s *Stage) Create(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := s.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// Read fills lists of objects in a namespace, and of cluster-scoped ones.
func (s *Stage) Read(ctx context.Context, namespace string, lists ...client.ObjectList) error {
	for _, list := range lists {
		if err := s.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("read the cluster: %w", err)
		}
	}
	return nil
}

// Await reads the cluster again and again until done, and returns it as it is then. The error describes the last one, if that takes longer
// than the limit.
func Await[W fmt.Stringer](ctx context.Context, s *Stage, read func(context.Context) (W, error), done func(W) bool) (W, error) {
	deadline := time.NewTimer(s.Limit)
	defer deadline.Stop()
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		w, err := read(ctx)
		if err != nil || done(w) {
			return w, err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return w, fmt.Errorf("not so within %s: %s", s.Limit, w)
		case err := <-s.ended:
			return w, Ended(err)
		case <-ctx.Done():
			return w, context.Cause(ctx)
		}
	}
}
