package state

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

var rewrite = flag.Bool("rewrite", false, "write the scripts' output into testdata instead of comparing it")

// TestScripts runs testdata/*.txt. A script is a header in prose (#), commands, and
// after each command its output, every line of it after "| ".
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := newScript(t, Options{}).run(string(src))
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(src), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("output differs (-file +now); rerun with -rewrite if it is right:\n%s", diff)
			}
		})
	}
}

// script drives one State, and plays the shell: what a step decides is written at
// once, unless the script says otherwise.
type script struct {
	t       *testing.T
	s       *State
	now     int64 // seconds; every command takes one
	defs    map[string]*Workload
	pending map[string]cycle.Decision // admitted, not written, by workload
}

func newScript(t *testing.T, o Options) *script {
	sc := &script{t: t, s: New(o), defs: map[string]*Workload{}, pending: map[string]cycle.Decision{}}
	sc.s.SetNamespace("default", nil)
	return sc
}

var commands = map[string]func(*script, *args) string{
	"options":     (*script).options,
	"flavor":      (*script).flavor,
	"cohort":      (*script).cohort,
	"queue":       (*script).queue,
	"localqueue":  (*script).localQueue,
	"namespace":   (*script).namespace,
	"submit":      (*script).submit,
	"reserve":     (*script).reserve,
	"edit":        (*script).edit,
	"finish":      (*script).finish,
	"evict":       (*script).evict,
	"evicted":     (*script).evicted,
	"delete":      (*script).delete,
	"step":        (*script).step,
	"written":     (*script).written,
	"write-fails": (*script).writeFails,
	"evict-fails": (*script).evictFails,
	"show":        func(sc *script, _ *args) string { return sc.s.Dump() },
	"explain":     func(sc *script, a *args) string { return sc.s.Explain(a.word()) },
	"status":      (*script).status,
	"available":   (*script).available,
}

func (sc *script) run(src string) string {
	var out strings.Builder
	for n, line := range strings.Split(strings.TrimSuffix(src, "\n"), "\n") {
		if strings.HasPrefix(line, "|") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		command := commands[words[0]]
		if command == nil {
			sc.t.Fatalf("line %d: unknown command %q", n+1, words[0])
		}
		sc.now++
		a := &args{t: sc.t, line: n + 1, words: words[1:]}
		for text := range strings.Lines(command(sc, a)) {
			out.WriteString(strings.TrimRight("| "+strings.TrimSuffix(text, "\n"), " ") + "\n")
		}
		if len(a.words) > 0 {
			sc.t.Fatalf("line %d: %q means nothing here", n+1, a.words)
		}
	}
	return out.String()
}

// args are the words after a command; methods take away what they return.
type args struct {
	t     *testing.T
	line  int
	words []string
}

func (a *args) fail(format string, values ...any) {
	a.t.Helper()
	a.t.Fatalf("line %d: %s", a.line, fmt.Sprintf(format, values...))
}

// word takes the first word.
func (a *args) word() string {
	if len(a.words) == 0 {
		a.fail("a word is missing")
	}
	w := a.words[0]
	a.words = a.words[1:]
	return w
}

// flag takes a word that is there or not.
func (a *args) flag(name string) bool {
	i := slices.Index(a.words, name)
	if i >= 0 {
		a.words = slices.Delete(a.words, i, i+1)
	}
	return i >= 0
}

// take takes every key=value whose key has the prefix.
func (a *args) take(prefix string) (pairs [][2]string) {
	a.words = slices.DeleteFunc(slices.Clone(a.words), func(w string) bool {
		key, value, ok := strings.Cut(w, "=")
		if ok && strings.HasPrefix(key, prefix) {
			pairs = append(pairs, [2]string{strings.TrimPrefix(key, prefix), value})
			return true
		}
		return false
	})
	return pairs
}

// value takes name=value.
func (a *args) value(name, otherwise string) string {
	for i, w := range a.words {
		if key, value, ok := strings.Cut(w, "="); ok && key == name {
			a.words = slices.Delete(a.words, i, i+1)
			return value
		}
	}
	return otherwise
}

