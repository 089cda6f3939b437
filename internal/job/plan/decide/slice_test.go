package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// elastic is a small world around one elastic Job: its Workloads, and how many of its pods have no gate.
type elastic struct {
	*scene
	made int // Workloads, ever
	free int32
	log  []string
}

func newElastic(pods int32) *elastic {
	e := &elastic{scene: newScene()}
	e.cfg.ElasticJobs, e.cfg.Topology = true, true
	e.job.Annotations[kueue.ElasticJobAnnotation] = "true"
	e.job.Generation = 1
	e.job.Spec.Parallelism, e.job.Spec.Completions = &pods, nil
	e.d.Default(e.job, true, &job.Setting{Config: e.cfg})
	return e
}

// step makes the one write that Decide asks for, and tells whether there was one.
func (e *elastic) step() bool {
	a := e.decide()
	e.log = append(e.log, describeAction(a))
	e.judge(a)
	switch a.Verb {
	case job.CreateWorkload:
		for _, w := range e.o.Workloads {
			if w.Name == a.Workload.Name {
				panic("a second workload of the name " + w.Name)
			}
		}
		e.made++
		a.Workload.UID, a.Workload.CreationTimestamp = types.UID(fmt.Sprintf("w%03d", e.made)), at(e.made/2) // two in a second
		e.o.Workloads = append(e.o.Workloads, a.Workload)
	case job.UpdateWorkload, job.WriteStatus, job.WriteReclaimable, job.WritePodsReady:
		for i, w := range e.o.Workloads {
			if w.UID == a.Workload.UID {
				e.o.Workloads[i] = a.Workload
			}
		}
		e.o.Workloads = slices.DeleteFunc(e.o.Workloads, func(w *kueue.Workload) bool { return w.DeletionTimestamp != nil && len(w.Finalizers) == 0 })
	case job.PatchJob, job.PatchJobStatus:
		next := a.Job.(*batchv1.Job)
		if !equality.Semantic.DeepEqual(next.Spec, e.job.Spec) {
			next.Generation++
		}
		e.set(next)
		deleted := func(w *kueue.Workload) bool { return w.DeletionTimestamp != nil }
		if !e.running() && slices.ContainsFunc(e.live(), deleted) {
			e.pods() // that a deleted Workload does not wait for the pods is the same for any job
		}
	case job.DeleteWorkload:
		if lifecycle.IsAdmitted(a.Workload) || e.running() {
			panic("an elastic job's workload is deleted: " + a.Workload.Name)
		}
		e.o.Workloads = slices.DeleteFunc(e.o.Workloads, func(w *kueue.Workload) bool { return w.UID == a.Workload.UID })
	case job.Nothing:
		return false
	default:
		panic(describeAction(a))
	}
	return true
}

// judge holds a decision to what must never be done: to stop a job by whose slice pods may run, to end that slice before another is
// admitted in its place, or to let a job run on that is evicted.
func (e *elastic) judge(a job.Action) {
	kept := chain.Normalise(e.live())
	if h := kept.Selected; h != nil && h == kept.Head && lifecycle.IsEvicted(h) && e.running() && a.Workload != nil && a.Workload.UID != h.UID {
		panic("a job is evicted, and another slice is written before it is stopped: " + strings.Join(append(e.log, e.describe()...), "\n"))
	}
	w := chain.Granting(e.live())
	if w == nil || w.DeletionTimestamp != nil || e.d.IsStopping(e.job) {
		return
	}
	switch {
	case a.Verb == job.PatchJob && e.running() && e.d.IsSuspended(a.Job) && !slices.ContainsFunc(e.live(), e.replaces(w)):
		panic("a job is stopped that is admitted: " + strings.Join(append(e.log, e.describe()...), "\n"))
	case a.Verb == job.WriteStatus && a.Workload.UID == w.UID && !lifecycle.IsReserved(a.Workload),
		a.Verb == job.WriteStatus && a.Workload.UID == w.UID && lifecycle.Condition(a.Workload, kueue.WorkloadFinished) != nil &&
			lifecycle.Condition(a.Workload, kueue.WorkloadFinished).Reason == kueue.ReasonWorkloadSliceReplaced && !slices.ContainsFunc(e.live(), e.replaces(w)):
		panic("a slice is ended by which the job runs: " + strings.Join(append(e.log, e.describe()...), "\n"))
	}
}

