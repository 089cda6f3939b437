package job

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job/podset"
	"github.com/berth-project/berth/internal/plan/lifecycle"
)

// normalise collapses environment variables that are given twice, as the kubelet does: the last value wins, in the place
// of the first. It fills in what the schema of Workloads fills in, so that a job of a kind whose own schema does not is
// still the same as its Workload.
func normalise(podSets []kueue.PodSet) {
	for i := range podSets {
		spec := &podSets[i].Template.Spec
		for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for j := range containers {
				containers[j].Env = lastOfEach(containers[j].Env)
				fillIn(&containers[j])
			}
		}
	}
}

func fillIn(c *corev1.Container) {
	for i := range c.Ports {
		if c.Ports[i].Protocol == "" {
			c.Ports[i].Protocol = corev1.ProtocolTCP
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil && from.FileKeyRef.Optional == nil {
			from.FileKeyRef.Optional = new(false)
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil && probe.GRPC != nil && probe.GRPC.Service == nil {
			probe.GRPC.Service = new("")
		}
	}
}

func lastOfEach(env []corev1.EnvVar) []corev1.EnvVar {
	at := make(map[string]int, len(env))
	var out []corev1.EnvVar
	for _, e := range env {
		if i, ok := at[e.Name]; ok {
			out[i] = e
			continue
		}
		at[e.Name] = len(out)
		out = append(out, e)
	}
	return out
}

// equivalent says whether the Workload still describes the job, whose pod sets are given. While quota is reserved the job
// may carry what the admission added. strict also compares what only matters before a start; it is for a job that waits
// with a Workload of its own (spec: 30 §4.4.4).
func (c *Config) equivalent(job Object, podSets []kueue.PodSet, suspended, prebuilt bool, w *kueue.Workload, flavors Flavors) bool {
	owner := metav1.GetControllerOf(w)
	if owner == nil || owner.Name != job.GetName() || (c.FinishOrphans && owner.UID != job.GetUID()) {
		return false
	}
	if !equality.Semantic.DeepEqual(maximumExecutionTime(job), w.Spec.MaximumExecutionTimeSeconds) {
		return false
	}
	reserved := lifecycle.IsReserved(w)
	if reserved {
		if merged, err := c.withAdmission(w, flavors); err == nil {
			return samePodSets(podSets, merged, lifecycle.IsAdmitted(w), false) ||
				(suspended && samePodSets(podSets, w.Spec.PodSets, lifecycle.IsAdmitted(w), false))
		}
	}
	return samePodSets(podSets, w.Spec.PodSets, lifecycle.IsAdmitted(w), suspended && !reserved && !prebuilt)
}

// withAdmission are the pod sets of the Workload as a job carries them once it is started.
func (c *Config) withAdmission(w *kueue.Workload, flavors Flavors) ([]kueue.PodSet, error) {
	infos, err := InfosFromAdmission(c, w, flavors)
	if err != nil {
		return nil, err
	}
	out := make([]kueue.PodSet, len(w.Spec.PodSets))
	for i := range out {
		w.Spec.PodSets[i].DeepCopyInto(&out[i])
		at := slices.IndexFunc(infos, func(info PodSetInfo) bool { return info.Name == out[i].Name })
		if at < 0 {
			return nil, podset.Permanent("pod set %s is not in the admission", out[i].Name)
		}
		if err := infos[at].MergeInto(&out[i].Template); err != nil {
			return nil, err
		}
		if c.PartialAdmission && out[i].MinCount != nil {
			out[i].Count = infos[at].Count
		}
	}
	return out, nil
}

// samePodSets compares pod sets one by one, quantities by value and nil like empty.
func samePodSets(a, b []kueue.PodSet, ignoreTolerations, strict bool) bool {
	return slices.EqualFunc(a, b, func(x, y kueue.PodSet) bool {
		p, q := &x.Template.Spec, &y.Template.Spec
		return x.Count == y.Count && same(x.MinCount, y.MinCount) &&
			same(p.InitContainers, q.InitContainers) && same(p.Containers, q.Containers) &&
			(ignoreTolerations || same(p.Tolerations, q.Tolerations)) &&
			(!strict || sameBeforeStart(&x, &y))
	})
}

// sameBeforeStart compares what decides where pods may go and what they ask for, beyond their containers.
func sameBeforeStart(x, y *kueue.PodSet) bool {
	p, q := &x.Template.Spec, &y.Template.Spec
	return x.Name == y.Name && same(x.TopologyRequest, y.TopologyRequest) &&
		same(p.NodeSelector, q.NodeSelector) && same(p.Affinity, q.Affinity) &&
		p.PriorityClassName == q.PriorityClassName && same(p.RuntimeClassName, q.RuntimeClassName) &&
		same(p.ResourceClaims, q.ResourceClaims) && same(p.Overhead, q.Overhead) && same(p.Resources, q.Resources)
}

func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
