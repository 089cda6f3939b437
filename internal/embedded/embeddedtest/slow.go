package embeddedtest

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// SlowCreates delays each creation of a resource by takes, until the test ends, and waits until that is in force. try is an object that it
// may try to create, without storing it.
func SlowCreates(t *testing.T, c client.Client, resource schema.GroupResource, try client.Object, takes time.Duration) {
	t.Helper()
	var asked atomic.Bool
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		if asked.Swap(true) {
			time.Sleep(takes)
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "slowly.example.com", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: new(hook.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{resource.Group}, APIVersions: []string{"*"}, Resources: []string{resource.Resource}},
		}},
	}}}
	config.GenerateName = "slowly-"
	if err := c.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), config); err != nil {
			t.Error(err)
		}
	})
	wait.Until(t, "the webhook is called", func() error {
		err := c.Create(t.Context(), try.DeepCopyObject().(client.Object), client.DryRunAll)
		if !asked.Load() {
			return fmt.Errorf("it was not: %w", err)
		}
		return nil
	})
}
