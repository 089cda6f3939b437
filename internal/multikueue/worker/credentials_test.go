package worker

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// kubeconfig returns one with extra lines for its cluster and its user.
func kubeconfig(cluster, user string) []byte {
	return []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n")
}

// TestParse is spec 40 §7.3 and the content rules of §3.
func TestParse(t *testing.T) {
	const server, token = "server: 'https://w1.example:6443'", "token: t"
	tests := map[string]struct {
		text []byte
		want string // part of the refusal, empty for none
	}{
		"good":                {kubeconfig(server, token), ""},
		"an address":          {kubeconfig("server: 'https://10.0.0.1:6443'", token), ""},
		"upper case":          {kubeconfig("server: 'https://W1.Example:6443'", token), ""},
		"no YAML":             {[]byte("{"), "cannot be parsed"},
		"not verified":        {kubeconfig(server+", insecure-skip-tls-verify: true", token), "insecure-skip-tls-verify"},
		"a CA file":           {kubeconfig(server+", certificate-authority: /ca.crt", token), "certificate-authority-data"},
		"a token file":        {kubeconfig(server, "tokenFile: /token"), "tokenFile"},
		"a password":          {kubeconfig(server, "username: u, password: p"), "password"},
		"a certificate file":  {kubeconfig(server, "client-certificate: /c, client-key: /k"), "client-certificate-data"},
		"no server":           {kubeconfig("", token), "no server"},
		"an odd host":         {kubeconfig("server: 'https://under_score:6443'", token), "neither an IP address"},
		"an auth provider":    {kubeconfig(server, "auth-provider: {name: x}"), "auth-provider"},
		"plain http":          {kubeconfig("server: 'http://w1.example:6443'", token), "http://: use https"},
		"http in capitals":    {kubeconfig("server: 'HTTP://w1.example:6443'", token), "http://: use https"},
		"no scheme":           {kubeconfig("server: w1.example", token), "not reached by TLS"},
		"no scheme, but a CA": {kubeconfig("server: w1.example, certificate-authority-data: eA==", token), "not reached by TLS"},
		"a proxy":             {kubeconfig(server+", proxy-url: 'http://p.example:3128'", token), "proxy-url"},
		"a proxy of sockets":  {kubeconfig(server+", proxy-url: 'socks5://p.example:1080'", token), "proxy-url"},
		"a proxy with TLS":    {kubeconfig(server+", proxy-url: 'https://p.example:3128'", token), ""},
		"a program to be run": {kubeconfig(server, "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}"), "exec plugin"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, _, refused := parse(tc.text, false)
			switch {
			case tc.want == "" && (refused != nil || cfg == nil):
				t.Errorf("refused: %v", refused)
			case tc.want != "" && (refused == nil || refused.reason != kueue.ReasonInsecureKubeConfig || !strings.Contains(refused.Error(), tc.want)):
				t.Errorf("got %v, want a refusal with %q", refused, tc.want)
			}
		})
	}
}

// TestParseHTTP: the switch permits connections without TLS, and nothing else.
func TestParseHTTP(t *testing.T) {
	for cluster, good := range map[string]bool{
		"server: 'http://w1.example:6443'":                             true,
		"server: w1.example":                                           true,
		"server: 'https://w1.example', proxy-url: 'http://p.example'":  true,
		"server: 'http://under_score:6443'":                            false,
		"server: 'https://w1.example', insecure-skip-tls-verify: true": false,
	} {
		if _, _, refused := parse(kubeconfig(cluster, "token: t"), true); (refused == nil) != good {
			t.Errorf("%s: %v", cluster, refused)
		}
	}
}

// TestFirstFault: a kubeconfig with several faults is refused for the same one each time, since another message is another condition.
func TestFirstFault(t *testing.T) {
	users, servers := map[string]*clientcmdapi.AuthInfo{}, map[string]*clientcmdapi.Cluster{}
	for name := range strings.SplitSeq("fedcba", "") {
		users[name], servers[name] = &clientcmdapi.AuthInfo{TokenFile: "/token"}, &clientcmdapi.Cluster{Server: "http://w1.example", CertificateAuthority: "/ca"}
	}
	for range 20 {
		for _, err := range []error{
			checkFile(&clientcmdapi.Config{AuthInfos: users}), checkFile(&clientcmdapi.Config{Clusters: servers}), checkTLS(&clientcmdapi.Config{Clusters: servers}, nil),
		} {
			if !strings.Contains(err.Error(), ` "a" must not`) {
				t.Fatal(err)
			}
		}
	}
}

