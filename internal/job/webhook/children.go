package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Three layers gate the children of a job: the job, its children, and their pods. Removed gates are restored, and early ungating is
// refused. The rules check the objects, not the user, so they apply to Berth's own writes too, also during a restart (spec: 30
// §4.10.3, Limitation 2).

// ofChildPods returns the webhooks of the pods of gated children. They do not depend on the CRDs in the cluster: the writer of the
// webhook configurations cannot know these, and a configured webhook that is not served would block the pods. Each request checks
// whether the job's children are gated.
func (s *server) ofChildPods(d *job.Descriptor) []review.Webhook {
	if !s.gatesPodsOf(d) {
		return nil
	}
	h := review.Webhook{
		GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Resources: []string{"pods"}, New: func() client.Object { return &corev1.Pod{} },
		Namespaces: s.o.Namespaces.DeepCopy(),
		Objects:    &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: d.ManagedChildren.PodLabel, Operator: metav1.LabelSelectorOpExists}}},
	}
	of := strings.ToLower(d.GVK.Kind)
	create, update := h, h
	create.Name, create.Path = review.NewName("pod."+of, true), review.NewPath(h.GVK, true)+"-of-"+of
	create.Defaults = s.gateChildPod(d)
	update.Name, update.Path = review.NewName("pod."+of, false), review.NewPath(h.GVK, false)+"-of-"+of
	update.Updates, update.Validate = true, s.validateUngating(d)
	return []review.Webhook{create, update}
}

// gatesPodsOf reports whether the pods of a kind's gated children have webhooks.
func (s *server) gatesPodsOf(d *job.Descriptor) bool {
	return d.ManagedChildren.CanGate() && d.ManagedChildren.Upgrades.Configured(s.o.Jobs)
}

// gatingKind returns the kind of the job that gates an object; nil for none.
func (s *server) gatingKind(d *job.Descriptor, v *job.Verdict) *job.Descriptor {
	if v.Mode != job.Follows || !d.IsGatedBy(v.Ancestor) {
		return nil
	}
	at := slices.IndexFunc(s.descriptors, func(x *job.Descriptor) bool { return x.GVK == v.Ancestor.GVK && x.ManagedChildren.CanGate() })
	if at < 0 {
		return nil
	}
	return s.descriptors[at]
}

// settingOfAncestor reads the ancestor of an object and the ancestor's dependents.
func (s *server) settingOfAncestor(ctx context.Context, d *job.Descriptor, owner *job.Owner, from lookup.Source) (*job.Setting, error) {
	namespace, name := owner.Object.GetNamespace(), owner.Object.GetName()
	ancestor := &unstructured.Unstructured{}
	ancestor.SetGroupVersionKind(d.GVK)
	if err := from.Children.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ancestor); err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", d.GVK.Kind, namespace, name, err)
	}
	f, err := lookup.ReadDependents(ctx, from, d, ancestor, nil)
	if err != nil {
		return nil, err
	}
	in := &job.Setting{Config: s.o.Jobs, Ancestor: &job.Owner{GVK: d.GVK, Object: ancestor}}
	f.Into(in)
	return in, nil
}

// guard restores gates and suspend fields that a change removed, and refuses early ungating.
func (s *server) guard(ctx context.Context, d *job.Descriptor, req *admission.Request, object client.Object) error {
	if ok, err := s.managed(ctx, req.Namespace); err != nil || !ok || object.GetDeletionTimestamp() != nil {
		return err
	}
	old, err := review.Decode(req.OldObject, d.GVK.Kind, d.New())
	if err != nil {
		return err
	}
	v, err := s.gate.Judge(ctx, d, req.Namespace, object)
	if err != nil || v.Err != nil {
		return err // owners of a stored object may be missing
	}
	return s.checkGuard(ctx, d, &v, object, old)
}

func (s *server) checkGuard(ctx context.Context, d *job.Descriptor, v *job.Verdict, object, old job.Object) (err error) {
	in := &job.Setting{Config: s.o.Jobs, Mode: v.Mode, Ancestor: v.Ancestor}
	if d.ManagedChildren.CanGate() && v.Mode == job.Managed && d.IsSuspended(old) && !d.IsSuspended(object) {
		if in.Workloads, err = s.workloadsOf(ctx, old); err != nil {
			return err
		}
	}
	warnings, errs := d.Guard.Check(object, old, in)
	if gating := s.gatingKind(d, v); gating != nil && len(errs) > 0 { // only the dependents can justify the refusal
		if in, err = s.settingOfAncestor(ctx, gating, v.Ancestor, lookup.Live(s.live)); err != nil {
			return err
		}
		in.Mode = v.Mode
		warnings, errs = d.Guard.Check(object, old, in)
	}
	if len(errs) == 0 {
		review.Advise(ctx, warnings...)
	}
	return review.Refuse(errs)
}

// workloadsOf returns the Workloads of a job from the cache, or from the API server if none is admitted there.
func (s *server) workloadsOf(ctx context.Context, of client.Object) ([]*kueue.Workload, error) {
	out, err := lookup.WorkloadsOf(ctx, s.reader, of)
	if err != nil || slices.ContainsFunc(out, lifecycle.IsAdmitted) {
		return out, err
	}
	return lookup.WorkloadsOf(ctx, s.live, of)
}

