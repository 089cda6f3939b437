package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// state is the state of a Job within its JobSet (spec: 60 §4.3 step 3).
type state uint8

const (
	// active is neither failed nor succeeded, including Jobs that are being deleted.
	active state = iota
	succeeded
	failed
	// previous is of an older attempt, to be deleted.
	previous
)

type child struct {
	*Job
	rj    int32 // position of its replicated job, or -1
	state state
}

type counts struct {
	Ready, Succeeded, Failed, Active, Suspended int32
}

func (p *pass) observe() {
	p.children = make([]child, 0, len(p.o.Jobs))
	p.counts = make([]counts, len(p.replicated))
	for i := range p.o.Jobs {
		p.children = append(p.children, p.judge(&p.o.Jobs[i]))
	}
	p.sortChildren()
	for i := range p.children {
		c := &p.children[i]
		if c.state == previous {
			p.previous++
			continue
		}
		if c.state == failed {
			p.failed = append(p.failed, c)
		}
		if c.rj >= 0 {
			p.counts[c.rj].add(c)
		}
	}
	p.status.ReplicatedJobsStatus = p.replicatedJobsStatus()
}

// sortChildren sorts the Jobs in the order of the spec. Usually there is at most one for every index, which is then its
// position.
func (p *pass) sortChildren() {
	slots := make([]int32, min(p.globalReplicas, 4*len(p.children))) // of the child, plus one
	for i := range p.children {
		c := &p.children[i]
		at := -1
		if c.rj >= 0 && c.index >= 0 && c.index < p.replicated[c.rj].replicas {
			at = p.replicated[c.rj].firstGlobal + int(c.index)
		}
		if at < 0 || at >= len(slots) || slots[at] != 0 {
			slices.SortFunc(p.children, func(a, b child) int {
				return cmp.Or(cmp.Compare(a.rj, b.rj), cmp.Compare(a.index, b.index), strings.Compare(a.Object.Name, b.Object.Name))
			})
			return
		}
		slots[at] = int32(i) + 1
	}
	sorted := make([]child, 0, len(p.children))
	for _, i := range slots {
		if i > 0 {
			sorted = append(sorted, p.children[i-1])
		}
	}
	p.children = sorted
}

// judge determines the state of a Job.
func (p *pass) judge(j *Job) child {
	c := child{Job: j, rj: -1, state: j.outcome}
	if at, ok := p.byName[j.replicatedJob]; ok {
		c.rj = int32(at)
	}
	if j.failing && p.FailEarly {
		c.state = failed
	}
	switch {
	case j.attempt < 0:
		p.warn(j, jobsetv1alpha2.RestartAttemptKey)
		c.state = previous
	case j.attempt < p.status.Restarts, p.RestartJob && p.restartedAlone(&c):
		c.state = previous
	}
	return c
}

// restartedAlone reports whether a Job is of an older attempt of its own.
func (p *pass) restartedAlone(c *child) bool {
	if c.replicatedJob == "" || c.index < 0 {
		p.warn(c.Job, jobsetv1alpha2.ReplicatedJobNameKey+" or "+jobsetv1alpha2.JobIndexKey)
		return true
	}
	if c.rj < 0 {
		return false
	}
	arrays := p.replicated[c.rj].arrays
	if arrays == nil || len(arrays.JobRestarts) == 0 {
		return false
	}
	if int(c.index) >= len(arrays.JobRestarts) {
		p.warn(c.Job, jobsetv1alpha2.JobIndexKey)
		return true
	}
	return c.ownAttempt < arrays.JobRestarts[c.index]
}

// maxWarnings is how many Jobs without usable labels are named.
const maxWarnings = 100

func (p *pass) warn(j *Job, key string) {
	if len(p.plan.Warnings) >= maxWarnings {
		return
	}
	p.plan.Warnings = append(p.plan.Warnings,
		fmt.Sprintf("Job %s has no usable label %s: it counts as one of an older attempt and is replaced", j.Object.Name, key))
	slices.Sort(p.plan.Warnings)
}

// add counts a Job. A Job that is ending is active until its pods are deleted, because clients wait for them
// (spec: 60 §6.2).
func (n *counts) add(c *child) {
	switch c.state {
	case succeeded:
		n.Succeeded++
	case failed:
		n.Failed++
		if c.failing {
			n.Active++
		}
	case active:
		if c.ready {
			n.Ready++
		}
		if c.busy {
			n.Active++
		}
		if c.suspended {
			n.Suspended++
		}
	case previous:
	}
}

// replicatedJobsStatus returns one entry for every replicated job, by descending name.
func (p *pass) replicatedJobsStatus() []jobsetv1alpha2.ReplicatedJobStatus {
	out := make([]jobsetv1alpha2.ReplicatedJobStatus, 0, len(p.replicated))
	for i := range p.replicated {
		r, n := &p.replicated[i], p.counts[i]
		s := jobsetv1alpha2.ReplicatedJobStatus{
			Name: r.Name, Ready: n.Ready, Succeeded: n.Succeeded, Failed: n.Failed, Active: n.Active, Suspended: n.Suspended,
		}
		if r.arrays != nil {
			s.JobRestarts = slices.Clone(r.arrays.JobRestarts)
			s.JobRestartsCountTowardsMax = slices.Clone(r.arrays.JobRestartsCountTowardsMax)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b jobsetv1alpha2.ReplicatedJobStatus) int { return strings.Compare(b.Name, a.Name) })
	return out
}
