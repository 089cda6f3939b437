package patch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// validatePatches checks the content of patches (spec: 50 §3.4, §4.13). Unchanged entries are not checked again, so that old objects can be
// stopped and started.
func (v *checker) validatePatches() {
	var before []trainerv1alpha1.RuntimePatch
	if v.Old != nil {
		before = v.Old.Spec.RuntimePatches
	}
	changed := func(p *trainerv1alpha1.RuntimePatch) bool {
		old := patchOf(before, p.Manager)
		return old == nil || !sameContent(p, old, v.Selected[p.Manager], v.OldSelected[p.Manager])
	}
	patches := v.New.Spec.RuntimePatches
	if v.Runtime != nil {
		patches = Expand(patches, v.Selected, v.Runtime)
	}
	merged := v.Merged
	for i := range patches {
		p := &v.New.Spec.RuntimePatches[i]
		if !changed(p) {
			continue
		}
		at := listPath.Index(i)
		v.refuse(DeniedContent, validation.IsDomainPrefixedPath(at.Child("manager"), p.Manager)...)
		v.refuse(DeniedContent, validateSelected(v.Selected[p.Manager], v.Runtime, v.Config, at.Child("trainingRuntimeSpec", "template", "spec", "selectedReplicatedJobs"))...)
		v.validateMeta(p, at)
		if v.Runtime == nil {
			continue
		}
		if v.Config.StrictTargets {
			v.refuse(DeniedContent, targetsOf(v.Runtime, &patches[i], at)...)
		}
		if merged == nil {
			merged = Merge(v.Runtime, v.New.Spec.RuntimePatches, v.Selected, v.Config)
		}
		v.validateShapes(&patches[i], at, merged)
	}
	v.validateConflicts(patches, changed)
}

// MissingTargets returns errors for the replicated jobs and containers that patches name and the runtime does not have.
func MissingTargets(runtime *trainerv1alpha1.JobSetTemplateSpec, patches []trainerv1alpha1.RuntimePatch) (errs field.ErrorList) {
	for i := range patches {
		errs = append(errs, targetsOf(runtime, &patches[i], listPath.Index(i))...)
	}
	return errs
}

func jobPath(entry *field.Path, name string) *field.Path {
	return entry.Child("trainingRuntimeSpec", "template", "spec", "replicatedJobs").Key(name)
}

func podPath(job *field.Path) *field.Path {
	return job.Child("template", "spec", "template", "spec")
}

func eachJob(p *trainerv1alpha1.RuntimePatch, f func(*trainerv1alpha1.ReplicatedJobPatch)) {
	if t := templateOf(p); t != nil && t.Spec != nil {
		for i := range t.Spec.ReplicatedJobs {
			f(&t.Spec.ReplicatedJobs[i])
		}
	}
}

func podSpecOf(p *trainerv1alpha1.ReplicatedJobPatch) *trainerv1alpha1.PodSpecPatch {
	if p.Template == nil || p.Template.Spec == nil || p.Template.Spec.Template == nil {
		return nil
	}
	return p.Template.Spec.Template.Spec
}

func targetsOf(runtime *trainerv1alpha1.JobSetTemplateSpec, p *trainerv1alpha1.RuntimePatch, at *field.Path) (errs field.ErrorList) {
	eachJob(p, func(j *trainerv1alpha1.ReplicatedJobPatch) {
		rj := JobNamed(&runtime.Spec, j.Name)
		path := jobPath(at, j.Name)
		if rj == nil {
			errs = append(errs, field.Invalid(path, j.Name, "the runtime has no replicated job of that name"))
			return
		}
		s := podSpecOf(j)
		if s == nil {
			return
		}
		pod := &rj.Template.Spec.Template.Spec
		for i := range s.InitContainers {
			if name := s.InitContainers[i].Name; ContainerNamed(pod.InitContainers, name) == nil {
				errs = append(errs, field.Invalid(podPath(path).Child("initContainers").Key(name), name, "the runtime has no init container of that name in replicated job "+j.Name))
			}
		}
		for i := range s.Containers {
			if name := s.Containers[i].Name; ContainerNamed(pod.Containers, name) == nil {
				errs = append(errs, field.Invalid(podPath(path).Child("containers").Key(name), name, "the runtime has no container of that name in replicated job "+j.Name))
			}
		}
	})
	return errs
}

