package plan

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
)

const rendezvousPort = 29500

// countPods sets the number of pods of each step (spec: 50 §4.4, §4.6.3).
func (b *builder) countPods() {
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

// workers is the size of the MPI job node. A launcher that is also a training node counts as one.
func (b *builder) workers(nodes int32) int32 {
	switch {
	case !launcherIsNode(b.Runtime.Spec.MLPolicy.MPI):
		return nodes
	case b.stepNamed(trainerv1alpha1.JobLauncher) != nil:
		return max(nodes-1, 0)
	default:
		return max(nodes-1, 1)
	}
}

// nodes is the number of training pods in the environment of the pods.
func (b *builder) nodes() int32 {
	if s := b.stepOfAncestor(trainerv1alpha1.AncestorTrainer); s != nil {
		return s.count
	}
	return 1
}

// configureTrainer applies spec.trainer, except its variables (spec: 50 §4.4).
func (b *builder) configureTrainer() {
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
			c.Image = ptr.Deref(t.Image, c.Image)
			if t.Command != nil {
				c.Command = slices.Clone(t.Command)
			}
			if t.Args != nil {
				c.Args = slices.Clone(t.Args)
			}
		}
		if b.takesTrainer(s) {
			mergeResources(&c.Resources, t.ResourcesPerNode)
		}
	}
}

// takesTrainer reports whether trainer.env and trainer.resourcesPerNode apply to the step: to jobs labelled trainer, and to MPI nodes if the
// launcher is one of them.
func (b *builder) takesTrainer(s *step) bool {
	if s.ancestor == trainerv1alpha1.AncestorTrainer {
		return true
	}
	return b.policy() == policyMPI && s.job.Name == trainerv1alpha1.JobNode && launcherIsNode(b.Runtime.Spec.MLPolicy.MPI)
}

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

// setTrainerEnv sets spec.trainer.env before the variables of the ML policy.
func (b *builder) setTrainerEnv() {
	if t := b.TrainJob.Spec.Trainer; t != nil {
		for _, c := range b.trainerContainers() {
			setEnv(&c.Env, t.Env...)
		}
	}
}

// overrideEnv sets spec.trainer.env again: variables of the user override all others (spec: 50 §4.5).
func (b *builder) overrideEnv() {
	t := b.TrainJob.Spec.Trainer
	if t == nil {
		return
	}
	for i := range b.steps {
		if s := &b.steps[i]; b.takesTrainer(s) {
			if c := s.container(trainerv1alpha1.ContainerNode); c != nil {
				setEnv(&c.Env, t.Env...)
			}
		}
	}
}

// setEnv replaces variables in place and appends new ones.
func setEnv(env *[]corev1.EnvVar, vars ...corev1.EnvVar) {
	own := make([]corev1.EnvVar, len(vars))
	for i := range vars {
		own[i] = *vars[i].DeepCopy()
	}
	upsert(env, func(v *corev1.EnvVar) string { return v.Name }, own...)
}

func setVolumes(pod *corev1.PodSpec, volumes ...corev1.Volume) {
	upsert(&pod.Volumes, func(v *corev1.Volume) string { return v.Name }, volumes...)
}

func setMounts(c *corev1.Container, mounts ...corev1.VolumeMount) {
	upsert(&c.VolumeMounts, func(m *corev1.VolumeMount) string { return m.MountPath }, mounts...)
}

// upsert replaces the first element with the key of each new element, or appends it. It takes linear time: users choose the lengths.
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

// openPort adds the rendezvous port, unless a TCP port of that number exists.
func openPort(c *corev1.Container) {
	for _, p := range c.Ports {
		if p.ContainerPort == rendezvousPort && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return
		}
	}
	c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: rendezvousPort})
}

// mergeResources overlays limits and requests by name of the resource, and claims by name.
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

// resources returns the resources by which the processes of a training pod are counted (spec: 50 §4.6): from the TrainJob if it names
// CPUs or GPUs; else from the container node in the first job that is named node or labelled trainer.
func (b *builder) resources() corev1.ResourceRequirements {
	if t := b.TrainJob.Spec.Trainer; t != nil && t.ResourcesPerNode != nil && !b.Config.MergedResources && b.Config.countsProcesses(t.ResourcesPerNode) {
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

func (c *Config) countsProcesses(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list { //berth:unordered the answer is the same in any order
			if name == corev1.ResourceCPU || c.isGPU(name) {
				return true
			}
		}
	}
	return false
}

func (c *Config) isGPU(name corev1.ResourceName) bool {
	return strings.Contains(strings.ToLower(string(name)), "gpu") || slices.Contains(c.ExtraGPUs, string(name))
}

// gpus counts the GPUs of a training pod: the first GPU resource by name in the requests, or else in the limits (spec: 50 §4.6).
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
