package plan

import (
	corev1 "k8s.io/api/core/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// Names in the pods that report progress (spec: 50 §4.8).
const (
	progressVolume       = "kubeflow-trainer-token"
	progressDir          = "/var/run/secrets/kubeflow/trainer"
	progressCAKey        = "ca.crt"
	progressTokenSeconds = 3600
)

// StatusPath returns the path for reports about a TrainJob, below the base URL of the progress server.
func StatusPath(namespace, name string) string { return "/apis/" + StatusAudience(namespace, name) }

// StatusAudience returns the audience of tokens for reports about a TrainJob.
func StatusAudience(namespace, name string) string {
	return trainerv1alpha1.GroupVersion.String() + "/namespaces/" + namespace + "/" + trainerv1alpha1.ResourceTrainJobs + "/" + name + "/status"
}

// injectProgress adds the URL, certificate authority and token of the progress server. Variables of the user override it.
func (b *builder) injectProgress() {
	if b.Config.Progress == nil {
		return
	}
	namespace, name := b.TrainJob.Namespace, b.TrainJob.Name
	tls := name + trainerv1alpha1.SuffixTLSConfig
	volume := corev1.Volume{Name: progressVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: StatusAudience(namespace, name), ExpirationSeconds: new(int64(progressTokenSeconds)), Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: tls}, Items: []corev1.KeyToPath{{Key: progressCAKey, Path: progressCAKey}},
		}},
	}}}}
	for i := range b.steps {
		s := &b.steps[i]
		if s.ancestor != trainerv1alpha1.AncestorTrainer {
			continue
		}
		setVolumes(&s.pod.Spec, *volume.DeepCopy())
		for j := range s.pod.Spec.Containers {
			c := &s.pod.Spec.Containers[j]
			setEnv(&c.Env,
				corev1.EnvVar{Name: "KUBEFLOW_TRAINER_SERVER_URL", Value: b.Config.Progress.URL + StatusPath(namespace, name)},
				corev1.EnvVar{Name: "KUBEFLOW_TRAINER_SERVER_CA_CERT", Value: progressDir + "/" + progressCAKey},
				corev1.EnvVar{Name: "KUBEFLOW_TRAINER_SERVER_TOKEN", Value: progressDir + "/token"},
			)
			setMounts(c, corev1.VolumeMount{Name: progressVolume, MountPath: progressDir, ReadOnly: true})
		}
	}
	b.plan.ConfigMaps = append(b.plan.ConfigMaps, &corev1.ConfigMap{
		TypeMeta: typeMeta("ConfigMap"), ObjectMeta: b.childMeta(trainerv1alpha1.SuffixTLSConfig), Data: map[string]string{progressCAKey: string(b.Keys.CA)},
	})
}
