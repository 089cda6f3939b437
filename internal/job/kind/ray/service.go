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
)

// Fields of a RayService.
var (
	topSuspend    = []string{"spec", "suspend"}
	nestedSuspend = []string{"spec", "rayClusterConfig", "suspend"}
	clusterConfig = []string{"spec", "rayClusterConfig"}
	configPath    = field.NewPath("spec", "rayClusterConfig")
)

// hashAnnotation has, on a cluster, the hash of what KubeRay made it for.
const hashAnnotation = "ray.io/hash-without-replicas-and-workers-to-delete"

// redisFinalizer is on clusters whose control store is still cleaned up.
const redisFinalizer = "ray.io/gcs-ft-redis-cleanup-finalizer"

// Service describes RayService. It never finishes by itself.
//
// spec.suspend stops it as a whole. An elastic one is led, cluster by cluster (spec: 30 §4.10.3). Of any other one the
// suspend of its clusters is a mirror of its own, and an upgrade stops all of it first. A KubeRay that knows no
// spec.suspend is told to stop by that mirror alone, which reaches only clusters that are still to be made.
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
		return view.Bool(s, nestedSuspend...)
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
		if managed && r.isGated(view.Of(o), in) {
			r.repair(o, in)
		}
	}
	d.Guard = &plan.Guard{Check: r.guardService}
	d.Owns = []plan.Child{{GVK: gvk("RayCluster"), Made: r.madeByService}}
	d.ManagedChildren = &plan.ManagedChildren{
		Child: gvk("RayCluster"), PodLabel: rayplan.ClusterLabel, PodLabels: []string{rayplan.GroupLabel},
		IsActive: func(o plan.Object, in *plan.Setting) bool {
			if r.isLegacy() { // its clusters stay, without pods
				return slices.ContainsFunc(in.Pods, rayplan.Runs)
			}
			return hasClusters(o, in)
		},
		Upgrades: &plan.Upgrades{
			Configured: r.isConfigured, Learn: r.learn,
			GatesChildren: r.gatesChildren, Repair: r.repair, Start: r.startGated, Step: r.step, Waits: r.waits, HoldsDeletion: r.holdsDeletion,
			MayRun: func(o plan.Object, pod *corev1.Pod, in *plan.Setting) bool {
				s, err := r.observe(view.Of(o), in)
				return err == nil && s.HasRoom(pod)
			},
		},
	}
	return d
}

// lingers reports whether KubeRay still cleans up what a cluster stored.
func (r *Settings) holdsDeletion(_ plan.Object, in *plan.Setting) bool {
	return r.DeferCleanup && slices.ContainsFunc(in.Children, func(c plan.Object) bool {
		return slices.Contains(c.GetFinalizers(), redisFinalizer)
	})
}

// isConfigured reports whether elastic services are led if KubeRay has the switch for it, and leads whether it has.
func (r *Settings) isConfigured(cfg *plan.Config) bool { return cfg.ElasticJobs && r.Gating }

func (r *Settings) gatesChildren(cfg *plan.Config) bool { return r.isConfigured(cfg) && !r.isLegacy() }

// isLed reports whether a service is.
func (r *Settings) isGated(o metav1.Object, in *plan.Setting) bool {
	return in != nil && in.Config != nil && r.gatesChildren(in.Config) && plan.IsElastic(o)
}

// setNested writes the suspend of clusters that are still to be made, if there is anything to suspend.
func setNested(o view.Object, suspended bool) {
	if view.Map(o.Object, clusterConfig...) != nil {
		view.Set(o.Object, suspended, nestedSuspend...)
	}
}

// serviceRoles are those of a new cluster.
func serviceRoles(o view.Object, _ *plan.Setting) ([]view.Role, error) {
	return cluster(o, view.Map(o.Object, clusterConfig...), configPath)
}

// clusterRoles are those of a cluster that exists. Without replicas a group has as few as it may.
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

