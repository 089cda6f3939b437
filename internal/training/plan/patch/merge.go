package patch

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// Merge copies the template of the runtime and merges the patches in the order of the list, with scheduling managers last (spec: 50
// §4.9). It adds no replicated job and no container: patches of others have no effect.
func Merge(template *trainerv1alpha1.JobSetTemplateSpec, patches []trainerv1alpha1.RuntimePatch, selected Selected, cfg *Config) *trainerv1alpha1.JobSetTemplateSpec {
	out := &trainerv1alpha1.JobSetTemplateSpec{}
	template.Spec.DeepCopyInto(&out.Spec)
	out.Labels = maps.Clone(template.Labels)
	out.Annotations = maps.Clone(template.Annotations)
	for _, p := range inOrder(Expand(patches, selected, template), cfg) {
		t := templateOf(p)
		if t == nil {
			continue
		}
		mergeMeta(&out.ObjectMeta, t.Metadata)
		if t.Spec == nil {
			continue
		}
		for i := range t.Spec.ReplicatedJobs {
			mergeJob(&out.Spec, &t.Spec.ReplicatedJobs[i], cfg.schedules(p.Manager))
		}
	}
	return out
}

// inOrder returns the entries with scheduling managers last.
func inOrder(patches []trainerv1alpha1.RuntimePatch, cfg *Config) []*trainerv1alpha1.RuntimePatch {
	out := make([]*trainerv1alpha1.RuntimePatch, 0, len(patches))
	for _, last := range []bool{false, true} {
		for i := range patches {
			if cfg.schedules(patches[i].Manager) == last {
				out = append(out, &patches[i])
			}
		}
	}
	return out
}

func templateOf(p *trainerv1alpha1.RuntimePatch) *trainerv1alpha1.JobSetTemplatePatch {
	if p.TrainingRuntimeSpec == nil {
		return nil
	}
	return p.TrainingRuntimeSpec.Template
}

// JobNamed returns a replicated job, or nil.
func JobNamed(spec *jobsetv1alpha2.JobSetSpec, name string) *jobsetv1alpha2.ReplicatedJob {
	for i := range spec.ReplicatedJobs {
		if spec.ReplicatedJobs[i].Name == name {
			return &spec.ReplicatedJobs[i]
		}
	}
	return nil
}

func mergeJob(spec *jobsetv1alpha2.JobSetSpec, p *trainerv1alpha1.ReplicatedJobPatch, schedules bool) {
	rj := JobNamed(spec, p.Name)
	if rj == nil || p.Template == nil {
		return
	}
	mergeMeta(&rj.Template.ObjectMeta, p.Template.Metadata)
	if p.Template.Spec == nil || p.Template.Spec.Template == nil {
		return
	}
	pod := &rj.Template.Spec.Template
	mergeMeta(&pod.ObjectMeta, p.Template.Spec.Template.Metadata)
	if s := p.Template.Spec.Template.Spec; s != nil {
		mergePod(&pod.Spec, s, schedules)
	}
}

func mergeMeta(to *metav1.ObjectMeta, from *metav1.ObjectMeta) {
	if from == nil {
		return
	}
	podset.Merge(&to.Labels, from.Labels)
	podset.Merge(&to.Annotations, from.Annotations)
}

func mergePod(pod *corev1.PodSpec, original *trainerv1alpha1.PodSpecPatch, schedules bool) {
	p := original.DeepCopy() // the parts of which become parts of the pod
	pod.ServiceAccountName = ptr.Deref(p.ServiceAccountName, pod.ServiceAccountName)
	if p.TerminationGracePeriodSeconds != nil {
		pod.TerminationGracePeriodSeconds = p.TerminationGracePeriodSeconds
	}
	pod.Volumes = mergeList(pod.Volumes, p.Volumes, func(v *corev1.Volume) string { return v.Name }, mergeVolume)
	pod.ImagePullSecrets = mergeList(pod.ImagePullSecrets, p.ImagePullSecrets, func(r *corev1.LocalObjectReference) string { return r.Name }, second)
	pod.SchedulingGates = mergeList(pod.SchedulingGates, p.SchedulingGates, func(g *corev1.PodSchedulingGate) string { return g.Name }, second)
	mergeContainers(pod.InitContainers, p.InitContainers)
	mergeContainers(pod.Containers, p.Containers)
	pod.SecurityContext = overlay(pod.SecurityContext, p.SecurityContext)
	pod.Affinity = overlay(pod.Affinity, p.Affinity)
	podset.Merge(&pod.NodeSelector, p.NodeSelector)
	switch {
	case len(p.Tolerations) == 0:
	case schedules:
		pod.Tolerations = appendTolerations(pod.Tolerations, p.Tolerations)
	default:
		pod.Tolerations = p.Tolerations
	}
}

