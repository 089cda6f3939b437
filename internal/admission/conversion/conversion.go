// Package conversion converts objects of kueue.x-k8s.io between v1beta1 and v1beta2: pure functions on decoded JSON, the webhook that
// serves them, and the conversion section of the CRDs (spec: 10 §2.7, 70 §4.8).
//
// Only fields that differ between the versions change. All others pass as they were written, down to the spelling of a quantity: if they
// were encoded anew, the API server would make the writer of one version the owner of fields that another one set.
//
// Fields of v1beta2 without a place in v1beta1 go into an annotation of the v1beta1 form (KeptAnnotation) and
// come back from it, so that an old client which reads, changes and writes an object loses none. Changes by such a client win over kept
// fields.
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

// kind describes how the objects of one kind differ between the versions.
type kind struct {
	// plural is the resource name.
	plural string
	// up converts v1beta1 to v1beta2 in place; kept is the content of the annotation, which may be empty.
	up func(o, kept object) error
	// down converts v1beta2 to v1beta1 in place and returns the fields without a place there, as a part of the v1beta2 object.
	down func(o object) (kept object, err error)
	// upFields and downFields name the fields without which up and down change nothing, wherever they are.
	upFields, downFields []string
}

// kinds are the kinds that the webhook converts. The others of the group differ only in bounds and in fields without effect, so that the
// API server converts them by itself; see docs/versions.md.
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
		upFields:   []string{"priorityClassSource", "priorityClassName", "accumulatedPastExexcutionTimeSeconds", placesField},
		downFields: []string{"priorityClassRef", "preemptionGates", constraintsField, "accumulatedPastExecutionTimeSeconds", placesField},
	},
}

// CRDs returns the sorted names of the CRDs that use the webhook.
func CRDs() []string {
	var names []string
	for k := range maps.Values(kinds) {
		names = append(names, kueue.Resource(k.plural).String())
	}
	slices.Sort(names)
	return names
}

// Convert converts an object of the group in place. Whole numbers in it must be int64. An error leaves the object half converted.
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

// rename renames a field. o may be nil.
func rename(o object, from, to string) {
	value, ok := o[from]
	if o == nil || !ok {
		return
	}
	delete(o, from)
	o[to] = value
}

// keepField moves a field of o, if present, to the same field of the object at path in kept, and returns kept.
func keepField(kept, o object, field string, path ...string) object {
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

// restore copies a kept field back into o, if o still exists.
func restore(o, kept object, field string) {
	if value, ok := kept[field]; ok && o != nil {
		o[field] = value
	}
}
