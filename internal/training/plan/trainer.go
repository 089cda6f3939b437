package plan

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
)

// rendezvousPort is where training pods meet.
const rendezvousPort = 29500

// counts finds out how many pods each step has (spec: 50 §4.4, §4.6.3).
func (b *builder) counts() {
	policy := b.Runtime.Spec.MLPolicy
	nodes := int32(1)
	if policy != nil && policy.NumNodes != nil {
		nodes = max(*policy.NumNodes, 1)
	}
	asked := b.TrainJob.Spec.Trainer != nil && b.TrainJob.Spec.Trainer.NumNodes != nil
	if asked {
		nodes = max(*b.TrainJob.Spec.Trainer.NumNodes, 0)
	}
	isMPI := b.policy() == policyMPI
	for i := range b.steps {
		s := &b.steps[i]
		s.count = 1
		if p := s.job.Template.Spec.Parallelism; p != nil {
			s.count = max(*p, 1)
		}
		switch {
		case isMPI && s.job.Name == trainerv1alpha1.JobNode:
			s.count = b.workers(nodes)
		case isMPI && s.job.Name == trainerv1alpha1.JobLauncher:
			s.count = 1
		case isMPI:
		case s.ancestor == trainerv1alpha1.AncestorTrainer && (policy != nil || asked):
			s.count = nodes
		}
	}
}

// workers is the size of the MPI job node. A launcher that trains too is one of the nodes, even the only one.
func (b *builder) workers(nodes int32) int32 {
	switch {
	case !launcherIsNode(b.Runtime.Spec.MLPolicy.MPI):
		return nodes
	case b.named(trainerv1alpha1.JobLauncher) != nil:
		return max(nodes-1, 0)
	default:
		return max(nodes-1, 1)
	}
}

// nodes is the number of training pods that the pods are told of.
func (b *builder) nodes() int32 {
	if s := b.ofAncestor(trainerv1alpha1.AncestorTrainer); s != nil {
		return s.count
	}
	return 1
}

// trainer lets spec.trainer configure its containers, but for the variables (spec: 50 §4.4).
func (b *builder) trainer() {
	t := b.TrainJob.Spec.Trainer
	if t == nil {
		return
	}
	for i := range b.steps {
		s := &b.steps[i]
		c := s.container(trainerv1alpha1.ContainerNode)
		if c == nil {
			continue
		}
		if s.ancestor == trainerv1alpha1.AncestorTrainer {
			if t.Image != nil {
				c.Image = *t.Image
			}
			if t.Command != nil {
				c.Command = slices.Clone(t.Command)
			}
			if t.Args != nil {
				c.Args = slices.Clone(t.Args)
			}
		}
		if b.trains(s) {
			mergeResources(&c.Resources, t.ResourcesPerNode)
		}
	}
}

// trains reports whether trainer.env and trainer.resourcesPerNode are for the step: the job labelled trainer, and the MPI
// nodes if the launcher is one of them.
func (b *builder) trains(s *step) bool {
	if s.ancestor == trainerv1alpha1.AncestorTrainer {
		return true
	}
	return b.policy() == policyMPI && s.job.Name == trainerv1alpha1.JobNode && launcherIsNode(b.Runtime.Spec.MLPolicy.MPI)
}

// trainerContainers are the containers node of the jobs labelled trainer.
func (b *builder) trainerContainers() []*corev1.Container {
	var out []*corev1.Container
	for i := range b.steps {
		if b.steps[i].ancestor == trainerv1alpha1.AncestorTrainer {
			if c := b.steps[i].container(trainerv1alpha1.ContainerNode); c != nil {
				out = append(out, c)
			}
		}
	}
	return out
}

// plainEnv gives the trainer its variables where nothing else is injected, or before it is.
func (b *builder) plainEnv() {
	if t := b.TrainJob.Spec.Trainer; t != nil {
		for _, c := range b.trainerContainers() {
			setEnv(&c.Env, t.Env...)
		}
	}
}

// lastEnv has the user's variables win over everything (spec: 50 §4.5).
func (b *builder) lastEnv() {
	t := b.TrainJob.Spec.Trainer
	if t == nil {
		return
	}
	for i := range b.steps {
		if s := &b.steps[i]; b.trains(s) {
			if c := s.container(trainerv1alpha1.ContainerNode); c != nil {
				setEnv(&c.Env, t.Env...)
			}
		}
	}
}

