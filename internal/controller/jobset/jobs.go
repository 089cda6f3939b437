package jobset

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/plan/jobset"
)

// byJobSet is the index of Jobs by the UID of the JobSet that controls them.
const byJobSet = "berth.jobSet"

// jobs finds the Jobs of a JobSet in the cache of the manager. It goes past the cache's reader, which would copy every Job
// in each look: those of a large JobSet are megabytes.
type jobs struct{ index toolscache.Indexer }

// newJobs adds the index to the cache, which must not have started.
func newJobs(ctx context.Context, c cache.Cache) (jobs, error) {
	informer, err := c.GetInformer(ctx, &batchv1.Job{})
	if err != nil {
		return jobs{}, fmt.Errorf("indexing jobs: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return jobs{}, fmt.Errorf("indexing jobs: the cache has an informer %T, which is not of one cluster", informer)
	}
	if _, known := shared.GetIndexer().GetIndexers()[byJobSet]; known {
		return jobs{shared.GetIndexer()}, nil
	}
	err = shared.AddIndexers(toolscache.Indexers{byJobSet: func(object any) ([]string, error) {
		o, ok := object.(client.Object)
		if !ok {
			return nil, nil
		}
		if ref := jobSetOf(o); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return jobs{}, fmt.Errorf("indexing jobs: %w", err)
	}
	return jobs{shared.GetIndexer()}, nil
}

// of are the Jobs that a JobSet controls, in any order. They belong to the cache and must not be changed.
func (j jobs) of(jobSet types.UID) ([]*batchv1.Job, error) {
	found, err := j.index.ByIndex(byJobSet, string(jobSet))
	if err != nil {
		return nil, err
	}
	out := make([]*batchv1.Job, 0, len(found))
	for _, object := range found {
		if job, ok := object.(*batchv1.Job); ok {
			out = append(out, job)
		}
	}
	return out, nil
}

// keys are those of labels and annotations that every Job of a JobSet has, on itself and on its pods.
var keys = func() map[string]string {
	out := map[string]string{}
	for _, key := range []string{
		jobsetv1alpha2.JobSetNameKey, jobsetv1alpha2.JobSetUIDKey, jobsetv1alpha2.ReplicatedJobNameKey, jobsetv1alpha2.ReplicatedJobReplicasKey,
		jobsetv1alpha2.GlobalReplicasKey, jobsetv1alpha2.JobIndexKey, jobsetv1alpha2.JobGlobalIndexKey, jobsetv1alpha2.JobKeyKey,
		jobsetv1alpha2.RestartAttemptKey, jobsetv1alpha2.JobRestartAttemptKey, jobsetv1alpha2.GroupNameKey, jobsetv1alpha2.GroupReplicasKey,
		jobsetv1alpha2.JobGroupIndexKey, jobsetv1alpha2.CoordinatorKey, jobsetv1alpha2.PriorityLabel, plan.FingerprintAnnotation,
		batchv1.ControllerUidLabel, batchv1.JobNameLabel,
	} {
		out[key] = key
	}
	return out
}()

// Compact is a transform for caches of Jobs. It leaves out who set which field, and lets the labels and annotations of a
// Job and of its pods share their texts, which are the same four times over. Those of the keys are the program's own, so
// that they are found without being compared.
func Compact(object any) (any, error) {
	if j, ok := object.(*batchv1.Job); ok {
		compact(j)
	}
	return object, nil
}

func compact(j *batchv1.Job) {
	j.ManagedFields = nil
	own := j.Labels
	pod := &j.Spec.Template
	for _, m := range []*map[string]string{&j.Labels, &j.Annotations, &pod.Labels, &pod.Annotations} {
		*m = shared(*m, own)
	}
}

// shared is a map with the texts of the keys above, and with the values of another map where they are the same.
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
			key = known
		}
		out[key] = value
	}
	return out
}
