package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const metricsText = `# HELP apiserver_request_total Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="",verb="POST",version="v1beta2"} 10
apiserver_request_total{code="200",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="status",verb="APPLY",version="v1beta2"} 1.2e+01
apiserver_request_total{code="200",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="status",verb="PATCH",version="v1beta2"} 5
apiserver_request_total{code="201",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="status",verb="PATCH",version="v1beta2"} 1
apiserver_request_total{code="409",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="status",verb="APPLY",version="v1beta2"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="cluster",subresource="",verb="LIST",version="v1beta2"} 100
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 40
apiserver_request_total{code="201",component="apiserver",dry_run="",group="authentication.k8s.io",resource="tokenreviews",scope="resource",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="201",component="apiserver",dry_run="",group="events.k8s.io",resource="events",scope="resource",subresource="",verb="POST",version="v1"} 20
apiserver_request_total{code="200",component="apiserver",dry_run="",group="events.k8s.io",resource="events",scope="resource",subresource="",verb="PATCH",version="v1"} 2
apiserver_admission_webhook_request_total{code="200",name="vworkload.kb.io",operation="CREATE",rejected="false",type="validating"} 10
apiserver_admission_webhook_request_total{code="200",name="mworkload.kb.io",operation="CREATE",rejected="false",type="admit"} 4
apiserver_request_terminations_total{code="200",resource="workloads",verb="POST"} 1000
`

func TestParseRequests(t *testing.T) {
	got, err := parseRequests(metricsText)
	if err != nil {
		t.Fatal(err)
	}
	want := requests{events: 22, webhooks: 14, refused: map[string]float64{"workloads/status APPLY 409": 3}, accepted: map[string]float64{
		"workloads POST": 10, "workloads/status APPLY": 12, "workloads/status PATCH": 6,
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(requests{})); diff != "" {
		t.Error(diff)
	}
	if n := sum(got.accepted); n != 28 {
		t.Errorf("%v writes, want 28", n)
	}
	before := requests{
		events: 20, webhooks: 4, refused: map[string]float64{"workloads/status APPLY 409": 1},
		accepted: map[string]float64{"workloads POST": 10, "workloads/status APPLY": 2},
	}
	want = requests{
		events: 2, webhooks: 10, refused: map[string]float64{"workloads/status APPLY 409": 2},
		accepted: map[string]float64{"workloads/status APPLY": 10, "workloads/status PATCH": 6},
	}
	if diff := cmp.Diff(want, got.since(before), cmp.AllowUnexported(requests{})); diff != "" {
		t.Errorf("since: %s", diff)
	}
	if _, err := parseRequests("apiserver_request_total{verb=\"POST\"} many\n"); err == nil {
		t.Error("nonsense is taken")
	}
}

func TestPercentile(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for name, tc := range map[string]struct {
		samples []float64
		p, want float64
	}{
		"one":           {[]float64{7}, 50, 7},
		"lower of two":  {[]float64{2, 1}, 50, 1},
		"p99 of few":    {[]float64{3, 1, 2}, 99, 3},
		"p99 of 100":    {hundred, 99, 99},
		"median of 100": {hundred, 50, 50},
	} {
		t.Run(name, func(t *testing.T) {
			if got := percentile(tc.samples, tc.p); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
	if got := percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("of nothing it is %v", got)
	}
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{"3000": 3000, "146": 146.2, "66": 66, "4.80": 4.8, "21.5": 21.49, "0.250": 0.25, "0": 0} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestDrawText(t *testing.T) {
	shares := make([]float64, 16)
	for i := range shares {
		shares[i] = float64(i) / 15
	}
	shares[3] = 0
	var got strings.Builder
	drawText(&got, shares, 66*time.Second)
	const want = ` 100% |               #
      |             ###
      |           #####
      |         #######
  50% |       #########
      |     ###########
      |    ############
      | ## ############
   0% +----------------
       0 s       66.0 s
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("%s\n%s", diff, got.String())
	}
}

func TestDrawSVG(t *testing.T) {
	var got strings.Builder
	drawSVG(&got, []float64{0.5, 1}, 3*time.Second, "title")
	for _, part := range []string{"<svg ", "</svg>\n", ">title<", ">3.0 s<", ">100%<", fmt.Sprintf("M%d %dV140.0H41V40.0H42V240Z", svgMargin, svgMargin+svgRows)} {
		if !strings.Contains(got.String(), part) {
			t.Errorf("no %q in %s", part, got.String())
		}
	}
}
