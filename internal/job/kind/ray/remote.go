package ray

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// sizeFields are the fields of a worker group that affect its number of pods.
var sizeFields = []string{"replicas", "minReplicas", "maxReplicas", "numOfHosts", "suspend"}

// keepJob removes from a copy the rules by which KubeRay deletes a finished RayJob: a worker must not delete one before its manager has
// observed the end. The TTL stays, since KubeRay takes a missing one for 0.
func keepJob(tree map[string]any) {
	const self = "DeleteSelf"
	strategy := view.Map(tree, "spec", "deletionStrategy")
	for _, outcome := range []string{"onSuccess", "onFailure"} { // both are required
		if view.String(strategy, outcome, "policy") == self {
			view.Set(strategy, "DeleteCluster", outcome, "policy")
		}
	}
	rules, _ := strategy["deletionRules"].([]any)
	kept := slices.DeleteFunc(slices.Clone(rules), func(rule any) bool {
		one, _ := rule.(map[string]any)
		return view.String(one, "policy") == self
	})
	switch {
	case len(kept) == len(rules):
	case len(kept) == 0: // KubeRay refuses a strategy without rules
		unstructured.RemoveNestedField(tree, "spec", "deletionStrategy")
	default:
		strategy["deletionRules"] = kept
	}
}

// resizeAt copies the sizes of the local job's groups to the groups of a copy at a path, where the number of pods differs. If the
// local job has another size than its slice by now, the slice counts. Groups of only one side are not changed (spec: 40 §4.6).
func resizeAt(path ...string) func(remote, local plan.Object, podSets []kueue.PodSet) bool {
	return func(remote, local plan.Object, podSets []kueue.PodSet) bool {
		changed := false
		ours := view.Maps(view.Of(local).Object, append(slices.Clone(path), "workerGroupSpecs")...)
		for _, group := range view.Maps(view.Of(remote).Object, append(slices.Clone(path), "workerGroupSpecs")...) {
			name := strings.ToLower(view.String(group, "groupName"))
			set := slices.IndexFunc(podSets, func(p kueue.PodSet) bool { return string(p.Name) == name })
			if set < 0 {
				continue
			}
			want := podSets[set].Count
			at := slices.IndexFunc(ours, func(g map[string]any) bool { return strings.ToLower(view.String(g, "groupName")) == name })
			switch {
			case rayplan.Workers(group) == want:
				continue
			case at >= 0 && rayplan.Workers(ours[at]) == want:
				copySize(ours[at], group)
			default:
				replicas := int64(want / max(1, view.Int(group, 1, "numOfHosts")))
				group["replicas"], group["minReplicas"], group["maxReplicas"] = replicas, replicas, replicas
				delete(group, "suspend")
			}
			changed = true
		}
		return changed
	}
}

// copySize copies the size of a group to another.
func copySize(from, to map[string]any) {
	for _, field := range sizeFields {
		if value, ok := from[field]; ok {
			to[field] = value
		} else {
			delete(to, field)
		}
	}
}
