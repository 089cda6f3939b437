package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// observation is the state that one reconcile of a TrainJob acts on, read at its start.
type observation struct {
	job     *trainerv1alpha1.TrainJob
	jobset  *jobsetv1alpha2.JobSet // of the TrainJob, nil if there is none
	foreign *jobsetv1alpha2.JobSet // of the TrainJob's name, which the TrainJob does not control
	deleted *deletedJobSet         // the last JobSet, if it was deleted
	// overdue reports that the deadline has passed, although the stored status does not have it: no object is applied any more, and this
	// controller may have deleted the JobSet.
	overdue bool
	// runtime is the runtime of the snapshot, or the live one. snapshot is the metadata of the ConfigMap, nil if it does not exist.
	runtime  *plan.Runtime
	snapshot *metav1.PartialObjectMetadata
	// hash is the hash of the snapshot's content, or empty.
	hash string
	// hashes are the hashes of the present runtime patches of the TrainJob.
	hashes map[string]string
	// draft is the JobSet of job and runtime. It is drafted once: size, fit and plan come from this draft.
	draft *plan.Draft
}

// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs,verbs=get;list;watch,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs/status,verbs=patch,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs/finalizers,verbs=update,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes;clustertrainingruntimes,verbs=get;list;watch;patch,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=create;delete;get;list;watch;patch,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=create;delete;get;patch,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;get,roleName=kueue-manager-training-secrets-role
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch,roleName=kueue-manager-training-role
// +kubebuilder:rbac:groups=scheduling.x-k8s.io;scheduling.volcano.sh,resources=podgroups,verbs=create;get;list;watch;patch,roleName=kueue-manager-training-role

// observe reads the TrainJob and its JobSet. A TrainJob that does not exist, or has another manager, is nil.
func (r *reconciler) observe(ctx context.Context, key types.NamespacedName) (*observation, error) {
	obs := &observation{job: &trainerv1alpha1.TrainJob{}}
	if err := r.client.Get(ctx, key, obs.job); err != nil {
		obs.job = nil
		if apierrors.IsNotFound(err) {
			r.memory.forget(key)
		}
		return obs, client.IgnoreNotFound(err)
	}
	if !plan.IsOurs(obs.job) {
		obs.job = nil
		return obs, nil
	}
	jobset := &jobsetv1alpha2.JobSet{}
	switch err := r.client.Get(ctx, key, jobset); {
	case err == nil && metav1.IsControlledBy(jobset, obs.job):
		obs.jobset = jobset
	case err == nil:
		obs.foreign = jobset
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading JobSet %s: %w", key, err)
	}
	if obs.jobset == nil {
		r.memory.update(obs.job, func(k *known) { obs.deleted = k.deleted })
	}
	obs.hashes = patch.Hashes(obs.job.Spec.RuntimePatches, patch.SelectedOf(obs.job))
	return obs, nil
}

// errWait ends a reconcile that the next event about the TrainJob or its objects continues.
var errWait = errors.New("waiting")

// errUncollected waits for the garbage collector, which causes no event: a Secret belongs to an earlier TrainJob of the same name.
var errUncollected = fmt.Errorf("%w for the garbage collector", errWait)

// observeRuntime reads the runtime of the snapshot, or the live one if there is no snapshot (spec: 50 §4.3), and drafts the JobSet.
func (r *reconciler) observeRuntime(ctx context.Context, obs *observation) error {
	if err := r.observeSnapshot(ctx, obs); err != nil {
		return err
	}
	if obs.runtime == nil {
		var err error
		if obs.runtime, err = r.o.Runtimes.Live(ctx, obs.job); err != nil {
			return err
		}
	}
	if obs.runtime == nil {
		_, kind := plan.RefKind(&obs.job.Spec.RuntimeRef)
		return fmt.Errorf("%s %s does not exist", kind, obs.job.Spec.RuntimeRef.Name)
	}
	return r.draftJobSet(obs)
}

func (r *reconciler) draftJobSet(obs *observation) (err error) {
	obs.draft, err = r.newDraft(&plan.Input{TrainJob: obs.job, Runtime: obs.runtime, Config: r.o.Config})
	return err
}

