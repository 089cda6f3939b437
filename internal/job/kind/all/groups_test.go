package all_test

import (
	"testing"

	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/jobtest"
	"github.com/berth-project/berth/internal/job/kind/appwrapper"
	"github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/job/kind/jobset"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	podkind "github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/kind/ray"
	"github.com/berth-project/berth/internal/job/kind/statefulset"
)

// pods is the kind that groups are made of.
func pods() *jobtest.Kind {
	kind := *kinds["pod"]
	kind.Descriptor = podkind.Descriptor()
	return &kind
}

func TestPodGroups(t *testing.T) { jobtest.RunGroups(t, pods()) }

func TestPodGroupDeletions(t *testing.T) { jobtest.RunGroupDeletions(t, pods()) }

func TestStatefulSets(t *testing.T) {
	jobtest.RunStatefulSets(t, statefulset.Descriptor(), pods())
}

func TestRayServices(t *testing.T) {
	jobtest.RunRayServices(t, func(gatedPods bool) []*plan.Descriptor {
		as := ray.Settings{Gating: true, GatedPods: gatedPods}
		return []*plan.Descriptor{ray.Service(as), ray.Cluster(as)}
	})
}

func TestLeaderWorkerSets(t *testing.T) {
	jobtest.RunLeaderWorkerSets(t, leaderWorkerSets(), pods())
}

// leaderWorkerSets is a LeaderWorkerSet with two groups of a leader and a worker.
func leaderWorkerSets() *jobtest.Kind {
	return &jobtest.Kind{Descriptor: leaderworkerset.Descriptor(), Manifest: `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:` + indent(pod, 0) + `
    workerTemplate:
      spec:` + indent(pod, 0)}
}

func TestPlacedGroups(t *testing.T) {
	jobtest.RunPlacedGroups(t, pods(), statefulset.Descriptor(), leaderWorkerSets())
}

func TestOwners(t *testing.T) {
	outermost := *kinds["workload.codeflare.dev/appwrapper"]
	outermost.Descriptor = appwrapper.Descriptor()
	jobtest.RunOwners(t, &outermost, []*plan.Descriptor{outermost.Descriptor, jobset.Descriptor(), job.Descriptor()})
}

func TestReturningGroups(t *testing.T) {
	jobtest.RunReturningGroups(t, pods(), statefulset.Descriptor())
}
