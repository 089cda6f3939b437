package convert

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// perPod returns the usage of one pod on its node: its requests, and one of the resource pods. spec: 20 §4.5.
func perPod(requests corev1.ResourceList) []state.Request {
	out := []state.Request{{Resource: string(corev1.ResourcePods), Amount: 1}}
	//berth:unordered sorted below
	for name, q := range requests {
		if amount := Amount(name, q); amount > 0 && name != corev1.ResourcePods {
			out = append(out, state.Request{Resource: string(name), Amount: amount})
		}
	}
	slices.SortFunc(out, func(a, b state.Request) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// topology returns the explicit request for places of a pod set, nil for none. Labels of indexes and a group alone are no request.
// spec: 20 §4.5.
func (r *Requests) topology(ps *kueue.PodSet) *workload.Topology {
	t := ps.TopologyRequest
	if t == nil || (t.Required == nil && t.Preferred == nil && t.Unconstrained == nil && t.PodSetSliceRequiredTopology == nil &&
		t.PodSetSliceSize == nil && len(t.PodSetSliceRequiredTopologyConstraints) == 0) {
		return nil
	}
	out := &workload.Topology{}
	switch {
	case t.Required != nil:
		out.Required = *t.Required
	case t.Preferred != nil:
		out.Preferred = *t.Preferred
	}
	switch {
	case len(t.PodSetSliceRequiredTopologyConstraints) > 0:
		for _, l := range t.PodSetSliceRequiredTopologyConstraints {
			out.Slices = append(out.Slices, workload.SliceLayer{Level: l.Topology, Size: l.Size})
		}
	case t.PodSetSliceRequiredTopology != nil && t.PodSetSliceSize != nil:
		out.Slices = []workload.SliceLayer{{Level: *t.PodSetSliceRequiredTopology, Size: *t.PodSetSliceSize}}
	}
	if r.Affinity {
		out.Affinity = preferred(&ps.Template.Spec)
	}
	return out
}

// preferred returns the preferred node affinity of pods.
func preferred(spec *corev1.PodSpec) (out []workload.WeightedTerm) {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	for _, p := range spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		out = append(out, workload.WeightedTerm{Weight: p.Weight, Term: nodeTerm(&p.Preference)})
	}
	return out
}

// places adds the recorded places and numbers of the pods of a reservation. An assignment that breaks a rule of the API counts for nothing.
func (r *Requests) places(def *state.Workload, w *kueue.Workload) {
	if !r.Topology {
		return
	}
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		if a.Count != nil {
			def.SetGranted(string(a.Name), *a.Count)
		}
		domains, err := r.placesOf(w, a)
		if err != nil || a.TopologyAssignment == nil {
			continue
		}
		p := state.PodSetPlacement{PodSet: string(a.Name), Placement: trace.Placement{
			Flavor: r.placingFlavor(def, w.Status.Admission.PodSetAssignments, a), Levels: a.TopologyAssignment.Levels, Domains: domains,
		}}
		def.Placed = append(def.Placed, p)
	}
	def.Delayed = lifecycle.WaitsForPlacement(w)
	def.PlaceNow = len(def.Delayed) > 0 && lifecycle.MayPlace(w)
	if len(def.Delayed) > 0 || len(w.Status.UnhealthyNodes) > 0 {
		def.Updates = updates(w)
	}
	if lifecycle.IsAdmitted(w) {
		for _, n := range w.Status.UnhealthyNodes {
			def.Unhealthy = append(def.Unhealthy, n.Name)
		}
	}
}

func (r *Requests) placesOf(w *kueue.Workload, a *kueue.PodSetAssignment) ([]assignment.Domain, error) {
	if r.Places != nil {
		return r.Places(w, a)
	}
	return assignment.Decode(a.TopologyAssignment)
}

// updates returns what admission checks add to the pods of each pod set.
func updates(w *kueue.Workload) (out []state.PodSetUpdate) {
	for _, c := range w.Status.AdmissionChecks {
		for _, u := range c.PodSetUpdates {
			if len(u.NodeSelector)+len(u.Tolerations) > 0 {
				out = append(out, state.PodSetUpdate{PodSet: string(u.Name), Selector: u.NodeSelector, Tolerations: tolerations(u.Tolerations)})
			}
		}
	}
	return out
}

// placingFlavor returns the flavor on whose nodes the pods of a pod set are placed, as the engine chose it: that of a resource which the pods
// themselves request. Where quota is for other resources only, made by transformations or for devices, it is another flavor of the pod set or
// of its group that has a topology, of which there is one (spec: 20 §4.5).
func (r *Requests) placingFlavor(def *state.Workload, all []kueue.PodSetAssignment, a *kueue.PodSetAssignment) string {
	group := grouped(def, all, a)
	for _, b := range group {
		for _, q := range podSetOf(def, b).PerPod {
			if f, has := b.Flavors[corev1.ResourceName(q.Resource)]; has {
				return string(f)
			}
		}
	}
	var others []string
	for _, b := range group {
		for _, name := range slices.Sorted(maps.Keys(b.Flavors)) {
			others = append(others, string(b.Flavors[name]))
		}
	}
	if at := slices.IndexFunc(others, func(f string) bool { return r.HasTopology != nil && r.HasTopology(f) }); at >= 0 {
		return others[at]
	}
	return append(others, "")[0] // the flavor may be deleted
}

// grouped returns an assignment, and then the others of its placement group.
func grouped(def *state.Workload, all []kueue.PodSetAssignment, a *kueue.PodSetAssignment) []*kueue.PodSetAssignment {
	out := []*kueue.PodSetAssignment{a}
	name := podSetOf(def, a).Group
	for i := range all {
		if b := &all[i]; b != a && name != "" && podSetOf(def, b).Group == name {
			out = append(out, b)
		}
	}
	return out
}

// podSetOf returns the pod set of an assignment, an empty one if it does not exist.
func podSetOf(def *state.Workload, a *kueue.PodSetAssignment) *state.PodSet {
	for i := range def.PodSets {
		if def.PodSets[i].Name == string(a.Name) {
			return &def.PodSets[i]
		}
	}
	return &state.PodSet{}
}

// TopologyAssignment returns a placement as the status of a Workload records it, nil for none.
func TopologyAssignment(p *trace.Placement, r Requests) *kueue.TopologyAssignment {
	if p == nil {
		return nil
	}
	return assignment.EncodeInOrder(p.Levels, p.Domains, r.ByPrefix)
}

// Delay sets whether a queue places pods only after its admission checks: with a MultiKueue check always, with one that provisions nodes for
// the flavors of that check. spec: 20 §4.7.4.
func Delay(def *state.Queue, cq *kueue.ClusterQueue, known Known) {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return
	}
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		check := known.Check(rule.Name)
		switch {
		case check == nil:
		case check.Spec.ControllerName == kueue.MultiKueueControllerName:
			def.DelayAll, def.PlacedElsewhere = true, true
		case check.Spec.ControllerName != kueue.ProvisioningRequestControllerName:
		case len(rule.OnFlavors) == 0:
			def.DelayAll = true
		default:
			for _, f := range rule.OnFlavors {
				def.DelayFlavors = append(def.DelayFlavors, string(f))
			}
		}
	}
	slices.Sort(def.DelayFlavors)
	def.DelayFlavors = slices.Compact(def.DelayFlavors)
}
