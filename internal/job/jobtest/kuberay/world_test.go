package kuberay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
	"github.com/berth-project/berth/internal/job/kind/ray"
	"github.com/berth-project/berth/internal/job/kind/ray/plan"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// failer is a test of any kind.
type failer interface {
	Fatalf(format string, args ...any)
}

// world is one service with its actors: users, KubeRay, an engine with limited quota, and Berth, whose informers may be stale.
// Berth's decisions and the webhooks' rules are the real ones.
type world struct {
	t   failer
	ctx context.Context
	c   client.Client
	m   *kuberay.Memory // is c, without a real API server
	op  *kuberay.Operator
	rng *rand.Rand

	cfg              *job.Config
	service, cluster *job.Descriptor
	quota            int64  // processors
	away             string // the kind whose webhook is not served, at most one

	shown   map[string][]client.Object // by kind: the informers
	written map[types.UID]noted        // objects that were written since
	berth   bool                       // Berth is writing
	writes  []string                   // Berth's writes
	log     []string
	blind   bool // disables the checks
	checks  bool // Workloads with quota have to pass a check
	lags    bool // informers lag: a changed service may briefly get a second replacing slice before it observes the first
}

// noted is an object that was written over a version.
type noted struct {
	over   string
	object client.Object
}

const name = "llm"

var kinds = []string{"RayService", "RayCluster", "Pod", "Workload"}

func newWorld(t failer, hold string) *world {
	m, as := &kuberay.Memory{}, ray.Settings{Gating: true, GatedPods: hold == "GatedPods"}
	w := &world{
		t: t, ctx: context.Background(), c: m, m: m, rng: rand.New(rand.NewPCG(1, 2)),
		service: ray.Service(as), cluster: ray.Cluster(as), quota: 12, shown: map[string][]client.Object{}, written: map[types.UID]noted{},
	}
	w.cfg = &job.Config{
		ManagedNamespaces: labels.Everything(), Kinds: job.Kinds{w.service.GVK: true, w.cluster.GVK: true}, AssignQueueLabels: true,
		FinishOrphans: true, ElasticJobs: true,
	}
	w.op = &kuberay.Operator{Client: w.m, Namespace: "ns"}
	w.m.Admit, w.m.Changed = w.admission, w.check
	return w
}

// each visits the objects of a kind, which must not be changed.
func (w *world) each(kind string, do func(client.Object)) {
	switch {
	case w.m != nil:
		w.m.Each(kind, do)
	case kind == "Pod":
		var list corev1.PodList
		must(w, w.c.List(w.ctx, &list, client.InNamespace(w.op.Namespace)))
		for i := range list.Items {
			do(&list.Items[i])
		}
	case kind == "Workload":
		var list kueue.WorkloadList
		must(w, w.c.List(w.ctx, &list, client.InNamespace(w.op.Namespace)))
		for i := range list.Items {
			do(&list.Items[i])
		}
	default:
		for _, o := range w.op.Objects(w.ctx, kind) {
			do(&o)
		}
	}
}

func (w *world) now() metav1.Time {
	if w.m == nil {
		return metav1.Now()
	}
	return metav1.NewTime(time.Unix(int64(w.m.Version()), 0).UTC())
}

func (w *world) logf(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fail(format string, args ...any) {
	w.t.Fatalf("%s\n%s\nafter:\n%s", fmt.Sprintf(format, args...), w.describe(), strings.Join(w.log, "\n"))
}

// manifest is the service as a user writes it.
func manifest(workers int, cpu string) *unstructured.Unstructured {
	template := func(name, cpu string) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": name, "image": "ray:1", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}},
		}}}}
	}
	o := view.New(kuberay.GVK("RayService"))
	o.SetName(name)
	o.SetNamespace("ns")
	o.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	o.SetAnnotations(map[string]string{kueue.ElasticJobAnnotation: "true"})
	o.Object["spec"] = map[string]any{"rayClusterConfig": map[string]any{
		"headGroupSpec":    map[string]any{"template": template("head", "1")},
		"workerGroupSpecs": []any{group("workers", workers, template("workers", cpu))},
	}}
	return o
}

