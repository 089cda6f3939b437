package webhook

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/review"
)

var usageBased = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}

func TestNotYet(t *testing.T) {
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
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Options{}.warn(tc.object)
			if tc.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || tc.want == "" || !strings.HasPrefix(got[0], tc.want+" ") {
				t.Errorf("warnings %q, want one about %q", got, tc.want)
			}
		})
	}
}

// With the configuration of admission fair sharing its fields have an effect, and the weight of a LocalQueue is checked. spec: 20 §6 #8.
func TestUsageSharing(t *testing.T) {
	for _, object := range []client.Object{
		&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionScope: usageBased}},
		&kueue.LocalQueue{Spec: kueue.LocalQueueSpec{FairSharing: &kueue.FairSharing{}}},
		&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{ConcurrentAdmissionPolicy: &kueue.ConcurrentAdmissionPolicy{}}},
	} {
		if got := (Options{UsageSharing: true, Variants: true}).warn(object); len(got) > 0 {
			t.Errorf("%T: warnings %q", object, got)
		}
	}
	for weight, allowed := range map[string]bool{"0": true, "2n": true, "3": true, "1n": false, "-1": false} {
		o := &kueue.LocalQueue{Spec: kueue.LocalQueueSpec{FairSharing: &kueue.FairSharing{Weight: new(resource.MustParse(weight))}}}
		if err := validateLocalQueue(t.Context(), nil, o, nil); (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), "spec.fairSharing.weight") {
			t.Errorf("weight %s: %v", weight, err)
		}
	}
}

// A warning comes when a field is set, on creation or later, and not again with every
// other change of the object.
func TestWarnedOnce(t *testing.T) {
	hooks := Webhooks(Options{})
	at := slices.IndexFunc(hooks, func(h review.Webhook) bool { return h.GVK.Kind == "ClusterQueue" && !h.Mutating() })
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
			req.Kind = metav1.GroupVersionKind(hooks[at].GVK)
			got := hooks[at].Handler().Handle(t.Context(), *req)
			if !got.Allowed || len(got.Warnings) != tc.want {
				t.Errorf("allowed %v with warnings %q, want %d of them", got.Allowed, got.Warnings, tc.want)
			}
		})
	}
}
