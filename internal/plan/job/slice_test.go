package job_test

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
	"github.com/berth-project/berth/internal/plan/job"
	"github.com/berth-project/berth/internal/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/plan/slices"
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
	case job.UpdateWorkload, job.WriteStatus, job.WriteReclaimable:
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
		panic("an elastic job's workload is deleted: " + a.Workload.Name)
	case job.Nothing:
		return false
	default:
		panic(describeAction(a))
	}
	return true
}

func (e *elastic) settle() {
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

// charged is what the engine charges: a slice with quota takes the place of the one that it names.
func (e *elastic) charged() int32 {
	var n int32
	live := e.live()
	for _, w := range live {
		replaced := slices.ContainsFunc(live, func(x *kueue.Workload) bool { return lifecycle.IsReserved(x) && chain.Replaces(x) == w.Name })
		if lifecycle.IsReserved(w) && !replaced {
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

func TestSlices(t *testing.T) {
	started := func() *elastic {
		e := newElastic(4)
		e.settle()
		e.admit(e.of("w001"))
		e.settle()
		e.pods()
		return e
	}
	grown := func() *elastic {
		e := started()
		e.scale(6)
		e.settle()
		return e
	}
	tests := map[string]struct {
		do   func() *elastic
		want []string
	}{
		"first": {func() *elastic { return started() }, []string{"w001: 4 admitted", "runs true"}},
		"a job that waits is counted anew": {func() *elastic {
			e := newElastic(4)
			e.settle()
			e.scale(6)
			e.settle()
			return e
		}, []string{"w001: 6", "runs false"}},
		"grows":   {grown, []string{"w001: 4 admitted", "w002: 6 for w001", "runs true"}},
		"shrinks": {func() *elastic { e := started(); e.scale(3); e.settle(); return e }, []string{"w001: 3 admitted", "runs true"}},
		"grows, and is admitted": {func() *elastic {
			e := grown()
			e.admit(e.of("w002"))
			e.settle()
			return e
		}, []string{"w001: 4 WorkloadSliceReplaced", "w002: 6 admitted for w001", "runs true"}},
		"changes its mind while it grows": {func() *elastic {
			e := grown()
			e.scale(8)
			e.settle()
			e.scale(5)
			e.settle()
			return e
		}, []string{"w001: 4 admitted", "w002: 5 for w001", "runs true"}},
		"is preempted while it grows": {func() *elastic {
			e := grown()
			e.evict(e.of("w001"))
			e.settle()
			e.pods()
			e.settle()
			return e
		}, []string{"w001: 4 WorkloadSliceReplaced", "w002: 6 for w001", "runs false"}},
		"is deactivated while it grows": {func() *elastic {
			e := grown()
			e.of("w001").Spec.Active = new(false)
			e.cfg.Lifecycle.Deactivate(e.of("w001"), at(30))
			e.settle()
			e.pods()
			e.settle()
			return e
		}, []string{"w001: 6 evicted", "w002: 6 OutOfSync for w001", "runs false"}},
		"is preempted, and comes back as it is": {func() *elastic {
			e := started()
			e.evict(e.of("w001"))
			e.settle()
			e.pods()
			e.settle()
			e.admit(e.of("w001"))
			e.settle()
			return e
		}, []string{"w001: 4 admitted", "runs true"}},
		"two claim one place": {func() *elastic {
			e := grown()
			twin := e.of("w002").DeepCopy()
			twin.UID, twin.Name, twin.CreationTimestamp = "w003", twin.Name+"x", at(50)
			e.o.Workloads = append(e.o.Workloads, twin)
			e.settle()
			return e
		}, []string{"w001: 4 admitted", "w002: 6 for w001", "w003: 6 OutOfSync for w001", "runs true"}},
		"two claim one place, and the younger has it": {func() *elastic {
			e := grown()
			twin := e.of("w002").DeepCopy()
			twin.UID, twin.Name, twin.CreationTimestamp = "w003", twin.Name+"x", at(50)
			e.o.Workloads = append(e.o.Workloads, twin)
			e.admit(twin)
			e.settle()
			return e
		}, []string{"w001: 4 WorkloadSliceReplaced", "w002: 6 OutOfSync for w001", "w003: 6 admitted for w001", "runs true"}},
		"its workload is deleted": {func() *elastic {
			e := started()
			e.of("w001").DeletionTimestamp = new(at(40))
			e.settle()
			e.pods()
			e.settle()
			return e
		}, []string{"w002: 4", "runs false"}},
		"the one that waits is deleted": {func() *elastic {
			e := grown()
			e.of("w002").DeletionTimestamp = new(at(40))
			for range 2 { // the name is free once it is gone
				e.step()
			}
			e.settle()
			return e
		}, []string{"w001: 4 admitted", "w003: 6 for w001", "runs true"}},
		"finishes": {func() *elastic {
			e := grown()
			e.job.Status.Conditions = append(e.job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue})
			e.settle()
			return e
		}, []string{"w001: 4 Succeeded", "w002: 6 Succeeded for w001", "runs true"}},
		"cannot start": {func() *elastic {
			e := newElastic(4)
			e.job.Spec.Template.Spec.NodeSelector["pool"] = "a100"
			e.settle()
			e.admit(e.of("w001"))
			e.settle()
			return e
		}, []string{"w001: 4 FailedToStart", "runs false"}},
		"has the room of its first size while it grows": {func() *elastic {
			e := newElastic(4)
			e.settle()
			e.admit(e.of("w001"))
			e.scale(6)
			e.settle()
			return e
		}, []string{"w001: 4 admitted", "w002: 6 for w001", "runs true"}},
		"an earlier job of its name": {func() *elastic {
			e := started()
			e.job.UID = "uid-2"
			e.job.Spec.Suspend = new(true)
			e.settle()
			return e
		}, []string{"w001: 4 OwnerNotFound", "w002: 4", "runs false"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := tc.do()
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

// Quota that was given back is asked for again once the slice has shrunk: before, the webhook refuses that.
func TestShrunkSliceGivesBackLess(t *testing.T) {
	e := newElastic(6)
	e.cfg.ReclaimablePods = true
	e.job.Spec.Completions = new(int32(8))
	e.settle()
	e.admit(e.of("w001"))
	e.settle()
	e.pods()
	e.job.Status.Succeeded = 5
	e.settle()
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
	e.settle()
	if given() != 1 {
		t.Errorf("%d given back of 4 pods, of which 3 have something to do", given())
	}
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
			return !lifecycle.IsReserved(w) && lifecycle.IsActive(w) && w.DeletionTimestamp == nil && before < 0
		}
		t.Repeat(map[string]func(*rapid.T){
			"":      func(*rapid.T) { check() },
			"step":  func(*rapid.T) { e.step() },
			"step2": func(*rapid.T) { e.step(); check(); e.step() },
			"pods":  func(*rapid.T) { e.pods() },
			"scale": func(t *rapid.T) { e.scale(rapid.Int32Range(1, 6).Draw(t, "size")) },
			"admit": func(*rapid.T) { e.admit(one(admissible)) },
			"evict": func(*rapid.T) {
				e.evict(one(func(w *kueue.Workload) bool { return lifecycle.IsReserved(w) && !lifecycle.IsEvicted(w) }))
			},
			"delete": func(*rapid.T) {
				one(func(w *kueue.Workload) bool { return w.DeletionTimestamp == nil && len(w.Finalizers) > 0 }).DeletionTimestamp = new(at(60))
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
			e.settle()
			e.pods()
			for _, w := range e.live() {
				if admissible(w) {
					e.admit(w)
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
