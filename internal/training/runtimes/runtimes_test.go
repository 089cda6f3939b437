package runtimes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
)

// reader has a ClusterTrainingRuntime and ConfigMaps, which it counts when they are read.
type reader struct {
	client.Reader
	snapshots map[string]*corev1.ConfigMap
	reads     int
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch o := into.(type) {
	case *trainerv1alpha1.ClusterTrainingRuntime:
		o.Name = key.Name
		o.Labels = map[string]string{"is": "live"}
		return nil
	case *corev1.ConfigMap:
		r.reads++
		if s := r.snapshots[key.Name]; s != nil {
			s.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
}

// TestBegun: TrainJobs that began with the same runtime share it, and its snapshot is read once, by whichever view of the store. A snapshot that the
// status does not confirm, or that was not used for long, is read again.
func TestBegun(t *testing.T) {
	r := &reader{snapshots: map[string]*corev1.ConfigMap{}}
	now := time.Now()
	store := New(r, r)
	store.snapshots.now = func() time.Time { return now }
	began := plan.ClusterRuntime(&trainerv1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch", Labels: map[string]string{"is": "old"}}})
	newJob := func(name string) *trainerv1alpha1.TrainJob {
		job := &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "lab", UID: "u1"}}
		job.Spec.RuntimeRef.Name = "torch"
		snapshot, err := plan.Snapshot(job, began, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.snapshots[snapshot.Name] = snapshot
		job.Status.RuntimeSnapshot = &trainerv1alpha1.RuntimeSnapshotStatus{Hash: plan.SnapshotHash(snapshot)}
		return job
	}
	lark, wren := newJob("lark"), newJob("wren")
	begun := func(s *Store, job *trainerv1alpha1.TrainJob, want string, reads int) *plan.Runtime {
		t.Helper()
		got, err := s.Begun(t.Context(), job)
		if err != nil || got == nil || got.Labels["is"] != want || r.reads != reads {
			t.Fatalf("%v, %v after %d reads, want the %s one after %d", got, err, r.reads, want, reads)
		}
		return got
	}
	if store.Recorded(lark) != nil {
		t.Error("it is in memory before it was read")
	}
	first := begun(store, lark, "old", 1)
	if begun(store, lark, "old", 1) != first || begun(store.Through(nil), wren, "old", 1) != first {
		t.Error("it is not shared")
	}
	unconfirmed := lark.DeepCopy()
	unconfirmed.Status.RuntimeSnapshot.Hash = "sha256:0"
	begun(store, unconfirmed, "live", 2)
	other := lark.DeepCopy()
	other.Spec.RuntimeRef.Name = "jax"
	if store.Recorded(other) != nil {
		t.Error("a runtime is taken for one of another name")
	}
	now = now.Add(keepUnused + time.Minute)
	store.AddSnapshot("sha256:1", began)
	begun(store, lark, "old", 3)
}

// Any user can make snapshots. Beyond a sum of bytes the ones that were not used for the longest time are dropped, but none that is in use.
func TestSnapshotsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	store := New(nil, nil)
	store.snapshots.now = func() time.Time { return now }
	large := func(i int) string {
		hash := fmt.Sprint("sha256:", i)
		r := plan.ClusterRuntime(&trainerv1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: hash, Annotations: map[string]string{"a": strings.Repeat("x", 1<<20)}}})
		r.Spec.Template.Annotations = map[string]string{"a": strings.Repeat("x", 1<<20)}
		store.AddSnapshot(hash, r)
		now = now.Add(10 * time.Second)
		return hash
	}
	first := large(0)
	for i := range 200 {
		large(i + 1)
		store.Snapshot(first)
	}
	if n := len(store.snapshots.byHash); n > 2*maxBytes>>20 || store.Snapshot(first) == nil || store.Snapshot("sha256:200") == nil {
		t.Errorf("%d snapshots are kept", n)
	}
	if store.Snapshot("sha256:1") != nil {
		t.Error("the oldest one is kept")
	}
}
