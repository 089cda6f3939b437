package offline

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Around looks up what decides about the pods of a Workload beside its spec.
func (w *World) Around() convert.Around {
	ranges := map[string][]corev1.LimitRange{}
	for _, l := range All[*corev1.LimitRange](w) {
		ranges[l.Namespace] = append(ranges[l.Namespace], *l)
	}
	return convert.Around{
		LimitRanges: func(namespace string) []corev1.LimitRange { return ranges[namespace] },
		RuntimeClass: func(name string) *nodev1.RuntimeClass {
			class, _ := Get[*nodev1.RuntimeClass](w, name)
			return class
		},
		HasTopology: func(name string) bool {
			flavor, found := Get[*kueue.ResourceFlavor](w, name)
			return found && flavor.Spec.TopologyName != ""
		},
	}
}

// NewState returns a State of the world with its Workloads, and World.Events, which it is built from. more are applied after these.
func (w *World) NewState(o state.Options, requests convert.Requests, more []state.Event) (s *state.State, events []state.Event, err error) {
	if events, err = w.Events(requests.Variants); err != nil {
		return nil, nil, err
	}
	s = state.New(o)
	for _, e := range slices.Concat(events, more) {
		s.Apply(e)
	}
	requests.Around = w.Around()
	for _, of := range All[*kueue.Workload](w) {
		s.Apply(state.SetWorkload(convert.Workload(of, requests)))
	}
	return s, events, nil
}

// Stamp gives Workloads what an API server gives them where they lack it: a UID, and now as the time of their creation.
func (w *World) Stamp(now metav1.Time) {
	for _, o := range All[*kueue.Workload](w) {
		if o.UID == "" {
			o.UID = types.UID(o.Namespace + "/" + o.Name)
		}
		if o.CreationTimestamp.IsZero() {
			o.CreationTimestamp = now
		}
	}
}

// Changes returns the events that turn a State of one world into a State of another. before and after are of World.Events.
func Changes(before, after []state.Event) (out []state.Event) {
	type name struct {
		of              reflect.Type
		namespace, name string
	}
	nameOf := func(e state.Event) name {
		v := reflect.ValueOf(e)
		n := name{of: v.Type(), name: v.FieldByName("Name").String()}
		if space := v.FieldByName("Namespace"); space.IsValid() {
			n.namespace = space.String()
		}
		return n
	}
	was, stays := map[name]state.Event{}, map[name]bool{}
	for _, e := range before {
		was[nameOf(e)] = e
	}
	for _, e := range after {
		n := nameOf(e)
		stays[n] = true
		if old, known := was[n]; !known || !reflect.DeepEqual(old, e) {
			out = append(out, e)
		}
	}
	for _, e := range before {
		if !stays[nameOf(e)] {
			out = append(out, deletion(e)...)
		}
	}
	return out
}

// deletion returns the event that takes back one of World.Events.
func deletion(e state.Event) []state.Event {
	switch e := e.(type) {
	case state.SetNamespace:
		return []state.Event{state.DeleteNamespace(e.Name)}
	case state.SetFlavor:
		return []state.Event{state.DeleteFlavor(e.Name)}
	case state.SetNode:
		return []state.Event{state.DeleteNode(e.Name)}
	case state.SetCohort:
		return []state.Event{state.DeleteCohort(e.Name)}
	case state.SetQueue:
		return []state.Event{state.DeleteQueue(e.Name)}
	case state.SetLocalQueue:
		return []state.Event{state.DeleteLocalQueue{Namespace: e.Namespace, Name: e.Name}}
	}
	return nil
}
