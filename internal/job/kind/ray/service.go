package ray

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	rayplan "github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	placementplan "github.com/berth-project/berth/internal/placement/plan"
)

// Fields of a RayService.
var (
	topSuspend    = []string{"spec", "suspend"}
	nestedSuspend = []string{"spec", "rayClusterConfig", "suspend"}
	clusterConfig = []string{"spec", "rayClusterConfig"}
	configPath    = field.NewPath("spec", "rayClusterConfig")
)

// hashAnnotation is, on a cluster, the hash of the spec that KubeRay made it for.
const hashAnnotation = "ray.io/hash-without-replicas-and-workers-to-delete"

// redisFinalizer is on clusters whose control store is being cleaned up.
const redisFinalizer = "ray.io/gcs-ft-redis-cleanup-finalizer"

// Service describes RayService. It never finishes by itself.
//
// spec.suspend stops the whole service. The clusters of an elastic one are gated one by one (spec: 30 §4.10.3). Any other service
// mirrors its own suspend to its clusters, and an upgrade stops the service first. A KubeRay without spec.suspend gets only that
// mirror, which affects only new clusters.
func Service(s Settings) *plan.Descriptor { return s.service() }

func (r *Settings) service() *plan.Descriptor {
	d := view.Kind{
		Framework:  "ray.io/rayservice",
		GVK:        gvk("RayService"),
		Resource:   "rayservices",
		Suspend:    topSuspend,
		ManagedBy:  []string{"spec", "managedBy"},
		OwnManager: ownManager,
		Groups:     true,
		Roles:      serviceRoles,
		Finished:   func(view.Object) (string, bool, bool) { return "", false, false },
		IsActive:   serviceIsActive,
		PodsReady:  func(o view.Object, _ []view.Role) bool { return view.HasCondition(o, "Ready") },
		Validate:   r.validateService,
	}.Descriptor()
	d.Listing.Rules = []rbacv1.PolicyRule{changeClusters, plan.Allow("", []string{"pods"}, "delete", "patch")}
	d.PodLabels = podsAt("status", "activeServiceStatus", "rayClusterName")
	d.Remote.Follow = r.followService
	d.Remote.Prepare = func(o map[string]any) { forgetClusters(&unstructured.Unstructured{Object: o}) }
	d.FreeUnmanaged, d.FreeLeaving = true, r.FreeLeaving
	d.Elastic = &plan.Elastic{GatesPods: true, Children: []schema.GroupVersionKind{gvk("RayCluster")}}
	d.PodSets = r.servicePodSets
	d.Suspend = func(o plan.Object) {
		view.Set(view.Of(o).Object, true, topSuspend...)
		setNested(view.Of(o), true)
		forgetClusters(view.Of(o))
	}
	d.IsSuspended = func(o plan.Object) bool {
		s := view.Of(o).Object
		if top, has := view.Get(s, topSuspend...).(bool); has {
			return top
		}
		return r.isLegacy() && view.Bool(s, nestedSuspend...) // elsewhere KubeRay runs the service, with clusters that never start
	}
	d.Resume = func(o plan.Object) {
		view.Set(view.Of(o).Object, false, topSuspend...)
		setNested(view.Of(o), false)
		ungateTemplates(view.Map(view.Of(o).Object, clusterConfig...))
		forgetClusters(view.Of(o))
	}
	start := d.Start
	d.Start = func(o plan.Object, infos []plan.PodSetInfo, in *plan.Setting) error {
		setNested(view.Of(o), false)
		return start(o, infos, in)
	}
	d.PodsReady = r.serviceIsReady
	d.Default = func(o plan.Object, managed bool, in *plan.Setting) {
		switch {
		case !managed:
		case r.isGated(view.Of(o), in):
			r.repair(o, in)
		default:
			holdWithService(view.Of(o))
		}
	}
	d.Guard = &plan.Guard{Check: r.guardService}
	d.Owns = []plan.Child{{GVK: gvk("RayCluster"), Made: r.madeByService}}
	d.ManagedChildren = &plan.ManagedChildren{
		Child: gvk("RayCluster"), PodLabel: rayplan.ClusterLabel, PodLabels: []string{rayplan.GroupLabel},
		IsActive: func(o plan.Object, in *plan.Setting) bool {
			if r.isLegacy() { // suspended clusters remain, without pods
				return slices.ContainsFunc(in.Pods, rayplan.Runs)
			}
			return hasClusters(o, in)
		},
		Upgrades: &plan.Upgrades{
			Configured: r.isConfigured, Learn: r.learn,
			GatesChildren: r.gatesChildren, Repair: r.repair, Start: r.startGated, Step: r.step, Waits: r.waits,
			HoldsChildren: holdsClusters, HoldsDeletion: r.holdsDeletion,
			MayRun: func(o plan.Object, pod *corev1.Pod, in *plan.Setting) bool {
				s, err := r.observe(view.Of(o), in)
				return err == nil && s.HasRoom(pod)
			},
		},
	}
	return d
}

