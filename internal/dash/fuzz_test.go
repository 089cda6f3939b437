package dash

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/options"
)

// FuzzDashboard sends any method, path, query and header: each request is answered, within bounds.
func FuzzDashboard(f *testing.F) {
	w := newWorld(f, func(s *Server) { s.options.AuthMode, s.access.disabled = options.AuthDisabled, true })
	w.queues()
	w.workload(w.red, "train", "")
	for _, path := range []string{
		"/", "/healthz", "/auth/status", "/api/workload/train", "/api/clusterqueue/x", "/assets/none", "/ws/workloads", "/ws/workload/" + w.red + "/train",
		"/api/localqueue/../../x",
	} {
		f.Add(http.MethodGet, path, "", "Bearer x", origin)
		f.Add(http.MethodGet, path, "namespace="+w.red+"&output=yaml&output=json", "", "")
		f.Add(http.MethodPost, path, "%&limit=-1", "Bearer ", "https://evil.example.org")
	}
	f.Fuzz(func(t *testing.T, method, path, query, token, from string) {
		if path == "" || path[0] != '/' {
			path = "/" + path
		}
		embeddedtest.Bounded(t, len(path)+len(query)+len(token)+len(from), func() {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
			r.Header.Set("Authorization", token)
			r.Header.Set("Origin", from)
			answer := httptest.NewRecorder()
			w.server.ServeHTTP(answer, r)
			if answer.Code >= http.StatusInternalServerError {
				t.Errorf("answered %d: %s", answer.Code, answer.Body)
			}
		})
	})
}
