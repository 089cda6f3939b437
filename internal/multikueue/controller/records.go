package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

const (
	// skipFor is how long a Workload avoids a worker cluster that cannot take it (spec: 40 §4.13.5).
	skipFor = 5 * time.Minute
	// conflictFor is the first pause where a name is taken, since its owner may delete that object soon.
	conflictFor = 15 * time.Second
	// Creations count if they are tryEvery apart: a worker cluster that just came back may refuse everything for a while.
	tryEvery   = 10 * time.Second
	maxCreates = 3
	// expiry ends unused records, and rows of equal events.
	expiry     = 2 * skipFor
	sweepEvery = time.Minute
)

// records is what the controller knows about Workloads beyond the API: which steps run, what failed, and which are deleted and not cleaned up.
// There is one record for each Workload UID, with a part for each worker cluster. A record ends when its Workload is finished (finished), when a
// deleted one is cleaned up (forget), or after expiry without a change. The part of a cluster ends when that is connected anew (reconnected).
// Running steps and a deleted Workload that is not cleaned up outlast all of these. A restart begins with none: everything is tried again.
type records struct {
	now   func() time.Time
	mu    sync.Mutex
	all   map[types.NamespacedName]*record
	swept time.Time
}

// record is about one Workload. deleted, and the steps of its clusters, outlast the UID.
type record struct {
	uid      types.UID
	changed  time.Time
	deleted  *kueue.Workload // as last seen, until it is cleaned up on all clusters
	clusters map[string]*clusterRecord
	facts
}

type facts struct {
	syncFailures int // attempts to copy the final status
	syncedAt     time.Time
	reportedAt   time.Time // when the message of the check was written
	mismatches   int       // copies in a row that did not match their job
	warnedAt     map[string]time.Time
}

type clusterRecord struct {
	step stepState
	clusterFacts
}

type clusterFacts struct {
	fault    faultRow
	specs    specWrites
	recreate map[string]recreations // by the name of the job
}

// stepState is whether a step runs, and whether its caller still waits for it.
type stepState int

const (
	idle stepState = iota
	awaited
	abandoned
)

// faultRow is a fault that occurred count times in a row. A change of its inputs ends it.
type faultRow struct {
	plan.Fault
	inputs        string
	count         int
	at, countedAt time.Time
}

type specInput struct {
	copied     types.UID
	generation int64
}

type specWrites struct {
	specInput
	count int
}

// recreations is how often in a row a job was created again after others deleted it, and when last.
type recreations struct {
	count int
	at    time.Time
}

func newRecords(now func() time.Time) *records {
	return &records{now: now, all: map[types.NamespacedName]*record{}}
}

// at returns the record of a name for a change. The caller holds the lock.
func (r *records) at(key types.NamespacedName) *record {
	now := r.now()
	if now.Sub(r.swept) >= sweepEvery {
		r.swept = now
		maps.DeleteFunc(r.all, func(_ types.NamespacedName, rec *record) bool {
			return now.Sub(rec.changed) > expiry && rec.deleted == nil && !rec.running()
		})
	}
	if r.all[key] == nil {
		r.all[key] = &record{clusters: map[string]*clusterRecord{}}
	}
	r.all[key].changed = now
	return r.all[key]
}

// change locks the records and returns that of a Workload for a change; unlock ends it.
func (r *records) change(wl *kueue.Workload) (rec *record, unlock func()) {
	r.mu.Lock()
	if rec = r.at(client.ObjectKeyFromObject(wl)); rec.uid != wl.UID {
		rec.begin(wl.UID)
	}
	return rec, r.mu.Unlock
}

// read locks the records and returns that of a Workload, an empty one if there is none.
func (r *records) read(wl *kueue.Workload) (rec *record, unlock func()) {
	r.mu.Lock()
	if rec = r.all[client.ObjectKeyFromObject(wl)]; rec == nil || rec.uid != wl.UID {
		rec = &record{clusters: map[string]*clusterRecord{}}
	}
	return rec, r.mu.Unlock
}

func (rec *record) on(cluster string) *clusterRecord {
	if rec.clusters[cluster] == nil {
		rec.clusters[cluster] = &clusterRecord{}
	}
	return rec.clusters[cluster]
}

func (rec *record) begin(uid types.UID) {
	rec.uid, rec.facts = uid, facts{}
	for _, c := range rec.clusters {
		c.clusterFacts = clusterFacts{}
	}
}

