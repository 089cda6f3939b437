package ray

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
)

func isElastic(o view.Object, in *plan.Setting) bool {
	return in != nil && in.Config != nil && in.ElasticJobs && plan.IsElastic(o)
}

// gatesCluster reports whether the pods of a cluster are gated. A cluster that KubeRay makes for an elastic job has the annotations of
// that job, whose Workload ungates its pods (spec: 30 §4.9).
func gatesCluster(o view.Object, in *plan.Setting) bool {
	return isElastic(o, in) && (in.Mode == plan.Managed || (in.Mode == plan.Follows && isOfJob(o)))
}

func isOfJob(o view.Object) bool {
	ref := metav1.GetControllerOf(o)
	return ref != nil && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind) == gvk("RayJob")
}

// gateCluster adds the gate to the templates of an elastic cluster.
func gateCluster(o view.Object, in *plan.Setting) {
	if gatesCluster(o, in) {
		gateTemplates(view.Map(o.Object, "spec"))
	}
}

// keepTemplates restores what a change of an elastic cluster removed from its templates: the gate, and while the cluster runs the values
// of its start. A client that applies a manifest with another number of workers writes all groups anew.
func keepTemplates(o, old view.Object, in *plan.Setting, restore func(plan.Object, []kueue.PodSet) bool) {
	gateCluster(o, in)
	text := old.GetAnnotations()[plan.InjectedAnnotation]
	if text == "" || !gatesCluster(o, in) || view.Bool(old.Object, "spec", "suspend") || view.Bool(o.Object, "spec", "suspend") {
		return
	}
	sets, err := view.PodSetsOf(o, ownRoles, in)
	if err != nil {
		return // the rules for clusters refuse it
	}
	restore(o, podset.WithInjected(text, sets))
	podset.Annotate(o, plan.InjectedAnnotation, text)
}

// validateGates requires the gate in the templates of an elastic cluster that is queued by itself.
func validateGates(o view.Object, roles []view.Role, in *plan.Setting) (errs field.ErrorList) {
	if !isElastic(o, in) || metav1.GetControllerOf(o) != nil || o.GetDeletionTimestamp() != nil {
		return nil
	}
	for i := range roles {
		if !hasGate(roles[i].Template) {
			errs = append(errs, field.Forbidden(roles[i].Path.Child("spec", "schedulingGates"),
				"the pods of an elastic cluster need the gate "+kueue.ElasticJobSchedulingGate+", which holds them until there is quota"))
		}
	}
	return errs
}

// gateTemplates adds the gate to the templates of a cluster's spec, and reports whether one had none.
func gateTemplates(spec map[string]any) bool {
	changed := gateTemplate(view.Map(spec, "headGroupSpec", "template"))
	for _, group := range view.Maps(spec, "workerGroupSpecs") {
		changed = gateTemplate(view.Map(group, "template")) || changed
	}
	return changed
}

// ungateTemplates removes the gate from the templates of a cluster's spec.
func ungateTemplates(spec map[string]any) {
	ungateTemplate(view.Map(spec, "headGroupSpec", "template"))
	for _, group := range view.Maps(spec, "workerGroupSpecs") {
		ungateTemplate(view.Map(group, "template"))
	}
}

func ungateTemplate(template map[string]any) {
	gates, _ := view.Get(template, "spec", "schedulingGates").([]any)
	kept := slices.DeleteFunc(slices.Clone(gates), func(g any) bool {
		m, ok := g.(map[string]any)
		return ok && isGate(m)
	})
	switch {
	case len(kept) == len(gates):
	case len(kept) == 0:
		delete(view.Map(template, "spec"), "schedulingGates")
	default:
		view.Set(template, kept, "spec", "schedulingGates")
	}
}

func hasGate(template map[string]any) bool {
	return slices.ContainsFunc(view.Maps(template, "spec", "schedulingGates"), isGate)
}

func isGate(gate map[string]any) bool {
	return view.String(gate, "name") == kueue.ElasticJobSchedulingGate
}

func gateTemplate(template map[string]any) bool {
	if template == nil || hasGate(template) {
		return false
	}
	gates, _ := view.Get(template, "spec", "schedulingGates").([]any)
	view.Set(template, append(slices.Clip(gates), map[string]any{"name": kueue.ElasticJobSchedulingGate}), "spec", "schedulingGates")
	return true
}

// child refers to the cluster of an elastic job with autoscaling: only that cluster has the number of workers.
func child(object plan.Object) []plan.Reference {
	o := view.Of(object)
	name := view.String(o.Object, "status", "rayClusterName")
	if name == "" || !plan.IsElastic(o) || !view.Bool(o.Object, "spec", "rayClusterSpec", "enableInTreeAutoscaling") {
		return nil
	}
	return []plan.Reference{{GVK: gvk("RayCluster"), Name: name}}
}

// childOf is the live cluster of an elastic job with autoscaling, or nil.
func childOf(o view.Object, in *plan.Setting) view.Object {
	if !isElastic(o, in) || view.Bool(o.Object, "spec", "suspend") {
		return nil
	}
	for _, ref := range child(o) {
		found, ok := in.Objects[ref].(view.Object)
		if !ok || found == nil || found.GetDeletionTimestamp() != nil {
			continue
		}
		if owner := metav1.GetControllerOf(found); owner != nil && owner.UID == o.GetUID() {
			return found
		}
	}
	return nil
}

// countChild sets the counts of an elastic job's roles to the workers of its cluster.
func countChild(o view.Object, roles []view.Role, in *plan.Setting) error {
	live := childOf(o, in)
	if live == nil {
		return nil
	}
groups:
	for _, group := range view.Maps(live.Object, "spec", "workerGroupSpecs") {
		name := strings.ToLower(view.String(group, "groupName"))
		for i := range roles {
			if roles[i].Name == name {
				roles[i].Count = rayplan.Workers(group)
				continue groups
			}
		}
		return podset.NotYet("cluster %s has a group of workers %s that its %s does not have", live.GetName(), name, o.GetKind())
	}
	return nil
}

// annotate records the generation of an elastic job's cluster, which is a part of the names of slices. Without a cluster it is
// empty.
func annotate(object plan.Object, in *plan.Setting) bool {
	o := view.Of(object)
	if !isElastic(o, in) || !view.Bool(o.Object, "spec", "rayClusterSpec", "enableInTreeAutoscaling") {
		return false
	}
	generation := ""
	if live := childOf(o, in); live != nil {
		generation = strconv.FormatInt(live.GetGeneration(), 10)
	}
	if o.GetAnnotations()[kueue.RayClusterGenerationAnnotation] == generation {
		return false
	}
	podset.Annotate(o, kueue.RayClusterGenerationAnnotation, generation)
	return true
}

// generationOfChild is the part of slice names that annotate records.
func generationOfChild(o plan.Object) string {
	if generation := o.GetAnnotations()[kueue.RayClusterGenerationAnnotation]; generation != "" {
		return "_" + generation
	}
	return ""
}