func group(name string, n int, template map[string]any) map[string]any {
	return map[string]any{"groupName": name, "replicas": int64(n), "minReplicas": int64(1), "maxReplicas": int64(9), "template": template}
}

// live are the slices that are not finished.
func (w *world) live() []*kueue.Workload {
	var all []*kueue.Workload
	w.each("Workload", func(o client.Object) { all = append(all, o.(*kueue.Workload)) })
	return chain.Live(all)
}

// kind is the charge of a pod: its group and its requests.
func kind(p *corev1.PodSpec) string {
	return p.Containers[0].Name + "@" + p.Containers[0].Resources.Requests.Cpu().String()
}

// granted counts the pods that may run, by kind: an admitted slice replaces the one that it names. cpu is the charge: of a slice
// that is not admitted yet its difference to the slice that it names.
func (w *world) granted() (byKind map[string]int32, cpu int64) {
	byKind = map[string]int32{}
	live := w.live()
	for _, x := range live {
		replaced := slices.ContainsFunc(live, func(y *kueue.Workload) bool {
			return lifecycle.IsReserved(y) && lifecycle.IsAdmitted(y) && chain.Replaces(y) == x.Name
		})
		switch {
		case !lifecycle.IsReserved(x) || replaced:
		case lifecycle.IsAdmitted(x):
			for i := range x.Spec.PodSets {
				byKind[kind(&x.Spec.PodSets[i].Template.Spec)] += chain.Granted(x, x.Spec.PodSets[i].Name)
			}
			cpu += charged(x)
		default:
			before := slices.IndexFunc(live, func(y *kueue.Workload) bool { return y.Name == chain.Replaces(x) && lifecycle.IsReserved(y) })
			if cpu += charged(x); before >= 0 {
				cpu -= min(charged(x), charged(live[before]))
			}
		}
	}
	return byKind, cpu
}

// charged is the quota that a slice holds, in processors.
func charged(x *kueue.Workload) (cpu int64) {
	for i := range x.Spec.PodSets {
		p := &x.Spec.PodSets[i]
		cpu += int64(chain.Granted(x, p.Name)) * p.Template.Spec.Containers[0].Resources.Requests.Cpu().Value()
	}
	return cpu
}

// check checks the invariant: no more pods may run than have quota.
func (w *world) check() {
	if w.blind || w.get() == nil {
		return // remains of a deleted service have no Workload
	}
	if live := w.live(); len(live) > 2 && !w.lags {
		w.fail("%d slices are live", len(live))
	}
	granted, _ := w.granted()
	for k, n := range w.running() { //berth:unordered a test
		if n > granted[k] {
			w.fail("%d pods of %s may run, and %d are admitted", n, k, granted[k])
		}
	}
}

// running counts the pods that may run, by kind.
func (w *world) running() map[string]int32 {
	runs := map[string]int32{}
	w.each("Pod", func(o client.Object) {
		if p := o.(*corev1.Pod); !podset.HasGate(p.Spec.SchedulingGates) && p.Status.Phase != corev1.PodFailed {
			runs[kind(&p.Spec)]++
		}
	})
	return runs
}

// get is the current service, nil if there is none.
func (w *world) get() *unstructured.Unstructured {
	var out *unstructured.Unstructured
	w.each("RayService", func(o client.Object) { out = o.(*unstructured.Unstructured) })
	return out
}

// sync updates the informer of a kind.
func (w *world) sync(kind string) {
	var list []client.Object
	w.each(kind, func(o client.Object) { list = append(list, o) })
	w.shown[kind] = list
}

// restart starts a new Berth, with current informers.
func (w *world) restart() {
	w.written = map[types.UID]noted{}
	w.see()
}

func (w *world) see() {
	for _, k := range kinds {
		w.sync(k)
	}
}

// newest is an object from the informer, or its written version (internal/job/controller does the same).
func newest[T client.Object](w *world, shown T, kept map[types.UID]noted) T {
	n, ok := w.written[shown.GetUID()]
	if !ok || n.over != shown.GetResourceVersion() {
		return shown.DeepCopyObject().(T)
	}
	kept[shown.GetUID()] = n
	return n.object.DeepCopyObject().(T)
}

