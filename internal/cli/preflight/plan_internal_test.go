package preflight

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-project/berth/internal/install/upstream"
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

// TestPlanReturnsLease: the way back deletes the Lease of Berth's leader where another controller looks for it.
func TestPlanReturnsLease(t *testing.T) {
	for setting, want := range map[string]bool{
		"": false, "namespace: kueue-system\n": true, "leaderElection: {resourceNamespace: kueue-system}\n": true, "leaderElection: {resourceNamespace: leases}\n": false,
	} {
		l := &looker{Report: &Report{}}
		l.deployments = []upstream.Deployment{{Deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "kueue-controller-manager"}}}}
		l.configuration(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "config"},
			Data:       map[string]string{"config.yaml": "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n" + setting},
		}, "config.yaml", "")
		steps := l.plan()
		found := slices.ContainsFunc(steps, func(s Step) bool {
			return s.Back && slices.Contains(s.Commands, "kubectl delete lease -n kueue-system c1f6bfd2.kueue.x-k8s.io --ignore-not-found")
		})
		if found != want || !strings.HasPrefix(steps[len(steps)-1].Text, "Start the other") {
			t.Errorf("%q: the Lease is deleted: %t, want %t:\n%+v", setting, found, want, steps)
		}
	}
}
