package conversion

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// KeptAnnotation is on the v1beta1 form of an object and holds, as JSON, the v1beta2 fields that v1beta1 lacks, at their v1beta2 paths.
// It is never stored: it is made when an object is read as v1beta1 and removed when one is written. A client that removes it removes
// those fields.
const KeptAnnotation = "berth.dev/v1beta2-fields"

// maxShapes bounds the kept encoding of topology assignments, in bytes: an object may have 256 KiB of annotations. Without the shape the
// same domains are encoded differently.
const maxShapes = 96 << 10

// takeKept removes the annotation and returns its content.
func takeKept(o object) (object, error) {
	text, ok := at(o, "metadata", "annotations")[KeptAnnotation].(string)
	dropKept(o)
	if !ok {
		return nil, nil
	}
	var kept object
	err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &kept)
	if err == nil {
		err = check([]byte(text))
	}
	if err != nil {
		return nil, fmt.Errorf("metadata.annotations[%s]: %w; leave it as it was read, or remove it together with the v1beta2 fields that it keeps",
			KeptAnnotation, err)
	}
	return kept, nil
}

func dropKept(o object) {
	metadata := at(o, "metadata")
	annotations := at(metadata, "annotations")
	if _, ok := annotations[KeptAnnotation]; !ok {
		return
	}
	delete(annotations, KeptAnnotation)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}

// putKept adds the annotation if kept has fields.
func putKept(o, kept object) error {
	if len(kept) == 0 {
		return nil
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	for _, key := range []string{"metadata", "annotations"} {
		if at(o, key) == nil {
			o[key] = object{}
		}
		o = at(o, key)
	}
	o[KeptAnnotation] = string(text)
	return nil
}

// keptFields is everything that the annotation may hold, over all kinds.
type keptFields struct {
	Spec struct {
		ConcurrentAdmissionPolicy *kueue.ConcurrentAdmissionPolicy `json:"concurrentAdmissionPolicy"`
		QuotaManagement           *kueue.QuotaManagement           `json:"quotaManagement"`
		PreemptionGates           []kueue.PreemptionGate           `json:"preemptionGates"`
		PodSets                   []struct {
			Name            kueue.PodSetReference       `json:"name"`
			TopologyRequest kueue.PodSetTopologyRequest `json:"topologyRequest"`
		} `json:"podSets"`
	} `json:"spec"`
	Status struct {
		PreemptionGates []kueue.PreemptionGateState `json:"preemptionGates"`
		Admission       struct {
			PodSetAssignments []struct {
				Name               kueue.PodSetReference `json:"name"`
				TopologyAssignment struct {
					Slices []kueue.TopologyAssignmentSlice `json:"slices"`
				} `json:"topologyAssignment"`
			} `json:"podSetAssignments"`
		} `json:"admission"`
	} `json:"status"`
}

// check enforces the bounds of v1beta2 on kept fields. The API server validates an object only in the version in which it was written.
func check(text []byte) error {
	var f keptFields
	strict, err := kjson.UnmarshalStrict(text, &f)
	if err := errors.Join(append(strict, err)...); err != nil {
		return err
	}
	var gates []string
	for _, gate := range f.Spec.PreemptionGates {
		gates = append(gates, gate.Name)
	}
	if err := checkGates("spec.preemptionGates", gates); err != nil {
		return err
	}
	gates = nil
	for _, gate := range f.Status.PreemptionGates {
		gates = append(gates, gate.Name)
		if gate.Position != kueue.PreemptionGateClosed && gate.Position != kueue.PreemptionGateOpen {
			return fmt.Errorf("status.preemptionGates[%s].position is %q, want Closed or Open", gate.Name, gate.Position)
		}
	}
	if err := checkGates("status.preemptionGates", gates); err != nil {
		return err
	}
	for _, podSet := range f.Spec.PodSets {
		if err := checkLayers(podSet.TopologyRequest.PodSetSliceRequiredTopologyConstraints); err != nil {
			return fmt.Errorf("spec.podSets[%s].topologyRequest.%s%w", podSet.Name, constraintsField, err)
		}
	}
	if q := f.Spec.QuotaManagement; q != nil && *q != kueue.QuotaManagementManual && *q != kueue.QuotaManagementAutomated {
		return fmt.Errorf("spec.quotaManagement is %q, want Manual or Automated", *q)
	}
	return checkPolicy(f.Spec.ConcurrentAdmissionPolicy)
}

func checkGates(field string, names []string) error {
	seen := map[string]bool{}
	for _, name := range names {
		if len(name) < 1 || len(name) > 63 || seen[name] || len(names) > 8 {
			return fmt.Errorf("%s must hold at most 8 gates, each with a name of its own of 1 to 63 characters", field)
		}
		seen[name] = true
	}
	return nil
}

func checkLayers(layers []kueue.PodSetSliceTopologyConstraint) error {
	if len(layers) > 3 {
		return fmt.Errorf(" has %d entries, at most 3 are allowed", len(layers))
	}
	for i, layer := range layers {
		if len(layer.Topology) < 1 || len(layer.Topology) > 63 || layer.Size < 1 {
			return fmt.Errorf("[%d]: topology must have 1 to 63 characters and size be at least 1", i)
		}
	}
	return nil
}

func checkPolicy(p *kueue.ConcurrentAdmissionPolicy) error {
	if p == nil {
		return nil
	}
	const field = "spec.concurrentAdmissionPolicy.migration"
	if m := p.Migration.Mode; m != kueue.TryPreferredFlavors && m != kueue.RetainFirstAdmission {
		return fmt.Errorf("%s.mode is %q, want TryPreferredFlavors or RetainFirstAdmission", field, m)
	}
	if c := p.Migration.Constraints; c != nil && c.LastAcceptableFlavorName != "" {
		if problems := validation.IsDNS1123Subdomain(string(c.LastAcceptableFlavorName)); len(problems) > 0 {
			return fmt.Errorf("%s.constraints.lastAcceptableFlavorName: %s", field, problems[0])
		}
	}
	return nil
}