func (a *args) number(name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(a.value(name, strconv.FormatInt(otherwise, 10)), 10, 64)
	if err != nil {
		a.fail("%s: %v", name, err)
	}
	return n
}

// one of the values that a name can have.
func oneOf[T any](a *args, name string, values map[string]T) T {
	text := a.value(name, "")
	v, ok := values[text]
	if !ok && text != "" {
		a.fail("%s=%s means nothing", name, text)
	}
	return v
}

func (a *args) amount(res, text string) resource.Amount {
	if text == "unlimited" {
		return resource.Unlimited
	}
	scale := int64(1)
	if res == "cpu" {
		scale = 1000
	}
	for suffix, n := range map[string]int64{"m": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			text, scale = number, n
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		a.fail("amount of %s: %v", res, err)
	}
	return resource.Amount(n * scale)
}

// groups takes every flavor/resource=nominal[,borrow=x][,lend=x]. Flavors with the
// same resources are a group.
func (a *args) groups() (groups []Group) {
	var order []string
	quotas := map[string][]Quota{}
	a.words = slices.DeleteFunc(slices.Clone(a.words), func(w string) bool {
		name, rest, ok := strings.Cut(w, "/")
		if !ok {
			return false
		}
		res, amounts, _ := strings.Cut(rest, "=")
		parts := strings.Split(amounts, ",")
		q := Quota{Resource: res, Nominal: a.amount(res, parts[0]), Borrow: quota.NoLimit, Lend: quota.NoLimit}
		for _, p := range parts[1:] {
			which, text, _ := strings.Cut(p, "=")
			switch which {
			case "borrow":
				q.Borrow = a.amount(res, text)
			case "lend":
				q.Lend = a.amount(res, text)
			default:
				a.fail("%q is no limit", p)
			}
		}
		if quotas[name] == nil {
			order = append(order, name)
		}
		quotas[name] = append(quotas[name], q)
		return true
	})
	for _, name := range order {
		var resources []string
		for _, q := range quotas[name] {
			resources = append(resources, q.Resource)
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return slices.Equal(g.Resources, resources) })
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{Resources: resources})
		}
		groups[i].Flavors = append(groups[i].Flavors, FlavorQuota{name, quotas[name]})
	}
	return groups
}

// ignore-undeclared
func (sc *script) options(a *args) string {
	sc.s = New(Options{IgnoreUndeclared: a.flag("ignore-undeclared")})
	sc.s.SetNamespace("default", nil)
	return ""
}

// NAME [label.KEY=VALUE] [taint=KEY:VALUE] [tolerate=KEY:VALUE]
func (sc *script) flavor(a *args) string {
	f := flavor.Flavor{Name: a.word(), Labels: map[string]string{}}
	for _, p := range a.take("label.") {
		f.Labels[p[0]] = p[1]
	}
	for _, p := range a.take("taint") {
		key, value, _ := strings.Cut(p[1], ":")
		f.Taints = append(f.Taints, workload.Taint{Key: key, Value: value, Effect: "NoSchedule"})
	}
	f.Tolerations = a.tolerations()
	sc.s.SetFlavor(f)
	return ""
}

func (a *args) tolerations() (out []workload.Toleration) {
	for _, p := range a.take("tolerate") {
		key, value, _ := strings.Cut(p[1], ":")
		out = append(out, workload.Toleration{Key: key, Operator: "Equal", Value: value})
	}
	return out
}

// NAME [parent=COHORT] [quotas]
func (sc *script) cohort(a *args) string {
	sc.s.SetCohort(Cohort{Name: a.word(), Parent: a.value("parent", ""), Groups: a.groups()})
	return ""
}

