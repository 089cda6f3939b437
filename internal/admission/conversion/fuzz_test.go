package conversion

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

// FuzzConvert: any body of a request to /convert is answered, within bounds.
func FuzzConvert(f *testing.F) {
	review := func(to, object string) []byte {
		return []byte(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"kueue.x-k8s.io/` +
			to + `","objects":[` + object + `]}}`)
	}
	for _, object := range []string{
		`{}`, `null`, `{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"ClusterQueue","metadata":{"name":"q"},"spec":{"cohort":"c"}}`,
		`{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"Workload","metadata":{"name":"w"},"status":{"admission":{"clusterQueue":"q","podSetAssignments":[` +
			`{"name":"main","topologyAssignment":{"levels":["a","b"],"domains":[{"values":["x","y"],"count":2}]}}]}}}`,
		`{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"w"},"status":{"admission":{"clusterQueue":"q","podSetAssignments":[` +
			`{"name":"main","topologyAssignment":{"levels":["a","b"],"slices":[{"domainCount":2,"valuesPerLevel":[{"universal":"x"},{"individual":` +
			`{"prefix":"p","suffix":"s","roots":["1","2"]}}],"podCounts":{"universal":1}}]}}]}}}`,
		`{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"w"},"status":{"admission":{"podSetAssignments":[` +
			`{"topologyAssignment":{"levels":["a"],"slices":[{"domainCount":2147483647,"valuesPerLevel":[{"universal":"x"}],"podCounts":{"universal":1}}]}}]}}}`,
	} {
		f.Add(review("v1beta1", object))
		f.Add(review("v1beta2", object))
	}
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, body []byte) {
		embeddedtest.Bounded(t, len(body), func() {
			w := httptest.NewRecorder()
			Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body)))
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
				t.Errorf("answered %d", w.Code)
			}
		})
	})
}
