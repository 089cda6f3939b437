package ctl

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	planjob "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/webhook"
)

// Objects whose queue label is ignored according to the policy are listed by list and explained by explain. Without the policy, as with
// another controller, no object is reported.
func TestIgnoredLabels(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server")
	}
	w := newWorld(t)
	if _, err := envtest.InstallCRDs(w.cfg, envtest.CRDInstallOptions{MaxTime: wait.Patience, Paths: []string{"../../../config/crd"}}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	pods := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{kueue.QueueNameLabel: "lq"}}
	}
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"queues": "on"}}
	policy, _ := webhook.QueueLabelPolicy(&webhook.Options{
		Descriptors: all.Descriptors(), Namespaces: selector,
		Jobs: &planjob.Config{ManagedNamespaces: labels.SelectorFromSet(selector.MatchLabels), Kinds: planjob.Kinds{batchv1.SchemeGroupVersion.WithKind("Job"): true}},
	})
	spec := pods.Spec
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "managed", Labels: selector.MatchLabels}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		&batchv1.Job{ObjectMeta: meta("managed", "queued"), Spec: batchv1.JobSpec{Template: pods}},
		&batchv1.Job{ObjectMeta: meta("other", "excluded"), Spec: batchv1.JobSpec{Template: pods}},
		&corev1.Pod{ObjectMeta: meta("managed", "unlisted"), Spec: spec},
	} {
		if err := w.c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	type output struct{ args, want, not string }
	check := func(t *testing.T, outputs ...output) {
		t.Helper()
		for _, o := range outputs {
			code, stdout, stderr := berth(ctx, "", split(o.args)...)
			if text := stdout + stderr; code != 0 || !strings.Contains(text, o.want) || o.not != "" && strings.Contains(text, o.not) {
				t.Errorf("berth %s: exit code %d, want %q and not %q in\n%s", o.args, code, o.want, o.not, text)
			}
		}
	}
	t.Run("without the policy", func(t *testing.T) {
		check(t, output{"list workloads -A", "No resources found", "ignored"}, output{"explain job excluded -n other", "is the namespace managed?", "ignored"})
	})
	if err := w.c.Create(ctx, policy); err != nil {
		t.Fatal(err)
	}
	unlisted, unmanaged := planjob.UnlistedNote("pod"), planjob.UnmanagedNote("other")
	t.Run("with it", func(t *testing.T) {
		check(t,
			output{"list workloads -n other", "job other/excluded: " + unmanaged, "managed/"},
			output{"list workloads -n managed", "pod managed/unlisted: " + unlisted, "job managed"},
			output{"list workloads -A", "pod managed/unlisted: " + unlisted, "managed/queued:"},
			output{"list workloads -A", "job other/excluded: " + unmanaged, ""},
			output{"list workloads -A --status admitted", "No resources found", "ignored"},
			output{"explain job excluded -n other", "other/excluded has no Workload: " + unmanaged, ""},
			output{"explain pod unlisted -n managed", "managed/unlisted has no Workload: " + unlisted, ""},
			output{"explain job queued -n managed", "no manager has made a Workload for it", "ignored"},
		)
	})
}