type metaPlace struct {
	job   string // "" for the JobSet
	isPod bool
}

func (m metaPlace) path(entry *field.Path) *field.Path {
	switch {
	case m.job == "":
		return entry.Child("trainingRuntimeSpec", "template", "metadata")
	case m.isPod:
		return jobPath(entry, m.job).Child("template", "spec", "template", "metadata")
	default:
		return jobPath(entry, m.job).Child("template", "metadata")
	}
}

func eachMeta(p *trainerv1alpha1.RuntimePatch, f func(metaPlace, *metav1.ObjectMeta)) {
	if t := templateOf(p); t != nil && t.Metadata != nil {
		f(metaPlace{}, t.Metadata)
	}
	eachJob(p, func(j *trainerv1alpha1.ReplicatedJobPatch) {
		if j.Template == nil {
			return
		}
		if j.Template.Metadata != nil {
			f(metaPlace{job: j.Name}, j.Template.Metadata)
		}
		if s := j.Template.Spec; s != nil && s.Template != nil && s.Template.Metadata != nil {
			f(metaPlace{job: j.Name, isPod: true}, s.Template.Metadata)
		}
	})
}

func otherMeta(m *metav1.ObjectMeta) []string {
	var out []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"name", m.Name != ""},
		{"generateName", m.GenerateName != ""},
		{"namespace", m.Namespace != ""},
		{"selfLink", m.SelfLink != ""}, //nolint:staticcheck // deprecated, and always empty
		{"uid", m.UID != ""},
		{"resourceVersion", m.ResourceVersion != ""},
		{"generation", m.Generation != 0},
		{"creationTimestamp", !m.CreationTimestamp.IsZero()},
		{"deletionTimestamp", m.DeletionTimestamp != nil},
		{"deletionGracePeriodSeconds", m.DeletionGracePeriodSeconds != nil},
		{"ownerReferences", len(m.OwnerReferences) > 0},
		{"finalizers", len(m.Finalizers) > 0},
		{"managedFields", len(m.ManagedFields) > 0},
	} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// validateMeta checks metadata at all three levels (spec: 50 §4.13.3).
func (v *checker) validateMeta(p *trainerv1alpha1.RuntimePatch, entry *field.Path) {
	eachMeta(p, func(place metaPlace, m *metav1.ObjectMeta) {
		path := place.path(entry)
		v.refuseDirectives(m.Labels, path.Child("labels"))
		v.refuseDirectives(m.Annotations, path.Child("annotations"))
		if !v.Config.RestrictMetadata {
			return
		}
		for _, name := range otherMeta(m) {
			v.refuse(DeniedContent, field.Invalid(path.Child(name), name, "only labels and annotations may be patched"))
		}
		v.refuse(DeniedContent, metav1validation.ValidateLabels(m.Labels, path.Child("labels"))...)
		v.refuse(DeniedContent, apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations"))...)
		v.refuseKeys(m.Labels, path.Child("labels"), true)
		v.refuseKeys(m.Annotations, path.Child("annotations"), false)
	})
}

// refuseDirectives refuses keys that strategic merge patches interpret as directives.
func (v *checker) refuseDirectives(m map[string]string, path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(key, "$") {
			v.refuse(DeniedContent, field.Invalid(path.Key(key), key, "must not begin with $"))
		}
	}
}

// refuseKeys refuses keys by which jobs are built and found.
func (v *checker) refuseKeys(m map[string]string, path *field.Path, labels bool) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if reason := v.reservedKey(key, labels); reason != "" {
			v.refuse(DeniedContent, field.Forbidden(path.Key(key), reason))
		}
	}
}

func (v *checker) reservedKey(key string, isLabel bool) string {
	switch {
	case key == trainerv1alpha1.AncestorStepLabel:
		return "says which part of the TrainJob configures a job, and belongs to the runtime"
	case isLabel && (strings.HasPrefix(key, "jobset.sigs.k8s.io/") || strings.HasPrefix(key, "batch.kubernetes.io/") || key == "controller-uid" || key == "job-name"):
		return "is set by Kubernetes"
	case isLabel && slices.Contains(v.Reserved.Labels, key), !isLabel && slices.Contains(v.Reserved.Annotations, key):
		return "is set by the runtime's pod group policy"
	}
	return ""
}

