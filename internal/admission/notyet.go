package admission

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
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
		scope := o.Spec.AdmissionScope
		add(scope != nil && scope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing, "spec.admissionScope")
		add(o.Spec.ConcurrentAdmissionPolicy != nil, "spec.concurrentAdmissionPolicy")
	case *kueue.LocalQueue: // the weight counts in admission fair sharing only
		add(o.Spec.FairSharing != nil, "spec.fairSharing")
	case *kueue.ResourceFlavor:
		add(o.Spec.TopologyName != "", "spec.topologyName")
	case *kueue.Workload:
		for _, ps := range o.Spec.PodSets {
			path := "spec.podSets[" + string(ps.Name) + "]"
			add(isPlaced(ps.TopologyRequest), path+".topologyRequest")
			add(len(ps.Template.Spec.ResourceClaims) > 0, path+".template.spec.resourceClaims")
		}
	}
	return paths
}

// advise refuses nothing: the object is only looked at for what notYet says.
func (*server) advise() validator {
	return func(context.Context, *admission.Request, client.Object, client.Object) error { return nil }
}

// inert warns of what a job asks for and a feature gate turns off.
func (s *server) inert(object client.Object) []string {
	if !job.IsElastic(object) || s.o.Jobs.ElasticJobs {
		return nil
	}
	return []string{elasticPath.String() + " is accepted, but the feature gate ElasticJobsViaWorkloadSlices is off: the job is stopped when it is resized"}
}

// isPlaced tells whether pods are to be placed by topology. That pod sets share their
// flavors, which is said in the same place, is acted upon.
func isPlaced(t *kueue.PodSetTopologyRequest) bool {
	if t == nil {
		return false
	}
	rest := *t
	rest.PodSetGroupName = nil
	return !reflect.DeepEqual(rest, kueue.PodSetTopologyRequest{})
}
