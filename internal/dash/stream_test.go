package dash

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// annotate changes a Workload.
func (w *world) annotate(of *kueue.Workload, value string) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.org/note":%q}}}`, value)
	w.must(w.c.Patch(w.Context(), of, client.RawPatch(types.MergePatchType, patch)))
}

// TestRevoked: a revoked permission hides its objects, and a token that became invalid ends its connections.
// spec: 70 §4.10.
func TestRevoked(t *testing.T) {
	w := newWorld(t, func(s *Server) { s.pace.recheck = 500 * time.Millisecond })
	w.queues()
	w.workload(w.red, "train", "")
	viewer := w.viewer()
	w.settled(w.red)
	conn := w.dial(viewer, "/ws/workloads")
	if got := names(map[string]any(conn.document())); len(got) != 1 {
		t.Fatalf("workloads: %v", got)
	}
	w.must(w.c.Delete(w.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: "view"}}))
	if got := names(map[string]any(conn.document())); len(got) != 0 {
		t.Errorf("without the permission: %v", got)
	}
	w.must(w.c.Delete(w.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: "viewer"}}))
	if code, why := conn.closed(); code != websocket.ClosePolicyViolation || !strings.Contains(why, "token") {
		t.Errorf("closed with %d %q", code, why)
	}
	if _, code, _ := w.try(viewer, "/ws/workloads", nil); code != 401 {
		t.Errorf("again: %d", code)
	}
}

// TestDebounce: changes within a moment are sent together, and the last one is sent. spec: 70 §4.10.
func TestDebounce(t *testing.T) {
	const pause = time.Second
	w := newWorld(t, func(s *Server) { s.pace.debounce = pause })
	work := w.workload(w.red, "train", "")
	admin := w.administrator()
	wait.Until(w.TB, "the cache has it", func() error {
		return w.server.cache.Get(t.Context(), client.ObjectKeyFromObject(work), &kueue.Workload{})
	})
	conn := w.dial(admin, "/ws/workload/"+w.red+"/train")
	conn.next()
	const changes = 30
	go func() {
		for i := range changes {
			w.annotate(work, fmt.Sprint("note ", i+1))
		}
	}()
	began, n := time.Now(), 0
	for note := any(nil); note != fmt.Sprint("note ", changes); n++ {
		note = conn.document().at("metadata", "annotations", "example.org/note")
	}
	if took := time.Since(began); n >= changes || took < time.Duration(n)*pause*9/10 {
		t.Errorf("%d changes were shown in %d messages within %s", changes, n, took)
	}
	if debounce != 200*time.Millisecond || pingEvery != 30*time.Second || recheckEvery != 30*time.Second || writeLimit != 5*time.Second || readLimit != 8192 {
		t.Error("the times and sizes are not those of the specification")
	}
}

// TestOversized: a message that is too large ends the connection and is not buffered. spec: 70 §4.10.
func TestOversized(t *testing.T) {
	w := newWorld(t, asIs)
	admin := w.administrator()
	small := w.dial(admin, "/ws/cohorts")
	small.next()
	w.must(small.WriteMessage(websocket.TextMessage, make([]byte, readLimit)))
	large := w.dial(admin, "/ws/cohorts")
	large.next()
	w.must(large.WriteMessage(websocket.TextMessage, make([]byte, readLimit+1)))
	if code, _ := large.closed(); code != websocket.CloseMessageTooBig {
		t.Errorf("closed with %d", code)
	}
	w.must(small.WriteControl(websocket.PingMessage, nil, time.Now().Add(wait.Patience)))
	ponged := make(chan struct{})
	small.SetPongHandler(func(string) error { close(ponged); return nil })
	go func() { _, _, _ = small.ReadMessage() }()
	wait.Receive(t, "one that is as large as may be is answered", ponged)
}

