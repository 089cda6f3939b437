package plan

import (
	corev1 "k8s.io/api/core/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

const storageURI = "STORAGE_URI"

// configureInitializers applies spec.initializer to the steps for the dataset and the model (spec: 50 §4.4).
func (b *builder) configureInitializers() {
	i := b.TrainJob.Spec.Initializer
	if i == nil {
		return
	}
	b.configureInitializer(trainerv1alpha1.AncestorDatasetInitializer, i.Dataset)
	b.configureInitializer(trainerv1alpha1.AncestorModelInitializer, i.Model)
}

func (b *builder) configureInitializer(ancestor string, wanted *trainerv1alpha1.InitializerStep) {
	if wanted == nil {
		return
	}
	for i := range b.steps {
		if b.steps[i].ancestor != ancestor {
			continue
		}
		c := b.steps[i].container(ancestor)
		if c == nil {
			continue
		}
		if wanted.StorageURI != nil {
			setEnv(&c.Env, corev1.EnvVar{Name: storageURI, Value: *wanted.StorageURI})
		}
		setEnv(&c.Env, wanted.Env...)
		if wanted.SecretRef != nil {
			c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *wanted.SecretRef}})
		}
	}
}
