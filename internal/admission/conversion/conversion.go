// Package conversion turns objects of kueue.x-k8s.io from v1beta1 into v1beta2 and back: pure functions on decoded JSON,
// the webhook that serves them, and what a CRD has to say for the API server to call it (spec: 10 §2.7, 70 §4.8).
//
// Only what differs between the versions is touched. All else passes as it was written, down to the spelling of a
// quantity: were it written anew, the API server would take the writer of one version for the owner of fields that
// another set.
//
// v1beta1 has no place for some fields of v1beta2. They go into an annotation of the v1beta1 form (KeptAnnotation) and
// come back from it, so that an old client which reads an object, changes it and writes it back loses nothing. What such
// a client changed wins over what was kept.
package conversion

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// object is a decoded JSON object; whole numbers in it are int64.
type object = map[string]any

// kind says how the objects of one kind differ between the versions.
type kind struct {
	// plural is the resource name.
	plural string
	// up makes v1beta2 out of v1beta1 in place; kept is what the annotation holds, which may be nothing.
	up func(o, kept object) error
	// down makes v1beta1 out of v1beta2 in place and returns what has no place there, as a part of the v1beta2 object.
	down func(o object) (kept object, err error)
	// upFields and downFields are the names of the fields without which up and down change nothing, wherever they are.
	upFields, downFields []string
}

// kinds are those that the webhook converts. The others of the group differ in bounds and in fields that have no effect,
// so that the API server converts them by itself; see docs/versions.md.
var kinds = map[string]kind{
	"ClusterQueue": {
		plural: "clusterqueues", up: clusterQueueUp, down: clusterQueueDown, downFields: []string{"cohortName", "concurrentAdmissionPolicy"},
		upFields: []string{
			"cohort", "admissionChecks", "admissionChecksStrategy", "flavorFungibility", "pendingWorkloadsStatus", "admissionFairSharingStatus",
		},
	},
	"Cohort": {
		plural: "cohorts", up: cohortUp, down: func(object) (object, error) { return nil, nil }, upFields: []string{"admissionFairSharingStatus"},
	},
	"LocalQueue": {
		plural: "localqueues", up: localQueueUp, down: localQueueDown, upFields: []string{"flavorUsage", "flavors"}, downFields: []string{"flavorsUsage"},
	},
	"MultiKueueCluster": {
		plural: "multikueueclusters", up: workerClusterUp, down: workerClusterDown, upFields: []string{"spec"}, downFields: []string{"clusterSource"},
	},
	"MultiKueueConfig": {plural: "multikueueconfigs", up: workerConfigUp, down: workerConfigDown, downFields: []string{"quotaManagement"}},
	"Workload": {
		plural: "workloads", up: workloadUp, down: workloadDown,
		upFields:   []string{"priorityClassSource", "priorityClassName", "accumulatedPastExexcutionTimeSeconds", "topologyAssignment"},
		downFields: []string{"priorityClassRef", "preemptionGates", constraintsField, "accumulatedPastExecutionTimeSeconds", "topologyAssignment"},
	},
}

// CRDs are the names of the CRDs that use the webhook, sorted.
func CRDs() []string {
	var names []string
	for k := range maps.Values(kinds) {
		names = append(names, kueue.Resource(k.plural).String())
	}
	slices.Sort(names)
	return names
}

// Convert turns an object of the group into the version that is asked for, in place. Whole numbers in it must be int64. An
// error leaves the object in between.
func Convert(o object, to schema.GroupVersion) error {
	apiVersion, _ := o["apiVersion"].(string)
	name, _ := o["kind"].(string)
	from, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return err
	}
	k, differs := kinds[name]
	switch {
	case from == to:
		return nil
	case from == kueuev1beta1.GroupVersion && to == kueue.GroupVersion:
		if differs {
			err = raise(o, k)
		}
	case from == kueue.GroupVersion && to == kueuev1beta1.GroupVersion:
		if differs {
			err = lower(o, k)
		}
	default:
		err = fmt.Errorf("%s %s cannot be converted to %s", from, name, to)
	}
	if err != nil {
		return err
	}
	o["apiVersion"] = to.String()
	return nil
}

func raise(o object, k kind) error {
	kept, err := takeKept(o)
	if err != nil {
		return err
	}
	return k.up(o, kept)
}

func lower(o object, k kind) error {
	dropKept(o)
	kept, err := k.down(o)
	if err != nil {
		return err
	}
	return putKept(o, kept)
}

// at follows keys to an object; nil if there is none.
func at(o object, keys ...string) object {
	for _, key := range keys {
		o, _ = o[key].(object) // reading from a nil map is fine
	}
	return o
}

// items are the objects of a list.
func items(o object, key string) []object {
	list, _ := o[key].([]any)
	var out []object
	for _, item := range list {
		if m, ok := item.(object); ok {
			out = append(out, m)
		}
	}
	return out
}

// rename gives a field another name. o may be nil.
func rename(o object, from, to string) {
	value, ok := o[from]
	if o == nil || !ok {
		return
	}
	delete(o, from)
	o[to] = value
}

// keep moves a field of o, if it is there, to the same field of the object at path in kept, and returns kept.
func keep(kept, o object, field string, path ...string) object {
	value, ok := o[field]
	if !ok {
		return kept
	}
	delete(o, field)
	if kept == nil {
		kept = object{}
	}
	inner := kept
	for _, key := range path {
		if at(inner, key) == nil {
			inner[key] = object{}
		}
		inner = at(inner, key)
	}
	inner[field] = value
	return kept
}

// restore puts a kept field back into o, which must still be there.
func restore(o, kept object, field string) {
	if value, ok := kept[field]; ok && o != nil {
		o[field] = value
	}
}
