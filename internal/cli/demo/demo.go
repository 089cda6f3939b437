// Package demo is `berth demo`: two teams share GPUs on a real control plane with simulated nodes, and the screen shows their jobs wait,
// borrow, return quota, be preempted and finish.
package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/local"
	"github.com/berth-project/berth/internal/install"
)

// limit bounds the time of all jobs, about three times the usual time.
const limit = 90 * time.Second

// aftermath is the time for the last writes to finish.
const aftermath = 500 * time.Millisecond

// Config of the demo.
type Config struct {
	// Dir is the directory of the cluster; the caller removes it.
	Dir     string
	Version string
	// Out gets the table, or lines if it is no terminal, and the summary.
	Out io.Writer
	// Log makes the manager's log, written to a file in Dir.
	Log func(io.Writer) (logr.Logger, error)
}

// Run runs the demo from the start of the control plane to its end, and leaves no process running. The error is about an unfinished job,
// more used quota than there is, or a failure.
func Run(ctx context.Context, cfg Config) error { return run(ctx, cfg, scenario) }

func run(ctx context.Context, cfg Config, steps []step) error {
	meter := &meter{writes: counts{}}
	return Play(ctx, cfg, Cluster{Intercept: meter.intercept}, func(ctx context.Context, record local.Record, ended chan error) error {
		return show(ctx, cfg.Out, record, meter, ended, steps)
	})
}

// show plays the scenario and prints its outcome.
func show(ctx context.Context, out io.Writer, record local.Record, meter *meter, ended chan error, steps []step) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", record.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	metrics, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		return err
	}
	if err := stage(ctx, c); err != nil {
		return err
	}
	seen, err := watch(ctx, cfg)
	if err != nil {
		return err
	}
	serverBefore, err := serverWrites(ctx, metrics.RESTClient())
	if err != nil {
		return err
	}
	before := meter.read()
	p := &play{client: c, seen: seen, ended: ended, view: newView(out), story: &story{}}
	if err := p.run(ctx, steps); err != nil {
		return err
	}
	select {
	case <-time.After(aftermath):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after := meter.read()
	serverAfter, err := serverWrites(ctx, metrics.RESTClient())
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, line := range append(summary(p.story), report(after.since(before), serverAfter.since(serverBefore), p.story)...) {
		fmt.Fprintln(out, line)
	}
	if most := p.story.peak(teams...); most > int32(quota*len(teams)) {
		return fmt.Errorf("%d GPUs were in use at once, and there are only %d: this is a bug in Berth", most, quota*len(teams))
	}
	return nil
}

// watch returns every change of the teams' Jobs and Workloads.
func watch(ctx context.Context, cfg *rest.Config) (<-chan client.Object, error) {
	namespaces := map[string]cache.Config{}
	for _, team := range teams {
		namespaces[team] = cache.Config{}
	}
	informers, err := cache.New(cfg, cache.Options{Scheme: install.Scheme(), DefaultNamespaces: namespaces})
	if err != nil {
		return nil, err
	}
	seen := make(chan client.Object)
	send := func(object any) {
		if o, ok := object.(client.Object); ok {
			select {
			case seen <- o:
			case <-ctx.Done():
			}
		}
	}
	for _, kind := range []client.Object{&batchv1.Job{}, &kueue.Workload{}} {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: send, UpdateFunc: func(_, object any) { send(object) },
		}); err != nil {
			return nil, err
		}
	}
	go func() { _ = informers.Start(ctx) }() // ends with ctx
	if !informers.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watch the jobs: %w", context.Cause(ctx))
	}
	return seen, nil
}

// play is a running scenario.
type play struct {
	client client.Client
	seen   <-chan client.Object
	ended  chan error
	view   view
	story  *story
}

// run submits the jobs at their times and shows their progress until all are over.
func (p *play) run(ctx context.Context, steps []step) error {
	for _, s := range steps {
		p.story.total += len(s.orders)
	}
	defer p.view.close()
	began, taken := time.Now(), time.Duration(0) // taken: when Berth had observed all submitted jobs
	refresh := time.NewTicker(100 * time.Millisecond)
	defer refresh.Stop()
	for {
		at := time.Since(began)
		if p.story.ahead() {
			taken = at
		}
		if len(steps) > 0 && at-taken >= steps[0].after {
			taken = at
			if err := p.submit(ctx, steps[0], at); err != nil {
				return err
			}
			steps = steps[1:]
		}
		p.view.draw(p.story, at)
		if p.story.done() {
			return p.verdict()
		}
		if at > limit {
			return fmt.Errorf("after %s these jobs are not finished: %s", limit, p.unfinished())
		}
		select {
		case object := <-p.seen:
			p.saw(object, time.Since(began))
		case <-refresh.C:
		case err := <-p.ended:
			return Ended(err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *play) submit(ctx context.Context, s step, at time.Duration) error {
	p.view.says(at, s.says)
	for _, o := range s.orders {
		p.story.submit(o, at)
		if err := p.client.Create(ctx, o.job()); err != nil {
			return fmt.Errorf("submit job %s/%s: %w", o.team, o.name, err)
		}
	}
	return nil
}

func (p *play) saw(object client.Object, at time.Duration) {
	var n news
	var changed bool
	switch o := object.(type) {
	case *batchv1.Job:
		n, changed = p.story.sawJob(o, at)
	case *kueue.Workload:
		if owner := metav1.GetControllerOf(o); owner != nil {
			n, changed = p.story.sawWorkload(o, owner.Name, at)
		}
	}
	if changed {
		p.view.tells(n)
	}
}

// verdict is an error if a job failed.
func (p *play) verdict() error {
	for _, l := range p.story.jobs {
		if l.now().phase == failed {
			return fmt.Errorf("job %s/%s failed: %s", l.team, l.name, l.why)
		}
	}
	return nil
}

func (p *play) unfinished() string {
	var left []string
	for _, l := range p.story.jobs {
		if !l.now().over() {
			left = append(left, fmt.Sprintf("%s/%s (%s)", l.team, l.name, l.now().phase))
		}
	}
	return strings.Join(left, ", ")
}
