package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/install/upstream"
	"github.com/berth-project/berth/internal/metrics"
)

const installHelp = `Applies to a cluster what Berth needs there: CRDs, a namespace with access rules, services and webhook configurations, and with
--image the manager itself. Applying twice does no harm. What you changed in fields that Berth does not set stays.

  berth install --kubeconfig ~/.kube/config --image REGISTRY/berth:TAG
  berth install --image REGISTRY/berth:TAG --print | kubectl apply --server-side -f -

It fails where another controller of these APIs runs, and says which: berth preflight --plan prints how to take its place.

Without --image, run the manager next: new Jobs wait for its webhooks. An API server on another machine that cannot reach a
Service needs --webhook-url, such as https://10.0.0.5:9443.`

func newInstall(build metrics.Build) *cobra.Command {
	var kubeconfig, webhookURL, image, versions string
	var onlyPrint bool
	var s settings
	cmd := &cobra.Command{
		Use:   "install",
		Short: "apply or print the CRDs, access rules and webhook configurations",
		Long:  installHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkWebhookURL(webhookURL); err != nil {
				return err
			}
			if image != "" && webhookURL != "" {
				return cluster.Usage("--image runs the manager in the cluster, behind a Service, and --webhook-url outside of it: give one of them")
			}
			o, groups, err := s.load()
			if err != nil {
				return err
			}
			asked := install.Options{WebhookURL: webhookURL, Options: o, Groups: groups}
			if image != "" {
				if asked, err = s.deploy(image, groups); err != nil {
					return err
				}
				if !onlyPrint && !asked.Options.Certs.Internal && groups.Has(install.Webhooks) {
					return cluster.Usage("internalCertManagement.enable is false, and nothing here puts another certificate into the pod: leave it out, " +
						"or use config/certmanager, the chart with enableCertManager, or --print with an overlay of yours")
				}
			}
			if asked.OnlyV1beta2, err = onlyV1beta2(versions); err != nil {
				return err
			}
			if onlyPrint {
				return printManifests(cmd.OutOrStdout(), asked)
			}
			if _, err := newLog(cmd.ErrOrStderr(), "error"); err != nil {
				return err
			}
			cfg, err := connect(cmd.Context(), kubeconfig, build)
			if err != nil {
				return err
			}
			if err := refuse(cmd.Context(), cfg, &asked); err != nil {
				return err
			}
			return install.Apply(cmd.Context(), cfg, asked, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	kubeconfigFlag(flags, &kubeconfig)
	flags.StringVar(&webhookURL, "webhook-url", "", "URL under which the API server reaches the webhooks (default: the Service in the manager's namespace)")
	flags.StringVar(&image, "image", "", "image of berth; the manager then runs in the cluster, with the flags below")
	flags.BoolVar(&onlyPrint, "print", false, "print the objects as YAML instead of applying them")
	apiVersionsFlag(flags, &versions, "")
	s.add(flags)
	return cmd
}

// refuse returns an error if another controller of the same APIs runs: its webhooks would be replaced by webhooks of a manager that does not
// start beside it.
func refuse(ctx context.Context, cfg *rest.Config, asked *install.Options) error {
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		return err
	}
	s := upstream.Start{Groups: asked.Groups, Installs: asked, Now: time.Now()}
	return s.Refuse(ctx, c)
}

func apiVersionsFlag(flags *pflag.FlagSet, to *string, when string) {
	flags.StringVar(to, "api-versions", "", when+"versions of kueue.x-k8s.io to serve: v1beta2 spares the API server the cache and the conversions of v1beta1 (default v1beta1,v1beta2)")
}

// onlyV1beta2 reads the flag.
func onlyV1beta2(versions string) (bool, error) {
	only, err := install.OnlyV1beta2(versions)
	if err != nil {
		return false, cluster.UsageError{Err: err}
	}
	return only, nil
}

func printManifests(to io.Writer, asked install.Options) error {
	objects, err := install.Manifests(asked)
	if err != nil {
		return err
	}
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if _, err := to.Write(slices.Concat([]byte("---\n"), text)); err != nil {
			return err
		}
	}
	return nil
}

// checkWebhookURL accepts the URLs that an API server accepts: https, without query or fragment. Empty is allowed.
func checkWebhookURL(given string) error {
	if given == "" {
		return nil
	}
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return cluster.Usage("--webhook-url %q: must be like https://host:9443", given)
	}
	return nil
}
