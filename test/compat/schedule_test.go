package compat

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func compareText(a, b string) int { return strings.Compare(a, b) }

// schedule is a random sequence of actions of users and administrators in a cohort of three queues, while other goroutines run admitted
// Workloads, stop evicted ones and answer the checks.
type schedule struct {
	*world
	random   *rand.Rand
	ledger   *ledger
	check    string
	queues   []*kueue.ClusterQueue
	cohort   *kueue.Cohort
	peaceful chan struct{} // closed when nothing goes wrong any more

	mu     sync.Mutex
	quotas []quotas // that hold now, and that held a moment ago
}

// quotas in cpus.
type quotas struct {
	until   time.Time // zero: now
	nominal [3]int64
	cohort  int64
}

// The queues: borrowing is limited in the second, lending in the third.
const (
	borrowing = 2
	lending   = 3
	largest   = 6 // cpus that a Workload asks for at most, which always can fit
)

func newSchedule(w *world, seed uint64) *schedule {
	w.t.Helper()
	w.t.Logf("seed %d", seed)
	s := &schedule{
		world: w, random: rand.New(rand.NewPCG(seed, 2)), peaceful: make(chan struct{}),
		quotas: []quotas{{nominal: [3]int64{6, 4, 6}, cohort: 2}},
	}
	s.check = w.check("c")
	w.queue("a", "6", in(w.own("team")), preempting(kueue.PreemptionLowerOrNewerEqualPriority, kueue.ReclaimAny))
	w.queue("b", "4", in(w.own("team")), preempting(kueue.PreemptionLowerPriority, kueue.ReclaimLowerPriority), checked(every(s.check)...), func(q *kueue.ClusterQueue) {
		q.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = new(resource.MustParse(fmt.Sprint(borrowing)))
	})
	w.queue("c", "6", in(w.own("team")), func(q *kueue.ClusterQueue) {
		q.Spec.QueueingStrategy = kueue.StrictFIFO
		q.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = new(resource.MustParse(fmt.Sprint(lending)))
	})
	for _, n := range []string{"a", "b", "c"} {
		s.queues = append(s.queues, &kueue.ClusterQueue{ObjectMeta: w.meta(n)})
	}
	s.cohort = &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: w.own("team"), Labels: map[string]string{"world": w.name}}}
	s.setCohort(2)
	s.ledger = w.follow(s.fits)
	return s
}

// fits reports whether there was, in the last seconds, room for the present usage: a decision may be older than an edit.
func (s *schedule) fits(usage map[string]int64, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.fitsSince(usage, name, 5*time.Second)
	if err == nil {
		return nil
	}
	for i := range s.quotas {
		q := s.quotas[len(s.quotas)-1-i]
		if !q.until.IsZero() && s.fitsSince(usage, name, time.Since(q.until)) == nil {
			return fmt.Errorf("%w; it would have fit the quotas %s ago", err, time.Since(q.until))
		}
	}
	return err
}

func (s *schedule) fitsSince(usage map[string]int64, name string, window time.Duration) error {
	most := quotas{}
	for _, q := range s.quotas {
		if !q.until.IsZero() && time.Since(q.until) > window {
			continue
		}
		most.cohort = max(most.cohort, q.cohort)
		for i := range most.nominal {
			most.nominal[i] = max(most.nominal[i], q.nominal[i])
		}
	}
	used, room := int64(0), most.cohort
	for i, q := range s.queues {
		mine, guaranteed := usage[q.Name], int64(0)
		if i == 2 {
			guaranteed = most.nominal[2] - lending
		}
		if q.Name == name && i == 1 && mine > (most.nominal[1]+borrowing)*1000 {
			return fmt.Errorf("%s uses %d of %d, borrowing included", name, mine, (most.nominal[1]+borrowing)*1000)
		}
		used += max(0, mine-guaranteed*1000)
		room += most.nominal[i] - guaranteed
	}
	if used > room*1000 {
		return fmt.Errorf("the cohort uses %d of %d: %v", used, room*1000, usage)
	}
	return nil
}

// enact records quotas before they take effect.
func (s *schedule) enact(change func(*quotas)) quotas {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := &s.quotas[len(s.quotas)-1]
	next := *last
	change(&next)
	last.until = time.Now()
	s.quotas = append(s.quotas, next)
	return next
}

// settled records that an edit is done: earlier quotas no longer hold from now on.
func (s *schedule) settled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quotas[len(s.quotas)-2].until = time.Now()
}

func (s *schedule) setNominal(i int, cpus int64) {
	s.enact(func(q *quotas) { q.nominal[i] = cpus })
	s.surely(func() error {
		return tryEdit(s.world, s.queues[i], func(q *kueue.ClusterQueue) {
			q.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = *resource.NewQuantity(cpus, resource.DecimalSI)
		})
	})
	s.settled()
}

