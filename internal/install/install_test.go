package install

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestApplyAgain: an apply that the API server was too busy for is tried again, and one that it refused is not.
func TestApplyAgain(t *testing.T) {
	pause := tries.Duration
	tries.Duration = 0
	t.Cleanup(func() { tries.Duration = pause })
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, tc := range map[string]struct {
		err   error
		times int // that it fails
		calls int
		fails bool
	}{
		"it times out once": {apierrors.NewTimeoutError("too slow", 1), 1, 2, false},
		"it always does":    {apierrors.NewServerTimeout(resource, "patch", 1), 99, tries.Steps, true},
		"it is forbidden":   {apierrors.NewForbidden(resource, "c", nil), 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			c := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					if calls++; calls <= tc.times {
						return tc.err
					}
					return nil
				},
			}).Build()
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}}}
			if err := apply(t.Context(), c, u); (err != nil) != tc.fails || calls != tc.calls {
				t.Errorf("%v after %d calls, want %d", err, calls, tc.calls)
			}
		})
	}
}