// replaces reports whether another slice replaces w: it is admitted, though it may be evicted.
func (e *elastic) replaces(w *kueue.Workload) func(*kueue.Workload) bool {
	return func(x *kueue.Workload) bool {
		return chain.Replaces(x) == w.Name && lifecycle.IsReserved(x) && lifecycle.IsAdmitted(x)
	}
}

// reserve gives a slice quota, and a check to pass.
func (e *elastic) reserve(w *kueue.Workload) {
	e.cfg.Lifecycle.Reserve(w, &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(w.Spec.PodSets[0].Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "gpu"},
	}}}, []kueue.AdmissionCheckReference{"check"}, at(10))
}

// check sets the state of the check, and applies its consequences.
func (e *elastic) check(w *kueue.Workload, state kueue.CheckState) {
	w.Status.AdmissionChecks[0].State = state
	switch state {
	case kueue.CheckStateRetry:
		e.cfg.Lifecycle.Evict(w, kueue.ReasonAdmissionCheck, "", "try again", at(20))
	case kueue.CheckStateRejected:
		w.Spec.Active = new(false)
		e.cfg.Lifecycle.Deactivate(w, at(20))
	default:
		e.cfg.Lifecycle.SyncAdmitted(w, at(15))
	}
}

// again lets a slice back into its queue that failed.
func (e *elastic) again(w *kueue.Workload) {
	w.Spec.Active = nil
	e.cfg.Lifecycle.Requeue(w, "BackoffFinished", "", at(30))
}

func (e *elastic) runUntilStable() {
	for n := 0; e.step(); n++ {
		if n > 40 {
			panic("it never settles: " + strings.Join(e.log, "\n"))
		}
	}
}

func (e *elastic) live() []*kueue.Workload { return chain.Live(e.o.Workloads) }

func (e *elastic) running() bool { return e.job.Spec.Suspend != nil && !*e.job.Spec.Suspend }

// scale changes the size of the job. The Job controller takes pods away before anything else sees it.
func (e *elastic) scale(n int32) {
	if *e.job.Spec.Parallelism != n {
		e.job.Generation++
	}
	e.job.Spec.Parallelism = new(n)
	e.free = min(e.free, n)
}

// pods plays the Job controller and the ungater.
func (e *elastic) pods() {
	if !e.running() {
		e.free, e.job.Status.Active = 0, 0
		return
	}
	e.job.Status.Active, e.job.Status.StartTime = *e.job.Spec.Parallelism, new(at(1))
	if w := chain.Granting(e.o.Workloads); w != nil {
		e.free = max(e.free, min(chain.Granted(w, "main"), *e.job.Spec.Parallelism))
	}
}

// charged is the engine's charge for pods that may run: an admitted slice replaces the one that it names.
func (e *elastic) charged() int32 {
	var n int32
	for _, w := range e.live() {
		if lifecycle.IsReserved(w) && lifecycle.IsAdmitted(w) && !slices.ContainsFunc(e.live(), e.replaces(w)) {
			n += chain.Granted(w, "main")
		}
	}
	return n
}

func (e *elastic) describe() []string {
	var out []string
	for _, w := range e.o.Workloads {
		line := fmt.Sprintf("%s: %d", w.UID, w.Spec.PodSets[0].Count)
		switch c := lifecycle.Condition(w, kueue.WorkloadFinished); {
		case c != nil:
			line += " " + c.Reason
		case lifecycle.IsEvicted(w):
			line += " evicted"
		case lifecycle.IsAdmitted(w):
			line += " admitted"
		case lifecycle.IsReserved(w):
			line += " reserved"
		}
		if lifecycle.IsFinished(w) && len(w.Finalizers) > 0 {
			line += " held"
		}
		if before := chain.Replaces(w); before != "" {
			line += " for nobody"
			if at := slices.IndexFunc(e.o.Workloads, func(x *kueue.Workload) bool { return x.Name == before }); at >= 0 {
				line = strings.TrimSuffix(line, "nobody") + string(e.o.Workloads[at].UID)
			}
		}
		out = append(out, line)
	}
	return append(out, fmt.Sprintf("runs %v", e.running()))
}

