package plan

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// Names in pods with Flux.
const (
	fluxInstaller     = "flux-installer"
	fluxInstallVolume = "flux-install"
	fluxSpackVolume   = "spack-install"
	fluxMemoryVolume  = "shared-memory"
	fluxCurveVolume   = "flux-curve"
	fluxConfigDir     = "/etc/flux-config"
	fluxMemoryDir     = "/dev/shm"
	fluxCurveKey      = "curve.cert"
)

var fluxSettings = map[string]string{
	"FLUX_VIEW_IMAGE":     "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy",
	"FLUX_NETWORK_DEVICE": "eth0",
	"FLUX_QUEUE_POLICY":   "fcfs",
}

func fluxSetting(env []corev1.EnvVar, name string) string {
	for i := range env {
		if env[i].Name == name && env[i].ValueFrom == nil {
			return env[i].Value
		}
	}
	return fluxSettings[name]
}

// applyFlux makes the pods of job node a Flux cluster whose first broker runs the command (spec: 50 §4.6.4).
func (b *builder) applyFlux() {
	b.setTrainerEnv()
	s := b.stepNamed(trainerv1alpha1.JobNode)
	if s == nil || s.container(trainerv1alpha1.ContainerNode) == nil {
		return
	}
	pod, c := &s.pod.Spec, s.container(trainerv1alpha1.ContainerNode)
	env := slices.Clone(c.Env)
	if t := b.TrainJob.Spec.Trainer; t != nil {
		setEnv(&env, t.Env...)
	}
	script := b.fluxScript(s, c, env)

	entrypoint := b.TrainJob.Name + trainerv1alpha1.SuffixFluxEntrypoint
	config := corev1.VolumeMount{Name: entrypoint, MountPath: fluxConfigDir, ReadOnly: true}
	install := corev1.VolumeMount{Name: fluxInstallVolume, MountPath: "/mnt/flux"}
	pod.InitContainers = slices.DeleteFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == fluxInstaller })
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name: fluxInstaller, Image: fluxSetting(env, "FLUX_VIEW_IMAGE"), Command: []string{"/bin/bash", fluxConfigDir + "/init.sh"},
		VolumeMounts: []corev1.VolumeMount{install, config},
	})
	setVolumes(pod, b.fluxVolumes(entrypoint)...)
	setMounts(c, install, corev1.VolumeMount{Name: fluxSpackVolume, MountPath: "/opt/software"}, config,
		corev1.VolumeMount{Name: fluxCurveVolume, MountPath: "/curve", ReadOnly: true})
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == fluxMemoryDir }) {
		setMounts(c, corev1.VolumeMount{Name: fluxMemoryVolume, MountPath: fluxMemoryDir, ReadOnly: true})
	}
	c.Command = []string{"/bin/bash", fluxConfigDir + "/entrypoint.sh", b.fluxWords(c)}
	if t := b.TrainJob.Spec.Trainer; t != nil && t.Args != nil {
		c.Args = nil
	}

	b.plan.ConfigMaps = append(b.plan.ConfigMaps, &corev1.ConfigMap{
		TypeMeta: typeMeta("ConfigMap"), ObjectMeta: b.childMeta(trainerv1alpha1.SuffixFluxEntrypoint),
		Data: map[string]string{"init.sh": script.init(), "entrypoint.sh": script.entrypoint()},
	})
	if b.Keys.CurveSecret != "" {
		b.plan.Secrets = append(b.plan.Secrets, &corev1.Secret{
			TypeMeta: typeMeta("Secret"), ObjectMeta: b.childMeta(trainerv1alpha1.SuffixFluxCurve), Type: corev1.SecretTypeOpaque, Immutable: new(true),
			Data: map[string][]byte{fluxCurveKey: []byte(curveCertificate(b.TrainJob.Name, b.Keys))},
		})
	}
}

func (b *builder) fluxWords(c *corev1.Container) string {
	words := slices.Clone(c.Command)
	if t := b.TrainJob.Spec.Trainer; t != nil {
		words = append(words, t.Args...)
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

func (b *builder) fluxVolumes(entrypoint string) []corev1.Volume {
	return []corev1.Volume{
		{Name: fluxSpackVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: fluxInstallVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: entrypoint, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: entrypoint}, DefaultMode: new(int32(0o755)),
		}}},
		{Name: fluxMemoryVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: fluxCurveVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: b.TrainJob.Name + trainerv1alpha1.SuffixFluxCurve, DefaultMode: new(int32(0o400)),
		}}},
	}
}

func curveCertificate(name string, keys Keys) string {
	return "metadata\n    name = \"" + name + "\"\ncurve\n    public-key = \"" + keys.CurvePublic + "\"\n    secret-key = \"" + keys.CurveSecret + "\"\n"
}

type fluxScript struct {
	job, namespace, subdomain, device, queuePolicy string
	nodes, procs, gpus                             int32
}

