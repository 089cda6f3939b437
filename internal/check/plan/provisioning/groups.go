package provisioning

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// group is one pod set of a request: pod sets of the Workload that are merged into the first one.
type group struct {
	first    *kueue.PodSet
	assigned *kueue.PodSetAssignment // of the first
	members  []kueue.PodSetReference
	count    int32 // of pods admitted, of all members
}

// groups returns the pod sets of a request for a Workload with a reservation: the pod sets with pods that use a managed resource, merged as
// the configuration asks. spec: 20 §2.6, §4.18.1.
func groups(w *kueue.Workload, config *kueue.ProvisioningRequestConfig) (out []group) {
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		at := slices.IndexFunc(w.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool { return a.Name == ps.Name })
		if at < 0 || ps.Count < 1 {
			continue
		}
		assigned := &w.Status.Admission.PodSetAssignments[at]
		count := ps.Count
		if assigned.Count != nil {
			count = *assigned.Count
		}
		if count < 1 || !usesAny(&ps.Template.Spec, config.Spec.ManagedResources) {
			continue
		}
		into := -1
		if policy := config.Spec.PodSetMergePolicy; policy != nil {
			into = slices.IndexFunc(out, func(g group) bool { return alike(*policy, &g.first.Template, &ps.Template) })
		}
		if into < 0 {
			out = append(out, group{first: ps, assigned: assigned})
			into = len(out) - 1
		}
		out[into].members = append(out[into].members, ps.Name)
		out[into].count += count
	}
	return out
}

// usesAny reports whether pods request or limit one of the resources; an empty list is all.
func usesAny(pod *corev1.PodSpec, resources []corev1.ResourceName) bool {
	if len(resources) == 0 {
		return true
	}
	uses := func(r *corev1.ResourceRequirements) bool {
		return slices.ContainsFunc(resources, func(name corev1.ResourceName) bool {
			_, requested := r.Requests[name]
			_, limited := r.Limits[name]
			return requested || limited
		})
	}
	if pod.Resources != nil && uses(pod.Resources) {
		return true
	}
	ofContainer := func(c corev1.Container) bool { return uses(&c.Resources) }
	return slices.ContainsFunc(pod.Containers, ofContainer) || slices.ContainsFunc(pod.InitContainers, ofContainer)
}

// alike reports whether a policy merges pods of two templates.
func alike(policy kueue.ProvisioningRequestPodSetMergePolicy, a, b *corev1.PodTemplateSpec) bool {
	switch policy {
	case kueue.IdenticalPodTemplates:
		return equality.Semantic.DeepEqual(a, b)
	case kueue.IdenticalWorkloadSchedulingRequirements:
		x, y := &a.Spec, &b.Spec
		return sameRequests(x.Containers, y.Containers) && sameRequests(x.InitContainers, y.InitContainers) &&
			equality.Semantic.DeepEqual(x.Resources, y.Resources) &&
			equality.Semantic.DeepEqual(x.NodeSelector, y.NodeSelector) &&
			equality.Semantic.DeepEqual(x.Tolerations, y.Tolerations) &&
			equality.Semantic.DeepEqual(x.Affinity, y.Affinity) &&
			equality.Semantic.DeepEqual(x.ResourceClaims, y.ResourceClaims)
	}
	return false
}

// sameRequests compares the requests of containers position by position.
func sameRequests(a, b []corev1.Container) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.Container) bool {
		return equality.Semantic.DeepEqual(x.Resources.Requests, y.Resources.Requests)
	})
}
