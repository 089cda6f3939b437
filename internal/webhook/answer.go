package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-project/berth/internal/plan/job"
)

// refused is an error that is the client's to mend.
type refused struct{ error }

// refuse makes the refusal of an object, or nil if there is nothing wrong.
func refuse(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return refused{errs.ToAggregate()}
}

// failure is the answer to a request that was refused, or that could not be judged.
func failure(err error) admission.Response {
	if _, ok := errors.AsType[refused](err); ok {
		return admission.Denied(err.Error())
	}
	return admission.Errored(http.StatusInternalServerError, err)
}

// decode reads an object. Jobs are of the type that their descriptor says.
func (s *server) decode(raw runtime.RawExtension, gvk schema.GroupVersionKind) (client.Object, error) {
	var object runtime.Object
	var err error
	if at := slices.IndexFunc(s.descriptors, func(d *job.Descriptor) bool { return d.GVK == gvk }); at >= 0 {
		object = s.descriptors[at].New()
	} else if object, err = s.scheme.New(gvk); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw.Raw, object); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", gvk.Kind, err)
	}
	return object.(client.Object), nil
}

// mutate answers with the changes as a patch. The patch is the difference between what was understood of the object
// before and after, so fields that this version does not know survive.
func (s *server) mutate(ctx context.Context, req *admission.Request, gvk schema.GroupVersionKind, change defaulter) admission.Response {
	object, err := s.decode(req.Object, gvk)
	if err != nil {
		return badRequest(err)
	}
	before, err := json.Marshal(object)
	if err != nil {
		return badRequest(err)
	}
	if err := change(ctx, req, object); err != nil {
		return failure(err)
	}
	after, err := json.Marshal(object)
	if err != nil {
		return badRequest(err)
	}
	operations, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if !hasSpec(req.Object.Raw) {
		empty := jsonpatch.NewOperation("add", "/spec", map[string]any{})
		operations = append([]jsonpatch.Operation{empty}, operations...)
	}
	return admission.Patched("", operations...)
}

// hasSpec says whether an object was sent with a spec. The schema's defaults for what is in it apply only then, so one
// that is left out is sent back empty: every kind that is changed here has a spec (spec: 10 §2.2).
func hasSpec(raw []byte) bool {
	var sent struct {
		Spec json.RawMessage `json:"spec"`
	}
	return json.Unmarshal(raw, &sent) == nil && sent.Spec != nil
}

// validate answers whether the object may be stored.
func (s *server) validate(ctx context.Context, req *admission.Request, gvk schema.GroupVersionKind, check validator) admission.Response {
	object, err := s.decode(req.Object, gvk)
	if err != nil {
		return badRequest(err)
	}
	var old client.Object
	if req.Operation == admissionv1.Update {
		if old, err = s.decode(req.OldObject, gvk); err != nil {
			return badRequest(err)
		}
	}
	if err := check(ctx, req, object, old); err != nil {
		return failure(err)
	}
	warnings := append(notYet(object), s.inert(object)...)
	if old != nil { // only of what the change brings: the rest was told before
		known := append(notYet(old), s.inert(old)...)
		warnings = slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(known, w) })
	}
	more, err := s.warn(ctx, req.Namespace, gvk, object, old)
	if err != nil {
		return failure(err)
	}
	return admission.Allowed("").WithWarnings(append(warnings, more...)...)
}
