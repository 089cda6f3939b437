package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
)

// Recorder counts transitions and computes the gauges at each scrape. It is one prometheus.Collector: register it once. Its methods are
// safe for concurrent use; on a nil Recorder they do nothing.
type Recorder struct {
	options Options
	custom  customLabels
	descs   []*prometheus.Desc
	vectors []vector
	families

	mu          sync.Mutex
	queues      map[string]*queueObject
	localQueues map[state.Name]*localQueueObject
	tree        *cohortTree
	classes     map[string]bool      // the values of the label of priority classes
	skips       map[string]int       // by ClusterQueue: preemptors passed over in the last cycle with any
	shares      map[string]lastShare // by ClusterQueue
	workloads   Workloads            // nil until the cache is filled
	trainJobs   func() []string      // the phase of each; may be nil
	clusters    func() map[string]bool
}

var _ prometheus.Collector = (*Recorder)(nil)

// Workloads is the cache of Workloads: a cache.Store of client-go. Its objects are not modified.
type Workloads interface {
	List() []any // of *kueue.Workload
	GetByKey(key string) (object any, exists bool, err error)
}

// queueObject is the state of a ClusterQueue that the engine does not know.
type queueObject struct {
	values      []string // of the custom labels
	terminating bool
}

// localQueueObject is the state of a LocalQueue that the engine does not know.
type localQueueObject struct {
	values []string
	queue  string // its ClusterQueue
	shown  bool   // it has series of its own
	active metav1.ConditionStatus
}

// lastShare is the weighted share of a ClusterQueue. Its series outlives the queue.
type lastShare struct {
	cohort string
	values []string
	share  float64
}

// New returns a recorder. Its label sets, including custom labels, do not change.
func New(o Options) *Recorder {
	r := &Recorder{
		options: o, custom: newCustomLabels(o.Metrics.CustomLabels),
		queues: map[string]*queueObject{}, localQueues: map[state.Name]*localQueueObject{}, tree: newCohortTree(),
		classes: map[string]bool{}, skips: map[string]int{}, shares: map[string]lastShare{},
	}
	m := maker{custom: r.custom}
	r.families = m.families(&r.options)
	r.descs, r.vectors = m.descs, m.vectors
	return r
}

// SetTrainJobs sets the source of the phases of TrainJobs.
func (r *Recorder) SetTrainJobs(phases func() []string) {
	r.locked(func() { r.trainJobs = phases })
}

// SetWorkloads sets the cache of Workloads.
func (r *Recorder) SetWorkloads(w Workloads) {
	r.locked(func() { r.workloads = w })
}

// SetClusterQueue sets a ClusterQueue. With new values of its custom labels its counts start again. spec: 70 §5.3.
func (r *Recorder) SetClusterQueue(q *kueue.ClusterQueue) {
	r.locked(func() {
		before := r.queueValues(q.Name)
		r.queues[q.Name] = &queueObject{values: r.custom.values(fromQueue, q), terminating: q.DeletionTimestamp != nil}
		if earlier := r.custom.earlier(fromQueue, before, r.queues[q.Name].values); earlier != nil {
			r.dropQueue(q.Name, earlier)
		}
		r.dropCohorts(r.tree.setQueue(q.Name, string(q.Spec.CohortName)))
	})
}

// DeleteClusterQueue drops the series of a ClusterQueue, except its weighted share and the counts of dispatches to worker clusters.
func (r *Recorder) DeleteClusterQueue(name string) {
	r.locked(func() {
		delete(r.queues, name)
		delete(r.skips, name)
		r.dropQueue(name, nil)
		r.dropCohorts(r.tree.deleteQueue(name))
	})
}

// SetLocalQueue sets a LocalQueue. It has series while the configured selector matches it. Custom labels are as in SetClusterQueue.
func (r *Recorder) SetLocalQueue(q *kueue.LocalQueue) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := state.Name{Namespace: q.Namespace, Name: q.Name}
	now := &localQueueObject{
		values: r.custom.values(fromLocalQueue, q), queue: string(q.Spec.ClusterQueue), active: metav1.ConditionUnknown,
		shown: r.options.localQueues() && r.options.Metrics.LocalQueues.Matches(labelsOf(q)),
	}
	for _, c := range q.Status.Conditions {
		if c.Type == kueue.LocalQueueActive {
			now.active = c.Status
		}
	}
	if was := r.localQueues[name]; was != nil && was.shown && !now.shown {
		r.dropLocalQueue(name, nil)
	}
	if earlier := r.custom.earlier(fromLocalQueue, r.localQueueValues(name), now.values); earlier != nil {
		r.dropLocalQueue(name, earlier)
	}
	r.localQueues[name] = now
}

