package options

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// AuthMode says how the dashboard knows who asks. spec: 70 §4.10.
type AuthMode string

const (
	// AuthDisabled shows everything to everybody who reaches the dashboard.
	AuthDisabled AuthMode = "Disabled"
	// AuthTokenReview asks for a token, and shows what its owner may read.
	AuthTokenReview AuthMode = "TokenReview"
)

// Dashboard is what the dashboard is served with. It is off unless it has an address. spec: 70 §4.10.
type Dashboard struct {
	// Address is host:port; empty and 0 are off.
	Address string
	AuthMode
	// Audiences are those of which a token has to have one; none is the API server's own.
	Audiences []string
	// Origins, such as https://berth.example.org, are those whose pages may read from the dashboard. With none, only the pages that it
	// serves itself on this machine may.
	Origins []string
	// CacheTTL and NegativeCacheTTL are how long the API server's word about a good and about a bad token is kept.
	CacheTTL, NegativeCacheTTL time.Duration
}

// DefaultDashboard is the dashboard if nobody says otherwise: off, and asking for tokens.
func DefaultDashboard() Dashboard {
	return Dashboard{AuthMode: AuthTokenReview, CacheTTL: time.Minute, NegativeCacheTTL: 5 * time.Second}
}

// Served reports whether there is to be a dashboard.
func (d *Dashboard) Served() bool { return d.Address != "" && d.Address != "0" }

// Check tells what is wrong. The error names no flag: both a flag and the environment may have said it.
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

// local reports whether only this machine reaches it.
func (d *Dashboard) local() bool {
	host, _, err := net.SplitHostPort(d.Address)
	return err == nil && Loopback(host)
}

// Loopback reports whether a host is this machine, and nothing else.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
