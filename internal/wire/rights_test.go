package wire

import (
	"context"
	"errors"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-project/berth/internal/options"
)

// TestDenied: an enabled kind that the manager may not patch is named; that of Deployments is about their pods, which are a kind, too.
func TestDenied(t *testing.T) {
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review := o.(*authorizationv1.SelfSubjectAccessReview)
			switch asked := review.Spec.ResourceAttributes; {
			case asked.Resource == "mpijobs":
				return errors.New("no answer")
			case asked.Verb != "patch" || asked.Namespace != "":
				t.Errorf("asks for %+v", asked)
			default:
				review.Status.Allowed = asked.Group == "batch" && asked.Resource == "jobs"
			}
			return nil
		},
	})
	o, err := options.Parse("c.yaml", []byte("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"+
		"integrations: {frameworks: [batch/job, deployment, kubeflow.org/mpijob, kubeflow.org/pytorchjob]}\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	got := denied(t.Context(), c, Kinds(&o))
	slices.Sort(got)
	if want := []string{"deployment", "kubeflow.org/pytorchjob", "pod"}; !slices.Equal(got, want) {
		t.Errorf("denied are %q, want %q", got, want)
	}
}
