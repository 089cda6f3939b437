package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// TrainingOptions say what the webhooks of TrainJobs and of runtimes do. These are configured apart from the others, under
// upstream's names, so that they replace those of an upstream controller (spec: 50 §3.1).
type TrainingOptions struct {
	Plan *trainingplan.Config
	// Jobs are the options of the other webhooks. If TrainJobs are among the enabled kinds, what the queue has to say about
	// them is said first, by the same webhooks. Nil: TrainJobs have no queues.
	Jobs *Options
	// Now is the clock.
	Now func() time.Time
	// Conflict and Denied, if not nil, count writes in which managers of runtime patches contradict each other, by the policy
	// about that, and writes that were refused for their patches, by the reason.
	Conflict, Denied func(string)
}

// Names of the webhook configurations of training.
const (
	TrainingMutatingName   = "defaulter.trainer.kubeflow.org"
	TrainingValidatingName = "validator.trainer.kubeflow.org"
)

// Kinds of training.
var (
	trainJobKind       = trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob)
	runtimeKind        = trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainingRuntime)
	clusterRuntimeKind = trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindClusterTrainingRuntime)
)

// trainJobs answers the webhooks of TrainJobs and runtimes.
type trainJobs struct {
	TrainingOptions
	server *server
	client client.Reader // reads from the cache
	live   *live         // also asks RBAC, by creating SubjectAccessReviews
	grants grants

	// queue is nil if the queue says nothing of TrainJobs. It reads them as queued, the descriptor, says.
	queue  *server
	queued *job.Descriptor
}

// SetupTraining registers the webhooks of TrainJobs and runtimes with the server of the manager.
func SetupTraining(mgr ctrl.Manager, o TrainingOptions) error {
	live, err := newLive(mgr)
	if err != nil {
		return err
	}
	s := &trainJobs{TrainingOptions: o, server: &server{scheme: mgr.GetScheme()}, client: mgr.GetClient(), live: live}
	if o.Jobs != nil && o.Jobs.Jobs.Kinds[trainJobKind] {
		if i := slices.IndexFunc(o.Jobs.Descriptors, func(d *job.Descriptor) bool { return d.GVK == trainJobKind }); i >= 0 {
			s.queue, s.queued = newServer(mgr, o.Jobs, live), withoutRuntime(o.Jobs.Descriptors[i])
		}
	}
	for _, h := range []struct {
		path   string
		kind   schema.GroupVersionKind
		handle admission.HandlerFunc
	}{
		{Path(trainJobKind, true), trainJobKind, s.mutateTrainJob},
		{Path(trainJobKind, false), trainJobKind, s.validateTrainJob},
		{Path(runtimeKind, false), runtimeKind, s.validateRuntime(runtimeKind)},
		{Path(clusterRuntimeKind, false), clusterRuntimeKind, s.validateRuntime(clusterRuntimeKind)},
	} {
		mgr.GetWebhookServer().Register(h.path, &admission.Webhook{Handler: guarded(h.kind, h.handle)})
	}
	return nil
}

// withoutRuntime is a descriptor that says nothing of a runtime which is missing, or from which no pods can be made: the rules of
// TrainJobs say it, with the field that is wrong, and look for a runtime that is newer than the cache.
func withoutRuntime(d *job.Descriptor) *job.Descriptor {
	out := *d
	out.Validate = func(o, old job.Object, in *job.Setting) field.ErrorList {
		return slices.DeleteFunc(d.Validate(o, old, in), func(e *field.Error) bool { return e.Field == "spec.runtimeRef" })
	}
	return &out
}

