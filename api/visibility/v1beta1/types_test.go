package v1beta1

import (
	"encoding/json"
	"math"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// spec: 70 §3.4, §7 example 38.
func TestPage(t *testing.T) {
	for name, tc := range map[string]struct {
		options       PendingWorkloadOptions
		offset, limit int64
	}{
		"nothing asked":   {PendingWorkloadOptions{}, 0, 1000},
		"as asked":        {PendingWorkloadOptions{Offset: 6, Limit: 3}, 6, 3},
		"negative offset": {PendingWorkloadOptions{Offset: -5, Limit: 1}, 0, 1},
		"negative limit":  {PendingWorkloadOptions{Limit: -1}, 0, 0},
		"large limit":     {PendingWorkloadOptions{Limit: 500_000}, 0, 100_000},
		"largest":         {PendingWorkloadOptions{Offset: math.MaxInt64, Limit: math.MaxInt64}, math.MaxInt64, 100_000},
		"smallest":        {PendingWorkloadOptions{Offset: math.MinInt64, Limit: math.MinInt64}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if offset, limit := tc.options.Page(); offset != tc.offset || limit != tc.limit {
				t.Errorf("got %d, %d; want %d, %d", offset, limit, tc.offset, tc.limit)
			}
		})
	}
}

// The API server reads query parameters through the scheme.
func TestQueryParameters(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	codec := runtime.NewParameterCodec(s)
	for name, tc := range map[string]struct {
		query string
		want  PendingWorkloadOptions
		err   string
	}{
		"both":               {query: "offset=6&limit=3", want: PendingWorkloadOptions{Offset: 6, Limit: 3}},
		"none":               {query: "pretty=true"},
		"empty":              {query: "limit="},
		"negative":           {query: "offset=-5", want: PendingWorkloadOptions{Offset: -5}},
		"not a number":       {query: "limit=x", err: `query parameter limit: "x" is not a whole number of 64 bits`},
		"a fraction":         {query: "offset=1.5", err: `query parameter offset: "1.5" is not a whole number of 64 bits`},
		"larger than 64 bit": {query: "offset=9223372036854775808", err: `query parameter offset: "9223372036854775808" is not a whole number of 64 bits`},
	} {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			got := PendingWorkloadOptions{Offset: 99, Limit: 99} // must not survive
			err = codec.DecodeParameters(query, GroupVersion, &got)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("want error %q, got %v", tc.err, err)
				}
				return
			}
			got.TypeMeta = tc.want.TypeMeta
			if err != nil || got != tc.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

// Positions and priorities of 0 mean something, so clients must see them; a
// page without Workloads is a list and not null (spec: 70 §2.4).
func TestZeroesAreWritten(t *testing.T) {
	out, err := json.Marshal(PendingWorkloadsSummary{Items: []PendingWorkload{{}}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{},"items":[{"metadata":{},"priority":0,"localQueueName":"","positionInClusterQueue":0,"positionInLocalQueue":0}]}`
	if string(out) != want {
		t.Errorf("got  %s\nwant %s", out, want)
	}
}

func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ClusterQueue", "LocalQueue", "PendingWorkloadsSummary", "PendingWorkloadOptions", "ListOptions"} {
		if !s.Recognizes(GroupVersion.WithKind(kind)) {
			t.Errorf("%s is not registered", kind)
		}
	}
}
