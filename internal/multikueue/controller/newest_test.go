package controller

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// shows is a cache that shows one Workload, nil for none.
type shows struct {
	client.Reader
	workload *kueue.Workload
}

func (s *shows) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if s.workload == nil {
		return apierrors.NewNotFound(kueue.GroupVersion.WithResource("workloads").GroupResource(), key.Name)
	}
	s.workload.DeepCopyInto(into.(*kueue.Workload))
	return nil
}

// TestNewest is that a Workload is taken as it was written as long as the cache shows an older one of that UID, and no longer.
func TestNewest(t *testing.T) {
	workload := func(uid types.UID, version, cluster string) *kueue.Workload {
		return &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: uid, ResourceVersion: version},
			Status:     kueue.WorkloadStatus{ClusterName: cluster},
		}
	}
	key := types.NamespacedName{Namespace: "ns", Name: "a"}
	shown := &shows{}
	w := &workloads{shared: &shared{cache: shown}, written: map[types.NamespacedName]*kueue.Workload{}}
	s := &sight{key: key}
	for _, step := range []struct {
		what        string
		shown       *kueue.Workload
		written     *kueue.Workload
		want        string
		remembering int
	}{
		{"nothing was written", workload("u", "9", "w0"), nil, "w0", 0},
		{"the cache is late", workload("u", "9", "w0"), workload("u", "10", "w2"), "w2", 1},
		{"still", workload("u", "9", "w0"), nil, "w2", 1},
		{"twice written", workload("u", "9", "w0"), workload("u", "11", "w3"), "w3", 1},
		{"it has the first of them", workload("u", "10", "w2"), nil, "w3", 1},
		{"it has both", workload("u", "11", "w3"), nil, "w3", 0},
		{"it has what somebody else wrote since", workload("u", "13", ""), workload("u", "12", "w4"), "", 0},
		{"another one of the name", workload("v", "8", ""), workload("u", "14", "w4"), "", 0},
		{"it is gone", nil, workload("v", "15", "w4"), "", 0},
	} {
		if step.written != nil {
			w.wrote(s, step.written)
		}
		shown.workload = step.shown
		got, err := w.newest(t.Context(), key)
		if apierrors.IsNotFound(err) != (step.shown == nil) || (err != nil && step.shown != nil) {
			t.Errorf("%s: %v", step.what, err)
		}
		if got.Status.ClusterName != step.want || len(w.written) != step.remembering {
			t.Errorf("%s: %q, %d remembered", step.what, got.Status.ClusterName, len(w.written))
		}
	}
}
