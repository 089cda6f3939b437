package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

const pathPrefix = "/etc/multikueue/kubeconfigs/"

const kubeconfigKey = "kubeconfig"

// refusal is the reason of the condition Active of a cluster without usable credentials.
type refusal struct {
	reason string
	err    error
	// missing means that an event will announce the credentials.
	missing bool
	// unread means that the API server failed to answer, so that nothing is known of the credentials.
	unread bool
}

func (r *refusal) Error() string { return r.err.Error() }

// load reads the credentials of a cluster. The bytes that it returns identify them.
func (f *Fleet) load(ctx context.Context, cluster *kueue.MultiKueueCluster) (*rest.Config, []byte, *refusal) {
	source := &cluster.Spec.ClusterSource
	switch {
	case source.KubeConfig != nil && source.KubeConfig.LocationType == kueue.LocationTypePath:
		path, err := source.KubeConfig.Location, error(nil)
		if !f.AnyPath {
			if path, err = allowed(path, pathPrefix); err != nil {
				return nil, nil, &refusal{reason: kueue.ReasonBadKubeConfig, err: err}
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, &refusal{reason: kueue.ReasonBadKubeConfig, err: fmt.Errorf("reading the kubeconfig: %w", err)}
		}
		return parse(text, f.AllowHTTP)
	case source.KubeConfig != nil:
		var secret corev1.Secret
		key := client.ObjectKey{Namespace: f.Namespace, Name: source.KubeConfig.Location}
		if err := f.live.Get(ctx, key, &secret); err != nil {
			why := fmt.Errorf("reading Secret %s: %w", key, err)
			return nil, nil, &refusal{reason: kueue.ReasonBadKubeConfig, err: why, missing: apierrors.IsNotFound(err), unread: !isAbsent(err)}
		}
		text, ok := secret.Data[kubeconfigKey]
		if !ok {
			return nil, nil, &refusal{reason: kueue.ReasonBadKubeConfig, err: fmt.Errorf("Secret %s has no key %q", key, kubeconfigKey), missing: true} //nolint:staticcheck // a kind
		}
		return parse(text, f.AllowHTTP)
	case source.ClusterProfileRef != nil:
		return f.profile(ctx, source.ClusterProfileRef.Name)
	}
	return nil, nil, &refusal{reason: kueue.ReasonBadKubeConfig, err: errors.New("spec.clusterSource says nothing"), missing: true}
}

// isAbsent reports whether an error of the API server says that an object is not there for us.
func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apimeta.IsNoMatchError(err)
}

// parse reads a kubeconfig and refuses unsafe ones. Any writer of the Secret chooses it, so it must neither run a program nor read a file
// here (spec: 40 §3). Unless http is allowed, the server and a proxy must use TLS, which protects the credentials.
func parse(text []byte, http bool) (*rest.Config, []byte, *refusal) {
	insecure := func(err error) (*rest.Config, []byte, *refusal) {
		return nil, nil, &refusal{reason: kueue.ReasonInsecureKubeConfig, err: err}
	}
	file, err := clientcmd.Load(text)
	if err != nil {
		return insecure(fmt.Errorf("the kubeconfig cannot be parsed: %w", err))
	}
	cfg, err := safeConfig(file, http)
	if err == nil && cfg.ExecProvider != nil {
		err = errors.New("an exec plugin cannot be used")
	}
	if err != nil {
		return insecure(fmt.Errorf("the kubeconfig is refused: %w", err))
	}
	return cfg, text, nil
}

// safeConfig returns the connection of a kubeconfig. It refuses everything unsafe but an exec plugin.
func safeConfig(file *clientcmdapi.Config, http bool) (*rest.Config, error) {
	if err := checkFile(file); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("it cannot be used: %w", err)
	}
	if err := checkConfig(cfg); err != nil {
		return nil, err
	}
	if !http {
		if err := checkTLS(file, cfg); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}

// checkFile always returns the same error for the same file.
func checkFile(file *clientcmdapi.Config) error {
	for _, name := range slices.Sorted(maps.Keys(file.AuthInfos)) {
		switch user := file.AuthInfos[name]; {
		case user.TokenFile != "":
			return fmt.Errorf("user %q must not have tokenFile: use token", name)
		case user.ClientCertificate != "" || user.ClientKey != "":
			return fmt.Errorf("user %q must not name files: use client-certificate-data and client-key-data", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Clusters)) {
		switch cluster := file.Clusters[name]; {
		case cluster.InsecureSkipTLSVerify:
			return fmt.Errorf("cluster %q must not have insecure-skip-tls-verify", name)
		case cluster.CertificateAuthority != "":
			return fmt.Errorf("cluster %q must not have certificate-authority: use certificate-authority-data", name)
		case cluster.Server == "":
			return fmt.Errorf("cluster %q has no server", name)
		}
	}
	return nil
}

const allowHTTP = "use https, or set multiKueue.allowHTTP"

// checkTLS refuses servers and proxies without TLS, of all clusters of a kubeconfig, used or not.
func checkTLS(file *clientcmdapi.Config, cfg *rest.Config) error {
	for _, name := range slices.Sorted(maps.Keys(file.Clusters)) {
		cluster := file.Clusters[name]
		if u, err := url.Parse(cluster.Server); err == nil && strings.EqualFold(u.Scheme, "http") {
			return fmt.Errorf("cluster %q must not have a server with http://: %s", name, allowHTTP)
		}
		if u, err := url.Parse(cluster.ProxyURL); cluster.ProxyURL != "" && (err != nil || !strings.EqualFold(u.Scheme, "https")) {
			return fmt.Errorf("cluster %q must not have a proxy-url without https://: %s", name, allowHTTP)
		}
	}
	return checkServer(cfg)
}

// checkServer refuses a server without TLS. client-go uses http for an address without a scheme.
func checkServer(cfg *rest.Config) error {
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return fmt.Errorf("the server %q cannot be used: %w", cfg.Host, err)
	}
	if u.Scheme != "https" {
		return fmt.Errorf("the server %q is not reached by TLS: %s", cfg.Host, allowHTTP)
	}
	return nil
}

