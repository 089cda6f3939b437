package webhook

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// TestElasticAnnotation: annotations of the queue are no concern of the webhooks of runtimes, whatever the queue makes of them.
func TestElasticAnnotation(t *testing.T) {
	raw, err := json.Marshal(&trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "torch", Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, h := range Webhooks(Options{}, nil) {
		if h.GVK.Kind != trainerv1alpha1.KindTrainingRuntime {
			continue
		}
		asked++
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Kind: metav1.GroupVersionKind(h.GVK), Operation: admissionv1.Create, Namespace: "ns", Name: "torch",
		}}
		req.Object.Raw = raw
		if got := h.Handler().Handle(t.Context(), req); !got.Allowed && got.Result.Code != http.StatusForbidden || strings.Contains(strings.Join(got.Warnings, ""), "resized") {
			t.Errorf("answered with %+v", got)
		}
	}
	if asked != 1 {
		t.Errorf("%d webhooks of TrainingRuntimes", asked)
	}
}
