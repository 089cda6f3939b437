// Package grafana makes dashboards for Grafana and recording rules for Prometheus: one overview, written here, and a panel for each family of
// the table of metrics. The files are docs/grafana.
package grafana

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/internal/metrics"
)

// Files returns the files of docs/grafana, by name.
func Files() map[string][]byte {
	out := map[string][]byte{"rules.yaml": rules()}
	for _, b := range boards() {
		out[b.name+".json"] = b.file()
	}
	return out
}

// board is a dashboard.
type board struct {
	name, title string
	// selects are the labels by which a viewer filters the dashboard, and of is the family that has all their values.
	selects []string
	of      string
	panels  []panel
}

// panel is a picture of one or more queries.
type panel struct {
	title, help, unit string
	kind              string // of Grafana
	queries           []query
}

// query is an expression with the legend of its series. An expression that is worth to be kept has the name of a recording rule.
type query struct {
	expr, legend, record string
}

// deciding selects the series of the replica that decides: each replica exports gauges of its own.
const deciding = `replica_role!="follower"`

// boards are the dashboards: the overview, and one for each subject of the table of metrics.
func boards() []*board {
	subjects := []*board{
		{name: "local-queues", title: "Berth / LocalQueues", selects: []string{"namespace", "name"}, of: "kueue_local_queue_status"},
		{name: "cluster-queues", title: "Berth / ClusterQueues", selects: []string{"cluster_queue"}, of: "kueue_cluster_queue_status"},
		{name: "cohorts", title: "Berth / Cohorts", selects: []string{"cohort"}, of: "kueue_cohort_info"},
		{name: "topologies", title: "Berth / Topologies", selects: []string{"topology"}, of: "berth_topology_nodes"},
		{name: "manager", title: "Berth / Manager"},
	}
	for _, f := range metrics.Families() {
		at := slices.IndexFunc(subjects, func(b *board) bool { return b.isAbout(f) })
		subjects[at].panels = append(subjects[at].panels, subjects[at].panel(f))
	}
	return append([]*board{{name: "overview", title: "Berth", panels: overview}}, subjects...)
}

// isAbout reports whether a family has all labels by which the dashboard is filtered: it belongs on the first such dashboard.
func (b *board) isAbout(f metrics.Family) bool {
	return !slices.ContainsFunc(b.selects, func(label string) bool { return !slices.Contains(f.Labels, label) })
}

// panel is the panel of a family.
func (b *board) panel(f metrics.Family) panel {
	own := slices.DeleteFunc(slices.Clone(f.Labels), func(label string) bool { return label == "replica_role" })
	var filters []string
	if len(own) < len(f.Labels) {
		filters = append(filters, deciding)
	}
	for _, label := range b.selects {
		filters = append(filters, fmt.Sprintf(`%s=~"$%s"`, label, label))
	}
	selector := "{" + strings.Join(filters, ", ") + "}"
	p := panel{title: f.Name, help: f.Help, unit: unitOf(f.Name), kind: "timeseries"}
	switch f.Type {
	case metrics.Histogram:
		by := slices.DeleteFunc(own, func(label string) bool { return label == "priority_class" })
		for _, percent := range []int{50, 90, 99} {
			p.queries = append(p.queries, query{expr: percentile(percent, f.Name+"_bucket"+selector, "$__rate_interval", by...), legend: legend(by) + fmt.Sprintf(" p%d", percent)})
		}
	case metrics.Counter:
		p.unit = "cps"
		if strings.HasSuffix(f.Name, "_seconds_total") {
			p.unit = "percentunit"
		}
		p.queries = []query{{expr: sum("rate("+f.Name+selector+"[$__rate_interval])", own...), legend: legend(own)}}
	default:
		if strings.HasSuffix(f.Name, "_info") {
			p.kind = "table"
		}
		p.queries = []query{{expr: f.Name + selector, legend: legend(own)}}
	}
	return p
}

// unitOf returns Grafana's unit of a family.
func unitOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.HasSuffix(name, "_ratio"):
		return "percentunit"
	}
	return "short"
}

func sum(of string, by ...string) string {
	if len(by) == 0 {
		return "sum(" + of + ")"
	}
	return "sum by (" + strings.Join(by, ", ") + ") (" + of + ")"
}

func percentile(percent int, buckets, window string, by ...string) string {
	rate := sum("rate("+buckets+"["+window+"])", append([]string{"le"}, by...)...)
	return fmt.Sprintf("histogram_quantile(%g, %s)", float64(percent)/100, rate)
}

func legend(by []string) string {
	if len(by) == 0 {
		return "all"
	}
	return "{{" + strings.Join(by, "}} {{") + "}}"
}

// rules are the recording rules: the named expressions of the overview.
func rules() []byte {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	g := group{Name: "berth"}
	for _, p := range overview {
		for _, q := range p.queries {
			if q.record != "" {
				g.Rules = append(g.Rules, rule{q.record, q.expr})
			}
		}
	}
	text, err := yaml.Marshal(map[string][]group{"groups": {g}})
	if err != nil {
		panic(fmt.Sprintf("rules always marshal: %v", err))
	}
	return append([]byte("# Made by `make generate`: recording rules for Prometheus, see docs/operate.md.\n"), text...)
}

// object is an object of Grafana's JSON.
type object = map[string]any

// file returns the dashboard as Grafana imports it.
func (b *board) file() []byte {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	variables := []object{{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}
	for i, label := range b.selects {
		var filters []string
		for _, before := range b.selects[:i] {
			filters = append(filters, fmt.Sprintf(`%s=~"$%s"`, before, before))
		}
		variables = append(variables, object{
			"name": label, "type": "query", "datasource": source, "refresh": 2, "includeAll": true, "multi": true, "allValue": ".*",
			"query": fmt.Sprintf("label_values(%s{%s}, %s)", b.of, strings.Join(filters, ", "), label),
		})
	}
	const width, height, columns = 12, 8, 2
	panels := make([]object, 0, len(b.panels))
	for i, p := range b.panels {
		targets := make([]object, 0, len(p.queries))
		for n, q := range p.queries {
			t := object{"refId": string(rune('A' + n)), "datasource": source, "expr": q.expr, "legendFormat": q.legend}
			if p.kind == "table" {
				t["instant"], t["format"] = true, "table"
			}
			targets = append(targets, t)
		}
		panels = append(panels, object{
			"id": i + 1, "type": p.kind, "title": p.title, "description": p.help, "datasource": source, "targets": targets,
			"gridPos":     object{"x": i % columns * width, "y": i / columns * height, "w": width, "h": height},
			"fieldConfig": object{"defaults": object{"unit": p.unit}, "overrides": []object{}},
		})
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(object{
		"uid": "berth-" + b.name, "title": b.title, "tags": []string{"berth"}, "schemaVersion": 39, "editable": true, "refresh": "30s",
		"time": object{"from": "now-3h", "to": "now"}, "templating": object{"list": variables}, "panels": panels,
	})
	if err != nil {
		panic(fmt.Sprintf("a dashboard always marshals: %v", err))
	}
	return out.Bytes()
}
