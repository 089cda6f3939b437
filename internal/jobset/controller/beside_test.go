package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// small runs many JobSets of one namespace to their end: it completes every Job as soon as it exists, like the end of its pod.
type small struct {
	*world
	jobs int // of each JobSet

	mu      sync.Mutex
	created map[string]time.Time     // JobSets
	missing map[string]int           // Jobs of them
	waited  map[string]time.Duration // from the JobSet to the last of its Jobs
}

// follow completes the Jobs in the manager's cache until stop is called, which returns the errors.
func (s *small) follow() (stop func() error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	slots := make(chan struct{}, 10)
	informer, err := s.cache.GetInformer(s.ctx, &batchv1.Job{})
	s.must(err)
	following, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		j, ok := o.(*batchv1.Job)
		if !ok || j.Namespace != s.namespace {
			return
		}
		s.saw(j.Labels[jobsetv1alpha2.JobSetNameKey])
		j = j.DeepCopy()
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			complete(1)(&j.Status)
			if err := s.c.Status().Update(s.ctx, j); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}})
	s.must(err)
	return func() error {
		s.must(informer.RemoveEventHandler(following))
		wg.Wait()
		return errors.Join(failed...)
	}
}

func (s *small) saw(jobSet string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing[jobSet]--; s.missing[jobSet] == 0 {
		s.waited[jobSet] = time.Since(s.created[jobSet])
	}
}

// make creates JobSets, ten at a time.
func (s *small) make(n int) error {
	failed := make([]error, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 10)
	for i := range n {
		js := s.jobSet(manifest(fmt.Sprintf("small%03d", i), s.jobs))
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.mu.Lock()
			s.created[js.Name], s.missing[js.Name] = time.Now(), s.jobs
			s.mu.Unlock()
			failed[i] = s.c.Create(s.ctx, js)
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// ended counts the completed JobSets.
func (s *small) ended() (n int) {
	var list jobsetv1alpha2.JobSetList
	s.must(s.c.List(s.ctx, &list, client.InNamespace(s.namespace)))
	for i := range list.Items {
		if list.Items[i].Status.TerminalState == jobsetv1alpha2.TerminalStateCompleted {
			n++
		}
	}
	return n
}

// 60 §6.1: JobSets do not wait for each other. While one of 1,000 Jobs restarts, and goes on restarting until they have ended,
// 200 of 10 Jobs are created and run to their end. Without -long there is a fifth of all.
func TestManyBesideALargeOne(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 800 Jobs")
	}
	n, many, each := 200, 40, 10
	if embeddedtest.Long() {
		n, many = 1000, 200
	}
	w := newWorld(t, plan.Config{})
	w.create(manifest("large", n, "failurePolicy: {maxRestarts: 1}"))
	w.all(n, "exist", func(*batchv1.Job) bool { return true })
	s := &small{
		world: w.inNamespace(t), jobs: each,
		created: map[string]time.Time{}, missing: map[string]int{}, waited: map[string]time.Duration{},
	}
	stop := s.follow()

	w.setJob("large-oar-0", failedAt("BackoffLimitExceeded", "", time.Now()))
	start := time.Now()
	w.is("large", jobsetv1alpha2.ConditionRestarting, "True", jobsetv1alpha2.ReasonDefaultFailurePolicy)
	made := make(chan error, 1)
	go func() { made <- s.make(many) }()
	for i := range n / 2 { // of the other half, pods are still ending
		w.collect(fmt.Sprintf("large-oar-%d", i))
	}
	w.must(<-made)
	wait.Until(s.t, "the small ones complete", func() error {
		if ended := s.ended(); ended != many {
			return fmt.Errorf("%d of %d", ended, many)
		}
		return nil
	})
	t.Logf("%d JobSets of %d Jobs ran to their end in %.1f s", many, each, time.Since(start).Seconds())
	w.must(stop())
	waits := make([]time.Duration, 0, many)
	for _, wait := range s.waited {
		waits = append(waits, wait)
	}
	slices.Sort(waits)
	t.Logf("from creation to the last Job: half within %v, 99%% within %v", waits[len(waits)/2], waits[len(waits)*99/100])
	old := 0
	for _, j := range w.jobs() {
		if j.Labels[jobsetv1alpha2.RestartAttemptKey] == "0" {
			old++
		}
	}
	if old != n/2 {
		t.Errorf("the large one did not restart meanwhile: %d Jobs of the first attempt are left", old)
	}
	for i := n / 2; i < n; i++ {
		w.collect(fmt.Sprintf("large-oar-%d", i))
	}
	w.all(n, "are of attempt 1", func(j *batchv1.Job) bool { return j.Labels[jobsetv1alpha2.RestartAttemptKey] == "1" })
	if restarts := w.get("large").Status.Restarts; restarts != 1 {
		t.Errorf("%d restarts", restarts)
	}
}
