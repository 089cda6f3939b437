package takeover

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// near is the name of the second worker cluster of a hub.
const near = "near"

// round is the length of a round of the dispatch: the test is shorter.
const round = time.Hour

// TestTakeoverDuringDispatch installs Berth over a hub that nominates its two worker clusters one after the other, which the other system
// still runs. Both Jobs wait on the first cluster, in their first round: that of one is over, and that of the other is not.
func TestTakeoverDuringDispatch(t *testing.T) {
	t.Parallel()
	hub, first, second := newWorld(t, "v1beta2"), newWorld(t, "v1beta2"), newWorld(t, "v1beta2")
	hub.queues(map[string]string{"remote": "8"})
	first.queues(map[string]string{"remote": "1"})
	second.queues(map[string]string{"remote": "8"})
	hub.reaches(far, first)
	hub.reaches(near, second)
	hub.sendsTo([]string{"remote"}, far, near)
	hub.began = metav1.NewTime(time.Now().Add(-2 * round).Truncate(time.Second))
	hub.waitsThere(first, "due")
	hub.began = metav1.Now().Rfc3339Copy()
	hub.waitsThere(first, "recent")
	copies := map[string]string{}
	for _, wl := range first.workloads() {
		copies[wl.Name] = wl.ResourceVersion
	}

	b := newBerth(hub, "v1beta2")
	b.options.MultiKueue.Dispatcher, b.options.MultiKueue.StepSize, b.options.MultiKueue.RoundTimeout = configv1beta2.DispatcherIncremental, 1, round
	b.takeOver()
	b.nominates("due", second, far, near)
	for _, wl := range first.workloads() {
		if wl.ResourceVersion != copies[wl.Name] {
			first.Errorf("%s was written", wl.Name)
		}
	}
	b.nominates("recent", first, far)
	if _, wl := b.read("recent"); wl.Annotations != nil {
		b.Errorf("recent has the annotations %v", wl.Annotations)
	}

	b.runsThere("due", second, near)
	wait.Until(t, "the copy on the other cluster is removed", func() error {
		if n := len(first.workloads()); n != 1 {
			return fmt.Errorf("%d copies are there", n)
		}
		return nil
	})
	if n := len(second.workloads()); n != 1 {
		second.Errorf("there are %d copies", n)
	}
	b.runsThere("recent", first, far)
}

// nominates waits until a Job has nominated clusters, in their order, and its copy on one of them.
func (b *berth) nominates(name string, on *world, clusters ...string) {
	b.Helper()
	wait.Until(b.T, name+" is nominated", func() error {
		_, wl := b.read(name)
		if got := wl.Status.NominatedClusterNames; !slices.Equal(got, clusters) {
			return fmt.Errorf("nominated are %v", got)
		}
		return on.Get(on.Context(), client.ObjectKeyFromObject(wl), &kueue.Workload{})
	})
}

// runsThere admits the copy of a Job on a cluster as the other system does, and waits until the Job is sent there.
func (b *berth) runsThere(name string, on *world, cluster string) {
	b.Helper()
	_, wl := b.read(name)
	copied := on.copied(wl)
	copied.Status.Conditions = nil
	on.setAdmitted(copied, "remote")
	on.applyStatus(byAdmission, copied)
	wait.Until(b.T, name+" is sent", func() error {
		if _, now := b.read(name); now.Status.ClusterName != cluster || now.Status.NominatedClusterNames != nil {
			return fmt.Errorf("its cluster is %q, and nominated are %v", now.Status.ClusterName, now.Status.NominatedClusterNames)
		}
		var sent batchv1.Job
		if err := on.Get(on.Context(), client.ObjectKey{Namespace: team, Name: name}, &sent); err != nil {
			return err
		}
		if sent.Annotations[kueue.PrebuiltWorkloadLabel] != wl.Name || sent.Labels[kueue.MultiKueueOriginLabel] != "multikueue" {
			return errors.New("it is no copy")
		}
		return nil
	})
	b.until(name, admitted)
}