// siblings adds the children of the gating job of a new object to the setting.
func (s *server) siblings(ctx context.Context, d *job.Descriptor, v *job.Verdict, in *job.Setting) error {
	gating := s.gatingKind(d, v)
	if gating == nil {
		return nil
	}
	f, err := lookup.ReadDependents(ctx, lookup.Source{Children: s.cache}, gating, v.Ancestor.Object, []*kueue.Workload{})
	if err != nil {
		return err
	}
	in.Children = f.Children
	return nil
}

// gatingJob returns the job that gates the controller of a pod; nil for none.
func (s *server) gatingJob(ctx context.Context, d *job.Descriptor, namespace string, pod *corev1.Pod) (*job.Owner, error) {
	if ok, err := s.managed(ctx, namespace); err != nil || !ok {
		return nil, err
	}
	ref := metav1.GetControllerOf(pod)
	if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind) != d.ManagedChildren.Child {
		return nil, nil
	}
	at := slices.IndexFunc(s.o.Descriptors, func(x *job.Descriptor) bool { return x.GVK == d.ManagedChildren.Child })
	child := &unstructured.Unstructured{}
	child.SetGroupVersionKind(d.ManagedChildren.Child)
	key := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	err := s.cache.Get(ctx, key, child)
	if apierrors.IsNotFound(err) || (err == nil && child.GetUID() != ref.UID) {
		err = s.live.Get(ctx, key, child)
	}
	switch {
	case apierrors.IsNotFound(err) || (err == nil && child.GetUID() != ref.UID):
		return nil, nil // it is being deleted
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", d.ManagedChildren.Child.Kind, key, err)
	}
	v, err := s.gate.Judge(ctx, s.o.Descriptors[at], namespace, child)
	if err != nil || s.gatingKind(s.o.Descriptors[at], &v) != d || !job.IsElastic(v.Ancestor.Object) {
		return nil, err
	}
	return v.Ancestor, nil
}

// gateChildPod adds the gate to a new pod of a gated child, if the child's template has lost it.
func (s *server) gateChildPod(d *job.Descriptor) review.Defaulter {
	return func(ctx context.Context, req *admission.Request, object client.Object) error {
		pod := object.(*corev1.Pod)
		if podset.HasGate(pod.Spec.SchedulingGates) || pod.Spec.NodeName != "" {
			return nil
		}
		gating, err := s.gatingJob(ctx, d, req.Namespace, pod)
		if err == nil && gating != nil {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, podset.ElasticGate)
		}
		return err
	}
}

// validateUngating allows the removal of a pod's gate only if there is room for the pod.
func (s *server) validateUngating(d *job.Descriptor) review.Validator {
	return func(ctx context.Context, req *admission.Request, object, oldObject client.Object) error {
		if req.Operation != admissionv1.Update {
			return nil
		}
		pod, old := object.(*corev1.Pod), oldObject.(*corev1.Pod)
		if !podset.HasGate(old.Spec.SchedulingGates) || podset.HasGate(pod.Spec.SchedulingGates) {
			return nil
		}
		gating, err := s.gatingJob(ctx, d, req.Namespace, old)
		if err != nil || gating == nil {
			return err
		}
		mayRun := func(from lookup.Source) (bool, error) {
			in, err := s.settingOfAncestor(ctx, d, gating, from)
			return err == nil && d.ManagedChildren.Upgrades.MayRun(in.Ancestor.Object.(job.Object), old, in), err
		}
		if s.o.Gated != nil {
			if may, _ := mayRun(*s.o.Gated); may { // the API server knows better than a cache that refuses
				return nil
			}
		}
		if may, err := mayRun(lookup.Live(s.live)); err != nil || may {
			return err
		}
		return review.Refuse(field.ErrorList{field.Forbidden(field.NewPath("spec", "schedulingGates"), "the gate "+kueue.ElasticJobSchedulingGate+" of a pod of "+
			d.GVK.Kind+" "+gating.Object.GetName()+" stays until there is quota for the pod; Berth takes it off then")})
	}
}

// keepGates refuses to take the gate of elastic jobs, or of queued pods, off a pod. The manager may: it counts the pods that it ungates.
// Pods of jobs with gated children have a rule of their own.
func (s *server) keepGates(ctx context.Context, req *admission.Request, pod, old *corev1.Pod) error {
	if s.o.Self == "" || req.UserInfo.Username == s.o.Self || old.DeletionTimestamp != nil {
		return nil
	}
	lost := func(gate string) bool { return job.PodHasGate(old, gate) && !job.PodHasGate(pod, gate) }
	gate := kueue.AdmissionSchedulingGate
	if lost(kueue.ElasticJobSchedulingGate) {
		gate = kueue.ElasticJobSchedulingGate
		for _, d := range s.descriptors {
			if !s.gatesPodsOf(d) {
				continue
			}
			if gating, err := s.gatingJob(ctx, d, req.Namespace, old); err != nil || gating != nil {
				return err
			}
		}
	}
	if !lost(gate) {
		return nil
	}
	return review.Refuse(field.ErrorList{field.Forbidden(field.NewPath("spec", "schedulingGates"), "the gate "+gate+
		" stays until the pod is admitted; Berth takes it off then")})
}
