// Package appwrapper is the integration of AppWrapper: one descriptor. An
// AppWrapper makes other objects; the pod templates in those are its pod sets.
// The values for their pods are written to spec.components[].podSetInfos, which the
// AppWrapper controller merges into the objects: the components themselves are
// never changed (spec: 30 §4.9).
package appwrapper

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// ownManager is the value of spec.managedBy for the AppWrapper controller.
const ownManager = "workload.codeflare.dev/appwrapper-controller"

// Annotations of a declared pod set with the labels that number its pods.
const (
	podIndexAnnotation      = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
	subGroupAnnotation      = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
	subGroupCountAnnotation = "workload.codeflare.dev.appwrapper/tas-sub-group-count"
)

// Descriptor describes AppWrapper.
func Descriptor() *plan.Descriptor {
	d := view.Kind{
		Framework:  "workload.codeflare.dev/appwrapper",
		GVK:        schema.GroupVersionKind{Group: "workload.codeflare.dev", Version: "v1beta2", Kind: "AppWrapper"},
		Resource:   "appwrappers",
		Suspend:    []string{"spec", "suspend"},
		ManagedBy:  []string{"spec", "managedBy"},
		OwnManager: ownManager,
		Roles:      roles,
		Finished:   finished,
		IsActive:   func(o view.Object) bool { return view.HasCondition(o, "QuotaReserved") },
		PodsReady:  func(o view.Object, _ []view.Role) bool { return view.HasCondition(o, "PodsReady") },
	}.Descriptor()
	d.Listing = plan.Listing{NoUserRoles: true}
	d.LaxUpdates = true
	d.Owns = []plan.Child{{Made: wrapped}}
	d.Start = start
	d.Restore = restore
	return d
}

// finished depends on the phase. The objects of a failed AppWrapper must be deleted first.
func finished(o view.Object) (message string, success, done bool) {
	switch view.String(o.Object, "status", "phase") {
	case "Succeeded":
		return "The AppWrapper succeeded", true, true
	case "Failed":
		return "The AppWrapper failed", false, !view.HasCondition(o, "ResourcesDeployed")
	}
	return "", false, false
}

// declaredSet is a pod set of a component: its number of pods, the path of their template, and the labels that number them.
type declaredSet struct {
	replicas int32
	path     string
	ranks    plan.Ranks
}

func components(o view.Object) []map[string]any { return view.Maps(o.Object, "spec", "components") }

// roles are the pod sets of all components, numbered consecutively.
func roles(o view.Object, _ *plan.Setting) ([]view.Role, error) {
	var out []view.Role
	for i, c := range components(o) {
		sets, err := podSets(o, i, c)
		if err != nil {
			return nil, err
		}
		for _, s := range sets {
			at := field.NewPath("spec", "components").Index(i)
			template, err := find(c, s.path)
			if err != nil {
				return nil, podset.Permanent("%s: %s", at, err)
			}
			out = append(out, view.Role{
				Name: o.GetName() + "-" + strconv.Itoa(len(out)), Count: s.replicas, Template: template, Path: at.Child(s.path), Ranks: s.ranks,
			})
		}
	}
	return out, nil
}

// podSets are the pod sets that a component declares, that the AppWrapper controller detected, or that its kind is known for.
func podSets(o view.Object, index int, component map[string]any) ([]declaredSet, error) {
	list := view.Maps(component, "podSets")
	declared := len(list) > 0
	if statuses := view.Maps(o.Object, "status", "componentStatus"); !declared && index < len(statuses) {
		list = view.Maps(statuses[index], "podSets")
	}
	known, err := inferred(view.Map(component, "template"))
	if len(list) == 0 {
		return known, err
	}
	var out []declaredSet
	for _, s := range list {
		d := declaredSet{view.Int(s, 1, "replicas"), view.String(s, "path"), declaredRanks(view.Map(s, "annotations"))}
		at := slices.IndexFunc(known, func(k declaredSet) bool { return k.path == d.path })
		if at >= 0 && d.ranks == (plan.Ranks{}) {
			d.ranks = known[at].ranks
		}
		if at >= 0 && !declared { // it may have counted less than the kind makes, such as a RayCluster of several hosts a replica
			d.replicas = max(d.replicas, known[at].replicas)
		}
		out = append(out, d)
	}
	return out, nil
}

// declaredRanks are the labels in the annotations of a declared pod set.
func declaredRanks(annotations map[string]any) plan.Ranks {
	r := plan.Ranks{PodIndex: view.String(annotations, podIndexAnnotation), SubGroup: view.String(annotations, subGroupAnnotation)}
	if n, err := strconv.ParseInt(view.String(annotations, subGroupCountAnnotation), 10, 32); err == nil {
		r.SubGroups = int32(n)
	}
	return r
}

// replicaIndexLabel numbers the pods of a role of a PyTorchJob.
const replicaIndexLabel = "training.kubeflow.org/replica-index"

// replicaSpecs are the roles of a PyTorchJob, in order.
var replicaSpecs = []string{"Master", "Worker"}

