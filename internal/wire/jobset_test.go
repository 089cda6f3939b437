package wire

import (
	"context"
	"io"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// Without JobSets in the cluster, TrainJobs end the start with an error, not with a timeout of caches.
func TestTrainingNeedsJobSets(t *testing.T) {
	kind := jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet)
	empty, served := meta.NewDefaultRESTMapper(nil), meta.NewDefaultRESTMapper(nil)
	served.Add(kind, meta.RESTScopeNamespace)
	ours, theirs := install.Groups{install.JobSet: true}, install.Groups{}
	if err := jobSetsServed(empty, theirs); err == nil || !strings.Contains(err.Error(), "--controllers=-jobset,-training") {
		t.Errorf("error %v", err)
	}
	for name, err := range map[string]error{"ours": jobSetsServed(empty, ours), "theirs": jobSetsServed(served, theirs)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without the group of JobSets our webhook configurations are removed; other controllers' stay.
func TestHandOver(t *testing.T) {
	cluster := embeddedtest.Config(t)
	c, err := client.New(cluster, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	install := func(list string) {
		t.Helper()
		groups, err := install.ParseGroups(list)
		if err != nil {
			t.Fatal(err)
		}
		o := install.Options{Options: options.Default(), Groups: groups, Namespace: "handover", WebhookURL: "https://127.0.0.1:1"}
		if err := install.Apply(context.Background(), cluster, o, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	exist := func() (n int) {
		for name, o := range map[string]client.Object{
			admission.JobSetMutatingName: &admissionv1.MutatingWebhookConfiguration{}, admission.JobSetValidatingName: &admissionv1.ValidatingWebhookConfiguration{},
		} {
			if c.Get(context.Background(), client.ObjectKey{Name: name}, o) == nil {
				n++
			}
		}
		return n
	}
	install("jobset,webhooks")
	if n := exist(); n != 2 {
		t.Fatalf("%d configurations are installed", n)
	}
	install("-jobset,-webhooks")
	if n := exist(); n != 0 {
		t.Errorf("%d configurations lead to nobody", n)
	}
	var theirs admissionv1.ValidatingWebhookConfiguration
	theirs.Name = admission.JobSetValidatingName
	theirs.Webhooks = []admissionv1.ValidatingWebhook{{
		Name: "vjobset.kb.io", SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/validate-jobset-x-k8s-io-v1alpha2-jobset")},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{
			APIGroups: []string{"jobset.x-k8s.io"}, APIVersions: []string{"v1alpha2"}, Resources: []string{"jobsets"},
		}}},
	}}
	if err := c.Create(context.Background(), &theirs); err != nil {
		t.Fatal(err)
	}
	install("-jobset,-webhooks")
	if n := exist(); n != 1 {
		t.Errorf("%d configurations are left of the upstream controller's", n)
	}
	if err := c.Delete(context.Background(), &theirs); err != nil {
		t.Fatal(err)
	}
}
