package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/runtimes"
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

// unreadable is a reader that fails.
type unreadable struct{ client.Reader }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("cannot be read")
}

// TestStopWithoutRuntime: a TrainJob can be suspended while its runtime cannot be read, and not be resumed.
func TestStopWithoutRuntime(t *testing.T) {
	s := &server{Options: Options{Plan: plan.DefaultConfig(), Runtimes: runtimes.New(unreadable{}, unreadable{})}}
	suspended := &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lark"}}
	suspended.Spec.RuntimeRef.Name = "torch"
	running := suspended.DeepCopy()
	suspended.Spec.Suspend = new(true)
	if found, err := s.judge(t.Context(), &authenticationv1.UserInfo{}, suspended, running); err != nil || found.Err() != nil {
		t.Errorf("stop: %v, %v", err, found.Err())
	}
	if _, err := s.judge(t.Context(), &authenticationv1.UserInfo{}, running, suspended); err == nil {
		t.Error("a start is judged without the runtime")
	}
}
