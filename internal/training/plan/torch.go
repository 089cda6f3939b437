package plan

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
)

// Variables of PyTorch's launcher, in the order in which they are set. They are reserved.
var torchReserved = []string{"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}

type processes struct {
	auto bool
	n    int32
}

func (p processes) String() string {
	if p.auto {
		return "auto"
	}
	return itoa(p.n)
}

// torchProcesses is the number of the TrainJob, else of its GPUs, else of its CPUs, rounded up (spec: 50 §4.6).
func (b *builder) torchProcesses(gpus int32, r *corev1.ResourceRequirements) processes {
	if t := b.TrainJob.Spec.Trainer; t != nil && t.NumProcPerNode != nil {
		return processes{n: *t.NumProcPerNode}
	}
	if gpus > 0 {
		return processes{auto: true}
	}
	cpu := r.Requests[corev1.ResourceCPU]
	if cpu.IsZero() {
		cpu = r.Limits[corev1.ResourceCPU]
	}
	return processes{n: max(job.Saturate(cpu.Value()), 1)} // Value rounds up
}

// applyTorch sets the variables of the launchers and the command of torchtune (spec: 50 §4.6).
func (b *builder) applyTorch() {
	b.setTrainerEnv()
	r := b.resources()
	gpus := b.Config.gpus(&r)
	procs := b.torchProcesses(gpus, &r)
	vars := []corev1.EnvVar{
		{Name: torchReserved[0], Value: itoa(b.nodes())},
		{Name: torchReserved[1], Value: procs.String()},
		{Name: torchReserved[2], ValueFrom: index()},
		{Name: torchReserved[3], Value: b.master()},
		{Name: torchReserved[4], Value: strconv.Itoa(rendezvousPort)},
	}
	own := vars
	tunes := isTune(b.TrainJob)
	if tunes {
		own = vars[:3]
	}
	for _, c := range b.trainerContainers() {
		setEnv(&c.Env, own...)
		openPort(c)
		if tunes {
			c.Command = b.tuneCommand(tuning{nodes: b.nodes(), gpus: gpus, procs: procs, args: b.TrainJob.Spec.Trainer.Args})
		}
	}
	b.injectTorch(vars)
}

// injectTorch sets the variables of the launcher in the other containers that the runtime names.
func (b *builder) injectTorch(vars []corev1.EnvVar) {
	for _, target := range envTargets(b.Runtime) {
		s := b.stepNamed(target.JobName)
		if s == nil {
			continue
		}
		for _, list := range [][]corev1.Container{s.pod.Spec.Containers, s.pod.Spec.InitContainers} {
			for i := range list {
				if slices.Contains(target.ContainerNames, list[i].Name) {
					setEnv(&list[i].Env, vars...)
				}
			}
		}
	}
}

// envTargets are the containers, besides the trainer's, that have the variables of the launcher.
func envTargets(r *Runtime) []trainerv1alpha1.TorchEnvTarget {
	if policyOf(r) != policyTorch || r.Spec.MLPolicy.Torch.EnvInjection == nil {
		return nil
	}
	return r.Spec.MLPolicy.Torch.EnvInjection.Targets
}
