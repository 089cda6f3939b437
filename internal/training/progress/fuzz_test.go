package progress_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/progress"
)

// anybody accepts every reporter.
type anybody struct{}

func (anybody) Verify(context.Context, string, string, string) (string, error) { return "pod", nil }
func (anybody) Allow(string) bool                                              { return true }

// FuzzReport: any report of progress is answered, within bounds.
func FuzzReport(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", "[", `{"trainerStatus":{"progressPercentage":50,"lastUpdatedTime":"2026-01-01T00:00:00Z"}}`,
		`{"trainerStatus":{"progressPercentage":99999999999,"metrics":[{"name":"loss","value":"NaN"}]}}`,
		`{"trainerStatus":{"estimatedRemainingSeconds":-1,"metrics":null}}`,
	} {
		f.Add(plan.StatusPath("lab", "lark"), body)
	}
	f.Add("/apis/trainer.kubeflow.org/v1alpha1/namespaces//trainjobs//status", "{}")
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{SubResourceApply: func(
		context.Context, client.Client, string, apiruntime.ApplyConfiguration, ...client.SubResourceApplyOption,
	) error {
		return nil
	}}).Build()
	s := &progress.Server{Client: api, Verify: anybody{}, Log: logr.Discard(), Answered: func(int) {}}
	f.Fuzz(func(t *testing.T, path, body string) {
		embeddedtest.Bounded(t, len(path)+len(body), func() {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.URL.Path = path
			r.Header.Set("Authorization", "Bearer t")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Errorf("answered %d: %s", w.Code, w.Body)
			}
		})
	})
}
