package ray

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// isRemote reports whether a service, with its clusters and their pods, runs on another cluster.
func isRemote(o view.Object) bool {
	return view.String(o.Object, "spec", "managedBy") == kueue.MultiKueueControllerName
}

// forgetClusters removes the mirrored counts of remote clusters: a service that stops, or starts, has none yet.
func forgetClusters(o view.Object) {
	podset.Unannotate(o, rayplan.ClustersAnnotation)
}

// followService synchronizes a service and its copy on a worker (spec: 30 §4.10.3, Limitation 3). The spec of a gated service is
// forwarded as a whole once the slice that the worker has admitted has room for the result. For other services only cluster fields
// outside pod templates are forwarded: any other change stops the service here first. The worker stops its copy for that change.
func (r *Settings) followService(local, remote plan.Object, by *kueue.Workload, in *plan.Setting) (localChanged, remoteChanged bool, err error) {
	ours, theirs := view.Of(local), view.Of(remote)
	if !r.isGated(ours, in) {
		remoteChanged = r.Forward && forwardFields(ours, theirs, true)
		return false, by != nil && forwardBare(ours, theirs) || remoteChanged, nil
	}
	s, err := r.observeAt(ours, theirs, in)
	if err != nil {
		return false, false, err
	}
	s.ExpectClusters()
	whole := by != nil && s.FitsIn(by)
	if r.Forward {
		goal := view.Map(theirs.Object, clusterConfig...)
		still := slices.ContainsFunc(in.Children, func(c plan.Object) bool { return isCurrent(view.Map(view.Of(c).Object, "spec"), goal) })
		remoteChanged = forwardFields(ours, theirs, whole || still)
	}
	if whole {
		remoteChanged = forwardConfig(ours, theirs) || remoteChanged
	} else if r.Forward {
		remoteChanged = lowerReplicas(ours, theirs) || remoteChanged
	}
	if counts := s.Counts(); ours.GetAnnotations()[rayplan.ClustersAnnotation] != counts {
		podset.Annotate(ours, rayplan.ClustersAnnotation, counts)
		localChanged = true
	}
	return localChanged, remoteChanged, nil
}

// forwardFields copies all fields of the service but its clusters and the fields that start and stop it. The upgrade strategy may
// begin an upgrade, and so waits with the clusters if they do.
func forwardFields(ours, theirs view.Object, strategy bool) (changed bool) {
	from, to := view.Map(ours.Object, "spec"), view.Map(theirs.Object, "spec")
	if from == nil || to == nil {
		return false
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(from)), maps.Keys(to))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch {
		case name == "suspend", name == "managedBy", name == "rayClusterConfig", name == "upgradeStrategy" && !strategy, alike(from[name], to[name]):
			continue
		case from[name] == nil:
			delete(to, name)
		default:
			to[name] = runtime.DeepCopyJSONValue(from[name])
		}
		changed = true
	}
	return changed
}

// forwardConfig copies the cluster config of the service. The worker decides whether new clusters are suspended.
func forwardConfig(ours, theirs view.Object) bool {
	from, to := view.Map(ours.Object, clusterConfig...), view.Map(theirs.Object, clusterConfig...)
	if from == nil || to == nil {
		return false
	}
	next := runtime.DeepCopyJSON(from)
	delete(next, "suspend")
	if held, has := to["suspend"]; has {
		next["suspend"] = held
	}
	gateTemplates(next)
	if alike(next, to) {
		return false
	}
	view.Set(theirs.Object, next, clusterConfig...)
	return true
}

// forwardBare is forwardConfig for a service that is not gated: both sides keep the templates of their start, and groups are added
// and removed only while it is stopped.
func forwardBare(ours, theirs view.Object) bool {
	from, to := view.Map(ours.Object, clusterConfig...), view.Map(theirs.Object, clusterConfig...)
	if from == nil || to == nil {
		return false
	}
	next := runtime.DeepCopyJSON(from)
	groups := view.Maps(next, "workerGroupSpecs")
	there := view.Maps(to, "workerGroupSpecs")
	if len(groups) != len(there) {
		return false
	}
	for i, group := range append(groups, view.Map(next, "headGroupSpec")) {
		like := view.Map(to, "headGroupSpec")
		if i < len(there) {
			like = there[i]
		}
		if group == nil || like == nil || view.String(group, "groupName") != view.String(like, "groupName") || i < len(there) && rayplan.Workers(group) != rayplan.Workers(like) {
			return false
		}
		group["template"] = runtime.DeepCopyJSONValue(like["template"])
	}
	next["suspend"] = to["suspend"]
	if alike(next, to) {
		return false
	}
	view.Set(theirs.Object, next, clusterConfig...)
	return true
}

// lowerReplicas copies the sizes of groups that are smaller in the service.
func lowerReplicas(ours, theirs view.Object) (changed bool) {
	groups := view.Maps(ours.Object, append(slices.Clone(clusterConfig), "workerGroupSpecs")...)
	for _, there := range view.Maps(theirs.Object, append(slices.Clone(clusterConfig), "workerGroupSpecs")...) {
		at := slices.IndexFunc(groups, func(g map[string]any) bool { return view.String(g, "groupName") == view.String(there, "groupName") })
		if at < 0 || rayplan.Workers(groups[at]) >= rayplan.Workers(there) || view.Int(groups[at], 1, "numOfHosts") != view.Int(there, 1, "numOfHosts") {
			continue
		}
		copySize(groups[at], there)
		changed = true
	}
	return changed
}

// alike reports whether two values are equal after pruning.
func alike(a, b any) bool {
	a, b = runtime.DeepCopyJSONValue(a), runtime.DeepCopyJSONValue(b)
	none, neither := prune(a), prune(b)
	return none && neither || reflect.DeepEqual(a, b)
}
