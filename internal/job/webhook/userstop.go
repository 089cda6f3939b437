package webhook

import (
	"context"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// hasUserStop reports whether users may stop jobs of the kind by its suspend field.
func hasUserStop(o *Options, d *job.Descriptor) bool {
	return o.Jobs.HonourUserSuspend && !d.Serving && d.Once == nil
}

// userStop marks a job that another user than the manager suspends while it is admitted. When the job is resumed the mark is
// removed, and the job waits for admission as any other (spec: 30 §6, u1).
func (s *server) userStop(ctx context.Context, d *job.Descriptor, req *admission.Request, object client.Object) error {
	if ok, err := s.managed(ctx, req.Namespace); err != nil || !ok || s.isOwn(d, req) {
		return err
	}
	old, err := review.Decode(req.OldObject, d.GVK.Kind, d.New())
	if err != nil {
		return err
	}
	wants := func(o client.Object) bool { return !d.IsSuspended(o) && !d.IsStopping(o) }
	switch {
	case !wants(old) && wants(object) && object.GetAnnotations()[job.UserStopAnnotation] != "":
		podset.Unannotate(object, job.UserStopAnnotation)
		d.Suspend(object)
	case wants(old) && !wants(object):
		admitted, err := s.isAdmitted(ctx, old)
		if err != nil || !admitted {
			return err
		}
		podset.Annotate(object, job.UserStopAnnotation, "true")
	}
	return nil
}

// isOwn reports whether the request is from the controller of the kind. A person may have the user name of the manager, as on a
// cluster with one account, but not its field manager.
func (s *server) isOwn(d *job.Descriptor, req *admission.Request) bool {
	var options metav1.PatchOptions // an update has the same field
	if err := json.Unmarshal(req.Options.Raw, &options); err != nil {
		return false
	}
	return req.UserInfo.Username == s.o.Self && options.FieldManager == lookup.Manager(d)
}

func (s *server) isAdmitted(ctx context.Context, object client.Object) (bool, error) {
	workloads, err := lookup.WorkloadsOf(ctx, s.reader, object)
	return slices.ContainsFunc(workloads, func(w *kueue.Workload) bool { return lifecycle.IsAdmitted(w) && !lifecycle.IsFinished(w) }), err
}
