package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// Runtime is a TrainingRuntime or ClusterTrainingRuntime, as TypeMeta.Kind says.
type Runtime trainerv1alpha1.ClusterTrainingRuntime

// ClusterRuntime converts a ClusterTrainingRuntime, without a deep copy.
func ClusterRuntime(r *trainerv1alpha1.ClusterTrainingRuntime) *Runtime {
	out := Runtime(*r)
	out.TypeMeta = metav1.TypeMeta{APIVersion: trainerv1alpha1.GroupVersion.String(), Kind: trainerv1alpha1.KindClusterTrainingRuntime}
	return &out
}

// NamespacedRuntime converts a TrainingRuntime, without a deep copy.
func NamespacedRuntime(r *trainerv1alpha1.TrainingRuntime) *Runtime {
	return &Runtime{
		TypeMeta:   metav1.TypeMeta{APIVersion: trainerv1alpha1.GroupVersion.String(), Kind: trainerv1alpha1.KindTrainingRuntime},
		ObjectMeta: r.ObjectMeta, Spec: r.Spec,
	}
}

// RefKind returns the group and kind of a reference, with their defaults.
func RefKind(ref *trainerv1alpha1.RuntimeRef) (group, kind string) {
	return ptr.Deref(ref.APIGroup, trainerv1alpha1.GroupVersion.Group), ptr.Deref(ref.Kind, trainerv1alpha1.KindClusterTrainingRuntime)
}

// IsSupported reports whether the group and kind of a reference denote training runtimes.
func IsSupported(ref *trainerv1alpha1.RuntimeRef) bool {
	group, kind := RefKind(ref)
	return group == trainerv1alpha1.GroupVersion.Group && (kind == trainerv1alpha1.KindClusterTrainingRuntime || kind == trainerv1alpha1.KindTrainingRuntime)
}

const (
	// SnapshotKey is the key of the runtime in the ConfigMap.
	SnapshotKey = "runtime"
	// maxSnapshot limits the encoded runtime, in bytes, so that it fits into a ConfigMap.
	maxSnapshot = 900 << 10
)

// Snapshot returns the ConfigMap that stores the runtime for the life of the TrainJob (spec: 50 §4.3). hashes are the hashes of the
// runtime patches, for its annotation.
func Snapshot(job *trainerv1alpha1.TrainJob, r *Runtime, hashes map[string]string) (*corev1.ConfigMap, error) {
	kept := *r
	kept.ObjectMeta = *r.ObjectMeta.DeepCopy()
	kept.ManagedFields, kept.ResourceVersion = nil, ""
	data, err := json.Marshal(&kept)
	if err != nil {
		return nil, fmt.Errorf("runtime %s: %w", r.Name, err)
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("runtime %s: %w", r.Name, err)
	}
	encoder := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, nil, nil, serializer.SerializerOptions{Yaml: true})
	var text bytes.Buffer
	if err := encoder.Encode(&unstructured.Unstructured{Object: object}, &text); err != nil {
		return nil, fmt.Errorf("runtime %s: %w", r.Name, err)
	}
	if text.Len() > maxSnapshot {
		return nil, fmt.Errorf("runtime %s is too large to be kept for the TrainJob: %d bytes, and at most %d are possible; make it smaller", r.Name, text.Len(), maxSnapshot)
	}
	annotations, err := patch.Annotations(hashes)
	if err != nil {
		return nil, err
	}
	return &corev1.ConfigMap{
		TypeMeta: typeMeta("ConfigMap"),
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name + trainerv1alpha1.SuffixRuntimeSnapshot, Namespace: job.Namespace, OwnerReferences: []metav1.OwnerReference{Owner(job)},
			Annotations: annotations,
		},
		Immutable: new(true),
		Data:      map[string]string{SnapshotKey: text.String()},
	}, nil
}

// IsOfEarlier reports whether an object belongs to an earlier TrainJob of the same name and namespace, so that it may be deleted.
func IsOfEarlier(job *trainerv1alpha1.TrainJob, object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == trainerv1alpha1.KindTrainJob && owner.Name == job.Name && owner.UID != job.UID
}

// Errors of ReadSnapshot.
var (
	// ErrForeign: the snapshot belongs to another object.
	ErrForeign = errors.New("belongs to another object")
	// ErrUnproven: the status of the TrainJob does not confirm that the manager wrote the snapshot. It is accepted only if it equals the
	// snapshot that the manager would write now.
	ErrUnproven = errors.New("does not hold the runtime that the status of the TrainJob records")
)

// SnapshotHash returns the hash of a snapshot's content for status.runtimeSnapshot.
func SnapshotHash(snapshot *corev1.ConfigMap) string {
	sum := sha256.Sum256([]byte(snapshot.Data[SnapshotKey]))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// confirms reports whether the status, which only the manager writes, records a snapshot with this hash. Versions that record no snapshot
// have written a status without one: their snapshots are accepted.
func confirms(s *trainerv1alpha1.TrainJobStatus, hash string) bool {
	if s.RuntimeSnapshot == nil {
		return WasWritten(s)
	}
	return s.RuntimeSnapshot.Hash == hash
}

// WasWritten reports whether the training controller has written a status before.
func WasWritten(s *trainerv1alpha1.TrainJobStatus) bool {
	return s.RuntimeSnapshot != nil || len(s.Conditions) > 0 || len(s.JobsStatus) > 0 || len(s.RuntimePatches) > 0
}

// ReadSnapshot returns the runtime of a snapshot. Errors: ErrForeign, ErrUnproven, or a content that cannot be read or is another runtime.
func ReadSnapshot(job *trainerv1alpha1.TrainJob, snapshot *corev1.ConfigMap) (*Runtime, error) {
	owner := metav1.GetControllerOf(snapshot)
	if owner == nil || owner.UID != job.UID {
		return nil, fmt.Errorf("ConfigMap %s %w; delete it", snapshot.Name, ErrForeign)
	}
	text, ok := snapshot.Data[SnapshotKey]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s has no key %s; delete it to have it made again", snapshot.Name, SnapshotKey)
	}
	if !confirms(&job.Status, SnapshotHash(snapshot)) {
		return nil, fmt.Errorf("ConfigMap %s %w", snapshot.Name, ErrUnproven)
	}
	r := &Runtime{}
	if err := yaml.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("ConfigMap %s, key %s: %w", snapshot.Name, SnapshotKey, err)
	}
	if !r.IsOf(job) {
		group, kind := RefKind(&job.Spec.RuntimeRef)
		return nil, fmt.Errorf("ConfigMap %s holds %s %s %s, and the TrainJob names %s %s of group %s", snapshot.Name, r.APIVersion, r.Kind, r.Name, kind, job.Spec.RuntimeRef.Name, group)
	}
	return r, nil
}

// IsOf reports whether the TrainJob names the runtime.
func (r *Runtime) IsOf(job *trainerv1alpha1.TrainJob) bool {
	group, kind := RefKind(&job.Spec.RuntimeRef)
	return group == trainerv1alpha1.GroupVersion.Group && r.APIVersion == trainerv1alpha1.GroupVersion.String() && r.Kind == kind &&
		r.Name == job.Spec.RuntimeRef.Name
}
