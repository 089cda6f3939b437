package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcehelper "k8s.io/component-helpers/resource"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// Kinds of pod groups.
var (
	// CoschedulingPodGroup is that of the scheduler plugins.
	CoschedulingPodGroup = schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}
	// VolcanoPodGroup is that of Volcano.
	VolcanoPodGroup = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}
)

const (
	// coschedulingLabel and volcanoAnnotation mark the pods of a group.
	coschedulingLabel = "scheduling.x-k8s.io/pod-group"
	volcanoAnnotation = "scheduling.k8s.io/group-name"
	// volcanoQueue is an annotation of the JobSet.
	volcanoQueue = "scheduling.volcano.sh/queue-name"
)

// addPodGroups adds a pod group of all pods that can run at the same time (spec: 50 §4.7).
func (b *builder) addPodGroups() {
	policy := b.Runtime.Spec.PodGroupPolicy
	if policy == nil || (policy.Coscheduling == nil && policy.Volcano == nil) {
		return
	}
	members := b.concurrentSteps()
	count := int64(0)
	total := corev1.ResourceList{}
	for _, s := range members {
		count += int64(s.count)
		addMultiple(total, podRequests(&s.pod.Spec, b.Overheads), s.count)
	}
	if policy.Coscheduling != nil {
		spec := groupSpec(count, total)
		if t := policy.Coscheduling.ScheduleTimeoutSeconds; t != nil {
			spec["scheduleTimeoutSeconds"] = int64(*t)
		}
		b.addPodGroup(CoschedulingPodGroup, spec)
		for _, s := range members {
			metav1.SetMetaDataLabel(&s.pod.ObjectMeta, coschedulingLabel, b.TrainJob.Name)
		}
	}
	if policy.Volcano != nil {
		b.addPodGroup(VolcanoPodGroup, b.volcanoSpec(policy.Volcano, groupSpec(count, total)))
		for _, s := range members {
			metav1.SetMetaDataAnnotation(&s.pod.ObjectMeta, volcanoAnnotation, b.TrainJob.Name)
		}
	}
}

func (b *builder) volcanoSpec(policy *trainerv1alpha1.VolcanoPolicy, spec map[string]any) map[string]any {
	if queue, ok := b.set.Annotations[volcanoQueue]; ok {
		spec["queue"] = queue
	}
	for i := range b.steps {
		if class := b.steps[i].pod.Spec.PriorityClassName; class != "" {
			spec["priorityClassName"] = class
		}
	}
	if n := policy.NetworkTopology; n != nil {
		topology := map[string]any{}
		if n.Mode != "" {
			topology["mode"] = string(n.Mode)
		}
		if n.HighestTierAllowed != nil {
			topology["highestTierAllowed"] = int64(*n.HighestTierAllowed)
		}
		spec["networkTopology"] = topology
	}
	return spec
}

func groupSpec(count int64, total corev1.ResourceList) map[string]any {
	resources := make(map[string]any, len(total))
	for _, name := range slices.Sorted(maps.Keys(total)) {
		quantity := total[name]
		resources[string(name)] = quantity.String()
	}
	return map[string]any{"minMember": count, "minResources": resources}
}

func (b *builder) addPodGroup(gvk schema.GroupVersionKind, spec map[string]any) {
	owner := Owner(b.TrainJob)
	group := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	group.SetGroupVersionKind(gvk)
	group.SetName(b.TrainJob.Name)
	group.SetNamespace(b.TrainJob.Namespace)
	group.SetOwnerReferences([]metav1.OwnerReference{owner})
	b.plan.PodGroups = append(b.plan.PodGroups, group)
}

// concurrentSteps are the steps whose pods can run at the same time. If steps depend on the completion of others, these are the steps of the
// dependency level with the most pods; of equal levels the last.
func (b *builder) concurrentSteps() []*step {
	level := make(map[string]int, len(b.steps))
	pods := []int64{}
	for i := range b.steps {
		s := &b.steps[i]
		l := 0
		for _, d := range s.job.DependsOn {
			of := level[d.Name]
			if d.Status == jobsetv1alpha2.DependencyComplete {
				of++
			}
			l = max(l, of)
		}
		level[s.job.Name] = l
		for len(pods) <= l {
			pods = append(pods, 0)
		}
		pods[l] += int64(s.count)
	}
	best := 0
	for l := range pods {
		if pods[l] >= pods[best] {
			best = l
		}
	}
	var out []*step
	for i := range b.steps {
		if level[b.steps[i].job.Name] == best {
			out = append(out, &b.steps[i])
		}
	}
	return out
}

// podRequests is what the scheduler reserves for a pod. Without an overhead of its own a pod has that of its RuntimeClass.
func podRequests(pod *corev1.PodSpec, overheads map[string]corev1.ResourceList) corev1.ResourceList {
	spec := *pod
	if spec.Overhead == nil && spec.RuntimeClassName != nil {
		spec.Overhead = overheads[*spec.RuntimeClassName]
	}
	return resourcehelper.PodRequests(&corev1.Pod{Spec: spec}, resourcehelper.PodResourcesOptions{})
}

func addMultiple(to, from corev1.ResourceList, n int32) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		sum, quantity := to[name], from[name].DeepCopy()
		quantity.Mul(int64(n))
		if sum.IsZero() {
			sum = resource.Quantity{Format: quantity.Format}
		}
		sum.Add(quantity)
		to[name] = sum
	}
}
