package plan

import (
	corev1 "k8s.io/api/core/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// Names of what the training code needs to report its progress (spec: 50 §4.8).
const (
	progressVolume = "kubeflow-trainer-token"
	progressDir    = "/var/run/secrets/kubeflow/trainer"
	progressCAKey  = "ca.crt"
	// progressTokenSeconds is how long a token of the progress server is valid.
	progressTokenSeconds = 3600
)

// StatusPath is where the progress of a TrainJob is reported, below the server's base URL.
func StatusPath(namespace, name string) string {
	return "/apis/" + trainerv1alpha1.GroupVersion.String() + "/namespaces/" + namespace + "/" + trainerv1alpha1.ResourceTrainJobs + "/" + name + "/status"
}

// StatusAudience is whom a token that allows to report a TrainJob's progress is for.
func StatusAudience(namespace, name string) string {
	return trainerv1alpha1.GroupVersion.String() + "/namespaces/" + namespace + "/" + trainerv1alpha1.ResourceTrainJobs + "/" + name + "/status"
}

// progress tells the training containers where and how to report. Each user variable that is still to come wins.
func (b *builder) progress() {
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
		TypeMeta: typeMeta("ConfigMap"), ObjectMeta: b.child(trainerv1alpha1.SuffixTLSConfig), Data: map[string]string{progressCAKey: string(b.Keys.CA)},
	})
}
