package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// Requests for all kinds share one rate limit, except those for the lease. spec: 70 §2.1.3.
func TestOneLimitForAllKinds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
	}))
	defer server.Close()
	cfg := &Config{REST: &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}}
	cfg.Options.Client = options.Client{QPS: 0.001, Burst: 3}
	limitRequests(cfg)
	read := func(on *rest.Config, object client.Object) error {
		t.Helper()
		c, err := client.New(on, client.Options{Scheme: install.Scheme(), Mapper: testrestmapper.TestOnlyStaticRESTMapper(install.Scheme())})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		defer cancel()
		return c.Get(ctx, client.ObjectKey{Name: "x", Namespace: "x"}, object)
	}
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.Secret{}, &corev1.ConfigMap{}} {
		if err := read(cfg.REST, object); err != nil {
			t.Fatal(err)
		}
	}
	if err := read(cfg.REST, &corev1.Service{}); err == nil {
		t.Error("a fourth kind has a limit of its own")
	}
	if err := read(leaseConnection(cfg.REST), &corev1.Service{}); err != nil {
		t.Errorf("the lease has to wait for others: %v", err)
	}
	worker := rest.CopyConfig(cfg.REST)
	worker.RateLimiter = cfg.limit.Same()
	for range 3 {
		if err := read(worker, &corev1.Service{}); err != nil {
			t.Errorf("another server has to wait for this one: %v", err)
		}
	}
	if err := read(worker, &corev1.Service{}); err == nil {
		t.Error("another server has no limit")
	}
	cfg.limit.Set(-1, 1)
	for range 9 {
		if err := errors.Join(read(cfg.REST, &corev1.Service{}), read(worker, &corev1.Service{})); err != nil {
			t.Fatal(err)
		}
	}
}
