package embeddedtest

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// installed are the folders of CRDs that are installed, by server.
var (
	installed  = map[string]bool{}
	installing sync.Mutex // parallel tests wait for the first one's
)

func install(t testing.TB, cfg *rest.Config, crds string) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	if crds == "" || installed[cfg.Host+crds] {
		return
	}
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{MaxTime: startLimit, Paths: []string{crds}}); err != nil {
		t.Fatal(err)
	}
	installed[cfg.Host+crds] = true
}

// Client is a client of the server of Config with the CRDs of a folder, unless that is "". It knows the kinds of Kubernetes and of add.
func Client(t testing.TB, crds string, add ...func(*runtime.Scheme) error) client.WithWatch {
	t.Helper()
	cfg, scheme := Config(t), runtime.NewScheme()
	for _, kinds := range append(add, clientgoscheme.AddToScheme) {
		if err := kinds(scheme); err != nil {
			t.Fatal(err)
		}
	}
	install(t, cfg, crds)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Edit changes a stored object and retries conflicts. Other refusals are retried as well, since webhooks read caches; they fail the test
// after the time limit.
func Edit[O client.Object](t testing.TB, c client.Client, object O, edit func(O)) {
	t.Helper()
	rewrite(t, c, object, edit, func() error { return c.Update(t.Context(), object) })
}

// EditStatus is Edit for the status.
func EditStatus[O client.Object](t testing.TB, c client.Client, object O, edit func(O)) {
	t.Helper()
	rewrite(t, c, object, edit, func() error { return c.Status().Update(t.Context(), object) })
}

func rewrite[O client.Object](t testing.TB, c client.Client, object O, edit func(O), write func() error) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%T %s is changed", object, object.GetName()), func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		edit(object)
		return write()
	})
}
