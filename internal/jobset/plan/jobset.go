// Package plan decides the next steps of a JobSet: from the JobSet, its Jobs and a few other facts
// it makes a Plan with the exact objects to create, the Jobs to delete, the patches that suspend and resume, and the
// status with its events (spec: 60 §4). The same input gives the same plan, to the byte.
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
// The caller writes the status first: a decision on an old JobSet then ends in a conflict before any other write.
package plan

import (
	"iter"
	"regexp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
)

// Config is the configuration of the plan.
type Config struct {
	// InPlaceRestart, RestartJob and ElasticJobSet are the feature gates of these names (spec: 60 §5.8).
	InPlaceRestart, RestartJob, ElasticJobSet bool
	// LazyChildren creates no children for a suspended JobSet that never had any.
	LazyChildren bool
	// MaxJobs is the maximum number of Jobs of a new JobSet; 0 is job.DefaultMaxChildren.
	MaxJobs int32
	// FailEarly acts upon the failure of a Job as soon as the Job is failing, before its pods have ended.
	FailEarly bool
}

// Observed is the world around one JobSet, read once. Decide changes none of it.
type Observed struct {
	JobSet *jobsetv1alpha2.JobSet
	// Jobs are all Jobs that the JobSet owns by UID, in any order.
	Jobs []Job
	// Pods are the pods labelled with the name of the JobSet, in any order. They are needed if WatchesPods.
	Pods []*corev1.Pod
	// ServiceExists: there is a Service named ServiceName, of any owner.
	ServiceExists bool
	// Claims are the existing volume claims among ClaimNames, by name.
	Claims map[string]metav1.Object
	// Priorities are the priorities of pods.
	Priorities Priorities
	// Refused is why the API server refuses objects of the JobSet for good, or empty. It fails a JobSet that
	// HoldsQuota; any other waits for a user to remove the cause.
	Refused string
	// OwnerActive: the JobSet is controlled by an object that is not finished, so it must not be deleted yet.
	OwnerActive bool
	Now         time.Time
	// CountersWritten is when the status was last written, as far as is known. It delays writes of counters alone
	// in large JobSets. Zero delays nothing.
	CountersWritten time.Time
}

// Priorities are the values of PriorityClasses.
type Priorities struct {
	// Classes is by name.
	Classes map[string]int32
	// Default is the priority of pods without a class.
	Default int32
}

// Plan is the list of steps, in the order of its fields. The zero value is empty.
type Plan struct {
	// Status is the whole status to write, or nil if it has not changed. It is written before all other
	// steps.
	Status *jobsetv1alpha2.JobSetStatus
	// Events are emitted after the write of the status.
	Events []Event
	// Finished is the state that this plan brings the JobSet to: Completed, Failed or empty.
	Finished string
	// Restarted is the number of restarts that this plan counts, of the JobSet or of single Jobs.
	Restarted int
	// ReadySince is set if all Jobs have become ready or succeeded with this plan: the time at which they were started. Otherwise
	// it is zero.
	ReadySince time.Time
	// Delete are Jobs to delete, in the foreground.
	Delete []*batchv1.Job
	// Patches suspend, resume and resize Jobs.
	Patches []Patch
	// DeleteJobSet: delete the JobSet itself, in the foreground, and do nothing else afterwards.
	DeleteJobSet bool
	// Service is to be created, or nil.
	Service *corev1.Service
	// Claims are to be created, by policy: the first failure of a policy ends that policy. If one fails, or the
	// Service does, no Job is created.
	Claims [][]*corev1.PersistentVolumeClaim
	// Create are the Jobs to create, in order; nil if none is missing. The sequence finds them lazily, so that its cost does not depend
	// on the number of replicas. One iteration at a time.
	Create iter.Seq[Missing]
	// After is the time until the next decision without an event; zero is never.
	After time.Duration
	// Warnings are for the log.
	Warnings []string
	// Err is an error in the stored object that stops the JobSet. The rest of the plan is executed all the same.
	Err error
}

// Window is the number of Jobs that are created for a JobSet in one pass. A suspended JobSet with more Jobs gets none before
// it is resumed.
const Window = 500

