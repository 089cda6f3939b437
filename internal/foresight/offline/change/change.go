package change

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Change is what becomes different. Parts are applied in the order of the fields.
type Change struct {
	// Objects are added, or replace the objects of the same kind and name. Submits are new jobs or Workloads, for the LocalQueue Queue unless that
	// is empty.
	Objects, Submits []File
	Queue            string
	Deletes          []Deletion
	Submit           *Submission
	Quotas           []Quota
	Drains           []string // nodes
	// Namespace is for objects without one.
	Namespace string
}

// File is YAML documents, and their name in errors.
type File struct {
	Name string
	Data []byte
}

// edit is the change while it is made.
type edit struct {
	change *Change
	b      *Base

	after     *offline.World
	workloads map[types.NamespacedName]bool // added or replaced
	jobs      []newJob
	submitted []submitted
	late      []state.Event // applied after the events of the world
}

// submitted is a Workload of a file, before it is part of the world.
type submitted struct {
	w    *kueue.Workload
	file string
	new  bool // it must not exist
}

// Apply returns the events of a change, and adds to the notes. An error in a part of the change is Mistakes. Call it once.
func (b *Base) Apply(change *Change) ([]state.Event, error) {
	e := &edit{change: change, b: b, after: b.World.With(&offline.World{}), workloads: map[types.NamespacedName]bool{}}
	for _, of := range []struct {
		files []File
		new   bool
	}{{change.Objects, false}, {change.Submits, true}} {
		for _, file := range of.files {
			if err := e.read(file, of.new); err != nil {
				return nil, Mistakes{{Part: OfFile, Err: err}}
			}
		}
	}
	if err := e.putAll(); err != nil {
		return nil, err
	}
	for i := range change.Deletes {
		if err := e.remove(i); err != nil {
			return nil, err
		}
	}
	events, err := e.eventsWith()
	if err != nil {
		return nil, err
	}
	for _, ev := range events {
		if q, is := ev.(state.SetQueue); is && q.Closed != "" {
			b.note("ClusterQueue %s admits nothing: %s", q.Name, q.Closed)
		}
	}
	return events, nil
}

// putAll adds the Workloads and jobs that were read.
func (e *edit) putAll() error {
	for _, s := range e.submitted {
		if err := e.putWorkload(s.w, s.file, s.new); err != nil {
			return Mistakes{{Part: OfFile, Err: err}}
		}
	}
	for i := range e.jobs {
		if err := e.putJob(&e.jobs[i]); err != nil {
			return Mistakes{{Part: OfFile, Err: err}}
		}
	}
	return nil
}

// eventsWith returns the events of all parts. Mistakes in quotas, nodes and the new Workload are reported together.
func (e *edit) eventsWith() ([]state.Event, error) {
	failed := e.submit()
	events, err := e.events()
	if err != nil {
		return nil, err
	}
	for _, part := range []func([]state.Event) ([]state.Event, error){e.quotas, e.drain} {
		more, err := part(events)
		some, wrong := errors.AsType[Mistakes](err)
		switch {
		case wrong:
			failed = append(failed, some...)
		case err != nil:
			return nil, err
		default:
			events = more
		}
	}
	if len(failed) > 0 {
		return nil, failed
	}
	return events, nil
}

// read reads a file of objects, or of what is submitted.
func (e *edit) read(f File, submit bool) error {
	file := f.Name
	var failed []error
	other := func(o *unstructured.Unstructured, at offline.At) {
		if err := e.readJob(o, at, submit); err != nil {
			failed = append(failed, err)
		}
	}
	found := len(e.jobs)
	w, settings, err := offline.ReadWith(file, f.Data, e.namespace(), other)
	if err := errors.Join(append([]error{err}, failed...)...); err != nil {
		return err
	}
	if settings != nil {
		return fmt.Errorf("%s: kind: Configuration cannot be changed here: berth simulate --config compares settings of the manager", file)
	}
	objects := offline.All[client.Object](w)
	for _, o := range objects {
		kind := kindOf(o)
		if of, is := o.(*kueue.Workload); is {
			e.submitted = append(e.submitted, submitted{of, file, submit})
			continue
		}
		switch o.(type) {
		case *kueue.ClusterQueue, *kueue.LocalQueue, *kueue.Cohort, *corev1.Node, *corev1.Namespace:
		default:
			if e.b.Recorded {
				return fmt.Errorf("%s: %s %s: a flight record cannot be changed by this kind: take the state from a cluster or from objects", file, kind, o.GetName())
			}
		}
		if submit {
			return fmt.Errorf("%s: %s %s: only jobs and Workloads are submitted: other objects are added or replaced", file, kind, o.GetName())
		}
		if err := e.put(o, file); err != nil {
			return err
		}
	}
	if len(objects)+len(e.jobs)-found == 0 {
		return fmt.Errorf("%s: has no object that matters to queues", file)
	}
	return nil
}

