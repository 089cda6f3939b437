package plan

import (
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// Workers is the number of pods that KubeRay makes for a group: its replicas within their bounds, times the hosts, or none for a
// suspended group.
func Workers(group map[string]any) int32 {
	if view.Bool(group, "suspend") {
		return 0
	}
	n := view.Int(group, 1, "replicas")
	n = max(n, view.Int(group, n, "minReplicas"))
	n = min(n, view.Int(group, n, "maxReplicas"))
	return job.Times(n, max(1, view.Int(group, 1, "numOfHosts")))
}
