// Package webhook guards TrainJobs and their runtimes: defaults, entries of runtime patches, and the rules of the queue, the runtime
// and the patches (spec: 50 §3).
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
	"github.com/berth-project/berth/internal/training/runtimes"
)

// Options configure the webhooks of TrainJobs and of runtimes.
type Options struct {
	Plan *plan.Config
	// Queued are the queue's webhooks of TrainJobs, which the webhooks here call first. None: TrainJobs have no
	// queues.
	Queued   []review.Webhook
	Runtimes *runtimes.Store
	Now      func() time.Time
	// Conflict and Denied, if not nil, count writes with conflicts between managers of runtime patches, by conflict policy, and writes
	// that were refused because of their patches, by reason.
	Conflict, Denied func(string)
}

// TrainJob is the kind of TrainJobs.
var TrainJob = trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob)

type server struct {
	Options
	live   *review.Live // also asks RBAC, by creating SubjectAccessReviews
	grants grants
}

// Webhooks returns the webhooks of TrainJobs and of runtimes. Runtimes with the label for it are stored without a call, so that they can be
// applied before the webhooks are served (spec: 50 §3.1). r is nil if they are not served, as for a webhook configuration.
func Webhooks(o Options, r *review.Readers) []review.Webhook {
	s := &server{Options: o}
	if r != nil {
		s.live, s.Runtimes = r.Live, o.Runtimes.Through(r.Live)
	}
	of := trainerv1alpha1.GroupVersion.WithKind
	checked := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: trainerv1alpha1.WebhookValidationLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{trainerv1alpha1.WebhookValidationDisabled},
	}}}
	empty := func() client.Object { return &trainerv1alpha1.TrainJob{} }
	return []review.Webhook{
		{
			Name: "defaulter.trainjob.trainer.kubeflow.org", GVK: TrainJob, Resources: []string{"trainjobs"}, New: empty,
			Updates: true, Defaults: s.defaultTrainJob,
		},
		{
			Name: "validator.clustertrainingruntime.trainer.kubeflow.org", GVK: of(trainerv1alpha1.KindClusterTrainingRuntime),
			Resources: []string{"clustertrainingruntimes"}, New: func() client.Object { return &trainerv1alpha1.ClusterTrainingRuntime{} },
			Updates: true, Objects: checked, Validate: validateRuntime,
		},
		{
			Name: "validator.trainingruntime.trainer.kubeflow.org", GVK: of(trainerv1alpha1.KindTrainingRuntime),
			Resources: []string{"trainingruntimes"}, New: func() client.Object { return &trainerv1alpha1.TrainingRuntime{} },
			Updates: true, Objects: checked, Validate: validateRuntime,
		},
		{
			Name: "validator.trainjob.trainer.kubeflow.org", GVK: TrainJob, Resources: []string{"trainjobs"}, New: empty,
			Updates: true, Validate: s.validateTrainJob,
		},
	}
}

// WithoutRuntime returns the descriptor of TrainJobs for the webhooks of the queue. It reports no error about the runtime: the rules of
// TrainJobs do so, with the field, and read a runtime that is newer than the cache.
func WithoutRuntime(d *job.Descriptor) *job.Descriptor {
	out := *d
	out.Validate = func(o, old job.Object, in *job.Setting) field.ErrorList {
		return slices.DeleteFunc(d.Validate(o, old, in), func(e *field.Error) bool { return e.Field == "spec.runtimeRef" })
	}
	return &out
}

// defaultTrainJob applies the queue's defaults, then resets entries of other users and sets times (spec: 50 §3.1).
func (s *server) defaultTrainJob(ctx context.Context, req *admission.Request, object client.Object) error {
	now := object.(*trainerv1alpha1.TrainJob)
	if err := s.defaultQueued(ctx, req, now); err != nil {
		return err
	}
	var old *trainerv1alpha1.TrainJob
	var err error
	if req.Operation == admissionv1.Update {
		if old, err = review.Decode(req.OldObject, trainerv1alpha1.KindTrainJob, &trainerv1alpha1.TrainJob{}); err != nil {
			return err
		}
	} else {
		now.Namespace = req.Namespace // clients may omit it
		if err = s.nameRuntime(ctx, now); err != nil {
			return err
		}
	}
	request := s.request(&req.UserInfo, now, old)
	if err := s.askRBAC(ctx, &req.UserInfo, &request); err != nil {
		return err
	}
	review.Advise(ctx, patch.Default(&request, s.Now())...)
	return nil
}