func (b *builder) fluxScript(s *step, c *corev1.Container, env []corev1.EnvVar) *fluxScript {
	procs := ptr.Deref(b.Runtime.Spec.MLPolicy.Flux.NumProcPerNode, 1)
	if t := b.TrainJob.Spec.Trainer; t != nil {
		procs = ptr.Deref(t.NumProcPerNode, procs)
	}
	return &fluxScript{
		job: b.TrainJob.Name, namespace: b.TrainJob.Namespace, subdomain: b.subdomain(), nodes: s.count, procs: max(procs, 1), gpus: b.Config.gpus(&c.Resources),
		device: fluxSetting(env, "FLUX_NETWORK_DEVICE"), queuePolicy: fluxSetting(env, "FLUX_QUEUE_POLICY"),
	}
}

// idRange is the range of numbers below n in Flux's notation.
func idRange(n int32) string {
	if n <= 1 {
		return "0"
	}
	return "0-" + itoa(n-1)
}

func (f *fluxScript) render(script string) string {
	encodeGPUs, taskGPUs := "", ""
	if f.gpus > 0 {
		encodeGPUs = " --gpu=" + idRange(f.gpus)
	}
	if perTask := f.gpus / f.procs; perTask > 0 {
		taskGPUs = " -g " + itoa(perTask)
	}
	return strings.NewReplacer(
		"@HOSTS@", f.job+"-"+trainerv1alpha1.JobNode+"-0-["+idRange(f.nodes)+"]",
		"@LEADER@", f.job+"-"+trainerv1alpha1.JobNode+"-0-0",
		"@DOMAIN@", f.subdomain+"."+f.namespace+".svc.cluster.local",
		"@DEVICE@", f.device, "@POLICY@", f.queuePolicy, "@CORES@", idRange(f.procs),
		"@NODES@", itoa(f.nodes), "@TASKS@", strconv.FormatInt(int64(f.procs)*int64(f.nodes), 10), "@ENCODE_GPUS@", encodeGPUs, "@TASK_GPUS@", taskGPUs,
	).Replace(script)
}

func (f *fluxScript) init() string       { return f.render(fluxInit) }
func (f *fluxScript) entrypoint() string { return f.render(fluxEntrypoint) }

// fluxInit writes the view of Flux and the brokers' configuration to a volume of the pod.
const fluxInit = `#!/bin/bash
set -eu
root=/mnt/flux/config
mkdir -p "$root/etc/flux/system/cron.d" "$root/var/lib/flux" "$root/etc/flux/config" "$root/run/flux" "$root/etc/curve"
echo "@HOSTS@" > "$root/etc/flux/system/hostlist"
cat > "$root/etc/flux/config/broker.toml" <<'EOF'
[access]
allow-guest-user = true
allow-root-owner = true

[resource]
path = "/mnt/flux/config/etc/flux/system/R"

[bootstrap]
curve_cert = "/mnt/flux/config/etc/curve/curve.cert"
default_port = 8050
default_bind = "tcp://@DEVICE@:%p"
default_connect = "tcp://%h.@DOMAIN@:%p"
hosts = [{host="@HOSTS@"}]

[archive]
dbpath = "/mnt/flux/config/var/lib/flux/job-archive.sqlite"
period = "1m"
busytimeout = "50s"

[sched-fluxion-qmanager]
queue-policy = "@POLICY@"
EOF
# The view is the one directory that /opt/view points to.
for view in /opt/views/._view/*/; do
  mkdir -p /mnt/flux/view
  cp -R "$view." /mnt/flux/view/
done
mkdir -p /mnt/flux/software
if [ -d /opt/software ]; then
  cp -R /opt/software/. /mnt/flux/software/
fi
`

// fluxEntrypoint starts a broker. The first one runs its arguments, which include the runtime's.
const fluxEntrypoint = `#!/bin/bash
set -u
words="$*"
root=/mnt/flux/config
cat > /mnt/flux/flux-view.sh <<'EOF'
export PATH=/mnt/flux/view/bin:$PATH
for dir in /mnt/flux/view/lib/python3*/site-packages; do
  export PYTHONPATH=$dir${PYTHONPATH:+:$PYTHONPATH}
done
export FLUX_RC_EXTRA=/mnt/flux/view/etc/flux/rc1.d
export fluxsocket=local:///mnt/flux/config/run/flux/local
EOF
. /mnt/flux/flux-view.sh
mkdir -p /opt/software
cp -R /mnt/flux/software/. /opt/software/
cp /curve/curve.cert "$root/etc/curve/curve.cert"
chmod 400 "$root/etc/curve/curve.cert"
flux R encode --hosts="@HOSTS@" --cores=@CORES@@ENCODE_GPUS@ > "$root/etc/flux/system/R"
options="-Scron.directory=$root/etc/flux/system/cron.d -Stbon.fanout=256 -Srundir=$root/run/flux -Sstatedir=$root/var/lib/flux -Slocal-uri=local://$root/run/flux/local"
if [ "$(hostname)" = "@LEADER@" ]; then
  if [ -z "$words" ]; then
    exec flux broker --config-path "$root/etc/flux/config" $options
  fi
  exec flux start -o --config "$root/etc/flux/config" $options flux run -N @NODES@ -n @TASKS@@TASK_GPUS@ $words
fi
until flux start -o --config "$root/etc/flux/config" $options; do
  sleep 15
done
`
