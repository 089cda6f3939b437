package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// Acceptance 66: a JobSet goes through a restart, the restart of one Job, a suspension and a resume to another place, its
// end and its deletion, with the manager killed at each of its writes in turn and started again. The end is the same every
// time: nothing is counted twice, and no Job is made twice.
func TestKilledAtAnyWrite(t *testing.T) {
	gates := plan.Config{RestartJob: true}
	embeddedtest.AtEveryWrite(t, 24, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newStoppedWorld(t, gates)
		plain := w.rest
		w.rest = rest.CopyConfig(plain)
		w.rest.Wrap(m.Wrap)
		w.start()
		revive := func() {
			m.Revive(func() {
				w.stop()
				w.rest = plain
				w.start()
			})
		}
		(&life{world: w, made: map[string]types.UID{}, revive: revive}).live()
	})
}

// life is one JobSet with the manager that may be killed.
type life struct {
	*world
	revive func()               // starts the manager again if it was killed
	made   map[string]types.UID // of Jobs by name and attempts
}

const crew = `
metadata: {name: crew}
spec:
  failurePolicy:
    maxRestarts: 5
    rules: [{name: alone, action: RestartJob, targetReplicatedJobs: [oar]}]
  replicatedJobs:
  - {name: coach, template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: c, image: i}]}}}}}
  - {name: oar, replicas: 2, template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: c, image: i}]}}}}}
`

var allOfCrew = []string{"crew-coach-0", "crew-oar-0", "crew-oar-1"}

// until waits until each Job is as wanted. Meanwhile the garbage collector works.
func (l *life) until(what string, is func(*batchv1.Job) bool) {
	l.t.Helper()
	wait.Until(l.t, "all Jobs "+what, func() error {
		l.revive()
		jobs := l.jobs()
		for _, j := range jobs {
			attempt := j.Name + "/" + j.Labels[jobsetv1alpha2.RestartAttemptKey] + "/" + j.Labels[jobsetv1alpha2.JobRestartAttemptKey]
			if uid, known := l.made[attempt]; known && uid != j.UID {
				l.t.Errorf("%s was made twice", attempt)
			}
			l.made[attempt] = j.UID
			if j.DeletionTimestamp != nil {
				l.collect(j.Name)
				return fmt.Errorf("%s is being deleted", j.Name)
			}
		}
		for _, name := range allOfCrew {
			if j := jobs[name]; j == nil || !is(j) {
				return fmt.Errorf("%s is not", name)
			}
		}
		return nil
	})
}

func (l *life) live() {
	attempt := func(j *batchv1.Job, restarts, own string) bool {
		return j.Labels[jobsetv1alpha2.RestartAttemptKey] == restarts && j.Labels[jobsetv1alpha2.JobRestartAttemptKey] == own
	}
	l.create(crew)
	l.until("exist", func(j *batchv1.Job) bool { return attempt(j, "0", "0") })
	l.setJob("crew-coach-0", failedAt("BackoffLimitExceeded", "", time.Now()))
	l.until("are of the second attempt", func(j *batchv1.Job) bool { return attempt(j, "1", "0") })
	l.setJob("crew-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	l.until("are there after the restart of one", func(j *batchv1.Job) bool {
		return attempt(j, "1", map[bool]string{true: "1", false: "0"}[j.Name == "crew-oar-1"])
	})
	l.update("crew", func(js *jobsetv1alpha2.JobSet) { js.Spec.Suspend = new(true) })
	l.until("are suspended", func(j *batchv1.Job) bool { return *j.Spec.Suspend })
	l.update("crew", func(js *jobsetv1alpha2.JobSet) {
		js.Spec.Suspend = new(false)
		for i := range js.Spec.ReplicatedJobs {
			js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "b"}
		}
	})
	l.until("run elsewhere", func(j *batchv1.Job) bool { return !*j.Spec.Suspend && j.Spec.Template.Spec.NodeSelector["zone"] == "b" })
	for _, name := range allOfCrew {
		l.setJob(name, complete(1))
	}
	l.statusIs("it completes", func(s *jobsetv1alpha2.JobSetStatus) bool {
		return s.TerminalState == jobsetv1alpha2.TerminalStateCompleted
	})
	l.settled()
	l.update("crew", func(js *jobsetv1alpha2.JobSet) { js.Spec.TTLSecondsAfterFinished = new(int32(0)) })
	wait.Until(l.t, "it is deleted", func() error {
		l.revive()
		js := &jobsetv1alpha2.JobSet{}
		err := l.c.Get(l.ctx, client.ObjectKey{Namespace: l.namespace, Name: "crew"}, js)
		if apierrors.IsNotFound(err) || err == nil && js.DeletionTimestamp != nil {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// statusIs waits for a status, and restarts the manager if necessary.
func (l *life) statusIs(what string, is func(*jobsetv1alpha2.JobSetStatus) bool) {
	l.t.Helper()
	wait.Until(l.t, what, func() error {
		l.revive()
		if s := &l.get("crew").Status; !is(s) {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
}

// settled checks the counters and the events.
func (l *life) settled() {
	l.t.Helper()
	s := l.get("crew").Status
	at := slices.IndexFunc(s.ReplicatedJobsStatus, func(r jobsetv1alpha2.ReplicatedJobStatus) bool { return r.Name == "oar" })
	if at < 0 || s.Restarts != 1 || s.RestartsCountTowardsMax != 1 {
		l.t.Fatalf("status %+v", s)
	}
	if oar := s.ReplicatedJobsStatus[at]; !slices.Equal(oar.JobRestarts, []int32{0, 1}) || !slices.Equal(oar.JobRestartsCountTowardsMax, []int32{0, 1}) {
		l.t.Errorf("restarts of single Jobs: %v, %v of them count", oar.JobRestarts, oar.JobRestartsCountTowardsMax)
	}
	if len(l.made) != 7 {
		l.t.Errorf("Jobs of the attempts %v, want 3, 3 and 1", l.made)
	}
	for _, e := range l.events("crew") {
		if restarted := strings.HasSuffix(e.Reason, "FailurePolicyAction"); restarted && e.Series != nil {
			l.t.Errorf("%s was told %d times", e.Reason, e.Series.Count)
		}
	}
}
