// Package metrics exports the series that dashboards and alerts of the queueing API read, under their established names.
// spec: 70 §5.3, 10 §5.4.
//
// Gauges are computed at the scrape, from the read model of the engine's last turn and one pass over the Workloads in the cache: no
// series outlives its queue. Counters and histograms of the lifecycle of Workloads are fed by the watch, with each Workload before and
// after each change by any writer: [Recorder.ObserveWorkload] derives the transitions from the conditions. The leader counts them, once
// each. Transitions before a replica starts, or without a leader, are not counted. The other counters are fed by their controllers.
//
//	cache (queues, cohorts, Workloads) ──► Follower ──► Recorder.ObserveWorkload … ─┐
//	engine.Model ──► Statistics ────────────────────────────────────────────────────┼─► Recorder.Collect ──► /metrics
//	writers ──► Recorder.Preempted, Cycles … ───────────────────────────────────────┘
//
// The recorder remembers values where the specification wants a series to lag or to stay: see cohortTree and lastShare.
package metrics
