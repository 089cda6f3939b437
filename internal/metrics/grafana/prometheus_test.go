package grafana

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/metrics"
)

// TestInPrometheus has a real Prometheus scrape one series of each family, load the recording rules, and answer every query of every
// dashboard. It is skipped where there is none: make test-prometheus has one.
func TestInPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not on the PATH: make test-prometheus")
	}
	p := startPrometheus(t, program)
	wait.Until(t, "the recording rules are evaluated", func() error {
		var rules struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := p.get("/api/v1/rules", nil, &rules); err != nil {
			return err
		}
		if len(rules.Groups) != 1 || len(rules.Groups[0].Rules) == 0 {
			return fmt.Errorf("groups: %v", rules.Groups)
		}
		for _, r := range rules.Groups[0].Rules {
			if r.Health != "ok" {
				return fmt.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
			}
			if err := p.answers(r.Name); err != nil {
				return err
			}
		}
		return nil
	})
	for expr, where := range expressions(t) { //berth:unordered each is asked alone
		expr = strings.NewReplacer("$__rate_interval", "5s").Replace(variable.ReplaceAllString(expr, `=~".*"`))
		wait.Until(t, where, func() error { return p.answers(expr) })
	}
}

// prometheus is a Prometheus by its address.
type prometheus struct{ address string }

// startPrometheus starts a Prometheus with our recording rules that scrapes one series of each family.
func startPrometheus(t *testing.T, program string) *prometheus {
	t.Helper()
	var scrapes atomic.Int64
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, exposition(scrapes.Add(1))) }))
	t.Cleanup(exporter.Close)
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules.yaml", string(rules()))
	write("prometheus.yml", fmt.Sprintf(`global: {scrape_interval: 200ms, evaluation_interval: 200ms}
rule_files: [rules.yaml]
scrape_configs: [{job_name: berth, honor_labels: true, static_configs: [{targets: [%q]}]}]
`, strings.TrimPrefix(exporter.URL, "http://")))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
	})
	p := &prometheus{}
	log := bufio.NewScanner(said)
	for p.address == "" && log.Scan() {
		if found := listens.FindStringSubmatch(log.Text()); found != nil {
			p.address = found[1]
		} else {
			t.Log(log.Text())
		}
	}
	if p.address == "" {
		t.Fatal("Prometheus ended before it listened")
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	wait.Until(t, "Prometheus is ready", p.ready)
	return p
}

// listens is the line in which Prometheus says where it listens.
var listens = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

func (p *prometheus) ready() error {
	response, err := http.Get("http://" + p.address + "/-/ready")
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", response.Status)
	}
	return nil
}

// get reads an answer of the API of Prometheus.
func (p *prometheus) get(path string, query url.Values, into any) error {
	response, err := http.Get("http://" + p.address + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Error string
		Data  any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

// answers reports an error unless an expression has a series with a number.
func (p *prometheus) answers(expr string) error {
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return fmt.Errorf("%s: %w", expr, err)
	}
	for _, series := range data.Result {
		if series.Value[1] != "NaN" {
			return nil
		}
	}
	return fmt.Errorf("%s has no series with a number: %v", expr, data.Result)
}

// exposition is one series of each family, as the n-th scrape reads it.
func exposition(n int64) string {
	var b strings.Builder
	for _, f := range metrics.Families() {
		labels := make([]string, len(f.Labels))
		for i, label := range f.Labels {
			labels[i] = fmt.Sprintf(`%s="x"`, label)
		}
		list := strings.Join(labels, ",")
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.Name, f.Help, f.Name, f.Type)
		if f.Type != metrics.Histogram {
			fmt.Fprintf(&b, "%s{%s} %d\n", f.Name, list, n)
			continue
		}
		prefix := list
		if prefix != "" {
			prefix += ","
		}
		fmt.Fprintf(&b, "%s_bucket{%sle=\"1\"} %d\n%s_bucket{%sle=\"+Inf\"} %d\n%s_sum{%s} %d\n%s_count{%s} %d\n",
			f.Name, prefix, n, f.Name, prefix, 2*n, f.Name, list, 2*n, f.Name, list, 2*n)
	}
	return b.String()
}