func (e *elastic) of(uid types.UID) *kueue.Workload {
	return e.o.Workloads[slices.IndexFunc(e.o.Workloads, func(w *kueue.Workload) bool { return w.UID == uid })]
}

// step is something that happens to an elastic job.
type step func(*elastic)

func scale(n int32) step { return func(e *elastic) { e.scale(n) } }

func admit(uid types.UID) step { return func(e *elastic) { e.admit(e.of(uid)) } }

func reserve(uid types.UID) step { return func(e *elastic) { e.reserve(e.of(uid)) } }

func evict(uid types.UID) step { return func(e *elastic) { e.evict(e.of(uid)) } }

func check(uid types.UID, state kueue.CheckState) step {
	return func(e *elastic) { e.check(e.of(uid), state) }
}

func remove(uid types.UID) step {
	return func(e *elastic) { e.of(uid).DeletionTimestamp = new(at(40)) }
}

// atOnce makes several steps before the next reconcile.
func atOnce(steps ...step) step {
	return func(e *elastic) {
		for _, do := range steps {
			do(e)
		}
	}
}

// twin has another slice claim the place that w002 is to take.
func twin(e *elastic) {
	twin := e.of("w002").DeepCopy()
	twin.UID, twin.Name, twin.CreationTimestamp = "w003", twin.Name+"x", at(50)
	e.o.Workloads = append(e.o.Workloads, twin)
}

