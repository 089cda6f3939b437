package all_test

import (
	"testing"

	"github.com/berth-project/berth/internal/integration/appwrapper"
	"github.com/berth-project/berth/internal/integration/integrationtest"
	"github.com/berth-project/berth/internal/integration/job"
	"github.com/berth-project/berth/internal/integration/jobset"
	"github.com/berth-project/berth/internal/integration/leaderworkerset"
	podkind "github.com/berth-project/berth/internal/integration/pod"
	"github.com/berth-project/berth/internal/integration/ray"
	"github.com/berth-project/berth/internal/integration/statefulset"
	plan "github.com/berth-project/berth/internal/plan/job"
)

// pods is the kind that groups are made of.
func pods() *integrationtest.Kind {
	kind := *kinds["pod"]
	kind.Descriptor = podkind.Descriptor()
	return &kind
}

func TestPodGroups(t *testing.T) { integrationtest.RunGroups(t, pods()) }

func TestPodGroupDeletions(t *testing.T) { integrationtest.RunGroupDeletions(t, pods()) }

func TestStatefulSets(t *testing.T) {
	integrationtest.RunStatefulSets(t, statefulset.Descriptor(), pods())
}

func TestRayServices(t *testing.T) { integrationtest.RunRayServices(t, ray.Service(), ray.Cluster()) }

func TestLeaderWorkerSets(t *testing.T) {
	integrationtest.RunLeaderWorkerSets(t, &integrationtest.Kind{Descriptor: leaderworkerset.Descriptor(), Manifest: `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:` + indent(pod, 0) + `
    workerTemplate:
      spec:` + indent(pod, 0)}, pods())
}

func TestOwners(t *testing.T) {
	outermost := *kinds["workload.codeflare.dev/appwrapper"]
	outermost.Descriptor = appwrapper.Descriptor()
	integrationtest.RunOwners(t, &outermost, []*plan.Descriptor{outermost.Descriptor, jobset.Descriptor(), job.Descriptor()})
}

func TestReturningGroups(t *testing.T) {
	integrationtest.RunReturningGroups(t, pods(), statefulset.Descriptor())
}
