package job_test

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/kind/job"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
)

// TestRemoteResize is when a Job on a worker gets another size, and which slice it names: once the local Job is of the size of the slice
// (spec: 40 §4.6, §4.9).
func TestRemoteResize(t *testing.T) {
	for name, tc := range map[string]struct {
		local, slice, remote int32
		names                string
		want                 string
	}{
		"as it is":                      {2, 2, 2, "job-a", ""},
		"grown, by a slice of its own":  {4, 4, 2, "job-before", "4 job-a"},
		"grown, and the next one waits": {4, 2, 2, "job-a", ""},
		"shrunk":                        {1, 1, 2, "job-a", "1 job-a"},
		"shrunk, and its slice has not": {1, 2, 2, "job-a", ""},
		"another slice, the same size":  {2, 2, 2, "job-before", "2 job-a"},
	} {
		t.Run(name, func(t *testing.T) {
			local, w := sent()
			w.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true"}
			w.Spec.PodSets[0].Count = tc.slice
			local.Spec.Parallelism = new(tc.local)
			remote := local.DeepCopy()
			remote.Spec.Parallelism = new(tc.remote)
			remote.Annotations = map[string]string{kueue.PrebuiltWorkloadLabel: tc.names}
			cfg := &multikueueplan.Config{Origin: "hub", ManagerUID: "m", Annotations: true, Elastic: true}
			step, err := cfg.SyncJob(job.Descriptor(), local, remote, w, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if step.Resized != nil {
				var next batchv1.Job
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(step.Resized.Object, &next); err != nil {
					t.Fatal(err)
				}
				got = fmt.Sprintf("%d %s", *next.Spec.Parallelism, next.Annotations[kueue.PrebuiltWorkloadLabel])
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
