package demo

import (
	"regexp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// phase is the state of a job in the demo.
type phase int

const (
	submitted phase = iota // not observed by Berth yet
	waiting                // for quota
	starting               // holds a quota reservation; its pods start
	running
	stopping // preempted; its pods stop
	finished
	failed
)

var phaseNames = [...]string{"submitted", "waiting", "starting", "running", "stopping", "finished", "failed"}

func (p phase) String() string { return phaseNames[p] }

// holds reports whether quota is charged for it.
func (p phase) holds() bool { return p == starting || p == running || p == stopping }

func (p phase) over() bool { return p == finished || p == failed }

// span begins at a time, since the beginning of the demo, with a phase. The last span of a job is open.
type span struct {
	phase
	from time.Duration
}

// life is the history of a job.
type life struct {
	order
	spans       []span // at least one
	why         string // the condition's message, while it waits or stops
	preemptions int

	workload *kueue.Workload // as seen last
	ready    int32           // pods
}

func (l *life) now() span { return l.spans[len(l.spans)-1] }

// at returns the phase at a time; false before the submission.
func (l *life) at(t time.Duration) (phase, bool) {
	for _, s := range slices.Backward(l.spans) {
		if s.from <= t {
			return s.phase, true
		}
	}
	return 0, false
}

// news is a change of a job.
type news struct {
	at   time.Duration
	job  *life
	from phase
}

// story is the history of all jobs, in the order of their submission. Times are since the beginning.
type story struct {
	jobs  []*life
	total int // number of jobs in the scenario
}

func (s *story) submit(o order, at time.Duration) {
	s.jobs = append(s.jobs, &life{order: o, spans: []span{{submitted, at}}})
}

// ahead reports whether there are jobs that Berth has not observed yet.
func (s *story) ahead() bool {
	return slices.ContainsFunc(s.jobs, func(l *life) bool { return l.now().phase == submitted })
}

// done reports whether all jobs were submitted and are over.
func (s *story) done() bool {
	return len(s.jobs) == s.total && !slices.ContainsFunc(s.jobs, func(l *life) bool { return !l.now().over() })
}

func (s *story) find(team, name string) *life {
	for _, l := range s.jobs {
		if l.team == team && l.name == name {
			return l
		}
	}
	return nil
}

// sawJob processes a Job. The second result reports whether anything changed.
func (s *story) sawJob(j *batchv1.Job, at time.Duration) (news, bool) {
	l := s.find(j.Namespace, j.Name)
	if l == nil {
		return news{}, false
	}
	l.ready = ptr.Deref(j.Status.Ready, 0)
	return l.advance(at)
}

// sawWorkload processes a Workload of the named job.
func (s *story) sawWorkload(w *kueue.Workload, job string, at time.Duration) (news, bool) {
	l := s.find(w.Namespace, job)
	if l == nil {
		return news{}, false
	}
	l.workload = w
	return l.advance(at)
}

// advance updates the phase and the reason.
func (l *life) advance(at time.Duration) (news, bool) {
	was, why := l.now(), l.why
	is := l.phase()
	if is == starting && was.phase == running {
		is = running // its pods have ended, and Berth has not observed that yet
	}
	l.why = l.reason(is)
	if is == was.phase {
		return news{at, l, was.phase}, l.why != why
	}
	if was.phase.holds() && (is == stopping || is == waiting) && was.phase != stopping {
		l.preemptions++
	}
	l.spans = append(l.spans, span{is, at})
	return news{at, l, was.phase}, true
}

// phase derives the phase from the Workload and, for running pods, from the Job.
func (l *life) phase() phase {
	if l.workload == nil {
		return submitted
	}
	conditions := l.workload.Status.Conditions
	switch {
	case apimeta.IsStatusConditionTrue(conditions, kueue.WorkloadFinished):
		if apimeta.FindStatusCondition(conditions, kueue.WorkloadFinished).Reason == kueue.ReasonSucceeded {
			return finished
		}
		return failed
	case !apimeta.IsStatusConditionTrue(conditions, kueue.WorkloadQuotaReserved):
		return waiting
	case apimeta.IsStatusConditionTrue(conditions, kueue.WorkloadEvicted):
		return stopping
	case l.ready > 0:
		return running
	}
	return starting
}

// reason is the message of the condition that explains a phase.
func (l *life) reason(p phase) string {
	condition := ""
	switch p {
	case waiting:
		condition = kueue.WorkloadQuotaReserved
	case stopping:
		condition = kueue.WorkloadEvicted
	case failed:
		condition = kueue.WorkloadFinished
	case submitted, starting, running, finished:
		return ""
	}
	if c := apimeta.FindStatusCondition(l.workload.Status.Conditions, condition); c != nil {
		return uids.ReplaceAllString(c.Message, "")
	}
	return ""
}

// uids matches the UIDs that the message of a preemption has for programs.
var uids = regexp.MustCompile(` \(UID: [^)]*\)`)

// inUse is how many GPUs of quota are charged to a team at a time.
func (s *story) inUse(team string, t time.Duration) int32 {
	var sum int32
	for _, l := range s.jobs {
		if p, there := l.at(t); there && l.team == team && p.holds() {
			sum += l.gpus
		}
	}
	return sum
}

// peak is the highest quota that was ever charged to the given teams together.
func (s *story) peak(of ...string) int32 {
	var most int32
	for _, l := range s.jobs {
		for _, moment := range l.spans {
			var sum int32
			for _, team := range of {
				sum += s.inUse(team, moment.from)
			}
			most = max(most, sum)
		}
	}
	return most
}

func (s *story) preemptions() int {
	n := 0
	for _, l := range s.jobs {
		n += l.preemptions
	}
	return n
}

// admissions is how often a job got quota.
func (s *story) admissions() int {
	n := 0
	for _, l := range s.jobs {
		for i, moment := range l.spans {
			if moment.holds() && (i == 0 || !l.spans[i-1].holds()) {
				n++
			}
		}
	}
	return n
}

// end is the time of the last change.
func (s *story) end() time.Duration {
	var last time.Duration
	for _, l := range s.jobs {
		last = max(last, l.now().from)
	}
	return last
}

// spent is how long the job was in the picked phases.
func (l *life) spent(pick func(phase) bool) time.Duration {
	var sum time.Duration
	for i, s := range l.spans[:len(l.spans)-1] {
		if pick(s.phase) {
			sum += l.spans[i+1].from - s.from
		}
	}
	return sum
}