func TestSlices(t *testing.T) {
	const (
		retry, rejected, ready = kueue.CheckStateRetry, kueue.CheckStateRejected, kueue.CheckStateReady

		runs4     = "w001: 4 admitted"
		replaced4 = "w001: 4 WorkloadSliceReplaced"
		waits6    = "w002: 6 for w001"
		has6      = "w002: 6 admitted for w001"
		off6      = "w002: 6 OutOfSync for w001"
		evicted6  = "w002: 6 evicted for w001"
	)
	var (
		pods     step = (*elastic).pods
		resumed  step = func(e *elastic) { e.job.Spec.Suspend = new(false); e.pods() }
		gone     step = func(e *elastic) { e.step(); e.step() } // the name is free once it is gone
		started       = []step{admit("w001"), pods}
		grown         = append(slices.Clip(started), scale(6))
		reserved      = append(slices.Clip(grown), reserve("w002"))
	)
	tests := map[string]struct {
		from, do []step
		want     []string
	}{
		"first":                            {started, nil, []string{runs4, "runs true"}},
		"a job that waits is counted anew": {nil, []step{scale(6)}, []string{"w001: 6", "runs false"}},
		"is resumed by hand":               {nil, []step{resumed}, []string{"w001: 4", "runs false"}},
		"is resumed by hand, has quota":    {nil, []step{reserve("w001"), resumed}, []string{"w001: 4 reserved", "runs false"}},
		"grows":                            {grown, nil, []string{runs4, waits6, "runs true"}},
		"shrinks":                          {started, []step{scale(3)}, []string{"w001: 3 admitted", "runs true"}},
		"grows, and is admitted":           {grown, []step{admit("w002")}, []string{replaced4, has6, "runs true"}},
		"grows, and waits for a check":     {reserved, nil, []string{runs4, "w002: 6 reserved for w001", "runs true"}},
		"grows, and passes its check":      {reserved, []step{check("w002", ready)}, []string{replaced4, has6, "runs true"}},
		"grows, and its check says to try again": {reserved, []step{check("w002", retry), func(e *elastic) {
			if lifecycle.IsReserved(e.of("w002")) {
				panic("it has its quota still")
			}
		}}, []string{runs4, evicted6, "runs true"}},
		"grows, and passes its check at the second try": {reserved, []step{
			check("w002", retry), atOnce(func(e *elastic) { e.again(e.of("w002")) }, reserve("w002"), check("w002", ready)),
		}, []string{replaced4, has6, "runs true"}},
		"grows, and its check rejects it":                {reserved, []step{check("w002", rejected)}, []string{runs4, evicted6, "runs true"}},
		"is rejected, and wants less":                    {reserved, []step{check("w002", rejected), scale(5)}, []string{runs4, off6, "w003: 5 for w001", "runs true"}},
		"is rejected, and wants what it has":             {reserved, []step{check("w002", rejected), scale(4)}, []string{runs4, off6, "runs true"}},
		"grows while it waits for a check":               {reserved, []step{scale(8)}, []string{runs4, off6, "w003: 8 for w001", "runs true"}},
		"shrinks while it waits for a check":             {reserved, []step{scale(5)}, []string{runs4, "w002: 5 reserved for w001", "runs true"}},
		"is preempted while it waits for a check":        {reserved, []step{evict("w001"), pods}, []string{"w001: 6 evicted", off6, "runs false"}},
		"is preempted while it is tried again":           {reserved, []step{check("w002", retry), evict("w001"), pods}, []string{"w001: 6 evicted", off6, "runs false"}},
		"is preempted when it has just passed its check": {reserved, []step{atOnce(check("w002", ready), evict("w002")), pods}, []string{replaced4, evicted6, "runs false"}},
		"the one that waits for a check is deleted":      {reserved, []step{atOnce(remove("w002"), gone)}, []string{runs4, "w003: 6 for w001", "runs true"}},
		"the one before is deleted":                      {reserved, []step{remove("w001"), pods}, []string{"w003: 6", "runs false"}},
		"changes its mind while it grows":                {grown, []step{scale(8), scale(5)}, []string{runs4, "w002: 5 for w001", "runs true"}},
		"is preempted while it grows":                    {grown, []step{evict("w001"), pods}, []string{replaced4, waits6, "runs false"}},
		"is deactivated while it grows": {grown, []step{func(e *elastic) {
			e.of("w001").Spec.Active = new(false)
			e.cfg.Lifecycle.Deactivate(e.of("w001"), at(30))
		}, pods}, []string{"w001: 6 evicted", off6, "runs false"}},
		"is preempted, and comes back as it is":       {started, []step{evict("w001"), pods, admit("w001")}, []string{runs4, "runs true"}},
		"two claim one place":                         {grown, []step{twin}, []string{runs4, waits6, "w003: 6 OutOfSync for w001", "runs true"}},
		"two claim one place, and the younger has it": {grown, []step{atOnce(twin, admit("w003"))}, []string{replaced4, off6, "w003: 6 admitted for w001", "runs true"}},
		"its workload is deleted":                     {started, []step{remove("w001"), pods}, []string{"w002: 4", "runs false"}},
		"the one that waits is deleted":               {grown, []step{atOnce(remove("w002"), gone)}, []string{runs4, "w003: 6 for w001", "runs true"}},
		"finishes": {grown, []step{func(e *elastic) {
			e.job.Status.Conditions = append(e.job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue})
		}}, []string{"w001: 4 Succeeded", "w002: 6 Succeeded for w001", "runs true"}},
		"cannot start": {nil, []step{func(e *elastic) { e.job.Spec.Template.Spec.NodeSelector["pool"] = "a100" }, admit("w001")}, []string{"w001: 4 FailedToStart", "runs false"}},
		"has the room of its first size while it grows": {nil, []step{atOnce(admit("w001"), scale(6))}, []string{runs4, waits6, "runs true"}},
		"an earlier job of its name": {started, []step{func(e *elastic) {
			e.job.UID = "uid-2"
			e.job.Spec.Suspend = new(true)
		}}, []string{"w001: 4 OwnerNotFound", "w002: 4", "runs false"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := newElastic(4)
			e.runUntilStable()
			for _, do := range slices.Concat(tc.from, tc.do) {
				do(e)
				e.runUntilStable()
			}
			if diff := cmp.Diff(tc.want, e.describe()); diff != "" {
				t.Errorf("-want +got:\n%s\n%s", diff, strings.Join(e.log, "\n"))
			}
			for _, w := range e.o.Workloads {
				if w.Annotations[kueue.ElasticJobAnnotation] != "true" {
					t.Errorf("%s is not elastic", w.UID)
				}
			}
		})
	}
}

