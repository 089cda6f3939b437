package follow

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

// replacedDelay is the delay of the next check of a replaced Workload without quota. Its events reconcile only itself.
const replacedDelay = 10 * time.Second

// replaced returns the Workload that wl names as the slice that it replaces, nil for none.
func (f *Follower) replaced(ctx context.Context, wl *kueue.Workload) (*kueue.Workload, error) {
	name := slices.Replaces(wl)
	if name == "" || !f.Slices {
		return nil, nil
	}
	old := &kueue.Workload{}
	if err := f.Client.Get(ctx, types.NamespacedName{Namespace: wl.Namespace, Name: name}, old); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return old, nil
}

// finishReplaced finishes old, which wl replaces, once wl is admitted. It decides by the current objects, so it also works
// after a crash, and for Workloads without a job. If the replaced Workload may still get quota, it sets the time of the next check in todo.
// spec: 20 §4.11.
func (f *Follower) finishReplaced(ctx context.Context, wl, old *kueue.Workload, todo *lifecycle.Followed, now metav1.Time) error {
	if old == nil || todo.Status {
		return nil
	}
	if next := now.Add(replacedDelay); slices.WillFinish(wl, old) && (todo.Wake.IsZero() || next.Before(todo.Wake)) {
		todo.Wake = next
	}
	if !slices.MayFinish(wl, old) {
		return nil
	}
	note := "Replaced by workload slice " + slices.Claim(wl)
	stored, wrote, err := f.Status.Transition(ctx, old, func(next *kueue.Workload) bool {
		return f.current.Load().Finish(next, kueue.ReasonWorkloadSliceReplaced, note, now)
	})
	if err == nil && wrote {
		f.Events.Normal(stored, kueue.ReasonWorkloadSliceReplaced, note)
	}
	return client.IgnoreNotFound(err)
}
