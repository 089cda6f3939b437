package health

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
)

// tolerance is how well pods tolerate the taints of a node, the best first.
type tolerance int

const (
	tolerated   tolerance = iota
	temporarily           // with tolerationSeconds
	untolerated
)

func repels(t *corev1.Taint) bool {
	return workload.Taint{Effect: string(t.Effect)}.Repels()
}

// worstToleration returns how the pod sets on a host tolerate the taints of its node: the worst of all.
func (v *view) worstToleration(host string, n *Node) tolerance {
	worst := tolerated
	if len(n.Taints) == 0 {
		return worst
	}
	for _, a := range v.sets[host] {
		tolerations := v.tolerations(a)
		for i := range n.Taints {
			worst = max(worst, toleranceOf(&n.Taints[i], tolerations))
		}
	}
	return worst
}

func toleranceOf(t *corev1.Taint, tolerations []corev1.Toleration) tolerance {
	best := untolerated
	taint := workload.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
	for _, own := range tolerations {
		x := workload.Toleration{Key: own.Key, Operator: string(own.Operator), Value: own.Value, Effect: string(own.Effect)}
		switch {
		case !x.Tolerates(taint):
		case own.TolerationSeconds != nil && t.Effect == corev1.TaintEffectNoExecute:
			best = min(best, temporarily)
		default:
			return tolerated
		}
	}
	return best
}

// tolerations returns the tolerations of the pods of a pod set: of the template, the assigned flavors and the updates of checks.
func (v *view) tolerations(a *kueue.PodSetAssignment) []corev1.Toleration {
	out, known := v.tolerated[a.Name]
	if known {
		return out
	}
	at := slices.IndexFunc(v.Workload.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == a.Name })
	if at >= 0 {
		out = append(out, v.Workload.Spec.PodSets[at].Template.Spec.Tolerations...)
	}
	for _, name := range a.Flavors { //berth:unordered a set
		if flavor := v.Flavors[name]; flavor != nil {
			out = append(out, flavor.Spec.Tolerations...)
		}
	}
	for _, check := range v.Workload.Status.AdmissionChecks {
		for _, update := range check.PodSetUpdates {
			if update.Name == a.Name {
				out = append(out, update.Tolerations...)
			}
		}
	}
	if v.tolerated == nil {
		v.tolerated = map[kueue.PodSetReference][]corev1.Toleration{}
	}
	v.tolerated[a.Name] = out
	return out
}