// observe is Berth's observation.
func (w *world) observe() *job.Observed {
	o := &job.Observed{
		Verdict: job.Verdict{Mode: job.Managed}, Now: w.now(),
		Flavors: job.Flavors{"f": &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "f"}}}},
	}
	var uid types.UID
	for _, s := range w.shown["RayService"] {
		o.Job, uid = s.DeepCopyObject().(job.Object), s.GetUID()
	}
	kept := map[types.UID]noted{}
	chains := map[string]bool{}
	for _, x := range w.shown["Workload"] {
		wl := newest(w, x.(*kueue.Workload), kept)
		o.Workloads = append(o.Workloads, wl)
		chains[chain.Chain(wl)] = true
	}
	decide.SortByAge(o.Workloads)
	if o.Job == nil {
		live := w.get()
		if live == nil || len(o.Workloads) == 0 {
			return o
		}
		o.Job, uid = live.DeepCopy(), live.GetUID()
	}
	controllers := map[types.UID]bool{}
	for _, c := range w.shown["RayCluster"] {
		if ref := metav1.GetControllerOf(c); ref != nil && ref.UID == uid {
			controllers[c.GetUID()] = true
			o.Children = append(o.Children, newest(w, c.(*unstructured.Unstructured), kept))
		}
	}
	for _, p := range w.shown["Pod"] {
		if ref := metav1.GetControllerOf(p); ref != nil {
			o.Pods = append(o.Pods, newest(w, p.(*corev1.Pod), kept))
		}
	}
	w.written = kept
	return o
}

// reconcile is one pass of Berth. It reports whether it tried to write.
func (w *world) reconcile() bool {
	o := w.observe()
	a := decide.Next(w.cfg, w.service, o)
	if a.Verb <= job.Stall {
		return false
	}
	w.judge(o, &a)
	w.berth = true
	err := w.write(&a)
	w.berth = false
	line := w.action(&a)
	if err != nil {
		line += ": " + err.Error()
	} else {
		w.writes = append(w.writes, line)
	}
	w.logf("  berth: %s", line)
	return true
}

// judge checks that Berth may make a decision.
func (w *world) judge(o *job.Observed, a *job.Action) {
	switch a.Verb {
	case job.PatchJob:
		was, is := o.Job.(*unstructured.Unstructured), a.Job.(*unstructured.Unstructured)
		deleted := slices.ContainsFunc(o.Workloads, func(x *kueue.Workload) bool { return x.DeletionTimestamp != nil })
		if view.Bool(is.Object, "spec", "suspend") && !view.Bool(was.Object, "spec", "suspend") && chain.Granting(o.Workloads) != nil && !deleted {
			w.fail("Berth stops a service that is admitted")
		}
	case job.PatchChildren:
		for _, m := range a.Children {
			if c, ok := m.(*unstructured.Unstructured); ok && view.Bool(c.Object, "spec", "suspend") && c.GetAnnotations()[plan.UngatedAnnotation] != plan.Reheld {
				at := slices.IndexFunc(o.Children, func(x job.Object) bool { return x.GetUID() == c.GetUID() })
				if !view.Bool(o.Children[at].(*unstructured.Unstructured).Object, "spec", "suspend") {
					w.fail("Berth holds cluster %s again", c.GetName())
				}
			}
		}
	case job.DeleteChildren:
		for _, m := range a.Children {
			if m.GetLabels()[kueue.PodSetLabel] != "" {
				w.fail("Berth deletes pod %s, which it let go", m.GetName())
			}
		}
	case job.WriteStatus:
		if x := chain.Granting(o.Workloads); x != nil && x.UID == a.Workload.UID && x.DeletionTimestamp == nil && !w.mayEnd(o, a.Workload) {
			w.fail("Berth ends the slice by which the service runs: %s", state(a.Workload))
		}
	case job.CreateWorkload:
		if len(a.Workload.Spec.PodSets) > 18 {
			w.fail("a workload of %d pod sets", len(a.Workload.Spec.PodSets))
		}
	default:
	}
}

