package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

// requests are writes that the API server has served, of all clients.
type requests struct {
	accepted map[string]float64 // by resource, subresource and verb
	refused  map[string]float64 // by these and the code: conflicts and the like
	events   float64            // accepted or not
	webhooks float64            // calls of admission webhooks
}

// countRequests reads the API server's own metrics.
func countRequests(ctx context.Context, client rest.Interface) (requests, error) {
	body, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return requests{}, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return parseRequests(string(body))
}

// writing are the verbs that count. APPLY is a patch by server-side apply.
var writing = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

// parseRequests counts the writes in the text of the metrics. Events are counted apart;
// leases, which depend on the time only, and reviews, which are questions, are not.
func parseRequests(text string) (requests, error) {
	out := requests{accepted: map[string]float64{}, refused: map[string]float64{}}
	for line := range strings.Lines(text) {
		rest, write := strings.CutPrefix(line, "apiserver_request_total{")
		rest, call := strings.CutPrefix(rest, "apiserver_admission_webhook_request_total{")
		if !write && !call {
			continue
		}
		inside, value, ok := strings.Cut(strings.TrimSpace(rest), "} ")
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return requests{}, fmt.Errorf("the API server's metrics: cannot read %q", strings.TrimSpace(line))
		}
		if call {
			out.webhooks += n
			continue
		}
		labels := map[string]string{}
		for pair := range strings.SplitSeq(inside, ",") {
			name, quoted, _ := strings.Cut(pair, "=")
			labels[name] = strings.Trim(quoted, `"`)
		}
		resource, verb, code := labels["resource"], labels["verb"], labels["code"]
		name := resource
		if sub := labels["subresource"]; sub != "" {
			name += "/" + sub
		}
		switch {
		case !slices.Contains(writing, verb), resource == "leases", strings.HasSuffix(resource, "reviews"):
		case resource == "events":
			out.events += n
		case !strings.HasPrefix(code, "2"):
			out.refused[name+" "+verb+" "+code] += n
		default:
			out.accepted[name+" "+verb] += n
		}
	}
	return out, nil
}

// since returns the difference to an earlier count.
func (r requests) since(before requests) requests {
	return requests{added(r.accepted, before.accepted), added(r.refused, before.refused), r.events - before.events, r.webhooks - before.webhooks}
}

func added(after, before map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, n := range after {
		if d := n - before[name]; d != 0 {
			out[name] = d
		}
	}
	return out
}

// sum adds up all kinds of writes.
func sum(counts map[string]float64) (all float64) {
	for _, n := range counts {
		all += n
	}
	return all
}
