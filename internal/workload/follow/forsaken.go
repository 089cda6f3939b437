package follow

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// forsakenAfter is how long the controller of a kind has to release a deleted Workload of one of its jobs.
const forsakenAfter = time.Minute

// forsaken releases a deleted Workload whose owners are gone, if the controller of their kind has not: it does not run, because the kind was
// removed from the cluster, or from the configuration. The finalizer would keep the quota for ever.
func (f *Follower) forsaken(ctx context.Context, wl *kueue.Workload, todo *lifecycle.Followed, now metav1.Time) error {
	if wl.DeletionTimestamp == nil || len(wl.OwnerReferences) == 0 || !lifecycle.HasFinalizer(wl) {
		return nil
	}
	if due := wl.DeletionTimestamp.Add(forsakenAfter); due.After(now.Time) {
		todo.Wake = due
		return nil
	}
	for i := range wl.OwnerReferences {
		owner := &wl.OwnerReferences[i]
		object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind}}
		switch err := f.Live.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: owner.Name}, object); {
		case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		case err == nil:
			if object.UID == owner.UID {
				todo.Wake = now.Add(forsakenAfter)
				return nil
			}
		case apierrors.IsForbidden(err):
			log.FromContext(ctx).Info("A deleted workload stays, since its owner may not be read: remove its finalizer once the owner is gone",
				"owner", owner.Kind+"/"+owner.Name, "error", err.Error())
			todo.Wake = now.Add(10 * forsakenAfter)
			return nil
		default:
			return fmt.Errorf("reading the owner of deleted workload %s/%s: %w", wl.Namespace, wl.Name, err)
		}
	}
	todo.Unfinalize = !todo.Status
	return nil
}