// DeleteLocalQueue drops the series of a LocalQueue.
func (r *Recorder) DeleteLocalQueue(namespace, name string) {
	r.locked(func() {
		key := state.Name{Namespace: namespace, Name: name}
		delete(r.localQueues, key)
		r.dropLocalQueue(key, nil)
	})
}

// SetCohort sets a Cohort. Custom labels are as in SetClusterQueue.
func (r *Recorder) SetCohort(c *kueue.Cohort) {
	r.locked(func() {
		values := r.custom.values(fromCohort, c)
		if earlier := r.custom.earlier(fromCohort, r.cohortValues(c.Name), values); earlier != nil {
			r.dropMatching(prometheus.Labels{cohortLabel: c.Name}, earlier)
		}
		r.dropCohorts(r.tree.setCohort(c.Name, string(c.Spec.ParentName), values))
	})
}

// DeleteCohort drops the series of a Cohort, also if ClusterQueues still name it.
func (r *Recorder) DeleteCohort(name string) {
	r.locked(func() { r.dropCohorts(append(r.tree.deleteCohort(name), name)) })
}

// AddWorkload adds a Workload that existed before this replica started: its past transitions are not counted.
func (r *Recorder) AddWorkload(w *kueue.Workload) { r.countAdmitted(nil, w) }

// ObserveWorkload counts the transitions of a change of a Workload if this replica leads. before is nil for a new Workload, after for a
// deleted one. Every change is passed once, in order.
func (r *Recorder) ObserveWorkload(before, after *kueue.Workload) {
	r.countAdmitted(before, after)
	if r == nil || after == nil || r.options.role() == follower {
		return
	}
	if before == nil || before.UID != after.UID {
		before = &kueue.Workload{ObjectMeta: after.ObjectMeta, Spec: after.Spec}
	}
	r.countTransitions(before, after)
}

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

// dropQueue drops the counts of a ClusterQueue: those with the given custom labels, or all.
func (r *Recorder) dropQueue(name string, custom prometheus.Labels) {
	for _, label := range []string{queueLabel, preemptingLabel, preemptedLabel} {
		r.dropMatching(prometheus.Labels{label: name}, custom)
	}
}

// dropLocalQueue is dropQueue for a LocalQueue.
func (r *Recorder) dropLocalQueue(name state.Name, custom prometheus.Labels) {
	r.dropMatching(prometheus.Labels{nameLabel: name.Name, namespaceLabel: name.Namespace}, custom)
}

func (r *Recorder) dropCohorts(names []string) {
	for _, name := range names {
		r.dropMatching(prometheus.Labels{cohortLabel: name}, nil)
	}
}

// dropMatching drops the series with all the labels, except the counts of dispatches to worker clusters.
func (r *Recorder) dropMatching(labels, custom prometheus.Labels) {
	maps.Copy(labels, custom)
	for _, v := range r.vectors {
		if v != r.scheduler.dispatched.vec && v != r.scheduler.remotelyAdmitted.vec {
			v.DeletePartialMatch(labels)
		}
	}
}

// queueValues returns the values of the custom labels of a ClusterQueue, blank ones for an unknown one.
func (r *Recorder) queueValues(name string) []string {
	if q := r.queues[name]; q != nil {
		return q.values
	}
	return r.custom.values(fromQueue, nil)
}

// localQueueValues is queueValues for a LocalQueue.
func (r *Recorder) localQueueValues(name state.Name) []string {
	if l := r.localQueues[name]; l != nil {
		return l.values
	}
	return r.custom.values(fromLocalQueue, nil)
}

// cohortValues is queueValues for a cohort; it is blank for one without an object.
func (r *Recorder) cohortValues(name string) []string {
	if c := r.tree.cohorts[name]; c != nil && c.defined {
		return c.values
	}
	return r.custom.values(fromCohort, nil)
}

// localQueuesNow returns a copy of the LocalQueues, and the cache of Workloads.
func (r *Recorder) localQueuesNow() (map[state.Name]*localQueueObject, Workloads) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.localQueues), r.workloads
}
