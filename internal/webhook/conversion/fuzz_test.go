package conversion

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
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
		bounded(t, len(body), func() {
			w := httptest.NewRecorder()
			Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body)))
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
				t.Errorf("answered %d", w.Code)
			}
		})
	})
}

// bounded runs f, and fails if that takes more time or memory than an input of this size may.
func bounded(t *testing.T, size int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	f()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if used, most := after.TotalAlloc-before.TotalAlloc, uint64(8<<20+2000*size); used > most {
		t.Errorf("%d bytes allocated for an input of %d, at most %d may be", used, size, most)
	}
	if took > 10*time.Second {
		t.Errorf("an input of %d bytes took %s", size, took)
	}
}
