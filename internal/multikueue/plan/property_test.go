package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// worker is a simulated cluster with at most one copy and one job.
type worker struct {
	name      string
	connected bool
	slow      bool // not connected only because an answer is late
	// busy is an abandoned step that still runs: until it ends the cluster counts as unreachable, for this Workload only.
	busy *plan.Step
	// asked is true while the creation of the job is not answered. The cluster is slow then.
	asked bool
	// untried is true between a restart of the manager and the end of its first attempt to connect.
	untried  bool
	lost     time.Time
	remote   *kueue.Workload
	job      bool // exists
	stopping bool // its pods still exist
	// skew is how far its clock is ahead of the manager's.
	skew time.Duration
	// full is true if the copy fits only by preemption.
	full bool
	// alone is true if no controller there integrates the kind: the job ignores its Workload, and may end at any time.
	alone, over bool
}

// clock is the time on a worker.
func (h *hub) clock(w *worker) metav1.Time { return metav1.NewTime(h.now.Add(w.skew)) }

// runs reports whether pods of the job may run there.
func (w *worker) runs() bool {
	return w.job && (w.stopping || (w.alone && !w.over) || (w.remote != nil && lifecycle.IsAdmitted(w.remote) && !lifecycle.IsEvicted(w.remote) && !lifecycle.IsFinished(w.remote)))
}

// hub is a simulated manager with its worker clusters and one Workload.
type hub struct {
	t       *rapid.T
	cfg     *plan.Config
	rules   lifecycle.Rules
	world   lifecycle.World
	now     time.Time
	local   *kueue.Workload // nil once it is gone
	last    *kueue.Workload
	active  bool // as in the status of the local job
	workers []*worker
	rule    string // of the last pass
	failing int    // the step of the next pass that fails; negative for none
	late    bool   // clusters may answer late
	// behind is the Workload of a stale cache, nil if the cache is current.
	behind *kueue.Workload
	alone  bool // no worker cluster integrates the kind
}

var errInjected = errors.New("injected")

func newHub(t *rapid.T, mode plan.Mode) *hub {
	h := &hub{t: t, cfg: config(), now: t0.Time, failing: -1}
	h.cfg.Mode = mode
	h.rules = lifecycle.Rules{}
	cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{
		AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "mk"}},
	}}}
	h.world = lifecycle.World{LocalQueue: &kueue.LocalQueue{}, ClusterQueue: cq}
	h.local = reserved()
	h.late = rapid.Bool().Draw(t, "workers may be late")
	h.alone = rapid.Bool().Draw(t, "nothing there knows the kind")
	if rapid.Bool().Draw(t, "orchestrated") {
		h.cfg.Orchestrated, h.cfg.PreemptionTimeout = true, 2*time.Minute
	}
	for _, name := range []string{"w1", "w2", "w3"}[:rapid.IntRange(1, 3).Draw(t, "workers")] {
		h.workers = append(h.workers, &worker{
			name: name, connected: true, alone: h.alone, full: h.cfg.Orchestrated && rapid.Bool().Draw(t, name+" is full"),
			skew: rapid.SampledFrom([]time.Duration{0, -24 * time.Hour, -40 * time.Second, 40 * time.Second, time.Hour}).Draw(t, "clock of "+name),
		})
	}
	return h
}

func (h *hub) metaNow() metav1.Time { return metav1.NewTime(h.now) }

func (h *hub) worker(name string) *worker {
	return h.workers[slices.IndexFunc(h.workers, func(w *worker) bool { return w.name == name })]
}

