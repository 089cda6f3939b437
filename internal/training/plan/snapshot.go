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

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// Runtime is a runtime of either kind. TypeMeta.Kind says which.
type Runtime trainerv1alpha1.ClusterTrainingRuntime

// ClusterRuntime takes a ClusterTrainingRuntime for a Runtime. It is not copied.
func ClusterRuntime(r *trainerv1alpha1.ClusterTrainingRuntime) *Runtime {
	out := Runtime(*r)
	out.TypeMeta = metav1.TypeMeta{APIVersion: trainerv1alpha1.GroupVersion.String(), Kind: trainerv1alpha1.KindClusterTrainingRuntime}
	return &out
}

// NamespacedRuntime takes a TrainingRuntime for a Runtime. It is not copied.
func NamespacedRuntime(r *trainerv1alpha1.TrainingRuntime) *Runtime {
	return &Runtime{
		TypeMeta:   metav1.TypeMeta{APIVersion: trainerv1alpha1.GroupVersion.String(), Kind: trainerv1alpha1.KindTrainingRuntime},
		ObjectMeta: r.ObjectMeta, Spec: r.Spec,
	}
}

// RefKind is the group and the kind of the runtime that a TrainJob names.
func RefKind(ref *trainerv1alpha1.RuntimeRef) (group, kind string) {
	group, kind = trainerv1alpha1.GroupVersion.Group, trainerv1alpha1.KindClusterTrainingRuntime
	if ref.APIGroup != nil {
		group = *ref.APIGroup
	}
	if ref.Kind != nil {
		kind = *ref.Kind
	}
	return group, kind
}

// IsSupported reports whether the kind of runtime is one of ours.
func IsSupported(ref *trainerv1alpha1.RuntimeRef) bool {
	group, kind := RefKind(ref)
	return group == trainerv1alpha1.GroupVersion.Group && (kind == trainerv1alpha1.KindClusterTrainingRuntime || kind == trainerv1alpha1.KindTrainingRuntime)
}

const (
	// SnapshotKey is the key of the runtime in its snapshot.
	SnapshotKey = "runtime"
	// maxSnapshot is how many bytes of runtime fit into a ConfigMap with room to spare.
	maxSnapshot = 900 << 10
)

// Snapshot makes the ConfigMap that keeps the runtime as it is for the life of the TrainJob (spec: 50 §4.3). The patches'
// hashes go into its annotation, if there are any.
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

// IsOfEarlier reports whether an object was made for an earlier TrainJob of the same name and namespace. It may be deleted: its owner
// does not exist any more.
func IsOfEarlier(job *trainerv1alpha1.TrainJob, object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == trainerv1alpha1.KindTrainJob && owner.Name == job.Name && owner.UID != job.UID
}

// Errors of ReadSnapshot.
var (
	// ErrForeign says that a snapshot belongs to an object that is not this TrainJob.
	ErrForeign = errors.New("belongs to another object")
	// ErrUnproven says that the status of the TrainJob does not confirm who wrote the snapshot. Such a snapshot counts only if it
	// equals the one that would be made now.
	ErrUnproven = errors.New("does not hold the runtime that the status of the TrainJob records")
)

// SnapshotHash identifies the content of a snapshot in status.runtimeSnapshot.
func SnapshotHash(snapshot *corev1.ConfigMap) string {
	sum := sha256.Sum256([]byte(snapshot.Data[SnapshotKey]))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// confirms reports whether a status says that the manager wrote a snapshot with this hash. Only the manager writes the status. One
// that records no snapshot although it has been written comes from a version that recorded none: its snapshot is accepted, and
// recorded from then on.
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

// ReadSnapshot reads the runtime from the snapshot of a TrainJob. It refuses a snapshot of another TrainJob or runtime (ErrForeign)
// and one that the TrainJob's status does not confirm (ErrUnproven).
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