func second[T any](_, b T) T { return b }

// mergeContainers merges into existing containers, in their order.
func mergeContainers(containers []corev1.Container, patches []trainerv1alpha1.ContainerPatch) {
	for i := range patches {
		p := &patches[i]
		c := ContainerNamed(containers, p.Name)
		if c == nil {
			continue
		}
		c.Env = mergeList(c.Env, p.Env, func(v *corev1.EnvVar) string { return v.Name }, mergeVariable)
		c.VolumeMounts = mergeList(c.VolumeMounts, p.VolumeMounts, func(m *corev1.VolumeMount) string { return m.MountPath }, overlayValue)
		c.SecurityContext = overlay(c.SecurityContext, p.SecurityContext)
	}
}

// mergeVolume merges volumes with the same kind of source, and otherwise replaces the volume (spec: 50 §4.9).
func mergeVolume(base, patch corev1.Volume) corev1.Volume {
	if len(members(&patch.VolumeSource)) == 0 {
		return base
	}
	if !slices.Equal(members(&base.VolumeSource), members(&patch.VolumeSource)) {
		return patch
	}
	return overlayValue(base, patch)
}

// mergeVariable merges variables with the same kind of source, and otherwise replaces the variable.
func mergeVariable(base, patch corev1.EnvVar) corev1.EnvVar {
	if base.ValueFrom == nil || patch.ValueFrom == nil || !slices.Equal(members(base.ValueFrom), members(patch.ValueFrom)) {
		return patch
	}
	return overlayValue(base, patch)
}

func members(union any) []string {
	set, err := runtime.DefaultUnstructuredConverter.ToUnstructured(union)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(set))
}

func appendTolerations(base, more []corev1.Toleration) []corev1.Toleration {
	for i := range more {
		if !slices.ContainsFunc(base, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, more[i]) }) {
			base = append(base, more[i])
		}
	}
	return base
}

// mergeList merges one entry into a keyed list. Elements of both are merged. New elements have the positions that strategic merge patches
// give them: as early as the order of the patch allows (spec: 50 §4.9).
func mergeList[T any](base, patch []T, key func(*T) string, merge func(base, patch T) T) []T {
	if len(patch) == 0 {
		return base
	}
	place := make(map[string]int, len(base)) // of the first element with that key
	for i := len(base) - 1; i >= 0; i-- {
		place[key(&base[i])] = i
	}
	type element struct {
		value T
		place int // in base, -1 if new
	}
	var named []element
	at := make(map[string]int, len(patch)) // in named
	taken := make([]bool, len(base))
	for i := range patch {
		k := key(&patch[i])
		if j, ok := at[k]; ok { // twice in one entry: the later one counts
			named[j].value = merge(named[j].value, patch[i])
			continue
		}
		e := element{patch[i], -1}
		if p, ok := place[k]; ok {
			e, taken[p] = element{merge(base[p], patch[i]), p}, true
		}
		at[k] = len(named)
		named = append(named, e)
	}
	out := make([]T, 0, len(base)+len(patch))
	rest := 0
	skip := func() {
		for rest < len(base) && taken[rest] {
			rest++
		}
	}
	for _, e := range named {
		for skip(); e.place >= 0 && rest < e.place; skip() {
			out = append(out, base[rest])
			rest++
		}
		out = append(out, e.value)
	}
	for skip(); rest < len(base); skip() {
		out = append(out, base[rest])
		rest++
	}
	return out
}

// ContainerNamed returns a container of the list, or nil.
func ContainerNamed(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
