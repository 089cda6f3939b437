package kuberay

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-project/berth/internal/job/plan/view"
)

// Conditions of a service.
const (
	isReady     = "Ready"
	suspending  = "Suspending"
	suspended   = "Suspended"
	upgrading   = "UpgradeInProgress"
	rollingBack = "RollbackInProgress"
)

// side is the status of the active or the pending cluster. Capacity and traffic are per cent, of upgrades in steps.
type side struct {
	name              string
	capacity, traffic int32
}

// status is the status of a service.
type status struct {
	active, pending side
	conditions      map[string]bool
}

func statusOf(s *unstructured.Unstructured) status {
	read := func(field string, otherwise int32) side {
		of := view.Map(s.Object, "status", field)
		return side{view.String(of, "rayClusterName"), view.Int(of, otherwise, "targetCapacity"), view.Int(of, otherwise, "trafficRoutedPercent")}
	}
	st := status{active: read("activeServiceStatus", 100), pending: read("pendingServiceStatus", 0), conditions: map[string]bool{}}
	for _, c := range []string{isReady, suspending, suspended, upgrading, rollingBack} {
		st.conditions[c] = view.HasCondition(s, c)
	}
	return st
}

// says writes the status of a service, if it is another one.
func (k *Operator) says(ctx context.Context, s *unstructured.Unstructured, st status) {
	tree := func(x side) map[string]any {
		return map[string]any{"rayClusterName": x.name, "targetCapacity": int64(x.capacity), "trafficRoutedPercent": int64(x.traffic)}
	}
	var conditions []any
	for _, c := range []string{isReady, suspending, suspended, upgrading, rollingBack} {
		is := "False"
		if st.conditions[c] {
			is = "True"
		}
		conditions = append(conditions, map[string]any{"type": c, "status": is})
	}
	now := map[string]any{"activeServiceStatus": tree(st.active), "pendingServiceStatus": tree(st.pending), "conditions": conditions}
	if reflect.DeepEqual(now, s.Object["status"]) {
		return
	}
	s.Object["status"] = now
	k.write(func() error { return k.Status().Update(ctx, s) })
}

// service is one reconcile of a service, in KubeRay's order (spec: 30 §4.10.1).
func (k *Operator) service(ctx context.Context, s *unstructured.Unstructured, clusters []unstructured.Unstructured) {
	st := statusOf(s)
	k.dangling(ctx, &st, clusters)
	if k.suspend(ctx, s, st, len(clusters)) {
		return
	}
	find := func(name string) *unstructured.Unstructured {
		if at := slices.IndexFunc(clusters, func(c unstructured.Unstructured) bool { return c.GetName() == name }); at >= 0 {
			return &clusters[at]
		}
		return nil
	}
	active, pending := find(st.active.name), find(st.pending.name)
	if pending == nil && st.pending.name != "" {
		k.makeCluster(ctx, s, st.pending.name, active != nil && bySteps(s))
		return
	}
	goal := view.Map(s.Object, "spec", "rayClusterConfig")
	if newest := or(pending, active); newest != nil && isExtended(newest, goal) {
		k.extend(ctx, s, newest)
		return
	}
	steps := bySteps(s) && active != nil && pending != nil
	st.conditions[rollingBack] = steps && !isFor(pending, goal)
	for _, c := range []*unstructured.Unstructured{active, pending} {
		if c != nil && !slices.ContainsFunc(k.podsOf(ctx, c.GetUID()), isHead) {
			return // without a head it stops here, and forgets its findings
		}
	}
	if steps {
		k.shift(ctx, s, &st, active, pending)
	}
	k.conclude(s, &st, active, pending, steps)
	k.says(ctx, s, st)
}

// bySteps reports whether a service is upgraded in steps.
func bySteps(s *unstructured.Unstructured) bool {
	return view.String(s.Object, "spec", "upgradeStrategy", "type") == "NewClusterWithIncrementalUpgrade"
}

func or(a, b *unstructured.Unstructured) *unstructured.Unstructured {
	if a != nil {
		return a
	}
	return b
}

func isHead(p corev1.Pod) bool { return p.Labels["ray.io/node-type"] == "head" }

func isServing(c *unstructured.Unstructured) bool {
	return view.String(c.Object, "status", "state") == "ready"
}

// dangling deletes clusters that the status does not name, some time after it did.
func (k *Operator) dangling(ctx context.Context, st *status, clusters []unstructured.Unstructured) {
	for i := range clusters {
		c := &clusters[i]
		if c.GetName() == st.active.name || c.GetName() == st.pending.name || c.GetDeletionTimestamp() != nil {
			continue
		}
		if k.idle == nil {
			k.idle = map[types.UID]int{}
		}
		if k.idle[c.GetUID()]++; k.idle[c.GetUID()] > k.Lingers {
			k.write(func() error { return k.Delete(ctx, c) })
		}
	}
}

// suspend stops or resumes a whole service. It reports whether there is nothing else to do.
func (k *Operator) suspend(ctx context.Context, s *unstructured.Unstructured, st status, clusters int) bool {
	wanted := view.Bool(s.Object, "spec", "suspend")
	next := status{active: side{capacity: 100, traffic: 100}, conditions: map[string]bool{}}
	switch {
	case st.conditions[suspending]:
		if clusters > 0 {
			return true
		}
		next.conditions[suspended] = true
	case wanted && !st.conditions[suspended]:
		next.conditions[suspending] = true
	case wanted:
		return true
	case !st.conditions[suspended]:
		return false
	}
	k.says(ctx, s, next)
	return true
}