// NAME [cohort=C] [strict] [closed=WHY] [namespaces=KEY:VALUE] [within=] [reclaim=]
// [borrow-within=lower[:THRESHOLD]] [try-when-borrowing] [stop-when-preempting]
// [preemption-over-borrowing] quotas. Its flavors come to be without labels, and a
// LocalQueue of the same name in the namespace "default".
func (sc *script) queue(a *args) string {
	rules := map[string]preempt.Rule{
		"lower": preempt.LowerPriority, "lower-or-newer": preempt.LowerOrNewerEqualPriority, "any": preempt.Any, "never": preempt.Never,
	}
	def := Queue{
		Name: a.word(), Cohort: a.value("cohort", ""), Closed: a.value("closed", ""), Strict: a.flag("strict"),
		Namespaces: []workload.Term{{}}, Groups: a.groups(),
		Fungibility: flavor.Fungibility{
			TryNextWhenBorrowing: a.flag("try-when-borrowing"), StopWhenPreempting: a.flag("stop-when-preempting"),
			PreemptionOverBorrowing: a.flag("preemption-over-borrowing"),
		},
		Preemption: preempt.Policy{Within: oneOf(a, "within", rules), Reclaim: oneOf(a, "reclaim", rules)},
	}
	if key, value, ok := strings.Cut(a.value("namespaces", ""), ":"); ok {
		def.Namespaces = []workload.Term{{{Key: key, Op: workload.In, Values: []string{value}}}}
	}
	if policy, threshold, bounded := strings.Cut(a.value("borrow-within", ""), ":"); policy == "lower" {
		def.Preemption.BorrowWithin = true
		if bounded {
			n, err := strconv.ParseInt(threshold, 10, 64)
			if err != nil {
				a.fail("borrow-within: %v", err)
			}
			def.Preemption.Threshold = &n
		}
	}
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			if sc.s.flavors[f.Flavor] == nil {
				sc.s.SetFlavor(flavor.Flavor{Name: f.Flavor})
			}
		}
	}
	if sc.s.queues[def.Name] == nil {
		sc.s.SetLocalQueue(LocalQueue{Namespace: "default", Name: def.Name, Queue: def.Name})
	}
	sc.s.SetQueue(def)
	return ""
}

// NAME queue=Q [namespace=] [stopped]
func (sc *script) localQueue(a *args) string {
	sc.s.SetLocalQueue(LocalQueue{
		Namespace: a.value("namespace", "default"), Name: a.word(), Queue: a.value("queue", ""), Stopped: a.flag("stopped"),
	})
	return ""
}

// NAME [KEY=VALUE]
func (sc *script) namespace(a *args) string {
	name, labels := a.word(), map[string]string{}
	for _, p := range a.take("") {
		labels[p[0]] = p[1]
	}
	sc.s.SetNamespace(name, labels)
	return ""
}

// NAME queue=LOCALQUEUE [prio=] [at=SECOND] [xN copies], then pod sets, each after a
// "/": NAME [xCOUNT] resource=amount of all its pods [selector.KEY=VALUE] [tolerate=]
// [affinity=KEY:VALUE, ORed]. Without a "/" there is one pod set, "main".
func (sc *script) submit(a *args) string {
	name, words := a.word(), a.words
	copies := 1
	if len(words) > 0 && strings.HasPrefix(words[0], "x") {
		copies, _ = strconv.Atoi(words[0][1:])
		words = words[1:]
	}
	for i := range copies {
		a.words = slices.Clone(words)
		def := &Workload{UID: name, Namespace: "default", Name: name, Queueable: true}
		if copies > 1 {
			def.UID = fmt.Sprintf("%s-%04d", name, i+1)
			def.Name = def.UID
		}
		def.Created = workload.Instant(a.number("at", sc.now))
		def.Since = def.Created
		sc.change(def, a)
	}
	return ""
}

