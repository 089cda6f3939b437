// Package cluster connects a command to the API server: discovery, lists in pages, and advice for refusals.
package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/options/strict"
)

// Connection has kubectl's flags for reaching an API server.
type Connection struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// everyday are the flags in the help; kubectl's others work as well.
var everyday = []string{"kubeconfig", clientcmd.FlagContext, clientcmd.FlagNamespace, clientcmd.FlagTimeout, clientcmd.FlagImpersonate, clientcmd.FlagImpersonateGroup}

// Add adds the flags to a command and its subcommands.
func (c *Connection) Add(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "how to reach the API server (default $KUBECONFIG, else ~/.kube/config, else the cluster that this runs in)")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.Description = "the namespace (default that of the context)"
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	names.CurrentContext.Description = "the context of the kubeconfig"
	names.Timeout.Description = "how long one request may take, as 30s; 0 is without end"
	names.AuthOverrideFlags.Impersonate.Description = "do it as this user, if you may"
	names.AuthOverrideFlags.ImpersonateGroups.Description = "do it as a member of this group; may be repeated"
	clientcmd.BindOverrideFlags(&c.overrides, flags, names)
	flags.String("cache-dir", "", "accepted as kubectl's; nothing is cached")
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(everyday, f.Name) })
	_ = cmd.RegisterFlagCompletionFunc(clientcmd.FlagContext, c.contexts)
}

// loader loads the configuration like kubectl.
func (c *Connection) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
}

// source describes where the configuration comes from.
func (c *Connection) source() string {
	switch env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); {
	case c.kubeconfig != "":
		return c.kubeconfig
	case env != "":
		return "KUBECONFIG=" + env
	}
	return clientcmd.RecommendedHomeFile
}

// load reads the configuration and its namespace.
func (c *Connection) load() (cfg *rest.Config, namespace string, err error) {
	if c.kubeconfig != "" {
		if _, err = os.Stat(c.kubeconfig); err != nil {
			return nil, "", fmt.Errorf("--kubeconfig: %w: give the path of a kubeconfig file", err)
		}
	}
	loader := c.loader()
	if wanted := c.overrides.CurrentContext; wanted != "" {
		raw, err := loader.RawConfig()
		if err == nil && raw.Contexts[wanted] == nil {
			return nil, "", fmt.Errorf("--context: there is no context %q in %s: %s", wanted, c.source(), strict.OrAll(wanted, names(&raw)))
		}
	}
	cfg, err = loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", fmt.Errorf("no API server is named in %s: give --kubeconfig, or start one with berth up --detach", c.source())
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", c.source(), err)
	}
	namespace, _, err = loader.Namespace()
	return cfg, namespace, err
}

func names(raw *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(raw.Contexts)) }

// contexts completes --context.
func (c *Connection) contexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := c.loader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names(&raw), cobra.ShellCompDirectiveNoFileComp
}

// Session is a running command.
type Session struct {
	client.Client
	Config    *rest.Config
	Source    string // of the configuration, for messages
	Namespace string
	Now       func() time.Time
	In        io.Reader
	Out, Errs io.Writer
	Program   string // as the user calls it

	http   *http.Client
	served map[string]*metav1.APIResourceList // discovery answers, by API version
}

// Scheme has the types that the commands read and write.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(kueue.AddToScheme(s))
	utilruntime.Must(berthv1alpha1.AddToScheme(s))
	return s
}()

// Open makes a session. It sends no request yet.
func (c *Connection) Open(cmd *cobra.Command, version string, now func() time.Time) (*Session, error) {
	cfg, namespace, err := c.load()
	if err != nil {
		return nil, err
	}
	s := &Session{
		Config: cfg, Source: c.source(), Namespace: namespace, Now: now,
		In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Errs: cmd.ErrOrStderr(), Program: cmd.Root().CommandPath(),
		served: map[string]*metav1.APIResourceList{},
	}
	ctx := cmd.Context()
	log.SetLogger(logr.Discard()) // errors are returned; without a logger it prints a warning and a stack after half a minute
	cfg.UserAgent = "berth/" + version
	cfg.QPS = -1
	cfg.WarningHandler = rest.NewWarningWriter(s.Errs, rest.WarningWriterOptions{Deduplicate: true})
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &patient{ctx: ctx, next: next, host: cfg.Host, to: s.Errs}
	})
	if s.http, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Source, err)
	}
	if s.Client, err = client.New(cfg, client.Options{Scheme: Scheme, HTTPClient: s.http}); err != nil {
		return nil, s.Advise(ctx, err)
	}
	return s, nil
}

// Inside returns a session for Raw alone, which a handler in this process answers.
func Inside(h http.Handler) *Session {
	return &Session{Config: &rest.Config{Host: "http://inside", QPS: -1}, http: &http.Client{Transport: inside{h}}}
}

// Discovery asks what the API server serves.
func (s *Session) Discovery() (*discovery.DiscoveryClient, error) {
	return discovery.NewDiscoveryClientForConfigAndClient(s.Config, s.http)
}

// Raw reads one path of the API server. An error is the Status of who answered, as far as it sent one.
func (s *Session) Raw(ctx context.Context, path string, parameters ...string) ([]byte, error) {
	d, err := s.Discovery()
	if err != nil {
		return nil, err
	}
	r := d.RESTClient().Get().AbsPath(path)
	for i := 0; i+1 < len(parameters); i += 2 {
		r = r.Param(parameters[i], parameters[i+1])
	}
	result := r.Do(ctx) // DoRaw would lose the Status
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}