// observeSnapshot reads the snapshot, if it exists; its content only if the store does not have it. The snapshot of an earlier TrainJob of the
// same name is deleted.
func (r *reconciler) observeSnapshot(ctx context.Context, obs *observation) error {
	key := types.NamespacedName{Namespace: obs.job.Namespace, Name: obs.job.Name + trainerv1alpha1.SuffixRuntimeSnapshot}
	meta := metadataOf(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := r.live.Get(ctx, key, meta)
	if err == nil && metav1.IsControlledBy(meta, obs.job) {
		hash := r.memory.snapshotHash(obs.job, meta.UID)
		if known := r.o.Runtimes.Snapshot(hash); known != nil {
			obs.runtime, obs.snapshot, obs.hash = known, meta, hash
			return nil
		}
	}
	var snapshot corev1.ConfigMap
	if err == nil {
		err = r.live.Get(ctx, key, &snapshot)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	if plan.IsOfEarlier(obs.job, &snapshot) {
		if snapshot.DeletionTimestamp != nil {
			return fmt.Errorf("ConfigMap %s belongs to an earlier TrainJob of this name: waiting until it is deleted", key)
		}
		if err := r.client.Delete(ctx, &snapshot, client.Preconditions{UID: &snapshot.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ConfigMap %s of an earlier TrainJob: %w", key, err)
		}
		return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name) // retry
	}
	obs.runtime, err = plan.ReadSnapshot(obs.job, &snapshot)
	if errors.Is(err, plan.ErrUnproven) {
		obs.runtime, err = r.acceptUnproven(ctx, obs.job, &snapshot)
	}
	if err != nil {
		return err
	}
	obs.snapshot = metadataOf(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	obs.snapshot.ObjectMeta, obs.hash = snapshot.ObjectMeta, plan.SnapshotHash(&snapshot)
	r.noteSnapshot(obs)
	return nil
}

func (r *reconciler) noteSnapshot(obs *observation) {
	r.o.Runtimes.AddSnapshot(obs.hash, obs.runtime)
	r.memory.noteSnapshot(obs.job, obs.snapshot.UID, obs.hash)
}

// acceptUnproven accepts a snapshot that the status does not confirm if it holds the live runtime: the manager may have stopped between
// the snapshot and the status. Any other snapshot was not written by the manager, and is deleted.
func (r *reconciler) acceptUnproven(ctx context.Context, job *trainerv1alpha1.TrainJob, snapshot *corev1.ConfigMap) (*plan.Runtime, error) {
	runtime, err := r.o.Runtimes.Live(ctx, job)
	if err != nil {
		return nil, err
	}
	if runtime != nil {
		wanted, err := plan.Snapshot(job, runtime, nil)
		if err != nil {
			return nil, err
		}
		if plan.SnapshotHash(wanted) == plan.SnapshotHash(snapshot) {
			return runtime, nil
		}
	}
	if err := r.client.Delete(ctx, snapshot, client.Preconditions{UID: &snapshot.UID}); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("deleting ConfigMap %s/%s: %w", snapshot.Namespace, snapshot.Name, err)
	}
	return nil, fmt.Errorf("ConfigMap %s %w; it is deleted and made again from the runtime: find out who may write ConfigMaps here",
		snapshot.Name, plan.ErrUnproven)
}

func (r *reconciler) observeInputs(ctx context.Context, obs *observation) (keys plan.Keys, overheads map[string]corev1.ResourceList, err error) {
	if keys, err = r.observeKeys(ctx, obs); err != nil {
		return keys, nil, err
	}
	overheads, err = r.observeOverheads(ctx, obs.runtime)
	return keys, overheads, err
}

// observeKeys generates keys for Secrets that do not exist, and reads the certificate authority of the progress server.
func (r *reconciler) observeKeys(ctx context.Context, obs *observation) (keys plan.Keys, err error) {
	policy := obs.runtime.Spec.MLPolicy
	if policy != nil && policy.MPI != nil {
		missing, err := r.isSecretMissing(ctx, obs.job, trainerv1alpha1.SuffixMPISSHAuth)
		if err != nil {
			return keys, err
		}
		if missing {
			if keys.SSHPrivate, keys.SSHPublic, err = sshKeys(); err != nil {
				return keys, err
			}
		}
	}
	if policy != nil && policy.Flux != nil {
		missing, err := r.isSecretMissing(ctx, obs.job, trainerv1alpha1.SuffixFluxCurve)
		if err != nil {
			return keys, err
		}
		if missing {
			if keys.CurvePublic, keys.CurveSecret, err = curveKeys(); err != nil {
				return keys, err
			}
		}
	}
	if r.o.Config.Progress != nil {
		keys.CA, err = r.progressCA(ctx)
	}
	return keys, err
}

func (r *reconciler) progressCA(ctx context.Context) ([]byte, error) {
	var secret corev1.Secret
	if err := r.live.Get(ctx, r.o.CA, &secret); err != nil {
		return nil, fmt.Errorf("reading the authority of the progress server, Secret %s: %w", r.o.CA, missing(err))
	}
	ca := secret.Data["ca.crt"]
	if len(ca) == 0 {
		return nil, fmt.Errorf("the authority of the progress server: Secret %s has no key ca.crt", r.o.CA)
	}
	return ca, nil
}

// isSecretMissing reports whether a Secret of the TrainJob has to be created. A Secret of an earlier TrainJob of the same name is
// errUncollected: the manager may not delete Secrets (docs/rights.md).
func (r *reconciler) isSecretMissing(ctx context.Context, job *trainerv1alpha1.TrainJob, suffix string) (bool, error) {
	key := client.ObjectKey{Namespace: job.Namespace, Name: job.Name + suffix}
	meta := metadataOf(corev1.SchemeGroupVersion.WithKind("Secret"))
	switch err := r.live.Get(ctx, key, meta); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	if metav1.IsControlledBy(meta, job) {
		return false, nil
	}
	if !plan.IsOfEarlier(job, meta) {
		return false, fmt.Errorf("the TrainJob needs Secret %s, which belongs to another object; delete it", key)
	}
	return false, errUncollected
}

func (r *reconciler) observeOverheads(ctx context.Context, runtime *plan.Runtime) (map[string]corev1.ResourceList, error) {
	out := map[string]corev1.ResourceList{}
	if runtime.Spec.PodGroupPolicy == nil {
		return out, nil
	}
	for i := range runtime.Spec.Template.Spec.ReplicatedJobs {
		name := runtime.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.RuntimeClassName
		if name == nil {
			continue
		}
		var class nodev1.RuntimeClass
		if err := r.client.Get(ctx, client.ObjectKey{Name: *name}, &class); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading RuntimeClass %s: %w", *name, err)
		}
		if class.Overhead != nil {
			out[*name] = class.Overhead.PodFixed
		}
	}
	return out, nil
}

func (obs *observation) isFinished() bool {
	return plan.IsFinished(obs.job) || (obs.jobset != nil && plan.End(obs.jobset) != nil) || (obs.deleted != nil && obs.deleted.end != nil)
}

func ignoreNoMatch(err error) error {
	if apimeta.IsNoMatchError(err) {
		return nil
	}
	return err
}
