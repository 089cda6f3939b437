package lookup_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

// reader holds objects by key and counts who asks for them.
type reader struct {
	client.Reader
	objects map[client.ObjectKey]client.Object
	asked   int
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.asked++
	from, ok := r.objects[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if of, ok := from.(*batchv1.Job); ok && key.Name == "owner" {
		of.DeepCopyInto(into.(*batchv1.Job))
		return nil
	}
	into.SetName(from.GetName())
	into.SetUID(from.GetUID())
	into.SetResourceVersion(from.GetResourceVersion())
	into.SetLabels(from.GetLabels())
	into.SetOwnerReferences(from.GetOwnerReferences())
	return nil
}

func TestGate(t *testing.T) {
	jobKind := batchv1.SchemeGroupVersion.WithKind("Job")
	jobSet := schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}
	cfg := &job.Config{
		ManagedNamespaces: labels.SelectorFromSet(labels.Set{"managed": "yes"}), Kinds: job.Kinds{jobKind: true, jobSet: true},
	}
	queued := map[string]string{kueue.QueueNameLabel: "lq"}
	child := func(gvk schema.GroupVersionKind) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: "child", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: "parent", UID: "uid", Controller: new(true)},
		}}
	}
	namespace := func(labels map[string]string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: labels}}
	}
	parent := func(uid types.UID) client.Object {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "parent", UID: uid, Labels: queued}}
	}
	nsKey, parentKey := client.ObjectKey{Name: "ns"}, client.ObjectKey{Namespace: "ns", Name: "parent"}
	managed := namespace(map[string]string{"managed": "yes"})
	tests := map[string]struct {
		object      *metav1.ObjectMeta
		cache, live map[client.ObjectKey]client.Object
		want        job.Mode
		liveReads   int
		err         bool
	}{
		"from the cache": {
			child(jobKind), map[client.ObjectKey]client.Object{nsKey: managed, parentKey: parent("uid")}, nil, job.Follows, 0, false,
		},
		"a namespace newer than the cache": {
			&metav1.ObjectMeta{Labels: queued}, nil, map[client.ObjectKey]client.Object{nsKey: managed}, job.Managed, 1, false,
		},
		"no such namespace": {&metav1.ObjectMeta{}, nil, nil, job.Undecided, 1, true},
		"an owner newer than the cache": {
			child(jobKind),
			map[client.ObjectKey]client.Object{nsKey: managed, parentKey: parent("old")},
			map[client.ObjectKey]client.Object{parentKey: parent("uid")},
			job.Follows, 1, false,
		},
		"an owner of a kind that is not cached": {
			child(jobSet),
			map[client.ObjectKey]client.Object{nsKey: managed, parentKey: parent("uid")},
			map[client.ObjectKey]client.Object{parentKey: parent("uid")},
			job.Follows, 1, false,
		},
		"a missing owner": {child(jobSet), map[client.ObjectKey]client.Object{nsKey: managed}, nil, job.Undecided, 1, false},
		"unmanaged: nothing is looked up": {
			child(jobSet), map[client.ObjectKey]client.Object{nsKey: namespace(nil)}, nil, job.Unmanaged, 0, false,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cache, live := &reader{objects: tc.cache}, &reader{objects: tc.live}
			v, err := lookup.NewGate(cfg, all.Descriptors()[:1], cache, live).Judge(t.Context(), all.Descriptors()[0], "ns", tc.object)
			if (err != nil) != tc.err || v.Mode != tc.want {
				t.Errorf("got %+v, %v", v, err)
			}
			if live.asked != tc.liveReads {
				t.Errorf("%d live reads, want %d", live.asked, tc.liveReads)
			}
			if name == "a missing owner" && (v.Err == nil || !strings.Contains(v.Err.Error(), "parent")) {
				t.Errorf("error %v", v.Err)
			}
		})
	}
}

// TestPodOfJobThatWaits: a pod is queued by itself below a Job that waits. A Job that was resumed just now is read once more, and one that
// runs by the cache is not.
func TestPodOfJobThatWaits(t *testing.T) {
	kinds := map[string]*job.Descriptor{}
	for _, d := range all.Descriptors() {
		kinds[d.GVK.Kind] = d
	}
	owner := func(suspended bool) map[client.ObjectKey]client.Object {
		return map[client.ObjectKey]client.Object{
			{Name: "ns"}: &corev1.Namespace{},
			{Namespace: "ns", Name: "owner"}: &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "u", Labels: map[string]string{kueue.QueueNameLabel: "lq"}},
				Spec:       batchv1.JobSpec{Suspend: &suspended, Selector: &metav1.LabelSelector{}},
			},
		}
	}
	cfg := &job.Config{VerifyOwners: true, ManageAll: true, Kinds: job.Kinds{kinds["Job"].GVK: true, kinds["Pod"].GVK: true}}
	for name, tc := range map[string]struct {
		cached, stored bool // whether it is suspended
		want           job.Mode
		reads          int
	}{
		"runs":         {false, false, job.Follows, 0},
		"just resumed": {true, false, job.Follows, 1},
		"waits":        {true, true, job.Managed, 1},
	} {
		cache, live := &reader{objects: owner(tc.cached)}, &reader{objects: owner(tc.stored)}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: "owner", UID: "u", Controller: new(true)},
		}}}
		v, err := lookup.NewGate(cfg, all.Descriptors(), cache, live).Judge(t.Context(), kinds["Pod"], "ns", pod)
		if err != nil || v.Mode != tc.want || (v.NotMade == nil) != (tc.want == job.Follows) || live.asked != tc.reads {
			t.Errorf("%s: %+v, %v, after %d live reads", name, v, err, live.asked)
		}
	}
}

