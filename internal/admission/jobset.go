package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// JobSetOptions say what the webhooks of JobSets and of their pods do. These are configured apart from the others, under
// upstream's names, so that they replace those of an upstream controller (spec: 60 §5.6).
type JobSetOptions struct {
	Plan plan.Config
	// Pods is a cache of the pods of JobSets, with the index PodsByJob by the label job-key.
	Pods      client.Reader
	PodsByJob string
}

// Names of the webhook configurations of JobSets.
const (
	JobSetMutatingName   = "jobset-mutating-webhook-configuration"
	JobSetValidatingName = "jobset-validating-webhook-configuration"
)

// Paths of the webhooks of JobSets. Upstream's would be those of the integration of JobSets with queues (spec: 60 §3.5).
const (
	mutateJobSetPath   = "/jobset/mutate-jobset"
	validateJobSetPath = "/jobset/validate-jobset"
	mutatePodPath      = "/jobset/mutate-pod"
	validatePodPath    = "/jobset/validate-pod"
)

// jobSets answers the webhooks of JobSets and their pods.
type jobSets struct {
	JobSetOptions
	server       *server
	cached, live client.Reader
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=kueue-manager-jobset-role

// SetupJobSets registers the webhooks of JobSets with the server of the manager.
func SetupJobSets(mgr ctrl.Manager, o JobSetOptions) error {
	live, err := newLive(mgr)
	if err != nil {
		return err
	}
	s := &jobSets{JobSetOptions: o, server: &server{scheme: mgr.GetScheme()}, cached: mgr.GetClient(), live: live}
	jobSet, pod := jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet), corev1.SchemeGroupVersion.WithKind("Pod")
	for _, h := range []struct {
		path   string
		kind   schema.GroupVersionKind
		handle admission.HandlerFunc
	}{
		{mutateJobSetPath, jobSet, s.mutateJobSet},
		{validateJobSetPath, jobSet, s.validateJobSet},
		{mutatePodPath, pod, s.mutatePod},
		{validatePodPath, pod, s.validatePod},
	} {
		mgr.GetWebhookServer().Register(h.path, &admission.Webhook{Handler: guarded(h.kind, h.handle)})
	}
	return nil
}

// JobSetConfigurations are the objects that make the API server call the webhooks of JobSets. Of pods it calls them only
// for those that are placed exclusively: no other pod waits for Berth.
func JobSetConfigurations(target Target) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	version := admissionregistrationv1.SchemeGroupVersion.String()
	rule := func(group, version, resource string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
		}}
	}
	create, update := admissionregistrationv1.Create, admissionregistrationv1.Update
	gv := jobsetv1alpha2.GroupVersion
	created := rule(gv.Group, gv.Version, jobsetv1alpha2.ResourceJobSets, create)
	changed := rule(gv.Group, gv.Version, jobsetv1alpha2.ResourceJobSets, create, update)
	pods := rule("", "v1", "pods", create)
	ofJobSets := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: jobsetv1alpha2.JobSetNameKey, Operator: metav1.LabelSelectorOpExists}}}
	exclusive := []admissionregistrationv1.MatchCondition{{
		Name: "placed-exclusively",
		Expression: fmt.Sprintf("has(object.metadata.annotations) && %q in object.metadata.annotations && !(%q in object.metadata.annotations)",
			jobsetv1alpha2.ExclusiveTopologyAnnotation, jobsetv1alpha2.NodeSelectorStrategyAnnotation),
	}}
	mutating := func(name, path string, rules []admissionregistrationv1.RuleWithOperations, selector *metav1.LabelSelector, when []admissionregistrationv1.MatchCondition) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{
			Name: name, ClientConfig: target.clientConfig(path), Rules: rules, ObjectSelector: selector, MatchConditions: when,
			FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}
	}
	validating := func(name, path string, rules []admissionregistrationv1.RuleWithOperations, selector *metav1.LabelSelector, when []admissionregistrationv1.MatchCondition) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: target.clientConfig(path), Rules: rules, ObjectSelector: selector, MatchConditions: when,
			FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}
	}
	m := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "MutatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: JobSetMutatingName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			mutating("mjobset.kb.io", mutateJobSetPath, created, nil, nil), mutating("mpod.kb.io", mutatePodPath, pods, ofJobSets, exclusive),
		},
	}
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: JobSetValidatingName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			validating("vjobset.kb.io", validateJobSetPath, changed, nil, nil), validating("vpod.kb.io", validatePodPath, pods, ofJobSets, exclusive),
		},
	}
	return m, v
}

// IsOfJobSets says whether a webhook leads to one of those that JobSetConfigurations lists, on whatever host.
func IsOfJobSets(c *admissionregistrationv1.WebhookClientConfig) bool {
	path := ""
	if c.Service != nil && c.Service.Path != nil {
		path = *c.Service.Path
	}
	if c.URL != nil {
		if u, err := url.Parse(*c.URL); err == nil {
			path = u.Path
		}
	}
	return slices.Contains([]string{mutateJobSetPath, validateJobSetPath, mutatePodPath, validatePodPath}, path)
}

// mutateJobSet fills in what a new JobSet leaves out.
func (s *jobSets) mutateJobSet(ctx context.Context, req admission.Request) admission.Response {
	gvk := jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet)
	return s.server.mutate(ctx, &req, gvk, func(_ context.Context, _ *admission.Request, object client.Object) error {
		plan.Default(object.(*jobsetv1alpha2.JobSet))
		return nil
	})
}

