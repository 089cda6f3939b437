package ray

import (
	"errors"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

// isOfService reports whether a RayService gates its clusters: they are neither queued nor stopped separately.
func (r *Settings) isOfService(ancestor *plan.Owner) bool {
	return ancestor != nil && ancestor.GVK == gvk("RayService") && !r.isLegacy()
}

// holdCluster suspends a new cluster of a service. One of a gated service waits until it is covered; one of any other service waits
// if there is another cluster: the service will be stopped, and started with its current spec.
func (r *Settings) holdCluster(o view.Object, in *plan.Setting) {
	if in.Mode != plan.Follows || !r.isOfService(in.Ancestor) {
		return
	}
	spec := view.Map(o.Object, "spec")
	switch {
	case spec == nil:
	case r.isGated(in.Ancestor.Object, in):
		gateTemplates(spec)
		if !r.GatedPods {
			spec["suspend"] = true
		}
	case len(in.Children) > 0:
		spec["suspend"] = true
	}
}

// guardCluster keeps the gates of an elastic cluster, and allows that of a gated service to be unsuspended only if there is quota for it.
func (r *Settings) guardCluster(object, old plan.Object, in *plan.Setting, restore func(plan.Object, []kueue.PodSet) bool) (errs field.ErrorList) {
	o := view.Of(object)
	switch {
	case old == nil:
		return nil
	case !r.isOfService(in.Ancestor):
		keepTemplates(o, view.Of(old), in, restore)
		return nil
	case !r.isGated(in.Ancestor.Object, in):
		return nil
	}
	gateTemplates(view.Map(o.Object, "spec"))
	if r.GatedPods || !view.Bool(view.Of(old).Object, "spec", "suspend") || view.Bool(o.Object, "spec", "suspend") {
		return nil
	}
	service, ok := in.Ancestor.Object.(view.Object)
	if !ok {
		return field.ErrorList{field.InternalError(field.NewPath("spec", "suspend"), errNotRead)}
	}
	s, err := r.observe(service, in)
	if err != nil || !s.MayRelease(o.GetUID()) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "suspend"), "the cluster of RayService "+service.GetName()+
			" waits for quota, and Berth lets it go when there is some: see kubectl berth explain"))
	}
	return errs
}

var errNotRead = errors.New("the RayService of the cluster could not be read")

// guardService keeps the gates and suspend fields of a gated service. Others are held as a whole.
func (r *Settings) guardService(object, old plan.Object, in *plan.Setting) (warnings []string, errs field.ErrorList) {
	o := view.Of(object)
	switch {
	case in.Mode != plan.Managed:
		return nil, nil
	case old == nil:
		return r.warnOfNew(o, in), nil
	case !r.isGated(o, in):
		if !view.Bool(view.Of(old).Object, topSuspend...) {
			holdWithService(o)
		}
		return r.warnOfDowntime(o, view.Of(old), in), nil
	}
	nested, has := view.Get(o.Object, nestedSuspend...).(bool)
	if has && !nested && !r.GatedPods {
		return nil, field.ErrorList{field.Forbidden(configPath.Child("suspend"),
			"must stay true: new clusters wait for quota, and Berth lets each go when there is some; to stop the service use spec.suspend")}
	}
	was, is := view.Bool(view.Of(old).Object, topSuspend...), view.Bool(o.Object, topSuspend...)
	if was && !is && !isAdmitted(in.Workloads) {
		view.Set(o.Object, true, topSuspend...)
		warnings = append(warnings, "spec.suspend stays true until the service is admitted: Berth starts it then")
	}
	r.repair(o, in)
	return warnings, nil
}

// warnOfNew returns warnings about fields of a new service that are changed, and about a KubeRay whose upgrades do not wait for quota.
func (r *Settings) warnOfNew(o view.Object, in *plan.Setting) []string {
	nested, has := view.Get(o.Object, nestedSuspend...).(bool)
	switch {
	case plan.IsElastic(o) && r.isLegacy():
		return []string{"this KubeRay knows no spec.suspend: upgrades of the service do not wait for quota; KubeRay 1.7 does"}
	case r.isGated(o, in) && has && !nested && !r.GatedPods:
		return []string{"spec.rayClusterConfig.suspend becomes true: new clusters wait for quota, and Berth lets each go when there is some"}
	}
	return nil
}

