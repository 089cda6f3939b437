package metrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// cohortTree is the cohort tree of the API server, with the number of admitted Workloads in each ClusterQueue. It exists for one gauge
// and one counter: the number of Workloads admitted below a cohort does not follow edits of the tree. It stays as before the edit until
// a Workload is admitted or released below. spec: 70 §5.3.
type cohortTree struct {
	queues  map[string]*treeQueue
	cohorts map[string]*treeCohort
	edits   int // of the tree
}

type treeQueue struct {
	exists   bool
	cohort   string
	admitted int
	counted  int // the edits at its last admission or release; −1 for none
}

type treeCohort struct {
	defined bool
	// deleted is true if its object is gone and older references remain. It has no series until a Workload is admitted or released below,
	// or it is created or referenced again.
	deleted bool
	parent  string
	values  []string // of the custom labels
	members int      // queues and cohorts that name it
	// If live, the gauge is the number of Workloads that are admitted below now; otherwise it is frozen. Unless known it has no series.
	live, known bool
	frozen      int
}

func newCohortTree() *cohortTree {
	return &cohortTree{queues: map[string]*treeQueue{}, cohorts: map[string]*treeCohort{}}
}

func (t *cohortTree) queue(name string) *treeQueue {
	q := t.queues[name]
	if q == nil {
		q = &treeQueue{counted: -1}
		t.queues[name] = q
	}
	return q
}

func (t *cohortTree) cohort(name string) *treeCohort {
	c := t.cohorts[name]
	if c == nil {
		c = &treeCohort{}
		t.cohorts[name] = c
	}
	return c
}

// count adds an admission (+1) or a release (−1) in a ClusterQueue.
func (t *cohortTree) count(queue string, n int) {
	q := t.queue(queue)
	q.admitted += n
	if q.counted != t.edits {
		q.counted = t.edits
		t.above(q.cohort, func(_ string, c *treeCohort) { c.live, c.known, c.deleted = true, true, false })
	}
	t.tidy(queue)
}

// above visits a cohort and its ancestors, each once.
func (t *cohortTree) above(name string, visit func(string, *treeCohort)) {
	for range len(t.cohorts) {
		c := t.cohorts[name]
		if c == nil {
			return
		}
		visit(name, c)
		name = c.parent
	}
}

// ancestors returns the cohorts above a ClusterQueue that have series, the lowest first.
func (t *cohortTree) ancestors(queue string) (names []string) {
	if q := t.queues[queue]; q != nil {
		t.above(q.cohort, func(name string, c *treeCohort) {
			if !c.deleted {
				names = append(names, name)
			}
		})
	}
	return names
}

// isDeleted reports whether a cohort has no series because its object was deleted.
func (t *cohortTree) isDeleted(name string) bool {
	c := t.cohorts[name]
	return c != nil && c.deleted
}

// edit changes the tree, and freezes the gauges of the cohorts above both ends. It returns the cohorts that no longer exist.
func (t *cohortTree) edit(from, to string, change func()) (gone []string) {
	counts := t.counts()
	freeze := func(name string, c *treeCohort) {
		if c.live {
			c.live, c.frozen = false, counts[name]
		}
	}
	t.above(from, freeze)
	t.above(to, freeze)
	t.edits++
	change()
	if to != "" {
		c := t.cohort(to)
		c.members++
		c.deleted = false // referenced again
	}
	if c := t.cohorts[from]; c != nil {
		c.members--
		if c.members == 0 && !c.defined {
			delete(t.cohorts, from)
			gone = append(gone, from)
		}
	}
	return gone
}

// counts returns the number of Workloads that are admitted below each cohort now.
func (t *cohortTree) counts() map[string]int {
	counts := map[string]int{}
	for _, q := range t.queues {
		if q.admitted != 0 {
			t.above(q.cohort, func(name string, _ *treeCohort) { counts[name] += q.admitted })
		}
	}
	return counts
}

func (t *cohortTree) setQueue(name, cohort string) (gone []string) {
	q := t.queue(name)
	q.exists = true
	if q.cohort == cohort {
		return nil
	}
	return t.edit(q.cohort, cohort, func() { q.cohort = cohort })
}

func (t *cohortTree) deleteQueue(name string) (gone []string) {
	q := t.queues[name]
	if q == nil {
		return nil
	}
	if q.cohort != "" {
		gone = t.edit(q.cohort, "", func() { q.cohort = "" })
	}
	q.exists = false
	t.tidy(name)
	return gone
}

// tidy drops a queue that does not exist and has no admitted Workloads.
func (t *cohortTree) tidy(name string) {
	if q := t.queues[name]; !q.exists && q.admitted == 0 {
		delete(t.queues, name)
	}
}

func (t *cohortTree) setCohort(name, parent string, values []string) (gone []string) {
	c := t.cohort(name)
	c.defined, c.deleted, c.values = true, false, values
	if c.parent == parent {
		return nil
	}
	return t.edit(c.parent, parent, func() { c.parent = parent })
}

// deleteCohort removes the object of a cohort. One that is still referenced stays without series.
func (t *cohortTree) deleteCohort(name string) (gone []string) {
	c := t.cohorts[name]
	if c == nil || !c.defined {
		return nil
	}
	t.edits++
	if c.parent != "" {
		gone = t.edit(c.parent, "", func() { c.parent = "" })
	}
	c.defined, c.deleted, c.values, c.live, c.known = false, true, nil, false, false
	if c.members == 0 {
		delete(t.cohorts, name)
	}
	return gone
}

// admittedIn returns the ClusterQueue in which a Workload counts as admitted, "" for none.
func admittedIn(w *kueue.Workload) string {
	if w == nil || w.Status.Admission == nil || !lifecycle.IsActive(w) || lifecycle.IsFinished(w) ||
		!lifecycle.IsReserved(w) || !lifecycle.IsAdmitted(w) {
		return ""
	}
	return string(w.Status.Admission.ClusterQueue)
}

func labelsOf(o metav1.Object) labels.Set { return labels.Set(o.GetLabels()) }
