package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/berth-project/berth/internal/metrics"
)

// Requests name the program and its commit. spec: 70 §4.1.
func TestUserAgent(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.UserAgent() }))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: '" + server.URL + "'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	platform := " (" + runtime.GOOS + "/" + runtime.GOARCH + ")"
	for want, build := range map[string]metrics.Build{"berth/test" + platform + " 0123456": testBuild, "berth/dev" + platform: {Version: "dev"}} {
		cfg, err := connect(t.Context(), kubeconfig, build)
		if err != nil {
			t.Fatal(err)
		}
		if got != want || cfg.UserAgent != want {
			t.Errorf("the requests are by %q and then %q, want %q", got, cfg.UserAgent, want)
		}
	}
}
