package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// serving makes an object of each open kind, with a label or without.
var serving = map[string]func(meta metav1.ObjectMeta) client.Object{
	"Pod": func(meta metav1.ObjectMeta) client.Object { return &corev1.Pod{ObjectMeta: meta, Spec: gpuPod()} },
	"Job": func(meta metav1.ObjectMeta) client.Object {
		j := job(meta.Namespace, meta.Name, "", 1, "3600")
		j.Labels = meta.Labels
		return j
	},
	"Deployment": func(meta metav1.ObjectMeta) client.Object {
		app := map[string]string{"app": meta.Name}
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: gpuPod()},
		}}
	},
	"StatefulSet": func(meta metav1.ObjectMeta) client.Object {
		app := map[string]string{"app": meta.Name}
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
			PodManagementPolicy: appsv1.ParallelPodManagement, // a pod that waits for quota keeps no other one back
			Replicas:            new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: gpuPod()},
		}}
	},
}

// TestManagerAway tests the table of docs/operate.md: while no manager answers, only objects with a queue stop.
func TestManagerAway(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	c := up(t)
	for _, d := range closedKinds() {
		if d.GVK.Group != jobsetGroup && d.GVK.Group != trainerGroup { // Berth installs these
			c.create(t, embeddedtest.LooseCRD(d.GVK, d.Resource))
		}
	}
	m := c.managerOfAll(t)
	c.queues(t, "pool", map[string]string{"team": "1"})
	c.queues(t, "second", map[string]string{"runs": "1"})
	meta := func(kind, name, queue string) metav1.ObjectMeta {
		out := metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("%s-%s", map[string]string{
			"Pod": "pod", "Job": "job", "Deployment": "deployment", "StatefulSet": "set",
		}[kind], name)}
		if queue != "" {
			out.Labels = map[string]string{kueue.QueueNameLabel: queue}
		}
		return out
	}
	for kind, object := range serving {
		for _, queue := range []string{"", "main"} {
			for _, name := range []string{"stays" + queue, "goes" + queue} {
				c.create(t, object(meta(kind, name, queue)))
			}
		}
	}
	stopped := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set-stays-0"}}
	wait.Until(t, "the pod of a StatefulSet is there", func() error { return c.get(t, stopped) })
	away := newAway(t, c)
	m.Kill()

	ctx := context.Background()
	away.kinds(ctx, t)
	t.Run("meanwhile", func(t *testing.T) { away.meanwhile(ctx, t) })
	touch := func(o client.Object) error {
		return c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.com/touched":"yes"}}}`)))
	}
	for kind, object := range serving {
		t.Run(kind, func(t *testing.T) {
			for what, tc := range map[string]struct {
				do      func() error
				refused bool
			}{
				"create without a queue": {do: func() error { return c.Create(ctx, object(meta(kind, "new", ""))) }},
				"change without a queue": {do: func() error { return touch(object(meta(kind, "stays", ""))) }},
				"delete without a queue": {do: func() error { return c.Delete(ctx, object(meta(kind, "goes", ""))) }},
				"create with a queue":    {refused: true, do: func() error { return c.Create(ctx, object(meta(kind, "new", "main"))) }},
				"change with a queue":    {refused: true, do: func() error { return touch(object(meta(kind, "staysmain", "main"))) }},
				"delete with a queue":    {do: func() error { return c.Delete(ctx, object(meta(kind, "goesmain", "main"))) }},
				"create in another place": {do: func() error {
					o := object(meta(kind, "other", "main"))
					o.SetNamespace("kube-system")
					return c.Create(ctx, o)
				}},
			} {
				err := tc.do()
				if refused := apierrors.IsInternalError(err); refused != tc.refused || (err != nil && !refused) {
					t.Errorf("%s: refused is %v, want %v: %v", what, refused, tc.refused, err)
				}
			}
		})
	}
	// A rebooted node: services without a queue come back.
	if err := c.Delete(ctx, stopped); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "a StatefulSet replaces its pod", func() error {
		now := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set-stays-0"}}
		if err := c.get(t, now); err != nil {
			return err
		}
		if now.UID == stopped.UID {
			return errors.New("it is the one that was deleted")
		}
		return nil
	})
}
