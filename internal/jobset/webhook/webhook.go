// Package webhook guards JobSets, and places their pods where a JobSet has a topology domain for itself (spec: 60 §3.5, §5.6).
package webhook

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/review"
)

// Options configure the webhooks of JobSets and of their pods.
type Options struct {
	Plan plan.Config
	// Leaders finds live leaders of the Job of a follower, see plan.LeaderOf. They must not be modified.
	Leaders func(ctx context.Context, namespace string, follower *corev1.Pod) ([]*corev1.Pod, error)
}

type server struct {
	Options
	cached, live client.Reader
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=kueue-manager-jobset-role

var gvk = jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet)

// Webhooks returns the webhooks of JobSets. The webhooks of pods are called only for pods with exclusive placement: no other pod depends
// on Berth. Their paths differ from upstream's, which belong to the integration of JobSets with queues. r is nil if they are not
// served, as for a webhook configuration.
func Webhooks(o Options, r *review.Readers) []review.Webhook {
	s := &server{Options: o}
	if r != nil {
		s.cached, s.live = r.Client, r.Live
	}
	jobSet := review.Webhook{GVK: gvk, Resources: []string{jobsetv1alpha2.ResourceJobSets}, New: func() client.Object { return &jobsetv1alpha2.JobSet{} }}
	pod := review.Webhook{
		GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Resources: []string{"pods"}, New: func() client.Object { return &corev1.Pod{} },
		Objects: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: jobsetv1alpha2.JobSetNameKey, Operator: metav1.LabelSelectorOpExists,
		}}},
		When: admissionregistrationv1.MatchCondition{
			Name: "placed-exclusively",
			Expression: fmt.Sprintf("has(object.metadata.annotations) && %q in object.metadata.annotations && !(%q in object.metadata.annotations)",
				jobsetv1alpha2.ExclusiveTopologyAnnotation, jobsetv1alpha2.NodeSelectorStrategyAnnotation),
		},
	}
	out := []review.Webhook{jobSet, pod, jobSet, pod}
	out[0].Path, out[0].Defaults = "/jobset/mutate-jobset", defaultJobSet
	out[1].Path, out[1].Defaults = "/jobset/mutate-pod", s.placePod
	out[2].Path, out[2].Validate, out[2].Updates = "/jobset/validate-jobset", s.validateJobSet, true
	out[3].Path, out[3].Validate = "/jobset/validate-pod", s.validatePod
	return out
}

func defaultJobSet(_ context.Context, _ *admission.Request, object client.Object) error {
	plan.Default(object.(*jobsetv1alpha2.JobSet))
	return nil
}

// validateJobSet refuses a JobSet as invalid, or warns of probable mistakes.
func (s *server) validateJobSet(ctx context.Context, req *admission.Request, object, oldObject client.Object) error {
	js := object.(*jobsetv1alpha2.JobSet)
	old, _ := oldObject.(*jobsetv1alpha2.JobSet)
	errs := s.Plan.Validate(js, old)
	var warnings []string
	if old == nil && len(errs) == 0 { // a refused JobSet needs no further requests
		claims, err := s.claims(ctx, req.Namespace, js)
		if err != nil {
			return err
		}
		if errs, err = s.taken(ctx, req.Namespace, js, claims); err != nil {
			return err
		}
		warnings = plan.Warnings(js)
	}
	if len(errs) > 0 {
		return review.Invalid{StatusError: apierrors.NewInvalid(gvk.GroupKind(), js.Name, errs)}
	}
	review.Advise(ctx, warnings...)
	return nil
}

// claims reads the existing volume claims of a new JobSet, if it has a name already.
func (s *server) claims(ctx context.Context, namespace string, js *jobsetv1alpha2.JobSet) (map[string]*corev1.PersistentVolumeClaim, error) {
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

// taken returns errors about the claims that a new JobSet may not use again. If a JobSet of that name exists the claims are its own, and the API
// server will refuse the new JobSet because the name is taken.
func (s *server) taken(ctx context.Context, namespace string, js *jobsetv1alpha2.JobSet, claims map[string]*corev1.PersistentVolumeClaim) (field.ErrorList, error) {
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

// placePod places a pod: a leader by affinity, a follower in the domain of its leader. A follower whose leader has no
// domain yet is not changed, and refused by the other webhook.
func (s *server) placePod(ctx context.Context, req *admission.Request, object client.Object) error {
	pod := object.(*corev1.Pod)
	if !plan.IsExclusive(pod) {
		return nil
	}
	plan.LabelPriority(pod)
	if plan.IsLeader(pod) {
		plan.PlaceLeader(pod)
		return nil
	}
	leader, err := s.leader(ctx, req.Namespace, pod)
	if err != nil || leader.err != nil {
		return err
	}
	domain, err := s.domain(ctx, leader.pod)
	if err != nil {
		return review.Refused{Mistakes: err}
	}
	plan.PlaceFollower(pod, domain)
	return nil
}

// validatePod refuses a follower without a domain.
func (s *server) validatePod(ctx context.Context, req *admission.Request, object, _ client.Object) error {
	pod := object.(*corev1.Pod)
	if !plan.IsExclusive(pod) || plan.IsLeader(pod) {
		return nil
	}
	leader, err := s.leader(ctx, req.Namespace, pod)
	if err != nil {
		return err
	}
	if err := plan.CheckFollower(pod, leader.err); err != nil {
		return review.Refused{Mistakes: err}
	}
	return nil
}

// found is the leader of a pod, or the reason for having none.
type found struct {
	pod *corev1.Pod
	err error
}

// leader finds the leader of a follower. The error is about the search.
func (s *server) leader(ctx context.Context, namespace string, follower *corev1.Pod) (found, error) {
	pods, err := s.Leaders(ctx, namespace, follower)
	if err != nil {
		return found{}, fmt.Errorf("looking for the leader pod: %w", err)
	}
	pod, err := plan.LeaderOf(follower, pods)
	return found{pod, err}, nil
}

func (s *server) domain(ctx context.Context, leader *corev1.Pod) (string, error) {
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
