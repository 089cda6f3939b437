package plan

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// Variables of Open MPI, in the order in which they are set. They are reserved.
var mpiReserved = []string{
	"OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots", "OMPI_MCA_plm_rsh_args",
}

// Volumes of MPI, the mount path of the hostfile, and its key in the ConfigMap.
const (
	mpiSSHVolume      = "mpi-ssh-auth"
	mpiHostfileVolume = "mpi-hostfile"
	mpiHostfileDir    = "/etc/mpi"
	mpiHostfileKey    = "hostfile"
	mpiDefaultSSHPath = "/root/.ssh"
	sshPublicKey      = "ssh-publickey"
)

func sshPath(p *trainerv1alpha1.MPIPolicy) string {
	return cmp.Or(ptr.Deref(p.SSHAuthMountPath, ""), mpiDefaultSSHPath)
}

// slots is the number of processes on a node by the TrainJob or the runtime. The runtime's 1 on nodes with several GPUs is ignored.
func (b *builder) slots(p *trainerv1alpha1.MPIPolicy) int32 {
	if t := b.TrainJob.Spec.Trainer; t != nil && t.NumProcPerNode != nil {
		return *t.NumProcPerNode
	}
	n := ptr.Deref(p.NumProcPerNode, 1)
	r := b.resources()
	if gpus := b.Config.gpus(&r); n == 1 && gpus > 1 {
		return gpus
	}
	return n
}

// applyMPI adds the keys to launcher and nodes, and the hostfile to the launcher (spec: 50 §4.6.3).
func (b *builder) applyMPI() {
	p := b.Runtime.Spec.MLPolicy.MPI
	slots := b.slots(p)
	for _, name := range []string{trainerv1alpha1.JobNode, trainerv1alpha1.JobLauncher} {
		s := b.stepNamed(name)
		if s == nil {
			continue
		}
		c := s.container(trainerv1alpha1.ContainerNode)
		setVolumes(&s.pod.Spec, b.sshVolume())
		if c != nil {
			setMounts(c, corev1.VolumeMount{Name: mpiSSHVolume, MountPath: sshPath(p)})
		}
		if name == trainerv1alpha1.JobNode {
			continue
		}
		setVolumes(&s.pod.Spec, b.hostfileVolume())
		if c != nil {
			setMounts(c, corev1.VolumeMount{Name: mpiHostfileVolume, MountPath: mpiHostfileDir})
			setEnv(&c.Env,
				corev1.EnvVar{Name: mpiReserved[0], Value: mpiHostfileDir + "/" + mpiHostfileKey},
				corev1.EnvVar{Name: mpiReserved[1], Value: "true"},
				corev1.EnvVar{Name: mpiReserved[2], Value: itoa(slots)},
				corev1.EnvVar{Name: mpiReserved[3], Value: "-o ConnectionAttempts=10"},
			)
		}
	}
	b.sshSecret()
	if !b.files {
		return
	}
	b.plan.ConfigMaps = append(b.plan.ConfigMaps, &corev1.ConfigMap{
		TypeMeta: typeMeta("ConfigMap"), ObjectMeta: b.childMeta(trainerv1alpha1.SuffixMPIHostfile), Data: map[string]string{mpiHostfileKey: b.hostfile(slots)},
	})
}

func (b *builder) sshVolume() corev1.Volume {
	return corev1.Volume{Name: mpiSSHVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: b.TrainJob.Name + trainerv1alpha1.SuffixMPISSHAuth, DefaultMode: new(int32(0o400)),
		Items: []corev1.KeyToPath{
			{Key: corev1.SSHAuthPrivateKey, Path: "id_rsa", Mode: new(int32(0o640))},
			{Key: sshPublicKey, Path: "id_rsa.pub", Mode: new(int32(0o644))},
			{Key: sshPublicKey, Path: "authorized_keys", Mode: new(int32(0o644))},
		},
	}}}
}

func (b *builder) hostfileVolume() corev1.Volume {
	return corev1.Volume{Name: mpiHostfileVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: b.TrainJob.Name + trainerv1alpha1.SuffixMPIHostfile},
		Items:                []corev1.KeyToPath{{Key: mpiHostfileKey, Path: mpiHostfileKey, Mode: new(int32(0o444))}},
	}}}
}

const hostfileSlots = " slots="

func (b *builder) inHostfile(s *step) bool {
	launches := s.job.Name == trainerv1alpha1.JobLauncher && launcherIsNode(b.Runtime.Spec.MLPolicy.MPI)
	return s.job.Name == trainerv1alpha1.JobNode || launches
}

// hostfile has a line for each node, in the order of the runtime's jobs. Its length is hostfileSize.
func (b *builder) hostfile(slots int32) string {
	var out strings.Builder
	for i := range b.steps {
		s := &b.steps[i]
		if !b.inHostfile(s) {
			continue
		}
		for host := range b.endpoints(s) {
			out.WriteString(host + hostfileSlots + itoa(slots) + "\n")
		}
	}
	return out.String()
}

func (b *builder) sshSecret() {
	if len(b.Keys.SSHPrivate) == 0 {
		return
	}
	b.plan.Secrets = append(b.plan.Secrets, &corev1.Secret{
		TypeMeta: typeMeta("Secret"), ObjectMeta: b.childMeta(trainerv1alpha1.SuffixMPISSHAuth), Type: corev1.SecretTypeSSHAuth, Immutable: new(true),
		Data: map[string][]byte{corev1.SSHAuthPrivateKey: b.Keys.SSHPrivate, sshPublicKey: b.Keys.SSHPublic},
	})
}

func typeMeta(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }
