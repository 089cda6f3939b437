package state

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/workload"
)

const (
	halfLife = workload.Instant(100e9)
	interval = workload.Instant(10e9)
)

// usageWorld is a State with a twin of its accounts, which reads spec 20 §4.4 literally: it samples every LocalQueue each time.
type usageWorld struct {
	s      *State
	now    workload.Instant
	serial int
	defs   map[string]*Workload // by UID
	queue  Queue
	weight map[string]float64 // by LocalQueue

	at, consumed map[string]float64
	penalties    map[string]float64 // by UID
	of           map[string]string  // the LocalQueue in which a penalty was pushed
}

func newUsageWorld() *usageWorld {
	w := &usageWorld{
		s:   New(Options{Options: immediately(), Sharing: &sharing.Rates{HalfLife: halfLife, Interval: interval, Weights: map[string]float64{"gpu": 2}}}),
		now: interval, defs: map[string]*Workload{}, weight: map[string]float64{"a": 1, "b": 0.5, "c": 3},
		at: map[string]float64{}, consumed: map[string]float64{}, penalties: map[string]float64{}, of: map[string]string{},
	}
	w.s.Record(1000)
	w.s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	w.s.Apply(SetNamespace{Name: "team"})
	y := yard{s: w.s}
	w.queue = y.queue(0, 12, preempt.Policy{})
	w.queue.UsageBased = true
	w.s.Apply(SetQueue(w.queue))
	for _, name := range []string{"a", "b", "c"} {
		w.s.Apply(SetLocalQueue(LocalQueue{Namespace: "team", Name: name, Queue: w.queue.Name, Weight: w.weight[name]}))
	}
	w.sample()
	return w
}

func alpha(t workload.Instant) float64 { return 1 - math.Exp2(-float64(t)/float64(halfLife)) }

// usage is the usage of the admitted workloads of a LocalQueue.
func (w *usageWorld) usage(lq string) (sum float64) {
	for _, def := range w.defs {
		if def.LocalQueue == lq && def.Reserved && def.Admitted {
			sum += float64(def.Held[0].Amount)
		}
	}
	return sum
}

func (w *usageWorld) sampleTwin(lq string) {
	a := alpha(w.now - workload.Instant(w.at[lq]))
	w.consumed[lq] = (1-a)*w.consumed[lq] + a*w.usage(lq)
	w.at[lq] = float64(w.now)
}

func (w *usageWorld) sample() {
	for lq := range w.weight {
		if w.at[lq] == 0 {
			w.at[lq] = float64(w.now)
		}
		w.sampleTwin(lq)
	}
	w.s.Apply(SampleUsage{Now: w.now, Max: math.MaxInt})
}

func (w *usageWorld) drop(uid string) {
	delete(w.penalties, uid)
	delete(w.of, uid)
}

// apply applies a new version of a workload.
func (w *usageWorld) apply(def *Workload) {
	def.Version++
	w.s.Apply(SetWorkload(*def))
}

func (w *usageWorld) step() {
	for _, d := range w.s.Step(w.now, 1000).Decisions {
		if d.Admitted == nil {
			continue
		}
		def := w.defs[d.Workload.UID]
		def.Queue, def.ReservedAt, def.Held = d.Queue, d.Workload.ReservedAt, w.s.Grant(&d).PodSets[0].Held
		w.penalties[def.UID], w.of[def.UID] = alpha(interval)*float64(def.Held[0].Amount), def.LocalQueue
	}
}

func (w *usageWorld) drawEvent(t *rapid.T) {
	uids := slices.Sorted(maps.Keys(w.defs))
	pick := func(match func(*Workload) bool) *Workload {
		var some []*Workload
		for _, uid := range uids {
			if def := w.defs[uid]; match(def) {
				some = append(some, def)
			}
		}
		if len(some) == 0 {
			return nil
		}
		return rapid.SampledFrom(some).Draw(t, "workload")
	}
	assumed := func(d *Workload) bool { return len(d.Held) > 0 && !d.Reserved }
	waits := func(d *Workload) bool { return d.Reserved && !d.Admitted && !d.Evicting }
	event := rapid.SampledFrom([]string{"submit", "submit", "step", "step", "sample", "sample", "reserve", "admit", "admit", "fail", "evict", "requeue", "delete", "deactivate", "move", "restore"}).Draw(t, "event")
	switch event {
	case "submit":
		w.serial++
		uid := fmt.Sprintf("u%03d", w.serial)
		def := &Workload{UID: uid, Namespace: "team", Name: uid, LocalQueue: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "lq"), Queueable: true, Since: w.now}
		amount := rapid.IntRange(1, 5).Draw(t, "gpus")
		def.PodSets = gpus(amount)
		w.defs[uid] = def
		w.apply(def)
	case "step":
		w.step()
	case "sample":
		w.now += interval * workload.Instant(rapid.IntRange(10, 30).Draw(t, "tenths")) / 10
		w.sample()
	case "restore": // another process goes on from a snapshot
		w.step()
		fresh, err := Restore(w.s.Checkpoint().Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		w.s = fresh
		w.s.Record(1000)
	default:
		w.change(event, pick, assumed, waits)
	}
}

// change changes a workload, if there is one of which the event can be.
func (w *usageWorld) change(event string, pick func(func(*Workload) bool) *Workload, assumed, waits func(*Workload) bool) {
	match := map[string]func(*Workload) bool{
		"reserve": assumed, "fail": assumed, "admit": func(d *Workload) bool { return assumed(d) || waits(d) },
		"evict": func(d *Workload) bool { return d.Reserved && !d.Evicting }, "requeue": func(d *Workload) bool { return d.Reserved && d.Evicting },
		"delete": func(*Workload) bool { return true }, "deactivate": func(d *Workload) bool { return d.Queueable },
		"move": func(d *Workload) bool { return !d.Reserved && !assumed(d) && d.Queueable },
	}[event]
	def := pick(match)
	if def == nil {
		return
	}
	switch event {
	case "reserve":
		def.Reserved = true
		w.apply(def)
	case "admit":
		if p, owes := w.penalties[def.UID]; owes {
			w.sampleTwin(def.LocalQueue)
			w.consumed[def.LocalQueue] += p
			w.drop(def.UID)
		}
		def.Reserved, def.Admitted = true, true
		w.s.Step(w.now, 0) // the clock
		w.apply(def)
	case "fail":
		w.drop(def.UID)
		def.Held = nil
		w.s.Apply(AdmissionFailed{def.UID, def.Version})
	case "evict":
		def.Evicting = true
		w.apply(def)
	case "requeue":
		def.Reserved, def.Admitted, def.Evicting, def.Held = false, false, false, nil
		w.apply(def)
	case "delete":
		w.drop(def.UID)
		delete(w.defs, def.UID)
		w.s.Apply(DeleteWorkload(def.UID))
	case "deactivate":
		w.drop(def.UID)
		def.Queueable, def.Reserved, def.Admitted, def.Held = false, false, false, nil
		w.apply(def)
	case "move":
		w.drop(def.UID)
		def.LocalQueue = map[string]string{"a": "b", "b": "c", "c": "a"}[def.LocalQueue]
		w.apply(def)
	}
}

// check compares the accounts. A LocalQueue without usage has no samples, and a sample of it changes only its decay.
func (w *usageWorld) check(t *rapid.T) {
	m := w.s.Publish()
	for lq, weight := range w.weight {
		u := m.Usage("team", lq)

		owed, n := 0.0, 0
		for uid, p := range w.penalties {
			if w.of[uid] == lq {
				owed, n = owed+p, n+1
			}
		}
		want := 2 * (w.consumed[lq] + owed) / weight
		if math.Abs(u.Value-want) > 1e-8+1e-9*want || u.Penalties != n {
			t.Fatalf("%s: the usage is %v with %d penalties, want %v with %d", lq, u.Value, u.Penalties, want, n)
		}
		if u.Value != math.Float64frombits(uint64(w.s.localQueues[Name{"team", lq}].standing)) {
			t.Fatalf("%s: its standing is not that of its usage", lq)
		}
	}
}

