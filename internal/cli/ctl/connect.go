package ctl

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/options"
)

// connection is kubectl's flags about how to reach an API server.
type connection struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// everyday are the flags that help shows; kubectl's others work as well.
var everyday = []string{"kubeconfig", clientcmd.FlagContext, clientcmd.FlagNamespace, clientcmd.FlagTimeout, clientcmd.FlagImpersonate, clientcmd.FlagImpersonateGroup}

func (c *connection) add(cmd *cobra.Command) {
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
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(everyday, f.Name) })
	_ = cmd.RegisterFlagCompletionFunc(clientcmd.FlagContext, c.completeContexts)
}

// loader finds the configuration where kubectl does.
func (c *connection) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
}

// source is where the configuration comes from, in words.
func (c *connection) source() string {
	switch env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); {
	case c.kubeconfig != "":
		return c.kubeconfig
	case env != "":
		return "KUBECONFIG=" + env
	}
	return clientcmd.RecommendedHomeFile
}

// load reads the configuration and the namespace that it is about.
func (c *connection) load() (cfg *rest.Config, namespace string, err error) {
	if c.kubeconfig != "" {
		if _, err = os.Stat(c.kubeconfig); err != nil {
			return nil, "", fmt.Errorf("--kubeconfig: %w: give the path of a kubeconfig file", err)
		}
	}
	loader := c.loader()
	if wanted := c.overrides.CurrentContext; wanted != "" {
		raw, err := loader.RawConfig()
		if err == nil && raw.Contexts[wanted] == nil {
			return nil, "", fmt.Errorf("--context: there is no context %q in %s: %s", wanted, c.source(), orAll(wanted, contexts(&raw)))
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

func contexts(raw *clientcmdapi.Config) []string {
	var names []string
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// orAll says what was meant, or what there is.
func orAll(name string, known []string) string {
	if near := options.Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(known) == 0 {
		return "there are none"
	}
	return "there are " + strings.Join(known, ", ")
}

// session is one command at work.
type session struct {
	client.Client
	cfg       *rest.Config
	http      *http.Client
	source    string // of the configuration, in words
	namespace string
	now       func() time.Time
	in        io.Reader
	out, errs io.Writer
	program   string // as the user calls it
	served    served
}

// scheme has the types that the commands read and write.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(kueue.AddToScheme(s))
	return s
}()

// open connects. It sends nothing yet.
func (t *tool) open(cmd *cobra.Command) (*session, error) {
	cfg, namespace, err := t.connection.load()
	if err != nil {
		return nil, err
	}
	s := &session{
		cfg: cfg, source: t.connection.source(), namespace: namespace, now: t.now,
		in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), program: cmd.Root().CommandPath(),
	}
	cfg.UserAgent = "berth/" + t.version
	cfg.QPS = -1
	cfg.WarningHandler = rest.NewWarningWriter(s.errs, rest.WarningWriterOptions{Deduplicate: true})
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &patient{next: next, host: cfg.Host, to: s.errs}
	})
	if s.http, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", s.source, err)
	}
	if s.Client, err = client.New(cfg, client.Options{Scheme: scheme, HTTPClient: s.http}); err != nil {
		return nil, s.advise(cmd.Context(), err)
	}
	return s, nil
}

// discover asks what the API server serves.
func (s *session) discover() (*discovery.DiscoveryClient, error) {
	return discovery.NewDiscoveryClientForConfigAndClient(s.cfg, s.http)
}