// Missing is a Job to create. Any number of goroutines may build them: building all Jobs of a large JobSet at once would
// determine the peak memory of a manager.
type Missing struct {
	pass  *pass
	rj    *replicated
	index int
}

// Build makes the Job.
func (m Missing) Build() *batchv1.Job { return m.pass.build(m.rj, m.index) }

// Event is an event about the JobSet.
type Event struct {
	Warning      bool
	Reason, Note string
}

// Patch is a JSON merge patch of a Job, pinned to its UID.
type Patch struct {
	Job  *batchv1.Job
	Data []byte
	// Template: the pod template changes. The API server refuses that as invalid while pods of the old template may
	// exist; up to Kubernetes 1.35 also as long as status.startTime is set.
	Template bool
}

// IsManaged reports whether the built-in controller runs the JobSet (spec: 60 §4.3 step 2).
func IsManaged(js *jobsetv1alpha2.JobSet) bool {
	return js.Spec.ManagedBy == nil || *js.Spec.ManagedBy == jobsetv1alpha2.DefaultManager
}

// TrainJobOf returns the reference to the TrainJob that controls a JobSet, or nil.
func TrainJobOf(js *jobsetv1alpha2.JobSet) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(js)
	if owner == nil || owner.APIVersion != trainerv1alpha1.GroupVersion.String() || owner.Kind != trainerv1alpha1.KindTrainJob {
		return nil
	}
	return owner
}

// HoldsQuota reports whether a JobSet runs by an admission: a queue labels the pod templates of the JobSets that it starts. Such a JobSet
// must not wait for ever for objects that it cannot have, because others wait for its quota.
func HoldsQuota(js *jobsetv1alpha2.JobSet) bool {
	return !ptr.Deref(js.Spec.Suspend, false) && slices.ContainsFunc(js.Spec.ReplicatedJobs, func(rj jobsetv1alpha2.ReplicatedJob) bool {
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

// pass is one run of Decide.
type pass struct {
	Config
	*layout
	o      *Observed
	js     *jobsetv1alpha2.JobSet
	now    metav1.Time
	status jobsetv1alpha2.JobSetStatus // the new one
	plan   Plan

	children []child // sorted
	counts   []counts
	missing  []int // replicated jobs that may start and lack Jobs
	previous int
	failed   []*child
	// ruleOfJob and patterns are the rules of failed Jobs and the compiled patterns, filled as they are needed. A pattern that does not
	// compile is nil.
	ruleOfJob map[*child]int
	patterns  map[string]*regexp.Regexp
}

// decide goes through the steps in the order that clients know (spec: 60 §4.3).
func (p *pass) decide() {
	p.deleteAll(previous)
	if finished := FinishedCondition(p.js); finished != nil {
		p.deleteAll(active)
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
		if p.plan.Err != nil && p.suspended() { // its quota is released when its Jobs have ended
			p.suspend()
		}
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

// run plans the Jobs of an unfinished JobSet, suspended or not.
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

// tooLarge returns why Jobs of a JobSet will never be created, or empty. It was stored before webhooks refused its size. A
// lowered maximum does not end a JobSet that the default allows.
func (p *pass) tooLarge() string {
	most := max(p.MaxJobs, job.DefaultMaxChildren)
	if p.globalReplicas <= int(most) || len(p.children) >= p.globalReplicas {
		return ""
	}
	return "spec.replicatedJobs: " + job.TooMany(int64(p.globalReplicas), "Jobs", most)
}

func (p *pass) suspended() bool { return ptr.Deref(p.js.Spec.Suspend, false) }

func (p *pass) deleteAll(s state) {
	for i := range p.children {
		if c := &p.children[i]; c.state == s && !c.deleting {
			p.plan.Delete = append(p.plan.Delete, c.Object)
		}
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

// ownerPause is the interval at which an expired JobSet is decided upon while its owner has not finished.
const ownerPause = 5 * time.Second

// wake requests a decision after a time, unless an earlier one is requested.
func (p *pass) wake(after time.Duration) {
	if p.plan.After == 0 || after < p.plan.After {
		p.plan.After = after
	}
}
