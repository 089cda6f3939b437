package admission

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/webhook"
)

func TestConfigurations(t *testing.T) {
	o := Options{Options: webhook.Options{
		Jobs: &job.Config{Kinds: job.Kinds{batchv1.SchemeGroupVersion.WithKind("Job"): true}}, Descriptors: all.Descriptors(),
		Namespaces: metav1.LabelSelector{MatchLabels: map[string]string{"managed": "yes"}},
	}}
	mutating, validating := Configurations(Target{Service: "hooks", Namespace: "sys", CABundle: []byte("ca")}, o)
	var got []string
	line := func(name string, c admissionregistration.WebhookClientConfig, r admissionregistration.RuleWithOperations, s *metav1.LabelSelector) {
		got = append(got, fmt.Sprintf("%s %s/%s%s %v %v restricted %v", name, c.Service.Namespace, c.Service.Name, *c.Service.Path, r.Resources, r.Operations, s != nil))
	}
	for _, w := range mutating.Webhooks {
		line(w.Name, w.ClientConfig, w.Rules[0], w.NamespaceSelector)
	}
	for _, w := range validating.Webhooks {
		line(w.Name, w.ClientConfig, w.Rules[0], w.NamespaceSelector)
	}
	const kueuePath = "kueue-x-k8s-io-v1beta2-"
	want := []string{
		"mjob.kb.io sys/hooks/mutate-batch-v1-job [jobs] [CREATE] restricted true",
		"default.mjob.kb.io sys/hooks/mutate-batch-v1-job [jobs] [CREATE] restricted true",
		"mclusterqueue.kb.io sys/hooks/mutate-" + kueuePath + "clusterqueue [clusterqueues] [CREATE] restricted false",
		"mresourceflavor.kb.io sys/hooks/mutate-" + kueuePath + "resourceflavor [resourceflavors] [CREATE] restricted false",
		"mworkload.kb.io sys/hooks/mutate-" + kueuePath + "workload [workloads] [CREATE] restricted false",
		"vjob.kb.io sys/hooks/validate-batch-v1-job [jobs] [CREATE UPDATE] restricted true",
		"vclusterqueue.kb.io sys/hooks/validate-" + kueuePath + "clusterqueue [clusterqueues] [CREATE UPDATE] restricted false",
		"vcohort.kb.io sys/hooks/validate-" + kueuePath + "cohort [cohorts] [CREATE UPDATE] restricted false",
		"vlocalqueue.kb.io sys/hooks/validate-" + kueuePath + "localqueue [localqueues] [CREATE UPDATE] restricted false",
		"vresourceflavor.kb.io sys/hooks/validate-" + kueuePath + "resourceflavor [resourceflavors] [CREATE UPDATE] restricted false",
		"vworkload.kb.io sys/hooks/validate-" + kueuePath + "workload [workloads workloads/status] [CREATE UPDATE] restricted false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, w := range validating.Webhooks {
		if ignored := *w.FailurePolicy == admissionregistration.Ignore; ignored {
			t.Errorf("%s: failure policy %s", w.Name, *w.FailurePolicy)
		}
	}
	o.Jobs.Kinds = nil
	if mutating, _ = Configurations(Target{URL: "https://127.0.0.1:1/"}, o); *mutating.Webhooks[0].ClientConfig.URL != "https://127.0.0.1:1/mutate-kueue-x-k8s-io-v1beta2-clusterqueue" {
		t.Errorf("a kind that is not enabled has a webhook, or the URL is wrong: %s", *mutating.Webhooks[0].ClientConfig.URL)
	}
}

// TestServedAsConfigured: every configured webhook is served, whatever KubeRay version the cluster has: an unserved one would fail the
// creation of Ray's pods.
func TestServedAsConfigured(t *testing.T) {
	cfg := &job.Config{Kinds: job.Kinds{{Group: "ray.io", Version: "v1", Kind: "RayService"}: true}, ElasticJobs: true}
	kinds := all.Descriptors()
	paths := func() (out []string) {
		for _, h := range list(&Options{Options: webhook.Options{Jobs: cfg, Descriptors: kinds}}, nil) {
			out = append(out, h.Path)
		}
		return out
	}
	configured := paths()
	for _, d := range kinds {
		if d.ManagedChildren.CanGate() && (d.ManagedChildren.Upgrades.Learn(map[string]any{}) == "" || d.ManagedChildren.Upgrades.GatesChildren(cfg)) {
			t.Error("it learns nothing of a KubeRay without spec.suspend")
		}
	}
	if served := paths(); !slices.Contains(configured, "/mutate--v1-pod-of-rayservice") || !slices.Equal(served, configured) {
		t.Errorf("configured %v, served %v", configured, served)
	}
}

// TestOpenWebhooks: objects that the cluster itself needs are stored while no manager answers. Without a configuration file the API
// server does not even call the webhooks for them.
func TestOpenWebhooks(t *testing.T) {
	for name, labelledOnly := range map[string]bool{"with a file": false, "without one": true} {
		t.Run(name, func(t *testing.T) {
			pods := pod.Descriptor()
			o := Options{Options: webhook.Options{
				Jobs: &job.Config{Kinds: job.Kinds{pods.GVK: true}}, Descriptors: []*job.Descriptor{pods}, LabelledOnly: labelledOnly,
			}}
			mutating, validating := Configurations(Target{URL: "https://a"}, o)
			policies := map[string]string{}
			for _, w := range mutating.Webhooks {
				policies[w.Name] = string(*w.FailurePolicy)
			}
			for _, w := range validating.Webhooks {
				policies[w.Name] = string(*w.FailurePolicy)
			}
			open := "Ignore"
			if labelledOnly {
				open = ""
			}
			if policies["mpod.kb.io"] != "Fail" || policies["default.mpod.kb.io"] != open || policies["vpod.kb.io"] != "Fail" {
				t.Errorf("got %v", policies)
			}
		})
	}
}
