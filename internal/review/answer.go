package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-project/berth/internal/inflight"
)

// Refused is a client error: the answer is 403 with its text.
type Refused struct{ Mistakes error }

func (r Refused) Error() string { return r.Mistakes.Error() }

// Unwrap returns the mistakes.
func (r Refused) Unwrap() error { return r.Mistakes }

// Refuse makes the refusal of an object, or nil if there are no mistakes.
func Refuse(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return Refused{errs.ToAggregate()}
}

// Invalid refuses an object as the API server does for its schema: 422 with the mistakes as causes.
type Invalid struct{ *apierrors.StatusError }

// failure is the answer to a request that was refused or could not be judged.
func failure(err error) admission.Response {
	if invalid, ok := errors.AsType[Invalid](err); ok {
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &invalid.ErrStatus}}
	}
	if _, ok := errors.AsType[Refused](err); ok || errors.Is(err, errTooMuch) {
		return admission.Denied(err.Error())
	}
	if errors.Is(err, inflight.ErrFull) {
		return busy()
	}
	return admission.Errored(http.StatusInternalServerError, err)
}

func badRequest(err error) admission.Response { return admission.Errored(http.StatusBadRequest, err) }

// Decode reads an object of a request. kind is for the error. Exponents of quantities are bounded.
func Decode[T client.Object](raw runtime.RawExtension, kind string, into T) (T, error) {
	text, _, err := boundExponents(raw.Raw)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return into, fmt.Errorf("decoding %s: %w", kind, err)
	}
	return into, nil
}

// mutate answers with the changes as a patch: the difference between the object as decoded before and after, so fields that this version
// does not know survive. A new object that cannot be decoded is left unchanged: the schema, which is checked next, names the wrong field.
// If the schema accepts it, the validating webhook refuses the object.
func (h *Webhook) mutate(ctx context.Context, req *admission.Request) admission.Response {
	object, err := Decode(req.Object, h.GVK.Kind, h.New())
	if err != nil && req.Operation == admissionv1.Create {
		return admission.Allowed("")
	}
	if err != nil {
		return badRequest(err)
	}
	before := object.DeepCopyObject()
	if err := h.Defaults(ctx, req, object); err != nil {
		return failure(err)
	}
	operations, err := difference(before, object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if operations, err = rooted(req.Object.Raw, operations); err != nil {
		return badRequest(err)
	}
	return admission.Patched("", operations...)
}

// difference returns the patch from one object to the other. Unchanged objects, the common case, are not encoded.
func difference(before, after runtime.Object) ([]jsonpatch.Operation, error) {
	if reflect.DeepEqual(before, after) {
		return nil, nil
	}
	was, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return jsonpatch.CreatePatch(was, is)
}

// rooted prepends operations that create the parents of added fields: a sent object may omit what its Go type always has. The spec is
// always created, because the schema's defaults in it apply only then: every kind that is changed here has one (spec: 10 §2.2).
func rooted(raw []byte, operations []jsonpatch.Operation) ([]jsonpatch.Operation, error) {
	if len(operations) == 0 { // the top level is enough
		var sent map[string]json.RawMessage
		if err := json.Unmarshal(raw, &sent); err != nil {
			return nil, err
		}
		if spec := sent["spec"]; spec != nil && string(spec) != "null" {
			return nil, nil
		}
	}
	var sent any
	if err := json.Unmarshal(raw, &sent); err != nil {
		return nil, err
	}
	var made []jsonpatch.Operation
	reach := func(keys ...string) { // creates the parents of the last key
		at, path := sent, ""
		for i, key := range keys[:len(keys)-1] {
			path += "/" + key
			_, notIndex := strconv.Atoi(keys[i+1])
			switch parent := at.(type) {
			case map[string]any:
				name := strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
				if parent[name] == nil && notIndex != nil {
					parent[name] = map[string]any{}
					made = append(made, jsonpatch.NewOperation("add", path, map[string]any{}))
				}
				at = parent[name]
			case []any:
				index, err := strconv.Atoi(key)
				if err != nil || index >= len(parent) {
					return
				}
				at = parent[index]
			default:
				return
			}
		}
	}
	reach("spec", "")
	for _, o := range operations {
		if o.Operation == "add" {
			reach(strings.Split(strings.TrimPrefix(o.Path, "/"), "/")...)
		}
	}
	return append(made, operations...), nil
}

// validate answers whether the object may be stored.
func (h *Webhook) validate(ctx context.Context, req *admission.Request) admission.Response {
	object, err := Decode(req.Object, h.GVK.Kind, h.New())
	if err != nil {
		return badRequest(err)
	}
	if err := checkExponents(req); err != nil {
		return failure(err)
	}
	var old client.Object
	if req.Operation == admissionv1.Update {
		if old, err = Decode(req.OldObject, h.GVK.Kind, h.New()); err != nil {
			return badRequest(err)
		}
	}
	if err := h.Validate(ctx, req, object, old); err != nil {
		return failure(err)
	}
	if h.Warn == nil {
		return admission.Allowed("")
	}
	warnings := h.Warn(object)
	if old != nil && len(warnings) > 0 { // only new warnings: the others were sent before
		known := h.Warn(old)
		warnings = slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(known, w) })
	}
	return admission.Allowed("").WithWarnings(warnings...)
}