// inferred are the pod sets of objects of known kinds, with the labels that number their pods. Other kinds have none.
func inferred(template map[string]any) ([]declaredSet, error) {
	gv, err := schema.ParseGroupVersion(view.String(template, "apiVersion"))
	if err != nil {
		return nil, podset.Permanent("a component has apiVersion %q", view.String(template, "apiVersion"))
	}
	switch gv.Group + "/" + view.String(template, "kind") {
	case "/Pod":
		return []declaredSet{{1, "template", plan.Ranks{}}}, nil
	case "apps/Deployment":
		return []declaredSet{{view.Int(template, 1, "spec", "replicas"), "template.spec.template", plan.Ranks{}}}, nil
	case "apps/StatefulSet":
		return []declaredSet{{view.Int(template, 1, "spec", "replicas"), "template.spec.template", plan.Ranks{PodIndex: appsv1.PodIndexLabel}}}, nil
	case "batch/Job":
		n := view.Int(template, 1, "spec", "parallelism")
		ranks := plan.Ranks{PodIndex: batchv1.JobCompletionIndexAnnotation}
		return []declaredSet{{min(n, view.Int(template, n, "spec", "completions")), "template.spec.template", ranks}}, nil
	case "jobset.x-k8s.io/JobSet":
		var out []declaredSet
		for i, rj := range view.Maps(template, "spec", "replicatedJobs") {
			n := view.Int(rj, 1, "template", "spec", "parallelism")
			replicas := view.Int(rj, 1, "replicas")
			n = plan.Times(replicas, min(n, view.Int(rj, n, "template", "spec", "completions")))
			ranks := plan.Ranks{PodIndex: batchv1.JobCompletionIndexAnnotation, SubGroup: jobsetv1alpha2.JobIndexKey, SubGroups: replicas}
			out = append(out, declaredSet{n, fmt.Sprintf("template.spec.replicatedJobs[%d].template.spec.template", i), ranks})
		}
		return out, nil
	case "kubeflow.org/PyTorchJob":
		var out []declaredSet
		for _, role := range replicaSpecs {
			if spec := view.Map(template, "spec", "pytorchReplicaSpecs", role); spec != nil {
				out = append(out, declaredSet{view.Int(spec, 1, "replicas"), "template.spec.pytorchReplicaSpecs." + role + ".template", plan.Ranks{PodIndex: replicaIndexLabel}})
			}
		}
		return out, nil
	case "ray.io/RayCluster":
		return rayCluster(view.Map(template, "spec"), "template.spec"), nil
	case "ray.io/RayJob":
		return rayCluster(view.Map(template, "spec", "rayClusterSpec"), "template.spec.rayClusterSpec"), nil
	}
	return nil, nil
}

func rayCluster(spec map[string]any, path string) []declaredSet {
	out := []declaredSet{{1, path + ".headGroupSpec.template", plan.Ranks{}}}
	for i, group := range view.Maps(spec, "workerGroupSpecs") {
		out = append(out, declaredSet{rayplan.Workers(group), fmt.Sprintf("%s.workerGroupSpecs[%d].template", path, i), plan.Ranks{}})
	}
	return out
}

// find returns the pod template at a path such as template.spec.jobs[0].template. A Pod is its own template.
func find(component map[string]any, path string) (map[string]any, error) {
	at := component
	for part := range strings.SplitSeq(path, ".") {
		name, rest, indexed := strings.Cut(part, "[")
		if !indexed {
			at = view.Map(at, name)
		} else {
			list := view.Maps(at, name)
			i, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
			if err != nil || i < 0 || i >= len(list) {
				return nil, fmt.Errorf("the path %s leads nowhere", path)
			}
			at = list[i]
		}
		if at == nil {
			return nil, fmt.Errorf("the path %s leads nowhere", path)
		}
	}
	return at, nil
}

// start writes the admitted values beside each component.
func start(o plan.Object, infos []plan.PodSetInfo, in *plan.Setting) error {
	sets, err := view.PodSetsOf(view.Of(o), roles, in)
	if err != nil {
		return err
	}
	if len(infos) != len(sets) {
		return podset.Permanent("the admission has %d pod sets and the AppWrapper has %d", len(infos), len(sets))
	}
	next := 0
	for i, c := range components(view.Of(o)) {
		declared, err := podSets(view.Of(o), i, c)
		if err != nil {
			return err
		}
		list := make([]any, 0, len(declared))
		for range declared {
			entry, err := entryOf(&infos[next], &sets[next])
			if err != nil {
				return err
			}
			list = append(list, entry)
			next++
		}
		if len(list) > 0 {
			c["podSetInfos"] = list
		}
	}
	view.Set(view.Of(o).Object, false, "spec", "suspend")
	return nil
}

// entryOf is an entry of podSetInfos. Values that contradict the template are refused, as for other kinds.
func entryOf(info *plan.PodSetInfo, set *kueue.PodSet) (map[string]any, error) {
	if err := info.MergeInto(set.Template.DeepCopy()); err != nil {
		return nil, err
	}
	var alone corev1.PodTemplateSpec
	if err := info.MergeInto(&alone); err != nil {
		return nil, err
	}
	tree := map[string]any{}
	if err := view.Directives(tree, &alone); err != nil {
		return nil, err
	}
	entry := map[string]any{}
	for _, part := range []string{"metadata", "spec"} {
		maps.Copy(entry, view.Map(tree, part))
	}
	return entry, nil
}

func restore(o plan.Object, _ []kueue.PodSet) bool {
	changed := false
	for _, c := range components(view.Of(o)) {
		if _, ok := c["podSetInfos"]; ok {
			delete(c, "podSetInfos")
			changed = true
		}
	}
	return changed
}
