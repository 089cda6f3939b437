package controller

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/runtimes"
)

// store is a client that stores the objects of one TrainJob, and counts what is read.
type store struct {
	client.Client

	runtime  trainerv1alpha1.TrainingRuntime
	job      trainerv1alpha1.TrainJob
	jobset   *jobsetv1alpha2.JobSet
	snapshot *corev1.ConfigMap
	// refused are errors of writes, by the name of the object.
	refused map[string]error
	// contents is how often the content of the snapshot was read, and not its metadata only.
	contents int
	// deletes is how often the deletion of a JobSet or a ConfigMap was requested. Those with finalizers remain.
	deletes int
}

func (s *store) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	missing := apierrors.NewNotFound(corev1.Resource("objects"), key.Name)
	switch o := into.(type) {
	case *trainerv1alpha1.TrainJob:
		s.job.DeepCopyInto(o)
	case *trainerv1alpha1.TrainingRuntime:
		s.runtime.DeepCopyInto(o)
	case *jobsetv1alpha2.JobSet:
		if s.jobset == nil {
			return missing
		}
		s.jobset.DeepCopyInto(o)
	case *corev1.ConfigMap:
		if s.snapshot == nil {
			return missing
		}
		s.contents++
		s.snapshot.DeepCopyInto(o)
	case *metav1.PartialObjectMetadata:
		if s.snapshot == nil || o.Kind != "ConfigMap" {
			return missing
		}
		s.snapshot.ObjectMeta.DeepCopyInto(&o.ObjectMeta)
	default:
		return missing
	}
	return nil
}

func (s *store) Apply(_ context.Context, config runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	content := config.(interface{ UnstructuredContent() map[string]any }).UnstructuredContent()
	u := &unstructured.Unstructured{Object: content}
	if err := s.refused[u.GetName()]; err != nil {
		return err
	}
	u.SetUID(types.UID("uid of the " + u.GetKind()))
	u.SetResourceVersion("1")
	switch {
	case u.GetName() == "lark-runtime-snapshot":
		s.snapshot = &corev1.ConfigMap{}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(content, s.snapshot)
	case u.GetKind() == "ConfigMap": // any other has the version of the snapshot
		return nil
	default:
		s.jobset = &jobsetv1alpha2.JobSet{}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(content, s.jobset)
	}
}

func (s *store) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

func (s *store) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

func (s *store) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	s.deletes++
	now := new(metav1.Now())
	switch o.(type) {
	case *jobsetv1alpha2.JobSet:
		if s.jobset.DeletionTimestamp = now; len(s.jobset.Finalizers) == 0 {
			s.jobset = nil
		}
	case *corev1.ConfigMap:
		if s.snapshot.DeletionTimestamp = now; len(s.snapshot.Finalizers) == 0 {
			s.snapshot = nil
		}
	}
	return nil
}

func (s *store) Status() client.SubResourceWriter { return statusStore{s: s} }

type statusStore struct {
	client.SubResourceWriter
	s *store
}

func (w statusStore) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	change, err := p.Data(o)
	if err == nil {
		err = json.Unmarshal(change, &w.s.job)
	}
	w.s.job.DeepCopyInto(o.(*trainerv1alpha1.TrainJob))
	return err
}