// warnOfDowntime returns a warning about a change that makes KubeRay replace the cluster of a service, or add groups to it: the service is
// stopped as a whole, and queued again.
func (r *Settings) warnOfDowntime(o, old view.Object, in *plan.Setting) []string {
	runs := !view.Bool(o.Object, topSuspend...) && !view.Bool(old.Object, topSuspend...)
	before, after := view.Map(old.Object, clusterConfig...), view.Map(o.Object, clusterConfig...)
	if in.Config == nil || !r.gatesChildren(in.Config) || !runs || before == nil || after == nil || reflect.DeepEqual(before, after) ||
		view.String(o.Object, "spec", "upgradeStrategy", "type") == "None" || reflect.DeepEqual(muted(before), muted(after)) {
		return nil
	}
	return []string{"spec.rayClusterConfig: the service stops, and starts with this change once it is admitted again; a service that is created with the annotation " +
		kueue.ElasticJobAnnotation + ": \"true\" serves during its upgrades"}
}

func isAdmitted(workloads []*kueue.Workload) bool {
	for _, w := range slices.Live(workloads) {
		if lifecycle.IsAdmitted(w) && !lifecycle.IsEvicted(w) {
			return true
		}
	}
	return false
}

// validateService are the rules for a queued service.
func (r *Settings) validateService(o, old view.Object, roles []view.Role, in *plan.Setting) field.ErrorList {
	if !isQueued(o, in) {
		return nil
	}
	spec := view.Map(o.Object, clusterConfig...)
	if spec == nil {
		return field.ErrorList{field.Required(configPath, "a queued service brings its cluster")}
	}
	errs := append(validateCluster(o, spec, configPath, len(roles), in), longName(o, old, maxParentName)...)
	if plan.IsElastic(o) && in.ElasticJobs && !r.Gating {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(kueue.ElasticJobAnnotation),
			"a RayService is elastic only with the feature gate RayServiceUpgradeGating"))
	}
	return errs
}

// isCurrent reports whether a cluster matches the spec of its service, except fields that KubeRay ignores, and groups at the end,
// which KubeRay adds in place (spec: 30 §4.10.1).
func isCurrent(cluster, goal map[string]any) bool {
	a, b := muted(cluster), muted(goal)
	have, want := view.Maps(a, "workerGroupSpecs"), view.Maps(b, "workerGroupSpecs")
	if len(have) > len(want) || (len(want) > 0 && !reflect.DeepEqual(have, want[:len(have)])) {
		return false
	}
	delete(a, "workerGroupSpecs")
	delete(b, "workerGroupSpecs")
	return reflect.DeepEqual(a, b)
}

// muted is a cluster's spec without the fields that KubeRay ignores or changes in place. KubeRay normalizes quantities and empty
// fields, so both sides are normalized.
func muted(spec map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(spec)
	delete(out, "suspend")
	delete(out, "upgradeStrategy")
	mute(view.Map(out, "headGroupSpec"))
	for _, group := range view.Maps(out, "workerGroupSpecs") {
		for _, name := range []string{"replicas", "minReplicas", "maxReplicas"} {
			delete(group, name)
		}
		if strategy := view.Map(group, "scaleStrategy"); strategy != nil {
			delete(strategy, "workersToDelete")
		}
		mute(group)
	}
	if options := view.Map(out, "autoscalerOptions"); options["resources"] != nil {
		rewrite(options, "resources", &corev1.ResourceRequirements{})
	}
	prune(out)
	return out
}

func mute(group map[string]any) {
	if view.Map(group, "template") == nil {
		return
	}
	spec := view.Map(group, "template", "spec")
	delete(spec, "tolerations")
	delete(spec, "schedulingGates")
	rewrite(group, "template", &corev1.PodTemplateSpec{})
}

// rewrite normalizes a field by its type. An invalid value is not changed.
func rewrite(in map[string]any, field string, as any) {
	if runtime.DefaultUnstructuredConverter.FromUnstructured(view.Map(in, field), as) != nil {
		return
	}
	if written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(as); err == nil {
		in[field] = written
	}
}

// prune removes empty values, and reports whether nothing is left.
func prune(value any) (empty bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, entry := range v { //berth:unordered each key by itself
			if prune(entry) {
				delete(v, key)
			}
		}
		return len(v) == 0
	case []any:
		for _, entry := range v {
			prune(entry)
		}
		return len(v) == 0
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case nil:
		return true
	}
	return false
}
