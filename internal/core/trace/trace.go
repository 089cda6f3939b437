// Package trace is the record of a decision: the flavors tried, the missing amounts, the
// possible victims, and the releases that cause another evaluation. Conditions, events,
// `berth explain` and golden files all print this one text.
package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-project/berth/internal/core/resource"
)

// Reason is why a workload has no quota: the reason of QuotaReserved=False.
// spec: 10 §5.1.
type Reason string

// The reasons, as clients compare them.
const (
	TopologyPlacementFailed      Reason = "TopologyPlacementFailed"
	WaitingForQuota              Reason = "WaitingForQuota"
	ExceedsMaxQuota              Reason = "ExceedsMaxQuota"
	NoMatchingFlavor             Reason = "NoMatchingFlavor"
	WaitingForPreemptedWorkloads Reason = "WaitingForPreemptedWorkloads"
	WaitingForPodsReady          Reason = "WaitingForPodsReady"
	Misconfigured                Reason = "Misconfigured"
	Suspended                    Reason = "Suspended"
	PendingEvaluation            Reason = "PendingEvaluation"
	Inactive                     Reason = "Deactivated"
)

// Severity orders the reasons a search can end with: alternatives report their least
// severe, requirements their most severe. spec: 10 §4.6.7.
func (r Reason) Severity() int {
	switch r {
	case TopologyPlacementFailed:
		return 1
	case WaitingForQuota:
		return 2
	case ExceedsMaxQuota:
		return 3
	case NoMatchingFlavor:
		return 4
	case WaitingForPreemptedWorkloads, WaitingForPodsReady, Misconfigured, Suspended, PendingEvaluation, Inactive:
	}
	return 0
}

// Refusal is one obstacle: a flavor that does not match, or a flavor-resource that is short.
// There are several in each failed evaluation, so it is small.
type Refusal struct {
	PodSet string
	// The subject; shared. A flavor that does not match has no resource, and both are empty
	// where no flavor was available at all.
	*resource.Pair
	Detail string // why the flavor does not match, "" for quota

	// For quota: the requested amount, the available one, and the most that can ever be.
	Asked, Available, Potential resource.Amount
	// Node is the bottleneck of the tree, and Limited reports that its borrowing limit binds.
	Node    string
	Limited bool
	// Placement: Detail is why the nodes of the flavor have no places for the pods.
	Placement bool
	// Reach, unless nil, is the reach of a failed search for victims.
	Reach *Reach // shared
}

// Reason is one of the four that a search can end with.
func (r *Refusal) Reason() Reason {
	switch {
	case r.Placement:
		return TopologyPlacementFailed
	case r.Detail != "":
		return NoMatchingFlavor
	case r.Asked > r.Potential:
		return ExceedsMaxQuota
	}
	return WaitingForQuota
}

// Reach is the candidates that a search for victims considered.
type Reach struct {
	Within, Reclaim string // the queue's policies, in the words of the API
	Own, OwnAllowed int    // workloads in the own queue, and the allowed ones of them
	Queues          int    // other queues of the tree that use more than their own quota
	Others          int    // workloads in those
	OthersAllowed   int    // and the allowed ones of them
}

// String is one sentence, without a full stop.
func (r *Reach) String() string {
	own := "in its own queue nobody may be asked to go (withinClusterQueue is " + r.Within + ")"
	if r.Within != "Never" {
		own = fmt.Sprintf("in its own queue %d of %s may be asked to go (withinClusterQueue is %s)", r.OwnAllowed, Plural(r.Own, "workload"), r.Within)
	}
	others := "; elsewhere nobody (reclaimWithinCohort is " + r.Reclaim + ")"
	switch {
	case r.Reclaim != "Never" && r.Queues == 0:
		others = "; no other queue uses more than its own"
	case r.Reclaim != "Never":
		others = fmt.Sprintf("; in %s that use more than their own, %d of %s (reclaimWithinCohort is %s)",
			Plural(r.Queues, "queue"), r.OthersAllowed, Plural(r.Others, "workload"), r.Reclaim)
	}
	if r.OwnAllowed+r.OthersAllowed > 0 {
		others += "; what they hold is not enough"
	}
	return own + others
}

