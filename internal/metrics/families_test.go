package metrics

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options"
)

// contract are the families that clients read: name, type (c, g, h), labels in order without the role. +CQ, +LQ, +CO and +WL are the
// custom labels of a kind. A line with [switch] needs it. spec: 70 §5.3.
const contract = `
kueue_admission_attempts_total                              c result
kueue_admission_attempt_duration_seconds                    h result
kueue_admission_cycle_preemption_skips                      g cluster_queue +CQ
kueue_preemption_target_recomputations_total                c cluster_queue result +CQ
multikueue_workloads_dispatched_total                       c cluster_queue cluster
multikueue_workloads_admitted_total                         c cluster_queue cluster
multikueue_worker_lost_total                                c cluster
multikueue_cluster_connected                                g cluster
multikueue_external_transform_total                         c framework phase result
multikueue_external_transform_cost                          h framework phase
multikueue_external_transform_duration_seconds              h framework phase
multikueue_external_transform_suspensions_total             c framework phase
kueue_pod_scheduling_gate_removal_seconds                   h name cluster_queue is_group +CQ
kueue_pending_workloads                                     g cluster_queue status +CQ +WL
kueue_finished_workloads                                    g cluster_queue +CQ
kueue_quota_reserved_workloads_total                        c cluster_queue priority_class +CQ
kueue_admitted_workloads_total                              c cluster_queue priority_class +CQ
kueue_finished_workloads_total                              c cluster_queue priority_class +CQ
kueue_quota_reserved_wait_time_seconds                      h cluster_queue priority_class +CQ
kueue_ready_wait_time_seconds                               h cluster_queue priority_class +CQ
kueue_admitted_until_ready_wait_time_seconds                h cluster_queue priority_class +CQ
kueue_admission_checks_wait_time_seconds                    h cluster_queue priority_class +CQ
kueue_admission_wait_time_seconds                           h cluster_queue priority_class +CQ
kueue_execution_time_seconds                                h cluster_queue priority_class +CQ
kueue_evicted_workloads_total                               c cluster_queue reason underlying_cause priority_class +CQ
kueue_evicted_workloads_once_total                          c cluster_queue reason underlying_cause priority_class +CQ
kueue_pods_ready_to_evicted_time_seconds                    h cluster_queue reason underlying_cause +CQ
kueue_workload_eviction_latency_seconds                     h cluster_queue reason +CQ
kueue_preempted_workloads_total                             c preempting_cluster_queue reason +CQ
kueue_replaced_workload_slices_total                        c cluster_queue +CQ
kueue_reserving_active_workloads                            g cluster_queue +CQ
kueue_admitted_active_workloads                             g cluster_queue +CQ +WL
kueue_cluster_queue_status                                  g cluster_queue status +CQ
berth_preempted_workloads_total                             c preempting_cluster_queue preempted_cluster_queue reason
berth_scheduler_phase_duration_seconds                      h phase
berth_engine_turn_duration_seconds                          h
berth_events_shed_total                                     c reason
berth_metrics_looks_failed_total                            c
[topologies] berth_topology_capacity                        g topology flavor resource
[topologies] berth_topology_free                            g topology flavor resource
[topologies] berth_topology_largest_free                    g topology flavor level resource
[topologies] berth_topology_fragmentation_ratio             g topology flavor level resource
[topologies] berth_topology_domains                         g topology flavor level
[topologies] berth_topology_nodes                           g topology flavor state
berth_forecast_age_seconds                                  g
berth_forecast_runs                                         g
berth_forecast_workloads                                    g start
berth_forecast_processor_seconds_total                      c
berth_trainjob_phase                                        g phase
berth_trainjob_status_posts_total                           c code
berth_trainjob_runtime_patch_conflicts_total                c policy
berth_trainjob_runtime_patch_denied_total                   c reason
[creation] kueue_workload_creation_latency_seconds          h job_kind +LQ
[hashes] kueue_pending_scheduling_hashes                    g cluster_queue status +CQ
[unadmitted] kueue_unadmitted_workloads                     g cluster_queue reason underlying_cause +CQ
[cohorts] kueue_cluster_queue_info                          g cluster_queue parent_cohort root_cohort +CQ
[fair resources] kueue_cluster_queue_weighted_share         g cluster_queue cohort +CQ
[resources] kueue_cluster_queue_resource_reservation        g cohort cluster_queue flavor resource +CQ
[resources] kueue_cluster_queue_resource_usage              g cohort cluster_queue flavor resource +CQ
[resources] kueue_cluster_queue_nominal_quota               g cohort cluster_queue flavor resource +CQ
[resources] kueue_cluster_queue_borrowing_limit             g cohort cluster_queue flavor resource +CQ
[resources] kueue_cluster_queue_lending_limit               g cohort cluster_queue flavor resource +CQ
[resources] kueue_cluster_queue_resource_pending            g cluster_queue resource +CQ
[localQueues] kueue_local_queue_pending_workloads                 g name namespace status +LQ
[localQueues] kueue_local_queue_finished_workloads                g name namespace +LQ
[localQueues] kueue_local_queue_quota_reserved_workloads_total    c name namespace priority_class +LQ
[localQueues] kueue_local_queue_admitted_workloads_total          c name namespace priority_class +LQ +WL
[localQueues] kueue_local_queue_finished_workloads_total          c name namespace priority_class +LQ
[localQueues] kueue_local_queue_evicted_workloads_total           c name namespace reason underlying_cause priority_class +LQ
[localQueues] kueue_local_queue_reserving_active_workloads        g name namespace +LQ
[localQueues] kueue_local_queue_admitted_active_workloads         g name namespace +LQ +WL
[localQueues] kueue_local_queue_status                            g name namespace active +LQ
[localQueues unadmitted] kueue_local_queue_unadmitted_workloads   g name namespace cluster_queue reason underlying_cause +LQ
[localQueues] kueue_local_queue_resource_reservation              g name namespace flavor resource +LQ
[localQueues] kueue_local_queue_resource_usage                    g name namespace flavor resource +LQ
[localQueues usage] kueue_local_queue_admission_fair_sharing_usage g name namespace cluster_queue +LQ
[localQueues] kueue_local_queue_quota_reserved_wait_time_seconds  h name namespace priority_class +LQ
[localQueues] kueue_local_queue_admission_wait_time_seconds       h name namespace priority_class +LQ +WL
[localQueues] kueue_local_queue_admission_checks_wait_time_seconds h name namespace priority_class +LQ
[localQueues] kueue_local_queue_ready_wait_time_seconds           h name namespace priority_class +LQ
[localQueues] kueue_local_queue_admitted_until_ready_wait_time_seconds h name namespace priority_class +LQ
[localQueues] kueue_local_queue_execution_time_seconds            h name namespace priority_class +LQ
[cohorts fair] kueue_cohort_weighted_share                  g cohort +CO
[cohorts] kueue_cohort_subtree_quota                        g cohort flavor resource +CO
[cohorts] kueue_cohort_subtree_resource_reservations        g cohort flavor resource +CO
[cohorts] kueue_cohort_subtree_admitted_active_workloads    g cohort +CO
[cohorts] kueue_cohort_subtree_admitted_workloads_total     c cohort priority_class +CO
[cohorts] kueue_cohort_info                                 g cohort parent_cohort root_cohort +CO
`