// change applies what is said about a workload.
func (sc *script) change(def *Workload, a *args) {
	def.Namespace = a.value("namespace", def.Namespace)
	def.LocalQueue = a.value("queue", def.LocalQueue)
	def.Priority = a.number("prio", def.Priority)
	var sets []PodSet
	for i, part := range splitWords(a.words, "/") {
		b := &args{t: a.t, line: a.line, words: part}
		ps := PodSet{Name: "main", Count: 1}
		if i > 0 {
			ps.Name = b.word()
		}
		if len(b.words) > 0 && strings.HasPrefix(b.words[0], "x") && !strings.Contains(b.words[0], "=") {
			n, _ := strconv.Atoi(b.word()[1:])
			ps.Count = int32(n)
		}
		ps.Shape = strings.Join(b.words, " ")
		c := workload.Constraints{Tolerations: b.tolerations()}
		for _, p := range b.take("selector.") {
			c.Selector = map[string]string{p[0]: p[1]}
		}
		for _, p := range b.take("affinity") {
			key, value, _ := strings.Cut(p[1], ":")
			c.Affinity = append(c.Affinity, workload.Term{{Key: key, Op: workload.In, Values: []string{value}}})
		}
		ps.Constraints = &c
		for _, p := range b.take("") {
			ps.Requests = append(ps.Requests, Request{p[0], a.amount(p[0], p[1])})
		}
		slices.SortFunc(ps.Requests, func(x, y Request) int { return strings.Compare(x.Resource, y.Resource) })
		if len(b.words) > 0 {
			a.fail("%q means nothing in a pod set", b.words)
		}
		if i > 0 || len(ps.Requests) > 0 {
			sets = append(sets, ps)
		}
	}
	a.words = nil
	if len(sets) > 0 {
		def.PodSets = sets
	}
	sc.defs[def.UID] = def
	sc.set(def)
}

func splitWords(words []string, at string) [][]string {
	parts := [][]string{nil}
	for _, w := range words {
		if w == at {
			parts = append(parts, nil)
		} else {
			parts[len(parts)-1] = append(parts[len(parts)-1], w)
		}
	}
	return parts
}

func (sc *script) set(def *Workload) {
	def.Version++
	sc.s.SetWorkload(*def)
}

func (sc *script) def(a *args) *Workload {
	name := a.word()
	def := sc.defs[name]
	if def == nil {
		a.fail("no workload %s", name)
	}
	return def
}

// NAME queue=CLUSTERQUEUE [prio=] [at=SECOND created] [since=SECOND reserved] [pending]
// flavor/resource=amount: written by somebody else; admitted unless checks are pending.
func (sc *script) reserve(a *args) string {
	name := a.word()
	def := &Workload{
		UID: name, Namespace: "default", Name: name, Queueable: true, LocalQueue: a.value("queue", ""), Priority: a.number("prio", 0),
		Created: workload.Instant(a.number("at", sc.now)), Reserved: true, ReservedAt: workload.Instant(a.number("since", sc.now)),
		Admitted: !a.flag("pending"),
	}
	def.Since, def.Queue = def.Created, def.LocalQueue
	ps := PodSet{Name: "main", Count: 1}
	for _, g := range a.groups() {
		for _, f := range g.Flavors {
			for _, q := range f.Resources {
				def.Held = append(def.Held, Held{f.Flavor, q.Resource, q.Nominal})
				ps.Requests = append(ps.Requests, Request{q.Resource, q.Nominal})
			}
		}
	}
	slices.SortFunc(ps.Requests, func(x, y Request) int { return strings.Compare(x.Resource, y.Resource) })
	def.PodSets = []PodSet{ps}
	sc.defs[name] = def
	sc.set(def)
	return ""
}

// NAME and what changes, as in submit; stale: as of an older version.
func (sc *script) edit(a *args) string {
	def := sc.def(a)
	if a.flag("stale") {
		old := *def
		old.Version = 0
		old.Queueable = false
		sc.s.SetWorkload(old)
		return ""
	}
	sc.change(def, a)
	return ""
}

func (sc *script) finish(a *args) string {
	def := sc.def(a)
	def.Queueable, def.Reserved, def.Admitted = false, false, false
	sc.set(def)
	return ""
}

// evict: somebody else tells a workload to go.
func (sc *script) evict(a *args) string {
	def := sc.def(a)
	def.Evicting = true
	sc.set(def)
	return ""
}

// evicted: the owner of a workload that was told to go reports that it is gone.
func (sc *script) evicted(a *args) string {
	def := sc.def(a)
	if !def.Evicting {
		a.fail("%s was not told to go", def.Name)
	}
	def.Reserved, def.Admitted, def.Evicting, def.Held = false, false, false, nil
	sc.set(def)
	return ""
}

// WHAT NAME
func (sc *script) delete(a *args) string {
	switch what, name := a.word(), a.word(); what {
	case "workload":
		sc.s.DeleteWorkload(name)
	case "queue":
		sc.s.DeleteQueue(name)
	case "cohort":
		sc.s.DeleteCohort(name)
	case "flavor":
		sc.s.DeleteFlavor(name)
	case "localqueue":
		sc.s.DeleteLocalQueue("default", name)
	case "namespace":
		sc.s.DeleteNamespace(name)
	default:
		a.fail("cannot delete a %s", what)
	}
	return ""
}