// TrainingConfigurations are the objects that make the API server call the webhooks of TrainJobs and runtimes. Runtimes
// that say so are stored without asking, so that they can be applied before anybody answers (spec: 50 §3.1).
func TrainingConfigurations(target Target) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	version, gv := admissionregistrationv1.SchemeGroupVersion.String(), trainerv1alpha1.GroupVersion
	rule := func(resource string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{gv.Group}, APIVersions: []string{gv.Version}, Resources: []string{resource}},
		}}
	}
	checked := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: trainerv1alpha1.WebhookValidationLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{trainerv1alpha1.WebhookValidationDisabled},
	}}}
	validating := func(name string, gvk schema.GroupVersionKind, resource string, selector *metav1.LabelSelector) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: target.clientConfig(Path(gvk, false)), Rules: rule(resource), ObjectSelector: selector,
			FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}
	}
	m := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "MutatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: TrainingMutatingName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "defaulter.trainjob.trainer.kubeflow.org", ClientConfig: target.clientConfig(Path(trainJobKind, true)), Rules: rule("trainjobs"),
			FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: TrainingValidatingName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			validating("validator.clustertrainingruntime.trainer.kubeflow.org", clusterRuntimeKind, "clustertrainingruntimes", checked),
			validating("validator.trainingruntime.trainer.kubeflow.org", runtimeKind, "trainingruntimes", checked),
			validating("validator.trainjob.trainer.kubeflow.org", trainJobKind, "trainjobs", nil),
		},
	}
	return m, v
}

// mutateTrainJob does what the queue wants, then puts the entries of other actors and the times right (spec: 50 §3.1).
func (s *trainJobs) mutateTrainJob(ctx context.Context, req admission.Request) admission.Response {
	var queued []jsonpatch.Operation
	if s.queue != nil && (req.Operation == admissionv1.Create || hasUserStop(s.queue.o, s.queued)) {
		change := s.queue.defaultJob(s.queued)
		first := s.queue.mutate(ctx, &req, trainJobKind, func(ctx context.Context, req *admission.Request, object client.Object) error {
			err := change(ctx, req, object)
			if err == nil {
				req.Object.Raw, err = json.Marshal(object)
			}
			return err
		})
		if !first.Allowed {
			return first
		}
		queued = first.Patches
	}
	var warnings []string
	response := s.server.mutate(ctx, &req, trainJobKind, func(ctx context.Context, req *admission.Request, object client.Object) error {
		now, old, err := s.pair(req, object)
		if err != nil {
			return err
		}
		if old == nil {
			if warnings, err = s.nameRuntime(ctx, now); err != nil {
				return err
			}
		}
		request := s.request(&req.UserInfo, now, old)
		if err := s.askRBAC(ctx, &req.UserInfo, &request); err != nil {
			return err
		}
		warnings = append(warnings, patch.Default(&request, s.Now())...)
		return nil
	})
	response.Patches = append(queued, response.Patches...)
	return response.WithWarnings(warnings...)
}

// nameRuntime has a new TrainJob take the TrainingRuntime of its namespace if there is no ClusterTrainingRuntime of that name,
// and says so: clients such as the SDK list runtimes of both kinds and can name neither kind (spec: 50 §4.12).
func (s *trainJobs) nameRuntime(ctx context.Context, now *trainerv1alpha1.TrainJob) (warnings []string, err error) {
	if _, kind := trainingplan.RefKind(&now.Spec.RuntimeRef); kind != trainerv1alpha1.KindClusterTrainingRuntime || !trainingplan.IsSupported(&now.Spec.RuntimeRef) {
		return nil, nil
	}
	found, err := lookup.FindRuntime(ctx, now, s.client, s.live)
	if err != nil || found != nil {
		return nil, err
	}
	other := now.DeepCopy()
	other.Spec.RuntimeRef.Kind = new(trainerv1alpha1.KindTrainingRuntime)
	if found, err = lookup.FindRuntime(ctx, other, s.client, s.live); err != nil || found == nil {
		return nil, err
	}
	now.Spec.RuntimeRef = other.Spec.RuntimeRef
	return []string{fmt.Sprintf("spec.runtimeRef: there is no ClusterTrainingRuntime %s; the TrainingRuntime of that name is used", found.Name)}, nil
}

// validateTrainJob refuses a TrainJob for everything that the queue, the runtime and the patches have against it.
func (s *trainJobs) validateTrainJob(ctx context.Context, req admission.Request) admission.Response {
	var queued error
	if s.queue != nil {
		check := s.queue.validateJob(s.queued)
		first := s.queue.validate(ctx, &req, trainJobKind, func(ctx context.Context, req *admission.Request, object, old client.Object) error {
			err := check(ctx, req, object, old)
			if _, ok := errors.AsType[refused](err); ok {
				queued, err = err, nil // and see what else is wrong
			}
			return err
		})
		if !first.Allowed {
			return first
		}
	}
	var warnings []string
	response := s.server.validate(ctx, &req, trainJobKind, func(ctx context.Context, req *admission.Request, object, _ client.Object) error {
		now, old, err := s.pair(req, object)
		if err != nil {
			return err
		}
		found, err := s.judge(ctx, &req.UserInfo, now, old)
		if err != nil {
			return err
		}
		warnings = found.Warnings
		s.count(&found)
		if err := errors.Join(queued, found.Err()); err != nil {
			return refused{err}
		}
		return nil
	})
	return response.WithWarnings(warnings...)
}

