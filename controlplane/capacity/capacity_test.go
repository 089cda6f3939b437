package capacity

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		want    map[string]string
		problem string // part of the error
	}{
		"default":             {text: "", want: map[string]string{"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "8", "pods": "110"}},
		"only what is named":  {text: "cpu=500m", want: map[string]string{"cpu": "500m", "pods": "110"}},
		"pods given":          {text: "cpu=1,pods=3", want: map[string]string{"cpu": "1", "pods": "3"}},
		"spaces":              {text: " cpu=1 , memory=1Gi ", want: map[string]string{"cpu": "1", "memory": "1Gi", "pods": "110"}},
		"zero":                {text: "example.com/tpu=0", want: map[string]string{"example.com/tpu": "0", "pods": "110"}},
		"no equals sign":      {text: "cpu", problem: `"cpu" is not of the form resource=quantity`},
		"no name":             {text: "=3", problem: `"" is not a resource name`},
		"bad name":            {text: "c pu=3", problem: `"c pu" is not a resource name`},
		"bad quantity":        {text: "cpu=many", problem: `cpu=many: "many" is not a quantity`},
		"no quantity":         {text: "cpu=", problem: `"" is not a quantity`},
		"negative":            {text: "cpu=-1", problem: "must not be negative"},
		"twice":               {text: "cpu=1,cpu=2", problem: "cpu is given twice"},
		"comma at the end":    {text: "cpu=1,", problem: `"" is not of the form`},
		"second pair is bad":  {text: "cpu=1,memory=lots", problem: "memory=lots"},
		"several equal signs": {text: "cpu=1=2", problem: `"1=2" is not a quantity`},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := Parse(tc.text)
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Fatalf("error %v, want one with %q", err, tc.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for name, quantity := range maps.All(list) {
				got[string(name)] = quantity.String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wrong resources (-want +got):\n%s", diff)
			}
		})
	}
}
