package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSmoke puts a short load on the programs in bin/. It asserts counts that hold
// however slow the machine is; run fails itself if quota is exceeded or a workload lost.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a control plane")
	}
	t.Parallel()
	drawing := filepath.Join(t.TempDir(), "use.svg")
	figures := figuresOf(t, "-shape", "one-cohort", "-scale", "0.02", "-draw", drawing)
	for _, name := range []string{
		"wall_s", "limit_s", "wall_over_limit", "writes_per_workload", "events_per_workload", "webhook_calls_per_workload", "manager_cpu_s", "manager_peak_rss_mb",
		"admission_p50_ms", "admission_p99_ms", "generator_cpu_s", "apiserver_cpu_s", "etcd_cpu_s",
	} {
		if figures[name] <= 0 {
			t.Errorf("%s is %v", name, figures[name])
		}
	}
	n := figures["workloads"]
	if n != 60 {
		t.Errorf("%v workloads, want 60", n)
	}
	if got := figures["writes_per_workload[workloads POST]"]; got != 1 {
		t.Errorf("a workload was created %v times", got)
	}
	// One finish each, and one release for each eviction, except of Workloads that finished meanwhile. Figures have three digits.
	if got, most := figures["writes_per_workload[workloads/status PATCH]"], 1+figures["evictions"]/n; got < 1 || got > most+0.01 {
		t.Errorf("%v patches of the status, want 1 to %v of the generator", got, most)
	}
	if got := figures["writes_per_workload[workloads/status APPLY]"]; got < 1 {
		t.Errorf("%v writes of admissions", got)
	}
	if figures["wall_over_limit"] < 1 {
		t.Errorf("faster than the quota allows: %v", figures["wall_over_limit"])
	}
	if svg, err := os.ReadFile(drawing); err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) {
		t.Errorf("the drawing: %v", err)
	}
}

// figuresOf runs a load, and returns its figures.
func figuresOf(t *testing.T, args ...string) map[string]float64 {
	t.Helper()
	berth := filepath.Join("..", "..", "bin", "berth")
	if _, err := os.Stat(berth); err != nil {
		t.Fatalf("%s is not built: run `make build`", berth)
	}
	var out, progress bytes.Buffer
	if err := run(t.Context(), append(args, "-berth", berth), &out, &progress); err != nil {
		t.Fatalf("%v\n%s%s", err, progress.String(), out.String())
	}
	figures := map[string]float64{}
	for line := range strings.Lines(out.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			figures[name] = v
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s%s", progress.String(), out.String())
		}
	})
	return figures
}

// TestDeep: two Workloads for each place are there before the manager, which runs all of them, and serves the dashboard meanwhile.
func TestDeep(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a control plane")
	}
	t.Parallel()
	figures := figuresOf(t, "-shape", "deep", "-scale", "0.002", "-dashboard", "3s")
	if figures["workloads"] != 200 || figures["dashboard_first_view_s"] <= 0 || figures["dashboard_closed_cores"] <= 0 || figures["writes_per_workload[workloads POST]"] != 0 {
		t.Errorf("%v", figures)
	}
	if _, measured := figures["dashboard_cores"]; !measured {
		t.Error("the cost of the dashboard is missing")
	}
}

// TestPlain: with -plain no webhook is called, as one is for every new Workload otherwise (TestSmoke).
func TestPlain(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a control plane")
	}
	t.Parallel()
	figures := figuresOf(t, "-shape", "one-cohort", "-scale", "0.005", "-plain")
	if calls, counted := figures["webhook_calls_per_workload"]; !counted || calls != 0 {
		t.Errorf("%v calls of webhooks for each Workload", calls)
	}
}

// TestWrites measures a few writes of each sort, on one variant of the CRD.
func TestWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a control plane")
	}
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-writes", "20", "-variant", "v1beta2"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s%s", err, progress.String(), out.String())
	}
	for _, want := range []string{
		"write_ms[v1beta2,small,watches=0,create]: ", "write_ms[v1beta2,small,watches=2,status-apply]: ", "write_ms[v1beta2,large,watches=0,status-merge]: ",
		"write_ms[v1beta2,large,watches=2,status-put]: ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	if err := run(t.Context(), []string{"-writes", "20", "-variant", "all"}, &out, &progress); err == nil || err.Error() != `-variant "all": there are both, v1beta2, v1beta2-no-rules` {
		t.Errorf("an unknown variant: %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"unknown shape":          {[]string{"-shape", "round"}, `-shape "round": there are one-cohort, five-cohorts, thousand-queues, deep, topology, gangs`},
		"pictures of two builds": {[]string{"-against", "other", "-draw", "use.svg"}, "-against makes several measurements: leave out -dir, -draw and the profiles"},
		"argument":               {[]string{"more"}, `unknown argument "more"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out, progress bytes.Buffer
			if err := run(t.Context(), tc.args, &out, &progress); err == nil || err.Error() != tc.want {
				t.Errorf("the error is %v, want %s", err, tc.want)
			}
		})
	}
}
