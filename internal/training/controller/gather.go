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
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/training/plan"
)

// world is what was found about one TrainJob.
type world struct {
	job    *trainerv1alpha1.TrainJob
	jobset *jobsetv1alpha2.JobSet // nil if there is none
	gone   *gone                  // how the last one ended, if it was deleted
	// runtime is the one to build from; snapshot is the ConfigMap that keeps it, without its content, nil if it must be made.
	runtime  *plan.Runtime
	snapshot *metav1.PartialObjectMetadata
	// hash is that of the snapshot's content, empty if the snapshot was not read or must be made.
	hash string
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
func (r *reconciler) gather(ctx context.Context, key types.NamespacedName) (*world, error) {
	w := &world{job: &trainerv1alpha1.TrainJob{}}
	if err := r.client.Get(ctx, key, w.job); err != nil {
		w.job = nil
		if apierrors.IsNotFound(err) {
			r.memory.forget(key)
		}
		return w, client.IgnoreNotFound(err)
	}
	if !plan.IsOurs(w.job) {
		w.job = nil
		return w, nil
	}
	jobset := &jobsetv1alpha2.JobSet{}
	switch err := r.client.Get(ctx, key, jobset); {
	case err == nil:
		w.jobset = jobset
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading JobSet %s: %w", key, err)
	}
	if w.jobset == nil {
		r.memory.use(w.job, func(k *known) { w.gone = k.gone })
	}
	return w, nil
}

// errWait says that the world must change first, and that it will bring its own event.
var errWait = errors.New("waiting")

// errUncollected is a wait that no event ends: the Secret of an earlier TrainJob of the same name is not garbage-collected yet.
var errUncollected = fmt.Errorf("%w for the garbage collector", errWait)

// findRuntime reads the runtime that the TrainJob began with; without a snapshot the live one (spec: 50 §4.3).
func (r *reconciler) findRuntime(ctx context.Context, w *world) error {
	if err := r.readSnapshot(ctx, w); err != nil || w.runtime != nil {
		return err
	}
	var err error
	if w.runtime, err = lookup.FindRuntime(ctx, w.job, r.client, r.live); err != nil {
		return err
	}
	if w.runtime == nil {
		_, kind := plan.RefKind(&w.job.Spec.RuntimeRef)
		return fmt.Errorf("%s %s does not exist", kind, w.job.Spec.RuntimeRef.Name)
	}
	return nil
}

// readSnapshot reads the snapshot, if there is one and it is not the one that was read before. One that an earlier TrainJob
// of the same name left behind is deleted.
func (r *reconciler) readSnapshot(ctx context.Context, w *world) error {
	key := types.NamespacedName{Namespace: w.job.Namespace, Name: w.job.Name + trainerv1alpha1.SuffixRuntimeSnapshot}
	meta := metadataOf(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := r.live.Get(ctx, key, meta)
	if err == nil && metav1.IsControlledBy(meta, w.job) {
		r.memory.use(w.job, func(k *known) {
			if k.snapshot == meta.UID {
				w.runtime, w.snapshot, w.hash = k.runtime, meta, k.hash
			}
		})
		if w.runtime != nil {
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
	if plan.IsOfEarlier(w.job, &snapshot) {
		if err := r.client.Delete(ctx, &snapshot, client.Preconditions{UID: &snapshot.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ConfigMap %s of an earlier TrainJob: %w", key, err)
		}
		return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name) // look again
	}
	w.runtime, err = plan.ReadSnapshot(w.job, &snapshot)
	if errors.Is(err, plan.ErrUnproven) {
		w.runtime, err = r.prove(ctx, w.job, &snapshot)
	}
	if err != nil {
		return err
	}
	w.snapshot = metadataOf(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	w.snapshot.ObjectMeta, w.hash = snapshot.ObjectMeta, plan.SnapshotHash(&snapshot)
	r.memory.noteRuntime(w.job, snapshot.UID, w.runtime, w.hash)
	return nil
}

// prove accepts a snapshot that the status does not confirm if it holds the live runtime: the manager may have died between the
// snapshot and the status. Any other was not written by the manager, and is deleted so that it is made again.
func (r *reconciler) prove(ctx context.Context, job *trainerv1alpha1.TrainJob, snapshot *corev1.ConfigMap) (*plan.Runtime, error) {
	runtime, err := lookup.FindRuntime(ctx, job, r.client, r.live)
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

// input completes what the plan depends on: keys for Secrets that do not exist, and what the policies ask for.
func (r *reconciler) input(ctx context.Context, w *world) (*plan.Input, error) {
	in := &plan.Input{TrainJob: w.job, Runtime: w.runtime, Config: r.o.Config}
	var err error
	if in.Keys, err = r.keys(ctx, w); err != nil {
		return nil, err
	}
	if w.runtime.Spec.PodGroupPolicy != nil {
		if in.Overheads, err = r.overheads(ctx, w.runtime); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// keys makes the keys of Secrets that do not exist yet, and reads the authority of the progress server.
func (r *reconciler) keys(ctx context.Context, w *world) (keys plan.Keys, err error) {
	policy := w.runtime.Spec.MLPolicy
	if policy != nil && policy.MPI != nil {
		missing, err := r.lacks(ctx, w.job, trainerv1alpha1.SuffixMPISSHAuth)
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
		missing, err := r.lacks(ctx, w.job, trainerv1alpha1.SuffixFluxCurve)
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

// overheads reads the RuntimeClasses that the runtime names.
func (r *reconciler) overheads(ctx context.Context, runtime *plan.Runtime) (map[string]corev1.ResourceList, error) {
	out := map[string]corev1.ResourceList{}
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
func (w *world) finished() bool {
	return plan.IsFinished(w.job) || (w.jobset != nil && plan.End(w.jobset) != nil) || (w.gone != nil && w.gone.end != nil)
}

// ignoreNoMatch drops errors about kinds that the API server does not have.
func ignoreNoMatch(err error) error {
	if apimeta.IsNoMatchError(err) {
		return nil
	}
	return err
}
