package controller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// skipFor is how long a Workload stays away from a cluster that it cannot be created on (spec: 40 §4.13.5).
const skipFor = 5 * time.Minute

// maxCreates is how often a creation is tried before that. Tries count that are apart by tryEvery at least: a worker that has just come back
// may refuse everything for a while.
const (
	maxCreates = 3
	tryEvery   = 10 * time.Second
)

// conflictFor is how long a Workload stays away from a cluster at first where its name is taken: whoever has it there may remove it soon.
const conflictFor = 15 * time.Second

// first is the first pause after a fault whose pauses double, and whether they do: after a copy was deactivated, since that may have been meant
// for the one copy, and where a name is taken. How often it happened then outlasts the pause.
func (e *entry) first() (pause time.Duration, doubles bool) {
	switch e.fault.Code {
	case plan.Deactivated:
		return tryEvery, true
	case plan.NameConflict:
		return conflictFor, true
	}
	return skipFor, false
}

// pause is how long a Workload stays away from a cluster.
func (e *entry) pause() time.Duration {
	pause, doubles := e.first()
	if !doubles {
		return pause
	}
	return min(pause<<min(e.count-1, 10), skipFor)
}

// faults remembers what went wrong with Workloads on clusters. After a restart everything is tried again.
type faults struct {
	now func() time.Time
	mu  sync.Mutex
	all map[types.UID]*record
}

// record is about one Workload.
type record struct {
	clusters map[string]*entry
	syncs    int // last looks that failed, and when one was counted last
	synced   time.Time
	told     time.Time
	warned   map[string]time.Time // when a warning was told last, by its code
	used     time.Time
	// specs counts writes of a copy, mismatches the copies that did not match their job.
	specs      specWrites
	mismatches int
	// remade are the jobs that were created again after they were deleted on a cluster, by cluster and name.
	remade map[string]remade
}

// remade is how often in a row a job was created again, and when last.
type remade struct {
	count int
	at    time.Time
}

// remakeAfter is how long a job that was deleted on its cluster waits until it is created there again: not at all the first time, then from
// tryEvery on twice as long each time, skipFor at most.
func (f *faults) remakeAfter(uid types.UID, cluster, name string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.record(uid).remade[cluster+"/"+name]
	since := f.now().Sub(last.at)
	if last.count == 0 || since > 2*skipFor {
		return 0
	}
	return max(0, min(tryEvery<<min(last.count-1, 10), skipFor)-since)
}

// remake notes that a job was created again.
func (f *faults) remake(uid types.UID, cluster, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.record(uid)
	if r.remade == nil {
		r.remade = map[string]remade{}
	}
	last := r.remade[cluster+"/"+name]
	if f.now().Sub(last.at) > 2*skipFor {
		last.count = 0
	}
	r.remade[cluster+"/"+name] = remade{last.count + 1, f.now()}
}

// entry is about one Workload on one cluster.
type entry struct {
	fault plan.Fault
	// seen is what the Workload, its MultiKueueConfig and its cluster were: one that changes is asked again.
	seen  string
	count int
	at    time.Time
	// counted is when it was counted last.
	counted time.Time
}

// place is a Workload on a cluster, as it was seen.
type place struct {
	uid           types.UID
	cluster, seen string
}

func newFaults(now func() time.Time) *faults {
	return &faults{now: now, all: map[types.UID]*record{}}
}

func (f *faults) record(uid types.UID) *record {
	r := f.all[uid]
	if r == nil {
		r = &record{clusters: map[string]*entry{}}
		f.all[uid] = r
		f.forgetOld()
	}
	r.used = f.now()
	return r
}

// forgetOld drops what nobody asked for in a long time.
func (f *faults) forgetOld() {
	for uid, r := range f.all {
		if f.now().Sub(r.used) > 2*skipFor && !r.used.IsZero() {
			delete(f.all, uid)
		}
	}
}

// note remembers a fault. Creations that fail count.
func (f *faults) note(at place, code, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.record(at.uid)
	e := r.clusters[at.cluster]
	if e == nil || e.fault.Code != code {
		e = &entry{}
		r.clusters[at.cluster] = e
	}
	e.at, e.seen = f.now(), at.seen
	if e.count == 0 || e.at.Sub(e.counted) >= tryEvery {
		e.count, e.counted = e.count+1, e.at
	}
	skip := code == plan.CreateRejected || code == plan.NameConflict || code == plan.Deactivated ||
		(code == plan.CreateFailed && e.count >= maxCreates)
	e.fault = plan.Fault{Code: code, Text: text, Skip: skip}
}

