package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// families are all exported families; the disabled ones are nil.
type families struct {
	scheduler  schedulerFamilies
	queue      queueFamilies
	quota      quotaFamilies
	localQueue localQueueFamilies
	cohort     cohortFamilies
	topology   topologyFamilies
	forecast   forecastFamilies
}

// schedulerFamilies are the families that belong to no single queue.
type schedulerFamilies struct {
	build                            *prometheus.Desc
	skips                            *prometheus.Desc
	attempts, recomputations         *counter
	attemptTime                      *histogram
	dispatched, remotelyAdmitted     *counter
	lost, transforms, suspensions    *counter
	transformCost, transformTime     *histogram
	connected                        *prometheus.Desc
	creation, ungating               *histogram
	preempted, preemptedOf, replaced *counter
	phases, turns                    *histogram
	shed, scrapesFailed              *counter

	// Of training.
	phase                                  *prometheus.Desc
	reports, patchConflicts, patchesDenied *counter
}

// lifeFamilies are the counters and histograms of Workloads that ClusterQueues and LocalQueues share.
type lifeFamilies struct {
	reserved, admitted, finished, evicted     *counter
	reservedWait, admittedWait, checksWait    *histogram
	readyWait, admittedUntilReady, executions *histogram
}

type queueFamilies struct {
	lifeFamilies
	pending, hashes, finishedNow, reserving, admittedNow *prometheus.Desc
	status, unadmitted, info, share                      *prometheus.Desc
	evictedOnce                                          *counter
	readyToEvicted, evictionLatency                      *histogram
}

// quotaFamilies are the series of each flavor and resource of a ClusterQueue.
type quotaFamilies struct {
	reservation, usage, nominal, borrowing, lending, pending *prometheus.Desc
}

type localQueueFamilies struct {
	lifeFamilies
	pending, finishedNow, reserving, admittedNow        *prometheus.Desc
	status, unadmitted, reservation, usage, fairSharing *prometheus.Desc
}

type cohortFamilies struct {
	share, quota, reservations, admittedNow, info *prometheus.Desc
	admitted                                      *counter
}

var (
	ofQueue      = kinds{fromQueue}
	ofLocalQueue = kinds{fromLocalQueue}
	ofCohort     = kinds{fromCohort}
)

func (m *maker) families(o *Options) families {
	var f families
	f.scheduler = m.scheduler(o)
	f.queue = m.queues(o)
	if o.Metrics.ClusterQueueResources {
		f.quota = m.quotas()
	}
	if o.localQueues() {
		f.localQueue = m.localQueues(o)
	}
	if o.Cohorts {
		f.cohort = m.cohorts(o)
	}
	if o.Topologies {
		f.topology = m.topologies()
	}
	f.forecast = m.forecast()
	return f
}

