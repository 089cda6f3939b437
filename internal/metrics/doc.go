// Package metrics exports what dashboards and alerts of the queueing API read, under the
// names that they know. spec: 70 §5.3, 10 §5.4.
//
// Gauges are worked out at the scrape, from one consistent look at the engine's state and
// one pass over the Workloads in the cache: nothing is written between scrapes, and no
// series outlives its queue. Counters and histograms are fed by the writers, with the
// Workload before and after each successful write: [Recorder.Wrote] tells the transition
// from the conditions, so that each is counted once, by the replica that made it.
//
//	cache (queues, cohorts, Workloads) ──► Follower ──┐
//	engine.Ask ──► state.Census ──────────────────────┼──► Recorder.Collect ──► /metrics
//	writers ──► Recorder.Wrote, Preempted, Decided … ─┘
//
// A little is remembered, where the specification wants a series to lag or to stay: see
// standing and kept.
package metrics