// TestAllowed is spec 40 §7.4.
func TestAllowed(t *testing.T) {
	dir := t.TempDir()
	root, other := filepath.Join(dir, "kubeconfigs"), filepath.Join(dir, "kubeconfigs-other")
	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "..2026", "good"))
	write(filepath.Join(root, "w1..yaml"))
	write(filepath.Join(other, "x"))
	for link, to := range map[string]string{"good": filepath.Join("..2026", "good"), "escape": filepath.Join(other, "x")} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		path string
		ok   bool
	}{
		"good": {filepath.Join(root, "good"), true}, "empty": {"", false}, "relative": {"good", false}, "elsewhere": {"/etc/passwd", false},
		"dots":           {filepath.Join(root, "w1..yaml"), true},
		"what is linked": {filepath.Join(root, "..2026", "good"), true},
		"up and back":    {root + "/../kubeconfigs/good", true},
		"up":             {root + "/../kubeconfigs-other/x", false},
		"a like prefix":  {filepath.Join(other, "x"), false},
		"a link out":     {filepath.Join(root, "escape"), false},
		"does not exist": {filepath.Join(root, "none"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := allowed(tc.path, root+"/"); (err == nil) != tc.ok {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	if _, err := allowed(filepath.Join(root, "good"), filepath.Join(dir, "missing")+"/"); err == nil {
		t.Error("without the folder of the prefix a file was allowed")
	}
}

func TestProvided(t *testing.T) {
	provider := &configv1beta2.ClusterProfileProvider{Name: "p", ExecConfig: configv1beta2.ExecConfig{
		Command: "/plugin", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: configv1beta2.NeverInteractive,
		Env: []configv1beta2.ExecEnvVar{{Name: "A", Value: "b"}},
	}}
	entry := func(cluster map[string]any) map[string]any { return map[string]any{"name": "p", "cluster": cluster} }
	cfg, _, refused := provided(provider, entry(map[string]any{"server": "https://w1.example", "certificate-authority-data": "eA=="}), false)
	if refused != nil || cfg.ExecProvider.Command != "/plugin" || cfg.ExecProvider.Env[0].Value != "b" || string(cfg.CAData) != "x" {
		t.Errorf("got %+v, %v", cfg, refused)
	}
	cfg, _, refused = provided(provider, entry(map[string]any{
		"server": "https://w1.example", "tls-server-name": "w1", "proxy-url": "https://p.example",
		"extensions": []any{map[string]any{"name": clusterExtension, "extension": map[string]any{"audience": "w1"}}, map[string]any{"name": "other", "extension": 1}},
	}), false)
	if refused != nil {
		t.Fatal(refused)
	}
	proxy, err := cfg.Proxy(&http.Request{})
	if err != nil || proxy.String() != "https://p.example" || cfg.ServerName != "w1" {
		t.Errorf("proxy %v, %v; server name %q", proxy, err, cfg.ServerName)
	}
	if given, ok := cfg.ExecProvider.Config.(*runtime.Unknown); !ok || string(given.Raw) != `{"audience":"w1"}` || given.ContentType != runtime.ContentTypeJSON {
		t.Errorf("the plugin gets %+v", cfg.ExecProvider.Config)
	}
	cfg, _, refused = provided(provider, entry(map[string]any{"server": "http://w1.example", "proxy-url": "http://p.example"}), true)
	if refused != nil || cfg.ExecProvider.Command != "/plugin" || cfg.Proxy == nil {
		t.Errorf("without TLS, which is allowed: %+v, %v", cfg, refused)
	}
	for name, cluster := range map[string]map[string]any{
		"no server":    {},
		"not verified": {"server": "https://w1.example", "insecure-skip-tls-verify": true},
		"a CA file":    {"server": "https://w1.example", "certificate-authority": "/ca"},
		"plain http":   {"server": "http://w1.example"},
		"an odd host":  {"server": "https://under_score"},
		"a proxy":      {"server": "https://w1.example", "proxy-url": "http://p"},
		"no proxy":     {"server": "https://w1.example", "proxy-url": "https://%zz"},
		"no cluster":   nil,
		"no CA":        {"server": "https://w1.example", "certificate-authority-data": 1},
	} {
		if _, _, refused := provided(provider, entry(cluster), false); refused == nil || refused.reason != kueue.ReasonBadRestConfig {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

// TestPause is spec 40 §4.2 step 5.
func TestPause(t *testing.T) {
	for n, want := range map[int]time.Duration{1: 5, 2: 10, 3: 20, 7: 320, 50: 320} {
		if got := pause(n); got != want*time.Second {
			t.Errorf("attempt %d: %s", n, got)
		}
	}
}
