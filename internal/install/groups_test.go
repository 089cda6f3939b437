package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseGroups(t *testing.T) {
	without := func(out ...Group) Groups {
		g := Groups{}
		for _, group := range AllGroups {
			g[group] = true
		}
		for _, group := range out {
			delete(g, group)
		}
		return g
	}
	cases := map[string]struct {
		list string
		want Groups
		err  string
	}{
		"all by default":             {"", without(), ""},
		"one left out":               {"-jobset", without(JobSet), ""},
		"two left out":               {"-jobset, -training", without(JobSet, Training), ""},
		"only these":                 {"queues,scheduler", Groups{Queues: true, Scheduler: true}, ""},
		"named and left out again":   {"queues,scheduler,-queues", Groups{Scheduler: true}, ""},
		"a name that does not exist": {"-jobsets", nil, `"jobsets" is no group; the groups are webhooks,`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseGroups(tc.list)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}