func kindOf(o client.Object) string {
	gvks, _, err := offline.Scheme.ObjectKinds(o)
	if err != nil {
		panic(err) // a World has only kinds of the Scheme
	}
	return gvks[0].Kind
}

func (e *edit) namespace() string {
	if e.change.Namespace != "" {
		return e.change.Namespace
	}
	return metav1.NamespaceDefault
}

// put adds or replaces an object that is no Workload. What a file does not say of its status stays.
func (e *edit) put(o client.Object, file string) error {
	if cq, is := o.(*kueue.ClusterQueue); is && e.b.Recorded && cq.Spec.AdmissionChecksStrategy != nil {
		return fmt.Errorf("%s: ClusterQueue %s: spec.admissionChecksStrategy: a flight record has no admission checks: take the state from a cluster or from objects", file, cq.Name)
	}
	e.after.Add(o)
	return nil
}

// putWorkload adds or replaces a Workload.
func (e *edit) putWorkload(w *kueue.Workload, file string, submit bool) error {
	at := func(path, detail string) error {
		return fmt.Errorf("%s: Workload %s/%s: %s: %s", file, w.Namespace, w.Name, path, detail)
	}
	if submit && e.change.Queue != "" {
		w.Spec.QueueName = kueue.LocalQueueName(e.change.Queue)
	}
	old, exists := offline.GetIn[*kueue.Workload](e.after, w.Namespace, w.Name)
	switch {
	case exists && submit:
		return at("metadata.name", "it exists already: replace it instead")
	case e.b.Recorded && e.recordedUID(w.Namespace, w.Name) != "":
		return at("metadata.name", "it exists already, and a Workload of a flight record cannot be replaced")
	}
	if exists {
		w.UID, w.ResourceVersion = old.UID, old.ResourceVersion
		if w.CreationTimestamp.IsZero() {
			w.CreationTimestamp = old.CreationTimestamp
		}
		if equality.Semantic.DeepEqual(w.Status, kueue.WorkloadStatus{}) && equality.Semantic.DeepEqual(w.Spec.PodSets, old.Spec.PodSets) {
			w.Status = old.Status
		}
	}
	return e.add(w, "spec.queueName", at)
}

// add adds a Workload to the world after the change. queueField names where its queue comes from.
func (e *edit) add(w *kueue.Workload, queueField string, at func(path, detail string) error) error {
	if _, found := offline.GetIn[*kueue.LocalQueue](e.after, w.Namespace, string(w.Spec.QueueName)); !found {
		var names []string
		for _, lq := range offline.All[*kueue.LocalQueue](e.after) {
			if lq.Namespace == w.Namespace {
				names = append(names, lq.Name)
			}
		}
		if w.Spec.QueueName == "" {
			return at(queueField, fmt.Sprintf("it names no LocalQueue: in the namespace %s %s", w.Namespace, strict.OrAll("", names)))
		}
		return at(queueField, fmt.Sprintf("there is no LocalQueue %s/%s: %s", w.Namespace, w.Spec.QueueName, strict.OrAll(string(w.Spec.QueueName), names)))
	}
	if path := negative(w); path != "" {
		return at(path, "must not be negative")
	}
	if err := convert.ValidateRunTimes(w); err != nil {
		return at("metadata", strings.TrimPrefix(err.Error(), "metadata."))
	}
	e.after.Add(w)
	e.workloads[types.NamespacedName{Namespace: w.Namespace, Name: w.Name}] = true
	return nil
}

// negative returns the path of a request that is negative, "" for none.
func negative(w *kueue.Workload) string {
	for i := range w.Spec.PodSets {
		spec := &w.Spec.PodSets[i].Template.Spec
		for _, list := range []struct {
			name string
			of   []corev1.Container
		}{{"containers", spec.Containers}, {"initContainers", spec.InitContainers}} {
			for k := range list.of {
				for _, part := range []struct {
					name string
					of   corev1.ResourceList
				}{{"requests", list.of[k].Resources.Requests}, {"limits", list.of[k].Resources.Limits}} {
					for _, name := range slices.Sorted(maps.Keys(part.of)) {
						if q := part.of[name]; q.Sign() < 0 {
							return fmt.Sprintf("podSets[%d] %s[%d].resources.%s[%s]", i, list.name, k, part.name, name)
						}
					}
				}
			}
		}
	}
	return ""
}

// recordedUID returns the UID of a Workload of the state, "" for none.
func (e *edit) recordedUID(namespace, name string) string {
	for def := range e.b.State.Overview() {
		if def.Namespace == namespace && def.Name == name {
			return def.UID
		}
	}
	return ""
}

