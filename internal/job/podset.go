package job

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/topology"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// PodSetInfo has the values that the pods of one pod set get at the start.
type PodSetInfo = podset.Info

// Flavors are the known ResourceFlavors, by name.
type Flavors = podset.Flavors

// Ranks are the labels that number the pods of a pod set.
type Ranks = topology.Ranks

func (c *Config) topology() topology.Gates {
	return topology.Gates{Topology: c.Topology, Layers: c.TopologySliceConstraints}
}

// TopologyRequest derives the topology request of a pod set from its template and the labels of its pods; nil for none.
func (c *Config) TopologyRequest(template *metav1.ObjectMeta, ranks Ranks) *kueue.PodSetTopologyRequest {
	return c.topology().Request(template, ranks)
}

// ValidateTopology checks the annotations of topology requests, for a pod set of count pods, and warns of pods without a place.
func (c *Setting) ValidateTopology(template *metav1.ObjectMeta, path *field.Path, count int32) field.ErrorList {
	errs := c.topology().Validate(template, path, count)
	if len(errs) == 0 {
		c.Warnings = append(c.Warnings, c.topology().Warn(template, path, count)...)
	}
	return errs
}

// InfosFromAdmission returns the values for the pods of an admitted Workload, one entry for each assignment. A missing flavor is a
// temporary error; contradicting values are a permanent one (spec: 30 §4.7).
func InfosFromAdmission(cfg *Config, w *kueue.Workload, flavors Flavors) ([]PodSetInfo, error) {
	if w.Status.Admission == nil {
		return nil, fmt.Errorf("workload %s has no admission", w.Name)
	}
	infos := make([]PodSetInfo, 0, len(w.Status.Admission.PodSetAssignments))
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		info := PodSetInfo{Name: a.Name, Labels: cfg.podLabels(w, a.Name), Annotations: map[string]string{}, NodeSelector: map[string]string{}}
		switch {
		case a.Count != nil:
			info.Count = *a.Count
		case i < len(w.Spec.PodSets):
			info.Count = w.Spec.PodSets[i].Count
		}
		if err := info.AddFlavors(a, flavors); err != nil {
			return nil, err
		}
		if cfg.Topology {
			info.Annotations[kueue.WorkloadAnnotation] = w.Name
		}
		if IsElastic(w) {
			info.Annotations[kueue.WorkloadSliceNameAnnotation] = chain.Chain(w)
		}
		if cfg.Topology && a.TopologyAssignment != nil {
			info.SchedulingGates = append(info.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
			if i < len(w.Spec.PodSets) && asksForNothing(w.Spec.PodSets[i].TopologyRequest) {
				info.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation] = "true"
			}
		}
		if err := info.AddChecks(w); err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// asksForNothing reports whether a topology request is without a wish for the pod set as a whole. It may have slices, or only the labels of
// ranks (spec: 20 §4.8).
func asksForNothing(r *kueue.PodSetTopologyRequest) bool {
	return r == nil || (r.Required == nil && r.Preferred == nil && r.Unconstrained == nil)
}

func (c *Config) podLabels(w *kueue.Workload, podSet kueue.PodSetReference) map[string]string {
	out := map[string]string{kueue.PodSetLabel: string(podSet)}
	if w.Labels[kueue.MultiKueueOriginLabel] != "" {
		out[kueue.MultiKueueWorkerWorkloadPodLabel] = "true"
	}
	if !c.AssignQueueLabels {
		return out
	}
	if queue := string(w.Spec.QueueName); queue != "" && len(validation.IsValidLabelValue(queue)) == 0 {
		out[kueue.LocalQueueLabel] = queue
	}
	if queue := string(w.Status.Admission.ClusterQueue); len(validation.IsDNS1123Label(queue)) == 0 {
		out[kueue.ClusterQueueLabel] = queue
	}
	return out
}
