package follow

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

// finishReplaced finishes the Workload that wl replaces, once wl is admitted. It decides by the current objects, so it also works
// after a crash, and for Workloads without a job. spec: 20 §4.11.
func (f *Follower) finishReplaced(ctx context.Context, wl *kueue.Workload, now metav1.Time) error {
	name := slices.Replaces(wl)
	if name == "" {
		return nil
	}
	var old kueue.Workload
	if err := f.Client.Get(ctx, types.NamespacedName{Namespace: wl.Namespace, Name: name}, &old); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !slices.MayFinish(wl, &old) {
		return nil
	}
	note := "Replaced by workload slice " + slices.Claim(wl)
	stored, wrote, err := f.Status.Transition(ctx, &old, func(next *kueue.Workload) bool {
		return f.current.Load().Finish(next, kueue.ReasonWorkloadSliceReplaced, note, now)
	})
	if err == nil && wrote {
		f.Events.Normal(stored, kueue.ReasonWorkloadSliceReplaced, note)
	}
	return client.IgnoreNotFound(err)
}
