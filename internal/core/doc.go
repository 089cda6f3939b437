// Package core is the scheduling engine: pure functions and plain data, from a
// world and a time to decisions and a trace that explains them.
//
// # Data flow
//
//	            ┌──────────────────────────── cycle.World ───────────────────────────┐
//	events ───► │ quota.Forest   flavors   queues: pending (order.Pending), reserved │
//	(state)     └────────────────────────────────┬───────────────────────────────────┘
//	                                             ▼
//	                 cycle.Step: one head a queue, as long as there is progress
//	                   nominate   flavor.Assign ── asks ──► preempt.Targets
//	                   order      by borrow level, priority, time; or a tournament of shares
//	                   process    charge, book, or refuse
//	                                             ▼
//	                           decisions (admit, preempt, wait) + trace
//
// # Glossary
//
//   - Amount: a saturating quantity in the smallest unit of its resource.
//   - FR: a (flavor, resource) pair, interned as a small integer.
//   - Node: a ClusterQueue (leaf) or a Cohort of the quota forest.
//   - Charge, release: add usage to a node and, past what the node guarantees to
//     itself, to its ancestors; and the inverse.
//   - Speculate: charge and release between Mark and Rollback, to look at a world
//     that does not exist.
//   - Nominate: find a flavor for every request of a workload, with its mode.
//   - Mode: how well a request fits: fit, reclaim, preempt, no candidates, no fit.
//   - Candidate: a workload with a reservation that a preemption policy allows to evict for
//     another one (preempt.Policy).
//   - Victim: a workload with a reservation that has to go for another to fit.
//   - Claim: quota held for a workload whose victims are still leaving.
//   - Stand: the head of a strict queue that waits and keeps quota from others.
//   - Parked: pending, looked at, and not looked at again until an event that can help.
//   - Want, offer, clause: an amount of one FR that a flavor would take; all of them for
//     one flavor; the flavors that are alternatives. A parked class waits for its clauses.
//   - Pen: parked classes that have had their look at what was released last.
//   - Slice: one of several workloads of a growing job; the last takes the first's place.
//   - Share: how much of what its cohort could lend a node borrows, by its weight.
//   - Class: workloads that no decision can tell apart, except by their age.
//
// Nothing here knows Kubernetes, logs, blocks, reads a clock or draws a random
// number; every order is total, so equal inputs give equal outputs to the byte.
package core