// switches enable families.
var switches = []string{"creation", "hashes", "unadmitted", "cohorts", "fair", "resources", "localQueues", "usage", "custom", "topologies"}

// twoOfEach are two custom labels of each kind, not in the order of the kinds.
func twoOfEach() (list []configv1beta2.CustomMetricLabel) {
	for _, kind := range []configv1beta2.MetricSourceKind{fromWorkload, fromCohort, fromQueue, fromLocalQueue} {
		for _, n := range []string{"z", "a"} {
			list = append(list, configv1beta2.CustomMetricLabel{Name: string(kind) + "_" + n, SourceKind: kind, SourceLabelKey: n})
		}
	}
	return list
}

func optionsWith(on map[string]bool) Options {
	o := Options{
		Metrics: options.Metrics{ClusterQueueResources: on["resources"], LocalQueues: labels.Nothing()},
		Cohorts: on["cohorts"], Hashes: on["hashes"], Unadmitted: on["unadmitted"], CreationLatency: on["creation"],
		FairSharing: on["fair"], UsageSharing: on["usage"], Topologies: on["topologies"],
	}
	if on["localQueues"] {
		o.Metrics.LocalQueues = labels.Everything()
	}
	if on["custom"] {
		o.Metrics.CustomLabels = twoOfEach()
	}
	return o
}