// holdsClusters reports whether a service does not ask for clusters that run.
func holdsClusters(o plan.Object) bool {
	nested, has := view.Get(view.Of(o).Object, nestedSuspend...).(bool)
	return nested || !has
}

// holdWithService removes an explicit false of the suspend of new clusters from a suspended service, which otherwise would count as running for
// the rules of updates (spec: 30 §4.10.3). KubeRay creates no cluster before the service is resumed.
func holdWithService(o view.Object) {
	if view.Bool(o.Object, topSuspend...) && !holdsClusters(o) {
		unstructured.RemoveNestedField(o.Object, nestedSuspend...)
	}
}

// holdsDeletion reports whether KubeRay still cleans up the control store of a cluster.
func (r *Settings) holdsDeletion(_ plan.Object, in *plan.Setting) bool {
	return r.DeferCleanup && slices.ContainsFunc(in.Children, func(c plan.Object) bool {
		return slices.Contains(c.GetFinalizers(), redisFinalizer)
	})
}

// isConfigured reports whether elastic services are gated if KubeRay has spec.suspend; gatesChildren also checks that.
func (r *Settings) isConfigured(cfg *plan.Config) bool { return cfg.ElasticJobs && r.Gating }

func (r *Settings) gatesChildren(cfg *plan.Config) bool { return r.isConfigured(cfg) && !r.isLegacy() }

// isGated reports whether the clusters of a service are gated.
func (r *Settings) isGated(o metav1.Object, in *plan.Setting) bool {
	return in != nil && in.Config != nil && r.gatesChildren(in.Config) && plan.IsElastic(o)
}

// setNested writes the suspend of new clusters, if the service has a cluster config.
func setNested(o view.Object, suspended bool) {
	if view.Map(o.Object, clusterConfig...) != nil {
		view.Set(o.Object, suspended, nestedSuspend...)
	}
}

func serviceRoles(o view.Object, _ *plan.Setting) ([]view.Role, error) {
	return cluster(o, view.Map(o.Object, clusterConfig...), configPath)
}

// clusterRoles are the roles of an existing cluster. A group without replicas has its minimum.
func clusterRoles(o view.Object, _ *plan.Setting) ([]view.Role, error) {
	spec := view.Map(o.Object, "spec")
	roles, err := cluster(o, spec, field.NewPath("spec"))
	if err != nil {
		return nil, podset.NotYet("cluster %s: %s", o.GetName(), err)
	}
	for i, group := range view.Maps(spec, "workerGroupSpecs") {
		if _, least := group["minReplicas"]; group["replicas"] == nil && least && !view.Bool(group, "suspend") {
			roles[i+1].Count = plan.Times(view.Int(group, 0, "minReplicas"), max(1, view.Int(group, 1, "numOfHosts")))
		}
	}
	return roles, nil
}

