package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	kjson "sigs.k8s.io/json"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// without drops fields at any depth.
func without(value any, fields []string) {
	switch v := value.(type) {
	case object:
		for key, inner := range v {
			if slices.Contains(fields, key) {
				delete(v, key)
			} else {
				without(inner, fields)
			}
		}
	case []any:
		for _, inner := range v {
			without(inner, fields)
		}
	}
}

// either draws a direction, and an object to convert, with or without the fields that differ.
func either(t *rapid.T, scheme *runtime.Scheme, name string) (raw []byte, to schema.GroupVersion, same bool) {
	from, to, fields := kueue.GroupVersion, kueuev1beta1.GroupVersion, kinds[name].downFields
	if rapid.Bool().Draw(t, "up") {
		from, to, fields = to, from, kinds[name].upFields
	}
	o := random(t, scheme, from.WithKind(name))
	if same = rapid.Bool().Draw(t, "same"); same {
		without(o, fields)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return raw, to, same
}

// An object is relabelled if it has none of the fields that differ, and only if decoding gives the same result.
func TestRelabelled(t *testing.T) {
	forEachKind(t, func(t *rapid.T, scheme *runtime.Scheme, kind string) {
		raw, to, same := either(t, scheme, kind)
		got, ok := relabelled(nil, raw, to.String())
		if !ok {
			if same && !bytes.Contains(raw, []byte(`\u`)) {
				t.Fatalf("not relabelled: %s", raw)
			}
			return
		}
		want, err := wholly(raw, to)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Fatalf("(-decoded +relabelled):\n%s", diff)
		}
	})
}

// wholly converts an object of which every part is decoded.
func wholly(raw []byte, to schema.GroupVersion) ([]byte, error) {
	var o object
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		return nil, err
	}
	if err := Convert(o, to); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// Parts that pass as text are the same as if they were decoded.
func TestConvertRaw(t *testing.T) {
	forEachKind(t, func(t *rapid.T, scheme *runtime.Scheme, kind string) {
		raw, to, _ := either(t, scheme, kind)
		want, wantErr := wholly(raw, to)
		got, err := convertRaw(raw, to)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, if everything is decoded %v", err, wantErr)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Fatalf("(-decoded +got):\n%s", diff)
		}
	})
}

// TestOpaque: pieces are found wherever the text has them, and only as the API server spells them.
func TestOpaque(t *testing.T) {
	for text, want := range map[string]string{
		`{"metadata":{"name":"w","managedFields":[{"a":1}]},"spec":{"podSets":[{"template":{"b":[2]},"count":1},{"count":2},{"template":{"c":3}}]}}`: `[{"a":1}] {"b":[2]} {"c":3} `,
		`{"spec":{"podSets":[{"template":{"b":2}}]},"metadata":{"managedFields":[1]}}`:                                                               `[1] {"b":2} `,
		`{"metadata":{"name":"w"},"spec":{"podSets":{"template":1}}}`:                                                                                ``,
		`{"status":{"managedFields":[1],"podSets":[{"template":1}]}}`:                                                                                ``,
		`{"metadata": {"managedFields": [1]}}`:                                                                                                       ``,
		`[]`:                                                                                                                                         ``,
		``:                                                                                                                                           ``,
	} {
		got := ""
		for _, p := range opaque([]byte(text)) {
			got += text[p.start:p.end] + " "
		}
		if got != want {
			t.Errorf("%s: pieces %q, want %q", text, got, want)
		}
		var o, whole object
		pieces := opaque([]byte(text))
		if json.Unmarshal(blank([]byte(text), pieces), &o) != nil {
			continue
		}
		putBack(o, []byte(text), pieces)
		back, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		again := object{}
		if err := errors.Join(json.Unmarshal(back, &again), json.Unmarshal([]byte(text), &whole)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, again); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", text, diff)
		}
	}
}

// Both paths give the same answer to a review.
func TestFast(t *testing.T) {
	scheme := newScheme(t)
	names := allKinds(scheme)
	rapid.Check(t, func(t *rapid.T) {
		request := &apiextensionsv1.ConversionRequest{UID: "5b2", DesiredAPIVersion: kueuev1beta1.GroupVersion.String()}
		var all []json.RawMessage
		for range rapid.IntRange(0, 3).Draw(t, "objects") {
			raw, to, _ := either(t, scheme, rapid.SampledFrom(names).Draw(t, "kind"))
			request.DesiredAPIVersion = to.String()
			request.Objects = append(request.Objects, runtime.RawExtension{Raw: raw})
			all = append(all, raw)
		}
		review := &apiextensionsv1.ConversionReview{Request: request}
		review.APIVersion, review.Kind = apiextensionsv1.SchemeGroupVersion.String(), "ConversionReview"
		body, err := json.Marshal(review)
		if err != nil {
			t.Fatal(err)
		}
		text, ok := fast(nil, body)
		if can := len(all) > 0 && answer(request).Result.Status == metav1.StatusSuccess; ok != can {
			t.Fatalf("answered: %v, all objects can be converted: %v", ok, can)
		}
		if !ok {
			return
		}
		var got apiextensionsv1.ConversionReview
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		review.Response, review.Request = answer(request), nil
		if diff := cmp.Diff(*review, got); diff != "" {
			t.Fatalf("(-decoded +fast):\n%s", diff)
		}
	})
}

// Any input is answered or left to the decoder.
func TestFastOnAnything(t *testing.T) {
	scheme := newScheme(t)
	rapid.Check(t, func(t *rapid.T) {
		raw, to, _ := either(t, scheme, "Workload")
		body := slices.Concat([]byte(`{"request":{"uid":"u","desiredAPIVersion":"`+to.String()+`","objects":[`), raw, []byte(`]}}`))
		body = body[:rapid.IntRange(0, len(body)).Draw(t, "length")]
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			if len(body) > 0 {
				body[rapid.IntRange(0, len(body)-1).Draw(t, "at")] = rapid.SampledFrom([]byte(`"\{}[]:,1`)).Draw(t, "to")
			}
		}
		fast(nil, body)
	})
}