func (rec *record) running() bool {
	for _, c := range rec.clusters {
		if c.step != idle {
			return true
		}
	}
	return false
}

func (r *records) finished(wl *kueue.Workload) {
	rec, unlock := r.change(wl)
	defer unlock()
	rec.begin(wl.UID)
}

// forget drops the record of a deleted Workload that is cleaned up, unless a step still runs: then it is called again after that.
func (r *records) forget(wl *kueue.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(wl)
	if rec := r.all[key]; rec != nil && rec.deleted == wl && !rec.running() {
		delete(r.all, key)
	}
}

func (r *records) reconnected(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.all {
		if c := rec.clusters[cluster]; c != nil {
			c.fault, c.specs = faultRow{}, specWrites{}
		}
	}
}

func (r *records) deleted(last *kueue.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at(client.ObjectKeyFromObject(last)).deleted = last
}

func (r *records) lastSeen(key types.NamespacedName) *kueue.Workload {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.all[key]; rec != nil {
		return rec.deleted
	}
	return nil
}

// runStep runs a step on a cluster and waits for patience. If the step takes longer it is left to itself: runStep returns nil, the error of the
// step is lost, and over is called when it ends. Only one step of a Workload runs on a cluster: others return ErrStuck.
func (r *records) runStep(key types.NamespacedName, cluster string, patience time.Duration, do func() error, over func()) error {
	move := func(from, to stepState) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		c := r.at(key).on(cluster)
		if c.step != from {
			return false
		}
		c.step = to
		return true
	}
	if !move(idle, awaited) {
		return worker.ErrStuck
	}
	result := make(chan error, 1)
	go func() {
		err := do()
		if !move(awaited, idle) && move(abandoned, idle) {
			over()
		}
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		if move(awaited, abandoned) {
			return nil
		}
		return <-result
	}
}

func (r *records) stepRuns(key types.NamespacedName, cluster string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.all[key]
	return rec != nil && rec.clusters[cluster] != nil && rec.clusters[cluster].step != idle
}

// firstPause is the first pause after a fault, and whether it doubles: deactivation may have been meant for one copy only, and a name may become
// free.
func (f *faultRow) firstPause() (pause time.Duration, doubles bool) {
	switch f.Code {
	case plan.Deactivated:
		return tryEvery, true
	case plan.NameConflict:
		return conflictFor, true
	}
	return skipFor, false
}

func (f *faultRow) pause() time.Duration {
	pause, doubles := f.firstPause()
	if !doubles {
		return pause
	}
	return min(pause<<min(f.count-1, 10), skipFor)
}

// noteFault records a fault on a cluster, and skips clusters that cannot take the Workload. WriteFailed does not replace another fault, whose pauses
// would begin anew.
func (r *records) noteFault(wl *kueue.Workload, cluster, inputs string, fault plan.Fault) {
	rec, unlock := r.change(wl)
	defer unlock()
	f, now := &rec.on(cluster).fault, rec.changed
	if fault.Code == plan.WriteFailed && f.Code != "" && f.Code != fault.Code {
		return
	}
	if f.Code != fault.Code {
		*f = faultRow{}
	}
	if f.count == 0 || now.Sub(f.countedAt) >= tryEvery {
		f.count, f.countedAt = f.count+1, now
	}
	f.Fault, f.inputs, f.at = fault, inputs, now
	switch fault.Code {
	case plan.CreateRejected, plan.NameConflict, plan.Deactivated:
		f.Skip = true
	case plan.CreateFailed:
		f.Skip = f.count >= maxCreates
	}
}

// fault returns what is wrong with a Workload on a cluster, nil if nothing is. inputs is called only if there may be a fault.
func (r *records) fault(wl *kueue.Workload, cluster string, inputs func() string) *plan.Fault {
	rec, unlock := r.read(wl)
	defer unlock()
	c := rec.clusters[cluster]
	if c == nil || c.fault.Code == "" {
		return nil
	}
	f, since := c.fault, r.now().Sub(c.fault.at)
	if _, doubles := f.firstPause(); since > expiry || (!doubles && since > skipFor) || (f.Code != plan.Deactivated && f.inputs != inputs()) {
		c.fault = faultRow{}
		return nil
	}
	if since >= f.pause() {
		return nil
	}
	if f.Skip {
		f.Until = f.at.Add(f.pause())
	}
	return &f.Fault
}

