package jobset

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// state is what a Job means to its JobSet (spec: 60 §4.3 step 3).
type state uint8

const (
	// active is neither failed nor succeeded; Jobs that are being deleted are among them.
	active state = iota
	succeeded
	failed
	// previous belongs to an older attempt and only waits for its end.
	previous
)

// child is one Job of the JobSet.
type child struct {
	job   *batchv1.Job
	rj    int // position of its replicated job, or -1
	index int // within the replicated job, or -1
	state state
}

// counts are the counters of one replicated job.
type counts struct {
	Ready, Succeeded, Failed, Active, Suspended int32
}

// observe sorts the Jobs and counts them.
func (p *pass) observe() {
	p.children = make([]child, 0, len(p.o.Jobs))
	p.counts = make([]counts, len(p.replicated))
	for _, j := range p.o.Jobs {
		p.children = append(p.children, p.judge(j))
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

// sortChildren puts the Jobs into the order of the spec. As a rule there is at most one for every index, which is then its
// place.
func (p *pass) sortChildren() {
	slots := make([]int32, min(p.globalReplicas, 4*len(p.children))) // of the child, plus one
	for i := range p.children {
		c := &p.children[i]
		at := -1
		if c.rj >= 0 && c.index >= 0 && c.index < int(p.replicated[c.rj].replicas) {
			at = p.replicated[c.rj].firstGlobal + c.index
		}
		if at < 0 || at >= len(slots) || slots[at] != 0 {
			slices.SortFunc(p.children, func(a, b child) int {
				return cmp.Or(cmp.Compare(a.rj, b.rj), cmp.Compare(a.index, b.index), strings.Compare(a.job.Name, b.job.Name))
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

// judge finds out what a Job is.
func (p *pass) judge(j *batchv1.Job) child {
	c := child{job: j, rj: -1, index: number(j.Labels[jobsetv1alpha2.JobIndexKey])}
	name := j.Labels[jobsetv1alpha2.ReplicatedJobNameKey]
	if at, ok := p.byName[name]; ok {
		c.rj = at
	}
	attempt := number(j.Labels[jobsetv1alpha2.RestartAttemptKey])
	switch {
	case attempt < 0:
		p.warn(j, jobsetv1alpha2.RestartAttemptKey)
		c.state = previous
	case attempt < int(p.status.Restarts):
		c.state = previous
	case p.RestartJob && p.restartedAlone(&c, name):
		c.state = previous
	default:
		c.state = outcome(j)
	}
	return c
}

// restartedAlone says whether a Job is of an older attempt of its own.
func (p *pass) restartedAlone(c *child, name string) bool {
	if name == "" || c.index < 0 {
		p.warn(c.job, jobsetv1alpha2.ReplicatedJobNameKey+" or "+jobsetv1alpha2.JobIndexKey)
		return true
	}
	if c.rj < 0 {
		return false
	}
	arrays := p.replicated[c.rj].arrays
	if arrays == nil || len(arrays.JobRestarts) == 0 {
		return false
	}
	if c.index >= len(arrays.JobRestarts) {
		p.warn(c.job, jobsetv1alpha2.JobIndexKey)
		return true
	}
	// Without the label, which releases without the gate do not set, it is of the first attempt.
	return max(number(c.job.Labels[jobsetv1alpha2.JobRestartAttemptKey]), 0) < int(arrays.JobRestarts[c.index])
}

func (p *pass) warn(j *batchv1.Job, key string) {
	p.plan.Warnings = append(p.plan.Warnings,
		fmt.Sprintf("Job %s has no usable label %s: it counts as one of an older attempt and is replaced", j.Name, key))
	slices.Sort(p.plan.Warnings)
}

// number reads a count, or -1.
func number(text string) int {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return int(n)
}

// outcome reads the conditions of a Job. Interim ones do not count: its pods may still be there.
func outcome(j *batchv1.Job) state {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobFailed:
			return failed
		case batchv1.JobComplete:
			return succeeded
		default:
		}
	}
	return active
}

// isEnding says whether a Job has failed or succeeded and still waits for its pods to end.
func isEnding(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobFailureTarget || c.Type == batchv1.JobSuccessCriteriaMet)
	})
}

// add counts a Job. One that is ending is active until its pods are gone, so that whoever waits for them is not misled
// (spec: 60 §6.2).
func (n *counts) add(c *child) {
	switch c.state {
	case succeeded:
		n.Succeeded++
	case failed:
		n.Failed++
	case active:
		s := &c.job.Status
		ready := s.Succeeded
		if s.Ready != nil {
			ready += *s.Ready
		}
		if ready >= wantedPods(&c.job.Spec) {
			n.Ready++
		}
		if s.Active > 0 || isEnding(c.job) {
			n.Active++
		}
		if isSuspended(c.job) {
			n.Suspended++
		}
	case previous:
	}
}

// wantedPods is how many pods of a Job run or succeed at a time.
func wantedPods(s *batchv1.JobSpec) int32 {
	parallelism := orOne(s.Parallelism)
	if s.Completions != nil {
		return min(parallelism, *s.Completions)
	}
	return parallelism
}

func orOne(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func isSuspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

// replicatedJobsStatus makes one entry for every replicated job, by descending name.
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
