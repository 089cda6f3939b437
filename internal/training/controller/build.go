package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// fieldOwner applies all objects.
const fieldOwner = client.FieldOwner(trainerv1alpha1.FieldManager)

// jobSetID is the JobSet among what was applied.
const jobSetID = "JobSet"

// recordAfter is how long what a JobSet was built from stays unrecorded while its pods are on their way. A manager that
// starts in the meantime finds it out again.
const recordAfter = 10 * time.Second

// collectAgain is how long the garbage collector has until the Secret of an earlier TrainJob is read again.
const collectAgain = time.Second

// built says what the JobSet is built from, and when to look again, if that is to be recorded later.
type built struct {
	hashes map[string]string
	after  time.Duration
}

// build makes what the TrainJob wants to exist: the snapshot, then ConfigMaps, Secrets and the pod group, the JobSet last.
func (r *reconciler) build(ctx context.Context, obs *observation) (*built, error) {
	if err := r.clearWay(ctx, obs); err != nil {
		return nil, err
	}
	if err := r.observeRuntime(ctx, obs); err != nil {
		return nil, err
	}
	if obs.snapshot == nil {
		if err := r.begin(ctx, obs); err != nil {
			return nil, err
		}
	}
	keys, overheads, err := r.observeInputs(ctx, obs)
	if err != nil {
		so := r.builtFrom(obs)
		if errors.Is(err, errUncollected) {
			so.after = collectAgain
		}
		return so, err
	}
	built, err := obs.draft.Build(keys, overheads)
	if err != nil {
		return r.builtFrom(obs), err
	}
	if err := r.applyChildren(ctx, obs, built); err != nil {
		return r.builtFrom(obs), err
	}
	so, err := r.applyJobSet(ctx, obs, built.JobSet)
	if err == nil && so != nil && !plan.IsSuspended(obs.job) && len(built.ConfigMaps)+len(built.Secrets) > 0 {
		so.after = sooner(so.after, r.o.Recheck)
	}
	return so, err
}

// clearWay deletes a JobSet that an earlier TrainJob of the same name left behind, and refuses anybody else's.
func (r *reconciler) clearWay(ctx context.Context, obs *observation) error {
	if obs.jobset == nil {
		return nil
	}
	if metav1.IsControlledBy(obs.jobset, obs.job) {
		if obs.jobset.DeletionTimestamp != nil {
			return errWait
		}
		return nil
	}
	if !plan.IsOfEarlier(obs.job, obs.jobset) {
		return fmt.Errorf("JobSet %s exists and is not the TrainJob's; delete it, or choose another name", obs.jobset.Name)
	}
	uid := obs.jobset.UID
	err := r.client.Delete(ctx, obs.jobset.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting JobSet %s of an earlier TrainJob: %w", obs.jobset.Name, err)
	}
	return apierrors.NewNotFound(jobsetv1alpha2.GroupVersion.WithResource("jobsets").GroupResource(), obs.jobset.Name) // look again
}