// pass observes, decides and carries out, up to the failing step.
func (h *hub) pass() {
	o := &plan.Observed{Local: h.local, Check: "mk", Now: h.metaNow(), Job: plan.JobFacts{Kind: "Job", Adapter: true, Managed: true, Active: h.active, Alone: h.alone}}
	if h.local == nil {
		o.Local, o.Gone = h.last, true
	}
	if h.behind != nil {
		if rapid.Bool().Draw(h.t, "the cache is behind") {
			o.Local, o.Gone = h.behind, false
		} else {
			h.behind = nil
		}
	}
	o.Clusters = h.clusters()
	decided := plan.Decide(h.cfg, o)
	h.rule = text(o, decided)
	failed := false
	for i, s := range decided.Steps {
		blocked := failed && s.Do != plan.RemoveCopy
		if blocked {
			continue
		}
		err := errInjected
		switch {
		case i == h.failing:
		case h.dawdles(s):
			err = nil // its result is lost
		case h.asksInVain(s): // whether the job was created is unknown
		default:
			err = h.carryOut(s)
		}
		failed = failed || (err != nil && s.Blocks)
	}
	if h.failing < 0 && h.local != nil {
		h.onlyOne("after the pass of rule " + decided.Rule)
	}
	if h.failing < 0 && h.local != nil && h.behind == nil {
		h.quotaIsDispatched(o.Local)
		h.tells(decided.Rule, o)
	}
	h.failing = -1
}

// dawdles starts an independent step that is abandoned: see runIndependent in the controller.
func (h *hub) dawdles(s plan.Step) bool {
	if !h.late || s.Blocks || len(s.Events) > 0 || (s.Do != plan.CreateCopy && s.Do != plan.RemoveCopy) {
		return false
	}
	w := h.worker(s.Cluster)
	if !w.connected || w.busy != nil || !rapid.Bool().Draw(h.t, s.Cluster+" is late") {
		return false
	}
	w.busy = &s
	return true
}

// asksInVain asks a cluster to create the job, and gets no answer: see createJob in the controller.
func (h *hub) asksInVain(s plan.Step) bool {
	if !h.late || s.Do != plan.SyncJob {
		return false
	}
	w := h.worker(s.Cluster)
	if !w.connected || w.job || !rapid.Bool().Draw(h.t, s.Cluster+" does not answer") {
		return false
	}
	h.onlyHere(w)
	w.asked, w.connected, w.slow, w.lost = true, false, true, h.now
	return true
}

// restart kills the manager and starts another one, which is not connected to any cluster. Requests on
// their way are carried out, or are not.
func (h *hub) restart() {
	h.behind = nil
	for _, w := range h.workers {
		h.connect(w, rapid.Bool().Draw(h.t, "it was not created on "+w.name))
		w.busy, w.connected, w.untried, w.slow, w.lost = nil, false, true, false, h.now
	}
}

// connect connects a cluster. A creation of the job that it had not answered was carried out, or fails.
func (h *hub) connect(w *worker, fails bool) {
	w.connected, w.untried = true, false
	if w.asked && !fails {
		w.job, w.over = true, false
	}
	w.asked = false
}

// onlyHere is an invariant: the job is not created on a cluster while another one has it, or may be creating it.
func (h *hub) onlyHere(w *worker) {
	for _, other := range h.workers {
		chosen := other.untried && other.job && slices.Contains(h.local.Status.NominatedClusterNames, other.name)
		if other != w && ((other.connected && other.job) || other.asked || chosen) {
			h.t.Fatalf("the job is created on %s while it is on %s, or may be", w.name, other.name)
		}
	}
}

// catchUp ends the abandoned step of a cluster. A failed step has no effect.
func (h *hub) catchUp(w *worker, fails bool) {
	if s := w.busy; s != nil && w.connected {
		w.busy = nil
		if !fails {
			_ = h.carryOut(*s) // its result is lost
		}
	}
}

// clusters returns the clusters as the manager observes them.
func (h *hub) clusters() []plan.Cluster {
	var out []plan.Cluster
	for _, w := range h.workers {
		c := plan.Cluster{Name: w.name, Listed: true, Connected: w.connected && w.busy == nil, LostSince: w.lost, Slow: !w.connected && w.slow, Untried: w.untried}
		c.HasJob = c.Slow && (w.job || w.asked)
		if w.connected && w.busy != nil {
			c.LostSince, c.Busy, c.HasJob = h.now, true, w.job
		}
		if c.Connected {
			c.Copy, c.HasJob = w.remote, w.job
		}
		if h.alone && c.Connected && w.job && w.over {
			c.JobIsOver = &plan.JobEnd{Success: true, Message: "done"}
		}
		out = append(out, c)
	}
	return out
}

