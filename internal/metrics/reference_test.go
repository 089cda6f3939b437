package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/goldentest"
	jobset "github.com/berth-project/berth/internal/jobset/controller"
)

// subjects are the sections of docs/metrics.md, by the prefixes of their series: a section has the series with no longer prefix.
var subjects = []struct{ prefix, title string }{
	{"kueue_", "Workloads, ClusterQueues and the scheduler"},
	{"kueue_local_queue_", "LocalQueues"},
	{"kueue_cohort_", "Cohorts"},
	{"multikueue_", "Worker clusters"},
	{"berth_", "The manager"},
	{"berth_topology_", "Topologies"},
	{"berth_forecast_", "The forecast of starts"},
	{"berth_trainjob_", "TrainJobs"},
	{"jobset_", "JobSets"},
}

// settings are the switches as an administrator knows them.
var settings = map[string]string{
	"resources": "`metrics.enableClusterQueueResources`", "localQueues": "`metrics.localQueueMetrics`", "fair": "`fairSharing`", "usage": "`admissionFairSharing`",
	"creation": "gate `MetricForWorkloadCreationLatency`", "hashes": "gate `SchedulingEquivalenceHashing`", "unadmitted": "gate `UnadmittedWorkloadsObservability`",
	"cohorts": "gate `MetricsForCohorts`", "topologies": "gate `TopologyAwareScheduling`",
}

const referenceHead = `# Metrics

Made by ` + "`make generate`" + ` from the table of metrics. ` + "`/metrics`" + ` serves these series, beside the usual ones of Go, client-go and controller-runtime, such as
` + "`go_…`, `process_…`, `rest_client_…`, `workqueue_…` and `controller_runtime_…`" + `. [Operating](operate.md#looking-inside) says who may read them and has
dashboards.

- Names with ` + "`kueue_`" + ` are Kueue's, so that its dashboards go on working. Names with ` + "`berth_`" + ` are Berth's own, as are ` + "`jobset_jobsets`" + `,
  ` + "`jobset_time_to_ready_seconds` and `jobset_restarts_total`" + `.
- All series but ` + "`kueue_build_info`" + ` and those of JobSets also have the label ` + "`replica_role`" + `: ` + "`leader`, `follower` or `standalone`" + `. The tables leave it out.
- *custom* are the labels of ` + "`metrics.customLabels`" + ` with these kinds as their source, called ` + "`custom_NAME`" + ` (feature gate ` + "`CustomMetricLabels`" + `).
- ` + "`priority_class`" + ` has 256 values; further ones are counted as ` + "`" + untracked + "`" + `.
- Amounts of resources are in cores, bytes and whole units; times are in seconds.
- *needs*: the setting or feature gate without which a series does not exist. Series of LocalQueues and those that need a gate exist by default; the others do not.
`

// TestReference keeps docs/metrics.md up to date: run with -rewrite after a change of the metrics (`make generate` does).
func TestReference(t *testing.T) {
	goldentest.Check(t, "../../docs/metrics.md", reference(t))
}

func reference(t *testing.T) string {
	t.Helper()
	needs := needsOf()
	lines := make([][]string, len(subjects))
	add := func(name string, kind, needs, labels, help string) {
		at, length := -1, 0
		for i, s := range subjects {
			if strings.HasPrefix(name, s.prefix) && len(s.prefix) > length {
				at, length = i, len(s.prefix)
			}
		}
		if at < 0 || help == "" {
			t.Fatalf("%s has no section or no help text", name)
		}
		lines[at] = append(lines[at], fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", name, kind, labels, needs, help))
	}
	for _, f := range familiesWith(allSwitches("")) {
		if f.Labels[len(f.Labels)-1] != roleLabel && f.Name != "kueue_build_info" {
			t.Errorf("%s has no label %s, and the text says that it has", f.Name, roleLabel)
		}
		add(f.Name, string(f.Type), needs[f.Name], listLabels(f.Labels), f.Help)
	}
	for _, m := range jobset.Metrics() {
		add(m.Name, m.Type, "", listLabels(m.Labels), m.Help)
	}
	var b strings.Builder
	b.WriteString(referenceHead)
	for i, s := range subjects {
		fmt.Fprintf(&b, "\n## %s\n\n| series | type | labels | needs | meaning |\n|---|---|---|---|---|\n", s.title)
		slices.Sort(lines[i])
		b.WriteString(strings.Join(lines[i], ""))
	}
	return b.String()
}

// allSwitches are all switches but one, with a custom label of each kind.
func allSwitches(but string) *Options {
	on := map[string]bool{}
	for _, s := range switches {
		on[s] = s != but && s != "custom"
	}
	o := optionsWith(on)
	for _, kind := range []configv1beta2.MetricSourceKind{fromCohort, fromQueue, fromLocalQueue, fromWorkload} {
		o.Metrics.CustomLabels = append(o.Metrics.CustomLabels, configv1beta2.CustomMetricLabel{Name: string(kind), SourceKind: kind})
	}
	return &o
}

func familiesWith(o *Options) []Family {
	m := maker{custom: newCustomLabels(o.Metrics.CustomLabels)}
	m.families(o)
	return m.table
}

// needsOf returns the settings without which a family is missing.
func needsOf() map[string]string {
	out := map[string]string{}
	for _, s := range switches {
		if s == "custom" {
			continue
		}
		without := familiesWith(allSwitches(s))
		for _, f := range familiesWith(allSwitches("")) {
			if slices.ContainsFunc(without, func(w Family) bool { return w.Name == f.Name }) {
				continue
			}
			if out[f.Name] != "" {
				out[f.Name] += " and "
			}
			out[f.Name] += settings[s]
		}
	}
	return out
}

// listLabels lists labels without the role, and kinds of custom labels last.
func listLabels(labels []string) string {
	var own, custom []string
	for _, label := range labels {
		switch kind, is := strings.CutPrefix(label, "custom_"); {
		case is:
			custom = append(custom, kind)
		case label != roleLabel:
			own = append(own, "`"+label+"`")
		}
	}
	if len(custom) > 0 {
		own = append(own, "*custom* of "+strings.Join(custom, " and "))
	}
	return strings.Join(own, ", ")
}
