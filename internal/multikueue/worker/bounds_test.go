package worker

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/multikueue/plan"
)

// connectTo connects to a worker cluster with a handler for lists of Workloads.
func connectTo(t *testing.T, lists http.HandlerFunc) (*Connection, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/workloads"):
			http.NotFound(w, r)
		case r.URL.Query().Get("watch") != "":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			lists(w, r)
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &Fleet{
		Options: Options{Now: time.Now, Plan: &plan.Config{Origin: "here"}, Limit: inflight.NewThrottle(-1, 0), ObjectChanged: func(client.Object) {}}, scheme: scheme, workers: map[string]*workerCluster{},
	}
	c, err := f.connect(t.Context(), "w1", &rest.Config{Host: server.URL}, time.Minute, func(*Connection, error) {})
	if err == nil {
		t.Cleanup(c.close)
	}
	return c, err
}

// TestAnswerWithoutEnd: an answer without an end does not exhaust the memory of the manager.
func TestAnswerWithoutEnd(t *testing.T) {
	var sent atomic.Int64 // the handler may write on after the connection was given up
	_, err := connectTo(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"items":[`)
		for text := strings.Repeat(" ", 1<<20); r.Context().Err() == nil && sent.Load() < 4*maxAnswer<<20; sent.Add(int64(len(text))) {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "more than 64 MiB") || sent.Load() > 2*maxAnswer<<20 {
		t.Errorf("after %d bytes: %v", sent.Load(), err)
	}
}

// TestPages: objects are read page by page.
func TestPages(t *testing.T) {
	var asked []string
	c, err := connectTo(t, func(w http.ResponseWriter, r *http.Request) {
		at := r.URL.Query().Get("continue")
		asked = append(asked, r.URL.Query().Get("limit")+" "+at)
		next := map[string]string{"": "b", "b": "c"}[at]
		_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7","continue":%q},"items":[{"metadata":{"namespace":"team","name":"w%s"}}]}`, next, at)
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"250 ", "250 b", "250 c"}, asked); diff != "" {
		t.Errorf("pages, -want +got:\n%s", diff)
	}
	var names []string
	c.stores[WorkloadKind].Each(func(key types.NamespacedName, _ client.Object) { names = append(names, key.Name) })
	slices.Sort(names)
	if diff := cmp.Diff([]string{"w", "wb", "wc"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTooMany: a worker cluster with too many objects is disconnected.
func TestTooMany(t *testing.T) {
	var why error
	c := idle(t, func(_ *Connection, err error) { why = err })
	s := &Store{gvk: WorkloadKind, objects: map[types.NamespacedName]client.Object{}}
	for i := range maxKept {
		s.objects[types.NamespacedName{Name: fmt.Sprint(i)}] = nil
	}
	stream := watch.NewFake()
	go stream.Add(&kueue.Workload{})
	c.consume(s, stream)
	if why == nil || len(s.objects) != maxKept {
		t.Errorf("%d objects, %v", len(s.objects), why)
	}
}
