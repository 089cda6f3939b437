package patch

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// Limits of status.runtimePatches.
const (
	maxFields    = 64
	maxOverrides = 16
	moreFields   = "…"
)

// Annotation on the snapshot of the runtime has the hashes of the patches that the JobSet was built from, by manager.
const Annotation = "berth.dev/runtime-patches"

// Annotations returns the annotations of a snapshot, or nil without patches.
func Annotations(hashes map[string]string) (map[string]string, error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(hashes)
	if err != nil {
		return nil, fmt.Errorf("hashes of runtime patches: %w", err)
	}
	return map[string]string{Annotation: string(data)}, nil
}

// BuiltFrom returns the hashes in the annotations of a snapshot. ok is false without the annotation.
func BuiltFrom(annotations map[string]string) (hashes map[string]string, ok bool) {
	text, ok := annotations[Annotation]
	if !ok {
		return map[string]string{}, false
	}
	hashes = map[string]string{}
	if json.Unmarshal([]byte(text), &hashes) != nil {
		return map[string]string{}, false
	}
	return hashes, true
}

// Record returns status.runtimePatches (spec: 50 §4.13.6). built are the hashes that the JobSet was built from. Empty entries are omitted.
// Removed entries remain until the JobSet is built without them.
func Record(job *trainerv1alpha1.TrainJob, runtime *trainerv1alpha1.JobSetTemplateSpec, selected Selected, cfg *Config, built map[string]string, now time.Time) []trainerv1alpha1.RuntimePatchStatus {
	patches := job.Spec.RuntimePatches
	if len(patches) == 0 && len(job.Status.RuntimePatches) == 0 {
		return nil
	}
	patches = Expand(patches, selected, runtime)
	lost := overridden(patches, cfg)
	var out []trainerv1alpha1.RuntimePatchStatus
	for i := range patches {
		own := &job.Spec.RuntimePatches[i]
		if isEmpty(own, selected[own.Manager]) && built[own.Manager] == "" {
			continue
		}
		out = append(out, record(job, own, &patches[i], Hash(own, selected[own.Manager]), built[own.Manager], lost[own.Manager], now))
	}
	for _, s := range job.Status.RuntimePatches {
		if built[s.Manager] != "" && patchOf(patches, s.Manager) == nil {
			s.State, s.Message = trainerv1alpha1.RuntimePatchPending, "The entry was removed, and the JobSet still has it"
			out = append(out, s)
		}
	}
	return out
}

// record returns the status of one entry. hash is that of the entry, built that of the JobSet's.
func record(
	job *trainerv1alpha1.TrainJob, own, expanded *trainerv1alpha1.RuntimePatch, hash, built string,
	lost []trainerv1alpha1.RuntimePatchOverride, now time.Time,
) trainerv1alpha1.RuntimePatchStatus {
	before := trainerv1alpha1.RuntimePatchStatus{Manager: own.Manager}
	for i := range job.Status.RuntimePatches {
		if job.Status.RuntimePatches[i].Manager == own.Manager {
			before = *job.Status.RuntimePatches[i].DeepCopy()
		}
	}
	if hash != built {
		before.State, before.Message = trainerv1alpha1.RuntimePatchPending, "The JobSet is not built from this content yet"
		if built == "" {
			before.Hash, before.AppliedTime, before.ObservedTime, before.Fields, before.OverriddenBy = "", nil, nil, nil, nil
		}
		return before
	}
	s := trainerv1alpha1.RuntimePatchStatus{
		Manager: own.Manager, State: trainerv1alpha1.RuntimePatchApplied, Hash: hash, AppliedTime: before.AppliedTime, ObservedTime: own.Time.DeepCopy(),
		Fields: fields(expanded),
	}
	if before.Hash != hash || s.AppliedTime == nil {
		s.AppliedTime = &metav1.Time{Time: now.UTC().Truncate(time.Second)}
	}
	if len(lost) > 0 {
		s.State = trainerv1alpha1.RuntimePatchOverridden
		s.Message = fmt.Sprintf("Other managers' entries replaced %d of its fields", len(lost))
		s.OverriddenBy = lost[:min(len(lost), maxOverrides)]
	}
	return s
}

func fields(p *trainerv1alpha1.RuntimePatch) []string {
	var out []string
	for _, l := range leavesOf(p) {
		switch {
		case slices.Contains(out, l.path):
		case len(out) == maxFields:
			return append(out, moreFields)
		default:
			out = append(out, l.path)
		}
	}
	return out
}
