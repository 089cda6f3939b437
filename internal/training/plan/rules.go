package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// validateFit checks that the TrainJob and its runtime fit each other (spec: 50 §3.2, rules V4 to V13).
func (v *validation) validateFit() {
	if i := v.New.Spec.Initializer; i != nil {
		v.validateInitializer(trainerv1alpha1.AncestorDatasetInitializer, i.Dataset)
		v.validateInitializer(trainerv1alpha1.AncestorModelInitializer, i.Model)
	}
	v.validateSize(v.draft)
	switch policyOf(v.Runtime) {
	case policyTorch:
		v.validateTorch()
	case policyMPI:
		v.validateMPI()
	case policyXGBoost:
		v.validateXGBoost()
	case policyJAX:
		v.warnJAX()
	case policyFlux:
		v.validateFlux()
	case policyPlain:
	}
	v.validateVolcano(v.draft)
	v.warnHostNames(v.draft)
	v.warnQueue(v.draft)
}

func (v *validation) validateSize(b *builder) {
	if err := b.tooLarge(); err != nil {
		v.refuse(err)
	} else if err := b.tooMany(); err != nil && v.Old == nil {
		v.refuse(err)
	}
}

// validateInitializer is V4. It reports the first part that the runtime lacks. A job is found by its name or its label. A cache needs no
// volume.
func (v *validation) validateInitializer(step string, wanted *trainerv1alpha1.InitializerStep) {
	if wanted == nil {
		return
	}
	say := func(format string, args ...any) {
		v.refuse(field.Invalid(runtimeRefPath, v.New.Spec.RuntimeRef.Name, fmt.Sprintf(format, args...)))
	}
	var rj *jobsetv1alpha2.ReplicatedJob
	for i := range v.Runtime.Spec.Template.Spec.ReplicatedJobs {
		candidate := &v.Runtime.Spec.Template.Spec.ReplicatedJobs[i]
		if candidate.Name == step || (rj == nil && candidate.Template.Labels[trainerv1alpha1.AncestorStepLabel] == step) {
			rj = candidate
		}
	}
	if rj == nil {
		say("the runtime has no replicated job %s, which spec.initializer configures", step)
		return
	}
	pod := &rj.Template.Spec.Template.Spec
	c := patch.ContainerNamed(pod.Containers, step)
	if c == nil && patch.ContainerNamed(pod.InitContainers, step) == nil {
		say("replicated job %s of the runtime has no container %s, which spec.initializer configures", rj.Name, step)
		return
	}
	if wanted.StorageURI != nil && strings.HasPrefix(strings.ToLower(*wanted.StorageURI), "cache://") {
		return
	}
	mounted := c != nil && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == trainerv1alpha1.InitializerVolume })
	if !mounted {
		say("container %s of replicated job %s of the runtime does not mount a volume %s", step, rj.Name, trainerv1alpha1.InitializerVolume)
	}
}

func (v *validation) reservedIn(reserved []string) []string {
	var out []string
	if t := v.New.Spec.Trainer; t != nil {
		for i := range t.Env {
			if slices.Contains(reserved, t.Env[i].Name) {
				out = append(out, t.Env[i].Name)
			}
		}
	}
	return out
}

func (v *validation) refuseReserved(reserved []string) {
	if found := v.reservedIn(reserved); len(found) > 0 {
		v.refuse(field.Invalid(trainerPath.Child("env"), sortedList(found), "is set by the runtime's ML policy; remove it"))
	}
}

// validateTorch is V6 and V12.
func (v *validation) validateTorch() {
	v.refuseReserved(torchReserved)
	for _, target := range envTargets(v.Runtime) {
		rj := patch.JobNamed(&v.Runtime.Spec.Template.Spec, target.JobName)
		for _, name := range target.ContainerNames {
			if rj == nil || (patch.ContainerNamed(rj.Template.Spec.Template.Spec.Containers, name) == nil && patch.ContainerNamed(rj.Template.Spec.Template.Spec.InitContainers, name) == nil) {
				v.refuse(field.Invalid(runtimeRefPath, v.New.Spec.RuntimeRef.Name, fmt.Sprintf("torch.envInjection of the runtime names container %s of replicated job %s, which does not exist", name, target.JobName)))
			}
		}
	}
	if isTune(v.New) {
		v.refuse(v.validateTune()...)
	}
}

// validateMPI is V7. A runtime with an unsupported implementation is refused, too.
func (v *validation) validateMPI() {
	if err := mpiSupported(v.Runtime); err != nil {
		v.refuse(field.Invalid(runtimeRefPath, v.New.Spec.RuntimeRef.Name, err.Error()))
	}
	t := v.New.Spec.Trainer
	if t == nil {
		return
	}
	v.refuseReserved(mpiReserved)
	nodes := ptr.Deref(t.NumNodes, 1)
	if nodes < 2 || !launcherIsNode(v.Runtime.Spec.MLPolicy.MPI) {
		return
	}
	for _, name := range []string{trainerv1alpha1.JobLauncher, trainerv1alpha1.JobNode} {
		if patch.JobNamed(&v.Runtime.Spec.Template.Spec, name) == nil {
			v.refuse(field.Invalid(trainerPath.Child("numNodes"), nodes, "must be 1: the runtime has no replicated job "+name))
		}
	}
}

// validateXGBoost is V8.
func (v *validation) validateXGBoost() {
	if t := v.New.Spec.Trainer; t != nil {
		for i := range t.Env {
			if slices.Contains(xgboostReserved, t.Env[i].Name) {
				v.refuse(field.Forbidden(trainerPath.Child("env").Index(i), t.Env[i].Name+" is set by the runtime's ML policy; remove it"))
			}
		}
	}
}

