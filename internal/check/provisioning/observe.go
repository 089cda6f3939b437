package provisioning

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check"
	plan "github.com/berth-project/berth/internal/check/plan/provisioning"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// reasonNotServed is the reason of Active=False while the API server serves no ProvisioningRequests.
const reasonNotServed = "ProvisioningRequestsNotServed"

const notServed = "the API server serves no ProvisioningRequests of autoscaling.x-k8s.io: install its CRD, and an autoscaler for it"

// active decides the condition Active of a check.
func (p *provisioner) active(ctx context.Context, of *kueue.AdmissionCheck) (metav1.Condition, time.Duration, error) {
	version, unserved, err := p.served(ctx)
	if err != nil {
		return metav1.Condition{}, 0, err
	}
	config, why, err := p.configOf(ctx, of)
	out := metav1.Condition{Status: metav1.ConditionFalse, Reason: kueue.ReasonBadParametersRef, Message: why}
	switch {
	case err != nil:
	case version == "":
		out.Reason, out.Message = reasonNotServed, unserved
	case config != nil:
		out.Status, out.Reason, out.Message = metav1.ConditionTrue, kueue.ReasonActive, "The admission check is active"
	}
	return out, 0, err
}

// configOf returns the configuration of a check, or why it has none.
func (p *provisioner) configOf(ctx context.Context, of *kueue.AdmissionCheck) (config *kueue.ProvisioningRequestConfig, why string, err error) {
	name, why := plan.ConfigName(of)
	if why != "" {
		return nil, why, nil
	}
	config = &kueue.ProvisioningRequestConfig{}
	err = p.cache.Get(ctx, client.ObjectKey{Name: name}, config, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, "ProvisioningRequestConfig " + name + " does not exist", nil
	}
	return config, "", err
}

// observe reads what decides about the checks of a Workload.
func (p *provisioner) observe(ctx context.Context, wl *kueue.Workload, checks []*kueue.AdmissionCheck, own check.Owned) (check.Facts, error) {
	version, unserved, err := p.served(ctx)
	if err != nil {
		return nil, err
	}
	f := &plan.Facts{
		Workload: wl, Version: version, DeleteOnEviction: p.DeleteOnEviction, Now: metav1.NewTime(p.Now()), Flavors: podset.Flavors{},
	}
	for _, of := range checks {
		c := plan.Checked{Check: of}
		if c.Config, c.Why, err = p.configOf(ctx, of); err != nil {
			return nil, err
		}
		if version == "" {
			c.Config, c.Why = nil, unserved
		}
		f.Checks = append(f.Checks, c)
	}
	if version == "" {
		return f, nil
	}
	if f.Flavors, err = lookup.Flavors(ctx, p.cache, wl, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	if f.Requests, err = p.requests(ctx, wl, version, own); err != nil {
		return nil, err
	}
	f.Templates, err = p.templates(ctx, wl, own)
	return f, err
}

// requests returns the ProvisioningRequests that a Workload controls.
func (p *provisioner) requests(ctx context.Context, wl *kueue.Workload, version string, own check.Owned) (out []*plan.Request, err error) {
	list := view.NewList(request(version).GroupVersionKind())
	err = p.cache.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{byOwner: string(wl.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var shown []client.Object
	for i := range list.Items {
		shown = append(shown, &list.Items[i])
	}
	for _, o := range own(shown, func(o client.Object) bool { return isRequest(o) && metav1.IsControlledBy(o, wl) }) {
		r, err := plan.NewRequest(o.(*unstructured.Unstructured))
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func isRequest(o client.Object) bool {
	_, is := o.(*unstructured.Unstructured)
	return is
}

// templates returns the PodTemplates of requests of a Workload.
func (p *provisioner) templates(ctx context.Context, wl *kueue.Workload, own check.Owned) (out []*metav1.PartialObjectMetadata, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodTemplateList"))
	err = p.cache.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{byWorkload: string(wl.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var shown []client.Object
	for i := range list.Items {
		shown = append(shown, &list.Items[i])
	}
	of := func(o client.Object) bool {
		return !isRequest(o) && o.GetAnnotations()[plan.WorkloadUIDAnnotation] == string(wl.UID)
	}
	for _, o := range own(shown, of) {
		meta := podTemplate()
		switch o := o.(type) {
		case *corev1.PodTemplate: // as it was created
			meta.ObjectMeta = o.ObjectMeta
		case *metav1.PartialObjectMetadata:
			meta.ObjectMeta = o.ObjectMeta
		}
		out = append(out, meta)
	}
	return out, nil
}
