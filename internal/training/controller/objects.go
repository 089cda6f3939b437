package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/training/plan"
)

const fieldOwner = client.FieldOwner(trainerv1alpha1.FieldManager)

// collectorDelay is how often the Secret of an earlier TrainJob is read until the garbage collector has deleted it.
const collectorDelay = time.Second

// applyObjects applies the objects of the TrainJob: the snapshot, then ConfigMaps, Secrets and the pod group, the JobSet last.
func (r *reconciler) applyObjects(ctx context.Context, obs *observation) (*provenance, error) {
	if err := r.removeEarlierJobSet(ctx, obs); err != nil {
		return nil, err
	}
	if err := r.observeRuntime(ctx, obs); err != nil {
		return nil, err
	}
	if obs.snapshot == nil {
		if err := r.createSnapshot(ctx, obs); err != nil {
			return nil, err
		}
	}
	keys, overheads, err := r.observeInputs(ctx, obs)
	if err != nil {
		found := r.provenanceOf(obs)
		if errors.Is(err, errUncollected) {
			found.after = collectorDelay
		}
		return found, err
	}
	objects, err := obs.draft.Build(keys, overheads)
	if err != nil {
		return r.provenanceOf(obs), err
	}
	if !runsOtherwise(obs, objects.JobSet) {
		if err := r.applyChildren(ctx, obs, objects); err != nil {
			return r.provenanceOf(obs), err
		}
	}
	built, err := r.applyJobSet(ctx, obs, objects.JobSet)
	if err == nil && built != nil && !plan.IsSuspended(obs.job) && len(objects.ConfigMaps)+len(objects.Secrets) > 0 {
		built.after = reconcile.Earliest(built.after, r.o.Recheck)
	}
	return built, err
}

// runsOtherwise reports whether the JobSet runs with other numbers of pods than are planned now: another version of the controller has made
// it, and its ConfigMaps, which have the names of these pods.
func runsOtherwise(obs *observation, wanted *jobsetv1alpha2.JobSet) bool {
	if obs.jobset == nil || plan.IsSuspended(obs.job) || ptr.Deref(obs.jobset.Spec.Suspend, false) {
		return false
	}
	return !slices.EqualFunc(plan.PodSetsOf(obs.jobset), plan.PodSetsOf(wanted), func(a, b plan.PodSet) bool {
		return a.Name == b.Name && a.Replicas == b.Replicas && a.Count == b.Count
	})
}

// removeEarlierJobSet deletes the JobSet of an earlier TrainJob of the same name, and waits until it is deleted. Any other JobSet of this name is
// an error.
func (r *reconciler) removeEarlierJobSet(ctx context.Context, obs *observation) error {
	switch {
	case obs.jobset != nil && obs.jobset.DeletionTimestamp != nil:
		return errWait
	case obs.foreign == nil:
		return nil
	case !plan.IsOfEarlier(obs.job, obs.foreign):
		return fmt.Errorf("JobSet %s exists and is not the TrainJob's; delete it, or choose another name", obs.foreign.Name)
	case obs.foreign.DeletionTimestamp != nil:
		return errWait
	}
	if err := r.deleteJobSet(ctx, obs.foreign, metav1.DeletePropagationBackground); err != nil {
		return fmt.Errorf("deleting JobSet %s of an earlier TrainJob: %w", obs.foreign.Name, err)
	}
	return errWait
}

// createSnapshot stores the runtime for the life of the TrainJob. The runtime may have changed since the webhook validated the TrainJob,
// so that is repeated.
func (r *reconciler) createSnapshot(ctx context.Context, obs *observation) error {
	classes, err := r.o.Runtimes.PriorityClasses(ctx, obs.runtime)
	if err != nil {
		return err
	}
	if err := obs.draft.Fits(classes); err != nil {
		return unfit{err}
	}
	snapshot, err := plan.Snapshot(obs.job, obs.runtime, obs.hashes)
	if err != nil {
		return err
	}
	u, err := plan.Manifest(snapshot)
	if err != nil {
		return err
	}
	if err := r.applyOwned(ctx, obs, u); err != nil {
		return err
	}
	obs.snapshot, obs.hash = metadataOf(corev1.SchemeGroupVersion.WithKind("ConfigMap")), plan.SnapshotHash(snapshot)
	obs.snapshot.Name, obs.snapshot.Namespace, obs.snapshot.UID, obs.snapshot.Annotations = u.GetName(), u.GetNamespace(), u.GetUID(), u.GetAnnotations()
	if obs.snapshot.UID != "" {
		r.noteSnapshot(obs)
	}
	return nil
}

