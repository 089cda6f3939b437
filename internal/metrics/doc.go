// Package metrics exports what dashboards and alerts of the queueing API read, under the
// names that they know. spec: 70 §5.3, 10 §5.4.
//
// Gauges are worked out at the scrape, from one consistent look at the engine's state and
// one pass over the Workloads in the cache: nothing is written between scrapes, and no
// series outlives its queue. Counters and histograms of the life of Workloads are fed by
// the watch, with each Workload before and after each change, whoever made it:
// [Recorder.SeeWorkload] tells the transitions from the conditions. The replica that leads
// counts them, once each. What exists when a replica starts is not counted again; nor is
// what happens while no replica leads. Others are fed by those who do what they count.
//
//	cache (queues, cohorts, Workloads) ──► Follower ──► Recorder.SeeWorkload … ─┐
//	engine.Ask ──► state.Statistics ────────────────────────────────────────────────┼─► Recorder.Collect ──► /metrics
//	writers ──► Recorder.Preempted, Cycles … ───────────────────────────────────┘
//
// A little is remembered, where the specification wants a series to lag or to stay: see
// standing and kept.
package metrics
