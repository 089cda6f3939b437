package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	toolscache "k8s.io/client-go/tools/cache"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

// watched returns the kinds of a watch of Workloads.
func watched(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	return scheme
}

// decoders return two decoders of the same watch: the one of informers of Workloads, and client-go's.
func decoders(t testing.TB, text string) (own *workloadEvents, clients watch.Decoder) {
	t.Helper()
	serial := serializer.NewCodecFactory(watched(t)).WithoutConversion()
	body := func() io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }
	return newWorkloadEvents(body(), serial), restwatch.NewDecoder(clientDecoders(body(), serial))
}

// eventText is an event of a watch as the API server writes it.
func eventText(t testing.TB, kind string, w *kueue.Workload) string {
	t.Helper()
	w.APIVersion, w.Kind = kueue.GroupVersion.String(), "Workload"
	raw, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, raw)
}

// TestWorkloadEvents decodes as client-go does, but for managed fields.
func TestWorkloadEvents(t *testing.T) {
	const object = `"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload"`
	tests := map[string]string{
		"some":                eventText(t, "ADDED", sweep(t, "a", "x", "1")) + "\n" + eventText(t, "MODIFIED", sweep(t, "a", "y", "2")) + eventText(t, "DELETED", sweep(t, "b", "x", "1")),
		"bookmark":            `{"type":"BOOKMARK","object":{` + object + `,"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}`,
		"the past is gone":    `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}}`,
		"another field":       `{"type":"ADDED","object":{` + object + `,"metadata":{"name":"a"}},"more":{"object":1}}`,
		"object first":        `{"object":{` + object + `,"metadata":{"name":"a"}},"type":"ADDED"}`,
		"other case":          `{"type":"ADDED","object":{` + object + `,"Metadata":{"name":"a"}}}`,
		"unknown field":       `{"type":"ADDED","object":{` + object + `,"spec":{"fresh":1}}}`,
		"does not fit":        `{"type":"ADDED","object":{` + object + `,"spec":7}}`,
		"another version":     `{"type":"ADDED","object":{"apiVersion":"kueue.x-k8s.io/v9","kind":"Workload"}}`,
		"no kind":             `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`,
		"no object":           `{"type":"ADDED"}`,
		"null":                `{"type":"ADDED","object":null}`,
		"no event":            `{}`,
		"no object of JSON":   `"text"`,
		"cut in an event":     eventText(t, "ADDED", sweep(t, "a", "x", "1")) + `{"type":"ADDED","object":{` + object + `,"met`,
		"no JSON":             eventText(t, "ADDED", sweep(t, "a", "x", "1")) + "<html>",
		"unknown type":        `{"type":"RENAMED","object":{` + object + `}}`,
		"the end":             ``,
		"error of a Workload": `{"type":"ERROR","object":{` + object + `}}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) { sameEvents(t, text) })
	}
}

// TestRandomWorkloadEvents: the same for Workloads with something in every field.
func TestRandomWorkloadEvents(t *testing.T) {
	random := fuzzer.FuzzerFor(metafuzzer.Funcs, embeddedtest.Source{Rand: embeddedtest.Random(t)}, serializer.NewCodecFactory(watched(t)))
	for range 50 {
		var w kueue.Workload
		random.Fill(&w)
		text := eventText(t, "MODIFIED", &w)
		own, _ := decoders(t, text)
		if _, read := own.readEvent([]byte(text)); read == nil {
			t.Fatalf("left to client-go: %s", text)
		}
		sameEvents(t, text)
	}
}

// Workloads of a watch share equal specs of pods, of which few are kept, and none that is long.
func TestSharedSpecs(t *testing.T) {
	var text strings.Builder
	images := []string{"a", "b", "a", strings.Repeat("long", maxSpecText)}
	for i := range 2 * maxSpecs {
		images = append(images, fmt.Sprint("other", i))
	}
	for _, image := range images {
		text.WriteString(eventText(t, "ADDED", sweep(t, "w", image, "1")))
	}
	own, _ := decoders(t, text.String())
	var containers []*corev1.Container
	for _, image := range images {
		_, object, err := own.Decode()
		if err != nil {
			t.Fatal(err)
		}
		c := &object.(*kueue.Workload).Spec.PodSets[0].Template.Spec.Containers[0]
		if containers = append(containers, c); c.Image != image {
			t.Fatalf("image %s, not %s", c.Image, image)
		}
		if n := len(own.specs); n > maxSpecs {
			t.Fatalf("%d specs are kept", n)
		}
	}
	if containers[0] != containers[2] || containers[0] == containers[1] {
		t.Error("equal specs are not shared, or others are")
	}
	for kept := range own.specs {
		if len(kept) > maxSpecText {
			t.Errorf("a spec of %d bytes is kept", len(kept))
		}
	}
}

// sameEvents compares what both decoders make of a watch.
func sameEvents(t *testing.T, text string) {
	t.Helper()
	own, clients := decoders(t, text)
	for i := 0; ; i++ {
		sort, got, err := own.Decode()
		wantSort, want, wantErr := clients.Decode()
		if (err == nil) != (wantErr == nil) || (err == io.EOF) != (wantErr == io.EOF) { //nolint:errorlint // watch.StreamWatcher compares so
			t.Fatalf("event %d: error %v; client-go: %v", i, err, wantErr)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes([]metav1.ManagedFieldsEntry{})); diff != "" || sort != wantSort {
			t.Errorf("event %d: %s, client-go has %s and %s", i, sort, wantSort, diff)
		}
	}
}

// BenchmarkWorkloadEvents is one event of a watch of Workloads: as informers decode it, as client-go does, and as client-go decodes CBOR, where the API
// server has the gate CBORServingAndStorage.
func BenchmarkWorkloadEvents(b *testing.B) {
	w := sweep(b, "a", "x", "1")
	w.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:a":{},"f:b":{},"f:c":{}}},"f:spec":{"f:podSets":{},"f:queueName":{},"f:active":{}}}`)
	text := strings.Repeat(eventText(b, "MODIFIED", w), 1000)
	for name, again := range map[string]func() watch.Decoder{
		"own":       func() watch.Decoder { own, _ := decoders(b, text); return own },
		"client-go": func() watch.Decoder { _, clients := decoders(b, text); return clients },
		"cbor":      binaryDecoder(b, w, 1000),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var decoder watch.Decoder
			for i := range b.N {
				if i%1000 == 0 {
					decoder = again()
				}
				if _, _, err := decoder.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// binaryDecoder returns what makes client-go's decoder of a watch in CBOR, in which a Workload changes so many times.
func binaryDecoder(t testing.TB, w *kueue.Workload, times int) func() watch.Decoder {
	t.Helper()
	scheme := watched(t)
	info := cbor.NewSerializerInfo(scheme, scheme)
	var object, event bytes.Buffer
	if err := info.Serializer.Encode(w, &object); err != nil {
		t.Fatal(err)
	}
	sent := &metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: object.Bytes()}}
	if err := info.StreamSerializer.Encode(sent, &event); err != nil {
		t.Fatal(err)
	}
	all := bytes.Repeat(event.Bytes(), times)
	return func() watch.Decoder {
		frames := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(all)))
		return restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), runtime.WithoutVersionDecoder{Decoder: info.Serializer})
	}
}