// onlyOne is an invariant: at most one reachable cluster runs the job.
func (h *hub) onlyOne(when string) {
	var running []string
	for _, w := range h.workers {
		if w.connected && w.runs() && !w.stopping {
			running = append(running, w.name)
		}
	}
	if len(running) > 1 {
		h.t.Fatalf("%s the job runs on %v", when, running)
	}
}

// quotaIsDispatched is an invariant: a Workload that was observed without a reservation has no copy on a reachable cluster.
func (h *hub) quotaIsDispatched(seen *kueue.Workload) {
	if lifecycle.IsReserved(seen) && !lifecycle.IsFinished(seen) {
		return
	}
	for _, w := range h.workers {
		if w.connected && w.busy == nil && (w.remote != nil || (w.job && !w.stopping)) {
			h.t.Fatalf("%s holds the workload, which has no quota here: %s", w.name, conditionsOf(h.local))
		}
	}
}

// tells is an invariant: the check of a Workload that has waited for long has a reason for every cluster.
func (h *hub) tells(rule string, o *plan.Observed) {
	q := lifecycle.Condition(h.local, kueue.WorkloadQuotaReserved)
	if rule != "9" || q == nil || h.now.Sub(q.LastTransitionTime.Time) < 30*time.Second {
		return
	}
	for _, c := range o.Clusters {
		if c.Untried {
			return // the messages of before the restart stay
		}
	}
	for _, c := range o.Clusters {
		if message := h.local.Status.AdmissionChecks[0].Message; !strings.Contains(message, c.Name+": ") {
			h.t.Fatalf("the check does not say why the workload waits on %s: %q", c.Name, message)
		}
	}
}

func (h *hub) carryOut(s plan.Step) error {
	if s.Cluster != "" && !h.worker(s.Cluster).connected {
		return fmt.Errorf("%s is down", s.Cluster)
	}
	switch s.Do {
	case plan.RemoveCopy:
		w := h.worker(s.Cluster)
		h.notForNothing(w)
		w.stopping = w.job
		w.remote = nil
	case plan.CreateCopy:
		w := h.worker(s.Cluster)
		if w.remote != nil {
			return errors.New("exists already") // the removal failed
		}
		w.remote = s.Workload.DeepCopy()
		w.remote.CreationTimestamp = h.clock(w)
	case plan.UpdateCopy, plan.UpdateCopyStatus:
		h.oneGate(s)
		h.worker(s.Cluster).remote = s.Workload.DeepCopy()
	case plan.SyncJob:
		w := h.worker(s.Cluster)
		if !w.job {
			h.onlyHere(w)
			w.job, w.over = true, false
		} else if !w.stopping {
			h.active = w.runs()
		}
	case plan.MirrorJob:
		h.active = h.worker(s.Cluster).runs()
	case plan.QuietJob:
		for _, w := range h.workers {
			if w.connected && w.runs() {
				h.t.Fatalf("quota is given back while the job runs on %s", w.name)
			}
		}
		h.active = false
	case plan.EndJob:
		switch w := h.worker(s.Cluster); {
		case !h.alone:
			return errors.New("ends a job that its worker ends")
		case w.job:
			w.stopping = true
		default:
			w.remote = nil
		}
	case plan.Annotate:
		if h.behind != nil {
			return errors.New("conflict")
		}
		h.local = s.Workload.DeepCopy()
	case plan.WriteStatus:
		return h.writeStatus(s.Workload)
	}
	return nil
}