func (s *schedule) setCohort(cpus int64) {
	s.enact(func(q *quotas) { q.cohort = cpus })
	c := s.cohort.DeepCopy()
	if cpus == 0 {
		s.surely(func() error { return client.IgnoreNotFound(s.c.Delete(s.ctx(), c)) })
	} else {
		group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
			Name:      kueue.ResourceFlavorReference(s.own("f")),
			Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: *resource.NewQuantity(cpus, resource.DecimalSI)}},
		}}}
		s.surely(func() error {
			return client.IgnoreAlreadyExists(s.c.Create(s.ctx(), withGroup(c.DeepCopy(), group)))
		})
		s.surely(func() error {
			return tryEdit(s.world, c, func(c *kueue.Cohort) { withGroup(c, group) })
		})
	}
	s.settled()
}

func withGroup(c *kueue.Cohort, g kueue.ResourceGroup) *kueue.Cohort {
	c.Spec.ResourceGroups = []kueue.ResourceGroup{g}
	return c
}

// surely retries until it succeeds. Just after its start the API server forbids everything.
func (s *schedule) surely(do func() error) {
	s.t.Helper()
	wait.Until(s.t, "an edit by an administrator", do)
}

// insist retries while the API server cannot be reached.
func (s *schedule) insist(do func() error) {
	s.t.Helper()
	wait.Until(s.t, "the API server can be used", func() error {
		err := do()
		var status interface{ Status() metav1.Status }
		if errors.As(err, &status) && status.Status().Code < 500 {
			return nil
		}
		return err
	})
}

// run does so many actions, one after the other.
func (s *schedule) run(steps int, pause time.Duration) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { s.owners(stop) })
	for range steps {
		s.step()
		time.Sleep(time.Duration(s.random.Int64N(int64(2 * pause))))
	}
	s.peace()
	wait.Until(s.t, "everybody finishes", func() error {
		var open []string
		for _, wl := range s.ledger.workloads() {
			if !lifecycle.IsFinished(wl) {
				open = append(open, fmt.Sprintf("%s: queue %s, %v, active %v, requeueState %+v", wl.Name, wl.Spec.QueueName,
					conditions(wl.Status.Conditions), lifecycle.IsActive(wl), wl.Status.RequeueState))
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("%d do not:\n%s", len(open), strings.Join(open, "\n"))
		}
		return nil
	})
	close(stop)
	wg.Wait()
	s.ledger.verdict()
	for _, q := range s.queues {
		s.usage(q, "0", "0")
		wait.Until(s.t, "the counters of "+q.Name, func() error {
			st := read(s.world, q).Status
			return equal([3]int32{st.PendingWorkloads, st.ReservingWorkloads, st.AdmittedWorkloads}, [3]int32{})
		})
	}
}

// peace reverts everything that prevents Workloads from running.
func (s *schedule) peace() {
	close(s.peaceful)
	for i, n := range [3]int64{6, 4, 6} {
		s.setNominal(i, n)
		s.surely(func() error {
			return tryEdit(s.world, s.queues[i], func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
		})
		lq := s.localQueue([]string{"a", "b", "c"}[i], s.queues[i].Name)
		s.surely(func() error { return client.IgnoreAlreadyExists(s.c.Create(s.ctx(), lq.DeepCopy())) })
		s.surely(func() error {
			return tryEdit(s.world, lq, func(q *kueue.LocalQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
		})
	}
	s.setCohort(2)
}

// any picks one of the Workloads, nil if there is none.
func (s *schedule) any() *kueue.Workload {
	all := s.ledger.workloads()
	if len(all) == 0 {
		return nil
	}
	return all[s.random.IntN(len(all))]
}

// step does one action. A refused action is skipped.
func (s *schedule) step() {
	queue := s.random.IntN(3)
	name := []string{"a", "b", "c"}[queue]
	wl := s.any()
	what := s.random.IntN(100)
	if wl == nil {
		what = 0
	}
	switch {
	case what < 45:
		s.made++
		settings := []workloadSetting{priority(int32(s.random.IntN(4)))}
		pods := int32(1 + s.random.IntN(largest))
		if s.random.IntN(3) == 0 {
			settings = append(settings, func(wl *kueue.Workload) { wl.Spec.PodSets[0].MinCount = new(int32(1)) })
		}
		if s.random.IntN(6) == 0 {
			settings = append(settings, func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(1)) })
		}
		fresh := workloadOf(s.name, fmt.Sprintf("wl-%d", s.made), name, "1", append(settings, count(pods))...)
		s.insist(func() error { return s.c.Create(s.ctx(), fresh.DeepCopy()) })
	case what < 52:
		s.insist(func() error { return s.c.Delete(s.ctx(), wl) })
	case what < 60:
		s.insist(func() error { return tryEdit(s.world, wl, priority(int32(s.random.IntN(6)))) })
	case what < 66:
		s.insist(func() error {
			return tryEdit(s.world, wl, func(wl *kueue.Workload) { wl.Spec.QueueName = kueue.LocalQueueName(name) })
		})
	case what < 74:
		s.insist(func() error {
			return tryEdit(s.world, wl, func(wl *kueue.Workload) { wl.Spec.Active = new(s.random.IntN(2) == 0) })
		})
	case what < 78:
		s.insist(func() error {
			return s.tryEditStatus(wl, func(st *kueue.WorkloadStatus) {
				st.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: min(wl.Spec.PodSets[0].Count, int32(1+s.random.IntN(3)))}}
			})
		})
	case what < 84:
		s.setNominal(queue, 3+s.random.Int64N(5))
	case what < 88:
		s.setCohort(s.random.Int64N(4))
	case what < 93:
		policy := []kueue.StopPolicy{kueue.StopPolicyNone, kueue.StopPolicyNone, kueue.StopPolicyHold, kueue.StopPolicyHoldAndDrain}[s.random.IntN(4)]
		s.insist(func() error {
			return tryEdit(s.world, s.queues[queue], func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = policy })
		})
	case what < 97:
		policy := []kueue.StopPolicy{kueue.StopPolicyNone, kueue.StopPolicyNone, kueue.StopPolicyHold, kueue.StopPolicyHoldAndDrain}[s.random.IntN(4)]
		s.insist(func() error {
			return tryEdit(s.world, s.localQueue(name, ""), func(q *kueue.LocalQueue) { q.Spec.StopPolicy = policy })
		})
	default:
		lq := s.localQueue(name, s.queues[queue].Name)
		s.insist(func() error { return client.IgnoreNotFound(s.c.Delete(s.ctx(), lq.DeepCopy())) })
		time.Sleep(time.Duration(s.random.IntN(300)) * time.Millisecond)
		s.insist(func() error { return client.IgnoreAlreadyExists(s.c.Create(s.ctx(), lq.DeepCopy())) })
	}
}

