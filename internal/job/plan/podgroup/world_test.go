package podgroup_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	podkind "github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// world is a group, its Workload, and an API server of sorts: deleted objects stay while they have finalizers.
type world struct {
	cfg  *job.Config
	of   *job.Groups
	pods []*corev1.Pod
	w    *kueue.Workload
	now  metav1.Time
	log  []string
	uids int
	mode job.Mode // Undecided is Managed
	// keeps says of a member whether its write succeeds; nil: all do.
	keeps func(name string) bool
}

func newWorld() *world {
	return &world{
		cfg: &job.Config{AnnotationIdentifiers: true, ReclaimablePods: true, AdmissionGatedBy: true, WaitForPodsReady: true},
		of:  podkind.Descriptor().Groups, now: metav1.NewTime(time.Unix(1_800_000_000, 0)),
	}
}

// set sets a feature gate.
func (x *world) set(gate feature.Gate, on bool) {
	x.of = podkind.Descriptors(&options.Options{Gates: feature.Default().With(gate, on)})[0].Groups
}

func (x *world) tick() { x.now = metav1.NewTime(x.now.Add(time.Second)) }

// add makes gated members of the group g, given as name:role.
func (x *world) add(total int, members ...string) {
	for _, m := range members {
		x.tick()
		x.uids++
		name, role, _ := strings.Cut(m, ":")
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, UID: types.UID(fmt.Sprint("uid-", x.uids)), CreationTimestamp: x.now,
				Labels:      map[string]string{kueue.QueueNameLabel: "lq", kueue.ManagedLabel: "true", kueue.PodGroupNameLabel: "g"},
				Annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: fmt.Sprint(total), kueue.RoleHashAnnotation: role},
				Finalizers:  []string{kueue.ManagedFinalizer},
			},
			Spec: corev1.PodSpec{
				SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}},
				Containers: []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
				}}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
		x.pods = append(x.pods, pod)
	}
}

// each changes members.
func (x *world) each(change func(*corev1.Pod), names ...string) {
	for i, p := range x.pods {
		if len(names) == 0 || slices.Contains(names, p.Name) {
			x.pods[i] = p.DeepCopy()
			change(x.pods[i])
		}
	}
	x.collect()
}

// annotate returns a change for each.
func annotate(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

// schedule runs all open members, as the scheduler and the kubelets do.
func (x *world) schedule() {
	x.each(func(p *corev1.Pod) {
		if len(p.Spec.SchedulingGates) == 0 && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
			p.Spec.NodeName, p.Status.Phase = "node", corev1.PodRunning
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: x.now})
		}
	})
}

func (x *world) phase(phase corev1.PodPhase, names ...string) {
	x.tick()
	x.each(func(p *corev1.Pod) {
		p.Status.Phase = phase
		for i := range p.Status.Conditions {
			if p.Status.Conditions[i].Type == corev1.PodReady {
				p.Status.Conditions[i].Status, p.Status.Conditions[i].LastTransitionTime = corev1.ConditionFalse, x.now
			}
		}
	}, names...)
}

// remove deletes members, as a user would.
func (x *world) remove(names ...string) {
	x.tick()
	x.each(func(p *corev1.Pod) {
		if p.DeletionTimestamp == nil {
			p.DeletionTimestamp = new(x.now)
			p.DeletionGracePeriodSeconds = new(int64(30))
		}
	}, names...)
}

// collect deletes pods that are marked as deleted and have no finalizer, and ends marked pods without a node.
func (x *world) collect() {
	x.pods = slices.DeleteFunc(x.pods, func(p *corev1.Pod) bool {
		running := p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning
		return p.DeletionTimestamp != nil && len(p.Finalizers) == 0 && !running
	})
	if x.w != nil && x.w.DeletionTimestamp != nil && len(x.w.Finalizers) == 0 {
		x.w = nil
	}
}

func (x *world) observed() *job.Observed {
	o := &job.Observed{
		Now: x.now, Verdict: job.Verdict{Mode: job.Managed},
		Flavors: job.Flavors{"gpu": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "h100"}}}},
	}
	if x.mode != job.Undecided {
		o.Verdict.Mode = x.mode
	}
	if x.w != nil {
		o.Workloads = []*kueue.Workload{x.w}
	}
	var members []job.Object
	for _, p := range x.pods {
		members = append(members, p)
	}
	if len(members) > 0 {
		o.Job = x.of.Join("g", members, x.cfg, x.now.Time)
	}
	return o
}

