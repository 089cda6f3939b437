package cli

import (
	"cmp"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/options"
)

// dashboard are the flags of the dashboard; empty falls back to the environment, and then to the default. spec: 70 §4.10.
type dashboard struct {
	address, mode, origins, audiences string
}

func (d *dashboard) add(flags *pflag.FlagSet) {
	flags.StringVar(&d.address, "dashboard-bind-address", "",
		"address of the dashboard, host:port, or 0 for none: pages and WebSockets that show queues and workloads, over plain HTTP (default 0, or the port in KUEUEVIZ_PORT)")
	flags.StringVar(&d.mode, "dashboard-auth-mode", "",
		"TokenReview shows what the owner of a token may read, Disabled shows everything to everybody (default KUEUEVIZ_AUTH_MODE, or TokenReview)")
	flags.StringVar(&d.origins, "dashboard-allowed-origins", "",
		"where the dashboard is opened, such as https://berth.example.org, separated by commas; pages of other origins may not read from it (default KUEUEVIZ_ALLOWED_ORIGINS; needed unless only this machine reaches it)")
	flags.StringVar(&d.audiences, "dashboard-token-audiences", "",
		"audiences of which a token has to have one, separated by commas (default KUEUEVIZ_AUTH_TOKEN_REVIEW_AUDIENCES, or those of the API server)")
}

// apply overrides the environment by the flags, and the defaults by both. host is the default host to listen on. The error is a usage
// error.
func (d *dashboard) apply(o *options.Options, host string, environment func(string) string) error {
	out := &o.Dashboard
	if port := environment("KUEUEVIZ_PORT"); port != "" {
		out.Address = ":" + port
		if err := checkAddress(out.Address); err != nil {
			return cluster.Usage("KUEUEVIZ_PORT %q: %w", port, err)
		}
	}
	if d.address != "" {
		if err := checkAddress(d.address); err != nil {
			return cluster.Usage("--dashboard-bind-address %q: %w", d.address, err)
		}
		out.Address = d.address
	}
	if mode := cmp.Or(d.mode, environment("KUEUEVIZ_AUTH_MODE")); mode != "" {
		out.AuthMode = options.AuthMode(mode)
	}
	out.Origins = listed(cmp.Or(d.origins, environment("KUEUEVIZ_ALLOWED_ORIGINS")))
	out.Audiences = listed(cmp.Or(d.audiences, environment("KUEUEVIZ_AUTH_TOKEN_REVIEW_AUDIENCES")))
	for _, t := range []struct {
		name  string
		value *time.Duration
	}{
		{"KUEUEVIZ_AUTH_TOKEN_REVIEW_CACHE_TTL", &out.CacheTTL},
		{"KUEUEVIZ_AUTH_TOKEN_REVIEW_NEGATIVE_CACHE_TTL", &out.NegativeCacheTTL},
	} {
		text := environment(t.name)
		if text == "" {
			continue
		}
		value, err := time.ParseDuration(text)
		if err != nil {
			return cluster.Usage("%s %q: must be a duration such as 60s", t.name, text)
		}
		*t.value = value
	}
	if !out.Served() {
		return nil
	}
	named, port, err := net.SplitHostPort(out.Address)
	if err != nil || port == "0" {
		return cluster.Usage("--dashboard-bind-address %q: name a port", out.Address)
	}
	out.Address = net.JoinHostPort(cmp.Or(named, host), port)
	if err := out.Check(); err != nil {
		return cluster.Usage("the dashboard (--dashboard-auth-mode, --dashboard-allowed-origins or the variables KUEUEVIZ_*): %w", err)
	}
	return nil
}

// listed splits a text at commas.
func listed(text string) (out []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