func checkConfig(cfg *rest.Config) error {
	switch {
	case cfg.Insecure:
		return errors.New("the certificate of the server must be verified")
	case cfg.BearerTokenFile != "":
		return errors.New("the token must not come from a file")
	case cfg.Username != "" || cfg.Password != "":
		return errors.New("a password cannot be used: use a token or a certificate")
	case cfg.AuthProvider != nil:
		return errors.New("an auth-provider cannot be used: use a token or a certificate")
	}
	host := cfg.Host
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Hostname()
	}
	if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
		return fmt.Errorf("the server %q is neither an IP address nor a host name", host)
	}
	return nil
}

// allowed resolves the path of a kubeconfig file. With all links followed it must be below the prefix.
func allowed(path, prefix string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("the path of the kubeconfig is empty")
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("the path of the kubeconfig must be absolute: %q", path)
	}
	root, err := filepath.EvalSymlinks(prefix)
	if err != nil {
		return "", fmt.Errorf("kubeconfig files are taken from %s only, which is not there: %w", prefix, err)
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if !strings.HasPrefix(target, strings.TrimSuffix(root, "/")+"/") {
		return "", fmt.Errorf("the kubeconfig %q is not below %s", path, prefix)
	}
	return target, nil
}

var profileKind = schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Kind: "ClusterProfile"}

func (f *Fleet) profile(ctx context.Context, name string) (*rest.Config, []byte, *refusal) {
	if !f.Profiles {
		return nil, nil, &refusal{reason: kueue.ReasonMultiKueueClusterProfileFeatureDisabled, err: errors.New("turn the feature gate MultiKueueClusterProfile on to use clusterProfileRef"), missing: true}
	}
	bad := func(err error) (*rest.Config, []byte, *refusal) {
		return nil, nil, &refusal{reason: kueue.ReasonBadClusterProfile, err: err}
	}
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(profileKind)
	key := client.ObjectKey{Namespace: f.Namespace, Name: name}
	if err := f.live.Get(ctx, key, profile); err != nil {
		why := fmt.Errorf("reading ClusterProfile %s: %w", key, err)
		return nil, nil, &refusal{reason: kueue.ReasonBadClusterProfile, err: why, unread: !isAbsent(err)}
	}
	for _, field := range []string{"accessProviders", "credentialProviders"} {
		entries, _, _ := unstructured.NestedSlice(profile.Object, "status", field)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			for i := range f.Providers {
				if p := &f.Providers[i]; p.Name != "" && p.Name == entry["name"] {
					return provided(p, entry, f.AllowHTTP)
				}
			}
		}
	}
	return bad(fmt.Errorf("ClusterProfile %s has no access provider that multiKueue.clusterProfile.accessProviders names", key))
}

// provided makes a kubeconfig of the cluster in a ClusterProfile and the plugin in the configuration, so that both obey the same rules.
func provided(p *configv1beta2.ClusterProfileProvider, entry map[string]any, http bool) (*rest.Config, []byte, *refusal) {
	bad := func(err error) (*rest.Config, []byte, *refusal) {
		return nil, nil, &refusal{reason: kueue.ReasonBadRestConfig, err: err}
	}
	name := p.Name
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"contexts": []any{map[string]any{"name": name, "context": map[string]any{"cluster": name, "user": name}}},
		"clusters": []any{map[string]any{"name": name, "cluster": entry["cluster"]}},
		"users":    []any{map[string]any{"name": name, "user": map[string]any{"exec": p.ExecConfig}}},
	})
	if err != nil {
		return bad(err)
	}
	file, err := clientcmd.Load(text)
	if err != nil {
		return bad(fmt.Errorf("access provider %s: %w", name, err))
	}
	cfg, err := safeConfig(file, http)
	if err != nil {
		return bad(fmt.Errorf("access provider %s: %w", name, err))
	}
	// client-go leaves the plugin out for a server without TLS.
	cfg.ExecProvider = file.AuthInfos[name].Exec
	cfg.ExecProvider.Config = file.Clusters[name].Extensions[clusterExtension]
	return cfg, text, nil
}

// clusterExtension is what a cluster passes to exec plugins, by the API of client-go.
const clusterExtension = "client.authentication.k8s.io/exec"
