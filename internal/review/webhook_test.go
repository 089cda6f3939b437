package review

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// TestUnknownFieldsSurvive sends a job with a field that this version does not know through a mutation.
func TestUnknownFieldsSurvive(t *testing.T) {
	h := Webhook{GVK: jobKind, New: func() client.Object { return &batchv1.Job{} }, Defaults: func(_ context.Context, _ *admission.Request, o client.Object) error {
		o.(*batchv1.Job).Spec.Suspend = new(true)
		return nil
	}}
	req := forged(nil)
	req.Object.Raw = []byte(`{"metadata":{"name":"x"},"spec":{"fieldOfTheFuture":1,"template":{}}}`)
	response := h.Handler().Handle(t.Context(), req)
	if len(response.Patches) != 1 || response.Patches[0].Path != "/spec/suspend" || response.Patches[0].Operation != "add" {
		t.Errorf("patches %v", response.Patches)
	}
}

// TestWarnElastic: an elastic job gets a warning that it is not resized while the feature gate is off.
func TestWarnElastic(t *testing.T) {
	elastic := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"}}}
	for name, tc := range map[string]struct {
		object client.Object
		on     bool
		want   int
	}{
		"off":                {elastic, false, 1},
		"on":                 {elastic, true, 0},
		"off, but for a job": {&batchv1.Job{}, false, 0},
	} {
		if got := WarnElastic(tc.object, &job.Config{ElasticJobs: tc.on}); len(got) != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