// step makes one decision and its write, and reports whether there was one.
func (x *world) step() bool {
	x.tick()
	a := decide.Next(x.cfg, x.of.Jobs, x.observed())
	var names []string
	for _, m := range membersOf(a.Job) {
		if x.keeps == nil || x.keeps(m.GetName()) {
			names = append(names, m.GetName())
		}
	}
	slices.Sort(names)
	list := strings.Join(names, " ")
	written := func(what string) bool {
		for _, e := range a.Events {
			what += ", " + e.Reason
		}
		x.log = append(x.log, what)
		return true
	}
	switch a.Verb {
	case job.Nothing, job.Fail, job.Stall:
		line := fmt.Sprintf("waits: %v", a.Err)
		for _, e := range a.Events {
			line = "waits: " + e.Note
		}
		if (a.Err != nil || len(a.Events) > 0) && !slices.Contains(x.log, line) {
			x.log = append(x.log, line)
		}
		return false
	case job.CreateWorkload:
		x.w = a.Workload.DeepCopy()
		x.w.UID, x.w.CreationTimestamp = "w-uid", x.now
		return written("create " + describe(x.w))
	case job.UpdateWorkload:
		was := describe(x.w)
		held := len(x.w.Finalizers)
		x.w = a.Workload.DeepCopy()
		x.collect()
		switch {
		case x.w == nil || len(x.w.Finalizers) < held:
			return written("let the workload go")
		default:
			return written("update " + was + " to " + describe(x.w))
		}
	case job.DeleteWorkload:
		x.w.DeletionTimestamp = new(x.now)
		x.collect()
		return written("delete the workload")
	case job.WriteStatus, job.WriteReclaimable, job.WritePodsReady, job.WriteReplacements:
		before := conditions(x.w)
		x.w = a.Workload.DeepCopy()
		return written("status " + strings.Join(minus(conditions(x.w), before), " "))
	case job.PatchJob, job.PatchJobStatus:
		what := "patch "
		for _, m := range membersOf(a.Job) {
			at := slices.IndexFunc(x.pods, func(p *corev1.Pod) bool { return p.UID == m.GetUID() })
			if !slices.Contains(names, m.GetName()) {
				continue
			}
			next := m.(*corev1.Pod)
			switch was := x.pods[at]; {
			case len(next.Finalizers) < len(was.Finalizers):
				what = "let go "
			case len(next.Spec.SchedulingGates) < len(was.Spec.SchedulingGates):
				what = "open "
			case a.Verb == job.PatchJobStatus:
				what = "tell " + next.Status.Conditions[len(next.Status.Conditions)-1].Reason + " "
			}
			x.pods[at] = next
		}
		x.collect()
		return written(what + list)
	case job.DeleteJob:
		x.remove(names...)
		return written("delete " + list)
	case job.PatchChildren, job.DeleteChildren: // pods have no children
	}
	panic(fmt.Sprintf("unknown verb %d", a.Verb))
}

func membersOf(o job.Object) []job.Object {
	if o == nil {
		return nil
	}
	return o.(job.Composite).Members()
}

// runUntilStable reconciles until nothing is left to write, and returns the writes.
func (x *world) runUntilStable() []string {
	x.log = nil
	for n := 0; x.step(); n++ {
		if n > 50 {
			return append(x.log, "… and so on for ever")
		}
	}
	return x.log
}

func describe(w *kueue.Workload) string {
	var sets, owners []string
	for _, s := range w.Spec.PodSets {
		sets = append(sets, fmt.Sprintf("%s:%d", strings.ToUpper(string(s.Name)), s.Count))
	}
	for _, o := range w.OwnerReferences {
		owners = append(owners, o.Name)
	}
	return strings.Join(sets, " ") + " of " + strings.Join(owners, " ")
}

func conditions(w *kueue.Workload) []string {
	var out []string
	for _, c := range w.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	for _, r := range w.Status.ReclaimablePods {
		out = append(out, fmt.Sprintf("reclaim %s:%d", strings.ToUpper(string(r.Name)), r.Count))
	}
	return out
}

func minus(a, b []string) []string {
	return slices.DeleteFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// admit and evict do what the engine does.
func (x *world) admit() {
	x.tick()
	x.w = x.w.DeepCopy()
	a := &kueue.Admission{ClusterQueue: "cq"}
	for _, s := range x.w.Spec.PodSets {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: s.Name, Count: new(s.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "gpu"},
		})
	}
	x.cfg.Lifecycle.Reserve(x.w, a, nil, x.now)
}

func (x *world) evict() {
	x.tick()
	x.w = x.w.DeepCopy()
	x.cfg.Lifecycle.Preempt(x.w, kueue.ReasonInClusterQueue, "made room", x.now)
}

// running is a group of three that runs: a and b of role A, c of role B.
func running() *world {
	x := newWorld()
	x.cfg.WaitForPodsReady = false
	x.add(3, "a:A", "b:A", "c:B")
	x.runUntilStable()
	x.admit()
	x.runUntilStable()
	x.schedule()
	x.runUntilStable()
	return x
}

// open are the members that run or could.
func (x *world) open() []string {
	var out []string
	for _, p := range x.pods {
		if len(p.Spec.SchedulingGates) == 0 && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}

// held are the members with our finalizer.
func (x *world) held() []string {
	var out []string
	for _, p := range x.pods {
		if len(p.Finalizers) > 0 {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (x *world) finished() string {
	if c := lifecycle.Condition(x.w, kueue.WorkloadFinished); c != nil {
		return c.Reason
	}
	return ""
}
