package wire

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/rest"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// TestReadyToConvert: a manager is ready as soon as its webhooks are served. The API server cannot list objects that are stored in an earlier version
// before it converts them, which it does only through a Service with a ready pod.
func TestReadyToConvert(t *testing.T) {
	admin, _ := ownServer(t)
	cfg, convertible := rest.CopyConfig(admin), make(chan struct{})
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/clusterqueues") {
				select {
				case <-convertible:
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
			}
			return next.RoundTrip(r)
		})
	})
	groups, err := install.ParseGroups("")
	if err != nil {
		t.Fatal(err)
	}
	o := options.Default()
	o.LeaderElection.Enabled, o.Metrics.Address = false, "0"
	o.Health.Address = "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	o.VisibilityAddress = "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(t)
	url := "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port)
	if err := install.Apply(t.Context(), admin, install.Options{WebhookURL: url, Options: o, Groups: groups}, io.Discard); err != nil {
		t.Fatal(err)
	}
	complete, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Config{
			REST: cfg, Options: o, Groups: groups, WebhookURL: url, OnReady: func() { close(complete) }, Log: testr.New(t),
		})
	}()
	wait.Until(t, "the manager is ready", func() error {
		select {
		case err := <-ended:
			t.Fatal(errors.Join(errors.New("it ended"), err))
		default:
		}
		response, err := http.Get("http://" + o.Health.Address + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	})
	select {
	case <-complete:
		t.Error("it knows queues that it has not read")
	default:
	}
	close(convertible)
	wait.Ready(t, "the manager", complete, ended)
}