// newStore has a suspended TrainJob of 64 nodes with a runtime patch, and the reconciler that handles it. drafts counts the JobSets
// that it drafts.
func newStore(tb testing.TB) (s *store, r *reconciler, drafts *int) {
	tb.Helper()
	node := jobsetv1alpha2.ReplicatedJob{Name: "node"}
	node.Template.Labels = map[string]string{trainerv1alpha1.AncestorStepLabel: trainerv1alpha1.AncestorTrainer}
	node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Image: "img:a"}}
	s = &store{}
	s.runtime.Name, s.runtime.Namespace = "torch", "lab"
	s.runtime.Spec.MLPolicy = &trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{Torch: &trainerv1alpha1.TorchPolicy{}}}
	s.runtime.Spec.Template.Spec.ReplicatedJobs = []jobsetv1alpha2.ReplicatedJob{node}
	s.job.Name, s.job.Namespace, s.job.UID, s.job.ResourceVersion = "lark", "lab", "u1", "1"
	s.job.Spec.RuntimeRef = trainerv1alpha1.RuntimeRef{Name: "torch", Kind: new(trainerv1alpha1.KindTrainingRuntime)}
	s.job.Spec.Suspend = new(true)
	s.job.Spec.Trainer = &trainerv1alpha1.Trainer{NumNodes: new(int32(64))}
	s.job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{{
		Manager:             "acme.io/tuner",
		TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{Template: &trainerv1alpha1.JobSetTemplatePatch{Metadata: &metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}},
	}}
	drafts = new(int)
	r = &reconciler{
		o: &Options{Config: plan.DefaultConfig(), Runtimes: runtimes.New(s, s), Recheck: time.Minute, Now: time.Now}, client: s, live: s,
		events: record.NewFakeRecorder(100), memory: newMemory(), refusals: reconcile.NewRefusals(0, time.Now),
		newDraft: func(in *plan.Input) (*plan.Draft, error) { *drafts++; return plan.NewDraft(in) },
	}
	return s, r, drafts
}

func (s *store) reconcile(tb testing.TB, r *reconciler) {
	tb.Helper()
	if _, err := r.Reconcile(tb.Context(), ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s.job)}); err != nil {
		tb.Fatal(err)
	}
}

// TestDraftedOnce: each reconcile drafts the JobSet once, also the first one, which checks the size and the fit and makes the snapshot.
// The content of the snapshot is read once in the life of the manager.
func TestDraftedOnce(t *testing.T) {
	s, r, drafts := newStore(t)
	for i := 1; i <= 3; i++ {
		if s.reconcile(t, r); *drafts != i {
			t.Errorf("%d JobSets are drafted in %d reconciles", *drafts, i)
		}
	}
	if s.jobset == nil || s.snapshot == nil || s.contents > 0 {
		t.Errorf("JobSet %v, snapshot %v, read %d times by the manager that made it", s.jobset, s.snapshot, s.contents)
	}
	s.job.Status.RuntimeSnapshot = &trainerv1alpha1.RuntimeSnapshotStatus{Hash: plan.SnapshotHash(s.snapshot)}
	r.memory, r.o.Runtimes = newMemory(), runtimes.New(s, s) // it is started again
	for range 3 {
		s.reconcile(t, r)
	}
	if s.contents != 1 || r.o.Runtimes.Recorded(&s.job) == nil {
		t.Errorf("another manager reads the snapshot %d times, and has %v", s.contents, r.o.Runtimes.Recorded(&s.job))
	}
}

// earlier are the owners of an object of an earlier TrainJob.
var earlier = []metav1.OwnerReference{{
	APIVersion: trainerv1alpha1.GroupVersion.String(), Kind: trainerv1alpha1.KindTrainJob, Name: "lark", UID: "u0", Controller: new(true),
}}

// TestHeldByFinalizer: the deletion of objects of an earlier TrainJob is requested once. The deletion of the JobSet causes an event; that of the
// ConfigMap does not, and is awaited with growing pauses.
func TestHeldByFinalizer(t *testing.T) {
	held := metav1.ObjectMeta{Name: "lark", Namespace: "lab", UID: "foreign", OwnerReferences: earlier, Finalizers: []string{"example.com/hold"}}
	for name, tc := range map[string]struct {
		jobset   *jobsetv1alpha2.JobSet
		snapshot *corev1.ConfigMap
	}{
		"JobSet":    {jobset: &jobsetv1alpha2.JobSet{ObjectMeta: held}},
		"ConfigMap": {snapshot: &corev1.ConfigMap{ObjectMeta: held}},
	} {
		s, r, _ := newStore(t)
		s.jobset, s.snapshot = tc.jobset, tc.snapshot
		for i := range 3 {
			result, err := r.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s.job)})
			if soon := result.RequeueAfter > 0 && result.RequeueAfter < time.Second/2; i > 0 && (soon || (err != nil) != (tc.snapshot != nil)) {
				t.Errorf("%s: retried after %s, error %v", name, result.RequeueAfter, err)
			}
		}
		if s.deletes != 1 {
			t.Errorf("%s: %d deletions are requested", name, s.deletes)
		}
	}
}