// setEnv replaces variables where they stand and appends new ones.
func setEnv(env *[]corev1.EnvVar, vars ...corev1.EnvVar) {
	own := make([]corev1.EnvVar, len(vars))
	for i := range vars {
		own[i] = *vars[i].DeepCopy()
	}
	upsert(env, func(v *corev1.EnvVar) string { return v.Name }, own...)
}

// setVolumes replaces volumes of the same name where they stand and appends new ones.
func setVolumes(pod *corev1.PodSpec, volumes ...corev1.Volume) {
	upsert(&pod.Volumes, func(v *corev1.Volume) string { return v.Name }, volumes...)
}

// setMounts replaces mounts at the same path where they stand and appends new ones.
func setMounts(c *corev1.Container, mounts ...corev1.VolumeMount) {
	upsert(&c.VolumeMounts, func(m *corev1.VolumeMount) string { return m.MountPath }, mounts...)
}

// upsert puts each element in the place of the first one with its key, or at the end. It takes time in proportion to both lists, as a user says
// how long they are.
func upsert[T any](list *[]T, key func(*T) string, elements ...T) {
	at := make(map[string]int, len(*list)+len(elements))
	for i := range slices.Backward(*list) {
		at[key(&(*list)[i])] = i
	}
	for i := range elements {
		k := key(&elements[i])
		if place, found := at[k]; found {
			(*list)[place] = elements[i]
			continue
		}
		at[k] = len(*list)
		*list = append(*list, elements[i])
	}
}

// openPort adds the rendezvous port. A TCP port of that number is left as it is: it serves as well, whatever its name.
func openPort(c *corev1.Container) {
	for _, p := range c.Ports {
		if p.ContainerPort == rendezvousPort && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return
		}
	}
	c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: rendezvousPort})
}

// mergeResources overlays limits and requests key by key, and claims by name.
func mergeResources(to *corev1.ResourceRequirements, from *corev1.ResourceRequirements) {
	if from == nil {
		return
	}
	overlayList := func(to *corev1.ResourceList, from corev1.ResourceList) {
		if *to == nil && from != nil {
			*to = make(corev1.ResourceList, len(from))
		}
		maps.Copy(*to, from)
	}
	overlayList(&to.Limits, from.Limits)
	overlayList(&to.Requests, from.Requests)
	upsert(&to.Claims, func(c *corev1.ResourceClaim) string { return c.Name }, from.Claims...)
}

// resources are those by which the processes of a training pod are counted (spec: 50 §4.6): the TrainJob's own if they name CPUs or
// GPUs; else those of the container node in the first job that is named node or labelled trainer, with the TrainJob's merged into them.
func (b *builder) resources() corev1.ResourceRequirements {
	if t := b.TrainJob.Spec.Trainer; t != nil && t.ResourcesPerNode != nil && !b.Config.MergedResources && b.Config.countable(t.ResourcesPerNode) {
		return *t.ResourcesPerNode
	}
	for i := range b.steps {
		s := &b.steps[i]
		if s.job.Name == trainerv1alpha1.JobNode || s.ancestor == trainerv1alpha1.AncestorTrainer {
			if c := s.container(trainerv1alpha1.ContainerNode); c != nil {
				return c.Resources
			}
			break
		}
	}
	return corev1.ResourceRequirements{}
}

// countable reports whether processes can be counted by these resources: whether they name CPUs or GPUs.
func (c *Config) countable(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list { //berth:unordered the answer is the same in any order
			if name == corev1.ResourceCPU || c.isGPU(name) {
				return true
			}
		}
	}
	return false
}

// isGPU reports whether a resource counts as a GPU.
func (c *Config) isGPU(name corev1.ResourceName) bool {
	return strings.Contains(strings.ToLower(string(name)), "gpu") || slices.Contains(c.ExtraGPUs, string(name))
}

// gpus counts the GPUs of a training pod: the first resource by name that contains "gpu", in the requests, then in the
// limits; then those of the configuration (spec: 50 §4.6).
func (c *Config) gpus(r *corev1.ResourceRequirements) int32 {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if c.isGPU(name) {
				quantity := list[name]
				return job.Saturate(quantity.Value())
			}
		}
	}
	return 0
}
