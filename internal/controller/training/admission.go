package training

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/integration"
	"github.com/berth-project/berth/internal/plan/train"
	"github.com/berth-project/berth/internal/plan/train/patch"
)

// grantsFor is how long an answer of RBAC is believed, and maxGrants how many are kept.
const (
	grantsFor = time.Minute
	maxGrants = 10_000
)

// Admission reads what decides about a TrainJob that somebody wants to store, and has the plan decide. It is what a
// webhook calls: Default in the mutating one, on creation and update, then Validate in the validating one.
type Admission struct {
	// Client reads from the cache, and asks RBAC by creating SubjectAccessReviews.
	Client client.Client
	// Live reads JobSets from the API server: whether one is still active must not be a matter of the past.
	Live   client.Reader
	Config *train.Config
	Now    func() time.Time

	grants grants
}

// Default changes a TrainJob before it is stored: the entries of other actors, and times. old is nil for a new one.
// Defaults of the queue, which adds its own entry, come before. An error means that the request cannot be judged now.
func (a *Admission) Default(ctx context.Context, user *authenticationv1.UserInfo, job, old *trainerv1alpha1.TrainJob) (warnings []string, err error) {
	r := a.request(user, job, old)
	if err := a.askRBAC(ctx, user, &r); err != nil {
		return nil, err
	}
	return patch.Default(&r, a.Now()), nil
}

// Validate says what is wrong with a TrainJob. An error means that the request cannot be judged now.
func (a *Admission) Validate(ctx context.Context, user *authenticationv1.UserInfo, job, old *trainerv1alpha1.TrainJob) (f train.Findings, err error) {
	r := &train.Request{Request: a.request(user, job, old), Config: a.Config}
	if err := a.askRBAC(ctx, user, &r.Request); err != nil {
		return f, err
	}
	if r.Runtime, err = a.runtime(ctx, job, old); err != nil {
		return f, err
	}
	if r.PriorityClasses, err = integration.FindPriorityClasses(ctx, a.Client, r.Runtime); err != nil {
		return f, err
	}
	if patch.NeedsJobSet(job, old) {
		var jobset jobsetv1alpha2.JobSet
		err := a.Live.Get(ctx, client.ObjectKeyFromObject(job), &jobset)
		switch {
		case err == nil:
			r.JobSet = &jobset
		case !apierrors.IsNotFound(err):
			r.JobSetErr = err
		}
	}
	return train.Validate(r), nil
}

func (a *Admission) request(user *authenticationv1.UserInfo, job, old *trainerv1alpha1.TrainJob) patch.Request {
	return patch.Request{New: job, Old: old, Config: &a.Config.Patches, User: patch.User{Name: user.Username, Groups: user.Groups}}
}

// runtime finds the runtime that a TrainJob began with, the live one if it has not begun, or nil.
func (a *Admission) runtime(ctx context.Context, job, old *trainerv1alpha1.TrainJob) (*train.Runtime, error) {
	if !train.IsSupported(&job.Spec.RuntimeRef) {
		return nil, nil
	}
	if old != nil {
		return integration.BegunRuntime(ctx, a.Client, a.Live, job)
	}
	return integration.FindRuntime(ctx, a.Client, job)
}

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// askRBAC asks about the managers that the user may write only if RBAC says so.
func (a *Admission) askRBAC(ctx context.Context, user *authenticationv1.UserInfo, r *patch.Request) error {
	for _, manager := range r.Questions() {
		granted, err := a.isGranted(ctx, user, manager)
		if err != nil {
			return err
		}
		if granted {
			if r.Granted == nil {
				r.Granted = map[string]bool{}
			}
			r.Granted[manager] = true
		}
	}
	return nil
}

func (a *Admission) isGranted(ctx context.Context, user *authenticationv1.UserInfo, manager string) (bool, error) {
	key := grantKey(user, manager)
	if granted, ok := a.grants.get(key, a.Now()); ok {
		return granted, nil
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	granted := false
	for _, name := range patch.OwnershipNames(manager) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: trainerv1alpha1.GroupVersion.Group, Resource: patch.OwnershipResource, Verb: patch.OwnershipVerb, Name: name,
			},
		}}
		if err := a.Client.Create(ctx, review); err != nil {
			return false, fmt.Errorf("asking whether %s may manage the runtime patches of %s: %w", user.Username, manager, err)
		}
		if granted = review.Status.Allowed; granted {
			break
		}
	}
	a.grants.put(key, granted, a.Now())
	return granted, nil
}
