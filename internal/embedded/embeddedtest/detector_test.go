package embeddedtest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestWriteToCache: client-go's mutation detector, with which `make race` runs the tests, ends a program that modifies an object of a
// controller-runtime cache. That program is this test, in another process.
func TestWriteToCache(t *testing.T) {
	const victim = "BERTH_TEST_WRITES_TO_CACHE"
	if kubeconfig := os.Getenv(victim); kubeconfig != "" {
		writeToCache(t, kubeconfig)
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=true", victim+"="+embeddedtest.Start(t))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: cache *v1.ConfigMap modified") {
		t.Errorf("a write to a cached object was not found (%v):\n%s", err, out)
	}
}

func writeToCache(t *testing.T, kubeconfig string) {
	config := embeddedtest.ConfigOf(t, kubeconfig)
	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cached"}, Data: map[string]string{"key": "as stored"}}
	if err := direct.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	cached, err := cache.New(config, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = cached.Start(t.Context()) }()
	if !cached.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not start")
	}
	if err := cached.Get(t.Context(), client.ObjectKeyFromObject(object), object, client.UnsafeDisableDeepCopy); err != nil {
		t.Fatal(err)
	}
	object.Data["key"] = "not stored"
	time.Sleep(time.Minute) // the detector looks every second
}
