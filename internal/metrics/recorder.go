package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
)

// Recorder counts what happens and works out the gauges at each scrape. It is one
// prometheus.Collector: register it once. Its methods may be called from anywhere; on a nil
// Recorder they do nothing.
type Recorder struct {
	options Options
	custom  customLabels
	descs   []*prometheus.Desc
	vectors []vector
	families

	mu        sync.Mutex
	queues    map[string]*queueObject
	lanes     map[state.Name]*laneObject
	tree      *cohortTree
	skips     map[string]int  // by ClusterQueue: preemptors passed over in the last cycle
	kept      map[string]kept // by ClusterQueue
	workloads Workloads       // nil until there is a cache to look at
	trainJobs func() []string // nil: there are none
	clusters  func() map[string]bool
}

var _ prometheus.Collector = (*Recorder)(nil)

// Workloads are those of the API server, as a cache has them. A cache.Store of client-go
// is one. What it returns is not modified.
type Workloads interface {
	List() []any // of *kueue.Workload
	GetByKey(key string) (object any, exists bool, err error)
}

// queueObject is what is known of a ClusterQueue as an object.
type queueObject struct {
	values      []string // of the custom labels
	terminating bool
}

// laneObject is what is known of a LocalQueue as an object.
type laneObject struct {
	values []string
	queue  string // its ClusterQueue
	shown  bool   // it has series of its own
	active metav1.ConditionStatus
}

// kept is the weighted share of a ClusterQueue, which outlives it.
type kept struct {
	cohort string
	values []string
	share  float64
}

// New makes a recorder. Custom labels fix the label sets from here on.
func New(o Options) *Recorder {
	r := &Recorder{
		options: o, custom: newCustomLabels(o.Metrics.CustomLabels),
		queues: map[string]*queueObject{}, lanes: map[state.Name]*laneObject{}, tree: newCohortTree(),
		skips: map[string]int{}, kept: map[string]kept{},
	}
	m := maker{custom: r.custom}
	r.families = m.families(&r.options)
	r.descs, r.vectors = m.descs, m.vectors
	return r
}

// SetTrainJobs says how the phase of each TrainJob can be looked up.
func (r *Recorder) SetTrainJobs(phases func() []string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trainJobs = phases
}

// SetWorkloads says where the Workloads of the API server can be looked at.
func (r *Recorder) SetWorkloads(w Workloads) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workloads = w
}

// SetClusterQueue takes note of a ClusterQueue. Where a custom label of it has another
// value now, its gauges have it from the next scrape on, and what is counted from now on;
// what was counted keeps the old value.
func (r *Recorder) SetClusterQueue(q *kueue.ClusterQueue) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues[q.Name] = &queueObject{values: r.custom.values(fromQueue, q), terminating: q.DeletionTimestamp != nil}
	r.dropCohorts(r.tree.setQueue(q.Name, string(q.Spec.CohortName)))
}

// DeleteClusterQueue drops the series of a ClusterQueue, but for its weighted share and
// what was dispatched to worker clusters.
func (r *Recorder) DeleteClusterQueue(name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.queues, name)
	delete(r.skips, name)
	r.dropQueue(name)
	r.dropCohorts(r.tree.deleteQueue(name))
}

// SetLocalQueue takes note of a LocalQueue, which has series while the configured selector
// matches it.
func (r *Recorder) SetLocalQueue(q *kueue.LocalQueue) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := state.Name{Namespace: q.Namespace, Name: q.Name}
	now := &laneObject{
		values: r.custom.values(fromLane, q), queue: string(q.Spec.ClusterQueue), active: metav1.ConditionUnknown,
		shown: r.options.localQueues() && r.options.Metrics.LocalQueues.Matches(labelsOf(q)),
	}
	for _, c := range q.Status.Conditions {
		if c.Type == kueue.LocalQueueActive {
			now.active = c.Status
		}
	}
	if was := r.lanes[name]; was != nil && was.shown && !now.shown {
		r.dropLane(name)
	}
	r.lanes[name] = now
}

// DeleteLocalQueue drops the series of a LocalQueue.
func (r *Recorder) DeleteLocalQueue(namespace, name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lanes, state.Name{Namespace: namespace, Name: name})
	r.dropLane(state.Name{Namespace: namespace, Name: name})
}

// SetCohort takes note of a Cohort.
func (r *Recorder) SetCohort(c *kueue.Cohort) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropCohorts(r.tree.setCohort(c.Name, string(c.Spec.ParentName), r.custom.values(fromCohort, c)))
}

// DeleteCohort drops the series of a Cohort, also where ClusterQueues still name it.
func (r *Recorder) DeleteCohort(name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropCohorts(append(r.tree.deleteCohort(name), name))
}

// HaveWorkload takes note of a Workload that existed before the replica looked: its past
// transitions are not counted.
func (r *Recorder) HaveWorkload(w *kueue.Workload) { r.countAdmitted(nil, w) }

// SeeWorkload takes note of a change of a Workload, whoever made it, and counts its
// transitions if this replica leads. Nil is a Workload that did not exist before, or does
// no more. Every change is to be seen once, in order.
func (r *Recorder) SeeWorkload(before, after *kueue.Workload) {
	r.countAdmitted(before, after)
	if r == nil || after == nil || r.options.role() == follower {
		return
	}
	if before == nil || before.UID != after.UID {
		before = &kueue.Workload{ObjectMeta: after.ObjectMeta, Spec: after.Spec}
	}
	r.countTransitions(before, after)
}

// countAdmitted notes an admission or a release, for what is shown from one to the next.
func (r *Recorder) countAdmitted(before, after *kueue.Workload) {
	if r == nil || !r.options.Cohorts {
		return
	}
	was, is := admittedIn(before), admittedIn(after)
	if was == is {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was != "" {
		r.tree.count(was, -1)
	}
	if is != "" {
		r.tree.count(is, 1)
	}
}

func (r *Recorder) dropQueue(name string) {
	for _, v := range r.vectors {
		if v == r.scheduler.dispatched.vec || v == r.scheduler.remotelyAdmitted.vec {
			continue
		}
		for _, label := range []string{queueLabel, preemptingLabel, preemptedLabel} {
			v.DeletePartialMatch(prometheus.Labels{label: name})
		}
	}
}

func (r *Recorder) dropLane(name state.Name) {
	for _, v := range r.vectors {
		v.DeletePartialMatch(prometheus.Labels{nameLabel: name.Name, namespaceLabel: name.Namespace})
	}
}

func (r *Recorder) dropCohorts(names []string) {
	for _, name := range names {
		for _, v := range r.vectors {
			v.DeletePartialMatch(prometheus.Labels{cohortLabel: name})
		}
	}
}

// queueValues are the values of the custom labels of a ClusterQueue, blank ones while it
// is not known.
func (r *Recorder) queueValues(name string) []string {
	if q := r.queues[name]; q != nil {
		return q.values
	}
	return r.custom.values(fromQueue, nil)
}

// laneValues is queueValues for a LocalQueue.
func (r *Recorder) laneValues(name state.Name) []string {
	if l := r.lanes[name]; l != nil {
		return l.values
	}
	return r.custom.values(fromLane, nil)
}

// cohortValues is queueValues for a cohort; those that are only named have blank ones.
func (r *Recorder) cohortValues(name string) []string {
	if c := r.tree.cohorts[name]; c != nil && c.defined {
		return c.values
	}
	return r.custom.values(fromCohort, nil)
}

// lanesNow is a copy of what is known of LocalQueues.
func (r *Recorder) lanesNow() (map[state.Name]*laneObject, Workloads) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.lanes), r.workloads
}
