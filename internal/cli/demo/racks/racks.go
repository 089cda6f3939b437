// Package racks is `berth demo topology`: gangs that need a rack each, on nodes in racks and blocks, and a node that fails. It draws the
// nodes with the job on each, and checks that jobs are where they have to be.
package racks

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/demo"
	"github.com/berth-project/berth/internal/embedded/simnode"
)

const (
	// Topology is that of the nodes of the demo, for berth up --topology.
	Topology = "block=2,rack=2,host=4"
	// NodeCapacity is the size of each.
	NodeCapacity = "cpu=32,memory=128Gi,nvidia.com/gpu=8"

	// pause is how long the end of a step is shown.
	pause = 1500 * time.Millisecond
)

// Run runs the demo from the start of the control plane to its end, and leaves no process running. The error names the step whose effect
// did not come, or was another one.
func Run(ctx context.Context, cfg demo.Config) error { return run(ctx, cfg, demo.StepLimit) }

// run is Run with another limit of a step.
func run(ctx context.Context, cfg demo.Config, limit time.Duration) error {
	cluster := demo.Cluster{Topology: Topology, NodeCapacity: NodeCapacity}
	return demo.Perform(ctx, cfg, cluster, limit, func(ctx context.Context, stage *demo.Stage) error {
		p := &play{Stage: stage, view: newView(cfg.Out)}
		defer p.view.close()
		return p.run(ctx)
	})
}

// play is a running demo.
type play struct {
	*demo.Stage
	view view
}

func (p *play) run(ctx context.Context) error {
	levels, err := simnode.ParseTopology(Topology)
	if err != nil {
		return err
	}
	if err := p.Create(ctx, queues(levels.Labels(), levels.Count())...); err != nil {
		return err
	}
	before, err := p.read(ctx)
	if err != nil {
		return err
	}
	for i, s := range story {
		p.view.says(time.Since(p.Began), s.says)
		for _, a := range s.acts(before) {
			if err := p.perform(ctx, a); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
		after, err := p.await(ctx, s)
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, s.says, err)
		}
		outcome, err := s.check(before, after)
		if err != nil {
			return fmt.Errorf("step %d, %s: %w: this is a bug in Berth", i+1, s.says, err)
		}
		p.view.concludes(time.Since(p.Began), outcome)
		before = after
	}
	return nil
}

// perform makes the change of an act.
func (p *play) perform(ctx context.Context, a act) error {
	switch {
	case a.submit != nil:
		return p.Create(ctx, a.submit.job())
	case a.cancel != "":
		j := gang{name: a.cancel}.job()
		return p.Client.Delete(ctx, j, client.PropagationPolicy("Background"))
	}
	node := &corev1.Node{}
	if err := p.Client.Get(ctx, client.ObjectKey{Name: a.node}, node); err != nil {
		return err
	}
	before := client.MergeFrom(node.DeepCopy())
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	if delete(node.Annotations, simnode.FailureAnnotation); a.fails {
		node.Annotations[simnode.FailureAnnotation] = "true"
	}
	return p.Client.Patch(ctx, node, before)
}

// await draws the cluster until a step is done, and for a moment longer.
func (p *play) await(ctx context.Context, s step) (world, error) {
	var done time.Time
	return demo.Await(ctx, p.Stage, p.read, func(w world) bool {
		p.view.draw(w, time.Since(p.Began))
		switch is := s.done(w); {
		case !is:
			done = time.Time{}
		case done.IsZero():
			done = time.Now()
		}
		return !done.IsZero() && time.Since(done) >= pause
	})
}

// read returns what the API server has.
func (p *play) read(ctx context.Context) (world, error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	var workloads kueue.WorkloadList
	err := p.Read(ctx, namespace, &nodes, &pods, &workloads)
	return newWorld(nodes.Items, pods.Items, workloads.Items), err
}

// view displays the demo.
type view interface {
	// says begins a step with the event and the expected effect.
	says(at time.Duration, sentence string)
	// draw is called with each state of the cluster.
	draw(w world, at time.Duration)
	// concludes ends a step with the effect.
	concludes(at time.Duration, sentence string)
	close()
}

// newView draws in place on a terminal, and writes a picture after each step to anything else.
func newView(out io.Writer) view {
	if canvas := demo.NewCanvas(out); canvas != nil {
		colour := ansi
		if !canvas.Colours {
			colour = plain
		}
		return &screen{canvas: canvas, colour: colour}
	}
	return &lines{out: out}
}

// screen redraws a picture, with the sentences of all steps below it.
type screen struct {
	canvas *demo.Canvas
	colour paint
	notes  []string
	last   world
	at     time.Duration
}

func (v *screen) says(_ time.Duration, sentence string) { v.notes = append(v.notes, "» "+sentence) }

func (v *screen) concludes(_ time.Duration, sentence string) {
	v.notes = append(v.notes, "  "+sentence)
	v.draw(v.last, v.at)
}

func (v *screen) draw(w world, at time.Duration) {
	v.last, v.at = w, at
	v.canvas.Draw(func(width, height int) []string { return picture(w, v.notes, at, width, height, v.colour) })
}

func (v *screen) close() { v.canvas.Close() }

// lines writes each sentence, and a picture at the end of each step.
type lines struct {
	out  io.Writer
	last world
}

func (v *lines) says(at time.Duration, sentence string) {
	fmt.Fprintf(v.out, "%5.1fs  » %s\n", at.Seconds(), sentence)
}

func (v *lines) draw(w world, _ time.Duration) { v.last = w }

func (v *lines) concludes(at time.Duration, sentence string) {
	fmt.Fprintln(v.out)
	for _, line := range picture(v.last, nil, at, 100, 100, plain) {
		fmt.Fprintln(v.out, line)
	}
	fmt.Fprintf(v.out, "\n%5.1fs  %s\n\n", at.Seconds(), sentence)
}

func (*lines) close() {}
