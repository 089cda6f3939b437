package conversion

import (
	"encoding/json"
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// BenchmarkWorkload converts a Workload with every field into v1beta1, which the API server asks for at each write.
func BenchmarkWorkload(b *testing.B) {
	raw, err := os.ReadFile("../../../api/kueue/v1beta2/testdata/full.yaml")
	if err != nil {
		b.Fatal(err)
	}
	var objects []object
	if err := yaml.Unmarshal(raw, &objects); err != nil {
		b.Fatal(err)
	}
	raw = nil
	for _, o := range objects {
		if o["kind"] == "Workload" && raw == nil { // the first, and fullest
			o["apiVersion"] = kueue.GroupVersion.String()
			if raw, err = json.Marshal(o); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := convertRaw(raw, kueuev1beta1.GroupVersion); err != nil {
			b.Fatal(err)
		}
	}
}