// TestForeignJobSet: a JobSet of the TrainJob's name that it does not control neither ends it nor gives it counters. The JobSet of an
// earlier TrainJob is deleted, and replaced.
func TestForeignJobSet(t *testing.T) {
	ended := func(kind jobsetv1alpha2.ConditionType) jobsetv1alpha2.JobSetStatus {
		return jobsetv1alpha2.JobSetStatus{
			Conditions:           []metav1.Condition{{Type: string(kind), Status: metav1.ConditionTrue, Reason: "Theirs"}},
			ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Failed: 1}},
		}
	}
	for name, tc := range map[string]struct {
		owners   []metav1.OwnerReference
		status   jobsetv1alpha2.JobSetStatus
		complete bool // the TrainJob
	}{
		"of an earlier TrainJob, completed": {owners: earlier, status: ended(jobsetv1alpha2.ConditionCompleted)},
		"of an earlier TrainJob, failed":    {owners: earlier, status: ended(jobsetv1alpha2.ConditionFailed)},
		"of a user, completed":              {status: ended(jobsetv1alpha2.ConditionCompleted)},
		"of a user, running":                {status: jobsetv1alpha2.JobSetStatus{ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Active: 1}}}},
		"of a user, after the TrainJob":     {status: ended(jobsetv1alpha2.ConditionFailed), complete: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, r, _ := newStore(t)
			s.job.Spec.Suspend = nil
			if tc.complete {
				s.job.Status.Conditions = []metav1.Condition{{Type: string(trainerv1alpha1.ConditionComplete), Status: metav1.ConditionTrue}}
			}
			before := s.job.Status.DeepCopy()
			s.jobset = &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "lark", Namespace: "lab", UID: "foreign", OwnerReferences: tc.owners}, Status: tc.status}
			for range 2 {
				_, err := r.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s.job)})
				if failed, taken := err != nil, tc.owners == nil && !tc.complete; failed != taken {
					t.Errorf("the reconcile fails with %v", err)
				}
			}
			if got := s.job.Status; !equality.Semantic.DeepEqual(got.Conditions, before.Conditions) || len(got.JobsStatus) > 0 {
				t.Errorf("status %+v", got)
			}
			if replaced := metav1.IsControlledBy(s.jobset, &s.job); replaced != (tc.owners != nil) {
				t.Errorf("JobSet %+v", s.jobset.ObjectMeta)
			}
		})
	}
}

// TestFinalRefusal: a TrainJob that holds quota fails once its objects were refused for a while. Refusals while it waits do not count.
func TestFinalRefusal(t *testing.T) {
	s, r, now := newQueuedStore(t)
	invalid := apierrors.NewInvalid(jobsetv1alpha2.GroupVersion.WithKind("JobSet").GroupKind(), "lark", nil)
	invalid.ErrStatus.Message += strings.Repeat("x", 40_000)
	s.refused = map[string]error{"lark": invalid}
	step := func(what string, suspend bool, after time.Duration, want bool) {
		t.Helper()
		s.job.Spec.Suspend = &suspend
		*now = now.Add(after)
		_, err := r.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s.job)})
		if failed := plan.IsFinished(&s.job); failed != want || failed == (err != nil) {
			t.Errorf("%s: failed %v, error %v", what, failed, err)
		}
	}
	step("it waits", true, 0, false)
	step("it waits for long", true, reconcile.Patience, false)
	step("it starts", false, time.Second, false)
	step("it is evicted", true, reconcile.Patience/2, false)
	step("it starts again", false, reconcile.Patience/2, false)
	step("it is refused for long", false, reconcile.Patience, true)
	c := apimeta.FindStatusCondition(s.job.Status.Conditions, string(trainerv1alpha1.ConditionFailed))
	if c == nil || len(c.Message) != 32*1024 { // the API accepts no more
		t.Errorf("condition %+v", c)
	}
}

