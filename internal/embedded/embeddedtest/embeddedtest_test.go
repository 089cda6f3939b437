package embeddedtest_test

import (
	"context"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
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
