package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// TestJSON pins the texts in which a Go client's choice between absent, empty and zero matters, for both ways in which
// clients write objects.
func TestJSON(t *testing.T) {
	tests := map[string]struct {
		value any
		want  string
	}{
		"50 §4.4 an empty command clears":       {&trainerv1alpha1.Trainer{Command: []string{}}, `{"command":[]}`},
		"50 §4.4 empty args clear":              {&trainerv1alpha1.Trainer{Args: []string{}}, `{"args":[]}`},
		"50 §4.4 unset command and args do not": {&trainerv1alpha1.Trainer{}, `{}`},
		"50 §2.1 numNodes zero":                 {&trainerv1alpha1.Trainer{NumNodes: new(int32(0))}, `{"numNodes":0}`},
		"50 §4.4 empty storageUri":              {&trainerv1alpha1.InitializerStep{StorageURI: new("")}, `{"storageUri":""}`},
		"50 §2.3 no empty status":               {&trainerv1alpha1.TrainJob{Spec: trainerv1alpha1.TrainJobSpec{RuntimeRef: trainerv1alpha1.RuntimeRef{Name: "a"}}}, `{"metadata":{},"spec":{"runtimeRef":{"name":"a"}}}`},
		"50 §4.2 zeros in jobsStatus":           {&trainerv1alpha1.JobStatus{Name: "node"}, `{"name":"node","ready":0,"succeeded":0,"failed":0,"active":0,"suspended":0}`},
		"50 §2.3 no time that was never set":    {&trainerv1alpha1.TrainerStatus{}, `{}`},
		"50 §2.4 no empty template":             {&trainerv1alpha1.TrainingRuntimeSpec{MLPolicy: &trainerv1alpha1.MLPolicy{}}, `{"mlPolicy":{}}`},
		"50 §2.4 policies are inline":           {&trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{JAX: &trainerv1alpha1.JAXPolicy{}}}, `{"jax":{}}`},
		"50 §4.10 an empty entry of a manager":  {&trainerv1alpha1.RuntimePatch{Manager: "a.io/b", TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{Template: &trainerv1alpha1.JobSetTemplatePatch{Spec: &trainerv1alpha1.JobSetSpecPatch{}}}}, `{"manager":"a.io/b","trainingRuntimeSpec":{"template":{"spec":{}}}}`},
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
