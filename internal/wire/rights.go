package wire

import (
	"context"
	"errors"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/berth-project/berth/internal/job"
)

// addRightsCheck has the leader log once which enabled kinds it may not write. The installation was then made with another configuration,
// so that they have no webhooks either: their jobs run without quota.
func addRightsCheck(mgr ctrl.Manager, kinds *jobKinds, cfg Config) error {
	enabled := managed(&cfg.Options, kinds.list)
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if names := denied(ctx, mgr.GetClient(), enabled); len(names) > 0 {
			cfg.Log.WithName("options").Error(errors.New("the manager may not suspend or start jobs of kinds that its configuration enables"),
				"Webhooks and rights were installed for another configuration. Run: berth install --config FILE --image IMAGE, or upgrade the release of Helm",
				"kinds", strings.Join(names, ", "))
		}
		return nil
	}))
}

// denied returns the kinds that the manager may not patch in all namespaces. A kind that cannot be asked about counts as allowed.
func denied(ctx context.Context, c client.Client, kinds []*job.Descriptor) (names []string) {
	for _, d := range kinds {
		rule := d.ManagerRules()[0]
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: "patch"},
		}}
		if err := c.Create(ctx, review); err == nil && !review.Status.Allowed {
			names = append(names, d.Framework)
		}
	}
	return names
}
