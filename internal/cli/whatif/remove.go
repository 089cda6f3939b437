package whatif

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// remove applies a --delete.
func (e *edit) remove(what string) error {
	parts := strings.Split(what, "/")
	bad := func(format string, args ...any) error {
		return cluster.Usage("--delete %s: %s", what, fmt.Sprintf(format, args...))
	}
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return bad("must be KIND/NAME, or KIND/NAMESPACE/NAME")
	}
	kind, name := cluster.KindOf(parts[0]), parts[len(parts)-1]
	if kind != nil && !kind.Namespaced && len(parts) == 3 {
		return bad("a %s has no namespace", kind.Kind)
	}
	namespace := e.namespace()
	if len(parts) == 3 {
		namespace = parts[1]
	}
	return e.removeKind(kind, parts[0], namespace, name, bad)
}

// removeKind deletes an object of a kind, which is nil for kinds of jobs: they have a word.
func (e *edit) removeKind(kind *cluster.Kind, word, namespace, name string, bad func(string, ...any) error) error {
	switch kind {
	case cluster.ClusterQueue:
		return e.removeQueue(name, bad)
	case cluster.ResourceFlavor:
		if user := e.userOf(name); user != "" {
			return bad("ClusterQueue %s has quota of it, and it stays until that is removed", user)
		}
		return e.removeNamed(kind, "", name, bad)
	case cluster.Cohort:
		return e.removeNamed(kind, "", name, bad)
	case cluster.LocalQueue:
		return e.removeNamed(kind, namespace, name, bad)
	case cluster.Workload:
		uid := e.recordedUID(namespace, name)
		if uid == "" {
			return bad("there is no Workload %s/%s", namespace, name)
		}
		e.after.Remove(kind.Kind, namespace, name)
		e.late = append(e.late, state.DeleteWorkload(uid))
		return nil
	}
	if d := e.kindNamed(word); d != nil {
		return e.removeJob(d, namespace, name, bad)
	}
	return bad("must be a clusterqueue, localqueue, cohort, resourceflavor, workload or a kind of jobs; --drain is for nodes")
}

// kindNamed returns the kind of jobs of a name such as job or jobs, nil for none.
func (e *edit) kindNamed(word string) *job.Descriptor {
	for _, d := range e.kinds {
		if word = strings.ToLower(word); word == strings.ToLower(d.GVK.Kind) || word == d.Resource {
			return d
		}
	}
	return nil
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

func (e *edit) removeNamed(kind *cluster.Kind, namespace, name string, bad func(string, ...any) error) error {
	if !e.after.Remove(kind.Kind, namespace, name) {
		where := ""
		if namespace != "" {
			where = " in the namespace " + namespace
		}
		return bad("there is no %s %s%s", kind.Kind, name, where)
	}
	return nil
}

// removeQueue deletes a ClusterQueue. One in which Workloads hold quota admits nothing more, and stays until they have ended.
func (e *edit) removeQueue(name string, bad func(string, ...any) error) error {
	queues := e.queuesAfter()
	def, known := queues[name]
	if !known {
		return bad("there is no such ClusterQueue: %s", cluster.OrAll(name, slices.Sorted(maps.Keys(queues))))
	}
	for of := range e.b.state.Overview() {
		if of.Reserved && of.Queue == name {
			if cq, has := offline.Get[*kueue.ClusterQueue](e.after, name); has {
				cq = cq.DeepCopy()
				cq.DeletionTimestamp = new(metav1.NewTime(e.c.now()))
				e.after.Add(cq)
				return nil
			}
			def.Closed = "it is being deleted"
			e.late = append(e.late, state.SetQueue(def))
			return nil
		}
	}
	if !e.after.Remove(cluster.ClusterQueue.Kind, "", name) {
		e.late = append(e.late, state.DeleteQueue(name))
	}
	return nil
}

// queuesAfter returns the ClusterQueues after the change so far, by name.
func (e *edit) queuesAfter() map[string]state.Queue {
	out := map[string]state.Queue{}
	if e.b.recorded {
		out = e.b.knownQueues()
	}
	for _, cq := range offline.All[*kueue.ClusterQueue](e.after) {
		if def, err := convert.Queue(cq, nil); err == nil {
			out[cq.Name] = def
		}
	}
	return out
}

func (e *edit) removeJob(d *job.Descriptor, namespace, name string, bad func(string, ...any) error) error {
	if e.b.recorded {
		return bad("a flight record does not have the jobs of Workloads: name the workload")
	}
	found := false
	for _, w := range offline.All[*kueue.Workload](e.after) {
		if w.Namespace == namespace && isOf(w, d, name) {
			found = true
			e.after.Remove(cluster.Workload.Kind, namespace, w.Name)
			e.late = append(e.late, state.DeleteWorkload(string(w.UID)))
		}
	}
	if !found {
		return bad("there is no Workload of a %s %s/%s", d.GVK.Kind, namespace, name)
	}
	return nil
}
