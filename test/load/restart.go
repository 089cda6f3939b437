package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// freedBefore is how many workloads finish while no manager runs.
const freedBefore = 10

// restart is the cost of a manager that starts over all workloads, until its first admission.
type restart struct {
	ready, admits time.Duration // after its start
	cpu           time.Duration
	peakRSS       float64 // MB
}

// measureRestart kills the manager, finishes some workloads, and starts another manager, which has room for others then.
func measureRestart(ctx context.Context, o *options, s *system, g *generator) (*restart, error) {
	if err := s.kill(); err != nil {
		return nil, err
	}
	freed := 0
	for i := range g.ledger.entries {
		if e := &g.ledger.entries[i]; e.phase == running && freed < freedBefore {
			if err := g.owner.finish(ctx, &e.arrival); err != nil {
				return nil, err
			}
			freed++
		}
	}
	if freed == 0 {
		return nil, errors.New("-restart: no workload is left that could finish: use a shape that ends before its workloads do, such as deep")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.stall, fmt.Errorf("another manager admitted nothing for %s (-stall)", o.stall))
	defer cancel()
	var list kueue.WorkloadList
	if err := g.owner.rest.Get().Resource("workloads").Param("limit", "1").Do(ctx).Into(&list); err != nil {
		return nil, err
	}
	events, err := g.owner.rest.Get().Resource("workloads").Param("watch", "true").Param("resourceVersion", list.ResourceVersion).Watch(ctx)
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	began := time.Now()
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	out := &restart{ready: time.Since(began)}
	if err := firstAdmission(ctx, events); err != nil {
		return nil, err
	}
	out.admits = time.Since(began)
	if out.cpu, err = cpuOf(s.manager.Process.Pid); err != nil {
		return nil, err
	}
	out.peakRSS, err = peakRSS(s.manager.Process.Pid)
	return out, err
}

func firstAdmission(ctx context.Context, events watch.Interface) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e, more := <-events.ResultChan():
			if !more {
				return errors.New("the watch ended")
			}
			if w, ok := e.Object.(*kueue.Workload); ok && lifecycle.IsAdmitted(w) && !lifecycle.IsFinished(w) {
				return nil
			}
		}
	}
}