// TestRefusedWhileItRuns: a TrainJob whose JobSet runs does not fail because another of its objects is refused.
func TestRefusedWhileItRuns(t *testing.T) {
	s, r, now := newQueuedStore(t)
	s.runtime.Spec.MLPolicy = &trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{MPI: &trainerv1alpha1.MPIPolicy{}}}
	s.job.Spec.Suspend = new(false)
	s.reconcile(t, r)
	s.snapshot.ResourceVersion = "2" // and that of the host file: another client changed it
	s.refused = map[string]error{"lark-mpi-hostfile": apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "lark-mpi-hostfile", nil)}
	for range 2 {
		_, err := r.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s.job)})
		if !apierrors.IsInvalid(err) || plan.IsFinished(&s.job) {
			t.Errorf("error %v, conditions %+v", err, s.job.Status.Conditions)
		}
		*now = now.Add(reconcile.Patience)
	}
}

// TestMissingNeeds: a missing Secret of the progress server or kind of pod groups is reported, and retried with growing pauses.
func TestMissingNeeds(t *testing.T) {
	for name, change := range map[string]func(*store, *reconciler){
		"the Secret": func(_ *store, r *reconciler) {
			r.o.Config.Progress, r.o.CA = &plan.Progress{}, client.ObjectKey{Namespace: "system", Name: "certificate"}
		},
		"the kind": func(s *store, _ *reconciler) {
			s.runtime.Spec.PodGroupPolicy = &trainerv1alpha1.PodGroupPolicy{
				PodGroupPolicySource: trainerv1alpha1.PodGroupPolicySource{Coscheduling: &trainerv1alpha1.CoschedulingPolicy{}},
			}
			s.refused = map[string]error{"lark": apierrors.NewGenericServerResponse(404, "patch", corev1.Resource("podgroups"), "lark", "", 0, true)}
		},
	} {
		s, r, _ := newStore(t)
		events := record.NewFakeRecorder(10)
		r.events = events
		change(s, r)
		result, err := r.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&s.job)})
		if err == nil {
			t.Errorf("%s: retried after %v, without growing pauses", name, result.RequeueAfter)
		}
		if len(events.Events) != 1 {
			t.Errorf("%s: %d events", name, len(events.Events))
		}
	}
}

// newQueuedStore is newStore with a TrainJob that is queued, and the time of refusals.
func newQueuedStore(t *testing.T) (s *store, r *reconciler, now *time.Time) {
	t.Helper()
	s, r, _ = newStore(t)
	now = new(time.Unix(1_800_000_000, 0))
	r.refusals = reconcile.NewRefusals(0, func() time.Time { return *now })
	node := []trainerv1alpha1.ReplicatedJobPatch{{Name: "node"}}
	s.job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{{
		Manager: trainerv1alpha1.QueuePatchManager,
		TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{
			Template: &trainerv1alpha1.JobSetTemplatePatch{Spec: &trainerv1alpha1.JobSetSpecPatch{ReplicatedJobs: node}},
		},
	}}
	return s, r, now
}

// BenchmarkReconcile reconciles a TrainJob of which nothing changes.
func BenchmarkReconcile(b *testing.B) {
	s, r, _ := newStore(b)
	s.reconcile(b, r)
	b.ReportAllocs()
	for b.Loop() {
		s.reconcile(b, r)
	}
}

// BenchmarkFirstReconcile reconciles a new TrainJob.
func BenchmarkFirstReconcile(b *testing.B) {
	s, r, _ := newStore(b)
	b.ReportAllocs()
	for b.Loop() {
		s.jobset, s.snapshot, r.memory = nil, nil, newMemory()
		s.reconcile(b, r)
	}
}
