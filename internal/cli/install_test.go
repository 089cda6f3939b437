package cli

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/install"
)

// TestRefusesBesideUpstream: where another controller of the same API runs, berth install and berth manager --install fail with one line that
// has the command to stop it, and install nothing.
func TestRefusesBesideUpstream(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server")
	}
	kubeconfig := embeddedtest.Start(t)
	c, err := client.New(embeddedtest.ConfigOf(t, kubeconfig), client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	app := map[string]string{"app": "kueue"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kueue-controller-manager"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: app}
	d.Spec.Template.Labels = app
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "registry.example.com/kueue:v0.14"}}
	if err := c.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1}
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	const want = "kubectl scale -n default deployment/kueue-controller-manager --replicas=0"
	for _, args := range [][]string{{"install"}, {"manager", "--install", "--zap-log-level", "error"}} {
		code, _, stderr := berth(t, append(args, "--kubeconfig", kubeconfig)...)
		line := strings.TrimSpace(stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:])
		if code != exitFailed || !strings.HasPrefix(line, "error: ") || !strings.Contains(line, want) {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(t.Context(), &crds); err != nil || len(crds.Items) > 0 {
		t.Errorf("%d CRDs are installed: %v", len(crds.Items), err)
	}
}
