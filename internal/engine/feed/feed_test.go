package feed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	source "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/engine/feed"
	"github.com/berth-project/berth/internal/state"
)

// TestReplaced: an informer that misses a deletion and the creation of another Workload of the name delivers one update. The engine forgets the
// first one all the same: it would keep its quota, or its place in the line, until a restart.
func TestReplaced(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	server := source.NewFakeControllerSource()
	workloads := cache.NewSharedIndexInformer(server, &kueue.Workload{}, 0, nil)
	e := engine.New(state.New(state.Options{}), time.Now)
	f := &feed.Feed{Engine: e, Cache: &informertest.FakeInformers{
		Scheme: scheme, InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{kueue.GroupVersion.WithKind("Workload"): workloads},
	}}
	of := func(uid string) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: types.UID(uid)}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	for _, run := range []func(context.Context) error{
		e.Run, f.Start, func(ctx context.Context) error { workloads.RunWithContext(ctx); return nil },
	} {
		go func() { ended <- run(ctx) }()
	}
	defer func() {
		cancel()
		server.Shutdown()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	knows := func(want ...string) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("the engine knows %v", want), func() error {
			var got []string
			if err := e.Ask(ctx, func(s *state.State) { got = s.UIDs() }); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("%v %w", got, err)
			}
			return nil
		})
	}
	server.Add(of("first"))
	knows("first")
	server.DeleteDropWatch(of("first"))
	server.AddDropWatch(of("second"))
	server.ResetWatch()
	knows("second")
}