// String is one clause, without a full stop.
func (r *Refusal) String() string {
	amount := func(a resource.Amount) string { return a.Format(r.Resource) }
	switch reason := r.Reason(); {
	case reason == NoMatchingFlavor || reason == TopologyPlacementFailed:
		return r.Detail
	case reason == ExceedsMaxQuota:
		return fmt.Sprintf("%s in flavor %s: %s requested, at most %s can ever be had here",
			r.Resource, r.Flavor, amount(r.Asked), amount(r.Potential))
	case r.Reach != nil:
		return fmt.Sprintf("%s in flavor %s: %s more needed (%s requested, %s available), and no workload may be preempted for it",
			r.Resource, r.Flavor, amount(r.Asked.Sub(r.Available)), amount(r.Asked), amount(r.Available))
	}
	return fmt.Sprintf("%s in flavor %s: %s more needed (%s requested, %s available)",
		r.Resource, r.Flavor, amount(r.Asked.Sub(r.Available)), amount(r.Asked), amount(r.Available))
}

// where says which node of the tree has no more to give, as a clause.
func (r *Refusal) where() string {
	switch {
	case r.Node == "":
		return ""
	case r.Limited:
		return "the borrowing limit of " + r.Node + " is reached"
	}
	return r.Node + " has no more than that"
}

// Node is the text of a ClusterQueue or cohort in refusals.
func Node(name string, cohort bool) string {
	if cohort {
		return "cohort " + name
	}
	return "ClusterQueue " + name
}

// Verdict is the outcome of an evaluation.
type Verdict string

// The verdicts.
const (
	Admitted  Verdict = "admitted"
	Preempts  Verdict = "preempts"
	Waits     Verdict = "waits"
	Withdrawn Verdict = "withdrawn" // no decision: it left during its evaluation
	Placed    Verdict = "placed"    // it holds quota already, and its pods got places now
)

// PodSet is the assignment of one pod set.
type PodSet struct {
	Name      string
	Count     int32
	Resources []Choice
	Placement *Placement `json:",omitempty"` // nil without places on nodes; shared
	Delayed   bool       `json:",omitempty"` // it gets places later
}

// Placement is the domains of a topology in which the pods of a pod set are placed. It is immutable.
type Placement struct {
	Flavor  string
	Levels  []string // label keys; the hostname alone where it is the lowest level
	Domains []Domain // in the order of their values
}

// Domain is a number of pods in one domain.
type Domain struct {
	Values []string // by level
	Count  int32
}

// Path returns the values of a domain as one text, for messages and as a key: no value contains a slash.
func (d Domain) Path() string { return strings.Join(d.Values, "/") }

// String lists the domains, in one line.
func (p *Placement) String() string {
	parts := make([]string, 0, len(p.Domains))
	for _, d := range p.Domains {
		parts = append(parts, fmt.Sprintf("%s %d", d.Path(), d.Count))
	}
	if len(parts) > shownDomains {
		parts = append(parts[:shownDomains:shownDomains], fmt.Sprintf("and %d more", len(parts)-shownDomains))
	}
	return strings.Join(parts, ", ")
}

// shownDomains is how many domains of a placement a text lists.
const shownDomains = 16

// Choice is a flavor assigned to a resource of a pod set.
type Choice struct {
	Amount resource.Amount // of all pods of the set
	FR     resource.FR
	Level  int16 // how far up the cohorts it borrows, 0 not at all
	Mode   Mode
}

// Mode is how well a request fits, from worst to best.
type Mode int8

// The modes. NoCandidates could fit by preemption, but no workload may be preempted;
// Preempt needs a victim in the own queue; Reclaim only victims elsewhere. Held is
// the assignment of an existing reservation.
const (
	NoFit Mode = iota
	NoCandidates
	Preempt
	Reclaim
	Fit
	Held
)

// String is the mode's word.
func (m Mode) String() string {
	return [...]string{"no fit", "no candidates", "preempt", "reclaim", "fit", "held"}[m]
}