// mayEnd reports whether a write to an admitted slice leaves it admitted, or another replaces it, or there is no service.
func (w *world) mayEnd(o *job.Observed, next *kueue.Workload) bool {
	over := lifecycle.Condition(next, kueue.WorkloadFinished)
	return (lifecycle.IsReserved(next) && (over == nil || over.Reason == kueue.ReasonOwnerNotFound)) || slices.ContainsFunc(o.Workloads, func(y *kueue.Workload) bool {
		return chain.Replaces(y) == next.Name && lifecycle.IsReserved(y) && lifecycle.IsAdmitted(y)
	})
}

func (w *world) action(a *job.Action) string {
	switch a.Verb {
	case job.CreateWorkload, job.UpdateWorkload, job.WriteStatus:
		return fmt.Sprintf("%s %s %s", map[job.Verb]string{job.CreateWorkload: "create", job.UpdateWorkload: "update", job.WriteStatus: "status"}[a.Verb], a.Workload.Name, state(a.Workload))
	case job.PatchJob:
		return fmt.Sprintf("service, suspend %v", view.Bool(a.Job.(*unstructured.Unstructured).Object, "spec", "suspend"))
	case job.PatchJobStatus:
		return fmt.Sprintf("status of the service, and delete %s", a.Children[0].GetName())
	default:
	}
	var names []string
	for _, m := range a.Children {
		names = append(names, m.GetName())
	}
	return fmt.Sprintf("%s of %v", map[job.Verb]string{job.PatchChildren: "patch", job.DeleteChildren: "delete"}[a.Verb], names)
}

func (w *world) write(a *job.Action) error {
	switch a.Verb {
	case job.CreateWorkload:
		return w.c.Create(w.ctx, a.Workload)
	case job.UpdateWorkload:
		over := a.Workload.ResourceVersion
		err := w.c.Update(w.ctx, a.Workload)
		if err == nil {
			w.written[a.Workload.UID] = noted{over, a.Workload}
		}
		return err
	case job.WriteStatus:
		return w.c.Status().Update(w.ctx, a.Workload)
	case job.PatchJob:
		return w.c.Update(w.ctx, a.Job)
	case job.PatchJobStatus:
		err := w.c.Status().Update(w.ctx, a.Job)
		for _, m := range a.Children {
			if err != nil || w.rng.IntN(4) == 0 { // it may die between the two
				return err
			}
			uid := m.GetUID()
			err = client.IgnoreNotFound(w.c.Delete(w.ctx, m, client.Preconditions{UID: &uid}))
		}
		return err
	case job.PatchChildren, job.DeleteChildren:
		for _, m := range a.Children {
			over, err := m.GetResourceVersion(), error(nil)
			if a.Verb == job.DeleteChildren {
				uid := m.GetUID()
				if err = client.IgnoreNotFound(w.c.Delete(w.ctx, m, client.Preconditions{UID: &uid, ResourceVersion: &over})); err == nil {
					m.SetDeletionTimestamp(new(metav1.Now()))
				}
			} else {
				err = w.c.Update(w.ctx, m)
			}
			if err != nil {
				return err
			}
			w.written[m.GetUID()] = noted{over, m}
		}
		return nil
	default:
		return fmt.Errorf("an action %d", a.Verb)
	}
}

// state is a Workload in a line.
func state(x *kueue.Workload) string {
	var out []string
	for i := range x.Spec.PodSets {
		out = append(out, fmt.Sprintf("%s:%d", x.Spec.PodSets[i].Name, x.Spec.PodSets[i].Count))
	}
	switch c := lifecycle.Condition(x, kueue.WorkloadFinished); {
	case c != nil:
		out = append(out, c.Reason)
	case lifecycle.IsEvicted(x):
		out = append(out, "evicted")
	case lifecycle.IsAdmitted(x):
		out = append(out, "admitted")
	}
	if lifecycle.IsReserved(x) {
		out = append(out, "reserved")
	}
	return strings.Join(out, " ")
}

