// Package sim runs scripts: a small world, events in it, and the engine's decisions. It
// drives the same state and engine as production, in place of the shell: Run runs a
// script, and testdata has some for most rules of the spec. WriteRecord and Replay are
// for flight records of production.
//
//	# Two workloads of 3 cpu for a queue that has 4: the second one waits.
//	queue A f/cpu=4
//	submit w x2 queue=A cpu=3
//	step
//	| 2 cycles, 2 decisions
//	| default/w-0001 in A (priority 0): admitted
//	| ...
//
// A script has one command per line. Lines that begin with # are comments, and lines that
// begin with | are the output of the command above, which Run rewrites. In the usages below
// words in capitals are values, [brackets] mark optional words, and ... means repetition.
// Words without "=" and brackets are positional; the others come in any order.
//
// # Time
//
// Every command takes one second, and the first one happens at second 1. A + before a
// command puts it into the same second as the command before it.
//
//	wait SECONDS
//
// advances the clock.
//
// # The world
//
//	options [ignore-undeclared] [fair[=STRATEGY,...]] [no-within-nominal]
//	        [no-non-borrowing-first] [no-priority-in-cohort] [preemptor-first]
//	        [block-admission] [no-recompute-overlap] [no-keep-scan] [no-fungibility] [no-partial]
//	        [no-classes] [no-fail-fast] [claim-timeout=SECONDS]
//	        [edit-window=SECONDS] [half-life=SECONDS] [interval=SECONDS]
//
// are settings that differ from the defaults (cycle.Defaults). This command comes first, if
// at all. fair is fair sharing; its strategies are LessThanOrEqualToFinalShare and
// LessThanInitialShare, in that order unless others are named. no-within-nominal compares
// shares also for workloads within their own nominal quota; no-non-borrowing-first does not
// order heads that do not borrow first. no-priority-in-cohort orders heads of different
// queues without their priorities; preemptor-first orders preemptors with evicted victims
// first. block-admission admits no workload while one with a reservation is not ready.
// no-recompute-overlap and no-keep-scan drop the results of a head that loses to another
// one; no-fungibility ignores try-when-borrowing and similar words; no-partial admits all
// pods or none; no-classes evaluates equivalent workloads one by one; no-fail-fast
// evicts no workload whose failed node has no replacement. A claim-timeout of 0
// never expires, and an edit-window of 0 requeues after every edit. half-life turns admission fair
// sharing on; the interval of its samples is as long, unless another is given.
//
//	namespace NAME [KEY=VALUE ...]
//
// is a namespace with labels. There is one from the beginning: default.
//
//	flavor NAME [label.KEY=VALUE ...] [taint=KEY[:VALUE] ...] [tolerate=KEY[:VALUE] ...]
//	       [topology=LEVEL,...]
//
// Taints have the effect NoSchedule. A topology has levels, the broadest first: label keys, or
// host for the hostname. Pods are placed on the nodes with the flavor's labels and all levels.
//
//	node NAME [label.KEY=VALUE ...] [taint=KEY[:VALUE] ...] [not-ready] [cordoned] [RESOURCE=AMOUNT ...]
//	cordon NODE
//	uncordon NODE
//	fail NODE
//	recover NODE
//	foreign NODE [RESOURCE=AMOUNT ...]
//	unhealthy NAME [NODE ...]
//
// node is a node with its capacity, 110 pods unless they are named, and its name as the hostname;
// cordon, uncordon, fail and recover change it; foreign is the usage of it by other pods. unhealthy
// records failed nodes of a workload, whose pods get other places a second later; none is a recovery.
//
//	cohort NAME [parent=COHORT] [weight=W] [QUOTA ...]
//
// A QUOTA is FLAVOR/RESOURCE=NOMINAL[,borrow=LIMIT][,lend=LIMIT]. Flavors with the same
// resources are a resource group, and are tried in the order in which they are named.
// Amounts are whole numbers: of cpu in cores, or with m in thousandths; of anything else in
// units, or with Ki, Mi, Gi, Ti, Pi, Ei; and unlimited. A weight has up to nine decimals.
//
//	queue NAME [cohort=COHORT] [weight=W] [strict] [closed=WHY] [namespaces=KEY:VALUE]
//	      [within=RULE] [reclaim=RULE] [borrow-within=lower[:THRESHOLD]]
//	      [try-when-borrowing] [stop-when-preempting] [preemption-over-borrowing]
//	      [usage-based] [backfill=easy|conservative] [delayed] [QUOTA ...]
//
// is a ClusterQueue. strict is StrictFIFO; closed admits no workload; namespaces are
// selected by a label. A RULE selects the victims in the own queue (within) or in borrowing
// queues (reclaim): never, lower, lower-or-newer, any. The three words on flavors are
// whenCanBorrow=TryNextFlavor, whenCanPreempt=MayStopSearch and
// preference=PreemptionOverBorrowing. In a usage-based queue the workloads of the LocalQueue of the
// lowest usage come first. With backfill=easy the first blocked workload gets a reserved start,
// before which others start if they do not move it, with backfill=conservative the first 16. Flavors that the quotas name are created
// without labels, and a LocalQueue of the same name in the namespace default.
//
//	localqueue NAME queue=QUEUE [namespace=NAMESPACE] [stopped] [weight=WEIGHT]
//	delete workload|queue|cohort|flavor|localqueue|namespace|node NAME [namespace=NAMESPACE]
//
// The namespace is that of a localqueue.
//
//	usage NAME USAGE [namespace=NAMESPACE]
//
// sets the usage of a localqueue by which a usage-based queue orders: a whole number, 0 at first. It
// has no effect after the first sample.
//
//	sample
//
// counts the usage of the localqueues whose last sample is an interval ago.
//
// A second flavor, cohort, queue, localqueue or namespace of the same name replaces the
// whole definition of the first one.
//
// # Workloads
//
//	submit NAME [xCOPIES] [queue=LOCALQUEUE] [namespace=NAMESPACE] [prio=P] [at=SECOND]
//	       [owner=UID] [replaces=NAME] [min-run=SECONDS] [limit=SECONDS] [gated] [checked] [problem=WHY]
//	       [PODS]
//	       [/ NAME [xCOUNT] [PODS] ...]
//
// is a workload, or copies of it named NAME-0001 and so on; the name of a
// finished or deleted workload may be used again. at is its creation, by default now.
// replaces names the slice of the same owner that it replaces; min-run is how long it runs before it is
// preempted, unless no others suffice; limit is how long it runs at most, which the script has to keep;
// gated prevents it from
// preempting, problem from being admitted; checked adds checks after its quota reservation.
// After each / follows a pod set with the number of its pods; the words before the first /
// are one pod set "main" of one pod. PODS are
//
//	[min=COUNT] [group=NAME] [selector.KEY=VALUE ...] [tolerate=KEY[:VALUE] ...]
//	[affinity=KEY:VALUE ...] [required=LEVEL | preferred=LEVEL | unconstrained]
//	[slice=LEVEL:SIZE ...] [elastic] [RESOURCE=AMOUNT ...]
//
// with the amounts of all pods of the pod set together. It may be admitted with min pods;
// pod sets of a group get the same flavors; affinities are alternatives; elastic ones keep their
// places when a slice replaces another one.
//
//	edit NAME [stale] [queue=LOCALQUEUE] [prio=P] [owner=UID] [replaces=NAME] [min-run=SECONDS] [limit=SECONDS] [gated]
//	     [gate=open|closed] [problem=WHY] [rest=yes|no] [ready=yes|no] [PODS] [/ NAME [xCOUNT] [PODS] ...]
//
// changes the named values, and pod sets as a whole. stale is an update that arrives late,
// older than the known one. problem=none ends a problem; rest=yes keeps it out of its queue
// for now; ready is about all pods of a workload.
//
//	reserve NAME queue=QUEUE [prio=P] [at=SECOND] [since=SECOND] [owner=UID]
//	        [min-run=SECONDS] [limit=SECONDS] [pending] FLAVOR/RESOURCE=AMOUNT ...
//
// is a workload with a reservation that another controller wrote, since that second or now.
// It is admitted unless its checks are pending.
//
//	finish NAME
//	evict NAME
//	evicted NAME
//	passes NAME
//
// finish finishes a workload; evict evicts it as another controller would; evicted ends an
// eviction of the engine or of others, after which the workload is pending again; passes
// passes the checks of a workload with a quota reservation.
//
// # Decisions
//
//	step [budget=CYCLES] [unwritten] [quiet]
//
// runs the engine, and prints the number of cycles, the decisions (not when quiet), whether
// more is to do within this second, and the time of the next step. Admissions and evictions
// are written at once; a second step must decide nothing then, or it fails with
// ErrUnsettled. unwritten leaves the writes to
//
//	written NAME
//	write-fails NAME
//	evict-fails NAME
//
// which write the admission or eviction of one workload; fail its admission; fail its
// eviction. The rest is written after the next step. An admission fails by itself when the
// workload was edited, finished or deleted meanwhile.
//
// # Questions
//
//	show
//	explain NAME
//	status QUEUE
//	available FLAVOR RESOURCE
//	shares
//
// print the whole world; the last evaluation of a workload; the counters and amounts of a queue's
// status; the figures of every node for one flavor-resource; the fair share of every node.
package sim