func (m *maker) scheduler(o *Options) schedulerFamilies {
	f := schedulerFamilies{
		build: m.described(Family{
			"kueue_build_info", "What is running: always 1.", Gauge,
			[]string{"git_version", "git_commit", "build_date", "go_version", "compiler", "platform"},
		}),
		skips: m.gauge("kueue_admission_cycle_preemption_skips",
			"Workloads that had to preempt and were passed over since others took their victims, in the last scheduling cycle with any.", ofQueue, queueLabel),
		attempts: m.counter("kueue_admission_attempts_total",
			"Scheduling cycles that evaluated a Workload, by whether one was admitted: success, inadmissible.", nil, resultLabel),
		attemptTime: m.histogram("kueue_admission_attempt_duration_seconds", "Time that a scheduling cycle took.", prometheus.DefBuckets, nil, resultLabel),
		recomputations: m.counter("kueue_preemption_target_recomputations_total",
			"Second searches for other victims in one cycle, by result.", ofQueue, queueLabel, resultLabel),
		dispatched: m.counter("multikueue_workloads_dispatched_total",
			"Workloads created on a worker cluster.", nil, queueLabel, "cluster"),
		remotelyAdmitted: m.counter("multikueue_workloads_admitted_total",
			"Workloads admitted by a worker cluster.", nil, queueLabel, "cluster"),
		lost:      m.counter("multikueue_worker_lost_total", "Workloads sent again since their worker cluster was lost.", nil, "cluster"),
		connected: m.gauge("multikueue_cluster_connected", "Whether a worker cluster can be reached: 1, or 0.", nil, "cluster"),
		transforms: m.counter("multikueue_external_transform_total",
			"Evaluations of the expressions of external frameworks, by phase and result: success, error, too_costly.", nil, "framework", "phase", resultLabel),
		transformCost: m.histogram("multikueue_external_transform_cost",
			"Cost of an evaluation, in units of CEL.", prometheus.ExponentialBuckets(100, 10, 6), nil, "framework", "phase"),
		transformTime: m.histogram("multikueue_external_transform_duration_seconds",
			"Time that an evaluation took.", prometheus.ExponentialBuckets(0.0001, 10, 5), nil, "framework", "phase"),
		suspensions: m.counter("multikueue_external_transform_suspensions_total",
			"Suspensions of the expressions of external frameworks in a namespace, since they cost too much again and again.", nil, "framework", "phase"),
		ungating: m.histogram("kueue_pod_scheduling_gate_removal_seconds",
			"Time from the admission of a Workload to the removal of a scheduling gate of its pods.", prometheus.DefBuckets, ofQueue, nameLabel, queueLabel, "is_group"),
		preempted: m.counter("kueue_preempted_workloads_total",
			"Preempted Workloads, by the ClusterQueue of the preemptor and the reason.", ofQueue, preemptingLabel, reasonLabel),
		preemptedOf: m.counter("berth_preempted_workloads_total",
			"Preempted Workloads, by the ClusterQueue of the preemptor, their own and the reason.", nil, preemptingLabel, preemptedLabel, reasonLabel),
		replaced: m.counter("kueue_replaced_workload_slices_total", "Slices of elastic jobs whose place another slice took.", ofQueue, queueLabel),
		phases: m.histogram("berth_scheduler_phase_duration_seconds",
			"Time that the scheduler spent in a phase: events, decide, dispatch, write.", phaseBuckets, nil, "phase"),
		turns: m.histogram("berth_engine_turn_duration_seconds",
			"Time of a turn of the scheduler, which is how long an event may have to wait for the one before.", turnBuckets, nil),
		shed:          m.counter("berth_events_shed_total", "Events that were not sent, for want of budget, by their reason.", nil, reasonLabel),
		scrapesFailed: m.counter("berth_metrics_looks_failed_total", "Scrapes without the gauges of queues, since the engine had published no state yet.", nil),

		phase:          m.gauge("berth_trainjob_phase", "TrainJobs by their phase: Suspended, Pending, Running, Complete, Failed.", nil, "phase"),
		reports:        m.counter("berth_trainjob_status_posts_total", "Reports of progress that training code sent, by the status code of the answer.", nil, "code"),
		patchConflicts: m.counter("berth_trainjob_runtime_patch_conflicts_total", "Writes of TrainJobs in which managers of runtime patches contradict each other.", nil, "policy"),
		patchesDenied:  m.counter("berth_trainjob_runtime_patch_denied_total", "Writes of TrainJobs that were refused for their runtime patches, by the reason.", nil, reasonLabel),
	}
	if o.CreationLatency {
		f.creation = m.histogram("kueue_workload_creation_latency_seconds",
			"Time from the creation of a job to that of its Workload.", creationBuckets, ofLocalQueue, "job_kind")
	}
	return f
}