// clearFault drops the fault of a cluster where a write succeeded, except one of the codes, which that does not disprove.
func (r *records) clearFault(wl *kueue.Workload, cluster string, except ...string) {
	rec, unlock := r.read(wl)
	defer unlock()
	rec.syncFailures = 0
	if c := rec.clusters[cluster]; c != nil && !slices.Contains(except, c.fault.Code) {
		c.fault = faultRow{}
	}
}

// clearWriteFault drops the fault of a cluster where a copy could not be changed or removed.
func (r *records) clearWriteFault(wl *kueue.Workload, cluster string) {
	rec, unlock := r.read(wl)
	defer unlock()
	if c := rec.clusters[cluster]; c != nil && c.fault.Code == plan.WriteFailed {
		c.fault = faultRow{}
	}
}

// retried ends a dispatch. The faults of all clusters are dropped, except deactivations of copies.
func (r *records) retried(wl *kueue.Workload, outOfSync bool) {
	rec, unlock := r.change(wl)
	defer unlock()
	for _, c := range rec.clusters {
		if c.fault.Code != plan.Deactivated {
			c.fault = faultRow{}
		}
	}
	if rec.mismatches++; !outOfSync {
		rec.mismatches = 0
	}
}

// finalSyncFailed counts failures to copy the final status that are tryEvery apart: every event causes an attempt.
func (r *records) finalSyncFailed(wl *kueue.Workload) {
	rec, unlock := r.change(wl)
	defer unlock()
	if rec.syncFailures == 0 || rec.changed.Sub(rec.syncedAt) >= tryEvery {
		rec.syncFailures, rec.syncedAt = rec.syncFailures+1, rec.changed
	}
}

func (r *records) reported(wl *kueue.Workload) {
	rec, unlock := r.change(wl)
	defer unlock()
	rec.reportedAt = rec.changed
}

func (r *records) about(wl *kueue.Workload) facts {
	rec, unlock := r.read(wl)
	defer unlock()
	return rec.facts
}

// warnings returns the events of the due warnings: one a minute for each code.
func (r *records) warnings(wl *kueue.Workload, all []plan.Warning) (due []lifecycle.Event) {
	if len(all) == 0 {
		return nil
	}
	rec, unlock := r.change(wl)
	defer unlock()
	if rec.warnedAt == nil {
		rec.warnedAt = map[string]time.Time{}
	}
	for _, w := range all {
		if rec.changed.Sub(rec.warnedAt[w.Code]) >= time.Minute {
			rec.warnedAt[w.Code] = rec.changed
			due = append(due, w.Event())
		}
	}
	return due
}

func (r *records) wroteSpec(wl *kueue.Workload, cluster string, in specInput) {
	rec, unlock := r.change(wl)
	defer unlock()
	specs := &rec.on(cluster).specs
	if specs.specInput != in {
		*specs = specWrites{specInput: in}
	}
	specs.count++
}

func (r *records) specsWritten(wl *kueue.Workload, cluster string, in specInput) int {
	rec, unlock := r.read(wl)
	defer unlock()
	if c := rec.clusters[cluster]; c != nil && c.specs.specInput == in {
		return c.specs.count
	}
	return 0
}

func (r *records) specInSync(wl *kueue.Workload, cluster string) {
	rec, unlock := r.read(wl)
	defer unlock()
	if c := rec.clusters[cluster]; c != nil {
		c.specs = specWrites{}
	}
}

func (r *records) recreated(wl *kueue.Workload, cluster, job string) {
	rec, unlock := r.change(wl)
	defer unlock()
	c := rec.on(cluster)
	if c.recreate == nil {
		c.recreate = map[string]recreations{}
	}
	last := c.recreate[job]
	if rec.changed.Sub(last.at) > expiry {
		last.count = 0
	}
	c.recreate[job] = recreations{last.count + 1, rec.changed}
}

// recreateAfter returns how long to wait before a job that others deleted on a cluster is created again: 0 the first time, then from tryEvery on
// twice as long each time, at most skipFor.
func (r *records) recreateAfter(wl *kueue.Workload, cluster, job string) time.Duration {
	rec, unlock := r.read(wl)
	defer unlock()
	c := rec.clusters[cluster]
	if c == nil {
		return 0
	}
	last := c.recreate[job]
	since := r.now().Sub(last.at)
	if last.count == 0 || since > expiry {
		return 0
	}
	return max(0, min(tryEvery<<min(last.count-1, 10), skipFor)-since)
}
