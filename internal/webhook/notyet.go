package webhook

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// notYet warns of fields that an object sets and that this version does not act upon, so that nothing is ignored
// silently. A line goes with the feature that acts upon the field.
func notYet(object client.Object) []string {
	var paths []string
	add := func(set bool, path string) {
		if set {
			paths = append(paths, path+" is accepted, but this version of Berth does not act upon it")
		}
	}
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		add(o.Spec.AdmissionScope != nil, "spec.admissionScope")
		add(o.Spec.ConcurrentAdmissionPolicy != nil, "spec.concurrentAdmissionPolicy")
	case *kueue.ResourceFlavor:
		add(o.Spec.TopologyName != "", "spec.topologyName")
	case *kueue.Workload:
		for _, ps := range o.Spec.PodSets {
			add(ps.TopologyRequest != nil, "spec.podSets["+string(ps.Name)+"].topologyRequest")
		}
	}
	return paths
}
