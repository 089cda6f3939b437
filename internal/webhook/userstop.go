package webhook

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job"
	"github.com/berth-project/berth/internal/plan/lifecycle"
)

// hasUserStop says whether users may stop jobs of the kind with its own switch.
func hasUserStop(o *Options, d *job.Descriptor) bool {
	return o.Jobs.HonourUserSuspend && !d.Serving && d.Marked == nil
}

// userStop marks a job that somebody else than the manager suspends while it is admitted, and takes the mark off when it is
// to run again (spec: 30 §6, u1).
func (s *server) userStop(ctx context.Context, d *job.Descriptor, req *admission.Request, object client.Object) error {
	if ok, err := s.managed(ctx, req.Namespace); err != nil || !ok {
		return err
	}
	old, err := s.decode(req.OldObject, d.GVK)
	if err != nil {
		return err
	}
	was, is := d.IsSuspended(old), d.IsSuspended(object)
	annotations := object.GetAnnotations()
	switch {
	case was && !is && annotations[job.UserStopAnnotation] != "":
		delete(annotations, job.UserStopAnnotation)
	case !was && is && req.UserInfo.Username != s.o.Self:
		admitted, err := s.isAdmitted(ctx, req.Namespace, old)
		if err != nil || !admitted {
			return err
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[job.UserStopAnnotation] = "true"
	default:
		return nil
	}
	object.SetAnnotations(annotations)
	return nil
}

// isAdmitted says whether the job has a Workload that is admitted.
func (s *server) isAdmitted(ctx context.Context, namespace string, object client.Object) (bool, error) {
	var list kueue.WorkloadList
	if err := s.reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("listing workloads of %s: %w", namespace, err)
	}
	for i := range list.Items {
		w := &list.Items[i]
		if owner := metav1.GetControllerOf(w); owner != nil && owner.UID == object.GetUID() && lifecycle.IsAdmitted(w) && !lifecycle.IsFinished(w) {
			return true, nil
		}
	}
	return false, nil
}