// servicePodSets are the pod sets of a gated service's next slice, and for any other service the pod sets of its clusters, or of
// its spec.
func (r *Settings) servicePodSets(object plan.Object, in *plan.Setting) ([]kueue.PodSet, error) {
	o := view.Of(object)
	if r.isGated(o, in) {
		s, err := r.observe(o, in)
		if err != nil {
			return nil, err
		}
		return s.Demand().PodSets, nil
	}
	var out []kueue.PodSet
	for _, c := range in.Children {
		sets, err := view.PodSetsOf(view.Of(c), clusterRoles, in)
		if err != nil {
			return nil, err
		}
		out = append(out, sets...) // two clusters match no Workload, so the service is stopped
	}
	if len(out) > 0 {
		return out, nil
	}
	return view.PodSetsOf(o, serviceRoles, in)
}

// serviceIsActive reports whether KubeRay may still have to delete clusters of the service. A service that it has never reconciled
// has none, and a KubeRay without spec.suspend deletes none.
func serviceIsActive(o view.Object) bool {
	status := view.Map(o.Object, "status")
	_, has := view.Get(o.Object, topSuspend...).(bool)
	return has && len(status) > 0 && (!view.HasCondition(o, "Suspended") || view.HasCondition(o, "Suspending"))
}

// serviceIsReady uses the status of the service, or of the active cluster while a cluster is suspended: KubeRay does not update the
// service then.
func (r *Settings) serviceIsReady(object plan.Object, in *plan.Setting) bool {
	o := view.Of(object)
	if r.isGated(o, in) {
		active := view.String(o.Object, "status", "activeServiceStatus", "rayClusterName")
		held := slices.ContainsFunc(in.Children, func(c plan.Object) bool { return view.Bool(view.Of(c).Object, "spec", "suspend") })
		for _, c := range in.Children {
			if held && c.GetName() == active {
				return view.String(view.Of(c).Object, "status", "state") == ready
			}
		}
	}
	return view.HasCondition(o, "Ready")
}

// observe reads the service with its dependents for the plan. For a remote service, the clusters come from its mirrored counts.
func (r *Settings) observe(o view.Object, in *plan.Setting) (*rayplan.Service, error) {
	if !isRemote(o) {
		return r.observeAt(o, o, in)
	}
	s, err := r.withoutClusters(o, in)
	if err == nil && !s.Suspended {
		s.RestoreClusters(o.GetAnnotations()[rayplan.ClustersAnnotation])
	}
	return s, err
}

func (r *Settings) withoutClusters(o view.Object, in *plan.Setting) (*rayplan.Service, error) {
	spec, err := view.PodSetsOf(o, serviceRoles, in)
	if err != nil {
		return nil, err
	}
	return &rayplan.Service{
		Spec: spec, Suspended: view.Bool(o.Object, topSuspend...), Pods: in.Pods, Slices: in.Workloads, HoldPods: r.GatedPods,
	}, nil
}