// validateShapes checks the parts of pods that an entry sets by the rules of Kubernetes, and not the rest of the runtime.
func (v *checker) validateShapes(p *trainerv1alpha1.RuntimePatch, entry *field.Path, merged *trainerv1alpha1.JobSetTemplateSpec) {
	eachJob(p, func(j *trainerv1alpha1.ReplicatedJobPatch) {
		s, rj := podSpecOf(j), JobNamed(&merged.Spec, j.Name)
		if s == nil || rj == nil {
			return
		}
		path := podPath(jobPath(entry, j.Name))
		check := podCheck{v: v, reserved: v.Reserved.Jobs[j.Name], pod: &rj.Template.Spec.Template.Spec, volumes: map[string]bool{}}
		check.collectVolumes(merged)
		check.podSpec(s, path)
	})
}

type podCheck struct {
	v        *checker
	reserved ReservedJob
	pod      *corev1.PodSpec // merged
	volumes  map[string]bool // that can be mounted
}

func (c *podCheck) collectVolumes(merged *trainerv1alpha1.JobSetTemplateSpec) {
	for i := range c.pod.Volumes {
		c.volumes[c.pod.Volumes[i].Name] = true
	}
	for _, claims := range merged.Spec.VolumeClaimPolicies {
		for i := range claims.Templates {
			c.volumes[claims.Templates[i].Name] = true
		}
	}
}

func (c *podCheck) podSpec(s *trainerv1alpha1.PodSpecPatch, path *field.Path) {
	v := c.v
	if s.ServiceAccountName != nil {
		for _, text := range apivalidation.ValidateServiceAccountName(*s.ServiceAccountName, false) {
			v.refuse(DeniedContent, field.Invalid(path.Child("serviceAccountName"), *s.ServiceAccountName, text))
		}
	}
	if g := s.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		v.refuse(DeniedContent, field.Invalid(path.Child("terminationGracePeriodSeconds"), *g, "must be 0 or more"))
	}
	v.refuseDirectives(s.NodeSelector, path.Child("nodeSelector"))
	v.refuse(DeniedContent, metav1validation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	for i := range s.Volumes {
		c.volume(&s.Volumes[i], path.Child("volumes").Index(i))
	}
	for i := range s.ImagePullSecrets {
		if s.ImagePullSecrets[i].Name == "" {
			v.refuse(DeniedContent, field.Required(path.Child("imagePullSecrets").Index(i).Child("name"), "must name a Secret"))
		}
	}
	for i := range s.Tolerations {
		v.refuse(DeniedContent, validateToleration(&s.Tolerations[i], path.Child("tolerations").Index(i))...)
	}
	for i := range s.SchedulingGates {
		for _, text := range validation.IsQualifiedName(s.SchedulingGates[i].Name) {
			v.refuse(DeniedContent, field.Invalid(path.Child("schedulingGates").Index(i).Child("name"), s.SchedulingGates[i].Name, text))
		}
	}
	c.containers(s.InitContainers, path.Child("initContainers"), true)
	c.containers(s.Containers, path.Child("containers"), false)
}

func (c *podCheck) containers(list []trainerv1alpha1.ContainerPatch, path *field.Path, init bool) {
	for i := range list {
		p, at := &list[i], path.Key(list[i].Name)
		if len(p.Env) > 0 && (p.Name == trainerv1alpha1.ContainerNode || p.Name == trainerv1alpha1.AncestorDatasetInitializer || p.Name == trainerv1alpha1.AncestorModelInitializer) {
			c.v.refuse(DeniedContent, field.Forbidden(at.Child("env"), fmt.Sprintf("variables of container %s are set by spec.trainer and spec.initializer; use those", p.Name)))
		}
		for k := range p.Env {
			c.v.refuse(DeniedContent, validateVariable(&p.Env[k], at.Child("env").Index(k))...)
			if slices.Contains(c.reserved.Env[p.Name], p.Env[k].Name) {
				c.v.refuse(DeniedContent, field.Forbidden(at.Child("env").Index(k), p.Env[k].Name+" is set by the runtime's ML policy"))
			}
		}
		seen := map[string]bool{}
		for k := range p.VolumeMounts {
			c.mount(&p.VolumeMounts[k], at.Child("volumeMounts").Index(k), p.Name, seen, init)
		}
	}
}
