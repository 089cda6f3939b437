package wire

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// TestFailureRecovery: the pods of a node that dies are deleted by force with the gate, and only where they are managed. spec: 20 §4.19.
func TestFailureRecovery(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	rest := embeddedtest.ConfigOf(t, embeddedtest.Start(t, embeddedtest.Topology("host=2")))
	c, err := client.New(rest, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	start := func(gates string) (stop func()) {
		t.Helper()
		o, err := options.Parse("c.yaml", []byte("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfailureRecovery: {delay: 0s}\n"), gates)
		if err != nil {
			t.Fatal(err)
		}
		o.LeaderElection.Enabled = false
		o.Metrics.Address, o.Health.Address = "0", "0"
		groups, err := install.ParseGroups("integrations")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ready, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- Run(ctx, Config{REST: rest, Options: o, Groups: groups, Install: true, OnReady: func() { close(ready) }, Log: testr.New(t)})
		}()
		wait.Ready(t, "the manager", ready, ended)
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	pod := func(namespace string) *corev1.Pod {
		t.Helper()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "p", Annotations: map[string]string{
				kueue.SafeToForcefullyDeleteAnnotation: "true", "berth.dev/run-seconds": "3600",
			},
		}}
		p.Spec.NodeName, p.Spec.TerminationGracePeriodSeconds = "h01", new(int64(1))
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the pod runs", func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.Status.Phase == corev1.PodRunning {
				return err
			}
			return fmt.Errorf("phase %s", p.Status.Phase)
		})
		return p
	}
	managed, system := pod("default"), pod("kube-system")
	embeddedtest.FailNode(t, c, "h01")
	for _, p := range []*corev1.Pod{managed, system} {
		if err := c.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	stays := func(p *corev1.Pod) func() error {
		return func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(p), p) }
	}
	wait.Until(t, "the node is unreachable", func() error {
		var node corev1.Node
		if err := c.Get(t.Context(), client.ObjectKey{Name: "h01"}, &node); err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeUnreachable {
				return nil
			}
		}
		return fmt.Errorf("%v", node.Spec.Taints)
	})
	stop := start("")
	wait.Stays(t, 3*time.Second, "without the gate the pod stays", stays(managed))
	stop()
	stop = start("FailureRecoveryPolicy=true")
	defer stop()
	wait.Until(t, "the pod is gone", func() error {
		if err := stays(managed)(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	wait.Stays(t, 2*time.Second, "that of the system stays", stays(system))
	if system.Status.Phase != corev1.PodRunning {
		t.Errorf("it is %s", system.Status.Phase)
	}
}