// count counts what is wrong with runtime patches.
func (s *trainJobs) count(found *trainingplan.Findings) {
	if found.PatchConflicts > 0 && s.Conflict != nil {
		s.Conflict(string(s.Plan.Patches.ConflictPolicy))
	}
	if s.Denied != nil {
		for _, reason := range found.DeniedPatches {
			s.Denied(reason)
		}
	}
}

// pair is the TrainJob that somebody wants to store and the one that is stored, nil for a new one.
func (s *trainJobs) pair(req *admission.Request, object client.Object) (now, old *trainerv1alpha1.TrainJob, err error) {
	now = object.(*trainerv1alpha1.TrainJob)
	if req.Operation != admissionv1.Update {
		now.Namespace = req.Namespace // a client need not say it
		return now, nil, nil
	}
	stored, err := s.server.decode(req.OldObject, trainJobKind)
	if err != nil {
		return nil, nil, err
	}
	return now, stored.(*trainerv1alpha1.TrainJob), nil
}

func (s *trainJobs) request(user *authenticationv1.UserInfo, now, old *trainerv1alpha1.TrainJob) patch.Request {
	return patch.Request{New: now, Old: old, Selected: patch.SelectedOf(now), OldSelected: patch.SelectedOf(old), Config: &s.Plan.Patches, User: patch.User{Name: user.Username, Groups: user.Groups}}
}

// judge reads what decides about a TrainJob and has the plan decide. JobSets are read from the API server: whether one is
// still active must not be a matter of the past. The error means that the request cannot be judged now.
func (s *trainJobs) judge(ctx context.Context, user *authenticationv1.UserInfo, now, old *trainerv1alpha1.TrainJob) (f trainingplan.Findings, err error) {
	r := &trainingplan.Request{Request: s.request(user, now, old), Config: s.Plan}
	if err := s.askRBAC(ctx, user, &r.Request); err != nil {
		return f, err
	}
	if trainingplan.IsSupported(&now.Spec.RuntimeRef) {
		if old == nil {
			r.Runtime, err = lookup.FindRuntime(ctx, now, s.client, s.live)
		} else {
			begun := *now
			begun.Status = old.Status // what is stored, and not what the request says
			r.Runtime, err = lookup.BegunRuntime(ctx, s.client, s.live, &begun)
		}
		if err != nil {
			return f, err
		}
	}
	if r.PriorityClasses, err = lookup.FindPriorityClasses(ctx, s.client, r.Runtime); err != nil {
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
	return trainingplan.Validate(r), nil
}

// validateRuntime refuses a runtime that no TrainJob could use (spec: 50 §3.3).
func (s *trainJobs) validateRuntime(gvk schema.GroupVersionKind) admission.HandlerFunc {
	asRuntime := func(object client.Object) *trainingplan.Runtime {
		switch o := object.(type) {
		case *trainerv1alpha1.TrainingRuntime:
			return trainingplan.NamespacedRuntime(o)
		case *trainerv1alpha1.ClusterTrainingRuntime:
			return trainingplan.ClusterRuntime(o)
		}
		return nil
	}
	return func(ctx context.Context, req admission.Request) admission.Response {
		var warnings []string
		response := s.server.validate(ctx, &req, gvk, func(_ context.Context, _ *admission.Request, object, old client.Object) error {
			found, errs := trainingplan.ValidateRuntime(asRuntime(object), asRuntime(old))
			warnings = found
			return refuse(errs)
		})
		return response.WithWarnings(warnings...)
	}
}

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes;clustertrainingruntimes,verbs=get;list;watch,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=get,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list;watch

// askRBAC asks about the managers that the user may write only if RBAC says so (spec: 50 §4.13.2).
func (s *trainJobs) askRBAC(ctx context.Context, user *authenticationv1.UserInfo, r *patch.Request) error {
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

func (s *trainJobs) isGranted(ctx context.Context, user *authenticationv1.UserInfo, manager string) (bool, error) {
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