// shift moves capacity, and then traffic, from one cluster to the other: to the pending one, or back.
func (k *Operator) shift(ctx context.Context, s *unstructured.Unstructured, st *status, active, pending *unstructured.Unstructured) {
	options := view.Map(s.Object, "spec", "upgradeStrategy", "clusterUpgradeOptions")
	surge, step := view.Int(options, 100, "maxSurgePercent"), view.Int(options, 100, "stepSizePercent")
	from, to := &st.active, &st.pending
	if st.conditions[rollingBack] {
		from, to = to, from
	}
	switch {
	case to.capacity != to.traffic: // traffic follows before more capacity is moved
		if st.conditions[rollingBack] || isServing(pending) {
			to.traffic = min(100, to.traffic+step, to.capacity)
			from.traffic = 100 - to.traffic
		}
	case from.capacity+to.capacity > 100:
		from.capacity = max(0, from.capacity-surge)
	default:
		to.capacity = min(100, to.capacity+surge)
	}
	k.resize(ctx, active, st.active.capacity)
	k.resize(ctx, pending, st.pending.capacity)
}

// resize stands in for Ray's autoscaler when Serve requests a part of a cluster's full size.
func (k *Operator) resize(ctx context.Context, c *unstructured.Unstructured, capacity int32) {
	var full map[string]int32
	_ = json.Unmarshal([]byte(c.GetAnnotations()[sizesAnnotation]), &full)
	changed := false
	for _, group := range view.Maps(c.Object, "spec", "workerGroupSpecs") {
		want := max(view.Int(group, 0, "minReplicas"), (full[view.String(group, "groupName")]*capacity+99)/100)
		if view.Int(group, -1, "replicas") != want {
			group["replicas"], changed = int64(want), true
		}
	}
	if changed {
		k.write(func() error { return k.Update(ctx, c) })
	}
}

// conclude decides about the clusters: the pending one takes over, or is given up, or a new one is needed.
func (k *Operator) conclude(s *unstructured.Unstructured, st *status, active, pending *unstructured.Unstructured, steps bool) {
	goal := view.Map(s.Object, "spec", "rayClusterConfig")
	switch {
	case steps && st.conditions[rollingBack]:
		if st.active.capacity == 100 && st.active.traffic == 100 && st.pending.capacity == 0 && st.pending.traffic == 0 {
			st.pending, st.conditions[rollingBack] = side{}, false
			pending = nil
		}
	case steps && (st.active.capacity > 0 || st.pending.traffic < 100):
	case pending != nil && isServing(pending):
		st.active, st.pending = side{pending.GetName(), 100, 100}, side{}
		active, pending = pending, nil
	}
	st.conditions[isReady] = active != nil && isServing(active)
	st.conditions[upgrading] = active != nil && st.pending.name != ""
	newest := or(pending, active)
	switch {
	case steps && st.pending.name != "", newest != nil && isFor(newest, goal):
	case view.String(s.Object, "spec", "upgradeStrategy", "type") == "None" && newest != nil:
	default:
		st.pending = side{name: k.name(s)}
	}
}

// isFor reports whether a cluster was made for a spec.
func isFor(c *unstructured.Unstructured, goal map[string]any) bool {
	return c.GetAnnotations()[HashAnnotation] == HashOf(goal)
}

// isExtended reports whether a spec appends groups of workers to a cluster.
func isExtended(c *unstructured.Unstructured, goal map[string]any) bool {
	groups, _ := goal["workerGroupSpecs"].([]any)
	n, err := strconv.Atoi(c.GetAnnotations()[groupsAnnotation])
	if err != nil || len(groups) <= n {
		return false
	}
	less := maps.Clone(goal)
	less["workerGroupSpecs"] = groups[:n]
	return isFor(c, less)
}

// extend updates a cluster in place. Only its own suspend is kept.
func (k *Operator) extend(ctx context.Context, s, c *unstructured.Unstructured) {
	held, has := view.Get(c.Object, "spec", "suspend").(bool)
	k.describe(s, c)
	if has {
		view.Set(c.Object, held, "spec", "suspend")
	}
	k.write(func() error { return k.Update(ctx, c) })
}

// makeCluster creates a cluster. One that takes over in steps begins with its minimum of workers.
func (k *Operator) makeCluster(ctx context.Context, s *unstructured.Unstructured, name string, small bool) {
	c := view.New(GVK("RayCluster"))
	c.SetName(name)
	c.SetNamespace(s.GetNamespace())
	c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(s, GVK("RayService"))})
	k.describe(s, c)
	if small {
		for _, group := range view.Maps(c.Object, "spec", "workerGroupSpecs") {
			delete(group, "replicas")
		}
	}
	k.write(func() error { return k.Create(ctx, c) })
}

// describe sets the spec of a cluster from its service, with all labels and annotations of the service.
func (k *Operator) describe(s, c *unstructured.Unstructured) {
	goal := view.Map(s.Object, "spec", "rayClusterConfig")
	labels, annotations, full := s.GetLabels(), s.GetAnnotations(), map[string]int32{}
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	groups := view.Maps(goal, "workerGroupSpecs")
	for _, group := range groups {
		full[view.String(group, "groupName")] = view.Int(group, 1, "replicas")
	}
	sizes, _ := json.Marshal(full)
	labels["ray.io/originated-from-cr-name"], labels["ray.io/originated-from-crd"] = s.GetName(), "RayService"
	annotations[HashAnnotation], annotations[groupsAnnotation], annotations[sizesAnnotation] = HashOf(goal), strconv.Itoa(len(groups)), string(sizes)
	c.SetLabels(labels)
	c.SetAnnotations(annotations)
	c.Object["spec"] = typed(goal)
}
