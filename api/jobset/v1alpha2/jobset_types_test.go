package v1alpha2_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// TestJSON pins the texts in which a Go client's choice between absent and zero matters (60 §2.1), for both ways in which
// clients write objects.
func TestJSON(t *testing.T) {
	const template = `{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}}}`
	tests := map[string]struct {
		value any
		want  string
	}{
		"replicas zero is sent":   {&jobsetv1alpha2.ReplicatedJob{Name: "oar", Replicas: new(int32(0))}, `{"name":"oar","template":` + template + `,"replicas":0}`},
		"replicas unset is not":   {&jobsetv1alpha2.ReplicatedJob{Name: "oar"}, `{"name":"oar","template":` + template + `}`},
		"restarts always":         {&jobsetv1alpha2.JobSetStatus{}, `{"restarts":0}`},
		"counters always":         {&jobsetv1alpha2.ReplicatedJobStatus{Name: "oar"}, `{"name":"oar","ready":0,"succeeded":0,"failed":0,"active":0,"suspended":0}`},
		"no empty spec or status": {&jobsetv1alpha2.JobSet{}, `{"metadata":{}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			typed, err := json.Marshal(test.value)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(decode(t, test.want), decode(t, string(typed))); d != "" {
				t.Errorf("encoded as JSON (-want +got):\n%s", d)
			}
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(test.value)
			if err != nil {
				t.Fatal(err)
			}
			untyped, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(decode(t, test.want), decode(t, string(untyped))); d != "" {
				t.Errorf("converted to unstructured (-want +got):\n%s", d)
			}
		})
	}
}

func decode(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