func (w *world) describe() string {
	var out []string
	out = append(out, fmt.Sprintf("quota %d", w.quota))
	w.each("RayService", func(o client.Object) {
		s := o.(*unstructured.Unstructured).Object
		out = append(out, fmt.Sprintf("service: suspend %v, status %v, goal %s", view.Get(s, "spec", "suspend"), s["status"], kuberay.HashOf(view.Map(s, "spec", "rayClusterConfig"))))
	})
	w.each("RayCluster", func(o client.Object) {
		c := o.(*unstructured.Unstructured)
		out = append(out, fmt.Sprintf("cluster %s: suspend %v, deleted %v, state %v, hash %s", c.GetName(), view.Get(c.Object, "spec", "suspend"),
			c.GetDeletionTimestamp() != nil, view.Get(c.Object, "status", "state"), c.GetAnnotations()[kuberay.HashAnnotation]))
	})
	w.each("Pod", func(o client.Object) {
		p := o.(*corev1.Pod)
		out = append(out, fmt.Sprintf("pod %s: %s, gated %v, set %q, deleted %v", p.Name, kind(&p.Spec), podset.HasGate(p.Spec.SchedulingGates), p.Labels[kueue.PodSetLabel], p.DeletionTimestamp != nil))
	})
	w.each("Workload", func(o client.Object) {
		x := o.(*kueue.Workload)
		out = append(out, fmt.Sprintf("workload %s (for %q): %s", x.Name, chain.Replaces(x), state(x)))
	})
	return strings.Join(out, "\n")
}

// admission is the webhooks.
func (w *world) admission(old, object client.Object) error {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if wl, ok := object.(*kueue.Workload); ok {
		w.shrinks(old, wl)
		return nil
	}
	if _, ok := object.(*corev1.Pod); ok {
		kind = "Pod"
	}
	if kind == w.away {
		return nil
	}
	switch kind {
	case "RayService":
		in := &job.Setting{Config: w.cfg, Mode: job.Managed}
		if old == nil {
			w.service.Suspend(object.(job.Object))
			w.service.Default(object.(job.Object), true, in)
			return nil
		}
		in.Workloads = w.live()
		_, errs := w.service.Guard.Check(object.(job.Object), old.(job.Object), in)
		return errs.ToAggregate()
	case "RayCluster":
		in, ok := w.dependents(object)
		switch {
		case !ok:
			return nil
		case old == nil:
			w.cluster.Default(object.(job.Object), false, in)
			return nil
		}
		_, errs := w.cluster.Guard.Check(object.(job.Object), old.(job.Object), in)
		return errs.ToAggregate()
	case "Pod":
		return w.admitPod(old, object.(*corev1.Pod))
	}
	return nil
}

// shrinks is a rule of the webhook of Workloads: with quota, counts do not grow.
func (w *world) shrinks(old client.Object, now *kueue.Workload) {
	was, ok := old.(*kueue.Workload)
	if !ok || was == nil || !lifecycle.IsReserved(was) || lifecycle.IsFinished(was) {
		return
	}
	if len(was.Spec.PodSets) != len(now.Spec.PodSets) {
		w.fail("the pod sets of a workload with quota change: %s, then %s", state(was), state(now))
	}
	for i := range was.Spec.PodSets {
		if now.Spec.PodSets[i].Count > was.Spec.PodSets[i].Count || now.Spec.PodSets[i].Name != was.Spec.PodSets[i].Name {
			w.fail("a workload with quota grows: %s, then %s", state(was), state(now))
		}
	}
}

// dependents is the current setting of an object of the service.
func (w *world) dependents(object client.Object) (*job.Setting, bool) {
	svc := w.get()
	if ref := metav1.GetControllerOf(object); ref == nil || svc == nil || ref.UID != svc.GetUID() {
		return nil, false
	}
	return w.setting(svc), true
}

func (w *world) setting(svc *unstructured.Unstructured) *job.Setting {
	in := &job.Setting{Config: w.cfg, Mode: job.Follows, Ancestor: &job.Owner{GVK: w.service.GVK, Object: svc}, Workloads: w.live()}
	w.each("RayCluster", func(o client.Object) { in.Children = append(in.Children, o.(job.Object)) })
	w.each("Pod", func(o client.Object) { in.Pods = append(in.Pods, o.(*corev1.Pod)) })
	return in
}

