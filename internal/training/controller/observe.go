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
	job    *trainerv1alpha1.TrainJob
	jobset *jobsetv1alpha2.JobSet // nil if there is none
	gone   *gone                  // how the last one ended, if it was deleted
	// runtime is the one to build from; snapshot is the ConfigMap that keeps it, without its content, nil if it must be made.
	runtime  *plan.Runtime
	snapshot *metav1.PartialObjectMetadata
	// hash is that of the snapshot's content, empty if the snapshot was not read or must be made.
	hash string
	// hashes are those of the runtime patches that the TrainJob has now.
	hashes map[string]string
	// draft is the JobSet of job and runtime, drafted once: the size, the fit and the plan are all of this draft.
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

// gather reads the TrainJob and its JobSet. A TrainJob that is gone, or that is not ours, is nil.
func (r *reconciler) gather(ctx context.Context, key types.NamespacedName) (*observation, error) {
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
	case err == nil:
		obs.jobset = jobset
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading JobSet %s: %w", key, err)
	}
	if obs.jobset == nil {
		r.memory.use(obs.job, func(k *known) { obs.gone = k.gone })
	}
	obs.hashes = patch.Hashes(obs.job.Spec.RuntimePatches, patch.SelectedOf(obs.job))
	return obs, nil
}

// errWait says that the world must change first, and that it will bring its own event.
var errWait = errors.New("waiting")

// errUncollected is a wait that no event ends: the Secret of an earlier TrainJob of the same name is not garbage-collected yet.
var errUncollected = fmt.Errorf("%w for the garbage collector", errWait)

// observeRuntime reads the runtime that the TrainJob began with; without a snapshot the live one (spec: 50 §4.3). It drafts the JobSet.
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

// observeSnapshot reads the snapshot, if there is one and the store does not have it. One that an earlier TrainJob
// of the same name left behind is deleted.
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
		if err := r.client.Delete(ctx, &snapshot, client.Preconditions{UID: &snapshot.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ConfigMap %s of an earlier TrainJob: %w", key, err)
		}
		return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name) // look again
	}
	obs.runtime, err = plan.ReadSnapshot(obs.job, &snapshot)
	if errors.Is(err, plan.ErrUnproven) {
		obs.runtime, err = r.prove(ctx, obs.job, &snapshot)
	}
	if err != nil {
		return err
	}
	obs.snapshot = metadataOf(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	obs.snapshot.ObjectMeta, obs.hash = snapshot.ObjectMeta, plan.SnapshotHash(&snapshot)
	r.noteSnapshot(obs)
	return nil
}

// noteSnapshot remembers what the snapshot holds.
func (r *reconciler) noteSnapshot(obs *observation) {
	r.o.Runtimes.AddSnapshot(obs.hash, obs.runtime)
	r.memory.noteSnapshot(obs.job, obs.snapshot.UID, obs.hash)
}

// prove accepts a snapshot that the status does not confirm if it holds the live runtime: the manager may have died between the
// snapshot and the status. Any other was not written by the manager, and is deleted so that it is made again.
func (r *reconciler) prove(ctx context.Context, job *trainerv1alpha1.TrainJob, snapshot *corev1.ConfigMap) (*plan.Runtime, error) {
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

// observeInputs reads and generates what the plan needs besides the runtime.
func (r *reconciler) observeInputs(ctx context.Context, obs *observation) (keys plan.Keys, overheads map[string]corev1.ResourceList, err error) {
	if keys, err = r.keys(ctx, obs); err != nil {
		return keys, nil, err
	}
	overheads, err = r.overheads(ctx, obs.runtime)
	return keys, overheads, err
}

// keys makes the keys of Secrets that do not exist yet, and reads the authority of the progress server.
func (r *reconciler) keys(ctx context.Context, obs *observation) (keys plan.Keys, err error) {
	policy := obs.runtime.Spec.MLPolicy
	if policy != nil && policy.MPI != nil {
		missing, err := r.lacks(ctx, obs.job, trainerv1alpha1.SuffixMPISSHAuth)
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
		missing, err := r.lacks(ctx, obs.job, trainerv1alpha1.SuffixFluxCurve)
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
		keys.CA, err = r.authority(ctx)
	}
	return keys, err
}

// authority reads the certificate with which pods check the progress server's.
func (r *reconciler) authority(ctx context.Context) ([]byte, error) {
	var secret corev1.Secret
	if err := r.live.Get(ctx, r.o.CA, &secret); err != nil {
		return nil, fmt.Errorf("reading the authority of the progress server, Secret %s: %w", r.o.CA, err)
	}
	ca := secret.Data["ca.crt"]
	if len(ca) == 0 {
		return nil, fmt.Errorf("the authority of the progress server: Secret %s has no key ca.crt", r.o.CA)
	}
	return ca, nil
}

// lacks reports whether a Secret of the TrainJob is missing. One of an earlier TrainJob is in the way until Kubernetes collects
// it: the manager may not delete Secrets (docs/rights.md).
func (r *reconciler) lacks(ctx context.Context, job *trainerv1alpha1.TrainJob, suffix string) (bool, error) {
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

// overheads reads the overheads of the RuntimeClasses that the runtime names, which only pod groups need.
func (r *reconciler) overheads(ctx context.Context, runtime *plan.Runtime) (map[string]corev1.ResourceList, error) {
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

// finished reports whether a JobSet or what is known of it has come to an end.
func (obs *observation) finished() bool {
	return plan.IsFinished(obs.job) || (obs.jobset != nil && plan.End(obs.jobset) != nil) || (obs.gone != nil && obs.gone.end != nil)
}

// ignoreNoMatch drops errors about kinds that the API server does not have.
func ignoreNoMatch(err error) error {
	if apimeta.IsNoMatchError(err) {
		return nil
	}
	return err
}
