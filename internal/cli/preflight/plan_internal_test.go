package preflight

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPlanNamespace: the commands name the namespace of the Kueue document, whatever document is read first.
func TestPlanNamespace(t *testing.T) {
	l := &looker{Report: &Report{}}
	for name, text := range map[string]string{
		"jobset": "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n", "kueue": "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnamespace: queueing\n",
		"trainer": "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n",
	} {
		l.configuration(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "config"}, Data: map[string]string{"config.yaml": text}}, "config.yaml", "")
	}
	for _, step := range l.plan() {
		for _, command := range step.Commands {
			if strings.Contains(command, "deployment/kueue-controller-manager") && !strings.Contains(command, "-n queueing ") {
				t.Error(command)
			}
		}
	}
	if l.ownNamespace() != "queueing" {
		t.Errorf("the namespace is %q", l.ownNamespace())
	}
}