// notForNothing is an invariant: a running job is not removed from its cluster while its Workload may run there, even if the cluster name is
// not written yet, or another cluster has admitted its copy since. A job whose copy users of its cluster deleted has no quota there, until a
// new copy is admitted.
func (h *hub) notForNothing(w *worker) {
	if h.local == nil || !w.runs() || w.stopping || lifecycle.IsFinished(h.local) || lifecycle.IsEvicted(h.local) || !lifecycle.IsReserved(h.local) {
		return
	}
	if w.remote == nil || !lifecycle.IsAdmitted(w.remote) {
		return
	}
	elsewhere := slices.ContainsFunc(h.workers, func(other *worker) bool { return other != w && other.connected && other.job })
	chosen := h.local.Status.ClusterName == w.name || slices.Contains(h.local.Status.NominatedClusterNames, w.name)
	if chosen && !elsewhere && h.local.Status.AdmissionChecks[0].State == kueue.CheckStatePending {
		h.t.Fatalf("the job is taken from %s, which admitted it: %s", w.name, conditionsOf(h.local))
	}
}

// oneGate is an invariant: no gate is opened shortly after another one, even of an unreachable cluster, or while a nominated cluster that is not
// lost has room.
func (h *hub) oneGate(s plan.Step) {
	if !isOpen(s.Workload) || isOpen(h.worker(s.Cluster).remote) {
		return
	}
	for _, w := range h.workers {
		if w.remote == nil {
			continue
		}
		known := w.connected && w.busy == nil
		expected := (w.busy != nil || w.slow) && slices.Contains(h.local.Status.NominatedClusterNames, w.name)
		switch {
		case (known || expected) && lifecycle.IsReserved(w.remote) && !lifecycle.IsEvicted(w.remote): // an evicted one is removed
			h.t.Fatalf("%s may preempt while %s has room", s.Cluster, w.name)
		case isOpen(w.remote) && h.now.Sub(w.remote.Status.PreemptionGates[0].LastTransitionTime.Time) < h.cfg.PreemptionTimeout:
			h.t.Fatalf("%s may preempt %s after %s", s.Cluster, h.now.Sub(w.remote.Status.PreemptionGates[0].LastTransitionTime.Time), w.name)
		}
	}
}

// isOpen reports whether a copy may preempt others.
func isOpen(w *kueue.Workload) bool {
	return w != nil && len(w.Status.PreemptionGates) > 0 && w.Status.PreemptionGates[0].Position == kueue.PreemptionGateOpen
}

// writeStatus applies the API server's rules about clusterName.
func (h *hub) writeStatus(w *kueue.Workload) error {
	if h.behind != nil {
		return errors.New("conflict")
	}
	was, is := &h.local.Status, &w.Status
	if is.ClusterName != "" && len(is.NominatedClusterNames) > 0 {
		h.t.Fatalf("clusterName %s beside nominations %v", is.ClusterName, is.NominatedClusterNames)
	}
	if is.ClusterName != "" && was.ClusterName == "" && !slices.Contains(was.NominatedClusterNames, is.ClusterName) {
		return errors.New("not nominated")
	}
	if was.ClusterName != "" && is.ClusterName != "" && was.ClusterName != is.ClusterName {
		h.t.Fatal("clusterName changes")
	}
	h.local = w.DeepCopy()
	return nil
}