func (m *maker) queues(o *Options) queueFamilies {
	f := queueFamilies{
		lifeFamilies: m.life("kueue_", ofQueue, ofQueue, longBuckets, queueLabel),
		pending:      m.gauge("kueue_pending_workloads", "Workloads without a reservation, by whether the scheduler evaluates them: active, inadmissible.", kinds{fromQueue, fromWorkload}, queueLabel, statusLabel),
		finishedNow:  m.gauge("kueue_finished_workloads", "Finished Workloads that still exist.", ofQueue, queueLabel),
		reserving:    m.gauge("kueue_reserving_active_workloads", "Workloads that hold quota.", ofQueue, queueLabel),
		admittedNow:  m.gauge("kueue_admitted_active_workloads", "Workloads that are admitted and not finished.", kinds{fromQueue, fromWorkload}, queueLabel),
		status:       m.gauge("kueue_cluster_queue_status", "1 for the status that the ClusterQueue has, 0 for the others: pending, active, terminating.", ofQueue, queueLabel, statusLabel),
		evictedOnce: m.counter("kueue_evicted_workloads_once_total",
			"Workloads evicted for the first time for a reason and cause.", ofQueue, queueLabel, reasonLabel, causeLabel, classLabel),
		readyToEvicted: m.histogram("kueue_pods_ready_to_evicted_time_seconds",
			"Time from all pods being ready to the eviction.", waitBuckets, ofQueue, queueLabel, reasonLabel, causeLabel),
		evictionLatency: m.histogram("kueue_workload_eviction_latency_seconds",
			"Time from an eviction to the release of the quota.", waitBuckets, ofQueue, queueLabel, reasonLabel),
	}
	if o.Hashes {
		f.hashes = m.gauge("kueue_pending_scheduling_hashes", "Classes of pending Workloads that scheduling can tell apart.", ofQueue, queueLabel, statusLabel)
	}
	if o.Unadmitted {
		f.unadmitted = m.gauge("kueue_unadmitted_workloads", "Workloads that are not admitted, by the reasons in their conditions.", ofQueue, queueLabel, reasonLabel, causeLabel)
	}
	if o.Cohorts {
		f.info = m.gauge("kueue_cluster_queue_info", "The place of a ClusterQueue in its cohort tree: always 1.", ofQueue, queueLabel, "parent_cohort", "root_cohort")
	}
	if o.FairSharing && o.Metrics.ClusterQueueResources {
		f.share = m.gauge("kueue_cluster_queue_weighted_share",
			"Share of the lendable resources of its cohort that a ClusterQueue borrows, in thousandths, over its weight; NaN for weight 0.", ofQueue, queueLabel, cohortLabel)
	}
	return f
}

// life creates the shared families of one kind of queue. Some have the custom labels of more kinds.
func (m *maker) life(prefix string, from, more kinds, long []float64, own ...string) lifeFamilies {
	byClass := append(slices.Clip(own), classLabel)
	wait := func(name, help string, buckets []float64, from kinds) *histogram {
		return m.histogram(prefix+name, help, buckets, from, byClass...)
	}
	return lifeFamilies{
		reserved: m.counter(prefix+"quota_reserved_workloads_total", "Reservations of quota.", from, byClass...),
		admitted: m.counter(prefix+"admitted_workloads_total", "Admissions.", more, byClass...),
		finished: m.counter(prefix+"finished_workloads_total", "Workloads that finished.", from, byClass...),
		evicted: m.counter(prefix+"evicted_workloads_total", "Evictions, by reason and cause.", from,
			append(slices.Clip(own), reasonLabel, causeLabel, classLabel)...),
		reservedWait:       wait("quota_reserved_wait_time_seconds", "Time from creation or requeueing to the reservation of quota.", waitBuckets, from),
		admittedWait:       wait("admission_wait_time_seconds", "Time from creation or requeueing to admission.", long, more),
		checksWait:         wait("admission_checks_wait_time_seconds", "Time from the reservation of quota to admission, with checks.", waitBuckets, from),
		readyWait:          wait("ready_wait_time_seconds", "Time from creation or requeueing to all pods being ready.", waitBuckets, from),
		admittedUntilReady: wait("admitted_until_ready_wait_time_seconds", "Time from admission to all pods being ready.", waitBuckets, from),
		executions:         wait("execution_time_seconds", "Time that a finished Workload was admitted, over all its admissions.", longBuckets, from),
	}
}

