package admission

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

var usageBased = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}

func TestNotYet(t *testing.T) {
	podSets := func(change func(*kueue.PodSet)) kueue.WorkloadSpec {
		ps := kueue.PodSet{Name: "main", Count: 2}
		change(&ps)
		return kueue.WorkloadSpec{PodSets: []kueue.PodSet{ps}}
	}
	cases := map[string]struct {
		object client.Object
		want   string // the path, "" for no warning
	}{
		"a plain queue":         {&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{CohortName: "c"}}, ""},
		"fair sharing":          {&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{FairSharing: &kueue.FairSharing{}}}, ""},
		"a weight of one's own": {&kueue.LocalQueue{Spec: kueue.LocalQueueSpec{FairSharing: &kueue.FairSharing{Weight: new(resource.MustParse("2"))}}}, "spec.fairSharing"},
		"a plain LocalQueue":    {&kueue.LocalQueue{Spec: kueue.LocalQueueSpec{ClusterQueue: "c"}}, ""},
		"a scope":               {&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionScope: usageBased}}, "spec.admissionScope"},
		"a scope of none":       {&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionScope: &kueue.AdmissionScope{AdmissionMode: kueue.NoAdmissionFairSharing}}}, ""},
		"several flavors":       {&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{ConcurrentAdmissionPolicy: &kueue.ConcurrentAdmissionPolicy{}}}, "spec.concurrentAdmissionPolicy"},
		"a pod set group":       {&kueue.Workload{Spec: podSets(func(p *kueue.PodSet) { p.TopologyRequest = &kueue.PodSetTopologyRequest{PodSetGroupName: new("g")} })}, ""},
		"a place": {&kueue.Workload{Spec: podSets(func(p *kueue.PodSet) {
			p.TopologyRequest = &kueue.PodSetTopologyRequest{PodSetGroupName: new("g"), Required: new("rack")}
		})}, "spec.podSets[main].topologyRequest"},
		"a claim": {&kueue.Workload{Spec: podSets(func(p *kueue.PodSet) {
			p.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		})}, "spec.podSets[main].template.spec.resourceClaims"},
		"a topology":        {&kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{TopologyName: "t"}}, "spec.topologyName"},
		"a plain workload":  {&kueue.Workload{Spec: podSets(func(*kueue.PodSet) {})}, ""},
		"partial admission": {&kueue.Workload{Spec: podSets(func(p *kueue.PodSet) { p.MinCount = new(int32(1)) })}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := notYet(tc.object)
			if tc.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || tc.want == "" || !strings.HasPrefix(got[0], tc.want+" ") {
				t.Errorf("warnings %q, want one about %q", got, tc.want)
			}
		})
	}
}

// A field is told of when it is set, on creation or later, and not again with every
// other change of the object.
func TestWarnedOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	plain := &kueue.ClusterQueue{}
	scoped := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionScope: usageBased}}
	cases := map[string]struct {
		old, new *kueue.ClusterQueue
		want     int
	}{
		"created with it":       {nil, scoped, 1},
		"created without":       {nil, plain, 0},
		"set later":             {plain, scoped, 1},
		"another change":        {scoped, scoped, 0},
		"taken out of the spec": {scoped, plain, 0},
	}
	raw := func(cq *kueue.ClusterQueue) runtime.RawExtension {
		data, err := json.Marshal(cq)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: data}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: raw(tc.new)}}
			if tc.old != nil {
				req.Operation, req.OldObject = admissionv1.Update, raw(tc.old)
			}
			s := &server{scheme: scheme}
			allow := func(context.Context, *admission.Request, client.Object, client.Object) error { return nil }
			got := s.validate(t.Context(), req, kueue.GroupVersion.WithKind("ClusterQueue"), allow)
			if !got.Allowed || len(got.Warnings) != tc.want {
				t.Errorf("allowed %v with warnings %q, want %d of them", got.Allowed, got.Warnings, tc.want)
			}
		})
	}
}

// TestInert: an elastic job is told that nobody resizes it while the feature gate is off.
func TestInert(t *testing.T) {
	elastic := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"}}}
	for name, tc := range map[string]struct {
		object client.Object
		on     bool
		want   int
	}{
		"off":                {elastic, false, 1},
		"on":                 {elastic, true, 0},
		"off, but for a job": {&batchv1.Job{}, false, 0},
	} {
		s := &server{o: &Options{Jobs: &job.Config{ElasticJobs: tc.on}}}
		if got := s.inert(tc.object); len(got) != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
