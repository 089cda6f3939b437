package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// nominate finds flavors for a head, and victims where it needs them, and changes
// nothing. spec: 10 §4.5 step 3.
func (w *World) nominate(q *Queue, wl *workload.Workload) *entry {
	e := &entry{q: q, wl: wl, look: &trace.Look{
		Workload: wl.Key, UID: wl.UID, Queue: q.Name, Priority: wl.Priority,
	}}
	labels, exists := w.NamespaceLabels(wl)
	switch {
	case !exists:
		e.barred, e.look.Note = trace.Misconfigured, "its namespace does not exist"
		return e
	case !selects(q.Namespaces, labels):
		e.barred, e.look.Note = trace.Misconfigured, "ClusterQueue "+q.Name+" does not take workloads of this namespace (namespaceSelector)"
		return e
	}
	w.assign(e)
	e.look.Refusals = e.got.Refusals
	if e.got.Mode != flavor.NoFit {
		w.record(e)
	}
	return e
}

// assign finds the flavors, and the victims that they need. The search asks what
// preemption can do for each FR alone; if there are then no victims for all of them
// together, flavors that fit without any are taken. spec: 10 §6 #30.
func (w *World) assign(e *entry) {
	s := w.search(e.q, e.wl)
	e.got = s.Assign(e.wl.PodSets)
	if e.got.Mode == flavor.NoFit || e.got.Mode == flavor.Fit {
		return
	}
	if e.targets = w.leaving(e.q, e.wl, e.got.Usage); e.targets == nil {
		e.targets = w.preemption(e.q, e.wl, e.got.Usage, e.got.Needs()).Targets()
	}
	if len(e.targets) > 0 || e.got.Mode == flavor.NoCandidates {
		return
	}
	s.Oracle = func(resource.FR, resource.Amount) (flavor.Mode, int) { return flavor.NoCandidates, 0 }
	if got := s.Assign(e.wl.PodSets); got.Mode == flavor.Fit {
		e.got = got
	}
}

// selects tells whether a namespace selector, ORed terms, takes these labels; none
// takes nothing.
func selects(terms []workload.Term, labels map[string]string) bool {
	return slices.ContainsFunc(terms, func(t workload.Term) bool { return t.Matches(labels) })
}

func (w *World) search(q *Queue, wl *workload.Workload) *flavor.Search {
	return &flavor.Search{
		Table: w.Table, Quota: w.Quota, Node: q.Node, Groups: q.Groups, Policy: q.Policy,
		IgnoreUndeclared:       w.IgnoreUndeclared,
		PreemptsWhileBorrowing: q.Preemption.BorrowWithin,
		Oracle: func(fr resource.FR, amount resource.Amount) (flavor.Mode, int) {
			return w.oracle(q, wl, fr, amount)
		},
	}
}

func (w *World) preemption(q *Queue, wl *workload.Workload, usage resource.Vector, need []resource.FR) *preempt.Search {
	return &preempt.Search{
		Quota: w.Quota, Node: q.Node, Policy: q.Preemption, Holders: w.holders,
		Preemptor: wl, Requests: usage, Need: need,
	}
}

// oracle runs the whole preemption search for one FR alone. spec: 10 §4.6.3.
func (w *World) oracle(q *Queue, wl *workload.Workload, fr resource.FR, amount resource.Amount) (flavor.Mode, int) {
	victims := w.preemption(q, wl, resource.Vector{{FR: fr, Amount: amount}}, []resource.FR{fr}).Targets()
	if len(victims) == 0 {
		return flavor.NoCandidates, 0
	}
	mode := flavor.Reclaim
	mark := w.Quota.Mark()
	defer w.Quota.Rollback(mark)
	for _, v := range victims {
		if v.Node == q.Node {
			mode = flavor.Preempt
		}
		w.Quota.Release(v.Node, v.Workload.Usage)
	}
	level, _ := w.Quota.Level(q.Node, fr, amount)
	return mode, level
}

func (w *World) record(e *entry) {
	for _, ps := range e.got.PodSets {
		for _, r := range ps.Resources {
			p := w.Table.Pair(r.FR)
			e.look.Choices = append(e.look.Choices, trace.Choice{
				PodSet: ps.Name, Resource: p.Resource, Flavor: p.Flavor,
				Amount: r.Amount, Mode: r.Mode.String(), Level: r.Level,
			})
		}
	}
}

// wants returns every FR that could serve one of the workload's requests: a release
// of any other cannot help it.
func (w *World) wants(q *Queue, wl *workload.Workload) []resource.FR {
	var frs []resource.FR
	for _, g := range q.Groups {
		for i, id := range g.Resources {
			if !requested(wl, id) && w.Table.Name(id) != "pods" {
				continue
			}
			for _, o := range g.Offers {
				frs = append(frs, o.FRs[i])
			}
		}
	}
	slices.Sort(frs)
	return slices.Compact(frs)
}

func requested(wl *workload.Workload, id resource.ID) bool {
	for _, ps := range wl.PodSets {
		for _, r := range ps.Requests {
			if r.Resource == id {
				return true
			}
		}
	}
	return false
}

// names writes FRs as "flavor/resource", sorted.
func (w *World) names(frs []resource.FR) []string {
	names := make([]string, len(frs))
	for i, fr := range frs {
		p := w.Table.Pair(fr)
		names[i] = p.Flavor + "/" + p.Resource
	}
	slices.Sort(names)
	return names
}
