package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/jobset/restartagent"
)

const inPlace = `
metadata: {name: ring}
spec:
  failurePolicy: {maxRestarts: 3, restartStrategy: InPlaceRestart}
  replicatedJobs:
  - {name: oar, replicas: 2, template: {spec: {parallelism: 2, completions: 2, backoffLimit: 2147483647, podReplacementPolicy: Failed, template: {spec: {containers: [{name: c, image: i}]}}}}}
`

// container is restarted like by the kubelet whenever its agent ends with the restart code.
type container struct {
	config       restartagent.Config
	lifted, runs atomic.Int64
	stop         atomic.Pointer[context.CancelFunc]
}

const restartCode = 42

// run plays the kubelet.
func (c *container) run(ctx context.Context, w *world) {
	for ctx.Err() == nil {
		one, stop := context.WithCancel(ctx)
		c.stop.Store(&stop)
		c.runs.Add(1)
		err := restartagent.Run(one, w.rest, c.config, make(chan os.Signal), func(format string, args ...any) {
			if strings.Contains(fmt.Sprintf(format, args...), "lifted") {
				c.lifted.Add(1)
			}
		})
		stop()
		end, ok := errors.AsType[*restartagent.Exit](err)
		if !errors.Is(err, context.Canceled) && (!ok || end.Code != restartCode) {
			w.t.Errorf("%s: %v", c.config.Pod, err)
			return
		}
	}
}

// Acceptance 56: the agents of four pods begin together; when one pod restarts, so do the others, and none begins before
// all are there. One of them holds up another container by a probe, the others run the worker themselves.
func TestInPlaceRestart(t *testing.T) {
	w := newWorld(t, plan.Config{InPlaceRestart: true})
	w.create(inPlace)
	jobs := w.haveJobs("ring-oar-0", "ring-oar-1")
	probe := "http://127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	answers := func() int {
		response, err := http.Get(probe + "/up")
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	var all []*container
	for _, j := range jobs {
		w.setJob(j.Name, running(2))
		for i := range 2 {
			pod := podOf(j, i)
			w.must(w.c.Create(w.ctx, pod))
			c := &container{config: restartagent.Config{Namespace: w.namespace, JobSet: "ring", Pod: pod.Name, Shell: "sh", Worker: "sleep 600", RestartCode: restartCode}}
			if pod.Name == "ring-oar-1-1-xxxxx" {
				port, err := strconv.Atoi(probe[strings.LastIndex(probe, ":")+1:])
				w.must(err)
				c.config.Worker, c.config.ProbePath, c.config.ProbePort = "", "/up", port
			}
			all = append(all, c)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	for _, c := range all[1:] {
		wg.Go(func() { c.run(ctx, w) })
	}
	wait.Until(w.t, "three are in attempt 0", func() error { return w.attempts("0", 3) })
	wait.Stays(t, 300*time.Millisecond, "no pod begins without the others", func() error {
		for _, c := range all {
			if c.lifted.Load() != 0 {
				return fmt.Errorf("%s began", c.config.Pod)
			}
		}
		return nil
	})
	wg.Go(func() { all[0].run(ctx, w) })
	begun := func(times int64) func() error {
		return func() error {
			for _, c := range all {
				if c.lifted.Load() != times {
					return fmt.Errorf("%s began %d times", c.config.Pod, c.lifted.Load())
				}
			}
			if code := answers(); code != http.StatusOK {
				return fmt.Errorf("the probe answers %d", code)
			}
			return nil
		}
	}
	wait.Until(w.t, "all begin", begun(1))
	(*all[2].stop.Load())() // its container crashes
	wait.Until(w.t, "all begin again", begun(2))
	w.must(w.attempts("1", 4))
	s := w.get("ring").Status
	if s.CurrentInPlaceRestartAttempt == nil || *s.CurrentInPlaceRestartAttempt != 1 || s.PreviousInPlaceRestartAttempt == nil || *s.PreviousInPlaceRestartAttempt != 0 {
		t.Errorf("status %+v", s)
	}
	for _, c := range all {
		if c.runs.Load() != 2 {
			t.Errorf("%s was started %d times", c.config.Pod, c.runs.Load())
		}
	}
	if now := w.jobs(); now["ring-oar-0"].UID != jobs["ring-oar-0"].UID || s.Restarts != 0 {
		t.Errorf("a Job was made again, status %+v", s)
	}
}

// Acceptance 58: with the annotation disable-in-place-restart a worker starts at once, though no other is there, and again when its container
// does; no attempt is written and no other pod restarts.
func TestInPlaceRestartSwitchedOff(t *testing.T) {
	w := newWorld(t, plan.Config{InPlaceRestart: true})
	w.create(strings.Replace(inPlace, "{name: ring}", "{name: ring, annotations: {jobset.sigs.k8s.io/disable-in-place-restart: \"\"}}", 1))
	jobs := w.haveJobs("ring-oar-0", "ring-oar-1")
	pod := podOf(jobs["ring-oar-1"], 1)
	w.must(w.c.Create(w.ctx, pod))
	alone := &container{config: restartagent.Config{
		Namespace: w.namespace, JobSet: "ring", Pod: pod.Name, Shell: "sh", Worker: "sleep 600", RestartCode: restartCode,
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	wg.Go(func() { alone.run(ctx, w) })
	for times := range int64(2) {
		wait.Until(w.t, "the worker starts", func() error {
			if n := alone.lifted.Load(); n != times+1 {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
		(*alone.stop.Load())() // its container crashes
	}
	w.must(w.attempts("", 1))
	if s := w.get("ring").Status; s.CurrentInPlaceRestartAttempt != nil || s.PreviousInPlaceRestartAttempt != nil || s.Restarts != 0 {
		t.Errorf("status %+v", s)
	}
}

// attempts checks that so many pods have an annotation of an attempt.
func (w *world) attempts(attempt string, n int) error {
	var pods corev1.PodList
	if err := w.c.List(w.ctx, &pods, client.InNamespace(w.namespace)); err != nil {
		return err
	}
	found := 0
	for i := range pods.Items {
		if pods.Items[i].Annotations[jobsetv1alpha2.InPlaceRestartAttemptAnnotation] == attempt {
			found++
		}
	}
	if found != n {
		return fmt.Errorf("%d pods are in attempt %s", found, attempt)
	}
	return nil
}

// podOf returns a pod as the Job controller creates it.
func podOf(j *batchv1.Job, index int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *j.Spec.Template.ObjectMeta.DeepCopy(), Spec: *j.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.Name = j.Namespace, fmt.Sprintf("%s-%d-xxxxx", j.Name, index)
	p.Annotations[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(index)
	return p
}