func (m *maker) quotas() quotaFamilies {
	cell := func(name, help string) *prometheus.Desc {
		return m.gauge("kueue_cluster_queue_"+name, help, ofQueue, cohortLabel, queueLabel, flavorLabel, resourceLabel)
	}
	return quotaFamilies{
		reservation: cell("resource_reservation", "Quota that all reservations hold."),
		usage:       cell("resource_usage", "Quota that admitted Workloads hold."),
		nominal:     cell("nominal_quota", "The nominal quota."),
		borrowing:   cell("borrowing_limit", "The borrowing limit, +Inf without one."),
		lending:     cell("lending_limit", "The lending limit, +Inf without one."),
		pending:     m.gauge("kueue_cluster_queue_resource_pending", "Requests of pending Workloads.", ofQueue, queueLabel, resourceLabel),
	}
}

func (m *maker) localQueues(o *Options) localQueueFamilies {
	gauge := func(name, help string, own ...string) *prometheus.Desc {
		return m.gauge("kueue_local_queue_"+name, help, ofLocalQueue, append([]string{nameLabel, namespaceLabel}, own...)...)
	}
	f := localQueueFamilies{
		lifeFamilies: m.life("kueue_local_queue_", ofLocalQueue, kinds{fromLocalQueue, fromWorkload}, waitBuckets, nameLabel, namespaceLabel),
		pending:      gauge("pending_workloads", "Workloads without a reservation, by whether the scheduler evaluates them: active, inadmissible.", statusLabel),
		finishedNow:  gauge("finished_workloads", "Finished Workloads that still exist."),
		reserving:    gauge("reserving_active_workloads", "Workloads that hold quota."),
		admittedNow: m.gauge("kueue_local_queue_admitted_active_workloads", "Workloads that are admitted and not finished.",
			kinds{fromLocalQueue, fromWorkload}, nameLabel, namespaceLabel),
		status:      gauge("status", "1 for the status of the condition Active, 0 for the others: True, False, Unknown.", "active"),
		reservation: gauge("resource_reservation", "Quota that all reservations hold.", flavorLabel, resourceLabel),
		usage:       gauge("resource_usage", "Quota that admitted Workloads hold.", flavorLabel, resourceLabel),
	}
	if o.Unadmitted {
		f.unadmitted = gauge("unadmitted_workloads", "Workloads that are not admitted, by the reasons in their conditions.", queueLabel, reasonLabel, causeLabel)
	}
	if o.UsageSharing {
		f.fairSharing = gauge("admission_fair_sharing_usage", "Past usage that orders the LocalQueues of a ClusterQueue.", queueLabel)
	}
	return f
}

func (m *maker) cohorts(o *Options) cohortFamilies {
	f := cohortFamilies{
		quota:        m.gauge("kueue_cohort_subtree_quota", "The quota of the cohort's subtree, without zeros.", ofCohort, cohortLabel, flavorLabel, resourceLabel),
		reservations: m.gauge("kueue_cohort_subtree_resource_reservations", "What all reservations below the cohort hold, without zeros.", ofCohort, cohortLabel, flavorLabel, resourceLabel),
		admittedNow:  m.gauge("kueue_cohort_subtree_admitted_active_workloads", "Workloads below the cohort that are admitted, as of the last admission or release there.", ofCohort, cohortLabel),
		info:         m.gauge("kueue_cohort_info", "The place of a cohort in its tree: always 1.", ofCohort, cohortLabel, "parent_cohort", "root_cohort"),
		admitted:     m.counter("kueue_cohort_subtree_admitted_workloads_total", "Admissions below the cohort.", ofCohort, cohortLabel, classLabel),
	}
	if o.FairSharing {
		f.share = m.gauge("kueue_cohort_weighted_share",
			"Share of the lendable resources of its parent that a cohort borrows, in thousandths, over its weight; +Inf for weight 0.", ofCohort, cohortLabel)
	}
	return f
}
