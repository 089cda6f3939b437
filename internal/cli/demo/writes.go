package demo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// target is the written resource, or a part of it such as workloads/status.
type target string

// counts are writes by target.
type counts map[target]int

func (c counts) sum(of ...target) int {
	sum := 0
	for _, t := range of {
		sum += c[t]
	}
	return sum
}

// since returns the difference to an earlier count.
func (c counts) since(earlier counts) counts {
	out := maps.Clone(c)
	for t, n := range earlier {
		out[t] -= n
	}
	return out
}

// meter counts the writes of a connection, including failed ones.
type meter struct {
	mutex  sync.Mutex
	writes counts
}

// intercept counts the requests of a transport.
func (m *meter) intercept(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if isWrite(request.Method) {
			m.mutex.Lock()
			m.writes[resourceOf(request.URL.Path)]++
			m.mutex.Unlock()
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (m *meter) read() counts {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return maps.Clone(m.writes)
}

func isWrite(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch || method == http.MethodDelete
}

// resourceOf reads the path of an API request: /api/v1/…, /apis/GROUP/VERSION/…, then namespaces/NAME/ or not, then
// RESOURCE[/NAME[/SUBRESOURCE]].
func resourceOf(path string) target {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return target(path)
	}
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return target(parts[0] + "/" + parts[2])
	}
	return target(parts[0])
}

// requestsMetric is the API server's request counter.
const requestsMetric = "apiserver_request_total"

// serverWrites returns the writes that the API server has counted for each target, by all clients.
func serverWrites(ctx context.Context, client rest.Interface) (counts, error) {
	stream, err := client.Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	defer stream.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(stream)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	out := counts{}
	for _, metric := range families[requestsMetric].GetMetric() {
		label := map[string]string{}
		for _, l := range metric.GetLabel() {
			label[l.GetName()] = l.GetValue()
		}
		switch label["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
		default:
			continue
		}
		t := label["resource"]
		if label["subresource"] != "" {
			t += "/" + label["subresource"]
		}
		out[target(t)] += int(metric.GetCounter().GetValue())
	}
	return out, nil
}

// perJob are the writes per job; the others depend on the clock, not on the jobs.
var perJob = []target{"workloads", "workloads/status", "jobs", "jobs/status"}

// report shows the manager's writes by its own count, and the writes of Workloads as the API server counted them: only the manager writes
// Workloads.
func report(manager, server counts, s *story) []string {
	jobs := len(s.jobs)
	sum := manager.sum(perJob...)
	parts := make([]string, 0, len(perJob))
	for _, t := range perJob {
		if manager[t] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", t, manager[t]))
		}
	}
	lines := []string{
		fmt.Sprintf("API writes by Berth: %d for %d jobs with %d admissions and %d preemptions, %.1f a job: %s.",
			sum, jobs, s.admissions(), s.preemptions(), float64(sum)/float64(max(jobs, 1)), strings.Join(parts, ", ")),
	}
	if rest := others(manager); rest != "" {
		lines = append(lines, "  Besides, with budgets of their own: "+rest+".")
	}
	const workloads, status = target("workloads"), target("workloads/status")
	ours, theirs := manager.sum(workloads, status), server.sum(workloads, status)
	text := fmt.Sprintf("  Counted: all writes on the manager's own connection. %s of the API server says of workloads: %d", requestsMetric, theirs)
	if ours == theirs {
		return append(lines, text+", the same.")
	}
	return append(lines, fmt.Sprintf("%s, while the manager sent %d.", text, ours))
}

// others lists the writes that are not per job.
func others(c counts) string {
	var parts []string
	for _, t := range slices.SortedFunc(maps.Keys(c), func(a, b target) int { return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b)) }) {
		if c[t] > 0 && !slices.Contains(perJob, t) {
			parts = append(parts, fmt.Sprintf("%s %d", t, c[t]))
		}
	}
	return strings.Join(parts, ", ")
}
