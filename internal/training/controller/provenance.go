package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// provenanceDelay is how long the provenance of a JobSet may stay unrecorded while its pods start: a queue that starts a TrainJob saves
// a write. A manager that starts in the meantime derives it again.
const provenanceDelay = 10 * time.Second

// provenance is what the JobSet is built from: the hashes of the runtime patches. after is the time until the next reconcile, or 0.
type provenance struct {
	hashes map[string]string
	after  time.Duration
}

func (r *reconciler) provenanceOf(obs *observation) *provenance {
	if obs.snapshot == nil || obs.jobset == nil {
		return &provenance{}
	}
	if made := r.memory.appliedJobSet(obs.job); made != nil && made.uid == obs.jobset.UID {
		return &provenance{hashes: made.hashes}
	}
	hashes, _ := patch.BuiltFrom(obs.snapshot.Annotations)
	return &provenance{hashes: hashes}
}

// recordProvenance remembers the provenance of a JobSet that was just applied, and writes it if the JobSet is suspended.
func (r *reconciler) recordProvenance(ctx context.Context, obs *observation, jobset types.UID) (*provenance, error) {
	r.memory.update(obs.job, func(k *known) {
		if k.jobset == nil || k.jobset.uid != jobset || !maps.Equal(k.jobset.hashes, obs.hashes) {
			k.jobset = &appliedJobSet{jobset, obs.hashes, r.o.Now()}
		}
	})
	if plan.IsSuspended(obs.job) {
		return r.writeProvenance(ctx, obs, obs.hashes)
	}
	return r.recordWhenRunning(ctx, obs, obs.hashes)
}

// recordWhenRunning writes the provenance of a JobSet once its pods run, or after provenanceDelay.
func (r *reconciler) recordWhenRunning(ctx context.Context, obs *observation, hashes map[string]string) (*provenance, error) {
	recorded, _ := patch.BuiltFrom(obs.snapshot.Annotations)
	made := r.memory.appliedJobSet(obs.job)
	left := made.at.Add(provenanceDelay).Sub(r.o.Now())
	starting := obs.jobset == nil || (!plan.IsRunning(obs.jobset) && plan.End(obs.jobset) == nil)
	if starting && left > 0 && !maps.Equal(recorded, hashes) {
		return &provenance{hashes, left}, nil
	}
	return r.writeProvenance(ctx, obs, hashes)
}

func (r *reconciler) writeProvenance(ctx context.Context, obs *observation, hashes map[string]string) (*provenance, error) {
	before, _ := patch.BuiltFrom(obs.snapshot.Annotations)
	if maps.Equal(before, hashes) {
		return &provenance{hashes: hashes}, nil
	}
	var value any // nil removes the annotation
	annotations, err := patch.Annotations(hashes)
	if err != nil {
		return nil, err
	}
	if text, ok := annotations[patch.Annotation]; ok {
		value = text
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{patch.Annotation: value}}})
	if err != nil {
		return nil, err
	}
	snapshot := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: obs.snapshot.Namespace, Name: obs.snapshot.Name}}
	if err := r.client.Patch(ctx, snapshot, client.RawPatch(types.MergePatchType, body), fieldOwner); err != nil {
		return &provenance{hashes: before}, fmt.Errorf("annotating ConfigMap %s: %w", obs.snapshot.Name, err)
	}
	return &provenance{hashes: hashes}, nil
}

// deriveProvenance returns the provenance of a JobSet that runs. If the recorded hashes differ from the hashes of the TrainJob, the manager may
// have stopped between applying the JobSet and recording it. The JobSet was built from the present TrainJob if applying it as a dry run
// changes nothing (spec: 50 §4.13.6).
func (r *reconciler) deriveProvenance(ctx context.Context, obs *observation, wanted *unstructured.Unstructured) (*provenance, error) {
	hashes, _ := patch.BuiltFrom(obs.snapshot.Annotations)
	if maps.Equal(hashes, obs.hashes) {
		return &provenance{hashes: hashes}, nil
	}
	if made := r.memory.appliedJobSet(obs.job); made != nil && made.uid == obs.jobset.UID {
		return r.recordWhenRunning(ctx, obs, made.hashes)
	}
	const id = "rederived"
	tried := applied{hash: contentHash(wanted), version: versionOf(obs.jobset)}
	if before, seen := r.memory.lastApplied(obs.job, id); seen && before == tried {
		return &provenance{hashes: hashes}, nil
	}
	trial := wanted.DeepCopy()
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(trial), fieldOwner, client.ForceOwnership, client.DryRunAll)
	refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) // it would change immutable fields
	if err != nil && !refused {
		return &provenance{hashes: hashes}, fmt.Errorf("comparing JobSet %s: %w", obs.jobset.Name, missing(err))
	}
	r.memory.noteApplied(obs.job, id, tried)
	if refused || differs(obs.jobset, trial) {
		return &provenance{hashes: hashes}, nil
	}
	return r.writeProvenance(ctx, obs, obs.hashes)
}

// recordEnded derives the provenance of a JobSet that has ended, and will not be applied again.
func (r *reconciler) recordEnded(ctx context.Context, obs *observation) (*provenance, error) {
	if err := r.observeSnapshot(ctx, obs); err != nil || obs.snapshot == nil {
		return nil, err
	}
	if err := r.draftJobSet(obs); err != nil {
		return nil, err
	}
	objects, err := obs.draft.BuildJobSet()
	if err != nil {
		return nil, err
	}
	u, err := plan.Manifest(objects.JobSet)
	if err != nil {
		return nil, err
	}
	return r.deriveProvenance(ctx, obs, u)
}

func differs(jobset *jobsetv1alpha2.JobSet, trial *unstructured.Unstructured) bool {
	var would jobsetv1alpha2.JobSet
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(trial.Object, &would)
	return err != nil || !equality.Semantic.DeepEqual(would.Spec, jobset.Spec) ||
		!maps.Equal(would.Labels, jobset.Labels) || !maps.Equal(would.Annotations, jobset.Annotations)
}
