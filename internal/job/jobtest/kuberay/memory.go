package kuberay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// Memory is an API server in a map, for thousands of worlds in a test: one namespace, with versions, generations, finalizers, pods
// that take time to end, and webhooks. It supports Workloads, pods and Ray's kinds.
type Memory struct {
	client.Client // methods that no test needs are nil
	// Admit is the webhooks: it may change or refuse the object to be written. old is nil for a new one.
	Admit func(old, object client.Object) error
	// Changed is called after every write.
	Changed func()

	objects map[string]client.Object
	version int
}

// Version changes with every write.
func (m *Memory) Version() int { return m.version }

// Each visits the objects of a kind, by name. They are not copies.
func (m *Memory) Each(kind string, do func(client.Object)) {
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if o := m.objects[key]; kindOf(o) == kind {
			do(o)
		}
	}
}

func kindOf(o runtime.Object) string {
	switch o := o.(type) {
	case *corev1.Pod:
		return "Pod"
	case *kueue.Workload:
		return "Workload"
	case *unstructured.Unstructured:
		return o.GetKind()
	default:
		panic(fmt.Sprintf("%T is not known", o))
	}
}

func keyOf(o client.Object) string { return kindOf(o) + "/" + o.GetName() }

func copyOf(o client.Object) client.Object { return o.DeepCopyObject().(client.Object) }

// Get reads an object.
func (m *Memory) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o := m.objects[kindOf(into)+"/"+key.Name]
	if o == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kindOf(into)}, key.Name)
	}
	set(into, o)
	return nil
}

// set makes one object a copy of another.
func set(into, from client.Object) {
	switch into := into.(type) {
	case *corev1.Pod:
		from.(*corev1.Pod).DeepCopyInto(into)
	case *kueue.Workload:
		from.(*kueue.Workload).DeepCopyInto(into)
	case *unstructured.Unstructured:
		from.(*unstructured.Unstructured).DeepCopyInto(into)
	}
}

// List reads all objects of a kind, by name.
func (m *Memory) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.PodList:
		m.Each("Pod", func(o client.Object) { list.Items = append(list.Items, *copyOf(o).(*corev1.Pod)) })
	case *kueue.WorkloadList:
		m.Each("Workload", func(o client.Object) { list.Items = append(list.Items, *copyOf(o).(*kueue.Workload)) })
	case *unstructured.UnstructuredList:
		kind := list.GetKind()
		m.Each(kind[:len(kind)-len("List")], func(o client.Object) {
			list.Items = append(list.Items, *copyOf(o).(*unstructured.Unstructured))
		})
	}
	return nil
}

// Create makes an object.
func (m *Memory) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if o.GetName() == "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), m.version))
	}
	if m.objects[keyOf(o)] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: kindOf(o)}, o.GetName())
	}
	if err := m.admit(nil, o); err != nil {
		return err
	}
	o.SetUID(types.UID(fmt.Sprintf("%s-%05d", kindOf(o), m.version)))
	o.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(m.version/4), 0).UTC())) // some in the same second
	o.SetGeneration(1)
	m.store(o)
	return nil
}

func (m *Memory) admit(old, o client.Object) error {
	if m.Admit == nil {
		return nil
	}
	return m.Admit(old, o)
}

func (m *Memory) store(o client.Object) {
	if m.objects == nil {
		m.objects = map[string]client.Object{}
	}
	m.version++
	o.SetResourceVersion(fmt.Sprint(m.version))
	m.objects[keyOf(o)] = copyOf(o)
	if m.Changed != nil {
		m.Changed()
	}
}

// current is the stored version of an object to be written, if the writer has its latest version.
func (m *Memory) current(o client.Object) (client.Object, error) {
	old := m.objects[keyOf(o)]
	resource := schema.GroupResource{Resource: kindOf(o)}
	switch {
	case old == nil || old.GetUID() != o.GetUID():
		return nil, apierrors.NewNotFound(resource, o.GetName())
	case old.GetResourceVersion() != o.GetResourceVersion():
		return nil, apierrors.NewConflict(resource, o.GetName(), fmt.Errorf("version %s is not %s", o.GetResourceVersion(), old.GetResourceVersion()))
	}
	return old, nil
}

// Update writes all but the status.
func (m *Memory) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	old, err := m.current(o)
	if err != nil {
		return err
	}
	same := true
	switch o := o.(type) {
	case *kueue.Workload:
		old.(*kueue.Workload).Status.DeepCopyInto(&o.Status)
		same = equality.Semantic.DeepEqual(o.Spec, old.(*kueue.Workload).Spec)
	case *unstructured.Unstructured:
		was := old.(*unstructured.Unstructured)
		if delete(o.Object, "status"); was.Object["status"] != nil {
			o.Object["status"] = runtime.DeepCopyJSONValue(was.Object["status"])
		}
	}
	if err := m.admit(old, o); err != nil {
		return err
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		same = equality.Semantic.DeepEqual(u.Object["spec"], old.(*unstructured.Unstructured).Object["spec"])
	}
	if !same {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && kindOf(o) != "Pod" {
		m.remove(o)
		return nil
	}
	m.store(o)
	return nil
}

// Delete marks an object as deleted. It is removed at once unless it has finalizers, or is a pod that may run: see [Memory.End].
func (m *Memory) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	old := m.objects[keyOf(o)]
	var all client.DeleteOptions
	all.ApplyOptions(options)
	switch {
	case old == nil || old.GetUID() != o.GetUID():
		return apierrors.NewNotFound(schema.GroupResource{Resource: kindOf(o)}, o.GetName())
	case all.Preconditions != nil && all.Preconditions.ResourceVersion != nil && *all.Preconditions.ResourceVersion != old.GetResourceVersion():
		return apierrors.NewConflict(schema.GroupResource{Resource: kindOf(o)}, o.GetName(), fmt.Errorf("it has changed"))
	case old.GetDeletionTimestamp() != nil:
		return nil
	}
	pod, isPod := old.(*corev1.Pod)
	if len(old.GetFinalizers()) == 0 && (!isPod || podset.HasGate(pod.Spec.SchedulingGates)) {
		m.remove(old)
		return nil
	}
	next := copyOf(old)
	next.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(int64(m.version), 0).UTC()})
	m.store(next)
	return nil
}

func (m *Memory) remove(o client.Object) {
	m.version++
	delete(m.objects, keyOf(o))
	if m.Changed != nil {
		m.Changed()
	}
}

// End ends pods that are being deleted, at most so many.
func (m *Memory) End(most int) {
	var over []client.Object
	m.Each("Pod", func(o client.Object) {
		if o.GetDeletionTimestamp() != nil && len(over) < most {
			over = append(over, o)
		}
	})
	for _, o := range over {
		m.remove(o)
	}
}

// Status writes statuses.
func (m *Memory) Status() client.SubResourceWriter { return &memoryStatus{m: m} }

type memoryStatus struct {
	client.SubResourceWriter
	m *Memory
}

// Update writes only the status.
func (s *memoryStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	old, err := s.m.current(o)
	if err != nil {
		return err
	}
	next := copyOf(old)
	switch next := next.(type) {
	case *corev1.Pod:
		o.(*corev1.Pod).Status.DeepCopyInto(&next.Status)
	case *kueue.Workload:
		o.(*kueue.Workload).Status.DeepCopyInto(&next.Status)
	case *unstructured.Unstructured:
		next.Object["status"] = runtime.DeepCopyJSONValue(o.(*unstructured.Unstructured).Object["status"])
	}
	s.m.store(next)
	o.SetResourceVersion(next.GetResourceVersion())
	return nil
}