// failedAtEnd counts a last look at a finished job that failed. Those count that are apart by tryEvery: events bring more of them.
func (f *faults) failedAtEnd(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.record(uid)
	if now := f.now(); r.syncs == 0 || now.Sub(r.synced) >= tryEvery {
		r.syncs, r.synced = r.syncs+1, now
	}
}

// keep remembers a fault as it is.
func (f *faults) keep(at place, fault plan.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.record(at.uid).clusters[at.cluster]
	if e == nil {
		e = &entry{}
		f.all[at.uid].clusters[at.cluster] = e
	}
	e.fault, e.at, e.seen = fault, f.now(), at.seen
}

// wroteSpec counts a write of a copy for one state of its job.
func (f *faults) wroteSpec(uid types.UID, at specInput) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.record(uid)
	if r.specs.specInput != at {
		r.specs = specWrites{specInput: at}
	}
	r.specs.count++
}

// specsWritten is how often a copy was written in a row for one state of its job.
func (f *faults) specsWritten(uid types.UID, at specInput) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.all[uid]; r != nil && r.specs.specInput == at {
		return r.specs.count
	}
	return 0
}

// specSettled ends such a row: the copy is what it is to be.
func (f *faults) specSettled(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.all[uid]; r != nil {
		r.specs = specWrites{}
	}
}

// retried notes that a Workload is sent again: all clusters are asked again, but those that deactivate copies. outOfSync says that its copy did
// not match its job, which counts in a row.
func (f *faults) retried(uid types.UID, outOfSync bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.record(uid)
	maps.DeleteFunc(r.clusters, func(_ string, e *entry) bool { return e.fault.Code != plan.Deactivated })
	if r.mismatches++; !outOfSync {
		r.mismatches = 0
	}
}

// specInput is what a copy is written by: which one it is, and the generation of its job.
type specInput struct {
	cluster    string
	copied     types.UID
	generation int64
}

// specWrites are the writes of one copy in a row.
type specWrites struct {
	specInput
	count int
}

// copied notes that a copy could be created on a cluster. Whether its job can be is not known yet, if the name of that was taken.
func (f *faults) copied(uid types.UID, cluster string) {
	f.mu.Lock()
	r := f.all[uid]
	conflict := r != nil && r.clusters[cluster] != nil && r.clusters[cluster].fault.Code == plan.NameConflict
	f.mu.Unlock()
	if !conflict {
		f.clear(uid, cluster)
	}
}

// clear forgets the faults of a cluster, since something went well there.
func (f *faults) clear(uid types.UID, cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.all[uid]
	if r == nil {
		return
	}
	r.syncs = 0
	if e := r.clusters[cluster]; e != nil && e.fault.Code != plan.Deactivated { // that a copy can be made was never in doubt
		delete(r.clusters, cluster)
	}
}

// back forgets what went wrong on a cluster, which is connected anew: everything is tried there again.
func (f *faults) back(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.all {
		delete(r.clusters, cluster)
		if r.specs.cluster == cluster {
			r.specs = specWrites{}
		}
	}
}

// of is the fault of a Workload on a cluster, nil if there is none that counts still. seen is asked only if there may be one.
func (f *faults) of(uid types.UID, cluster string, seen func() string) *plan.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.all[uid]
	if r == nil || r.clusters[cluster] == nil {
		return nil
	}
	e := r.clusters[cluster]
	if e.fault.Code != plan.Deactivated && e.seen != seen() {
		delete(r.clusters, cluster)
		return nil
	}
	since := f.now().Sub(e.at)
	if _, doubles := e.first(); since > 2*skipFor || (!doubles && since > skipFor) {
		delete(r.clusters, cluster)
	}
	if since >= e.pause() {
		return nil
	}
	fault := e.fault
	if fault.Skip {
		fault.Until = e.at.Add(e.pause())
	}
	return &fault
}

// about is how often the last look at a finished job failed, when the message of the check was written, and how many copies in a row did not
// match their job.
func (f *faults) about(uid types.UID) (syncs int, told time.Time, mismatches int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.all[uid]; r != nil {
		return r.syncs, r.told, r.mismatches
	}
	return 0, time.Time{}, 0
}

func (f *faults) tell(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record(uid).told = f.now()
}

// warnings are those to be told now: one a minute of each code.
func (f *faults) warnings(uid types.UID, all []plan.Warning) (out []lifecycle.Event) {
	if len(all) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.record(uid)
	if r.warned == nil {
		r.warned = map[string]time.Time{}
	}
	for _, w := range all {
		if now := f.now(); now.Sub(r.warned[w.Code]) >= time.Minute {
			r.warned[w.Code] = now
			out = append(out, w.Event())
		}
	}
	return out
}

// forget drops everything about a Workload.
func (f *faults) forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, uid)
}