// TestSliceAsWritten: a slice that is created while the job runs has the pod sets that its user wrote, like the first one, without
// the values of the start. They stay so when it waits, is resized, admitted, and starts the job again.
func TestSliceAsWritten(t *testing.T) {
	e := newElastic(4)
	e.runUntilStable()
	written := e.of("w001").Spec.PodSets[0].DeepCopy()
	for what, do := range map[string][]step{
		"grows":                          {admit("w001"), (*elastic).pods, scale(6)},
		"grows, and again while waiting": {admit("w001"), (*elastic).pods, scale(6), scale(8)},
		"grows, and is admitted":         {admit("w001"), (*elastic).pods, scale(6), admit("w002")},
		"starts again by the larger one": {admit("w001"), (*elastic).pods, scale(6), admit("w002"), evict("w002"), (*elastic).pods, admit("w002")},
	} {
		t.Run(what, func(t *testing.T) {
			e := newElastic(4)
			e.runUntilStable()
			for _, do := range do {
				do(e)
				e.runUntilStable()
			}
			if template := &e.job.Spec.Template; !e.running() || len(template.Labels) == len(written.Template.Labels) || len(template.Spec.NodeSelector) == 0 {
				t.Fatalf("nothing was merged into the template: %+v", template)
			}
			got := e.of("w002").Spec.PodSets[0].DeepCopy()
			got.Count = written.Count
			if diff := cmp.Diff(written, got); diff != "" {
				t.Errorf("-written +slice:\n%s", diff)
			}
		})
	}
}

// Quota that was given back is asked for again once the slice has shrunk: before, the webhook refuses that.
func TestShrunkSliceGivesBackLess(t *testing.T) {
	e := newElastic(6)
	e.cfg.ReclaimablePods = true
	e.job.Spec.Completions = new(int32(8))
	e.runUntilStable()
	e.admit(e.of("w001"))
	e.runUntilStable()
	e.pods()
	e.job.Status.Succeeded = 5
	e.runUntilStable()
	given := func() int32 { return e.of("w001").Status.ReclaimablePods[0].Count }
	if given() != 3 {
		t.Fatalf("%d given back of 6 pods, of which 3 have something to do", given())
	}
	e.scale(4)
	for e.of("w001").Spec.PodSets[0].Count == 6 {
		if given() != 3 || !e.step() {
			t.Fatalf("%d given back before the slice shrank\n%s", given(), strings.Join(e.log, "\n"))
		}
	}
	e.runUntilStable()
	if given() != 1 {
		t.Errorf("%d given back of 4 pods, of which 3 have something to do", given())
	}
}

// TestSliceThatRunsIsKeptUp: while a larger slice waits, the one by which the job runs still learns that its pods are ready, so that
// it is not evicted for them, and which of them need no quota any more.
func TestSliceThatRunsIsKeptUp(t *testing.T) {
	e := newElastic(4)
	e.cfg.ReclaimablePods, e.cfg.WaitForPodsReady = true, true
	e.job.Spec.Completions = new(int32(9))
	for _, do := range []step{func(*elastic) {}, admit("w001"), (*elastic).pods, scale(6)} {
		do(e)
		e.runUntilStable()
	}
	expect := func(when, want string) {
		t.Helper()
		e.runUntilStable()
		var got []string
		for _, w := range e.live() {
			line := string(w.UID)
			if c := lifecycle.Condition(w, kueue.WorkloadPodsReady); c != nil {
				line += " ready " + string(c.Status)
			}
			for _, r := range w.Status.ReclaimablePods {
				line += fmt.Sprintf(" frees %d", r.Count)
			}
			got = append(got, line)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %s, want %s", when, strings.Join(got, ", "), want)
		}
	}
	expect("none is ready", "w001 ready False, w002")
	e.job.Status.Ready = new(int32(3))
	expect("three are ready", "w001 ready False, w002")
	e.job.Status.Ready = new(int32(4))
	expect("four are ready", "w001 ready True, w002")
	e.job.Status.Ready = new(int32(3))
	expect("one is ready no more", "w001 ready True, w002")
	e.job.Status.Ready, e.job.Status.Succeeded = new(int32(4)), 4
	expect("five are left to be done", "w001 ready True, w002 frees 1")
	e.job.Status.Ready, e.job.Status.Succeeded = new(int32(3)), 6
	expect("three are left to be done", "w001 ready True frees 1, w002 frees 3")
	e.scale(5)
	expect("it wants fewer", "w001 ready True frees 1, w002 frees 2")
}

