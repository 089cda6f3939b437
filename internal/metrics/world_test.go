package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// world is a state, a cache and a recorder of the same objects.
type world struct {
	t        *testing.T
	state    *state.State
	store    cache.Store
	recorder *Recorder
	registry *prometheus.Registry
	version  int
}

func newWorld(t *testing.T, o Options) *world {
	t.Helper()
	core := cycle.Defaults()
	if o.FairSharing {
		core.Fair = &preempt.Fair{}
	}
	w := &world{t: t, state: state.New(state.Options{Options: core}), store: cache.NewStore(cache.MetaNamespaceKeyFunc), registry: prometheus.NewPedanticRegistry()}
	if o.Model == nil {
		o.Model = w.state.Publish
	}
	w.recorder = New(o)
	w.recorder.SetWorkloads(w.store)
	w.registry.MustRegister(w.recorder)
	w.state.Apply(state.SetNamespace{Name: "ns", Labels: nil})
	w.state.Apply(state.SetFlavor(convert.Flavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}, nil)))
	w.state.Apply(state.SetFlavor(convert.Flavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "g"}}, nil)))
	return w
}

// all enables every family, without custom labels.
func all() Options {
	on := map[string]bool{}
	for _, s := range switches {
		on[s] = s != "custom"
	}
	return optionsWith(on)
}

// queue sets a ClusterQueue with quota of flavor f, such as "cpu=4".
func (w *world) queue(name, cohort, quota string, change ...func(*kueue.ClusterQueue)) *kueue.ClusterQueue {
	w.t.Helper()
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		CohortName: kueue.CohortReference(cohort), NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: group(quota),
	}}
	for _, c := range change {
		c(q)
	}
	def, err := convert.Queue(q, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if q.Spec.StopPolicy != "" || q.DeletionTimestamp != nil {
		def.Closed = "it is stopped"
	}
	w.state.Apply(state.SetQueue(def))
	w.recorder.SetClusterQueue(q)
	return q
}

func group(quota string) []kueue.ResourceGroup {
	if quota == "" {
		return nil
	}
	g := kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{{Name: "f"}}}
	for part := range strings.SplitSeq(quota, ",") {
		name, amount, _ := strings.Cut(part, "=")
		g.CoveredResources = append(g.CoveredResources, corev1.ResourceName(name))
		g.Flavors[0].Resources = append(g.Flavors[0].Resources, kueue.ResourceQuota{
			Name: corev1.ResourceName(name), NominalQuota: resource.MustParse(amount),
		})
	}
	return []kueue.ResourceGroup{g}
}

func (w *world) deleteQueue(name string) {
	w.state.Apply(state.DeleteQueue(name))
	w.recorder.DeleteClusterQueue(name)
}

// localQueue sets a LocalQueue of namespace ns.
func (w *world) localQueue(name, queue string, change ...func(*kueue.LocalQueue)) *kueue.LocalQueue {
	l := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queue)}}
	for _, c := range change {
		c(l)
	}
	w.state.Apply(state.SetLocalQueue(convert.LocalQueue(l)))
	w.recorder.SetLocalQueue(l)
	return l
}

func (w *world) cohort(name, parent, quota string, change ...func(*kueue.Cohort)) {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent), ResourceGroups: group(quota)}}
	for _, f := range change {
		f(c)
	}
	w.state.Apply(state.SetCohort(convert.Cohort(c)))
	w.recorder.SetCohort(c)
}

func (w *world) deleteCohort(name string) {
	w.state.Apply(state.DeleteCohort(name))
	w.recorder.DeleteCohort(name)
}

var (
	machine = lifecycle.Machine{}
	began   = time.Unix(1_800_000_000, 0)
)

// at returns the time some seconds after the start.
func at(seconds int) metav1.Time {
	return metav1.NewTime(began.Add(time.Duration(seconds) * time.Second))
}

// newWorkload returns a Workload that was created at the start, with a request of cpu.
func newWorkload(name, localQueue, cpu string, change ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: at(0)},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(localQueue), PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}}},
		}}}},
	}
	for _, c := range change {
		c(wl)
	}
	return wl
}

// put stores a Workload in the cache and the engine.
func (w *world) put(wl *kueue.Workload) *kueue.Workload {
	w.t.Helper()
	w.version++
	wl.ResourceVersion = fmt.Sprint(w.version)
	var before *kueue.Workload
	if old, exists, _ := w.store.Get(wl); exists {
		before = old.(*kueue.Workload)
	}
	stored := wl.DeepCopy()
	if err := w.store.Update(stored); err != nil {
		w.t.Fatal(err)
	}
	w.recorder.ObserveWorkload(before, stored)
	w.state.Apply(state.SetWorkload(convert.Workload(stored, convert.Requests{})))
	return wl
}

func (w *world) remove(wl *kueue.Workload) {
	old, _, _ := w.store.Get(wl)
	if err := w.store.Delete(wl); err != nil {
		w.t.Fatal(err)
	}
	w.recorder.ObserveWorkload(old.(*kueue.Workload), nil)
	w.state.Apply(state.DeleteWorkload(string(wl.UID)))
}

// write changes a Workload.
func (w *world) write(wl *kueue.Workload, change func(*kueue.Workload)) {
	w.t.Helper()
	change(wl)
	w.put(wl)
}

// admission returns an admission with flavor f.
func admission(queue, cpu string) *kueue.Admission {
	return &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"},
		ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse(cpu)},
	}}}
}

func (w *world) admit(wl *kueue.Workload, queue, cpu string, when int) {
	w.write(wl, func(wl *kueue.Workload) { machine.Reserve(wl, admission(queue, cpu), nil, at(when)) })
}

func (w *world) finish(wl *kueue.Workload, when int) {
	w.write(wl, func(wl *kueue.Workload) { machine.Finish(wl, kueue.ReasonSucceeded, "done", at(when)) })
}

func (w *world) step() { w.state.Step(workload.Instant(began.UnixNano()), 1000) }

// scrape returns the series of the families with a prefix, as name{labels} value, sorted; of histograms the count and the sum, without the
// role.
func (w *world) scrape(prefixes ...string) []string {
	w.t.Helper()
	found, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for _, family := range found {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(family.GetName(), p) }) {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != roleLabel {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			value := fmt.Sprint(m.GetGauge().GetValue() + m.GetCounter().GetValue())
			if h := m.GetHistogram(); h != nil {
				value = fmt.Sprintf("%d/%v", h.GetSampleCount(), h.GetSampleSum())
			}
			out = append(out, fmt.Sprintf("%s{%s} %s", family.GetName(), strings.Join(labels, ","), value))
		}
	}
	slices.Sort(out)
	return out
}

// expect compares a scrape.
func (w *world) expect(when string, prefix string, want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if want == nil {
		want = []string{}
	}
	got := w.scrape(prefix)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s: -want +got:\n%s", when, diff)
	}
}

// naming returns the series that have a label value.
func (w *world) naming(value string) (out []string) {
	for _, s := range w.scrape("kueue_", "berth_", "multikueue_") {
		if strings.Contains(s, "="+value+",") || strings.Contains(s, "="+value+"}") {
			name, _, _ := strings.Cut(s, "{")
			out = append(out, name)
		}
	}
	return slices.Compact(out)
}
