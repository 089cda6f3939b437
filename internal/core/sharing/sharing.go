// Package sharing is the ledger of admission fair sharing: the past usage of a LocalQueue, which decays, and the penalties of its
// workloads that are admitted and not counted yet. spec: 20 §4.4.
package sharing

import (
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Rates are how fast usage counts and is forgotten, and the weights of resources. A nil one has no penalties, and weighs all resources alike.
type Rates struct {
	// HalfLife is the time after which half of the usage is forgotten. 0: usage never counts.
	HalfLife workload.Instant
	// Interval is the time between two samples.
	Interval workload.Instant
	// Weights are by resource; the default is 1.
	Weights map[string]float64 `json:",omitempty"`
}

// Used is an amount of one resource: cores of cpu, bytes of memory, units of all others.
type Used struct {
	Resource string
	Amount   float64
}

// least is the least amount that a status can show. Less is forgotten.
const least = 1e-9

// Alpha is the part of the usage before a time t that is forgotten by now, and the part of an average that the usage since then
// makes up. A negative time counts as 0.
func (r *Rates) Alpha(t workload.Instant) float64 {
	if r == nil || r.HalfLife <= 0 || t <= 0 {
		return 0
	}
	return -math.Expm1(-math.Ln2 * float64(t) / float64(r.HalfLife))
}

// weight returns the weight of a resource.
func (r *Rates) weight(name string) float64 {
	if r != nil {
		if w, set := r.Weights[name]; set {
			return w
		}
	}
	return 1
}

// In returns an amount of a resource in the unit of Used.
func In(name string, a resource.Amount) float64 {
	if name == "cpu" {
		return float64(a) / 1000
	}
	return float64(a)
}

// Account is the ledger of one LocalQueue. The zero value is empty.
type Account struct {
	// At is the time up to which Consumed counts, 0 before the first sample.
	At workload.Instant
	// Consumed is the decayed usage, by resource. The slice is replaced and never changed.
	Consumed []Used

	penalties map[string][]Request // by UID
	owed      []Request            // their sum, by resource
}

// Request is an amount of one resource that a workload requests, in the units of quota.
type Request struct {
	Resource string
	Amount   resource.Amount
}

// Sample counts the usage since the last sample, as if it had been the present one all the time: usage must be sorted by resource.
func (a *Account) Sample(r *Rates, now workload.Instant, usage []Used) {
	elapsed := now - a.At
	if a.At == 0 || elapsed < 0 {
		elapsed = 0
	}
	if r == nil || r.HalfLife <= 0 {
		a.At, a.Consumed = max(a.At, now), nil
		return
	}
	alpha := r.Alpha(elapsed)
	a.At, a.Consumed = max(a.At, now), merge(a.Consumed, usage, func(was, is float64) float64 { return (1-alpha)*was + alpha*is })
}

// merge combines two sorted lists; what is in neither, and what is next to nothing, is left out.
func merge(a, b []Used, combine func(x, y float64) float64) []Used {
	out := make([]Used, 0, max(len(a), len(b)))
	for i, j := 0, 0; i < len(a) || j < len(b); {
		var u Used
		switch {
		case j == len(b) || (i < len(a) && a[i].Resource < b[j].Resource):
			u = Used{a[i].Resource, combine(a[i].Amount, 0)}
			i++
		case i == len(a) || b[j].Resource < a[i].Resource:
			u = Used{b[j].Resource, combine(0, b[j].Amount)}
			j++
		default:
			u = Used{a[i].Resource, combine(a[i].Amount, b[j].Amount)}
			i, j = i+1, j+1
		}
		if u.Amount >= least {
			out = append(out, u)
		}
	}
	return out
}

// PushPenalty makes a workload owe the usage of one interval. Pushed again, the latest requests count. requests must be sorted by resource,
// without repeats, and must not be modified afterwards.
func (a *Account) PushPenalty(r *Rates, uid string, requests []Request) {
	a.DropPenalty(uid)
	if r == nil || r.HalfLife <= 0 || len(requests) == 0 {
		return
	}
	if a.penalties == nil {
		a.penalties = map[string][]Request{}
	}
	a.penalties[uid] = requests
	for _, q := range requests {
		a.owe(q.Resource, q.Amount)
	}
}

// Owes reports whether a workload has a penalty.
func (a *Account) Owes(uid string) bool { return a.penalties[uid] != nil }

// Penalties is the number of workloads with a penalty.
func (a *Account) Penalties() int { return len(a.penalties) }

// Penalty returns the requests of a penalty, nil for none.
func (a *Account) Penalty(uid string) []Request { return a.penalties[uid] }

// Debtors returns the UIDs of the workloads with a penalty, sorted.
func (a *Account) Debtors() []string {
	out := make([]string, 0, len(a.penalties))
	for uid := range a.penalties { //berth:unordered sorted below
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// DropPenalty forgets a penalty, and reports whether there was one.
func (a *Account) DropPenalty(uid string) bool {
	requests, owes := a.penalties[uid]
	for _, q := range requests {
		a.owe(q.Resource, -q.Amount)
	}
	delete(a.penalties, uid)
	return owes
}

// SettlePenalty counts a penalty as usage of now, after the usage before it, and reports whether there was one. usage is that without the
// workload, as for Sample.
func (a *Account) SettlePenalty(r *Rates, now workload.Instant, usage []Used, uid string) bool {
	requests := a.penalties[uid]
	if !a.DropPenalty(uid) {
		return false
	}
	a.Sample(r, now, usage)
	a.Consumed = merge(a.Consumed, r.shares(requests), func(was, is float64) float64 { return was + is })
	return true
}

// shares returns what a penalty for requests counts.
func (r *Rates) shares(requests []Request) []Used {
	alpha := r.Alpha(r.Interval)
	out := make([]Used, 0, len(requests))
	for _, q := range requests {
		out = append(out, Used{q.Resource, alpha * In(q.Resource, q.Amount)})
	}
	return out
}

// owe adds to the sum of the penalties. It is exact: an amount that was added can be taken off.
func (a *Account) owe(name string, amount resource.Amount) {
	i, found := slices.BinarySearchFunc(a.owed, name, func(q Request, name string) int { return strings.Compare(q.Resource, name) })
	if !found {
		a.owed = slices.Insert(a.owed, i, Request{Resource: name})
	}
	if a.owed[i].Amount += amount; a.owed[i].Amount == 0 {
		a.owed = slices.Delete(a.owed, i, i+1)
	}
}

// Value is what orders LocalQueues: the weighted sum of what is consumed and owed, divided by the weight of the LocalQueue. Without a
// weight above 0 it is infinite, whatever was consumed.
func (a *Account) Value(r *Rates, weight float64) float64 {
	if weight <= 0 {
		return math.Inf(1)
	}
	sum := 0.0
	for _, u := range a.Consumed {
		sum += r.weight(u.Resource) * u.Amount
	}
	if len(a.owed) > 0 {
		alpha, owed := r.Alpha(r.Interval), 0.0
		for _, q := range a.owed {
			owed += r.weight(q.Resource) * In(q.Resource, q.Amount)
		}
		sum += alpha * owed
	}
	return sum / weight
}

// Usage is the past usage of a LocalQueue, to be shown. It is immutable.
type Usage struct {
	Consumed []Used // by resource, without zeros
	At       workload.Instant
	// Value orders the LocalQueues of a ClusterQueue, the lowest first: with weights and pending penalties.
	Value     float64
	Penalties int // workloads that are admitted and not counted yet
}

// Memory is the past usage of all LocalQueues as plain data.
type Memory struct {
	Sampled, Clock workload.Instant `json:",omitempty"`
	// Accounts begin with the ones in line for their next sample, in that order.
	Accounts []AccountMemory `json:",omitempty"`
}

// AccountMemory is the past usage of a LocalQueue. Last is the time from which its next sample is due, and Seeded that of the status with
// which its account begins.
type AccountMemory struct {
	Namespace, Name string
	At              workload.Instant `json:",omitempty"`
	Last            workload.Instant `json:",omitempty"`
	Queued          bool             `json:",omitempty"`
	Seeded          workload.Instant `json:",omitempty"`
	Consumed        []Used           `json:",omitempty"`
	Penalties       []PenaltyMemory  `json:",omitempty"`
}

// PenaltyMemory is the penalty of a workload.
type PenaltyMemory struct {
	UID      string
	Requests []Request
}