// TestSlicesAtAnyTime: whatever happens in whatever order, with any of the writes still to come, the pods without a gate
// never are more than what is charged, no third slice is made, and at the end one slice is left and the job runs by it.
func TestSlicesAtAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newElastic(3)
		check := func() {
			if e.free > e.charged() {
				t.Fatalf("%d pods without a gate, and quota for %d\n%s\n%s", e.free, e.charged(), strings.Join(e.describe(), "\n"), strings.Join(e.log, "\n"))
			}
			if n := len(e.live()); n > 2 {
				t.Fatalf("%d live slices\n%s", n, strings.Join(e.describe(), "\n"))
			}
		}
		one := func(match func(*kueue.Workload) bool) *kueue.Workload {
			list := slices.DeleteFunc(e.live(), func(w *kueue.Workload) bool { return !match(w) })
			if len(list) == 0 {
				t.Skip()
			}
			return list[rapid.IntRange(0, len(list)-1).Draw(t, "which")]
		}
		admissible := func(w *kueue.Workload) bool {
			before := slices.IndexFunc(e.live(), func(x *kueue.Workload) bool {
				return x.Name == chain.Replaces(w) && lifecycle.IsEvicted(x) && lifecycle.IsReserved(x)
			})
			return !lifecycle.IsReserved(w) && lifecycle.IsActive(w) && w.DeletionTimestamp == nil && !lifecycle.IsRequeueBlocked(w) && before < 0
		}
		checked := func(w *kueue.Workload) bool {
			return lifecycle.IsReserved(w) && !lifecycle.IsAdmitted(w) && !lifecycle.IsEvicted(w) && len(w.Status.AdmissionChecks) > 0
		}
		t.Repeat(map[string]func(*rapid.T){
			"":        func(*rapid.T) { check() },
			"step":    func(*rapid.T) { e.step() },
			"step2":   func(*rapid.T) { e.step(); check(); e.step() },
			"pods":    func(*rapid.T) { e.pods() },
			"scale":   func(t *rapid.T) { e.scale(rapid.Int32Range(1, 6).Draw(t, "size")) },
			"admit":   func(*rapid.T) { e.admit(one(admissible)) },
			"reserve": func(*rapid.T) { e.reserve(one(admissible)) },
			"check": func(t *rapid.T) {
				states := []kueue.CheckState{kueue.CheckStateReady, kueue.CheckStateRetry, kueue.CheckStateRejected}
				e.check(one(checked), rapid.SampledFrom(states).Draw(t, "state"))
			},
			"again": func(*rapid.T) {
				e.again(one(func(w *kueue.Workload) bool { return !lifecycle.IsReserved(w) && lifecycle.IsEvicted(w) }))
			},
			"evict": func(*rapid.T) {
				e.evict(one(func(w *kueue.Workload) bool { return lifecycle.IsReserved(w) && !lifecycle.IsEvicted(w) }))
			},
			"delete": func(*rapid.T) {
				one(func(w *kueue.Workload) bool { return w.DeletionTimestamp == nil && len(w.Finalizers) > 0 }).DeletionTimestamp = new(at(60))
				if !e.running() {
					e.pods() // it was stopped before, and a deleted Workload does not wait for the pods either
				}
			},
			"user stops": func(*rapid.T) {
				if e.running() {
					e.job.Spec.Suspend = new(true)
					e.job.Generation++
					e.pods() // that pods outlive a stop is the same for any job
				}
			},
		})
		for range 12 { // quota for all
			e.runUntilStable()
			e.pods()
			for _, w := range e.live() {
				if lifecycle.IsEvicted(w) && !lifecycle.IsReserved(w) {
					e.again(w)
				}
				if admissible(w) {
					e.admit(w)
				}
				if checked(w) {
					e.check(w, kueue.CheckStateReady)
				}
			}
			check()
		}
		live := e.live()
		if len(live) != 1 || live[0].Spec.PodSets[0].Count != *e.job.Spec.Parallelism || !e.running() || e.free != *e.job.Spec.Parallelism {
			t.Fatalf("want one slice of %d and as many pods, got %d pods\n%s\n%s", *e.job.Spec.Parallelism, e.free, strings.Join(e.describe(), "\n"), strings.Join(e.log, "\n"))
		}
		for _, line := range e.describe() {
			if strings.Contains(line, "held") {
				t.Fatalf("a finished slice is not let go: %s", line)
			}
		}
	})
}
