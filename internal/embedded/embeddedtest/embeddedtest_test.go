package embeddedtest_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

func TestConfigIsShared(t *testing.T) {
	first, second := embeddedtest.Config(t), embeddedtest.Config(t)
	if first.Host != second.Host {
		t.Errorf("two servers: %s and %s", first.Host, second.Host)
	}
	if first.QPS >= 0 {
		t.Errorf("the client is limited to %v queries a second", first.QPS)
	}
	namespaces, err := kubernetes.NewForConfigOrDie(first).CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(namespaces.Items) == 0 {
		t.Errorf("%d namespaces (error %v)", len(namespaces.Items), err)
	}
}

func TestExclusiveServersAreReused(t *testing.T) {
	var hosts []string
	for range 2 {
		t.Run("alone", func(t *testing.T) { hosts = append(hosts, embeddedtest.Exclusive(t).Host) })
	}
	if hosts[0] != hosts[1] {
		t.Errorf("a server that nobody uses is left alone: %v", hosts)
	}
	if other := embeddedtest.Config(t).Host; hosts[0] == other {
		t.Errorf("a lane is the server that all share: %s", other)
	}
	first, second := embeddedtest.Exclusive(t), embeddedtest.Exclusive(t)
	if first.Host == second.Host {
		t.Errorf("two at once share %s", first.Host)
	}
}

func TestStartIsNotShared(t *testing.T) {
	config := embeddedtest.ConfigOf(t, embeddedtest.Start(t, embeddedtest.Full))
	if config.Host == embeddedtest.Config(t).Host {
		t.Error("Start returned the shared server")
	}
	nodes, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 4 {
		t.Errorf("%d nodes (error %v), want 4", len(nodes.Items), err)
	}
}

// Tests get nodes in levels, and can make them fail and recover: a pod of a failed node stays, however it is deleted, until it recovers.
func TestTopology(t *testing.T) {
	config := embeddedtest.ConfigOf(t, embeddedtest.Start(t, embeddedtest.Topology("rack=2,host=2")))
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	pod.Spec.NodeSelector = map[string]string{"cloud.provider.com/topology-rack": "r2", corev1.LabelHostname: "r2-h01"}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the pod runs", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.Status.Phase == corev1.PodRunning {
			return err
		}
		return fmt.Errorf("phase %s", pod.Status.Phase)
	})
	embeddedtest.FailNode(t, c, "r2-h01")
	if err := c.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	// A pod of a healthy node takes some milliseconds to end.
	wait.Stays(t, time.Second, "the pod is being deleted", func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) })
	embeddedtest.RecoverNode(t, c, "r2-h01")
	wait.Until(t, "the pod is deleted", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}