// Victim is a workload to evict.
type Victim struct {
	Key        string // "" if it is not named, see Attempt.Naming
	UID, Queue string
	Reason     string // spec: 10 §4.7.2
	// Ran is how long it had run when it was chosen, and MinRun how long it runs at least as a rule, if that is longer; else both are 0.
	Ran, MinRun time.Duration `json:",omitempty"`
}

// early is a clause about a victim that has not run for its minimum, "" for others.
func (v *Victim) early() string {
	if v.MinRun == 0 {
		return ""
	}
	return fmt.Sprintf(", although it started %s ago of the %s that it asks for", length(v.Ran), length(v.MinRun))
}

// length is a time in whole seconds, without units that are 0.
func length(d time.Duration) string {
	text := d.Round(time.Second).String()
	for _, zero := range [...][2]string{{"m0s", "m"}, {"h0m", "h"}} {
		if cut, has := strings.CutSuffix(text, zero[0]); has {
			text = cut + zero[1]
		}
	}
	return text
}

// Attempt is the record of one evaluation of one workload.
type Attempt struct {
	Workload, UID, Queue string
	Priority             int64
	Verdict              Verdict
	Reason               Reason   // when it waits
	Note                 string   // a reason beyond quota, as a clause
	PodSets              []PodSet // the assignment, as far as it was found
	Refusals             []Refusal
	Victims              []Victim
	WakesOn              []resource.FR       // the FRs whose release causes another evaluation
	Start                *Start              `json:",omitempty"` // of a waiting workload for which one is reserved; shared
	Table                *resource.PairNames `json:"-"`          // of the FRs
}

// Start is the time by which a waiting workload starts, if the running ones end within their time limits.
type Start struct {
	At   int64 // nanoseconds since the Unix epoch
	Ends int   // how many workloads reach their limits up to then
	// Overdue: the time has passed, and some of them have not stopped yet.
	Overdue bool `json:",omitempty"`
}

// String is a clause, without a full stop.
func (s *Start) String() string {
	if s.Overdue {
		return "it starts as soon as the workloads have stopped that reached their time limits by " + Time(s.At)
	}
	limits := " have reached their time limits"
	if s.Ends == 1 {
		limits = " has reached its time limit"
	}
	return "it starts by " + Time(s.At) + ", when " + Plural(s.Ends, "workload") + limits
}