// observeAt reads the service with the clusters of at, which is the service or its copy and has the status. The clusters are
// compared with the service's spec.
func (r *Settings) observeAt(o, at view.Object, in *plan.Setting) (*rayplan.Service, error) {
	s, err := r.withoutClusters(o, in)
	if err != nil {
		return nil, err
	}
	active := view.String(at.Object, "status", "activeServiceStatus", "rayClusterName")
	pending := view.String(at.Object, "status", "pendingServiceStatus", "rayClusterName")
	goal := view.Map(o.Object, clusterConfig...)
	strategy := view.String(o.Object, "spec", "upgradeStrategy", "type")
	s.Stays, s.BySteps = strategy == "None", strategy == "NewClusterWithIncrementalUpgrade"
	made := "" // the hash of the active cluster
	for _, c := range in.Children {
		child := view.Of(c)
		groups, err := view.PodSetsOf(child, clusterRoles, in)
		if err != nil {
			return nil, err
		}
		cluster := rayplan.Cluster{
			Name: child.GetName(), UID: child.GetUID(), Rank: rayplan.Dangling, Groups: groups,
			Held: view.Bool(child.Object, "spec", "suspend"), Current: isCurrent(view.Map(child.Object, "spec"), goal),
			Breach: child.GetAnnotations()[rayplan.UngatedAnnotation],
		}
		switch {
		case child.GetDeletionTimestamp() != nil:
			cluster.Rank = rayplan.Deleting
		case child.GetName() == active:
			cluster.Rank, made = rayplan.Active, child.GetAnnotations()[hashAnnotation]
		case child.GetName() == pending:
			cluster.Rank = rayplan.Pending
		}
		s.Clusters = append(s.Clusters, cluster)
	}
	for i, c := range in.Children {
		s.Clusters[i].Twin = made != "" && s.Clusters[i].Rank == rayplan.Pending && c.GetAnnotations()[hashAnnotation] == made
	}
	return s, nil
}

// startGated starts a service whose clusters are gated.
func (r *Settings) startGated(object plan.Object, _ *plan.Setting) {
	o := view.Of(object)
	view.Set(o.Object, false, topSuspend...)
	setNested(o, !r.GatedPods)
	forgetClusters(o)
}

// repair restores what holds the clusters and the pods of a gated service. None of it changes KubeRay's hash.
func (r *Settings) repair(object plan.Object, _ *plan.Setting) bool {
	o := view.Of(object)
	if view.Map(o.Object, clusterConfig...) == nil {
		return false
	}
	hold := !r.GatedPods || view.Bool(o.Object, topSuspend...)
	nested, has := view.Get(o.Object, nestedSuspend...).(bool)
	changed := !has || nested != hold
	if changed {
		setNested(o, hold)
	}
	if _, has := view.Get(o.Object, topSuspend...).(bool); !has {
		view.Set(o.Object, false, topSuspend...)
		changed = true
	}
	return gateTemplates(view.Map(o.Object, clusterConfig...)) || changed
}

// step returns the next write to the clusters and pods of a service: it restores removed gates, then releases clusters, then
// ungates pods.
func (r *Settings) step(ob *plan.Observed, in *plan.Setting) *plan.Action {
	o := view.Of(ob.Job)
	s, err := r.observe(o, in)
	if err != nil {
		return nil // the reconcile of the job reports it
	}
	if isRemote(o) {
		return crowded(s) // the worker does the rest
	}
	for _, c := range in.Children {
		next := view.Of(c).DeepCopy()
		if c.GetDeletionTimestamp() == nil && gateTemplates(view.Map(next.Object, "spec")) {
			return &plan.Action{Verb: plan.PatchChildren, Children: []plan.Object{next}}
		}
	}
	if a := hold(s, in); a != nil {
		return a
	}
	if excess := s.Excess(); len(excess) > 0 {
		return &plan.Action{Verb: plan.DeleteChildren, Children: plan.Objects(excess), Events: []plan.Event{{
			Warning: true, Reason: "UpgradeUnheld", Note: "Deleted pods that ran without quota: somebody removed what held them",
		}}}
	}
	if a := withdraw(s, o, in); a != nil {
		return a
	}
	if a := release(s, in); a != nil {
		return a
	}
	if w := s.Granting(); w != nil {
		infos, err := plan.InfosFromAdmission(in.Config, w, ob.Flavors)
		if err != nil {
			return &plan.Action{Verb: plan.Fail, Err: err}
		}
		free := s.Free(infos)
		if in.Topology {
			if free, err = placementplan.InPlaces(w, infos, s.Pods, free); err != nil {
				return &plan.Action{Verb: plan.Fail, Err: err}
			}
		}
		if len(free) > 0 {
			return &plan.Action{Verb: plan.PatchChildren, Children: plan.Objects(free), Workload: w}
		}
	}
	return crowded(s)
}

