package change

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Deletion is an object to delete: of a Kind of queues, cohorts, flavors or Workloads, or the job of a kind of jobs.
type Deletion struct {
	Kind            string
	Job             *job.Descriptor
	Namespace, Name string
}

func (e *edit) remove(i int) error {
	d := &e.change.Deletes[i]
	err := e.removeOne(d, cmp.Or(d.Namespace, e.namespace()))
	if err != nil {
		return Mistakes{{OfDelete, i, "", err}}
	}
	return nil
}

func (e *edit) removeOne(d *Deletion, namespace string) error {
	if d.Job != nil {
		return e.removeJob(d.Job, namespace, d.Name)
	}
	switch d.Kind {
	case "ClusterQueue":
		return e.removeQueue(d.Name)
	case "ResourceFlavor":
		if user := e.userOf(d.Name); user != "" {
			return fmt.Errorf("ClusterQueue %s has quota of it, and it stays until that is removed", user)
		}
		return e.removeNamed(d.Kind, "", d.Name)
	case "Cohort":
		return e.removeNamed(d.Kind, "", d.Name)
	case "LocalQueue":
		return e.removeNamed(d.Kind, namespace, d.Name)
	case "Workload":
		uid := e.recordedUID(namespace, d.Name)
		if uid == "" {
			return fmt.Errorf("there is no Workload %s/%s", namespace, d.Name)
		}
		e.after.Remove(d.Kind, namespace, d.Name)
		e.late = append(e.late, state.DeleteWorkload(uid))
		return nil
	}
	return errors.New("must be a clusterqueue, localqueue, cohort, resourceflavor, workload or a kind of jobs; nodes are drained")
}

// userOf returns the first ClusterQueue with quota of a flavor, "" for none.
func (e *edit) userOf(flavor string) string {
	queues := e.queuesAfter()
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		for _, g := range queues[name].Groups {
			if slices.ContainsFunc(g.Flavors, func(f state.FlavorQuota) bool { return f.Flavor == flavor }) {
				return name
			}
		}
	}
	return ""
}

func (e *edit) removeNamed(kind, namespace, name string) error {
	if !e.after.Remove(kind, namespace, name) {
		where := ""
		if namespace != "" {
			where = " in the namespace " + namespace
		}
		return fmt.Errorf("there is no %s %s%s", kind, name, where)
	}
	return nil
}

// removeQueue deletes a ClusterQueue. One in which Workloads hold quota admits nothing more, and stays until they have ended.
func (e *edit) removeQueue(name string) error {
	queues := e.queuesAfter()
	def, known := queues[name]
	if !known {
		return fmt.Errorf("there is no such ClusterQueue: %s", strict.OrAll(name, slices.Sorted(maps.Keys(queues))))
	}
	for of := range e.b.State.Overview() {
		if of.Reserved && of.Queue == name {
			if cq, has := offline.Get[*kueue.ClusterQueue](e.after, name); has {
				cq = cq.DeepCopy()
				cq.DeletionTimestamp = new(e.b.stamp())
				e.after.Add(cq)
				return nil
			}
			def.Closed = "it is being deleted"
			e.late = append(e.late, state.SetQueue(def))
			return nil
		}
	}
	if !e.after.Remove("ClusterQueue", "", name) {
		e.late = append(e.late, state.DeleteQueue(name))
	}
	return nil
}

// queuesAfter returns the ClusterQueues after the change so far, by name.
func (e *edit) queuesAfter() map[string]state.Queue {
	out := map[string]state.Queue{}
	if e.b.Recorded {
		out = e.b.knownQueues()
	}
	for _, cq := range offline.All[*kueue.ClusterQueue](e.after) {
		if def, err := convert.Queue(cq, nil); err == nil {
			out[cq.Name] = def
		}
	}
	return out
}

func (e *edit) removeJob(d *job.Descriptor, namespace, name string) error {
	if e.b.Recorded {
		return errors.New("a flight record does not have the jobs of Workloads: name the workload")
	}
	found := false
	for _, w := range offline.All[*kueue.Workload](e.after) {
		if w.Namespace == namespace && isOf(w, d, name) {
			found = true
			e.after.Remove("Workload", namespace, w.Name)
			e.late = append(e.late, state.DeleteWorkload(string(w.UID)))
		}
	}
	if !found {
		return fmt.Errorf("there is no Workload of a %s %s/%s", d.GVK.Kind, namespace, name)
	}
	return nil
}