func gpus(n int) []PodSet {
	return []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "gpu", Amount: resource.Amount(n)}}}}
}

// TestSharingTwin: the accounts are as the specification says, whatever happens in whatever order, and after a restore. A replay of the
// record ends with the same accounts.
func TestSharingTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newUsageWorld()
		for range rapid.IntRange(5, 60).Draw(t, "events") {
			w.drawEvent(t)
			w.check(t)
		}
		w.step()
		replayed(t, w.s)
	})
}

// replayed compares a State with the replay of its record.
func replayed(t *rapid.T, s *State) {
	from, events := s.Publish().Record().Contents()
	again, err := Restore(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		again.Apply(e)
	}
	if diff := gocmp.Diff(s.Checkpoint().Snapshot().Usage, again.Checkpoint().Snapshot().Usage); diff != "" {
		t.Fatalf("accounts after a replay (-live +replayed):\n%s", diff)
	}
}

// TestBehindByUsage: the LocalQueues that come first have pending workloads and have used less.
func TestBehindByUsage(t *testing.T) {
	w := newUsageWorld()
	w.s.Apply(DeleteQueue(w.queue.Name))
	w.queue.Groups[0].Flavors[0].Resources[0].Nominal = 2
	w.s.Apply(SetQueue(w.queue))
	for i, lq := range []string{"c", "a", "b", "a"} {
		w.s.submitTo(Name{"team", lq}, fmt.Sprint(lq, i), int64(9-i), workload.Instant(i+1), 2)
	}
	w.s.Step(w.now, 1000) // c0 is admitted, and owes
	w.s.submitTo(Name{"team", "c"}, "late", 9, 9, 2)
	w.s.Step(w.now, 1000)
	m := w.s.Publish()
	if diff := gocmp.Diff([]Name{{"team", "a"}, {"team", "b"}}, m.BehindByUsage(w.queue.Name, "team", "c")); diff != "" {
		t.Errorf("behind (-want +got):\n%s", diff)
	}
	if c, a := m.Usage("team", "c"), m.Usage("team", "a"); c.Value <= a.Value {
		t.Errorf("used %+v, and %+v", c, a)
	}
	for _, other := range []string{"a", "b", "nobody"} { // a and b have used the same
		if before := m.BehindByUsage(w.queue.Name, "team", other); len(before) > 0 {
			t.Errorf("%s is behind %v", other, before)
		}
	}
}

// TestUsageAfterClockSetBack: usage is counted on after the clock jumped ahead and was set back.
func TestUsageAfterClockSetBack(t *testing.T) {
	w := newUsageWorld()
	w.s.Apply(SetWorkload{
		UID: "u", Namespace: "team", Name: "w", LocalQueue: "a", Version: 1, Reserved: true, Admitted: true, Queue: w.queue.Name,
		PodSets: []PodSet{{Name: "main", Count: 1}}, Held: []Held{{PodSet: "main", Flavor: "f", Resource: "gpu", Amount: 4}},
	})
	sample := func(now workload.Instant) (at workload.Instant, value float64) {
		w.s.Apply(SampleUsage{Now: now, Max: 100})
		a := &w.s.localQueues[Name{"team", "a"}].account
		return a.At, a.Value(w.s.options.Sharing, 1)
	}
	now := w.now
	for range 5 {
		now += interval
		sample(now)
	}
	sample(now + 1000*interval)
	_, before := sample(now)
	for range 5 {
		now += interval
		sample(now)
	}
	w.s.Apply(SetWorkload(Workload{UID: "u", Namespace: "team", Name: "w", LocalQueue: "a", Version: 2}))
	for range 5 {
		now += interval
		sample(now)
	}
	if at, value := sample(now); at > now || value >= before {
		t.Errorf("counted up to %d s, at %d s: %g, before %g", at/1e9, now/1e9, value, before)
	}
}
