package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// ErrUnsettled is the error of a script in which a second step at the same moment decides again. That is a mistake of the engine, not of
// the script.
var ErrUnsettled = errors.New("a second step decides again")

// limits bound the work of a script.
type limits struct {
	source    int // bytes of the script, without its output
	workloads int // submitted and reserved
	cells     int // queues and cohorts times flavor-resources
	work      int // see spend
	output    int // bytes
}

// usual are the limits of Run: a script takes seconds at worst.
var usual = limits{source: 1 << 20, workloads: 100_000, cells: 1 << 20, work: 20_000_000, output: 64 << 20}

const (
	maxName    = 253           // bytes, as in Kubernetes
	maxWords   = 2_000         // of one command
	maxBudget  = 1_000_000     // cycles of one step
	maxPods    = 1_000_000     // of one pod set
	maxPodSets = 8             // of one workload, as in the API
	maxSecond  = 1_000_000_000 // the clock ends there, after some 30 years
)

// Run plays a script in an empty world and returns it with its output: every command is
// followed by its output, each line after "| ". Such lines in src are ignored, so a script
// can be its own expected output. An error names the wrong line, and comes with the output
// up to there. The package doc describes the language.
func Run(src string) (string, error) { return run(src, usual) }

func run(src string, most limits) (string, error) {
	p := newPlayer(most)
	var out strings.Builder
	n, size := 0, 0
	for line := range strings.Lines(src) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "|") {
			continue
		}
		if size += len(line) + 1; size > most.source {
			return out.String(), fmt.Errorf("line %d: the script is longer than %d bytes, not counting its output", n, most.source)
		}
		out.WriteString(line + "\n")
		said, err := p.line(line)
		for text := range strings.Lines(said) {
			out.WriteString(strings.TrimRight("| "+strings.TrimSuffix(text, "\n"), " ") + "\n")
		}
		if err == nil && out.Len() > most.output {
			err = fmt.Errorf("the output is longer than %d bytes", most.output)
		}
		if err != nil {
			return out.String(), fmt.Errorf("line %d: %w", n, err)
		}
	}
	return out.String(), nil
}

// player drives one state and plays the shell around it: what a step decides is written
// at once, unless the script says otherwise.
type player struct {
	s         *state.State
	most      limits
	spent     int                        // of most.work
	now       int64                      // seconds; every command takes one
	begun     bool                       // the world is no longer empty
	submitted int                        // workloads so far
	workloads map[string]*state.Workload // as the API server has them, by name, which is the UID
	nodes     map[string]bool            // queues and cohorts so far, see spread
	frs       map[string]bool            // flavor-resources so far

	// Decided, and not written yet, by name.
	admissions map[string]state.Grant
	evictions  map[string]bool
	placings   map[string]state.Grant    // new places of workloads that hold quota
	machines   map[string]*state.SetNode // the nodes of the cluster, by name
	checked    map[string]bool           // workloads with checks to pass once admitted, by name
}

func newPlayer(most limits) *player {
	p := &player{
		most: most, workloads: map[string]*state.Workload{}, nodes: map[string]bool{}, frs: map[string]bool{},
		admissions: map[string]state.Grant{}, evictions: map[string]bool{}, placings: map[string]state.Grant{}, machines: map[string]*state.SetNode{}, checked: map[string]bool{},
	}
	p.create(state.Options{Options: cycle.Defaults(), Topology: new(topology.DefaultGates()), FailFast: true})
	return p
}

// create makes the world, with one namespace.
func (p *player) create(o state.Options) {
	p.s = state.New(o)
	p.s.Apply(state.SetNamespace{Name: "default", Labels: nil})
}

// command is one word of the language.
type command struct {
	words string // its arguments, for people
	run   func(*player, *args) string
	all   bool // may read all workloads, see spend
}

