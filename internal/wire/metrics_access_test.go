package wire

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/inspect"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/state"
)

// TestMetricsAccess: only users with the permission can read the metrics. spec: 70 §4.6, §7 example 32.
func TestMetricsAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server")
	}
	admin := embeddedtest.ConfigOf(t, embeddedtest.Start(t))
	o := options.Default()
	o.Metrics.Address = fmt.Sprint("127.0.0.1:", embeddedtest.FreePort(t))
	c := manage(t, admin, o)
	token := func(name string) string {
		t.Helper()
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := c.Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
		if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	stranger, reader := token("stranger"), token("reader")
	if err := c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reads-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kueue-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"}},
	}); err != nil {
		t.Fatal(err)
	}
	scraper := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer scraper.CloseIdleConnections()
	for _, tc := range []struct {
		who, header string
		code        int
		body        string
	}{
		{"reads", "Bearer " + reader, http.StatusOK, `git_commit="abc"`}, // first: afterwards the server answers
		{"has no token", "", http.StatusUnauthorized, ""},
		{"has a token of nobody", "Bearer nobody", http.StatusUnauthorized, ""},
		{"has a token that was changed", "Bearer " + reader[:len(reader)-8] + "AAAAAAAA", http.StatusUnauthorized, ""},
		{"has no right", "Bearer " + stranger, http.StatusForbidden, ""},
	} {
		wait.Until(t, "the answer to one who "+tc.who, func() error {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+o.Metrics.Address+"/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			if tc.header != "" {
				request.Header.Set("Authorization", tc.header)
			}
			answer, err := scraper.Do(request)
			if err != nil {
				return err
			}
			defer func() { _ = answer.Body.Close() }()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				return err
			}
			if answer.StatusCode != tc.code || !strings.Contains(string(body), tc.body) || (tc.body == "" && strings.Contains(string(body), "kueue_")) {
				return fmt.Errorf("%s, %.300s", answer.Status, body)
			}
			return nil
		})
	}
}

// diagnosed is a manager that records the handlers of its metrics server.
type diagnosed struct {
	ctrl.Manager
	handlers map[string]http.Handler
}

func (d diagnosed) GetConfig() *rest.Config     { return &rest.Config{Host: "http://127.0.0.1:1"} }
func (d diagnosed) GetHTTPClient() *http.Client { return http.DefaultClient }
func (d diagnosed) Add(manager.Runnable) error  { return nil }
func (d diagnosed) AddMetricsServerExtraHandler(path string, h http.Handler) error {
	d.handlers[path] = h
	return nil
}

// TestOpenMetrics: with metrics that are open to everybody, as in a Trainer configuration file, the diagnostics still ask for a token.
// spec: 70 §4.12.
func TestOpenMetrics(t *testing.T) {
	for open, code := range map[bool]int{false: http.StatusOK, true: http.StatusUnauthorized} { // false: the metrics server itself asks
		o := options.Default()
		o.Metrics.Open = open
		s := state.New(StateOptions(&o))
		s.Record(10)
		e := engine.New(s, time.Now)
		go e.Run(t.Context())
		mgr := diagnosed{handlers: map[string]http.Handler{}}
		if err := addEngine(mgr, e, &Config{Options: o}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{inspect.DumpPath, inspect.FlightPath} {
			answer := httptest.NewRecorder()
			mgr.handlers[path].ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			if answer.Code != code {
				t.Errorf("%s with open=%t: %d %.100s, want %d", path, open, answer.Code, answer.Body, code)
			}
		}
	}
}