func (w *world) admitPod(old client.Object, pod *corev1.Pod) error {
	svc := w.get()
	if svc == nil {
		return nil
	}
	if old == nil {
		if !podset.HasGate(pod.Spec.SchedulingGates) {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, podset.ElasticGate)
		}
		return nil
	}
	was := old.(*corev1.Pod)
	if podset.HasGate(was.Spec.SchedulingGates) && !podset.HasGate(pod.Spec.SchedulingGates) && !w.service.ManagedChildren.Upgrades.MayRun(svc.DeepCopy(), was, w.setting(svc)) {
		return fmt.Errorf("pod %s waits for quota", pod.Name)
	}
	return nil
}

// admit makes the engine admit waiting slices, oldest first, as far as quota permits, and reports whether it admitted one.
func (w *world) admit() bool {
	did := false
	for _, x := range w.live() { // a deactivated slice needs a user's reactivation
		if lifecycle.IsEvicted(x) && !lifecycle.IsReserved(x) && lifecycle.IsActive(x) && lifecycle.IsRequeueBlocked(x) {
			w.transition(x, func(x *kueue.Workload) bool { return w.cfg.Lifecycle.Requeue(x, "Reactivated", "", metav1.Now()) })
		}
	}
	for _, x := range w.live() {
		if lifecycle.IsReserved(x) || !lifecycle.IsActive(x) || lifecycle.IsRequeueBlocked(x) || x.DeletionTimestamp != nil {
			continue
		}
		need := w.asks(x)
		for _, y := range w.live() {
			if y.Name == chain.Replaces(x) && lifecycle.IsReserved(y) && !lifecycle.IsEvicted(y) {
				need = max(0, need-charged(y))
			}
		}
		if _, used := w.granted(); used+need > w.quota {
			continue
		}
		next := x.DeepCopy()
		a := &kueue.Admission{ClusterQueue: "cq"}
		for _, s := range x.Spec.PodSets {
			a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
				Name: s.Name, Count: new(s.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "f"},
				ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(s.Count), resource.DecimalSI)},
			})
		}
		var checks []kueue.AdmissionCheckReference
		if w.checks {
			checks = append(checks, "check")
		}
		w.cfg.Lifecycle.Reserve(next, a, checks, w.now())
		w.logf("engine admits %s", next.Name)
		if w.c.Status().Update(w.ctx, next) == nil {
			did = true
		}
	}
	return did
}

func (w *world) asks(x *kueue.Workload) (cpu int64) {
	for i := range x.Spec.PodSets {
		cpu += int64(x.Spec.PodSets[i].Count) * x.Spec.PodSets[i].Template.Spec.Containers[0].Resources.Requests.Cpu().Value()
	}
	return cpu
}

// checked sets the check of the n-th waiting slice, and applies its consequences.
func (w *world) checked(n int, state kueue.CheckState) {
	waiting := slices.DeleteFunc(w.live(), func(x *kueue.Workload) bool {
		return !lifecycle.IsReserved(x) || lifecycle.IsAdmitted(x) || lifecycle.IsEvicted(x)
	})
	if len(waiting) == 0 {
		return
	}
	x := waiting[n%len(waiting)].DeepCopy()
	if state == kueue.CheckStateRejected {
		x.Spec.Active = new(false)
		_ = w.c.Update(w.ctx, x)
	}
	w.transition(x, func(x *kueue.Workload) bool {
		x.Status.AdmissionChecks[0].State = state
		switch state {
		case kueue.CheckStateRetry:
			return w.cfg.Lifecycle.Evict(x, kueue.ReasonAdmissionCheck, "", "", w.now())
		case kueue.CheckStateRejected:
			return w.cfg.Lifecycle.Deactivate(x, w.now())
		default:
			return w.cfg.Lifecycle.SyncAdmitted(x, w.now())
		}
	})
}

// succeed finishes replaced slices, as the follower of Workloads does.
func (w *world) succeed() {
	live := w.live()
	for _, by := range live {
		for _, old := range live {
			if chain.MayFinish(by, old) {
				w.transition(old, func(x *kueue.Workload) bool {
					return w.cfg.Lifecycle.Finish(x, kueue.ReasonWorkloadSliceReplaced, "", metav1.Now())
				})
			}
		}
	}
}

// transition writes the status of a Workload.
func (w *world) transition(x *kueue.Workload, change func(*kueue.Workload) bool) {
	next := x.DeepCopy()
	if change(next) {
		_ = w.c.Status().Update(w.ctx, next)
	}
}