// Time is a time in UTC, of nanoseconds since the Unix epoch, up to a second.
func Time(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// Clone returns a copy in memory of its own, which refers to the same Reach, Placement and Victims.
func (l *Attempt) Clone() *Attempt {
	out := *l
	out.Refusals, out.PodSets, out.WakesOn = slices.Clone(l.Refusals), slices.Clone(l.PodSets), slices.Clone(l.WakesOn)
	for i := range out.PodSets {
		out.PodSets[i].Resources = slices.Clone(out.PodSets[i].Resources)
	}
	return &out
}

// Sentence is the message of the condition: what is short, and what would help.
func (l *Attempt) Sentence() string {
	switch l.Verdict {
	case Admitted:
		return "Quota reserved in ClusterQueue " + l.Queue
	case Preempts:
		return "Waiting for " + l.victims()
	case Placed:
		return "Pods are placed"
	case Waits, Withdrawn:
	}
	why := l.Note
	if why == "" {
		why = l.shortfalls()
	}
	if l.Start != nil {
		why += "; " + l.Start.String()
	}
	if l.Reason == ExceedsMaxQuota && len(l.WakesOn) == 0 {
		return why + "; it can start only if quota is raised or its requests are lowered"
	}
	if len(l.WakesOn) > 0 && (l.Reason == WaitingForQuota || l.Reason == ExceedsMaxQuota) {
		return why + "; it is looked at again as soon as quota is released"
	}
	return why
}

func (l *Attempt) shortfalls() string {
	var parts []string
	for i := range l.Refusals {
		clause := "pod set " + l.Refusals[i].PodSet + ": " + l.Refusals[i].String()
		if !slices.Contains(parts, clause) {
			parts = append(parts, clause)
		}
	}
	if len(parts) == 0 {
		return "not looked at yet"
	}
	return strings.Join(parts, "; ")
}

// victims counts them, and names the ones that may be named.
func (l *Attempt) victims() string {
	keys := make([]string, 0, len(l.Victims))
	for _, v := range l.Victims {
		if v.Key != "" {
			keys = append(keys, v.Key)
		}
	}
	all, unnamed := Plural(len(l.Victims), "preempted workload"), len(l.Victims)-len(keys)
	if len(keys) == 0 {
		return all + " of other namespaces to stop"
	}
	slices.Sort(keys)
	if len(keys) > 4 {
		keys = append(keys[:4:4], fmt.Sprintf("and %d more", len(keys)-4))
	}
	if unnamed > 0 {
		keys = append(keys, fmt.Sprintf("and %d of other namespaces", unnamed))
	}
	return all + " to stop: " + strings.Join(keys, ", ")
}

// Naming returns the record with the names of victims in visible namespaces only: of the others it keeps the ClusterQueue
// and the reason.
func (l *Attempt) Naming(visible func(namespace string) bool) *Attempt {
	out := *l
	out.Victims = slices.Clone(l.Victims)
	for i := range out.Victims {
		if namespace, _, _ := strings.Cut(out.Victims[i].Key, "/"); !visible(namespace) {
			out.Victims[i] = Victim{Queue: out.Victims[i].Queue, Reason: out.Victims[i].Reason}
		}
	}
	return &out
}

// NamingOwn is Naming for users who may read the workload only: it names victims in the workload's own namespace.
func (l *Attempt) NamingOwn() *Attempt {
	own, _, _ := strings.Cut(l.Workload, "/")
	return l.Naming(func(namespace string) bool { return namespace == own })
}

// Plural returns a number with its noun, whose plural ends in s.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// String is the stable text of the record, a line for each fact.
func (l *Attempt) String() string {
	var b strings.Builder
	b.WriteString(l.Workload)
	if l.Queue != "" {
		b.WriteString(" in " + l.Queue)
	}
	fmt.Fprintf(&b, " (priority %d): %s", l.Priority, l.Verdict)
	if l.Reason != "" {
		fmt.Fprintf(&b, ", %s", l.Reason)
	}
	b.WriteByte('\n')
	if l.Note != "" {
		fmt.Fprintf(&b, "  %s\n", l.Note)
	}
	if l.Start != nil {
		fmt.Fprintf(&b, "  %s\n", l.Start)
	}
	for _, ps := range l.PodSets {
		if ps.Placement != nil {
			fmt.Fprintf(&b, "  %s: placed on %s\n", ps.Name, ps.Placement)
		}
		for _, c := range ps.Resources {
			p := l.Table.Pair(c.FR)
			fmt.Fprintf(&b, "  %s: %s %s from %s (%s", ps.Name, c.Amount.Format(p.Resource), p.Resource, p.Flavor, c.Mode)
			if c.Level > 0 {
				fmt.Fprintf(&b, ", borrows %d up", c.Level)
			}
			b.WriteString(")\n")
		}
	}
	for i := range l.Refusals {
		r := &l.Refusals[i]
		fmt.Fprintf(&b, "  %s: %s [%s]\n", r.PodSet, r, r.Reason())
		if at := r.where(); at != "" {
			fmt.Fprintf(&b, "    %s\n", at)
		}
		if r.Reach != nil {
			fmt.Fprintf(&b, "    %s\n", r.Reach)
		}
	}
	for _, v := range l.Victims {
		fmt.Fprintf(&b, "  preempts %s in %s: %s%s\n", cmp.Or(v.Key, "a workload of another namespace"), v.Queue, v.Reason, v.early())
	}
	if len(l.WakesOn) > 0 {
		fmt.Fprintf(&b, "  wakes on a release of %s\n", strings.Join(l.Wakes(), ", "))
	}
	return b.String()
}

// Wakes names the WakesOn, "flavor/resource", sorted. Measures of one name are named once.
func (l *Attempt) Wakes() []string {
	names := make([]string, len(l.WakesOn))
	for i, fr := range l.WakesOn {
		p := l.Table.Pair(fr)
		names[i] = p.Flavor + "/" + p.Resource
	}
	slices.Sort(names)
	return slices.Compact(names)
}