// begin checks that the TrainJob still fits its runtime, which it was checked against when it was stored, and keeps the
// runtime as it is.
func (r *reconciler) begin(ctx context.Context, obs *observation) error {
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

// apply applies an object and takes over what the API server made of it.
func (r *reconciler) apply(ctx context.Context, u *unstructured.Unstructured) error {
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// applyOwned applies an object unless one of this name exists that the TrainJob does not control: applying would take over what
// another object or user has written. A ConfigMap that an earlier TrainJob of the same name left behind is deleted first.
func (r *reconciler) applyOwned(ctx context.Context, obs *observation, u *unstructured.Unstructured) error {
	key, meta := client.ObjectKeyFromObject(u), metadataOf(u.GroupVersionKind())
	err := r.live.Get(ctx, key, meta) // a cache of ConfigMaps would need the right to list all of them
	switch {
	case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		return r.apply(ctx, u)
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", u.GetKind(), key, err)
	case metav1.IsControlledBy(meta, obs.job):
		owned := u.DeepCopy()
		owned.SetUID(meta.UID) // a precondition: the object is still this one
		if err := r.apply(ctx, owned); err != nil {
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
	return r.apply(ctx, u)
}

// applyChildren applies everything but the JobSet.
func (r *reconciler) applyChildren(ctx context.Context, obs *observation, built *plan.Plan) error {
	for _, o := range built.ConfigMaps {
		if err := r.applyChanged(ctx, obs, o); err != nil {
			return err
		}
	}
	for _, o := range built.Secrets {
		err := r.client.Create(ctx, o, fieldOwner)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating Secret %s/%s: %w", o.Namespace, o.Name, err)
		}
	}
	for _, o := range built.PodGroups {
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
		if err := r.applyChanged(ctx, obs, o); err != nil {
			return err
		}
	}
	return nil
}

// applyChanged applies an object unless it is as it was left.
func (r *reconciler) applyChanged(ctx context.Context, obs *observation, o client.Object) error {
	u, err := plan.Manifest(o)
	if err != nil {
		return err
	}
	gvk, hash := u.GroupVersionKind(), hashOf(u)
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

func hashOf(u *unstructured.Unstructured) string {
	data, err := json.Marshal(u.Object)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// builtFrom reads what the JobSet that exists was built from.
func (r *reconciler) builtFrom(obs *observation) *built {
	if obs.snapshot == nil || obs.jobset == nil {
		return &built{}
	}
	if made := r.memory.builtSet(obs.job); made != nil && made.jobset == obs.jobset.UID {
		return &built{hashes: made.hashes}
	}
	hashes, _ := patch.BuiltFrom(obs.snapshot.Annotations)
	return &built{hashes: hashes}
}

// applyJobSet applies the JobSet, unless it runs and the TrainJob does not want it to stop: then what the TrainJob says
// has to wait (spec: 50 §4.2).
func (r *reconciler) applyJobSet(ctx context.Context, obs *observation, wanted *jobsetv1alpha2.JobSet) (*built, error) {
	u, err := plan.Manifest(wanted)
	if err != nil {
		return nil, err
	}
	runs := obs.jobset != nil && (obs.jobset.Spec.Suspend == nil || !*obs.jobset.Spec.Suspend)
	if runs && !plan.IsSuspended(obs.job) {
		return r.rederive(ctx, obs, u)
	}
	hash := hashOf(u)
	before, ok := r.memory.lastApplied(obs.job, jobSetID)
	if ok && obs.jobset == nil {
		return r.builtFrom(obs), r.awaitJobSet(ctx, obs)
	}
	uid := types.UID("")
	if obs.jobset != nil {
		uid = obs.jobset.UID
	}
	if !ok || before.hash != hash || !before.version.shows(obs.jobset, wanted) {
		r.memory.use(obs.job, func(k *known) { k.gone = nil }) // from now on one that is deleted is the new one
		if err := r.apply(ctx, u); err != nil {
			return r.builtFrom(obs), r.makeWay(ctx, obs, err)
		}
		uid = u.GetUID()
		r.memory.noteApplied(obs.job, jobSetID, applied{hash: hash, version: versionOf(u)})
	}
	return r.record(ctx, obs, uid)
}

// record remembers what a JobSet was just built from, and writes it down if the JobSet is suspended.
func (r *reconciler) record(ctx context.Context, obs *observation, jobset types.UID) (*built, error) {
	r.memory.use(obs.job, func(k *known) {
		if k.built == nil || k.built.jobset != jobset || !maps.Equal(k.built.hashes, obs.hashes) {
			k.built = &builtSet{jobset, obs.hashes, r.o.Now()}
		}
	})
	if plan.IsSuspended(obs.job) {
		return r.annotate(ctx, obs, obs.hashes)
	}
	return r.recordLater(ctx, obs, obs.hashes)
}

// recordLater records what a JobSet is built from once its pods run.
func (r *reconciler) recordLater(ctx context.Context, obs *observation, hashes map[string]string) (*built, error) {
	recorded, _ := patch.BuiltFrom(obs.snapshot.Annotations)
	made := r.memory.builtSet(obs.job)
	left := made.at.Add(recordAfter).Sub(r.o.Now())
	arriving := obs.jobset == nil || (!plan.IsRunning(obs.jobset) && plan.End(obs.jobset) == nil)
	if arriving && left > 0 && !maps.Equal(recorded, hashes) {
		return &built{hashes, left}, nil
	}
	return r.annotate(ctx, obs, hashes)
}

// builtSet is a JobSet that was applied, and the hashes of the patches that it was built from.
type builtSet struct {
	jobset types.UID
	hashes map[string]string
	at     time.Time
}

// awaitJobSet is for a JobSet that was made and that the cache has shown neither come nor go. One that came and went
// unseen was deleted by somebody else.
func (r *reconciler) awaitJobSet(ctx context.Context, obs *observation) error {
	jobset := &jobsetv1alpha2.JobSet{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(obs.job), jobset)
	switch {
	case err == nil && metav1.IsControlledBy(jobset, obs.job):
		return errWait // the cache will show it
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading JobSet %s: %w", obs.job.Name, err)
	}
	r.memory.missing(obs.job)
	return apierrors.NewNotFound(jobsetv1alpha2.GroupVersion.WithResource("jobsets").GroupResource(), obs.job.Name) // look again
}

// version is that of an object's spec.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(o client.Object) version { return version{o.GetUID(), o.GetGeneration()} }

// shows reports whether what the cache shows is of this version, or an earlier state of it, and still has the metadata that is
// wanted.
func (v version) shows(jobset, wanted *jobsetv1alpha2.JobSet) bool {
	return jobset != nil && v.uid == jobset.UID && jobset.Generation <= v.generation &&
		contains(jobset.Labels, wanted.Labels) && contains(jobset.Annotations, wanted.Annotations)
}

// contains reports whether all pairs of part are in m.
func contains(m, part map[string]string) bool {
	for key, value := range part {
		if got, ok := m[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// annotate writes what the JobSet is built from to the snapshot.
func (r *reconciler) annotate(ctx context.Context, obs *observation, hashes map[string]string) (*built, error) {
	before, _ := patch.BuiltFrom(obs.snapshot.Annotations)
	if maps.Equal(before, hashes) {
		return &built{hashes: hashes}, nil
	}
	var value any // null removes it
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
		return &built{hashes: before}, fmt.Errorf("annotating ConfigMap %s: %w", obs.snapshot.Name, err)
	}
	return &built{hashes: hashes}, nil
}

// rederive finds out what a JobSet that runs was built from. If the record is another one than what the TrainJob says now,
// or was lost, the manager may have died between the JobSet and the record: it was built from what the TrainJob says now if
// applying that would change nothing (spec: 50 §4.13.6).
func (r *reconciler) rederive(ctx context.Context, obs *observation, wanted *unstructured.Unstructured) (*built, error) {
	hashes, _ := patch.BuiltFrom(obs.snapshot.Annotations)
	if maps.Equal(hashes, obs.hashes) {
		return &built{hashes: hashes}, nil
	}
	if made := r.memory.builtSet(obs.job); made != nil && made.jobset == obs.jobset.UID {
		return r.recordLater(ctx, obs, made.hashes)
	}
	const id = "rederived"
	tried := applied{hash: hashOf(wanted), version: versionOf(obs.jobset)}
	if before, seen := r.memory.lastApplied(obs.job, id); seen && before == tried {
		return &built{hashes: hashes}, nil
	}
	trial := wanted.DeepCopy()
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(trial), fieldOwner, client.ForceOwnership, client.DryRunAll)
	refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) // so it would change what cannot change
	if err != nil && !refused {
		return &built{hashes: hashes}, fmt.Errorf("comparing JobSet %s: %w", obs.jobset.Name, err)
	}
	r.memory.noteApplied(obs.job, id, tried)
	if refused || changes(obs.jobset, trial) {
		return &built{hashes: hashes}, nil
	}
	return r.annotate(ctx, obs, obs.hashes)
}

// lastRecord puts the record right of a JobSet that has ended and will never be applied again.
func (r *reconciler) lastRecord(ctx context.Context, obs *observation) (*built, error) {
	if err := r.observeSnapshot(ctx, obs); err != nil || obs.snapshot == nil {
		return nil, err
	}
	if err := r.draftJobSet(obs); err != nil {
		return nil, err
	}
	built, err := obs.draft.BuildJobSet()
	if err != nil {
		return nil, err
	}
	u, err := plan.Manifest(built.JobSet)
	if err != nil {
		return nil, err
	}
	return r.rederive(ctx, obs, u)
}

// changes reports whether a JobSet would be another one.
func changes(jobset *jobsetv1alpha2.JobSet, trial *unstructured.Unstructured) bool {
	var would jobsetv1alpha2.JobSet
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(trial.Object, &would)
	return err != nil || !equality.Semantic.DeepEqual(would.Spec, jobset.Spec) ||
		!maps.Equal(would.Labels, jobset.Labels) || !maps.Equal(would.Annotations, jobset.Annotations)
}

// makeWay deals with a JobSet that refuses what the TrainJob says, because its API lets only parts of it change: one that
// is suspended and has no pods left is deleted, to be made again (spec: 50 §3.6). One that still runs is suspended first.
func (r *reconciler) makeWay(ctx context.Context, obs *observation, refusal error) error {
	fixed := obs.jobset != nil && (apierrors.IsInvalid(refusal) || apierrors.IsForbidden(refusal)) && strings.Contains(refusal.Error(), "replicatedJobs")
	if !fixed {
		return refusal
	}
	if obs.jobset.Spec.Suspend == nil || !*obs.jobset.Spec.Suspend {
		next := obs.jobset.DeepCopy()
		next.Spec.Suspend = new(true)
		lock := client.MergeFromWithOptions(obs.jobset, client.MergeFromWithOptimisticLock{})
		if err := r.client.Patch(ctx, next, lock, fieldOwner); err != nil {
			return fmt.Errorf("suspending JobSet %s: %w", obs.jobset.Name, err)
		}
		return errWait
	}
	if !plan.IsIdle(obs.jobset) {
		return errWait // its status brings it back
	}
	r.memory.remaking(obs.jobset.UID)
	uid := obs.jobset.UID
	err := r.client.Delete(ctx, obs.jobset.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting JobSet %s to make it again: %w", obs.jobset.Name, err)
	}
	r.events.Event(obs.job, corev1.EventTypeNormal, trainerv1alpha1.EventJobSetRecreated,
		"The JobSet is made again, because what changed in the TrainJob cannot change in a JobSet")
	return errWait
}
