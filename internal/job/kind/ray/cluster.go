// Package ray is the integration of the kinds that KubeRay runs: RayCluster,
// RayJob and RayService. All contain a cluster, of a head and groups of workers; a
// RayJob may add a submitter pod, and a RayService replaces its cluster by another
// one while it serves.
//
// Resources that KubeRay adds to pods are counted in the Workload and never
// written to the job (spec: 30 §4.9).
package ray

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
)

const (
	// ownManager is the value of spec.managedBy for KubeRay.
	ownManager = "ray.io/kuberay-operator"
	// headRole is the pod set of the head.
	headRole = "head"
	// faultToleranceAnnotation enables the fault tolerance of the control store.
	faultToleranceAnnotation = "ray.io/ft-enabled"
	// ready is the state of a cluster whose pods are all ready.
	ready = "ready"
	// conditionSuspended is the condition of a suspended cluster without pods.
	conditionSuspended = "RayClusterSuspended"
	// maxRoles is the maximum number of pod sets of a Workload.
	maxRoles = 18
)

func gvk(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: kind}
}

// changeClusters lets the manager suspend and delete the clusters of a job or a service.
var changeClusters = plan.Allow("ray.io", []string{"rayclusters"}, "delete", "patch")

// Cluster describes RayCluster. It never finishes by itself.
func Cluster(s Settings) *plan.Descriptor { return s.cluster() }

func (r *Settings) cluster() *plan.Descriptor {
	d := view.Kind{
		Framework:  "ray.io/raycluster",
		GVK:        gvk("RayCluster"),
		Resource:   "rayclusters",
		Suspend:    []string{"spec", "suspend"},
		ManagedBy:  []string{"spec", "managedBy"},
		OwnManager: ownManager,
		Groups:     true,
		Roles:      ownRoles,
		Finished:   func(view.Object) (string, bool, bool) { return "", false, false },
		IsActive:   clusterIsActive,
		PodsReady:  func(o view.Object, _ []view.Role) bool { return view.String(o.Object, "status", "state") == ready },
		Validate: func(o, old view.Object, roles []view.Role, in *plan.Setting) field.ErrorList {
			if !isQueued(o, in) {
				return nil
			}
			errs := validateCluster(o, view.Map(o.Object, "spec"), field.NewPath("spec"), len(roles), in)
			errs = append(errs, validateGates(o, roles, in)...)
			return append(errs, longName(o, old, maxClusterName)...)
		},
	}.Descriptor()
	d.FreeUnmanaged, d.FreeLeaving, d.Elastic = true, r.FreeLeaving, &plan.Elastic{GatesPods: true}
	resume := d.Resume
	d.Resume = func(o plan.Object) {
		resume(o)
		ungateTemplates(view.Map(view.Of(o).Object, "spec"))
	}
	d.Default = func(o plan.Object, _ bool, in *plan.Setting) {
		gateCluster(view.Of(o), in)
		r.holdCluster(view.Of(o), in)
	}
	d.Remote.Resize = resizeAt("spec")
	d.Owns = clusterOwns
	d.PodLabels = plan.PodsByName(rayplan.ClusterLabel)
	d.Guard = &plan.Guard{GatedBy: r.isOfService, Check: func(o, old plan.Object, in *plan.Setting) ([]string, field.ErrorList) {
		return nil, r.guardCluster(o, old, in, d.Restore)
	}}
	return d
}

// podsAt is PodLabels for an object with the name of a cluster in its status.
func podsAt(path ...string) func(plan.Object) (map[string]string, error) {
	return func(o plan.Object) (map[string]string, error) {
		if cluster := view.String(view.Of(o).Object, path...); cluster != "" {
			return map[string]string{rayplan.ClusterLabel: cluster}, nil
		}
		return nil, fmt.Errorf("%s has no pods before its status names a RayCluster", o.GetName())
	}
}

// isQueued reports whether a job without an ancestor has a Workload.
func isQueued(o view.Object, in *plan.Setting) bool { return in.IsQueued(o) }

// KubeRay ignores objects with longer names: a cluster, and a parent from whose name it derives the names of clusters.
const (
	maxClusterName = 53
	maxParentName  = maxClusterName - len("-xxxxx")
)

// longName refuses a new object that KubeRay would ignore for its name. Names that KubeRay makes are not checked.
func longName(o, old view.Object, limit int) field.ErrorList {
	if old != nil || metav1.GetControllerOf(o) != nil {
		return nil
	}
	return plan.LongName(o, "the "+o.GetKind(), plan.ExpectedName(o), limit)
}