// validateJobSet refuses a JobSet, as invalid, or warns of what it probably does not mean.
func (s *jobSets) validateJobSet(ctx context.Context, req admission.Request) admission.Response {
	js, old := &jobsetv1alpha2.JobSet{}, (*jobsetv1alpha2.JobSet)(nil)
	if err := json.Unmarshal(req.Object.Raw, js); err != nil {
		return badRequest(err)
	}
	if req.Operation == admissionv1.Update {
		old = &jobsetv1alpha2.JobSet{}
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return badRequest(err)
		}
	}
	errs := s.Plan.Validate(js, old)
	var warnings []string
	if old == nil && len(errs) == 0 { // the API server is not asked about what is refused anyway
		claims, err := s.claims(ctx, req.Namespace, js)
		if err != nil {
			return failure(err)
		}
		taken, err := s.taken(ctx, req.Namespace, js, claims)
		if err != nil {
			return failure(err)
		}
		errs = append(errs, taken...)
		warnings = plan.Warnings(js)
	}
	if len(errs) > 0 {
		gk := jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet).GroupKind()
		status := apierrors.NewInvalid(gk, js.Name, errs).Status()
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// claims reads the volume claims that a new JobSet would use, if it has a name already.
func (s *jobSets) claims(ctx context.Context, namespace string, js *jobsetv1alpha2.JobSet) (map[string]*corev1.PersistentVolumeClaim, error) {
	out := map[string]*corev1.PersistentVolumeClaim{}
	if js.Name == "" {
		return out, nil
	}
	for _, name := range plan.ClaimNames(js) {
		var c corev1.PersistentVolumeClaim
		err := s.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &c)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading PersistentVolumeClaim %s/%s: %w", namespace, name, err)
		}
		if err == nil {
			out[name] = &c
		}
	}
	return out, nil
}

// taken says which claims a new JobSet may not use again. If there is a JobSet of that name they are its own, and the API server will
// refuse the new one because the name is taken.
func (s *jobSets) taken(ctx context.Context, namespace string, js *jobsetv1alpha2.JobSet, claims map[string]*corev1.PersistentVolumeClaim) (field.ErrorList, error) {
	errs := plan.ValidateClaims(js, claims)
	if len(errs) == 0 {
		return nil, nil
	}
	var other jobsetv1alpha2.JobSet
	err := s.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: js.Name}, &other)
	switch {
	case err == nil:
		return nil, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("reading JobSet %s/%s: %w", namespace, js.Name, err)
	}
	return errs, nil
}

// mutatePod places a pod: a leader by affinity, a follower in the domain of its leader. A follower whose leader has no
// place yet is left as it is, and refused by the other webhook.
func (s *jobSets) mutatePod(ctx context.Context, req admission.Request) admission.Response {
	before := &corev1.Pod{}
	if err := json.Unmarshal(req.Object.Raw, before); err != nil {
		return badRequest(err)
	}
	pod := before.DeepCopy()
	if !plan.IsExclusive(pod) {
		return admission.Allowed("")
	}
	plan.LabelPriority(pod)
	if plan.IsLeader(pod) {
		plan.PlaceLeader(pod)
	} else {
		leader, err := s.leader(ctx, req.Namespace, pod)
		if err != nil {
			return failure(err)
		}
		if leader.err == nil {
			domain, err := s.domain(ctx, leader.pod)
			if err != nil {
				return admission.Denied(err.Error())
			}
			plan.PlaceFollower(pod, domain)
		}
	}
	return patched(before, pod)
}

// patched answers with the difference between two pods, so that fields that this version does not know survive.
func patched(before, after *corev1.Pod) admission.Response {
	old, err := json.Marshal(before)
	if err != nil {
		return badRequest(err)
	}
	changed, err := json.Marshal(after)
	if err != nil {
		return badRequest(err)
	}
	operations, err := jsonpatch.CreatePatch(old, changed)
	if err != nil {
		return badRequest(err)
	}
	return admission.Patched("", operations...)
}

// validatePod refuses a follower that has no domain.
func (s *jobSets) validatePod(ctx context.Context, req admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(req.Object.Raw, pod); err != nil {
		return badRequest(err)
	}
	if !plan.IsExclusive(pod) || plan.IsLeader(pod) {
		return admission.Allowed("")
	}
	leader, err := s.leader(ctx, req.Namespace, pod)
	if err != nil {
		return failure(err)
	}
	if err := plan.CheckFollower(pod, leader.err); err != nil {
		return admission.Denied(err.Error())
	}
	return admission.Allowed("")
}

// found is the leader of a pod, or why there is none.
type found struct {
	pod *corev1.Pod
	err error
}

// leader looks for the leader of a follower. The error is about the search.
func (s *jobSets) leader(ctx context.Context, namespace string, follower *corev1.Pod) (found, error) {
	var list corev1.PodList
	by := client.MatchingFields{s.PodsByJob: follower.Labels[jobsetv1alpha2.JobKeyKey]}
	if err := s.Pods.List(ctx, &list, client.InNamespace(namespace), by); err != nil {
		return found{}, fmt.Errorf("looking for the leader pod: %w", err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	pod, err := plan.LeaderOf(follower, pods)
	return found{pod, err}, nil
}

// domain reads the domain that a leader is in.
func (s *jobSets) domain(ctx context.Context, leader *corev1.Pod) (string, error) {
	topology := leader.Annotations[jobsetv1alpha2.ExclusiveTopologyAnnotation]
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err := s.cached.Get(ctx, client.ObjectKey{Name: leader.Spec.NodeName}, node)
	switch {
	case apierrors.IsNotFound(err):
		return plan.Domain(nil, leader.Spec.NodeName, topology)
	case err != nil:
		return "", fmt.Errorf("reading node %s: %w", leader.Spec.NodeName, err)
	}
	return plan.Domain(node, node.Name, topology)
}
