package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// Acceptance 48: a Job that ran before is resumed with another template by the rules of any Kubernetes. Up to 1.35 the API server
// takes a new template only of a Job without startTime, from 1.36 of a Job without pods; a refusal is retried
// and is no failure. The API server of these tests is newer, so the rules are simulated here.
func TestResumeByVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		takes   func(*batchv1.Job) bool // a new template
		refused bool
		started bool // status.startTime is left
	}{
		"1.35":                      {func(j *batchv1.Job) bool { return j.Status.StartTime == nil }, false, false},
		"1.36":                      {func(j *batchv1.Job) bool { return j.Status.Active == 0 }, false, true},
		"1.36, pods are still here": {func(*batchv1.Job) bool { return false }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "ring-oar-0", UID: "uid-job"}}
			job.Spec.Suspend, job.Status.StartTime = new(true), new(metav1.Now())
			job.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
			server := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(job).WithStatusSubresource(&batchv1.Job{})
			c := server.WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					var have batchv1.Job
					if err := c.Get(ctx, client.ObjectKeyFromObject(job), &have); err != nil {
						return err
					}
					if data, err := p.Data(o); err != nil || strings.Contains(string(data), `"template"`) && !tc.takes(&have) {
						return apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, job.Name, field.ErrorList{
							field.Invalid(field.NewPath("spec", "template"), "", "field is immutable"),
						})
					}
					return c.Patch(ctx, o, p, opts...)
				},
			}).Build()
			r := &reconciler{client: c, written: newWritten(time.Now)}
			js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "ring", UID: "uid-js"}}
			refused, err := r.patch(t.Context(), js, plan.Patch{
				Job: job, Template: true, Data: []byte(`{"metadata":{"uid":"uid-job"},"spec":{"suspend":false,"template":{"spec":{"nodeSelector":{"zone":"b"}}}}}`),
			})
			if err != nil || refused != tc.refused {
				t.Fatalf("refused %v, error %v", refused, err)
			}
			var now batchv1.Job
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(job), &now); err != nil {
				t.Fatal(err)
			}
			zone := map[bool]string{true: "a", false: "b"}[tc.refused]
			if *now.Spec.Suspend != tc.refused || now.Spec.Template.Spec.NodeSelector["zone"] != zone || (now.Status.StartTime != nil) != tc.started {
				t.Errorf("suspend %v, node selector %v, started %v", *now.Spec.Suspend, now.Spec.Template.Spec.NodeSelector, now.Status.StartTime)
			}
		})
	}
}