// owners run, stop and check Workloads until the schedule ends.
func (s *schedule) owners(stop chan struct{}) {
	random := rand.New(rand.NewPCG(s.random.Uint64(), 3))
	due := map[types.UID]time.Time{}
	soon := func(uid types.UID, most time.Duration) bool {
		at, known := due[uid]
		if !known {
			due[uid] = time.Now().Add(time.Duration(random.Int64N(int64(most))))
			return false
		}
		if time.Now().After(at) {
			delete(due, uid)
			return true
		}
		return false
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(60 * time.Millisecond):
		}
		calm := false
		select {
		case <-s.peaceful:
			calm = true
		default:
		}
		for _, wl := range s.ledger.workloads() {
			is := func(c string) bool { return apimeta.IsStatusConditionTrue(wl.Status.Conditions, c) }
			var err error
			switch {
			case is(kueue.WorkloadFinished):
			case is(kueue.WorkloadEvicted) && is(kueue.WorkloadQuotaReserved):
				if soon(wl.UID, 400*time.Millisecond) {
					err = s.tryRelease(wl)
				}
			case is(kueue.WorkloadAdmitted):
				if soon(wl.UID, 1500*time.Millisecond) {
					err = s.tryFinish(wl)
				}
			case is(kueue.WorkloadQuotaReserved) && len(wl.Status.AdmissionChecks) > 0:
				if soon(wl.UID, 300*time.Millisecond) {
					err = s.reply(wl, random, calm)
				}
			case calm && failed(wl):
				err = s.reply(wl, random, calm)
			case calm && !lifecycle.IsActive(wl):
				err = tryEdit(s.world, wl, func(wl *kueue.Workload) { wl.Spec.Active = new(true) })
			case calm && wl.Spec.MaximumExecutionTimeSeconds != nil:
				err = tryEdit(s.world, wl, func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = nil })
			}
			_ = err // refused or not reached: the next round retries
		}
	}
}

// failed reports whether a check prevents the admission: without a reservation only its controller resets it (10 §4.10).
func failed(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
		return c.State == kueue.CheckStateRetry || c.State == kueue.CheckStateRejected
	})
}

// reply answers the check of a Workload.
func (s *schedule) reply(wl *kueue.Workload, random *rand.Rand, calm bool) error {
	state := kueue.CheckStateReady
	if n := random.IntN(10); !calm && n < 2 {
		state = []kueue.CheckState{kueue.CheckStateRetry, kueue.CheckStateRejected}[n]
	}
	return s.tryEditStatus(wl, func(st *kueue.WorkloadStatus) {
		for i := range st.AdmissionChecks {
			c := &st.AdmissionChecks[i]
			if c.State == kueue.CheckStatePending || (calm && c.State != kueue.CheckStateReady) {
				c.State, c.LastTransitionTime = state, metav1.Now()
			}
		}
	})
}