func (s *server) defaultQueued(ctx context.Context, req *admission.Request, now *trainerv1alpha1.TrainJob) error {
	for i := range s.Queued {
		h := &s.Queued[i]
		if !h.Mutating() || req.Operation == admissionv1.Update && !h.Updates {
			continue
		}
		object, err := review.Decode(req.Object, trainerv1alpha1.KindTrainJob, h.New())
		if err != nil {
			return err
		}
		if err := h.Defaults(ctx, req, object); err != nil {
			return err
		}
		changed, err := json.Marshal(object)
		if err != nil {
			return err
		}
		*now = trainerv1alpha1.TrainJob{}
		if err := json.Unmarshal(changed, now); err != nil {
			return err
		}
	}
	return nil
}

// nameRuntime lets a new TrainJob refer to the TrainingRuntime of its namespace if there is no ClusterTrainingRuntime of that name,
// with a warning: clients such as the SDK list runtimes of both kinds and cannot name a kind (spec: 50 §4.12).
func (s *server) nameRuntime(ctx context.Context, now *trainerv1alpha1.TrainJob) error {
	if _, kind := plan.RefKind(&now.Spec.RuntimeRef); kind != trainerv1alpha1.KindClusterTrainingRuntime || !plan.IsSupported(&now.Spec.RuntimeRef) {
		return nil
	}
	found, err := s.Runtimes.Live(ctx, now)
	if err != nil || found != nil {
		return err
	}
	other := now.DeepCopy()
	other.Spec.RuntimeRef.Kind = new(trainerv1alpha1.KindTrainingRuntime)
	if found, err = s.Runtimes.Live(ctx, other); err != nil || found == nil {
		return err
	}
	now.Spec.RuntimeRef = other.Spec.RuntimeRef
	review.Advise(ctx, fmt.Sprintf("spec.runtimeRef: there is no ClusterTrainingRuntime %s; the TrainingRuntime of that name is used", found.Name))
	return nil
}

// validateTrainJob applies the rules of the queue, the runtime and the patches to a TrainJob.
func (s *server) validateTrainJob(ctx context.Context, req *admission.Request, object, oldObject client.Object) error {
	queued, err := s.validateQueued(ctx, req)
	if err != nil {
		return err
	}
	now := object.(*trainerv1alpha1.TrainJob)
	old, update := oldObject.(*trainerv1alpha1.TrainJob)
	if !update {
		now.Namespace = req.Namespace // clients may omit it
	}
	found, err := s.judge(ctx, &req.UserInfo, now, old)
	if err != nil {
		return err
	}
	review.Advise(ctx, found.Warnings...)
	s.count(&found)
	if err := errors.Join(queued, found.Err()); err != nil {
		return review.Refused{Mistakes: err}
	}
	return nil
}

// validateQueued calls the queue's webhooks. Their refusal is returned separately, so that the other errors are reported with it.
func (s *server) validateQueued(ctx context.Context, req *admission.Request) (refusal, err error) {
	for i := range s.Queued {
		h := &s.Queued[i]
		if h.Mutating() {
			continue
		}
		object, err := review.Decode(req.Object, trainerv1alpha1.KindTrainJob, h.New())
		if err != nil {
			return nil, err
		}
		var old client.Object
		if req.Operation == admissionv1.Update {
			if old, err = review.Decode(req.OldObject, trainerv1alpha1.KindTrainJob, h.New()); err != nil {
				return nil, err
			}
		}
		err = h.Validate(ctx, req, object, old)
		if _, ok := errors.AsType[review.Refused](err); !ok && err != nil {
			return nil, err
		}
		refusal = errors.Join(refusal, err)
	}
	return refusal, nil
}