// TestInsistent: a list or a watch is repeated while nothing listens at the API server's address, twice a second at most. Every other outcome is
// returned at once.
func TestInsistent(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://127.0.0.1:6443", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
	forbidden := apierrors.NewForbidden(kueue.GroupVersion.WithResource("workloads").GroupResource(), "", nil)
	for name, tc := range map[string]struct {
		refusals int
		then     error
		ends     time.Duration // of the context; 0 is never
		tries    int
	}{
		"reached":         {0, nil, 0, 1},
		"back after some": {20, nil, 0, 21},
		"forbidden":       {0, forbidden, 0, 1},
		"then forbidden":  {2, forbidden, 0, 3},
		"stopped":         {1000, nil, 10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, tries := t.Context(), 0
				if tc.ends > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, tc.ends)
					defer stop()
				}
				answer := func() error {
					if tries++; tries <= tc.refusals {
						return refused
					}
					return tc.then
				}
				lw := insistent(&toolscache.ListWatch{
					ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, answer() },
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, answer() },
				})
				for _, request := range []func() error{
					func() error { _, err := lw.ListWithContext(ctx, metav1.ListOptions{}); return err },
					func() error { _, err := lw.WatchWithContext(ctx, metav1.ListOptions{}); return err },
				} {
					tries = 0
					began := time.Now()
					err, want := request(), tc.then
					if tc.ends > 0 {
						want = refused
					} else if tries != tc.tries {
						t.Errorf("%d tries, not %d", tries, tc.tries)
					}
					if took := time.Since(began); !errors.Is(err, want) || took < time.Duration(tries-1)*reconnect || took > time.Duration(tries)*2*reconnect {
						t.Errorf("%v after %d tries in %s", err, tries, took)
					}
				}
			})
		})
	}
}

// TestInformerComesBack: however often a watch has ended, the informer lists again a second later at most. Errors that are answered each time make it
// wait longer, but not a minute.
func TestInformerComesBack(t *testing.T) {
	const lasts = 5 * time.Second // of each watch
	expired := apierrors.NewResourceExpired("too old resource version")
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil)
	for name, tc := range map[string]struct {
		refuse  error // of every list
		watch   func() (watch.Interface, error)
		pause   time.Duration // between a list or the end of its watch and the next list, at most
		atLeast int           // lists in a minute
		atMost  int
	}{
		"a watch that ends": {watch: func() (watch.Interface, error) {
			w := watch.NewFake()
			time.AfterFunc(lasts, w.Stop)
			return w, nil
		}, pause: 2 * reconnect, atLeast: 1, atMost: 1},
		"a watch that expires": {watch: func() (watch.Interface, error) {
			w := watch.NewFake()
			time.AfterFunc(lasts, func() {
				status := expired.Status()
				w.Error(&status)
			})
			return w, nil
		}, pause: lasts + 2*reconnect, atLeast: 10, atMost: 12},
		"a watch that is refused": {watch: func() (watch.Interface, error) { return nil, expired }, pause: 2 * longestPause, atLeast: 7, atMost: 16},
		"lists that are refused":  {refuse: forbidden, pause: 2 * longestPause, atLeast: 7, atMost: 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				var lists []time.Time
				informer := newInformer(&toolscache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						lists = append(lists, time.Now())
						return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, tc.refuse
					},
					WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
						if o.SendInitialEvents != nil {
							return nil, apierrors.NewBadRequest("lists only")
						}
						return tc.watch()
					},
				}, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
				began := time.Now()
				informer.RunWithContext(ctx)
				if informer.HasSynced() != (tc.refuse == nil) {
					t.Errorf("synced: %t", informer.HasSynced())
				}
				if len(lists) < tc.atLeast || len(lists) > tc.atMost {
					t.Errorf("%d lists, want %d to %d", len(lists), tc.atLeast, tc.atMost)
				}
				for _, at := range lists {
					if pause := at.Sub(began); pause > tc.pause {
						t.Errorf("a list after %s, want %s at most", pause, tc.pause)
					}
					began = at
				}
			})
		})
	}
}
