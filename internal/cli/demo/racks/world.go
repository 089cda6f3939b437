package racks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// world is the cluster at one time.
type world struct {
	hosts []host
	pods  []pod
	jobs  []job
}

// host is a node.
type host struct {
	name, rack, block string
	ready             bool
}

// pod is a pod of a job that has not ended.
type pod struct {
	uid, job string
	node     string // "" if it has none yet
	running  bool
	stopping bool // it is being deleted
}

// job is a job as its Workload describes it.
type job struct {
	name string
	// reserved means that it holds a quota reservation; evicted, that it is being stopped.
	reserved, evicted bool
	why               string // it waits, or was evicted
}

// newWorld sorts the objects of the API server.
func newWorld(nodes []corev1.Node, pods []corev1.Pod, workloads []kueue.Workload) world {
	var w world
	for i := range nodes {
		n := &nodes[i]
		w.hosts = append(w.hosts, host{
			name: n.Name, rack: n.Labels[rackLabel], block: n.Labels[blockLabel],
			ready: slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}),
		})
	}
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		w.pods = append(w.pods, pod{
			uid: string(p.UID), job: p.Labels[batchv1.JobNameLabel], node: p.Spec.NodeName,
			running: p.Status.Phase == corev1.PodRunning, stopping: p.DeletionTimestamp != nil,
		})
	}
	for i := range workloads {
		wl := &workloads[i]
		owner := metav1.GetControllerOf(wl)
		if owner == nil || wl.DeletionTimestamp != nil {
			continue
		}
		j := job{
			name:     owner.Name,
			reserved: apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved),
			evicted:  apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted),
		}
		reason := kueue.WorkloadQuotaReserved
		if j.reserved && j.evicted {
			reason = kueue.WorkloadEvicted
		}
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, reason); c != nil && (!j.reserved || j.evicted) {
			j.why = c.Message
		}
		w.jobs = append(w.jobs, j)
	}
	slices.SortFunc(w.hosts, func(a, b host) int { return cmp.Compare(a.name, b.name) })
	slices.SortFunc(w.pods, func(a, b pod) int { return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.uid, b.uid)) })
	slices.SortFunc(w.jobs, func(a, b job) int { return cmp.Compare(a.name, b.name) })
	return w
}

func (w world) host(name string) host {
	if i := slices.IndexFunc(w.hosts, func(h host) bool { return h.name == name }); i >= 0 {
		return w.hosts[i]
	}
	return host{}
}

func (w world) job(name string) (job, bool) {
	if i := slices.IndexFunc(w.jobs, func(j job) bool { return j.name == name }); i >= 0 {
		return w.jobs[i], true
	}
	return job{}, false
}

// runningOf are the running pods of a job on nodes that are ready.
func (w world) runningOf(job string) (out []pod) {
	for _, p := range w.pods {
		if p.job == job && p.running && !p.stopping && w.host(p.node).ready {
			out = append(out, p)
		}
	}
	return out
}

// runs reports whether all pods of a gang run.
func (w world) runs(g gang) bool { return len(w.runningOf(g.name)) == int(g.pods) }

// state is what a job does, in a word.
func (w world) state(g gang) string {
	j, found := w.job(g.name)
	switch {
	case !found:
		return "submitted"
	case j.reserved && j.evicted:
		return "stopping"
	case !j.reserved && j.evicted:
		return "preempted"
	case !j.reserved:
		return "waiting"
	case w.runs(g):
		return "running"
	}
	return "starting"
}

// rackOf returns the rack of the running pods of a job; an error, if there are several.
func (w world) rackOf(job string) (string, error) {
	racks := map[string]bool{}
	rack := ""
	for _, p := range w.runningOf(job) {
		rack = w.host(p.node).rack
		racks[rack] = true
	}
	if len(racks) != 1 {
		return "", fmt.Errorf("the pods of %s are in %d racks, and must be in one", job, len(racks))
	}
	return rack, nil
}

// idle returns how many ready nodes have no pod, and how many of them are in the rack that has most.
func (w world) idle() (all, together int) {
	used, racks := map[string]bool{}, map[string]int{}
	for _, p := range w.pods {
		used[p.node] = true
	}
	for _, h := range w.hosts {
		if h.ready && !used[h.name] {
			all++
			racks[h.rack]++
			together = max(together, racks[h.rack])
		}
	}
	return all, together
}

// String describes the jobs in one line.
func (w world) String() string {
	parts := make([]string, 0, len(gangs))
	for _, g := range gangs {
		j, found := w.job(g.name)
		if !found {
			continue
		}
		text := fmt.Sprintf("%s is %s with %d of %d pods running", g.name, w.state(g), len(w.runningOf(g.name)), g.pods)
		if j.why != "" {
			text += " (" + j.why + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
