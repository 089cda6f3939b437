// Package autoscale is `berth demo autoscale`: a cluster without nodes, jobs that wait for nodes of a cluster autoscaler, and nodes that
// come and go. The autoscaler is the stand-in of internal/embedded/autoscaler.
package autoscale

import (
	"context"
	"fmt"
	"io"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/demo"
	"github.com/berth-project/berth/internal/embedded/autoscaler"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Run runs the demo from the start of the control plane to its end, and leaves no process running. The error names the step whose effect
// did not come, or was another one.
func Run(ctx context.Context, cfg demo.Config) error { return run(ctx, cfg, demo.StepLimit) }

// run is Run with another limit of a step.
func run(ctx context.Context, cfg demo.Config, limit time.Duration) error {
	return demo.Perform(ctx, cfg, demo.Cluster{NoNodes: true}, limit, func(ctx context.Context, stage *demo.Stage) error {
		return (&play{Stage: stage, out: cfg.Out}).run(ctx)
	})
}

// play is a running demo.
type play struct {
	*demo.Stage
	out  io.Writer
	last string // the last line about the cluster
}

func (p *play) run(ctx context.Context) error {
	if err := p.Create(ctx, objects()...); err != nil {
		return err
	}
	scaling, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	defer func() { stop(); <-stopped }()
	go func() {
		defer close(stopped)
		(&autoscaler.Autoscaler{Client: p.Client, Delay: nodesAfter, NodeCapacity: nodeCapacity()}).Run(scaling)
	}()
	for i, s := range story {
		p.say("» %s", s.says)
		if s.submits != nil {
			if err := p.Create(ctx, s.submits.job()); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
		w, err := demo.Await(ctx, p.Stage, p.read, func(w world) bool {
			if line := w.String(); line != p.last {
				p.last = line
				p.say("    %s", line)
			}
			return s.done(w)
		})
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, s.says, err)
		}
		outcome, err := s.check(w)
		if err != nil {
			return fmt.Errorf("step %d, %s: %w: this is a bug in Berth", i+1, s.says, err)
		}
		p.say("  %s", outcome)
	}
	return nil
}

func (p *play) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%5.1fs  %s\n", time.Since(p.Began).Seconds(), fmt.Sprintf(format, args...))
}

// read returns what the API server has.
func (p *play) read(ctx context.Context) (w world, err error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	var workloads kueue.WorkloadList
	var jobs batchv1.JobList
	if err := p.Read(ctx, namespace, &nodes, &pods, &workloads, &jobs); err != nil {
		return w, err
	}
	w.nodes = len(nodes.Items)
	for _, o := range all {
		w.jobs = append(w.jobs, observe(o, pods.Items, workloads.Items, jobs.Items))
	}
	return w, nil
}

// observe describes one job, as far as it was submitted.
func observe(o order, pods []corev1.Pod, workloads []kueue.Workload, jobs []batchv1.Job) job {
	out := job{name: o.name}
	for i := range jobs {
		if jobs[i].Name == o.name {
			out.submitted, out.complete = true, jobs[i].Status.CompletionTime != nil
		}
	}
	for i := range pods {
		p := &pods[i]
		if p.Labels[batchv1.JobNameLabel] == o.name && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			out.running++
			out.requests = append(out.requests, p.Annotations["autoscaling.x-k8s.io/consume-provisioning-request"])
		}
	}
	for i := range workloads {
		wl := &workloads[i]
		if len(wl.OwnerReferences) == 0 || wl.OwnerReferences[0].Name != o.name {
			continue
		}
		out.inactive = !lifecycle.IsActive(wl)
		out.reserved = apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		for _, c := range wl.Status.AdmissionChecks {
			out.check, out.message = string(c.State), c.Message
			if c.RetryCount != nil {
				out.retries = int(*c.RetryCount)
			}
		}
	}
	return out
}
