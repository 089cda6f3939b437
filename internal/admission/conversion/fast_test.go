package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/berth-project/berth/internal/workload/plan/assignment"
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

// Workloads with places are spelled out without decoding the rest, unless the shape of their slices is to be kept.
func TestPlaced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		written := false
		var sets []kueue.PodSetAssignment
		for i := range rapid.IntRange(0, 3).Draw(t, "podSets") {
			set := kueue.PodSetAssignment{Name: kueue.PodSetReference(fmt.Sprintf("set-%d", i)), Count: new(int32(1))}
			var domains []assignment.Domain
			for range rapid.IntRange(0, 5).Draw(t, "domains") {
				domains = append(domains, assignment.Domain{Count: rapid.Int32Range(1, 3).Draw(t, "count"), Values: []string{
					rapid.SampledFrom([]string{"rack-1", "rack-2", "x"}).Draw(t, "rack"), rapid.SampledFrom([]string{"node-1", "node-2", "\"é"}).Draw(t, "node"),
				}})
			}
			switch places := assignment.Compress(domains); {
			case len(domains) == 0:
			case rapid.Bool().Draw(t, "as it is compressed"):
				set.TopologyAssignment = &kueue.TopologyAssignment{Levels: []string{"rack", "host"}, Slices: places}
			default: // each domain in a slice of its own
				written = written || len(domains) > len(places)
				set.TopologyAssignment = &kueue.TopologyAssignment{Levels: []string{"rack", "host"}}
				for i := range domains {
					set.TopologyAssignment.Slices = append(set.TopologyAssignment.Slices, assignment.Compress(domains[i:i+1])...)
				}
			}
			sets = append(sets, set)
		}
		w := &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: sets}}}
		w.APIVersion, w.Kind, w.Name = kueue.GroupVersion.String(), "Workload", "w"
		raw := sorted(t, w)
		got, ok := relabelled(nil, raw, kueuev1beta1.GroupVersion.String())
		if ok == written {
			t.Fatalf("by text: %v, a shape is to be kept: %v: %s", ok, written, raw)
		}
		want, err := wholly(raw, kueuev1beta1.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); ok && diff != "" {
			t.Fatalf("(-decoded +by text):\n%s", diff)
		}
	})
}

// TestPlain: a plain assignment is read as decoding reads it, and any other text is left to that.
func TestPlain(t *testing.T) {
	one := `"domainCount":1,"podCounts":{"universal":1},"valuesPerLevel":[{"universal":"a"}]`
	for text, want := range map[string]bool{
		`{"levels":["rack"],"slices":[{` + one + `}]}`: true,
		`{"levels":["topology.example/rack","host"],"slices":[{"domainCount":2,"podCounts":{"individual":[1,20]},"valuesPerLevel":[{"universal":"r"},{"individual":{"prefix":"n-","roots":["","2"],"suffix":"_.x"}}]},{` + one + `}]}`: true,
		`{"levels":[],"slices":[]}`:                                                                                 true,
		`{"levels":["rack"],"slices":[{` + one + `,"x":1}]}`:                                                        false,
		`{"levels":["rack"],"slices":[{` + one + `}],"x":1}`:                                                        false,
		`{"levels":["rack"],"slices":[{` + one + `}]} `:                                                             false,
		`{"levels":["rack"],"slices":[{` + one + `},]}`:                                                             false,
		`{"levels":["rack"],"slices":null}`:                                                                         false,
		`{"levels":["r\\n"],"slices":[{` + one + `}]}`:                                                              false,
		`{"levels":["<"],"slices":[{` + one + `}]}`:                                                                 false,
		`{"slices":[{` + one + `}],"levels":["rack"]}`:                                                              false,
		`{"levels":["rack"],"slices":[{"domainCount":01,"podCounts":{"universal":1},"valuesPerLevel":[]}]}`:         false,
		`{"levels":["rack"],"slices":[{"domainCount":4294967297,"podCounts":{"universal":1},"valuesPerLevel":[]}]}`: false,
		`{"levels":["rack"],"slices":[{"domainCount":-1,"podCounts":{"universal":1},"valuesPerLevel":[]}]}`:         false,
		`{"levels":["rack"],"slices":[{"domainCount":1,"podCounts":{},"valuesPerLevel":[]}]}`:                       false,
		`{"levels":["rack"],"slices":[{"domainCount":1,"podCounts":{"universal":1},"valuesPerLevel":[{"individual":{"prefix":"a","suffix":"b"}}]}]}`:  false,
		`{"levels":["rack"],"slices":[{"domainCount":1,"podCounts":{"universal":1},"valuesPerLevel":[{"universal":"a","individual":{"roots":[]}}]}]}`: false,
		``: false,
	} {
		levels, slices, ok := plainAssignment([]byte(text))
		if ok != want {
			t.Errorf("%s: plain %v", text, ok)
		}
		if !ok {
			continue
		}
		var decoded struct {
			Levels json.RawMessage                 `json:"levels"`
			Slices []kueue.TopologyAssignmentSlice `json:"slices"`
		}
		if strict, err := kjson.UnmarshalStrict([]byte(text), &decoded); err != nil || strict != nil {
			t.Fatal(strict, err)
		}
		if diff := cmp.Diff(decoded.Slices, slices) + cmp.Diff(string(decoded.Levels), string(levels)); diff != "" {
			t.Errorf("%s: (-decoded +plain):\n%s", text, diff)
		}
	}
}

// sorted is the text of an object with its keys in the order in which the API server writes them.
func sorted(t *rapid.T, of any) []byte {
	raw, err := json.Marshal(of)
	if err == nil {
		var o object
		if err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err == nil {
			raw, err = json.Marshal(o)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
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
