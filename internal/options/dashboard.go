package options

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// AuthMode is how the dashboard authenticates users. spec: 70 §4.10.
type AuthMode string

const (
	// AuthDisabled shows all objects to every client.
	AuthDisabled AuthMode = "Disabled"
	// AuthTokenReview requires a token, and shows the objects that its user may read.
	AuthTokenReview AuthMode = "TokenReview"
)

// Dashboard are the options of the dashboard. spec: 70 §4.10.
type Dashboard struct {
	// Address is host:port; empty and 0 are off.
	Address string
	AuthMode
	// Audiences are the accepted audiences of tokens; empty is the API server's own.
	Audiences []string
	// Origins, such as https://berth.example.org, are the origins whose pages may read from the dashboard. If empty, only its own pages on
	// this machine may.
	Origins []string
	// CacheTTL and NegativeCacheTTL are how long reviews of valid and of invalid tokens are cached.
	CacheTTL, NegativeCacheTTL time.Duration
}

// DefaultDashboard returns the default options: off, with tokens.
func DefaultDashboard() Dashboard {
	return Dashboard{AuthMode: AuthTokenReview, CacheTTL: time.Minute, NegativeCacheTTL: 5 * time.Second}
}

// Served reports whether the dashboard is on.
func (d *Dashboard) Served() bool { return d.Address != "" && d.Address != "0" }

// Check validates the options. The error names no flag, since the environment may have set them.
func (d *Dashboard) Check() error {
	if d.AuthMode != AuthDisabled && d.AuthMode != AuthTokenReview {
		return fmt.Errorf("the mode of authentication %q: must be %s or %s", d.AuthMode, AuthDisabled, AuthTokenReview)
	}
	if d.CacheTTL < 0 || d.NegativeCacheTTL < 0 {
		return errors.New("how long answers about tokens are kept must not be negative")
	}
	for _, origin := range d.Origins {
		u, err := url.Parse(origin)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || origin != u.Scheme+"://"+u.Host || strings.Contains(u.Host, "*") {
			return fmt.Errorf("the allowed origin %q: must be like https://berth.example.org, without a path or a *", origin)
		}
	}
	if d.Served() && len(d.Origins) == 0 && !d.local() {
		return fmt.Errorf("%s is reached from other machines, so the allowed origins have to be named: those under which people open the dashboard", d.Address)
	}
	return nil
}

// local reports whether only this machine reaches the dashboard.
func (d *Dashboard) local() bool {
	host, _, err := net.SplitHostPort(d.Address)
	return err == nil && Loopback(host)
}

// Loopback reports whether a host is a loopback address or localhost.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