// runControllers runs the local controllers: lifecycle, the release of the job framework, the scheduler.
func (h *hub) runControllers() {
	if h.local == nil {
		return
	}
	todo := h.rules.Follow(h.local, h.world, h.metaNow())
	if todo.Deactivate {
		h.local.Spec.Active = new(false)
	}
	m := lifecycle.Machine{}
	if lifecycle.IsEvicted(h.local) && lifecycle.IsReserved(h.local) && !h.active {
		m.Release(h.local, false, h.metaNow())
	}
	if !lifecycle.IsReserved(h.local) && !lifecycle.IsFinished(h.local) && lifecycle.IsActive(h.local) && !lifecycle.IsRequeueBlocked(h.local) {
		if rapid.Bool().Draw(h.t, "nominated with the reservation") {
			h.local.Status.NominatedClusterNames = h.cfg.NominateAtOnce(h.local, h.clusters())
		}
		m.Reserve(h.local, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main"}}}, []kueue.AdmissionCheckReference{"mk"}, h.metaNow())
	}
}

// unseen writes the Workload as another controller; the manager's cache may be stale afterwards.
func (h *hub) unseen(write func()) {
	was := h.local.DeepCopy()
	if write(); h.behind == nil {
		h.behind = was
	}
}

// move runs one step of a cluster's own controllers.
func (h *hub) move(w *worker, what int) {
	if w.stopping {
		w.job, w.stopping = w.remote != nil && w.job && what > 3, what > 3
		return
	}
	if w.remote == nil || lifecycle.IsFinished(w.remote) {
		return
	}
	m, now := lifecycle.Machine{}, h.clock(w)
	switch target := lifecycle.Condition(w.remote, kueue.WorkloadDeactivationTarget); {
	case target != nil && target.Status == metav1.ConditionTrue:
		w.remote.Spec.Active = new(false)
		m.Deactivate(w.remote, now)
	case lifecycle.IsEvicted(w.remote) && lifecycle.IsReserved(w.remote):
		if !h.alone { // otherwise no controller reports the end of its pods
			m.Release(w.remote, false, now)
		}
	case what == 0 && lifecycle.IsAdmitted(w.remote):
		m.Evict(w.remote, kueue.ReasonPreempted, "", "by the worker", now)
	case what == 5 && lifecycle.IsActive(w.remote): // by a user or a check there
		w.remote.Spec.Active = new(false)
		m.Deactivate(w.remote, now)
	case what == 1 && w.runs() && h.alone:
		w.over = true
	case what == 1 && w.runs():
		m.Finish(w.remote, kueue.ReasonSucceeded, "done", now)
	case !lifecycle.IsReserved(w.remote) && lifecycle.IsActive(w.remote):
		m.Requeue(w.remote, kueue.ReasonBackoffFinished, "", now)
		if len(w.remote.Spec.PreemptionGates) != len(w.remote.Status.PreemptionGates) {
			w.remote.Status.PreemptionGates = []kueue.PreemptionGateState{{
				Name: w.remote.Spec.PreemptionGates[0].Name, Position: kueue.PreemptionGateClosed, LastTransitionTime: now,
			}}
		}
		if w.full && !isOpen(w.remote) {
			m.BlockOnPreemptionGates(w.remote, "it would have to preempt others", now)
			return
		}
		m.Reserve(w.remote, &kueue.Admission{ClusterQueue: "r", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main"}}}, nil, now)
	}
}

// collect collects orphans on all reachable clusters.
func (h *hub) collect() {
	for _, w := range h.workers {
		if !w.connected {
			continue
		}
		var copies []string
		jobs := map[string]string{}
		if w.remote != nil {
			copies = append(copies, "a")
		}
		if w.job {
			jobs["job"] = "a"
		}
		lostCopies, lostJobs := orphans(copies, jobs, func(string) bool { return h.local != nil })
		if len(lostCopies) > 0 {
			w.remote, w.job = nil, false
		}
		if len(lostJobs) > 0 {
			w.job = false
		}
	}
}

// chaos is one random event.
func (h *hub) chaos() {
	w := rapid.SampledFrom(h.workers).Draw(h.t, "worker")
	switch rapid.IntRange(0, 14).Draw(h.t, "event") {
	case 0, 1, 2:
		h.pass()
	case 3:
		h.failing = rapid.IntRange(0, 3).Draw(h.t, "failing")
		h.pass()
	case 4, 5:
		h.move(w, rapid.IntRange(0, 5).Draw(h.t, "move"))
	case 6:
		if w.untried && rapid.Bool().Draw(h.t, "the attempt fails") {
			w.untried = false
			return
		}
		if !w.connected {
			h.connect(w, rapid.Bool().Draw(h.t, "it was not created"))
			return
		}
		w.connected, w.slow, w.lost = false, rapid.Bool().Draw(h.t, "slow"), h.now
	case 7, 8:
		h.unseen(h.runControllers)
	case 9:
		h.now = h.now.Add(time.Duration(rapid.IntRange(1, 100).Draw(h.t, "seconds")) * time.Second)
	case 10:
		if h.local != nil && lifecycle.IsReserved(h.local) && rapid.IntRange(0, 3).Draw(h.t, "preempt") == 0 {
			h.unseen(func() { lifecycle.Machine{}.Preempt(h.local, kueue.ReasonInClusterQueue, "", h.metaNow()) })
		}
	case 11:
		h.collect()
	case 12:
		h.catchUp(w, rapid.Bool().Draw(h.t, "fails"))
	case 13:
		h.vandalize(w, rapid.IntRange(0, 2).Draw(h.t, "deleted there"))
	case 14:
		h.restart()
	}
}

// vandalize deletes the copy or the job of a cluster, as its users may. Its integration may finish a copy without a job.
func (h *hub) vandalize(w *worker, what int) {
	switch {
	case what == 0:
		w.remote = nil
	case w.job:
		w.job, w.stopping = false, false
		if what == 2 && !h.alone && w.remote != nil {
			lifecycle.Machine{}.Finish(w.remote, kueue.ReasonOwnerNotFound, "its job is gone", h.clock(w))
		}
	}
}

// TestProperty runs random schedules. A job never runs on two reachable clusters, a Workload without a reservation has no copies, a pending
// Workload has reasons, and one cluster at a time may preempt for it, with any clocks. Without further faults the job finishes, and then no
// object remains on any cluster.
func TestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHub(t, rapid.SampledFrom([]plan.Mode{plan.AllAtOnce, plan.Incremental}).Draw(t, "mode"))
		for range rapid.IntRange(1, 80).Draw(t, "length") {
			h.chaos()
		}
		h.late, h.behind = false, nil
		deleted := rapid.Bool().Draw(t, "deleted")
		if deleted {
			h.last, h.local = h.local, nil
			h.pass()
		}
		for _, w := range h.workers {
			h.connect(w, false)
			h.catchUp(w, false)
		}
		if !deleted {
			h.calm()
		}
		for range 5 {
			h.pass()
			h.collect()
			for _, w := range h.workers {
				h.move(w, 2)
			}
		}
		for _, w := range h.workers {
			if w.remote != nil || w.job {
				t.Fatalf("%s still holds something: %v, job %v", w.name, w.remote != nil, w.job)
			}
		}
	})
}