// events returns the events between the two worlds.
func (e *edit) events() ([]state.Event, error) {
	after, err := e.after.Events(e.b.Requests.Variants)
	if err != nil {
		return nil, err
	}
	out := append(offline.Changes(e.b.events, after), e.late...)
	e.reprice()
	e.reconvert()
	e.after.Stamp(e.b.stamp())
	requests := e.b.requests(e.after)
	for _, key := range slices.SortedFunc(maps.Keys(e.workloads), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		w, exists := offline.GetIn[*kueue.Workload](e.after, key.Namespace, key.Name)
		if !exists {
			continue // deleted
		}
		e.b.changed[string(w.UID)] = e.b.timesOf(w)
		def := convert.Workload(w, requests)
		if e.b.Recorded {
			def.Created, def.Since = e.b.Begin, e.b.Begin
		}
		if old, has := e.b.State.Definition(def.UID); has {
			def.Version = max(def.Version, old.Version+1)
		}
		out = append(out, state.SetWorkload(def))
	}
	return append(out, e.held()...), nil
}

// reprice gives Workloads the value of their priority class where the change sets another one. spec: 10 §4.13.
func (e *edit) reprice() {
	for _, class := range offline.All[*kueue.WorkloadPriorityClass](e.after) {
		if old, has := offline.Get[*kueue.WorkloadPriorityClass](e.b.World, class.Name); has && old.Value == class.Value {
			continue
		}
		for _, w := range offline.All[*kueue.Workload](e.after) {
			ref := w.Spec.PriorityClassRef
			if ref == nil || ref.Kind != kueue.WorkloadPriorityClassKind || ref.Name != class.Name {
				continue
			}
			w = w.DeepCopy()
			w.Spec.Priority = new(class.Value)
			e.after.Add(w)
			e.workloads[types.NamespacedName{Namespace: w.Namespace, Name: w.Name}] = true
		}
	}
}

// reconvert converts the Workloads that wait again if what decides about their requests is changed.
func (e *edit) reconvert() {
	if equality.Semantic.DeepEqual(offline.All[*corev1.LimitRange](e.b.World), offline.All[*corev1.LimitRange](e.after)) &&
		equality.Semantic.DeepEqual(offline.All[*nodev1.RuntimeClass](e.b.World), offline.All[*nodev1.RuntimeClass](e.after)) {
		return
	}
	for _, w := range offline.All[*kueue.Workload](e.after) {
		e.workloads[types.NamespacedName{Namespace: w.Namespace, Name: w.Name}] = true
	}
}

// held returns the evictions by queues that the change holds and drains. spec: 10 §4.12.
func (e *edit) held() (out []state.Event) {
	drained := e.newlyDrained()
	if len(drained) == 0 {
		return nil
	}
	var uids []string
	for one := range e.b.State.Overview() {
		if one.Reserved && !one.Evicting && (drained[state.Name{Name: one.Queue}] || drained[state.Name{Namespace: one.Namespace, Name: one.LocalQueue}]) {
			uids = append(uids, one.UID)
		}
	}
	slices.Sort(uids)
	for _, uid := range uids {
		out = append(out, eviction(e.b.State, uid))
	}
	return out
}

// newlyDrained returns the ClusterQueues and LocalQueues that the change holds and drains.
func (e *edit) newlyDrained() map[state.Name]bool {
	drained := map[state.Name]bool{}
	for _, cq := range offline.All[*kueue.ClusterQueue](e.after) {
		old, has := offline.Get[*kueue.ClusterQueue](e.b.World, cq.Name)
		if cq.Spec.StopPolicy == kueue.StopPolicyHoldAndDrain && (!has || old.Spec.StopPolicy != kueue.StopPolicyHoldAndDrain) {
			drained[state.Name{Name: cq.Name}] = true
		}
	}
	for _, lq := range offline.All[*kueue.LocalQueue](e.after) {
		old, has := offline.GetIn[*kueue.LocalQueue](e.b.World, lq.Namespace, lq.Name)
		if lq.Spec.StopPolicy == kueue.StopPolicyHoldAndDrain && (!has || old.Spec.StopPolicy != kueue.StopPolicyHoldAndDrain) {
			drained[state.Name{Namespace: lq.Namespace, Name: lq.Name}] = true
		}
	}
	return drained
}

// eviction returns the event of an eviction by the change.
func eviction(s *state.State, uid string) state.Event {
	def, _ := s.Definition(uid)
	def.Evicting = true
	def.Version++
	return state.SetWorkload(def)
}

// descriptor returns the kind of jobs of a group and a kind, nil for none.
func (e *edit) descriptor(of schema.GroupKind) *job.Descriptor {
	for _, d := range e.b.Kinds {
		if d.GVK.GroupKind() == of {
			return d
		}
	}
	return nil
}
