package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-project/berth/internal/reconcile"
)

var (
	jobs   = schema.GroupResource{Group: "batch", Resource: "jobs"}
	broken = apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "a", field.ErrorList{field.Invalid(field.NewPath("spec"), "x", "no")})
)

// denial returns the refusal of a webhook as the API server words it.
func denial(message string) error {
	err := apierrors.NewForbidden(jobs, "a", errors.New(""))
	err.ErrStatus.Message = message
	return err
}

func TestIsRefused(t *testing.T) {
	immutable := apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "a",
		field.ErrorList{field.Invalid(field.NewPath("spec", "template"), "x", "field is immutable")})
	leaving := apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "a",
		field.ErrorList{field.Invalid(field.NewPath("spec"), "x", "PersistentVolumeClaim c is being deleted; create the JobSet when it is gone")})
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                   {nil, false},
		"another error":             {errors.New("connection reset"), false},
		"invalid":                   {broken, true},
		"invalid, wrapped":          {fmt.Errorf("creating: %w", errors.Join(broken, errors.New("x"))), true},
		"pods of an earlier run":    {immutable, false},
		"claims of an earlier run":  {leaving, false},
		"unreadable":                {apierrors.NewBadRequest("x"), true},
		"too large":                 {apierrors.NewRequestEntityTooLargeError("x"), true},
		"denied by a webhook":       {denial(`admission webhook "a.io" denied the request: no`), true},
		"denied by a policy":        {denial(`jobs "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`), true},
		"quota is used up":          {apierrors.NewForbidden(jobs, "a", errors.New("exceeded quota: q, requested: count/jobs.batch=1")), false},
		"no permission":             {apierrors.NewForbidden(jobs, "a", errors.New(`User "u" cannot create resource "jobs"`)), false},
		"a webhook does not answer": {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
		"conflict":                  {apierrors.NewConflict(jobs, "a", errors.New("x")), false},
		"it exists":                 {apierrors.NewAlreadyExists(jobs, "a"), false},
		"it is gone":                {apierrors.NewNotFound(jobs, "a"), false},
		"too many requests":         {apierrors.NewTooManyRequests("x", 1), false},
	} {
		if got := reconcile.IsRefused(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestRefusalsBecomeFinal(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := reconcile.NewRefusals(10*time.Second, func() time.Time { return now })
	step := func(after time.Duration, err error, want bool) {
		t.Helper()
		now = now.Add(after)
		if got := r.IsFinal("u", err); got != want {
			t.Errorf("at %v: %v, want %v", now.Sub(time.Unix(1_800_000_000, 0)), got, want)
		}
	}
	step(0, broken, false)
	step(9*time.Second, broken, false)
	if r.IsFinal("other", broken) {
		t.Error("another object shares the time")
	}
	step(time.Second, broken, true)
	step(time.Second, broken, true) // until another result comes
	step(time.Second, errors.New("something else"), false)
	step(0, broken, false) // counted anew
	step(6*time.Minute, nil, false)
	step(0, broken, false)
	step(10*time.Second, broken, true)
}
