package controller

import (
	"slices"
	"sync"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// jobs holds the Jobs of every JobSet, by the UID of the JobSet, from the events of the cache. An index of the cache itself
// would look up every Job by its key in each pass, and the pass would then read Jobs that are scattered over memory.
type jobs struct {
	mu   sync.Mutex
	sets map[types.UID]*jobsOf
}

type jobsOf struct {
	at   map[types.UID]int // position in list
	list []plan.Job
	lent bool // a reader has list, so the next change copies it
}

func newJobs() *jobs { return &jobs{sets: map[types.UID]*jobsOf{}} }

// of returns the Jobs that a JobSet controls, in any order. The list must not be changed, nor the Jobs, which are the cache's.
func (j *jobs) of(jobSet types.UID) []plan.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.sets[jobSet]
	if s == nil {
		return nil
	}
	s.lent = true
	return s.list
}

func (j *jobs) put(object client.Object) {
	job, ok := object.(*batchv1.Job)
	ref := jobSetOf(object)
	if !ok || ref == nil {
		return
	}
	next := plan.NewJob(job)
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.sets[ref.UID]
	if s == nil {
		s = &jobsOf{at: map[types.UID]int{}}
		j.sets[ref.UID] = s
	}
	s.own()
	if at, known := s.at[job.UID]; known {
		s.list[at] = next
		return
	}
	s.at[job.UID] = len(s.list)
	s.list = append(s.list, next)
}

func (j *jobs) remove(object client.Object) {
	ref := jobSetOf(object)
	if ref == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.sets[ref.UID]
	if s == nil {
		return
	}
	at, known := s.at[object.GetUID()]
	if !known {
		return
	}
	s.own()
	last := len(s.list) - 1
	s.list[at] = s.list[last]
	s.at[s.list[at].Object.UID] = at
	s.list[last] = plan.Job{}
	s.list = s.list[:last]
	delete(s.at, object.GetUID())
	if last == 0 {
		delete(j.sets, ref.UID)
	}
}

// own copies the list if a reader has it.
func (s *jobsOf) own() {
	if s.lent {
		s.list, s.lent = slices.Clone(s.list), false
	}
}

// known is a key of a label or an annotation of Jobs of JobSets.
type known struct {
	key string
	// common: most Jobs of a JobSet have the same value, which is stored once.
	common bool
}

// keys are the keys of labels and annotations that every Job of a JobSet has, on itself and on its pods.
var keys = func() map[string]known {
	out := map[string]known{}
	for _, key := range []string{
		jobsetv1alpha2.JobSetNameKey, jobsetv1alpha2.JobSetUIDKey, jobsetv1alpha2.ReplicatedJobNameKey, jobsetv1alpha2.ReplicatedJobReplicasKey,
		jobsetv1alpha2.GlobalReplicasKey, jobsetv1alpha2.RestartAttemptKey, jobsetv1alpha2.JobRestartAttemptKey, jobsetv1alpha2.GroupNameKey,
		jobsetv1alpha2.GroupReplicasKey, jobsetv1alpha2.CoordinatorKey, jobsetv1alpha2.PriorityLabel, plan.FingerprintAnnotation,
	} {
		out[key] = known{key, true}
	}
	for _, key := range []string{
		jobsetv1alpha2.JobIndexKey, jobsetv1alpha2.JobGlobalIndexKey, jobsetv1alpha2.JobGroupIndexKey, jobsetv1alpha2.JobKeyKey,
		batchv1.ControllerUidLabel, batchv1.JobNameLabel,
	} {
		out[key] = known{key: key}
	}
	return out
}()

// Compact is a transform for caches of Jobs. It drops the managed fields, and lets the labels and annotations of a
// Job and of its pods, four almost equal maps, share their strings. Known keys become the program's own strings, which compare
// fast, and all Jobs share the values that they have in common.
func Compact(object any) (any, error) {
	if j, ok := object.(*batchv1.Job); ok {
		compact(j)
	}
	return object, nil
}

// read returns a Job of the API server's answer in the form of the cache.
func read(j *batchv1.Job) plan.Job {
	compact(j)
	return plan.NewJob(j)
}

func compact(j *batchv1.Job) {
	j.ManagedFields = nil
	own := j.Labels
	pod := &j.Spec.Template
	for _, m := range []*map[string]string{&j.Labels, &j.Annotations, &pod.Labels, &pod.Annotations} {
		*m = shared(*m, own)
	}
}

// shared returns a map with the strings of keys, and with the values of another map where they are equal.
func shared(m, with map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for key, value := range m {
		if same, ok := with[key]; ok && same == value {
			value = same
		}
		if known, ok := keys[key]; ok {
			key = known.key
			if known.common {
				value = unique.Make(value).Value()
			}
		}
		out[key] = value
	}
	return out
}
