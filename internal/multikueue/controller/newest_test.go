package controller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
)

// shows is a cache with one Workload, nil for none.
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

// TestNewest: a Workload is taken as it was written while the cache shows an older version of that UID.
func TestNewest(t *testing.T) {
	workload := func(uid types.UID, version, cluster string) *kueue.Workload {
		wl := workloadOf("u", uid)
		wl.ResourceVersion, wl.Status.ClusterName = version, cluster
		return wl
	}
	shown := &shows{}
	w := &workloads{shared: &shared{cache: shown}, written: reconcile.NewOverlay[*kueue.Workload](time.Now)}
	for _, step := range []struct {
		what           string
		shown, written *kueue.Workload
		want           string
		remembered     int
	}{
		{"nothing was written", workload("u", "9", "w0"), nil, "w0", 0},
		{"the cache is late", workload("u", "9", "w0"), workload("u", "10", "w2"), "w2", 1},
		{"still", workload("u", "9", "w0"), nil, "w2", 1},
		{"twice written", workload("u", "9", "w0"), workload("u", "11", "w3"), "w3", 1},
		{"it has the first of them", workload("u", "10", "w2"), nil, "w3", 1},
		{"it has both", workload("u", "11", "w3"), nil, "w3", 0},
		{"it has what somebody else wrote since", workload("u", "13", ""), workload("u", "12", "w4"), "", 0},
		{"another one of the name", workload("v", "8", ""), workload("u", "14", "w4"), "", 1},
		{"it is gone", nil, nil, "", 0},
	} {
		if step.written != nil {
			w.wrote(&observation{}, step.written)
		}
		if shown.workload = step.shown; step.shown == nil {
			w.ofWorkload().Delete(t.Context(), event.DeleteEvent{Object: u}, nil)
		}
		got, err := w.newest(t.Context(), client.ObjectKeyFromObject(u))
		if apierrors.IsNotFound(err) != (step.shown == nil) || (err != nil && step.shown != nil) {
			t.Errorf("%s: %v", step.what, err)
		}
		if (got != nil && got.Status.ClusterName != step.want) || w.written.Len() != step.remembered {
			t.Errorf("%s: %v, %d remembered", step.what, got, w.written.Len())
		}
	}
}

// TestConditionOfQuotas: a change of the condition causes a reconcile: the one before may have compared with an older condition.
func TestConditionOfQuotas(t *testing.T) {
	shown := &kueue.ClusterQueue{Status: kueue.ClusterQueueStatus{Conditions: []metav1.Condition{
		{Type: kueue.ClusterQueueQuotaAutomation, Status: metav1.ConditionTrue, Reason: kueue.ReasonQuotaAutomated},
	}}}
	wrote, busy := shown.DeepCopy(), shown.DeepCopy()
	wrote.Status.Conditions[0].Status, wrote.Status.Conditions[0].Reason = metav1.ConditionFalse, kueue.ReasonNotRequested
	busy.Status.PendingWorkloads = 9
	for next, want := range map[*kueue.ClusterQueue]bool{wrote: true, busy: false} {
		if got := editedOrAutomated.Update(event.UpdateEvent{ObjectOld: shown, ObjectNew: next}); got != want {
			t.Errorf("%+v: reconciled is %v", next.Status, got)
		}
	}
}