// commands by name. doc.go has the same usages.
var commands = map[string]command{
	"options": {"[ignore-undeclared] [fair[=STRATEGY,...]] [no-within-nominal] [no-non-borrowing-first] [no-priority-in-cohort] " +
		"[preemptor-first] [block-admission] [no-recompute-overlap] [no-keep-scan] [no-fungibility] [no-partial] [no-classes] [no-fail-fast] " +
		"[claim-timeout=SECONDS] [edit-window=SECONDS] [half-life=SECONDS] [interval=SECONDS]", (*player).options, false},
	"namespace": {"NAME [KEY=VALUE ...]", (*player).namespace, true},
	"flavor":    {"NAME [label.KEY=VALUE ...] [taint=KEY[:VALUE] ...] [tolerate=KEY[:VALUE] ...] [topology=LEVEL,...]", (*player).flavor, true},
	"node":      {"NAME [label.KEY=VALUE ...] [taint=KEY[:VALUE] ...] [not-ready] [cordoned] [RESOURCE=AMOUNT ...]", (*player).node, true},
	"cordon":    {"NODE", changeNode(func(n *state.SetNode) { n.Schedulable = false }), true},
	"uncordon":  {"NODE", changeNode(func(n *state.SetNode) { n.Schedulable = true }), true},
	"fail":      {"NODE", changeNode(func(n *state.SetNode) { n.Ready = false }), true},
	"recover":   {"NODE", changeNode(func(n *state.SetNode) { n.Ready = true }), true},
	"unhealthy": {"NAME [NODE ...]", (*player).unhealthy, false},
	"foreign":   {"NODE [RESOURCE=AMOUNT ...]", (*player).foreign, true},
	"cohort":    {"NAME [parent=COHORT] [weight=W] [QUOTA ...]", (*player).cohort, true},
	"queue": {"NAME [cohort=COHORT] [weight=W] [strict] [closed=WHY] [namespaces=KEY:VALUE] [within=RULE] [reclaim=RULE] " +
		"[borrow-within=lower[:THRESHOLD]] [try-when-borrowing] [stop-when-preempting] [preemption-over-borrowing] [usage-based] [backfill=easy|conservative] [delayed] [QUOTA ...]", (*player).queue, true},
	"localqueue": {"NAME queue=QUEUE [namespace=NAMESPACE] [stopped] [weight=WEIGHT]", (*player).localQueue, true},
	"sample":     {"", (*player).sample, true},
	"usage":      {"NAME USAGE [namespace=NAMESPACE]", (*player).usage, true},
	"delete":     {"workload|queue|cohort|flavor|localqueue|namespace|node NAME [namespace=NAMESPACE]", (*player).delete, true},

	"submit": {"NAME [xCOPIES] [queue=LOCALQUEUE] [namespace=NAMESPACE] [prio=P] [at=SECOND] [owner=UID] [replaces=NAME] " +
		"[min-run=SECONDS] [limit=SECONDS] [gated] [checked] [problem=WHY] [PODS] [/ NAME [xCOUNT] [PODS] ...]", (*player).submit, false},
	"reserve": {"NAME queue=QUEUE [prio=P] [at=SECOND] [since=SECOND] [owner=UID] [min-run=SECONDS] [limit=SECONDS] [pending] FLAVOR/RESOURCE=AMOUNT ...", (*player).reserve, false},
	"edit": {"NAME [stale] [queue=LOCALQUEUE] [prio=P] [owner=UID] [replaces=NAME] [min-run=SECONDS] [limit=SECONDS] [gated] [gate=open|closed] " +
		"[problem=WHY] [rest=yes|no] [ready=yes|no] " +
		"[PODS] [/ NAME [xCOUNT] [PODS] ...]", (*player).edit, false},
	"finish":  {"NAME", (*player).finish, false},
	"evict":   {"NAME", (*player).evict, false},
	"evicted": {"NAME", (*player).evicted, false},
	"passes":  {"NAME", (*player).passes, false},

	"wait":        {"SECONDS", (*player).wait, false},
	"step":        {"[budget=CYCLES] [unwritten] [quiet]", (*player).step, true},
	"written":     {"NAME", (*player).written, false},
	"write-fails": {"NAME", (*player).writeFails, false},
	"evict-fails": {"NAME", (*player).evictFails, false},

	"show":      {"", (*player).show, true},
	"explain":   {"NAME", (*player).explain, false},
	"status":    {"QUEUE", (*player).status, true},
	"available": {"FLAVOR RESOURCE", (*player).available, true},
	"shares":    {"", (*player).shares, true},
}

// line plays one line of a script and returns the command's output.
func (p *player) line(line string) (string, error) {
	words := strings.Fields(line)
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return "", nil
	}
	same := words[0] == "+"
	if same {
		words = words[1:]
	}
	switch {
	case len(words) == 0:
		return "", errors.New(`a command is missing after "+"`)
	case same && (p.now == 0 || words[0] == "wait"):
		return "", fmt.Errorf(`"+" before %s: it says that a command is in the same second as the one before it`, quote(words[0]))
	}
	c, ok := commands[words[0]]
	if !ok {
		return "", fmt.Errorf("unknown command %s; %s", quote(words[0]), didYouMean(words[0], slices.Sorted(maps.Keys(commands))))
	}
	if len(words) > maxWords {
		return "", fmt.Errorf("the line has %d words, and may have %d", len(words), maxWords)
	}
	work := 1
	if c.all {
		work += len(p.workloads) + p.cells()/64
	}
	if err := p.spend(work); err != nil {
		return "", err
	}
	if !same {
		p.now++
	}
	a := &args{command: words[0], usage: strings.TrimSpace(words[0] + " " + c.words), words: words[1:]}
	said := c.run(p, a)
	p.begun = true
	return said, a.err
}

// spend counts requested work, in commands, cycles, and evaluated workloads.
func (p *player) spend(work int) error {
	p.spent += work
	if p.spent > p.most.work {
		return errors.New("the script is too much work: use fewer commands, workloads or queues")
	}
	return nil
}

func (p *player) cells() int { return len(p.nodes) * len(p.frs) }

// spread records the nodes and flavor-resources of a command, and fails when there are too many: every node has a figure for every
// flavor-resource.
func (p *player) spread(a *args, nodes, frs []string) {
	for _, n := range nodes {
		p.nodes[n] = true
	}
	for _, fr := range frs {
		p.frs[fr] = true
	}
	if p.cells() > p.most.cells {
		a.fail("%d queues and cohorts with %d flavor-resources are too many", len(p.nodes), len(p.frs))
	}
}

// seconds is the instant so many seconds after the beginning.
func seconds(n int64) workload.Instant { return workload.Instant(n) * second }

const second workload.Instant = 1e9