// crowded reports clusters that wait for another reason than quota.
func crowded(s *rayplan.Service) *plan.Action {
	if d := s.Demand(); d.Crowded != nil {
		return &plan.Action{Events: []plan.Event{{Warning: true, Reason: "ErrWorkloadCompose", Note: d.Crowded.Error()}}}
	}
	return nil
}

// hold records that a pod of a cluster lost its gate without quota; the second time it suspends the cluster until its admission.
func hold(s *rayplan.Service, in *plan.Setting) *plan.Action {
	c, note := s.Breach()
	if c == nil {
		return nil
	}
	next := childOfService(in, c)
	podset.Annotate(next, rayplan.UngatedAnnotation, note)
	a := &plan.Action{Verb: plan.PatchChildren, Children: []plan.Object{next}}
	if note == rayplan.Reheld {
		view.Set(next.Object, true, "spec", "suspend")
		a.Events = []plan.Event{{
			Warning: true, Reason: "UpgradeUnheld",
			Note: "Cluster " + c.Name + " is suspended until it has quota: gates of its pods were removed more than once",
		}}
	}
	return a
}

// childOfService returns a copy of a cluster to be changed.
func childOfService(in *plan.Setting, c *rayplan.Cluster) view.Object {
	at := slices.IndexFunc(in.Children, func(o plan.Object) bool { return o.GetUID() == c.UID })
	return view.Of(in.Children[at]).DeepCopy()
}

// withdraw ends an upgrade that was reverted. After a crash between the two writes KubeRay deletes the cluster: the service no
// longer names it.
func withdraw(s *rayplan.Service, o view.Object, in *plan.Setting) *plan.Action {
	c := s.Withdraws()
	if c == nil {
		return nil
	}
	next := o.DeepCopy()
	view.Set(next.Object, map[string]any{}, "status", "pendingServiceStatus")
	return &plan.Action{Verb: plan.PatchJobStatus, Job: next, Children: []plan.Object{childOfService(in, c)}, Events: []plan.Event{{
		Warning: true, Reason: "UpgradeHoldStale",
		Note: "Cluster " + c.Name + " is not wanted any more: the active one is what the service asks for, and goes on; none of its pods has run",
	}}}
}

// release unsuspends the next cluster, if there is one.
func release(s *rayplan.Service, in *plan.Setting) *plan.Action {
	c, stale := s.Releases()
	if c == nil {
		return nil
	}
	next := childOfService(in, c)
	view.Set(next.Object, false, "spec", "suspend")
	if !stale {
		podset.Unannotate(next, rayplan.UngatedAnnotation)
	}
	a := &plan.Action{Verb: plan.PatchChildren, Children: []plan.Object{next}}
	upgrade := slices.ContainsFunc(s.Clusters, func(x rayplan.Cluster) bool { return x.Rank == rayplan.Active && x.UID != c.UID })
	switch {
	case stale:
		a.Events = []plan.Event{{
			Warning: true, Reason: "UpgradeHoldStale",
			Note: "Cluster " + c.Name + " is not wanted any more: it may be taken away, and none of its pods may run",
		}}
	case upgrade:
		a.Events = []plan.Event{{Reason: "UpgradeReleased", Note: "Cluster " + c.Name + " has quota beside the active one and starts"}}
	}
	return a
}

// waits reports the clusters that a new slice is for.
func (r *Settings) waits(object plan.Object, in *plan.Setting) []plan.Event {
	s, err := r.observe(view.Of(object), in)
	if err != nil {
		return nil
	}
	var out []plan.Event
	for _, name := range s.Demand().Held {
		if name == "" {
			name = "to be made on the worker"
		}
		out = append(out, plan.Event{Reason: "UpgradeHeld", Note: "Cluster " + name + " waits for quota; the active one goes on"})
	}
	return out
}
