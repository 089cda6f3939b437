package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestReload changes the configuration file of a running manager: Workloads that were finished long before are deleted, so are
// Jobs whose Workload it deactivated, and the process is still the same.
func TestReload(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	c := up(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(body string) {
		t.Helper()
		text := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n" + body
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	m := c.manager(t, "--config", file)
	c.queues(t, "reload", map[string]string{"red": "4"})
	j := job("red", "short", "main", 1, "0.1")
	c.create(t, j)
	wait.Until(t, "the Job completes", c.completed(t, j))
	wait.Until(t, "its Workload is finished", func() error { return c.finished(t, j, kueue.ReasonSucceeded) })
	write("objectRetentionPolicies: {workloads: {afterFinished: 1s}}\n")
	wait.Until(t, "the Workload is deleted", func() error {
		var list kueue.WorkloadList
		if err := c.List(context.Background(), &list, client.InNamespace("red")); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("there are %d Workloads", len(list.Items))
		}
		return nil
	})
	long := job("red", "long", "main", 1, "600")
	long.Labels[kueue.MaxExecTimeSecondsLabel] = "1"
	c.create(t, long)
	wait.Until(t, "the Workload of the Job that takes too long is deactivated", func() error {
		var list kueue.WorkloadList
		if err := c.List(context.Background(), &list, client.InNamespace("red")); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Spec.Active == nil || *list.Items[0].Spec.Active {
			return fmt.Errorf("Workloads: %+v", list.Items)
		}
		return c.Get(context.Background(), client.ObjectKeyFromObject(long), long) // and the Job is there
	})
	write("objectRetentionPolicies: {workloads: {afterFinished: 1s, afterDeactivatedByKueue: 1s}}\n")
	wait.Until(t, "the Job is deleted", func() error {
		err := c.Get(context.Background(), client.ObjectKeyFromObject(long), long)
		if err == nil {
			return fmt.Errorf("it is there: %+v", long.ObjectMeta)
		}
		return client.IgnoreNotFound(err)
	})
	if err := m.Ready(); err != nil {
		t.Error(err)
	}
}