// TestSlow: a caller that does not read delays no other, and is disconnected.
func TestSlow(t *testing.T) {
	w := newWorld(t, func(s *Server) { s.pace.write = 2 * time.Second })
	var work *kueue.Workload
	for i := range 40 { // more than the buffers hold
		work = w.workload(w.red, fmt.Sprint("w", i), "")
		w.annotate(work, strings.Repeat("x", 200_000))
	}
	admin := w.administrator()
	wait.Until(w.TB, "the cache has all", func() error {
		var all kueue.WorkloadList
		if err := w.server.read(t.Context(), &all, w.red); err != nil || len(all.Items) < 40 {
			return fmt.Errorf("%d, %w", len(all.Items), err)
		}
		return nil
	})
	w.sleepy(admin, "/ws/workloads?namespace="+w.red)
	wait.Until(w.TB, "it is open", func() error {
		if w.server.hub.len() != 1 {
			return errors.New("it is not")
		}
		return nil
	})
	quick := w.dial(admin, "/ws/workload/"+w.red+"/"+work.Name)
	quick.next()
	for i := range 3 {
		note := fmt.Sprint("note ", i)
		w.annotate(work, note)
		for shown := any(nil); shown != note; {
			shown = quick.document().at("metadata", "annotations", "example.org/note")
		}
	}
	wait.Until(w.TB, "the slow one is given up", func() error {
		if n := w.server.hub.len(); n != 1 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
}

// len is the number of views.
func (h *hub) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subs)
}

// TestDeltas: the first message and all patches give the content that a new caller gets.
func TestDeltas(t *testing.T) {
	w := newWorld(t, func(s *Server) { s.pace.debounce = 10 * time.Millisecond })
	w.queues()
	admin := w.administrator()
	path := "/ws/workloads/dashboard?delta=true&namespace=" + w.red
	follower := w.dial(admin, path)
	have := follower.next()
	patches := make(chan []byte, 1000)
	go func() {
		for {
			_, data, err := follower.ReadMessage()
			if err != nil {
				close(patches)
				return
			}
			patches <- data
		}
	}()
	random, live, largest := rand.New(rand.NewPCG(embeddedtest.Seed(t, 1), 2)), map[string]*kueue.Workload{}, 0
	for i := range 60 {
		name := fmt.Sprint("w", random.IntN(8))
		switch of := live[name]; {
		case of == nil:
			live[name] = w.workload(w.red, name, "")
		case random.IntN(3) == 0:
			w.must(w.c.Delete(t.Context(), of))
			delete(live, name)
		case random.IntN(2) == 0:
			setPreempted(w, of)
		default:
			w.annotate(of, fmt.Sprint("note ", i))
		}
	}
	wait.Until(w.TB, "the same", func() error {
		for len(patches) > 0 {
			patch := <-patches
			largest = max(largest, len(patch))
			var err error
			if have, err = jsonpatch.MergePatch(have, patch); err != nil {
				t.Fatalf("%s: %v", patch, err)
			}
		}
		conn := w.dial(admin, path)
		want := conn.next()
		_ = conn.Close()
		if diff := cmp.Diff(decoded(t, want), decoded(t, have)); diff != "" {
			return fmt.Errorf("-snapshot +patched: %s", diff)
		}
		return nil
	})
	items, _ := decoded(t, have).at("workloads", "items").(map[string]any)
	if len(items) != len(live) || len(live) == 0 {
		t.Errorf("%d workloads are shown, %d exist", len(items), len(live))
	}
	if largest == 0 {
		t.Error("there were no patches")
	}
}

func decoded(t *testing.T, text []byte) (out document) {
	t.Helper()
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// TestPatchMakesIt: the patch between two documents without nulls turns the first into the second (RFC 7386).
func TestPatchMakesIt(t *testing.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Int32(), func(i int32) any { return i }), rapid.Map(rapid.String(), func(s string) any { return s }))
		if depth == 0 {
			return leaf
		}
		below := value(depth - 1)
		return rapid.OneOf(leaf, rapid.Map(rapid.MapOf(key, below), func(m map[string]any) any { return m }),
			rapid.Map(rapid.SliceOfN(below, 0, 3), func(l []any) any { return l }))
	}
	object := rapid.MapOf(key, value(3))
	rapid.Check(t, func(t *rapid.T) {
		var documents [2][]byte
		for i := range documents {
			text, err := json.Marshal(object.Draw(t, fmt.Sprint("document ", i)))
			if err != nil {
				t.Fatal(err)
			}
			if documents[i], err = withoutNulls(text); err != nil {
				t.Fatal(err)
			}
		}
		patch, err := jsonpatch.CreateMergePatch(documents[0], documents[1])
		if err != nil {
			t.Fatal(err)
		}
		got, err := jsonpatch.MergePatch(documents[0], patch)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal(documents[1], &b) != nil || !cmp.Equal(a, b) {
			t.Fatalf("%s and %s make %s, want %s", documents[0], patch, got, documents[1])
		}
	})
}