// [budget=N] [unwritten] [quiet]: what is decided is printed and, unless unwritten,
// written; then a second step must have nothing to add.
func (sc *script) step(a *args) string {
	budget, unwritten, quiet := a.number("budget", 10_000), a.flag("unwritten"), a.flag("quiet")
	r := sc.s.Step(workload.Instant(sc.now), int(budget))
	var b strings.Builder
	fmt.Fprintf(&b, "%d cycles, %d decisions\n", r.Cycles, len(r.Decisions))
	for _, d := range r.Decisions {
		if !quiet {
			b.WriteString(d.Look.String())
		}
		if d.Look.Verdict == trace.Admitted {
			sc.pending[d.Workload.UID] = d
		}
		for _, v := range d.Evict {
			sc.defs[v.Workload.UID].Evicting = true
			if !unwritten {
				sc.set(sc.defs[v.Workload.UID])
			}
		}
	}
	if r.More {
		b.WriteString("more to do\n")
	}
	if unwritten || r.More {
		return b.String()
	}
	for _, uid := range sortedKeys(sc.pending) {
		sc.write(uid)
	}
	if again := sc.s.Step(workload.Instant(sc.now), int(budget)); len(again.Decisions) > 0 {
		sc.t.Errorf("line %d: a second step decides again:\n%s", a.line, again.Decisions[0].Look)
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// write plays the API server's answer to an admission.
func (sc *script) write(uid string) {
	d := sc.pending[uid]
	delete(sc.pending, uid)
	def := sc.defs[uid]
	def.Reserved, def.Admitted, def.Queue, def.ReservedAt, def.Held = true, true, d.Queue, d.Workload.ReservedAt, nil
	for _, ps := range sc.s.Grant(&d).PodSets {
		def.Held = append(def.Held, ps.Held...)
	}
	sc.set(def)
}

func (sc *script) written(a *args) string {
	sc.write(a.word())
	return ""
}

func (sc *script) writeFails(a *args) string {
	uid := a.word()
	delete(sc.pending, uid)
	sc.s.AdmissionFailed(uid)
	return ""
}

func (sc *script) evictFails(a *args) string {
	def := sc.def(a)
	def.Evicting = false
	sc.s.EvictionFailed(def.UID)
	return ""
}

// QUEUE: the counters of its status.
func (sc *script) status(a *args) string {
	name := a.word()
	v, ok := sc.s.Queue(name)
	if !ok {
		return "no such queue\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d active, %d parked, %d reserved, %d admitted\n", v.Active, v.Parked, v.Reserved, v.Admitted)
	for _, list := range []struct {
		what string
		held []Held
	}{{"reserved", v.Reservation}, {"used", v.Usage}, {"borrowed", v.Borrowed}} {
		for _, h := range list.held {
			fmt.Fprintf(&b, "%s %s/%s=%s\n", list.what, h.Flavor, h.Resource, h.Amount.Format(h.Resource))
		}
	}
	return b.String()
}

// FLAVOR RESOURCE: nominal, used, available and potential of every node.
func (sc *script) available(a *args) string {
	name, res := a.word(), a.word()
	fr := sc.s.world.Table.FR(name, res)
	sc.s.world.Quota.Reach(fr)
	var b strings.Builder
	show := func(kind, name string, n quota.Node) {
		f := sc.s.world.Quota
		fmt.Fprintf(&b, "%s %s: subtree %s used %s available %s potential %s\n", kind, name, f.Subtree(n, fr).Format(res),
			f.Usage(n, fr).Format(res), f.Available(n, fr).Format(res), f.Potential(n, fr).Format(res))
	}
	for _, name := range sortedKeys(sc.s.cohorts) {
		show("cohort", name, sc.s.cohorts[name].node)
	}
	for _, name := range sortedKeys(sc.s.queues) {
		show("queue", name, sc.s.queues[name].q.Node)
	}
	return b.String()
}
