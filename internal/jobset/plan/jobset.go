// Package plan decides what a JobSet needs next: from the JobSet, the Jobs that it owns and a few facts beside them
// it makes a Plan with the exact objects to create, the Jobs to delete, the patches that suspend and resume, and the
// status with its events (spec: 60 §4). The same world gives the same plan, to the byte.
//
//	JobSet, Jobs ──► observe ──► finished? ──yes──► clean up, time to live
//	                    │ no
//	                    ├──► a Job failed? ──yes──► failure policy: count and stop here
//	                    ├──► enough succeeded? ───► success policy: finish and stop here
//	                    └──► service, claims ──► start in order ──► suspend or resume ──► in-place restarts
//
// A restart takes two decisions. The first only counts it, in the status; from then on the Jobs of the old attempt are
// "previous", and the next decision deletes them. A crash between the two changes nothing, and as the count is written
// with the version of the JobSet that was read, one failure is never counted twice.
//
// Whoever carries a plan out writes the status first: a decision on an old JobSet then ends in a conflict before it
// has done anything.
package plan

import (
	"iter"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// Config is what an operator chose.
type Config struct {
	// InPlaceRestart, RestartJob and ElasticJobSet are the feature gates of these names (spec: 60 §5.8).
	InPlaceRestart, RestartJob, ElasticJobSet bool
	// LazyChildren makes no children for a JobSet that is suspended and never had any.
	LazyChildren bool
	// MaxJobs is how many Jobs a new JobSet may have; 0 is job.DefaultMaxChildren.
	MaxJobs int32
	// FailEarly acts upon the failure of a Job as soon as the Job is failing, before its pods have ended.
	FailEarly bool
}

// Observed is the world around one JobSet, read once. Decide changes none of it.
type Observed struct {
	JobSet *jobsetv1alpha2.JobSet
	// Jobs are all those that the JobSet owns by UID, in any order.
	Jobs []Job
	// Pods are those labelled with the name of the JobSet, in any order. They are looked at if WatchesPods.
	Pods []*corev1.Pod
	// ServiceExists: there is a Service named ServiceName, whoever made it.
	ServiceExists bool
	// Claims are the volume claims among ClaimNames that exist, by name.
	Claims map[string]metav1.Object
	// Priorities are those of pods.
	Priorities Priorities
	// Refused is why the API server will never create or resume what the JobSet needs, or empty. It fails a JobSet that
	// HoldsQuota; any other waits for somebody to remove the cause.
	Refused string
	// OwnerActive: the JobSet is controlled by an object that is not finished, so it must not be deleted yet.
	OwnerActive bool
	Now         time.Time
	// CountersWritten is when the status was last written as far as is known. It holds back writes that only change
	// counters of a large JobSet. Zero holds back nothing.
	CountersWritten time.Time
}

// Priorities are the values of PriorityClasses.
type Priorities struct {
	// Classes is by name.
	Classes map[string]int32
	// Default is that of pods that name no class.
	Default int32
}

// Plan is what to do, in the order of its fields. The zero value is nothing.
type Plan struct {
	// Status is the whole status to write, or nil if it is as it should be. Nothing below is done before it is
	// written.
	Status *jobsetv1alpha2.JobSetStatus
	// Events are to be told once the status is written.
	Events []Event
	// Finished is the state that this plan brings the JobSet to: Completed, Failed or empty.
	Finished string
	// Restarted is the number of restarts that this plan counts, of the JobSet or of single Jobs.
	Restarted int
	// ReadySince: with this plan all Jobs have become ready or succeeded, which they were started to be at this time. Zero is
	// that they are not, or were before.
	ReadySince time.Time
	// DeleteJobSet: delete the JobSet itself, in the foreground.
	DeleteJobSet bool
	// Delete are Jobs to delete, in the foreground.
	Delete []*batchv1.Job
	// Patches suspend, resume and resize Jobs.
	Patches []Patch
	// Service is to be created, or nil.
	Service *corev1.Service
	// Claims are to be created, by policy: the first failure of a policy ends that policy. If one fails, or the
	// Service does, no Job is created.
	Claims [][]*corev1.PersistentVolumeClaim
	// Create are Jobs to create, in order; nil if none is missing. They are found while they are asked for, so that a number of
	// replicas costs nothing by itself. It may be asked for once at a time.
	Create iter.Seq[Missing]
	// After is when to look again without an event; zero is never.
	After time.Duration
	// Warnings are for the log.
	Warnings []string
	// Err is a fault of the stored object that stops the JobSet. The rest of the plan is to be done all the same.
	Err error
}

// Window is how many Jobs are created for a JobSet before it is decided upon again. A suspended JobSet of more Jobs gets none: they are
// created once it is resumed.
const Window = 500

// Missing is a Job to create. It is built when it is asked for, by any number of goroutines: all those of a large JobSet at
// once would be the most memory that a manager ever needs.
type Missing struct {
	pass  *pass
	rj    *replicated
	index int
}

// Build makes the Job.
func (m Missing) Build() *batchv1.Job { return m.pass.build(m.rj, m.index) }

// Event is something to tell about the JobSet.
type Event struct {
	Warning      bool
	Reason, Note string
}

// Patch is a JSON merge patch of a Job, pinned to its UID.
type Patch struct {
	Job  *batchv1.Job
	Data []byte
	// Template: the pod template changes. The API server refuses that as invalid while pods of the old template may
	// be there; up to Kubernetes 1.35 also as long as status.startTime is set.
	Template bool
}

// IsManaged reports whether the built-in controller runs the JobSet (spec: 60 §4.3 step 2).
func IsManaged(js *jobsetv1alpha2.JobSet) bool {
	return js.Spec.ManagedBy == nil || *js.Spec.ManagedBy == jobsetv1alpha2.DefaultManager
}

// HoldsQuota reports whether a JobSet runs by an admission: a queue marks the pod templates of what it starts. Such a JobSet
// must not wait for ever for what it cannot have, because others wait for its quota.
func HoldsQuota(js *jobsetv1alpha2.JobSet) bool {
	return (js.Spec.Suspend == nil || !*js.Spec.Suspend) && slices.ContainsFunc(js.Spec.ReplicatedJobs, func(rj jobsetv1alpha2.ReplicatedJob) bool {
		return rj.Template.Spec.Template.Labels[kueue.PodSetLabel] != ""
	})
}

// WatchesPods reports whether the plan depends on the pods of the JobSet.
func (c Config) WatchesPods(js *jobsetv1alpha2.JobSet) bool {
	return c.InPlaceRestart && js.Spec.FailurePolicy != nil && js.Spec.FailurePolicy.RestartStrategy == jobsetv1alpha2.RestartInPlace
}

// Decide makes the plan. Plans for a JobSet that is being deleted or that another controller manages are empty.
func (c Config) Decide(o *Observed) Plan {
	if o.JobSet.DeletionTimestamp != nil || !IsManaged(o.JobSet) {
		return Plan{}
	}
	p := &pass{Config: c, o: o, js: o.JobSet, layout: newLayout(c, o.JobSet, o.Priorities), now: metav1.NewTime(o.Now).Rfc3339Copy()}
	p.status = *o.JobSet.Status.DeepCopy()
	p.observe()
	p.decide()
	p.finishStatus()
	return p.plan
}

// pass is one decision under way.
type pass struct {
	Config
	*layout
	o      *Observed
	js     *jobsetv1alpha2.JobSet
	now    metav1.Time
	status jobsetv1alpha2.JobSetStatus // as it will be written
	plan   Plan

	children []child // sorted
	counts   []counts
	missing  []int // replicated jobs that may start and lack Jobs
	previous int
	failed   []*child
}

// decide goes through the steps in the order that clients know (spec: 60 §4.3).
func (p *pass) decide() {
	p.deletePrevious()
	if finished := p.finishedCondition(); finished != nil {
		p.deleteActive()
		p.expire(finished)
		return
	}
	if p.o.Refused != "" && HoldsQuota(p.js) {
		p.fail(jobsetv1alpha2.ReasonJobCreationFailed, p.o.Refused)
		return
	}
	if !p.suspended() && allReady(&p.status, p.globalReplicas) {
		p.plan.ReadySince = p.readySince()
		p.set(jobsetv1alpha2.ConditionRestarting, metav1.ConditionFalse, jobsetv1alpha2.ReasonJobsReady, "all jobs are ready")
	}
	if len(p.failed) > 0 {
		p.applyFailurePolicy()
		return
	}
	if p.succeeded() {
		p.complete()
		return
	}
	if why := p.tooLarge(); why != "" {
		p.fail(jobsetv1alpha2.ReasonJobCreationFailed, why)
		return
	}
	p.run()
	p.restartInPlace()
}

// run has the Jobs there that should be, suspended or not.
func (p *pass) run() {
	tooManyToWait := p.suspended() && p.globalReplicas > Window
	waits := p.suspended() && (p.LazyChildren || tooManyToWait) && len(p.children) == 0
	if !waits {
		p.ensureService()
		p.ensureClaims()
	}
	p.resize()
	started := p.walk(waits || tooManyToWait)
	if p.suspended() {
		p.suspend()
	} else {
		p.resumed(started)
	}
}

// tooLarge is why a JobSet lacks Jobs that will never be created, or empty. It was stored before the webhook refused its like. A
// maximum that was lowered since does not end a JobSet that the default allows.
func (p *pass) tooLarge() string {
	most := max(p.MaxJobs, job.DefaultMaxChildren)
	if p.globalReplicas <= int(most) || len(p.children) >= p.globalReplicas {
		return ""
	}
	return "spec.replicatedJobs: " + job.TooMany(int64(p.globalReplicas), "Jobs", most)
}

func (p *pass) suspended() bool { return p.js.Spec.Suspend != nil && *p.js.Spec.Suspend }

// deletePrevious deletes the Jobs of older attempts.
func (p *pass) deletePrevious() {
	for i := range p.children {
		if c := &p.children[i]; c.state == previous {
			p.delete(c)
		}
	}
}

// deleteActive ends what still runs when the JobSet has finished.
func (p *pass) deleteActive() {
	for i := range p.children {
		if c := &p.children[i]; c.state == active {
			p.delete(c)
		}
	}
}

func (p *pass) delete(c *child) {
	if !c.deleting {
		p.plan.Delete = append(p.plan.Delete, c.Object)
	}
}

// expire deletes a finished JobSet when its time to live is over (spec: 60 §4.12).
func (p *pass) expire(finished *metav1.Condition) {
	ttl := p.js.Spec.TTLSecondsAfterFinished
	if ttl == nil {
		return
	}
	left := finished.LastTransitionTime.Add(time.Duration(*ttl) * time.Second).Sub(p.o.Now)
	switch {
	case left > 0:
		p.wake(left)
	case p.o.OwnerActive:
		p.wake(ownerPause)
	default:
		p.plan.DeleteJobSet = true
	}
}

// ownerPause is how often a JobSet that outlived its time looks whether the one who controls it has finished.
const ownerPause = 5 * time.Second

// wake has the JobSet looked at again after a time, or earlier if it was asked for before.
func (p *pass) wake(after time.Duration) {
	if p.plan.After == 0 || after < p.plan.After {
		p.plan.After = after
	}
}
