// Package sim plays scripts: a small world, what happens in it, and what the engine says
// to that. It drives the same state and engine as production, and plays the shell around
// them: Run plays a script, and testdata has some for most rules of the spec. WriteRecord
// and Replay are for what happened in production.
//
//	# Two workloads of 3 cpu for a queue that has 4: the second one waits.
//	queue A f/cpu=4
//	submit w x2 queue=A cpu=3
//	step
//	| 2 cycles, 2 decisions
//	| default/w-0001 in A (priority 0): admitted
//	| ...
//
// A script is a command a line. Lines that begin with # are prose, and lines that begin
// with | the output of the command above, which Run writes anew. In the usages below words
// in capitals are yours to choose, [what is in brackets] may be left out, and ... says that
// there may be more of the same. What has no "=" and no brackets stands in its place; the
// rest may come in any order.
//
// # Time
//
// Every command takes one second, and the first one happens at second 1. A + before a
// command puts it into the same second as the command before it.
//
//	wait SECONDS
//
// moves the clock on, and does nothing else.
//
// # The world
//
//	options [ignore-undeclared] [fair[=STRATEGY,...]] [no-within-nominal]
//	        [no-non-borrowing-first] [no-priority-in-cohort] [preemptor-first]
//	        [block-admission] [no-recompute-overlap] [no-keep-scan] [no-fungibility] [no-partial]
//	        [no-classes] [claim-timeout=SECONDS] [edit-window=SECONDS]
//
// are settings that differ from the usual ones (cycle.Defaults). They come first, if at
// all. fair is fair sharing; its strategies are LessThanOrEqualToFinalShare and
// LessThanInitialShare, in that order unless others are named. no-within-nominal takes from
// it that whoever stays within its own quota need not compare shares; no-non-borrowing-first
// that such heads come first. no-priority-in-cohort orders heads of different queues
// without their priorities; preemptor-first puts those first whose victims are leaving.
// block-admission admits nobody while somebody with a reservation is not ready.
// no-recompute-overlap and no-keep-scan forget what is known of a head that loses to
// another one; no-fungibility ignores try-when-borrowing and its like; no-partial admits
// all pods or none; no-classes looks at equal workloads one by one. A claim-timeout of 0 is
// for ever, and an edit-window of 0 looks again after every edit.
//
//	namespace NAME [KEY=VALUE ...]
//
// is a namespace with labels. There is one from the beginning: default.
//
//	flavor NAME [label.KEY=VALUE ...] [taint=KEY[:VALUE] ...] [tolerate=KEY[:VALUE] ...]
//
// Taints have the effect NoSchedule.
//
//	cohort NAME [parent=COHORT] [weight=W] [QUOTA ...]
//
// A QUOTA is FLAVOR/RESOURCE=NOMINAL[,borrow=LIMIT][,lend=LIMIT]. Flavors with the same
// resources are a resource group, and are tried in the order in which they are named.
// Amounts are whole numbers: of cpu in cores, or with m in thousandths; of anything else in
// units, or with Ki, Mi, Gi, Ti, Pi, Ei; and unlimited. A weight has up to three decimals.
//
//	queue NAME [cohort=COHORT] [weight=W] [strict] [closed=WHY] [namespaces=KEY:VALUE]
//	      [within=RULE] [reclaim=RULE] [borrow-within=lower[:THRESHOLD]]
//	      [try-when-borrowing] [stop-when-preempting] [preemption-over-borrowing]
//	      [QUOTA ...]
//
// is a ClusterQueue. strict is StrictFIFO; closed admits nobody; namespaces are those
// with a label. A RULE says who may be preempted, in the own queue (within) or in others
// that borrow (reclaim): never, lower, lower-or-newer, any. The three words on flavors are
// whenCanBorrow=TryNextFlavor, whenCanPreempt=MayStopSearch and
// preference=PreemptionOverBorrowing. Flavors that the quotas name come to be, without
// labels, and so does a LocalQueue of the same name in the namespace default.
//
//	localqueue NAME queue=QUEUE [namespace=NAMESPACE] [stopped]
//	delete workload|queue|cohort|flavor|localqueue|namespace NAME [namespace=NAMESPACE]
//
// The namespace is that of a localqueue.
//
// A second flavor, cohort, queue, localqueue or namespace of the same name is an edit of
// the first one, and has to say everything again.
//
// # Workloads
//
//	submit NAME [xCOPIES] [queue=LOCALQUEUE] [namespace=NAMESPACE] [prio=P] [at=SECOND]
//	       [owner=UID] [replaces=NAME] [gated] [checked] [problem=WHY] [PODS]
//	       [/ NAME [xCOUNT] [PODS] ...]
//
// is a workload, or copies of it named NAME-0001 and so on; the name may be that of one
// that is finished or deleted. at is when it was created, now
// if nothing is said. replaces names the slice of the same owner whose place it takes;
// gated keeps it from preempting, a problem from being admitted at all; checked has checks
// to pass once it has quota. After each / comes a pod set with the number of its pods;
// what stands before the first / is one pod set "main" of one pod. PODS are
//
//	[min=COUNT] [group=NAME] [selector.KEY=VALUE ...] [tolerate=KEY[:VALUE] ...]
//	[affinity=KEY:VALUE ...] [RESOURCE=AMOUNT ...]
//
// with the amounts of all pods of the pod set together. It may be admitted with min pods;
// pod sets of a group get the same flavors; affinities are alternatives.
//
//	edit NAME [stale] [queue=LOCALQUEUE] [prio=P] [owner=UID] [replaces=NAME] [gated]
//	     [gate=open|closed] [problem=WHY] [rest=yes|no] [ready=yes|no] [PODS] [/ NAME [xCOUNT] [PODS] ...]
//
// changes what is said, and pod sets as a whole. stale is an update that arrives late: it
// is older than what is known. A problem of none is over; who rests waits outside the line;
// ready are all pods of a workload, or not.
//
//	reserve NAME queue=QUEUE [prio=P] [at=SECOND] [since=SECOND] [owner=UID] [pending]
//	        FLAVOR/RESOURCE=AMOUNT ...
//
// is a workload whose reservation in a ClusterQueue somebody else wrote, since that second
// or now. It is admitted, unless its checks are pending.
//
//	finish NAME
//	evict NAME
//	evicted NAME
//	passes NAME
//
// A workload is finished; somebody else tells it to go; whoever was told to go, by the
// engine or others, is gone and waits again; whoever has quota passes its checks.
//
// # Decisions
//
//	step [budget=CYCLES] [unwritten] [quiet]
//
// runs the engine, and prints how many cycles it took, what it decided (but not when
// quiet), whether there is more to do within this second, and when it wants to be asked
// again. Admissions and evictions are written at once; after that a second step must have
// nothing to decide, which is ErrUnsettled. unwritten leaves that to
//
//	written NAME
//	write-fails NAME
//	evict-fails NAME
//
// which write, for one workload, its admission or else that it has to go; let its admission
// fail; let telling it fail. What is unwritten after that is written after the next step.
// An admission fails by itself when the workload was edited, finished or deleted meanwhile.
//
// # Questions
//
//	show
//	explain NAME
//	status QUEUE
//	available FLAVOR RESOURCE
//	shares
//
// print the whole world; the last look at a workload; the counters and amounts of a queue's
// status; the figures of every node for one flavor-resource; the fair share of every node.
package sim
