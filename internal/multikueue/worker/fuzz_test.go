package worker

import (
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

// FuzzKubeconfig: a kubeconfig is refused, or reaches its server by TLS and neither runs nor reads anything here.
func FuzzKubeconfig(f *testing.F) {
	for _, cluster := range []string{
		"", "server: 'https://w1.example:6443'", "server: 'http://w1.example'", "server: 'w1.example:80'", "server: '://'",
		"server: 'https://w1.example', proxy-url: 'http://p'", "server: 'https://w1.example', insecure-skip-tls-verify: true",
		"server: 'https://w1.example', certificate-authority: /etc/passwd",
	} {
		f.Add(kubeconfig(cluster, "token: t"))
	}
	f.Add(kubeconfig("server: 'https://w1.example'", "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}"))
	f.Add(kubeconfig("server: 'https://w1.example'", "tokenFile: /etc/passwd"))
	f.Add([]byte("a: &a [b, b]\nc: [*a, *a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		embeddedtest.Bounded(t, len(text), func() {
			cfg, _, refused := parse(text, false)
			if refused != nil {
				return
			}
			u, _, err := rest.DefaultServerUrlFor(cfg)
			if err != nil || u.Scheme != "https" || cfg.Insecure {
				t.Errorf("reaches %v: %v", u, err)
			}
			if cfg.ExecProvider != nil || cfg.AuthProvider != nil || cfg.BearerTokenFile != "" || cfg.CAFile != "" || cfg.CertFile != "" || cfg.KeyFile != "" {
				t.Errorf("uses programs or files: %+v", cfg)
			}
			if cfg.Proxy != nil {
				if proxy, err := cfg.Proxy(nil); err == nil && !isHTTPS(proxy) {
					t.Errorf("goes by %v", proxy)
				}
			}
		})
	})
}

func isHTTPS(u *url.URL) bool { return u != nil && strings.EqualFold(u.Scheme, "https") }