// warnJAX is V9: the value of the user overrides the policy's.
func (v *validation) warnJAX() {
	if found := v.reservedIn([]string{jaxProcesses, jaxProcessID, jaxCoordinator}); len(found) > 0 {
		v.warn("spec.trainer.env: %s replaces what the runtime's ML policy sets", sortedList(found))
	}
}

// validateFlux is V10.
func (v *validation) validateFlux() {
	rj := patch.JobNamed(&v.Runtime.Spec.Template.Spec, trainerv1alpha1.JobNode)
	if rj != nil && patch.ContainerNamed(rj.Template.Spec.Template.Spec.InitContainers, fluxInstaller) != nil {
		v.refuse(field.Invalid(trainerPath.Child("initContainers"), fluxInstaller, "the runtime already has an init container of that name, which Flux adds"))
	}
}

var systemClasses = []string{"system-cluster-critical", "system-node-critical"}

// PriorityClassNames returns the classes that the validation of a TrainJob of the runtime needs.
func PriorityClassNames(r *Runtime) []string {
	if r == nil || r.Spec.PodGroupPolicy == nil || r.Spec.PodGroupPolicy.Volcano == nil {
		return nil
	}
	var out []string
	for i := range r.Spec.Template.Spec.ReplicatedJobs {
		class := r.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.PriorityClassName
		if slices.Contains(systemClasses, class) {
			break
		}
		if class != "" && !slices.Contains(out, class) {
			out = append(out, class)
		}
	}
	return out
}

// validateVolcano is V11.
func (v *validation) validateVolcano(b *builder) {
	if p := v.Runtime.Spec.PodGroupPolicy; p == nil || p.Volcano == nil {
		return
	}
	if queue, ok := b.set.Annotations[volcanoQueue]; ok && queue == "" {
		v.refuse(field.Invalid(specPath.Child("annotations").Key(volcanoQueue), queue, "must name a queue of Volcano, or be left out"))
	}
	if v.PriorityClasses == nil {
		return
	}
	for _, class := range PriorityClassNames(v.Runtime) {
		if !v.PriorityClasses[class] {
			v.refuse(field.Invalid(specPath.Child("templateSpec", "priorityClassName"), class, "no such PriorityClass exists"))
		}
	}
}

// ValidateRuntime applies the rules for runtimes (spec: 50 §3.3). old is nil for a new runtime. Updates of a TrainingRuntime are not
// refused: errors become warnings.
func ValidateRuntime(r, old *Runtime) (warnings []string, errs field.ErrorList) {
	trainers, errs := validateAncestors(r)
	if p := r.Spec.MLPolicy; p != nil && p.MPI != nil && p.MPI.MPIImplementation != nil && *p.MPI.MPIImplementation != trainerv1alpha1.MPIImplementationOpenMPI {
		errs = append(errs, field.Invalid(field.NewPath("spec", "mlPolicy", "mpi", "mpiImplementation"), *p.MPI.MPIImplementation, "must be OpenMPI"))
	}
	warnings = runtimeWarnings(r, trainers)
	if w := deprecation(r); w != "" && old == nil {
		warnings = append(warnings, w)
	}
	if old != nil && r.Kind == trainerv1alpha1.KindTrainingRuntime {
		for _, err := range errs {
			warnings = append(warnings, err.Error())
		}
		return warnings, nil
	}
	return warnings, errs
}

// validateAncestors checks the jobs that TrainJobs configure, and counts those labelled trainer.
func validateAncestors(r *Runtime) (trainers int, errs field.ErrorList) {
	path := field.NewPath("spec", "template", "spec", "replicatedJobs")
	for i := range r.Spec.Template.Spec.ReplicatedJobs {
		rj := &r.Spec.Template.Spec.ReplicatedJobs[i]
		ancestor := rj.Template.Labels[trainerv1alpha1.AncestorStepLabel]
		if !isAncestor(ancestor) {
			continue
		}
		container := ancestor
		if ancestor == trainerv1alpha1.AncestorTrainer {
			container = trainerv1alpha1.ContainerNode
			trainers++
		}
		if n := replicas(rj); n != 1 {
			errs = append(errs, field.Invalid(path.Index(i).Child("replicas"), n, "must be 1 for a job with the label "+trainerv1alpha1.AncestorStepLabel+": "+ancestor))
		}
		if pod := &rj.Template.Spec.Template.Spec; patch.ContainerNamed(pod.Containers, container) == nil {
			names := make([]string, 0, len(pod.Containers))
			for j := range pod.Containers {
				names = append(names, pod.Containers[j].Name)
			}
			errs = append(errs, field.Invalid(path.Index(i).Child("template", "spec", "template", "spec", "containers"), names, "must have a container "+container+", which TrainJobs configure"))
		}
	}
	return trainers, errs
}

func runtimeWarnings(r *Runtime, trainers int) (out []string) {
	if trainers > 1 {
		out = append(out, fmt.Sprintf("spec.template.spec.replicatedJobs: %d jobs have the label %s: trainer; each will be given all nodes", trainers, trainerv1alpha1.AncestorStepLabel))
	}
	if p := r.Spec.PodGroupPolicy; p != nil && p.Coscheduling != nil && p.Volcano != nil {
		out = append(out, "spec.podGroupPolicy: coscheduling and volcano are both set; pods can be scheduled by one of them only")
	}
	if policyOf(r) == policyMPI {
		for _, name := range []string{trainerv1alpha1.JobLauncher, trainerv1alpha1.JobNode} {
			if patch.JobNamed(&r.Spec.Template.Spec, name) == nil {
				out = append(out, "spec.template.spec.replicatedJobs: the MPI policy needs a job "+name)
			}
		}
	}
	return out
}
