// Package core is the scheduling engine: pure functions and plain data, from a
// world and a time to decisions and a trace that explains them.
//
// # Data flow
//
//	            ┌──────────────────────────── cycle.World ───────────────────────────┐
//	events ───► │ ledger.Ledger  flavors   queues: pending (order.Pending), reserved │
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
//   - Ledger: the charges of all workloads, in every dimension; what charges, releases, asks
//     what fits or speculates does so there.
//   - Dimension: a kind of capacity that the ledger counts. Quota is the first one.
//   - Measure: an amount of a dimension besides quota, by which a refused workload is woken;
//     numbered like an FR, below 0.
//   - Share capacity: of cohort trees whose queues use the same nodes. They run their cycles
//     together.
//   - Places: the nodes, or domains of a topology, that the pods of a workload get.
//   - Usage: everything that a workload holds or asks for: its quota, and a part of every other
//     dimension that it needs.
//   - Charge, release: add usage to a node, in quota past what the node guarantees to itself
//     to its ancestors too; and the inverse.
//   - Return: the release that lasts, when a workload leaves its queue.
//   - Speculate: charge and release between Mark and Rollback.
//   - Nominate: find a flavor for every request of a workload, with its mode.
//   - Mode: how well a request fits: fit, reclaim, preempt, no candidates, no fit.
//   - Evaluation: one attempt to admit a workload; trace.Attempt is its record.
//   - Head: the workload of a queue that is evaluated next.
//   - Line: the pending workloads of one queue, in order.
//   - LocalQueue line: the part of a line that is in one LocalQueue. A class is in one LocalQueue line.
//   - Standing: the place of a LocalQueue line among the lines of its queue, the lowest first, by the
//     usage of the LocalQueue. Lines of equal standing are as one.
//   - Class: workloads that differ only in age, for any decision; the equivalence key of
//     package state.
//   - Active: pending, and evaluated as the head.
//   - Inadmissible: pending, evaluated, and not evaluated again until a wake condition holds.
//   - Inadmissible alone: without its class, for a reason of its own instead of quota.
//   - Want, offer, clause: an amount of one FR that a flavor requires; all of them for one
//     flavor; the flavors that are alternatives. An inadmissible class waits for its clauses.
//   - Wake condition: enough of one FR, or of one measure, is available for a want of an
//     inadmissible class.
//   - Wake index: the wake conditions on one FR or measure, by LocalQueue line and amount.
//   - Tried: inadmissible, and evaluated since the last release; its wake conditions do not
//     count before the next one.
//   - Filed: inadmissible, and its wake conditions count.
//   - Activate: make an inadmissible class active.
//   - Late head: the head of an inadmissible class whose wake conditions hold, in a cycle that
//     activates it only when its turn comes. It is lost if other heads took its quota by then.
//   - Candidate: a workload with a reservation that a preemption policy allows to evict for
//     another one (preempt.Policy).
//   - Victim: a workload to evict so that another one fits.
//   - Preemptor: a workload whose victims are leaving.
//   - Nomination: quota held for a preemptor until its victims have left.
//   - Early: a workload that has run for less than its minimum run time; it is preempted last.
//   - Run: the cycles of a tree until none of its heads has anything new to try.
//   - Tentative: of an admission, until its run ends; a preemptor retracts it instead of
//     evicting the workload, which returns to its place in line.
//   - Prioritized: first of its standing whenever it is active, as preemptors are.
//   - Head reservation: quota that the waiting head of a strict queue keeps from others.
//   - Slice: one of several workloads of a growing job; it replaces an earlier one.
//   - Share: how much of what its cohort could lend a node borrows, by its weight.
//   - Projection: the share of a node with the head of one of its queues charged.
//   - Forecast: the charge of a workload behind a preemptor, for the order of other queues.
//   - Orphan: a reservation in a queue that does not exist.
//
// Nothing here knows Kubernetes, logs, blocks, reads a clock or draws a random
// number; every order is total, so equal inputs give equal outputs to the byte.
package core
