package reconcile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
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

// TestWorkloadEvents decodes as client-go does.
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
		t.Run(name, func(t *testing.T) {
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
				if diff := cmp.Diff(want, got); diff != "" || sort != wantSort {
					t.Errorf("event %d: %s, client-go has %s and %s", i, sort, wantSort, diff)
				}
			}
		})
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
