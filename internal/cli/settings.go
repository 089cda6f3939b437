package cli

import (
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// settings are the flags that configure the manager's work.
type settings struct {
	config             []string
	gates, controllers string
}

func (s *settings) add(flags *pflag.FlagSet) {
	addConfig(flags, &s.config, &s.gates)
	flags.StringVar(&s.controllers, "controllers", "",
		"groups of controllers to run, separated by commas: webhooks,queues,scheduler,checks,integrations,jobset,training,multikueue; -jobset leaves one out (default all)")
}

// load reads and checks them. The error is a usage error.
func (s *settings) load() (options.Options, install.Groups, error) {
	groups, err := install.ParseGroups(s.controllers)
	if err != nil {
		return options.Options{}, nil, cluster.UsageError{Err: err}
	}
	o, err := options.LoadWithGates(s.config, s.gates)
	return o, groups, err
}

// reload returns how to read the files again, nil without any.
func (s *settings) reload() func() (options.Options, error) {
	if strings.Join(s.config, "") == "" {
		return nil
	}
	return func() (options.Options, error) {
		again, _, err := s.load()
		return again, err
	}
}

// deploy is an installation whose manager runs in the cluster with these settings, and with the shipped configuration if none is given.
func (s *settings) deploy(image string, groups install.Groups) (install.Options, error) {
	files, err := options.ReadFiles(s.config)
	if err != nil {
		return install.Options{}, err
	}
	if len(files) == 0 {
		files = []options.File{{Name: "the configuration that comes with Berth", Data: []byte(install.ShippedConfig())}}
	}
	o, err := options.ParseFiles(files, s.gates)
	if err != nil {
		return install.Options{}, err
	}
	d := &install.Deploy{Image: image, Config: join(files)}
	for _, flag := range [][2]string{{"feature-gates", s.gates}, {"controllers", s.controllers}} {
		if flag[1] != "" {
			d.Args = append(d.Args, "--"+flag[0]+"="+flag[1])
		}
	}
	return install.Options{Options: o, Groups: groups, Deploy: d}, nil
}

// join returns one file with the documents of all.
func join(files []options.File) string {
	text := string(files[0].Data)
	for _, more := range files[1:] {
		text = strings.TrimSuffix(text, "\n") + "\n---\n" + string(more.Data)
	}
	return text
}

// addresses are the flags of the manager's listeners; empty keeps the configuration.
type addresses struct {
	metrics, health, visibility string
}

func (a *addresses) add(flags *pflag.FlagSet, metrics, health, visibility string) {
	flags.StringVar(&a.metrics, "metrics-bind-address", "", "address of the metrics, host:port, or 0 for none (default "+metrics+")")
	flags.StringVar(&a.health, "health-probe-bind-address", "", "address of the probes, host:port, or 0 for none (default "+health+")")
	flags.StringVar(&a.visibility, "visibility-bind-address", "", "address of the visibility API, host:port, or 0 for none (default "+visibility+")")
}

// apply checks them and overrides the configuration.
func (a *addresses) apply(o *options.Options) error {
	for _, f := range []struct {
		flag, value string
		field       *string
	}{
		{"metrics-bind-address", a.metrics, &o.Metrics.Address},
		{"health-probe-bind-address", a.health, &o.Health.Address},
		{"visibility-bind-address", a.visibility, &o.VisibilityAddress},
	} {
		if f.value == "" {
			continue
		}
		if err := checkAddress(f.value); err != nil {
			return cluster.Usage("--%s %q: %w", f.flag, f.value, err)
		}
		*f.field = f.value
	}
	if strings.HasSuffix(a.visibility, ":0") {
		return cluster.Usage("--visibility-bind-address %q: the API server has to know the port: name one", a.visibility)
	}
	return nil
}

func checkAddress(address string) error {
	if address == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return cluster.Usage("must be host:port, :port, or 0 for none")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > maxPort {
		return cluster.Usage("the port must be a number from 0 to %d", maxPort)
	}
	return nil
}

const maxPort = 65535