// servicePodSets are what a service that is led needs next, and what the clusters of any other one have, or would have.
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
		out = append(out, sets...) // of two clusters more than any slice has, so the service is stopped
	}
	if len(out) > 0 {
		return out, nil
	}
	return view.PodSetsOf(o, serviceRoles, in)
}

// serviceIsActive reports whether KubeRay may have clusters of the service that it still has to take down. What it never
// looked at has none, and one that knows no spec.suspend takes none down.
func serviceIsActive(o view.Object) bool {
	status := view.Map(o.Object, "status")
	_, has := view.Get(o.Object, topSuspend...).(bool)
	return has && len(status) > 0 && (!view.HasCondition(o, "Suspended") || view.HasCondition(o, "Suspending"))
}

// serviceIsReady takes the word of the service, but while a cluster is held, which keeps KubeRay from looking, that of the
// active cluster.
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

// observe is the service with all that belongs to it, as the plan takes it. What one that runs on another cluster has there it was told.
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

// observeAt is the service with the clusters of its copy, of which that is the status: they are compared with what the service asks for.
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
	made := "" // what the active cluster was made for
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

// startLed lets a service run whose clusters are let go one by one.
func (r *Settings) startGated(object plan.Object, _ *plan.Setting) {
	o := view.Of(object)
	view.Set(o.Object, false, topSuspend...)
	setNested(o, !r.GatedPods)
	forgetClusters(o)
}

// mend puts back what holds the clusters and the pods of a service that is led. None of it moves KubeRay's hash.
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

// step finds the next write to the clusters and pods of a service: what was taken away is put back, then clusters are let
// go, then pods.
func (r *Settings) step(ob *plan.Observed, in *plan.Setting) *plan.Action {
	o := view.Of(ob.Job)
	s, err := r.observe(o, in)
	if err != nil {
		return nil // the reconcile of the job says so
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
		return &plan.Action{Verb: plan.DeleteChildren, Children: objects(excess), Events: []plan.Event{{
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
		if free := s.Free(infos); len(free) > 0 {
			return &plan.Action{Verb: plan.PatchChildren, Children: objects(free), Workload: w}
		}
	}
	return crowded(s)
}

// crowded tells of clusters that wait for something else than quota.
func crowded(s *rayplan.Service) *plan.Action {
	if d := s.Demand(); d.Crowded != nil {
		return &plan.Action{Events: []plan.Event{{Warning: true, Reason: "ErrWorkloadCompose", Note: d.Crowded.Error()}}}
	}
	return nil
}

// hold notes that a pod of a cluster lost its gate without quota, and the second time suspends the cluster until it is admitted.
func hold(s *rayplan.Service, in *plan.Setting) *plan.Action {
	c, note := s.Breach()
	if c == nil {
		return nil
	}
	next := childOfService(in, c)
	annotations := next.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[rayplan.UngatedAnnotation] = note
	next.SetAnnotations(annotations)
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

// childOfService is a copy of a cluster that is to be written.
func childOfService(in *plan.Setting, c *rayplan.Cluster) view.Object {
	at := slices.IndexFunc(in.Children, func(o plan.Object) bool { return o.GetUID() == c.UID })
	return view.Of(in.Children[at]).DeepCopy()
}

// withdraw ends an upgrade that was taken back. Should Berth die between the two writes, KubeRay deletes the cluster: the
// service does not name it any more.
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

// release lets the next cluster go, if there is one.
func release(s *rayplan.Service, in *plan.Setting) *plan.Action {
	c, stale := s.Releases()
	if c == nil {
		return nil
	}
	next := childOfService(in, c)
	view.Set(next.Object, false, "spec", "suspend")
	if annotations := next.GetAnnotations(); !stale && annotations[rayplan.UngatedAnnotation] != "" {
		delete(annotations, rayplan.UngatedAnnotation)
		next.SetAnnotations(annotations)
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

// waits tells which clusters a new slice is for.
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

func objects(pods []*corev1.Pod) []plan.Object {
	out := make([]plan.Object, len(pods))
	for i := range pods {
		out[i] = pods[i]
	}
	return out
}
