// Package overlaytest is the contract of reconcile.Overlay for its users: the versions that a component may act on between a write and the
// moment when the cache shows it.
package overlaytest

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uid is the UID of the object that is written.
const uid types.UID = "u"

// User is a component with an overlay.
type User[T client.Object] struct {
	// Object is an object of this component, without UID and version.
	Object T
	// New returns the component's own functions on a clock and an API server.
	New func(now func() time.Time, api *API) Functions[T]
}

// Functions are what the component does in production.
type Functions[T client.Object] struct {
	// Write changes an object that the cache shows, by API.
	Write func(shown T) error
	// ActsOn returns the object that the component acts on while the cache shows this one; ok is false if it waits for the cache.
	ActsOn func(shown T) (object T, ok bool)
	// Len is the number of entries of the overlay.
	Len func() int
}

// API is an API server with one object. It answers patches with a version, or with an error.
type API struct {
	client.Client
	version string
	err     error
	live    client.Object
}

// Get returns the stored object.
func (a *API) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if a.live == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
	}
	into.SetNamespace(a.live.GetNamespace())
	into.SetName(a.live.GetName())
	into.SetUID(a.live.GetUID())
	into.SetResourceVersion(a.live.GetResourceVersion())
	return nil
}

// Patch answers with the next version.
func (a *API) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if a.err != nil {
		return a.err
	}
	object.SetUID(uid)
	object.SetResourceVersion(a.version)
	return nil
}

// Status is the writer of statuses.
func (a *API) Status() client.SubResourceWriter { return status{api: a} }

type status struct {
	client.SubResourceWriter
	api *API
}

// Patch answers with the next version.
func (s status) Patch(ctx context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.api.Patch(ctx, object, patch)
}

// Run checks a user.
func Run[T client.Object](t *testing.T, u User[T]) {
	t.Helper()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "o", nil)
	for name, tc := range map[string]struct {
		base, answer string // versions of the write
		err          error
		later        time.Duration // between the write and the read
		shown        string        // by the cache, when the component acts
		of           types.UID     // the UID that it shows
		want         []string      // versions that the component may act on; "" if it may wait for the cache
		kept         int           // entries afterwards; -1: any
	}{
		"the cache shows the object before the write": {"5", "7", nil, 0, "5", uid, []string{"7", ""}, 1},
		"versions are numbers":                        {"9", "10", nil, 0, "9", uid, []string{"10", ""}, 1},
		"the cache shows the write":                   {"5", "7", nil, 0, "7", uid, []string{"7"}, 0},
		"the cache shows a later version":             {"5", "7", nil, 0, "9", uid, []string{"9"}, 0},
		"another object of the name":                  {"5", "7", nil, 0, "6", "v", []string{"6"}, -1}, // List ends the entry
		"a write that was refused":                    {"5", "7", conflict, 0, "5", uid, []string{"5"}, 0},
		"the cache does not show the write in time":   {"5", "7", nil, time.Minute, "5", uid, []string{"5", "11"}, -1},
	} {
		object := func(of types.UID, version string) T {
			o := u.Object.DeepCopyObject().(T)
			o.SetUID(of)
			o.SetResourceVersion(version)
			return o
		}
		now, api := time.Unix(1000, 0), &API{version: tc.answer, err: tc.err, live: object(uid, "11")}
		f := u.New(func() time.Time { return now }, api)
		if err := f.Write(object(uid, tc.base)); tc.err == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		now = now.Add(tc.later)
		version := ""
		if got, ok := f.ActsOn(object(tc.of, tc.shown)); ok {
			if version = got.GetResourceVersion(); got.GetUID() != tc.of {
				t.Errorf("%s: acts on the object with UID %s", name, got.GetUID())
			}
		}
		if !slices.Contains(tc.want, version) {
			t.Errorf("%s: acts on version %q, want one of %q", name, version, tc.want)
		}
		if n := f.Len(); tc.kept >= 0 && n != tc.kept {
			t.Errorf("%s: %d entries, want %d", name, n, tc.kept)
		}
	}
}