// count counts conflicts and refusals of runtime patches.
func (s *server) count(found *plan.Findings) {
	if found.Conflicts > 0 && s.Conflict != nil {
		s.Conflict(string(s.Plan.Patches.ConflictPolicy))
	}
	if s.Denied != nil {
		for _, reason := range found.Denied {
			s.Denied(reason)
		}
	}
}

func (s *server) request(user *authenticationv1.UserInfo, now, old *trainerv1alpha1.TrainJob) patch.Request {
	return patch.Request{New: now, Old: old, Selected: patch.SelectedOf(now), OldSelected: patch.SelectedOf(old), Config: &s.Plan.Patches, User: patch.User{Name: user.Username, Groups: user.Groups}}
}

// judge reads the objects that the rules need and applies the rules. The JobSet is read from the API server, because a cached one may
// be outdated. The error means that the request cannot be judged now; a stop needs no runtime, and is judged without it.
func (s *server) judge(ctx context.Context, user *authenticationv1.UserInfo, now, old *trainerv1alpha1.TrainJob) (f plan.Findings, err error) {
	r := &plan.Request{Request: s.request(user, now, old), Config: s.Plan}
	if err := s.askRBAC(ctx, user, &r.Request); err != nil {
		return f, err
	}
	stops := plan.Stops(now, old)
	if plan.IsSupported(&now.Spec.RuntimeRef) {
		if old == nil {
			r.Runtime, err = s.Runtimes.Live(ctx, now)
		} else {
			begun := *now
			begun.Status = old.Status // the stored status, and not the request's
			r.Runtime, err = s.Runtimes.Begun(ctx, &begun)
		}
		if err != nil && !stops {
			return f, err
		}
	}
	if r.PriorityClasses, err = s.Runtimes.PriorityClasses(ctx, r.Runtime); err != nil && !stops {
		return f, err
	}
	if patch.NeedsJobSet(now, old) {
		var jobset jobsetv1alpha2.JobSet
		err := s.live.Get(ctx, client.ObjectKeyFromObject(now), &jobset)
		switch {
		case err == nil:
			r.JobSet = &jobset
		case !apierrors.IsNotFound(err):
			r.JobSetErr = err
		}
	}
	return plan.Validate(r), nil
}

// validateRuntime refuses a runtime that no TrainJob could use (spec: 50 §3.3).
func validateRuntime(ctx context.Context, _ *admission.Request, object, old client.Object) error {
	warnings, errs := plan.ValidateRuntime(asRuntime(object), asRuntime(old))
	review.Advise(ctx, warnings...)
	return review.Refuse(errs)
}

func asRuntime(object client.Object) *plan.Runtime {
	switch o := object.(type) {
	case *trainerv1alpha1.TrainingRuntime:
		return plan.NamespacedRuntime(o)
	case *trainerv1alpha1.ClusterTrainingRuntime:
		return plan.ClusterRuntime(o)
	}
	return nil
}

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes;clustertrainingruntimes,verbs=get;list;watch,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=get,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list;watch

// askRBAC asks RBAC about the managers that need its grant (spec: 50 §4.13.2).
func (s *server) askRBAC(ctx context.Context, user *authenticationv1.UserInfo, r *patch.Request) error {
	for _, manager := range r.Questions() {
		granted, err := s.isGranted(ctx, user, manager)
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

// maxManager is the longest name that the schema accepts.
const maxManager = 253

func (s *server) isGranted(ctx context.Context, user *authenticationv1.UserInfo, manager string) (bool, error) {
	if len(manager) > maxManager {
		return false, nil
	}
	key := grantKey(user, manager)
	if granted, ok := s.grants.get(key, s.Now()); ok {
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
		if err := s.live.Create(ctx, review); err != nil {
			return false, fmt.Errorf("asking whether %s may manage the runtime patches of %s: %w", user.Username, manager, err)
		}
		if granted = review.Status.Allowed; granted {
			break
		}
	}
	s.grants.put(key, granted, s.Now())
	return granted, nil
}
