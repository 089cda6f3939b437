package plan

import (
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// reserved returns the names that the policies of the runtime use, and patches may not use (spec: 50 §3.4). A mount at /dev/shm is allowed.
func (v *validation) reserved() *patch.Reserved {
	out := &patch.Reserved{Jobs: map[string]patch.ReservedJob{}}
	if p := v.Runtime.Spec.PodGroupPolicy; p != nil {
		if p.Coscheduling != nil {
			out.Labels = append(out.Labels, coschedulingLabel)
		}
		if p.Volcano != nil {
			out.Annotations = append(out.Annotations, volcanoAnnotation)
		}
	}
	for i := range v.Runtime.Spec.Template.Spec.ReplicatedJobs {
		rj := &v.Runtime.Spec.Template.Spec.ReplicatedJobs[i]
		r := v.reservedByPolicy(rj.Name)
		if v.Config.Progress != nil && rj.Template.Labels[trainerv1alpha1.AncestorStepLabel] == trainerv1alpha1.AncestorTrainer {
			r.Volumes = append(r.Volumes, progressVolume)
			for _, c := range rj.Template.Spec.Template.Spec.Containers {
				r.Mounts[c.Name] = append(r.Mounts[c.Name], progressDir)
			}
		}
		out.Jobs[rj.Name] = r
	}
	for _, target := range envTargets(v.Runtime) {
		for _, container := range target.ContainerNames {
			if r, ok := out.Jobs[target.JobName]; ok {
				r.Env[container] = torchReserved
			}
		}
	}
	return out
}

func (v *validation) reservedByPolicy(job string) patch.ReservedJob {
	out := patch.ReservedJob{Mounts: map[string][]string{}, Env: map[string][]string{}}
	mount := func(paths ...string) {
		out.Mounts[trainerv1alpha1.ContainerNode] = append(out.Mounts[trainerv1alpha1.ContainerNode], paths...)
	}
	switch {
	case policyOf(v.Runtime) == policyMPI && (job == trainerv1alpha1.JobNode || job == trainerv1alpha1.JobLauncher):
		out.Volumes = append(out.Volumes, mpiSSHVolume, mpiHostfileVolume)
		mount(patch.Clean(sshPath(v.Runtime.Spec.MLPolicy.MPI)))
		if job == trainerv1alpha1.JobLauncher {
			mount(mpiHostfileDir)
		}
	case policyOf(v.Runtime) == policyFlux && job == trainerv1alpha1.JobNode:
		out.Volumes = append(out.Volumes, fluxInstallVolume, fluxSpackVolume, fluxMemoryVolume, fluxCurveVolume, v.New.Name+trainerv1alpha1.SuffixFluxEntrypoint)
		mount("/mnt/flux", "/opt/software", fluxConfigDir, "/curve")
	}
	return out
}