// clusterIsActive reports whether the cluster may have pods; a cluster that KubeRay has never reconciled has none. The condition is false
// before the first pod exists, and true once all are gone. Without it, before KubeRay 1.3, there is only the state, which a cluster that was
// suspended keeps until all its pods are ready.
func clusterIsActive(o view.Object) bool {
	for _, c := range view.Maps(o.Object, "status", "conditions") {
		if c["type"] == conditionSuspended {
			return c["status"] != string(metav1.ConditionTrue)
		}
	}
	status := view.Map(o.Object, "status")
	return len(status) > 0 && view.String(status, "state") != "suspended"
}

// ownRoles are the roles of a RayCluster.
func ownRoles(o view.Object, _ *plan.Setting) ([]view.Role, error) {
	return cluster(o, view.Map(o.Object, "spec"), field.NewPath("spec"))
}

// cluster returns the roles of a cluster's spec: the head and the groups of workers.
func cluster(o view.Object, spec map[string]any, path *field.Path) ([]view.Role, error) {
	head := view.Map(spec, "headGroupSpec", "template")
	if head == nil {
		return nil, podset.Permanent("%s is missing: a cluster needs a head", path.Child("headGroupSpec", "template"))
	}
	roles := []view.Role{{
		Name: headRole, Count: 1, Template: head, Path: path.Child("headGroupSpec", "template"),
		Shape: func(t *corev1.PodTemplateSpec) { shapeHead(o, spec, t) },
	}}
	for i, group := range view.Maps(spec, "workerGroupSpecs") {
		at := path.Child("workerGroupSpecs").Index(i)
		template := view.Map(group, "template")
		if template == nil {
			return nil, podset.Permanent("%s is missing: a group needs a pod template", at.Child("template"))
		}
		roles = append(roles, view.Role{
			Name: strings.ToLower(view.String(group, "groupName")), Count: rayplan.Workers(group), Template: template, Path: at.Child("template"), CountPath: at.Child("replicas"),
		})
	}
	return roles, nil
}

// shapeHead adapts the head as KubeRay does. With fault tolerance a cleanup Job replaces the head after its deletion.
func shapeHead(o view.Object, spec map[string]any, t *corev1.PodTemplateSpec) {
	if view.Map(spec, "gcsFaultToleranceOptions") != nil || o.GetAnnotations()[faultToleranceAnnotation] == "true" {
		if len(t.Spec.Containers) > 0 {
			raise(&t.Spec.Containers[0], corev1.ResourceCPU, "200m")
			raise(&t.Spec.Containers[0], corev1.ResourceMemory, "256Mi")
		}
	}
	if !view.Bool(spec, "enableInTreeAutoscaling") {
		return
	}
	c := corev1.Container{Name: "autoscaler", Resources: equal("500m", "512Mi")}
	if r, err := resources(view.Map(spec, "autoscalerOptions", "resources")); err == nil && r != nil {
		c.Resources = *r
	}
	t.Spec.Containers = append(t.Spec.Containers, c)
}

// raise raises a request to at least a quantity.
func raise(c *corev1.Container, name corev1.ResourceName, least string) {
	if q, ok := c.Resources.Requests[name]; ok && q.Cmp(resource.MustParse(least)) >= 0 {
		return
	}
	if c.Resources.Requests == nil {
		c.Resources.Requests = corev1.ResourceList{}
	}
	c.Resources.Requests[name] = resource.MustParse(least)
}

func equal(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(cpu, memory)}
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// validateCluster are the rules for a queued cluster. roles is the number of its pod sets.
func validateCluster(o view.Object, spec map[string]any, path *field.Path, roles int, in *plan.Setting) field.ErrorList {
	var errs field.ErrorList
	if view.Bool(spec, "enableInTreeAutoscaling") {
		at := path.Child("enableInTreeAutoscaling")
		switch {
		case !isElastic(o, in):
			errs = append(errs, field.Forbidden(at, "a queued cluster scales by itself only with the annotation "+kueue.ElasticJobAnnotation+
				" and the feature gate ElasticJobsViaWorkloadSlices; or queue it at its full size"))
		case view.String(o.Object, "spec", "managedBy") == kueue.MultiKueueControllerName:
			errs = append(errs, field.Forbidden(at, "a cluster that runs on another cluster cannot scale by itself"))
		}
	}
	if roles > maxRoles {
		errs = append(errs, field.TooMany(path.Child("workerGroupSpecs"), roles-1, maxRoles-1))
	}
	for i, group := range view.Maps(spec, "workerGroupSpecs") {
		if name := view.String(group, "groupName"); strings.ToLower(name) == headRole {
			errs = append(errs, field.Forbidden(path.Child("workerGroupSpecs").Index(i).Child("groupName"), "no group of workers can be named "+headRole))
		}
	}
	return errs
}
