package conversion

import (
	"encoding/json"
	"os"
	"strings"
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

// BenchmarkUsual answers the review of a typical Workload, one pod with a reservation, and of one whose places differ between the versions.
func BenchmarkUsual(b *testing.B) {
	managed := `{"apiVersion":"kueue.x-k8s.io/v1beta2","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:admission":{"f:clusterQueue":{},` +
		`"f:podSetAssignments":{"k:{\"name\":\"main\"}":{".":{},"f:count":{},"f:flavors":{"f:cpu":{}},"f:name":{},"f:resourceUsage":{"f:cpu":{}}}}},` +
		`"f:conditions":{"k:{\"type\":\"Admitted\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}}}},` +
		`"manager":"kueue-admission","operation":"Apply","subresource":"status","time":"2026-01-01T00:00:00Z"}`
	condition := `{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"The workload is admitted","observedGeneration":1,"reason":"Admitted","status":"True","type":"Admitted"}`
	raw := `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":1,` +
		`"managedFields":[` + managed + `,` + managed + `],"name":"w","namespace":"ns","resourceVersion":"7","uid":"5b2"},` +
		`"spec":{"active":true,"podSets":[{"count":1,"name":"main","template":{"metadata":{},"spec":{"containers":[{"image":"any","name":"c",` +
		`"resources":{"requests":{"cpu":"1"}}}],"restartPolicy":"Never"}}}],"priority":50,"queueName":"lq"},` +
		`"status":{"admission":{"clusterQueue":"cq","podSetAssignments":[{"count":1,"flavors":{"cpu":"f"},"name":"main","resourceUsage":{"cpu":"1"}}]},` +
		`"conditions":[` + condition + `,` + condition + `]}}`
	placed := strings.Replace(raw, `"resourceUsage":{"cpu":"1"}}]`, `"resourceUsage":{"cpu":"1"},"topologyAssignment":{"levels":["kubernetes.io/hostname"],"slices":[`+
		`{"domainCount":2,"podCounts":{"universal":1},"valuesPerLevel":[{"individual":{"prefix":"node-","roots":["1","2"]}}]}]}}]`, 1)
	for _, object := range []struct{ name, text string }{{"quota", raw}, {"placed", placed}} {
		body := []byte(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"5b2","desiredAPIVersion":"kueue.x-k8s.io/v1beta1","objects":[` + object.text + `]}}`)
		for name, answer := range map[string]func([]byte) ([]byte, error){
			"decoded": decode,
			"fast": func(body []byte) ([]byte, error) {
				text, ok := fast(nil, body)
				if !ok {
					b.Fatal("it is left to the decoder")
				}
				return text, nil
			},
		} {
			b.Run(object.name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if _, err := answer(body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
