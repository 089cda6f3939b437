package conversion

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

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
		want, err := convertRaw(raw, to)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Fatalf("(-decoded +relabelled):\n%s", diff)
		}
	})
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
		alike := len(all) > 0
		for _, raw := range all {
			_, same := relabelled(nil, raw, request.DesiredAPIVersion)
			alike = alike && same
		}
		if ok != alike {
			t.Fatalf("answered: %v, all objects relabelled: %v", ok, alike)
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