// calm runs without faults until the Workload is finished.
func (h *hub) calm() {
	for range 200 {
		if lifecycle.IsFinished(h.local) {
			return
		}
		h.now = h.now.Add(10 * time.Second)
		h.runControllers()
		h.pass()
		for _, w := range h.workers {
			h.move(w, 2)
			if w.runs() && h.local.Status.ClusterName == w.name && h.active {
				h.move(w, 1)
			}
		}
	}
	for _, w := range h.workers {
		h.t.Logf("%s: job %v, stopping %v, copy %v", w.name, w.job, w.stopping, conditionsOf(w.remote))
	}
	h.t.Fatalf("the job never ends: rule %s, %s, clusterName %q, nominated %v", h.rule, conditionsOf(h.local), h.local.Status.ClusterName, h.local.Status.NominatedClusterNames)
}

// conditionsOf summarizes a Workload.
func conditionsOf(w *kueue.Workload) string {
	if w == nil {
		return "none"
	}
	out := fmt.Sprint("active ", lifecycle.IsActive(w))
	for _, c := range w.Status.Conditions {
		out += fmt.Sprintf(" %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	for _, c := range w.Status.AdmissionChecks {
		out += fmt.Sprintf(" %s=%s", c.Name, c.State)
	}
	return out
}

// orphans returns the names of the objects that the collector removes: copies whose Workload is deleted or terminating, and jobs without a
// Workload on either side. exists reports whether a Workload exists on the manager and is not terminating.
func orphans(copies []string, jobs map[string]string, exists func(name string) bool) (lostCopies, lostJobs []string) {
	for _, name := range copies {
		if !exists(name) {
			lostCopies = append(lostCopies, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		if workload := jobs[name]; !exists(workload) && !slices.Contains(copies, workload) {
			lostJobs = append(lostJobs, name)
		}
	}
	slices.Sort(lostCopies)
	return lostCopies, lostJobs
}
