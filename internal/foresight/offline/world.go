// Package offline has the objects that admission depends on without a manager: from files, with the defaults and the checks of the API
// server, or from an API server. They become the events that build a State.
package offline

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/placement/plan/capacity"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Scheme has the kinds of a World.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(kueue.AddToScheme(s))
	return s
}()

// queueKinds are what a World without Workloads consists of, and workloadKinds Workloads and what decides about their requests. Other
// objects are not needed.
var (
	queueKinds = []client.Object{
		&corev1.Namespace{}, &corev1.Node{}, &kueue.ResourceFlavor{}, &kueue.Topology{}, &kueue.AdmissionCheck{}, &kueue.Cohort{},
		&kueue.ClusterQueue{}, &kueue.LocalQueue{}, &kueue.WorkloadPriorityClass{},
	}
	workloadKinds = []client.Object{&kueue.Workload{}, &corev1.LimitRange{}, &nodev1.RuntimeClass{}, &schedulingv1.PriorityClass{}}
	kinds         = slices.Concat(queueKinds, workloadKinds)
)

// key is the identity of an object.
type key struct{ kind, namespace, name string }

// World is objects by their kinds and names.
type World struct {
	objects map[key]client.Object
}

// Add adds an object, or replaces the one of its kind and name.
func (w *World) Add(o client.Object) {
	if w.objects == nil {
		w.objects = map[key]client.Object{}
	}
	w.objects[key{kindOf(o), o.GetNamespace(), o.GetName()}] = o
}

// Remove removes an object, and reports whether there was one. namespace is empty for kinds without namespaces.
func (w *World) Remove(kind, namespace, name string) bool {
	k := key{kind, namespace, name}
	_, found := w.objects[k]
	delete(w.objects, k)
	return found
}

// With returns the objects of both; an object of other replaces the one of its kind and name.
func (w *World) With(other *World) *World {
	out := &World{objects: maps.Clone(w.objects)}
	for _, o := range other.objects { //berth:unordered they have different names
		out.Add(o)
	}
	return out
}

func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// All returns the objects of a type by namespace and name; for the type client.Object, the objects of all kinds, by kind.
func All[T client.Object](w *World) (out []T) {
	for _, o := range w.objects { //berth:unordered sorted below
		if t, is := o.(T); is {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b T) int {
		return cmp.Or(cmp.Compare(kindOf(a), kindOf(b)), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out
}

// Get returns the object of a type and a name without a namespace; false if there is none.
func Get[T client.Object](w *World, name string) (out T, found bool) { return GetIn[T](w, "", name) }

// GetIn is Get for a kind with namespaces.
func GetIn[T client.Object](w *World, namespace, name string) (out T, found bool) {
	var none T
	o, found := w.objects[key{kindOf(none), namespace, name}]
	if !found {
		return none, false
	}
	return o.(T), true
}

// Events returns the events that build the world in a State: everything but workloads. Namespaces without an object of their own exist
// without labels. variants is the feature gate ConcurrentAdmission.
func (w *World) Events(variants bool) (out []state.Event, err error) {
	named := map[string]bool{}
	namespace := func(name string, labels map[string]string) {
		if named[name] {
			return
		}
		named[name] = true
		all := map[string]string{corev1.LabelMetadataName: name}
		maps.Copy(all, labels)
		out = append(out, state.SetNamespace{Name: name, Labels: all})
	}
	for _, n := range All[*corev1.Namespace](w) {
		namespace(n.Name, n.Labels)
	}
	for _, rf := range All[*kueue.ResourceFlavor](w) {
		var topology *kueue.Topology
		if name := rf.Spec.TopologyName; name != "" {
			topology, _ = Get[*kueue.Topology](w, string(name))
		}
		out = append(out, state.SetFlavor(convert.Flavor(rf, topology)))
	}
	for _, n := range All[*corev1.Node](w) {
		out = append(out, capacity.NodeOf(n).Event())
	}
	for _, c := range All[*kueue.Cohort](w) {
		out = append(out, state.SetCohort(convert.Cohort(c)))
	}
	known := w.known(variants)
	for _, cq := range All[*kueue.ClusterQueue](w) {
		def, failed := convert.Queue(cq, convert.Problems(cq, known))
		if failed != nil {
			return nil, fmt.Errorf("ClusterQueue %s: %w", cq.Name, failed)
		}
		convert.Delay(&def, cq, known)
		convert.Divide(&def, cq, variants)
		out = append(out, state.SetQueue(def))
	}
	for _, lq := range All[*kueue.LocalQueue](w) {
		namespace(lq.Namespace, nil)
		out = append(out, state.SetLocalQueue(convert.LocalQueue(lq)))
		if used, known := convert.PastUsage(lq); known {
			out = append(out, used)
		}
	}
	return out, nil
}

// Problems returns why a ClusterQueue cannot admit. variants is the feature gate ConcurrentAdmission.
func (w *World) Problems(cq *kueue.ClusterQueue, variants bool) []convert.Problem {
	return convert.Problems(cq, w.known(variants))
}

func (w *World) known(variants bool) convert.Known {
	return convert.Known{
		Variants: variants,
		Flavor: func(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor {
			found, _ := Get[*kueue.ResourceFlavor](w, string(name))
			return found
		},
		Check: func(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
			found, _ := Get[*kueue.AdmissionCheck](w, string(name))
			return found
		},
		Topology: func(name kueue.TopologyReference) bool {
			_, found := Get[*kueue.Topology](w, string(name))
			return found
		},
		Parent: func(cohort string) string {
			if found, ok := Get[*kueue.Cohort](w, cohort); ok {
				return string(found.Spec.ParentName)
			}
			return ""
		},
	}
}

// ready fills in the status of an object that a file describes without one: a node is ready, an admission check active.
func ready(o client.Object) {
	switch o := o.(type) {
	case *corev1.Node:
		if len(o.Status.Conditions) == 0 {
			o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		if len(o.Status.Allocatable) == 0 {
			o.Status.Allocatable = o.Status.Capacity
		}
	case *kueue.AdmissionCheck:
		if len(o.Status.Conditions) == 0 {
			o.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		}
	}
}