// promised returns the contract with some switches: name to type and labels.
func promised(on map[string]bool) map[string]string {
	custom := strings.NewReplacer(" +CQ", "", " +LQ", "", " +CO", "", " +WL", "")
	if on["custom"] {
		two := func(kind string) string { return fmt.Sprintf(" custom_%s_z custom_%s_a", kind, kind) }
		custom = strings.NewReplacer(" +CQ", two("ClusterQueue"), " +LQ", two("LocalQueue"), " +CO", two("Cohort"), " +WL", two("Workload"))
	}
	out := map[string]string{"kueue_build_info": "g git_version git_commit build_date go_version compiler platform"}
	for line := range strings.Lines(strings.TrimSpace(contract)) {
		if needs, rest, found := strings.Cut(line, "] "); found {
			line = rest
			if slices.ContainsFunc(strings.Fields(needs[1:]), func(s string) bool { return !on[s] }) {
				continue
			}
		}
		fields := strings.Fields(custom.Replace(strings.Join(strings.Fields(line), " ")))
		out[fields[0]] = strings.Join(append(fields[1:], roleLabel), " ")
	}
	return out
}

var described = regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: {([^}]*)}`)

// registered returns the families that a recorder describes.
func registered(t *testing.T, r *Recorder) map[string]string {
	t.Helper()
	types := map[string]string{}
	for _, d := range r.descs {
		types[d.String()] = "g"
	}
	types[r.families.forecast.spent.String()] = "c" // see TestForecastSeries
	for _, v := range r.vectors {
		kind := "c"
		if _, ok := v.(*prometheus.HistogramVec); ok {
			kind = "h"
		}
		ch := make(chan *prometheus.Desc, 1)
		v.Describe(ch)
		types[(<-ch).String()] = kind
	}
	ch := make(chan *prometheus.Desc, 200)
	r.Describe(ch)
	close(ch)
	out := map[string]string{}
	for d := range ch {
		parts := described.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("cannot read %s", d)
		}
		out[parts[1]] = strings.TrimSpace(types[d.String()] + " " + strings.ReplaceAll(parts[2], ",", " "))
	}
	return out
}

// The table of all families says the same as the contract.
func TestFamilies(t *testing.T) {
	on := map[string]bool{}
	for _, s := range switches {
		on[s] = s != "custom"
	}
	got := map[string]string{}
	for _, f := range Families() {
		got[f.Name] = strings.TrimSpace(string(f.Type[0]) + " " + strings.Join(f.Labels, " "))
	}
	if diff := cmp.Diff(promised(on), got); diff != "" {
		t.Errorf("families (-contract +table):\n%s", diff)
	}
}

// With every combination of switches exactly the promised families are registered.
func TestContract(t *testing.T) {
	for bits := range 1 << len(switches) {
		on := map[string]bool{}
		for i, s := range switches {
			on[s] = bits>>i&1 == 1
		}
		r := New(optionsWith(on))
		if err := prometheus.NewPedanticRegistry().Register(r); err != nil {
			t.Fatalf("%v: %v", on, err)
		}
		if diff := cmp.Diff(promised(on), registered(t, r)); diff != "" {
			t.Fatalf("with %v -promised +registered:\n%s", slices.Sorted(maps.Keys(on)), diff)
		}
	}
}

func TestBuckets(t *testing.T) {
	if n, last := len(waitBuckets), waitBuckets[13]; n != 14 || last != 10240 {
		t.Errorf("%d buckets up to %v", n, last)
	}
	if last := longBuckets[len(longBuckets)-1]; last != 81920 {
		t.Errorf("the long buckets end at %v", last)
	}
	if diff := cmp.Diff([]float64{1, 2.5, 5, 10, 20}, longBuckets[:5]); diff != "" {
		t.Error(diff)
	}
	if n, first, last := len(creationBuckets), creationBuckets[0], creationBuckets[10]; n != 11 || first != 0.01 || last != 10.24 {
		t.Errorf("%d buckets from %v to %v", n, first, last)
	}
}
