package conversion

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// sources maps the priority class sources of v1beta1 to groups and kinds.
var sources = map[string]object{
	"kueue.x-k8s.io/workloadpriorityclass": {"group": string(kueue.WorkloadPriorityClassGroup), "kind": string(kueue.WorkloadPriorityClassKind)},
	"scheduling.k8s.io/priorityclass":      {"group": string(kueue.PodPriorityClassGroup), "kind": string(kueue.PodPriorityClassKind)},
}

// constraintsField is a field of a topology request that v1beta1 lacks. In v1beta2 it replaces sliceFields.
const constraintsField = "podsetSliceRequiredTopologyConstraints"

// placesField is a field of a pod set's assignment, which has slices in v1beta2 and domains in v1beta1.
const placesField = "topologyAssignment"

// domain is a domain of v1beta1.
type domain struct {
	Count  int32    `json:"count"`
	Values []string `json:"values"`
}

var sliceFields = []string{"podSetSliceRequiredTopology", "podSetSliceSize"}

func workloadUp(o, kept object) error {
	spec, status := at(o, "spec"), at(o, "status")
	priorityClassUp(spec)
	restore(spec, at(kept, "spec"), "preemptionGates")
	keptSets := byName(items(at(kept, "spec"), "podSets"))
	for _, podSet := range items(spec, "podSets") {
		constraintsUp(at(podSet, "topologyRequest"), at(keptSets[nameOf(podSet)], "topologyRequest"))
	}
	rename(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
	restore(status, at(kept, "status"), "preemptionGates")
	shapes := byName(items(at(kept, "status", "admission"), "podSetAssignments"))
	for _, assignment := range items(at(status, "admission"), "podSetAssignments") {
		shape := at(shapes[nameOf(assignment)], placesField)
		if err := topologyUp(at(assignment, placesField), shape["slices"]); err != nil {
			return fmt.Errorf("status.admission.podSetAssignments[%v].topologyAssignment: %w", assignment["name"], err)
		}
	}
	return nil
}

func workloadDown(o object) (object, error) {
	spec, status := at(o, "spec"), at(o, "status")
	priorityClassDown(spec)
	kept := keepField(nil, spec, "preemptionGates", "spec")
	var podSets []any
	for _, podSet := range items(spec, "podSets") {
		if request := constraintsDown(at(podSet, "topologyRequest")); request != nil {
			podSets = append(podSets, object{"name": podSet["name"], "topologyRequest": request})
		}
	}
	if podSets != nil {
		kept = keepField(kept, object{"podSets": podSets}, "podSets", "spec")
	}
	rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
	kept = keepField(kept, status, "preemptionGates", "status")
	shapes, err := topologiesDown(at(status, "admission"))
	if err != nil || shapes == nil {
		return kept, err
	}
	return keepField(kept, object{"podSetAssignments": shapes}, "podSetAssignments", "status", "admission"), nil
}

// byName indexes the entries of a list; the first of equal names wins.
func byName(list []object) map[string]object {
	out := make(map[string]object, len(list))
	for _, item := range slices.Backward(list) {
		out[nameOf(item)] = item
	}
	return out
}

func nameOf(item object) string {
	name, _ := item["name"].(string)
	return name
}

// priorityClassUp makes a reference from a source and a name. A name without a source refers to nothing (spec: 10 §2.7).
func priorityClassUp(spec object) {
	source, _ := spec["priorityClassSource"].(string)
	name, _ := spec["priorityClassName"].(string)
	delete(spec, "priorityClassSource")
	delete(spec, "priorityClassName")
	if class := sources[source]; class != nil && name != "" {
		spec["priorityClassRef"] = object{"group": class["group"], "kind": class["kind"], "name": name}
	}
}

func priorityClassDown(spec object) {
	ref := at(spec, "priorityClassRef")
	for source, class := range sources {
		if ref != nil && ref["kind"] == class["kind"] && ref["group"] == class["group"] {
			delete(spec, "priorityClassRef")
			spec["priorityClassSource"], spec["priorityClassName"] = source, ref["name"]
			return
		}
	}
}

// constraintsDown removes the layers of slices from a topology request. It returns them with the v1beta1 fields that they replace: these
// show later whether a client changed the slices.
func constraintsDown(request object) (kept object) {
	kept = keepField(nil, request, constraintsField)
	for _, field := range sliceFields {
		if value, ok := request[field]; ok && kept != nil {
			kept[field] = value
		}
	}
	return kept
}

// constraintsUp restores the layers, unless the client set, changed or removed slices in the fields of v1beta1.
func constraintsUp(request, kept object) {
	for _, field := range sliceFields {
		if request[field] != kept[field] {
			return
		}
	}
	restore(request, kept, constraintsField)
}

// topologiesDown writes the topology assignments of an admission as lists of domains. It returns, by pod set, the shapes that
// [assignment.Compress] would not restore.
func topologiesDown(admission object) ([]any, error) {
	var shapes []any
	left := newSpace()
	for _, assignment := range items(admission, "podSetAssignments") {
		shape, err := topologyDown(at(assignment, placesField), left)
		if err != nil {
			return nil, fmt.Errorf("status.admission.podSetAssignments[%v].topologyAssignment: %w", assignment["name"], err)
		}
		if shape != nil {
			shapes = append(shapes, object{"name": assignment["name"], placesField: object{"slices": shape}})
		}
	}
	if text, err := json.Marshal(shapes); err != nil || len(text) > maxShapes {
		return nil, err
	}
	return shapes, nil
}

// topologyDown turns slices into domains, and returns the shape of the slices if topologyUp needs it.
func topologyDown(of object, left *space) (shape any, err error) {
	if _, ok := of["slices"]; !ok {
		return nil, nil
	}
	var written []kueue.TopologyAssignmentSlice
	if err := recode(of["slices"], &written); err != nil {
		return nil, err
	}
	domains, err := expand(written, left)
	if err != nil {
		return nil, err
	}
	delete(of, "slices")
	list := make([]any, len(domains))
	for i, d := range domains {
		values := make([]any, len(d.Values))
		for j, v := range d.Values {
			values[j] = v
		}
		list[i] = object{"values": values, "count": int64(d.Count)}
	}
	of["domains"] = list
	if reflect.DeepEqual(assignment.Compress(domains), written) {
		return nil, nil
	}
	return shape, recode(assignment.ShapeOf(written), &shape)
}

// topologyUp turns domains into slices, in the given shape if they fit into it.
func topologyUp(of object, shape any) error {
	list, ok := of["domains"].([]any)
	if !ok {
		return nil
	}
	var wire []domain
	if recode(list, &wire) != nil {
		return nil //nolint:nilerr // not what the schema of v1beta1 says, which will refuse it better than a conversion can
	}
	levels, _ := of["levels"].([]any)
	if len(levels) > assignment.MaxLevels {
		return fmt.Errorf("levels has %d entries, at most %d are allowed", len(levels), assignment.MaxLevels)
	}
	domains := make([]assignment.Domain, len(wire))
	for i, d := range wire {
		domains[i] = assignment.Domain{Values: d.Values, Count: d.Count}
		if len(d.Values) != len(levels) { // the schema does not check it, because it does not bound the number of domains
			return fmt.Errorf("domains[%d].values must have one entry for each of levels", i)
		}
	}
	var kept []kueue.TopologyAssignmentSlice
	if shape != nil {
		if err := recode(shape, &kept); err != nil {
			return err
		}
	}
	made, fits := assignment.Refill(kept, domains)
	if !fits {
		made = assignment.Compress(domains)
	}
	delete(of, "domains")
	var out any
	err := recode(made, &out)
	of["slices"] = out
	return err
}
