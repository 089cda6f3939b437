package review

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TestHugeExponents: a quantity whose parsing or comparison takes minutes is refused before it is parsed. The same text elsewhere is not.
func TestHugeExponents(t *testing.T) {
	typed := func() client.Object { return &batchv1.Job{} }
	other := func() client.Object { return &unstructured.Unstructured{} }
	const limits = `{"kind":"Job","apiVersion":"batch/v1","metadata":{"labels":{"limits":"1e99999"}},
		"spec":{"template":{"spec":{"containers":[{"args":["1e-99999"],"env":[{"name":"a","value":"1e99999"}],"resources":{"limits":{"cpu":%s}}}]}}}}`
	for name, tc := range map[string]struct {
		new      func() client.Object
		old, now string // the limit; no old one for a creation
		refused  bool
	}{
		"tiny":                           {typed, "", `"1e-999999999"`, true},
		"huge":                           {typed, "", `"1e999999999"`, true},
		"huge, of a kind without type":   {other, "", `" +1.5E+0999999999 "`, true},
		"hidden":                         {other, "", `"1\u0065999999999"`, true},
		"no string":                      {other, "", `1e99`, true},
		"beyond integers":                {typed, "", `"1e99999999999999999999"`, true},
		"at the bound":                   {typed, "", `"1e30"`, false},
		"exa":                            {typed, "", `"12E"`, false},
		"introduced":                     {typed, `"1"`, `"1e-999999999"`, true},
		"had before, such as without it": {typed, `"1e-999999999"`, `"1"`, false},
		"had before and now":             {typed, `"1e-999999999"`, `"1e-999999999"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			judged := 0
			h := Webhook{GVK: jobKind, New: tc.new, Validate: func(_ context.Context, _ *admission.Request, _, _ client.Object) error {
				judged++
				return nil
			}}
			req := forged(nil)
			req.Object.Raw = fmt.Appendf(nil, limits, tc.now)
			if tc.old != "" {
				req.Operation, req.OldObject.Raw = admissionv1.Update, fmt.Appendf(nil, limits, tc.old)
			}
			got := h.Handler().Handle(t.Context(), req)
			if got.Allowed == tc.refused || tc.refused != (judged == 0) {
				t.Fatalf("judged %d times: %+v", judged, got)
			}
			const path = "spec.template.spec.containers[0].resources.limits.cpu: Invalid value"
			if tc.refused && (got.Result.Code != http.StatusForbidden || strings.Count(got.Result.Message, "Invalid value") != 1 || !strings.Contains(got.Result.Message, path)) {
				t.Errorf("refused with %d %s", got.Result.Code, got.Result.Message)
			}
		})
	}
}
