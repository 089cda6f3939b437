package kuberay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// running is Serve's answer in a cluster whose application runs.
const running = `{"controller_info":{},"proxies":{},"applications":{"app":{"name":"app","route_prefix":"/","status":"RUNNING","message":"",
"last_deployed_time_s":1,"deployed_app_config":{},"deployments":{"d":{"name":"d","status":"HEALTHY","message":""}}}}}`

// dashboards stand in for the programs in the pods of Ray, which no simulated node runs: Serve runs whatever is deployed.
type dashboards struct {
	mu       sync.Mutex
	deployed []string // what Serve was asked to run
}

func (d *dashboards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !strings.Contains(r.URL.Path, "/api/serve/applications"):
		_, _ = io.WriteString(w, "success")
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, running)
	default:
		body, _ := io.ReadAll(r.Body)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.deployed = append(d.deployed, string(body))
		_, _ = io.WriteString(w, "{}")
	}
}

// has reports whether Serve was asked to run something with this text in it.
func (d *dashboards) has(text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(strings.Join(d.deployed, "\n"), text)
}

// throughDashboards is a kubeconfig for an operator that reaches pods through the API server, and finds dashboards there.
func (w *world) throughDashboards(d *dashboards) (kubeconfig string) {
	w.t.Helper()
	to, err := url.Parse(w.rest.Host)
	w.must(err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport, err = rest.TransportFor(w.rest)
	w.must(err)
	proxy.FlushInterval = -1
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/proxy/") {
			d.ServeHTTP(rw, r)
			return
		}
		proxy.ServeHTTP(rw, r)
	}))
	w.t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	kubeconfig = filepath.Join(w.t.TempDir(), "kubeconfig")
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	cfg.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	cfg.CurrentContext = "c"
	w.must(clientcmd.WriteToFile(*cfg, kubeconfig))
	return kubeconfig
}
