package grafana

// at selects the series of a family that the deciding replica exports.
func at(family string) string { return family + "{" + deciding + "}" }

// overview is what a person wants to know in ten seconds.
var overview = []panel{
	{
		title: "Use of quota", unit: "percentunit", kind: "timeseries",
		help: "What all reservations hold, as a share of the nominal quota; above 100 % is borrowed. It needs metrics.enableClusterQueueResources.",
		queries: []query{{
			expr:   sum(at("kueue_cluster_queue_resource_reservation"), quota...) + " / (" + sum(at("kueue_cluster_queue_nominal_quota"), quota...) + " > 0)",
			legend: legend(quota), record: "berth:cluster_queue_used:ratio",
		}},
	},
	{
		title: "Pending Workloads", unit: "short", kind: "timeseries", help: "Workloads without a reservation; the inadmissible ones wait for a change.",
		queries: []query{{
			expr: sum(at("kueue_pending_workloads"), "cluster_queue", "status"), legend: "{{cluster_queue}} {{status}}", record: "berth:cluster_queue_pending:sum",
		}},
	},
	{
		title: "Admissions a minute", unit: "short", kind: "timeseries", help: "Over the last 5 minutes.",
		queries: []query{{
			expr: "60 * " + sum("rate("+at("kueue_admitted_workloads_total")+"[5m])", "cluster_queue"), legend: "{{cluster_queue}}",
			record: "berth:cluster_queue_admissions_per_minute:rate5m",
		}},
	},
	{
		title: "Wait until admission", unit: "s", kind: "timeseries", help: "Of the Workloads that were admitted in the last hour: from creation or requeueing to admission.",
		queries: []query{
			{
				expr: percentile(50, at("kueue_admission_wait_time_seconds_bucket"), "1h", "cluster_queue"), legend: "{{cluster_queue}} p50",
				record: "berth:cluster_queue_admission_wait_seconds:p50_1h",
			},
			{
				expr: percentile(90, at("kueue_admission_wait_time_seconds_bucket"), "1h", "cluster_queue"), legend: "{{cluster_queue}} p90",
				record: "berth:cluster_queue_admission_wait_seconds:p90_1h",
			},
		},
	},
	{
		title: "Evictions an hour", unit: "short", kind: "timeseries", help: "By their reason, over the last hour.",
		queries: []query{{
			expr: "3600 * " + sum("rate("+at("kueue_evicted_workloads_total")+"[1h])", "cluster_queue", "reason"), legend: "{{cluster_queue}} {{reason}}",
			record: "berth:cluster_queue_evictions_per_hour:rate1h",
		}},
	},
	{
		title: "Who preempts whom, an hour", unit: "short", kind: "timeseries", help: "Preempted Workloads of the second ClusterQueue, for one of the first, over the last hour.",
		queries: []query{{
			expr:   "3600 * " + sum("rate("+at("berth_preempted_workloads_total")+"[1h])", "preempting_cluster_queue", "preempted_cluster_queue"),
			legend: "{{preempting_cluster_queue}} of {{preempted_cluster_queue}}",
		}},
	},
	{
		title: "Expected starts", unit: "short", kind: "timeseries", help: "Pending Workloads by what the forecast knows of their starts.",
		queries: []query{{expr: sum(at("berth_forecast_workloads"), "start"), legend: "{{start}}"}},
	},
	{
		title: "Fragmentation", unit: "percentunit", kind: "timeseries",
		help: "How far the largest free amount in one domain is below what it would be if all that is free were packed together.",
		queries: []query{{
			expr: sum(at("berth_topology_fragmentation_ratio"), "topology", "flavor", "level", "resource"), legend: "{{flavor}} {{level}} {{resource}}",
		}},
	},
	{
		title: "Turns of the scheduler", unit: "s", kind: "timeseries", help: "How long an event may have to wait for the one before it, over the last 5 minutes.",
		queries: []query{
			{expr: percentile(50, at("berth_engine_turn_duration_seconds_bucket"), "5m"), legend: "p50"},
			{expr: percentile(99, at("berth_engine_turn_duration_seconds_bucket"), "5m"), legend: "p99", record: "berth:engine_turn_seconds:p99_5m"},
		},
	},
	{
		title: "Worker clusters", unit: "short", kind: "timeseries", help: "Whether a worker cluster of MultiKueue can be reached: 1, or 0.",
		queries: []query{{expr: sum(at("multikueue_cluster_connected"), "cluster"), legend: "{{cluster}}"}},
	},
}

// quota are the labels of a quota.
var quota = []string{"cluster_queue", "flavor", "resource"}