func (r *reconciler) applyObject(ctx context.Context, u *unstructured.Unstructured) error {
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), missing(err))
	}
	return nil
}

// missing returns an error that is reported, and retried with growing pauses, although it is a 404: a kind, a namespace or an object that the
// manager needs does not exist. Any other 404 means that the cache lags behind, and is retried soon.
func missing(err error) error {
	if apierrors.IsNotFound(err) {
		return errors.New(err.Error())
	}
	return err
}

// applyOwned applies an object unless an object of this name exists that the TrainJob does not control, whose fields it would overwrite.
// A ConfigMap of an earlier TrainJob of the same name is deleted first.
func (r *reconciler) applyOwned(ctx context.Context, obs *observation, u *unstructured.Unstructured) error {
	key, meta := client.ObjectKeyFromObject(u), metadataOf(u.GroupVersionKind())
	err := r.live.Get(ctx, key, meta) // a cache of ConfigMaps would need the right to list all of them
	switch {
	case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		return r.applyObject(ctx, u)
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", u.GetKind(), key, err)
	case metav1.IsControlledBy(meta, obs.job):
		owned := u.DeepCopy()
		owned.SetUID(meta.UID) // a precondition
		if err := r.applyObject(ctx, owned); err != nil {
			return err
		}
		u.Object = owned.Object
		return nil
	case !plan.IsOfEarlier(obs.job, meta):
		return fmt.Errorf("%s %s exists and is not the TrainJob's; delete it, or choose another name", u.GetKind(), key.Name)
	}
	if u.GetKind() != "ConfigMap" {
		return fmt.Errorf("%s %s belongs to an earlier TrainJob of this name: waiting until it is deleted", u.GetKind(), key.Name)
	}
	uid := meta.UID
	if err := r.client.Delete(ctx, meta, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s of an earlier TrainJob: %w", u.GetKind(), key, err)
	}
	return r.applyObject(ctx, u)
}

func (r *reconciler) applyChildren(ctx context.Context, obs *observation, objects *plan.Plan) error {
	for _, o := range objects.ConfigMaps {
		if err := r.applyIfChanged(ctx, obs, o); err != nil {
			return err
		}
	}
	for _, o := range objects.Secrets {
		err := r.client.Create(ctx, o, fieldOwner)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating Secret %s/%s: %w", o.Namespace, o.Name, err)
		}
	}
	for _, o := range objects.PodGroups {
		gvk := o.GroupVersionKind()
		if !plan.IsSuspended(obs.job) && r.groups[gvk] {
			err := r.client.Get(ctx, client.ObjectKeyFromObject(o), metadataOf(gvk))
			if err == nil {
				continue
			}
			if client.IgnoreNotFound(ignoreNoMatch(err)) != nil {
				return fmt.Errorf("reading %s %s: %w", gvk.GroupKind(), client.ObjectKeyFromObject(o), err)
			}
		}
		if err := r.applyIfChanged(ctx, obs, o); err != nil {
			return err
		}
	}
	return nil
}

// applyIfChanged applies an object unless both its content and the stored object are unchanged since it was applied last.
func (r *reconciler) applyIfChanged(ctx context.Context, obs *observation, o client.Object) error {
	u, err := plan.Manifest(o)
	if err != nil {
		return err
	}
	gvk, hash := u.GroupVersionKind(), contentHash(u)
	id := gvk.Kind + "/" + u.GetName()
	before, ok := r.memory.lastApplied(obs.job, id)
	if ok && before.hash == hash {
		meta, reader := metadataOf(gvk), client.Reader(r.client)
		if gvk.Group == corev1.GroupName { // ConfigMaps are not watched
			reader = r.live
		}
		if err := reader.Get(ctx, client.ObjectKeyFromObject(u), meta); err == nil && meta.ResourceVersion == before.resourceVersion {
			return nil
		}
	}
	if err := r.applyOwned(ctx, obs, u); err != nil {
		return err
	}
	r.memory.noteApplied(obs.job, id, applied{hash: hash, resourceVersion: u.GetResourceVersion()})
	return nil
}

func contentHash(u *unstructured.Unstructured) string {
	data, err := json.Marshal(u.Object)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
