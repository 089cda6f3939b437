package visibility

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

// FuzzRequest: any path, query and body is answered, within bounds.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{lines, "/", "/apis", "/openapi/v3", "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/red/localqueues/q/pendingworkloads"} {
		for _, query := range []string{"", "limit=1&offset=0", "limit=-1", "limit=99999999999999999999", "offset=9223372036854775807&limit=9223372036854775807", "%"} {
			f.Add(http.MethodGet, path, query, "", "application/json")
		}
		f.Add(http.MethodPost, path, "", "{}", "application/json;as=Table;g=meta.k8s.io;v=v1")
	}
	s := world(nil)
	f.Fuzz(func(t *testing.T, method, path, query, body, accept string) {
		if len(path) == 0 || path[0] != '/' {
			path = "/" + path
		}
		embeddedtest.Bounded(t, len(path)+len(query)+len(body)+len(accept), func() {
			r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
			r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
			r.Header.Set("Authorization", "alice")
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Errorf("answered %d: %s", w.Code, w.Body)
			}
		})
	})
}
