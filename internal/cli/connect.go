package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-project/berth/internal/metrics"
)

func kubeconfigFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "kubeconfig", "", "how to reach the API server (default $KUBECONFIG, else the cluster that this runs in, else ~/.kube/config)")
}

// connect finds the API server and checks that it answers.
func connect(ctx context.Context, kubeconfig string, build metrics.Build) (*rest.Config, error) {
	cfg, source, err := locate(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = userAgent(build)
	probe := rest.CopyConfig(cfg)
	probe.Timeout = 10 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(probe)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	if _, err := client.RESTClient().Get().AbsPath("/version").DoRaw(ctx); err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return nil, fmt.Errorf("the API server %s (from %s) does not answer: %w: start it, or give another --kubeconfig", cfg.Host, source, err)
	}
	return cfg, nil
}

// userAgent names the program and its commit in requests. spec: 70 §4.1.
func userAgent(build metrics.Build) string {
	agent := fmt.Sprintf("berth/%s (%s/%s)", build.Version, runtime.GOOS, runtime.GOARCH)
	if build.Commit != "" {
		agent += " " + build.Commit[:min(len(build.Commit), 7)]
	}
	return agent
}

// locate reads --kubeconfig, $KUBECONFIG, the pod's service account or ~/.kube/config, in this order.
func locate(kubeconfig string) (cfg *rest.Config, source string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	source = clientcmd.RecommendedHomeFile
	switch env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); {
	case kubeconfig != "":
		if _, err := os.Stat(kubeconfig); err != nil {
			return nil, "", fmt.Errorf("--kubeconfig: %w: give the path of a kubeconfig file", err)
		}
		source, rules.ExplicitPath = kubeconfig, kubeconfig
	case env != "":
		source = "KUBECONFIG=" + env
	default:
		if cfg, err = rest.InClusterConfig(); err == nil {
			return cfg, "the service account", nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", fmt.Errorf("the service account of this pod: %w", err)
		}
	}
	cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", fmt.Errorf("no API server is named in %s: give --kubeconfig, or start one with berth up", source)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", source, err)
	}
	return cfg, source, nil
}

// onLoopback reports whether the API server runs on this machine, outside of the cluster's network: it can then reach addresses of this
// machine, but no Services.
func onLoopback(cfg *rest.Config) bool {
	u, err := url.Parse(cfg.Host)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
}
