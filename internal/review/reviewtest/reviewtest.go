// Package reviewtest has the shared parts of webhook tests: a server that an API server trusts, the fields that a refusal names, and
// match conditions evaluated as an API server does.
package reviewtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	apiadmission "k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/review"
)

// NewServer makes the webhook server of a manager, on a free port of this machine. ca is its certificate, for webhook configurations.
func NewServer(t testing.TB) (server ctrlwebhook.Server, url string, ca []byte) {
	t.Helper()
	port := embeddedtest.FreePort(t)
	ca, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(ca, key)
	if err != nil {
		t.Fatal(err)
	}
	return ctrlwebhook.NewServer(ctrlwebhook.Options{Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		},
	}}), fmt.Sprintf("https://127.0.0.1:%d", port), ca
}

// Fields are the paths of the fields that a refusal names, sorted. Any other error fails the test.
func Fields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[review.Refused](err); !ok {
		t.Fatalf("%v is no refusal", err)
	}
	var out []string
	all, _ := errors.AsType[utilerrors.Aggregate](err)
	for _, e := range all.Errors() {
		one, _ := errors.AsType[*field.Error](e)
		out = append(out, one.Field)
	}
	slices.Sort(out)
	return out
}

// Run asks a validator about an object, and returns the fields that it refuses.
func Run(t *testing.T, check review.Validator, object, old client.Object) []string {
	t.Helper()
	return Fields(t, check(t.Context(), &admission.Request{}, object, old))
}

// Fatal is implemented by tests and by properties.
type Fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Condition compiles a match condition as the oldest supported Kubernetes does. The function reports whether the webhook is called.
func Condition(t Fatal, expression string) func(t Fatal, object, old map[string]any) bool {
	t.Helper()
	compiler := admissioncel.NewConditionCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 30)))
	compiled := compiler.CompileCondition([]admissioncel.ExpressionAccessor{&matchconditions.MatchCondition{Expression: expression}},
		admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	if errs := compiled.CompilationErrors(); len(errs) > 0 {
		t.Fatalf("compiling: %v", errs)
	}
	return func(t Fatal, object, old map[string]any) bool {
		t.Helper()
		operation, before := apiadmission.Create, runtime.Object(nil)
		if old != nil {
			operation, before = apiadmission.Update, &unstructured.Unstructured{Object: old}
		}
		after := &unstructured.Unstructured{Object: object}
		gvk, gvr := kueue.GroupVersion.WithKind("Workload"), kueue.GroupVersion.WithResource("workloads")
		attributes := apiadmission.NewAttributesRecord(after, before, gvk, "ns", "w", gvr, "", operation, nil, false, nil)
		request := admissioncel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(gvr), metav1.GroupVersionKind(gvk))
		got, _, err := compiled.ForInput(context.Background(), &apiadmission.VersionedAttributes{
			Attributes: attributes, VersionedKind: gvk, VersionedObject: apiadmission.NewLazyObject(after), VersionedOldObject: apiadmission.NewLazyObject(before),
		}, request, admissioncel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
		if err != nil || len(got) != 1 || got[0].Error != nil {
			t.Fatalf("evaluating: %v %+v", err, got)
		}
		return got[0].EvalResult.Value().(bool)
	}
}