// TestJudgeExisting: the API server confirms once, for each version of an object and its owner, that the owner has not made it.
func TestJudgeExisting(t *testing.T) {
	kinds := map[string]*job.Descriptor{}
	for _, d := range all.Descriptors() {
		kinds[d.GVK.Kind] = d
	}
	jobs, jobSets := kinds["Job"], kinds["JobSet"]
	setKey := client.ObjectKey{Namespace: "ns", Name: "set"}
	set := func(version string) client.Object {
		o := jobSets.New().(client.Object)
		o.SetName("set")
		o.SetUID("set")
		o.SetResourceVersion(version)
		return o
	}
	cache, live := &reader{objects: map[client.ObjectKey]client.Object{{Name: "ns"}: &corev1.Namespace{}}}, &reader{objects: map[client.ObjectKey]client.Object{}}
	cfg := &job.Config{VerifyOwners: true, Kinds: job.Kinds{jobs.GVK: true, jobSets.GVK: true}}
	g := lookup.NewGate(cfg, []*job.Descriptor{jobs, jobSets}, cache, live)
	for i, step := range []struct {
		object, version          string
		ownerCached, ownerStored string
		reads                    int
	}{
		{"a", "1", "1", "1", 1},
		{"a", "1", "1", "1", 0},
		{"b", "1", "1", "1", 1}, // another object
		{"a", "1", "1", "1", 0},
		{"a", "2", "1", "1", 1}, // changed
		{"a", "2", "1", "1", 0},
		{"a", "3", "1", "2", 1}, // the cache does not show the owner yet
		{"a", "3", "1", "2", 1},
		{"a", "3", "2", "2", 0},
	} {
		cache.objects[setKey], live.objects[setKey] = set(step.ownerCached), set(step.ownerStored)
		child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: step.object, UID: types.UID(step.object), ResourceVersion: step.version,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: jobSets.GVK.GroupVersion().String(), Kind: jobSets.GVK.Kind, Name: "set", UID: "set", Controller: new(true)},
			},
		}}
		live.asked = 0
		v, err := g.JudgeExisting(t.Context(), jobs, child)
		if err != nil || v.NotMade == nil {
			t.Fatalf("step %d: %+v, %v", i, v, err)
		}
		if live.asked != step.reads {
			t.Errorf("step %d: %d live reads, want %d", i, live.asked, step.reads)
		}
	}
}

func TestNewConfig(t *testing.T) {
	o := &options.Options{
		Frameworks: []string{"batch/job", "ray.io/rayservice"}, Gates: feature.Default(),
		ExternalFrameworks: []schema.GroupVersionKind{{Group: "tekton.dev", Version: "v1", Kind: "PipelineRun"}},
		ManagedNamespaces:  labels.Everything(), LabelKeysToCopy: []string{"team"},
	}
	o.Metrics.CustomLabels = []configv1beta2.CustomMetricLabel{
		{Name: "team", SourceKind: configv1beta2.MetricSourceWorkload},
		{Name: "of", SourceKind: configv1beta2.MetricSourceWorkload, SourceAnnotationKey: "example.com/of"},
		{Name: "queue", SourceKind: configv1beta2.MetricSourceClusterQueue},
	}
	o.PodsReady.Enabled = true
	cfg := lookup.NewConfig(o)
	if !slices.Equal(cfg.SeriesLabels, []string{"team"}) || !slices.Equal(cfg.SeriesAnnotations, []string{"example.com/of"}) {
		t.Errorf("labels %q and annotations %q are copied for metrics", cfg.SeriesLabels, cfg.SeriesAnnotations)
	}
	kinds := map[string]struct {
		gvk            schema.GroupVersionKind
		managed, known bool
	}{
		"enabled":      {batchv1.SchemeGroupVersion.WithKind("Job"), true, true},
		"not enabled":  {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, false, true},
		"of Ray":       {schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayService"}, true, true},
		"external":     {schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "PipelineRun"}, true, true},
		"in between":   {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, false, true},
		"none of ours": {schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, false, false},
	}
	for name, tc := range kinds {
		t.Run(name, func(t *testing.T) {
			if managed, known := cfg.Kinds[tc.gvk]; managed != tc.managed || known != tc.known {
				t.Errorf("managed %v, known %v", managed, known)
			}
		})
	}
	if !cfg.FinishOrphans || !cfg.Topology || cfg.ShortNames || !cfg.Lifecycle.WaitForPodsReady || cfg.Lifecycle.LegacyReasons {
		t.Errorf("gates are not at their defaults: %+v", cfg)
	}
	o.Gates = o.Gates.With(feature.UnadmittedWorkloadsObservability, false)
	if !lookup.Machine(o).LegacyReasons {
		t.Error("the gate for reasons does nothing")
	}
	if lookup.Machine(o).IgnorePlaces || !lookup.Machine(&options.Options{Gates: o.Gates.With(feature.TopologyAwareScheduling, false)}).IgnorePlaces {
		t.Error("the gate for topologies does nothing")
	}
}
