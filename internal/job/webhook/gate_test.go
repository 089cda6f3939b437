package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/review"
	"github.com/berth-project/berth/internal/review/reviewtest"
)

// namespaces is a reader that has one namespace, a default queue in it, and a default class.
type namespaces struct {
	client.Reader
	labels map[string]string
	only   *testing.T // if not nil, the namespace is all that may be read
}

func (n namespaces) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if _, ok := into.(*corev1.Namespace); ok {
		into.SetLabels(n.labels)
	} else if n.only != nil {
		n.only.Errorf("%T %s is looked up", into, key)
	}
	into.SetName(key.Name)
	return nil
}

// gateServer is a server with everything on that could make it touch a job of a kind.
func gateServer(d *job.Descriptor, reader namespaces) *server {
	o := testOptions()
	c := o.Jobs
	c.DefaultPriorityClass, c.ManageAll, c.MultiKueue, c.ElasticJobs, c.Topology, c.HonourUserSuspend = true, true, true, true, true, true
	c.ManagedNamespaces, c.Kinds = labels.SelectorFromSet(labels.Set{"managed": "yes"}), job.Kinds{d.GVK: true}
	return &server{o: o, reader: reader, gate: lookup.NewGate(c, nil, reader, reader), descriptors: []*job.Descriptor{d}}
}

// tempting is a job with everything that Berth changes or refuses.
func tempting(d *job.Descriptor) job.Object {
	o := d.New()
	o.SetNamespace("ns")
	o.SetAnnotations(map[string]string{
		kueue.ElasticJobAnnotation: "true", kueue.PodSuspendingParentAnnotation: "acme", kueue.PodSetRequiredTopologyAnnotation: "A B",
	})
	o.SetLabels(map[string]string{kueue.QueueNameLabel: "A_B", kueue.MaxExecTimeSecondsLabel: "x"})
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(o, d.GVK)}) // it owns itself
	if d.Framework == "ray.io/raycluster" {
		view.Set(view.Of(o).Object, true, "spec", "enableInTreeAutoscaling")
	}
	return o
}

// TestGateInTheWebhook calls the webhooks of every kind as an API server does whose webhook configuration is wider than ours.
// Where the namespace is off limits nothing is changed, refused or even looked up; where it is not, each kind is touched
// (spec: 30 §4.2.4 gaps g1 to g8, §7 examples 3 and 4).
func TestGateInTheWebhook(t *testing.T) {
	for _, d := range all.Descriptors() {
		o := tempting(d)
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		req := &admission.Request{}
		req.Namespace, req.OldObject.Raw = "ns", raw

		off := gateServer(d, namespaces{only: t})
		if err := off.validateJob(d)(t.Context(), req, o, nil); err != nil {
			t.Errorf("%s: refused in a namespace that is off limits: %v", d.Framework, err)
		}
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
			req.Operation = operation
			if err := off.defaultJob(d)(t.Context(), req, o); err != nil {
				t.Errorf("%s, %s: %v", d.Framework, operation, err)
			}
		}
		if diff := cmp.Diff(tempting(d), o); diff != "" {
			t.Errorf("%s: changed in a namespace that is off limits:\n%s", d.Framework, diff)
		}

		on := gateServer(d, namespaces{labels: map[string]string{"managed": "yes"}})
		if on.validateJob(d)(t.Context(), req, o, nil) == nil {
			t.Errorf("%s: not refused in a namespace that is managed", d.Framework)
		}
		req.Operation = admissionv1.Create
		o.SetOwnerReferences(nil)
		o.SetLabels(nil)
		was := o.DeepCopyObject()
		if err := on.defaultJob(d)(t.Context(), req, o); err != nil || cmp.Diff(was, o.DeepCopyObject()) == "" {
			t.Errorf("%s: not touched in a namespace that is managed (%v)", d.Framework, err)
		}
	}
}

// TestDefaultsOfServing: a serving object gets the default queue and class when it is created. Ones that are created later are not added to
// it, as its update would be refused (spec: 30 §3.2, §5.5).
func TestDefaultsOfServing(t *testing.T) {
	both := func(value string) map[string]string {
		return map[string]string{kueue.QueueNameLabel: value, kueue.PriorityClassLabel: value}
	}
	refused := []string{"metadata.labels[kueue.x-k8s.io/priority-class]", "metadata.labels[kueue.x-k8s.io/queue-name]"}
	for name, tc := range map[string]struct {
		isNew              bool
		old, changed, want map[string]string
		refused            []string
	}{
		"a new one":         {isNew: true, want: both("default")},
		"a new one of a":    {isNew: true, changed: both("a"), want: both("a")},
		"without a queue":   {},
		"of a queue":        {old: both("a"), changed: both("a"), want: both("a")},
		"of the default":    {old: both("default"), want: both("default")},
		"removed from it":   {old: both("a"), refused: refused},
		"without a class":   {old: map[string]string{kueue.QueueNameLabel: "a"}, changed: map[string]string{kueue.QueueNameLabel: "a"}, want: map[string]string{kueue.QueueNameLabel: "a"}},
		"with other labels": {old: map[string]string{"app": "a"}, changed: map[string]string{"app": "b"}, want: map[string]string{"app": "b"}},
	} {
		for _, d := range all.Descriptors() {
			if !d.Serving {
				continue
			}
			for _, ready := range []int{0, 1} {
				s := gateServer(d, namespaces{labels: map[string]string{"managed": "yes"}})
				s.o.Jobs.ManageAll = false
				req, old := &admission.Request{}, job.Object(nil)
				if req.Namespace, req.Operation = "ns", admissionv1.Create; !tc.isNew {
					old, req.Operation = servingObject(t, d, ready, tc.old), admissionv1.Update
					raw, err := json.Marshal(old)
					if err != nil {
						t.Fatal(err)
					}
					req.OldObject.Raw = raw
				}
				o := servingObject(t, d, ready, tc.changed)
				if err := s.defaultJob(d)(t.Context(), req, o); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, o.GetLabels(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s, %s with %d ready: labels (-want +got):\n%s", d.Framework, name, ready, diff)
				}
				if old == nil {
					continue
				}
				rules := jobRules{cfg: s.o.Jobs, d: d, job: o, old: old}
				if diff := cmp.Diff(tc.refused, reviewtest.Fields(t, review.Refuse(rules.update()))); diff != "" {
					t.Errorf("%s, %s with %d ready: refused (-want +got):\n%s", d.Framework, name, ready, diff)
				}
			}
		}
	}
}

// identified is a reader whose objects all have one UID.
type identified struct{ namespaces }

func (n identified) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	into.SetUID("u")
	return n.namespaces.Get(ctx, key, into, opts...)
}

// TestJobOfJobSet: the webhook suspends no Job of a JobSet that is not queued, whatever label the Job or the namespace's default queue
// would give it, and leaves it to its cluster: the JobSet controller would resume it for ever (spec: 60 §4.13).
func TestJobOfJobSet(t *testing.T) {
	jobSet := metav1.TypeMeta{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet"}
	for _, queue := range []string{"", "lq"} {
		for _, enabled := range []bool{false, true} {
			d := all.Descriptors()[slices.IndexFunc(all.Descriptors(), func(d *job.Descriptor) bool { return d.Framework == "batch/job" })]
			s := gateServer(d, namespaces{labels: map[string]string{"managed": "yes"}})
			s.o.Jobs.ManageAll, s.o.Jobs.Kinds[jobSet.GroupVersionKind()] = false, enabled
			reader := identified{s.reader.(namespaces)}
			s.gate = lookup.NewGate(s.o.Jobs, nil, reader, reader)
			o := d.New()
			o.SetNamespace("ns")
			o.SetLabels(map[string]string{kueue.QueueNameLabel: queue})
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: jobSet.APIVersion, Kind: jobSet.Kind, Name: "ring", UID: "u", Controller: new(true)}})
			req := &admission.Request{}
			req.Namespace, req.Operation = "ns", admissionv1.Create
			before := o.DeepCopyObject()
			if err := s.defaultJob(d)(t.Context(), req, o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, o.DeepCopyObject()); diff != "" {
				t.Errorf("queue %q, JobSets queued %v: changed\n%s", queue, enabled, diff)
			}
		}
	}
}

// stored is a reader of objects in a managed namespace, as JSON by Go type and name.
type stored struct {
	namespaces
	objects map[string]string
}

func (r stored) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if text, ok := r.objects[fmt.Sprintf("%T %s", into, key.Name)]; ok {
		return json.Unmarshal([]byte(text), into)
	}
	return r.namespaces.Get(ctx, key, into, opts...)
}

// TestPodOfServing: a pod below an object that serves waits for quota although it lacks the marks of a template. A user has made it, or it is
// older than the marks.
func TestPodOfServing(t *testing.T) {
	owned := func(kind, name string) string {
		return fmt.Sprintf(`"ownerReferences": [{"apiVersion": "apps/v1", "kind": %q, "name": %q, "uid": "u", "controller": true}]`, kind, name)
	}
	const queue = `"labels": {"kueue.x-k8s.io/queue-name": "lq"}`
	top, middle := `{"metadata": {"name": "d", "uid": "u", `+queue+`}}`, `{"metadata": {"name": "d-1", "uid": "v", `+owned("Deployment", "d")+`}}`
	reader := stored{namespaces{labels: map[string]string{"managed": "yes"}}, map[string]string{
		"*v1.Deployment d": top, "*v1.ReplicaSet d-1": middle, "*v1.PartialObjectMetadata d": top, "*v1.PartialObjectMetadata d-1": middle,
		"*v1.StatefulSet s": `{"metadata": {"name": "s", "uid": "u", ` + queue + `}, "spec": {"replicas": 2}}`,
		"*v1.StatefulSet l": `{"metadata": {"name": "l", "uid": "u", "ownerReferences":
			[{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "l", "uid": "w", "controller": true}]}, "spec": {"replicas": 2}}`,
		"*unstructured.Unstructured l": `{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "l", "uid": "w", ` + queue + `},
			"spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": {}}}}}`,
	}}
	const parent, role = kueue.PodSuspendingParentAnnotation, kueue.RoleHashAnnotation
	for name, tc := range map[string]struct {
		owner               metav1.OwnerReference
		trusted             bool
		labels, annotations map[string]string
	}{
		"d-1-x": {
			owner:       metav1.OwnerReference{Kind: "ReplicaSet", Name: "d-1", UID: "v"},
			labels:      map[string]string{kueue.QueueNameLabel: "lq", kueue.ManagedLabel: "true", kueue.PriorityClassLabel: "default"},
			annotations: map[string]string{parent: "deployment", role: "own", job.SuspendedAnnotation: "true"},
		},
		"s-1": {
			owner:       metav1.OwnerReference{Kind: "StatefulSet", Name: "s", UID: "u"},
			annotations: map[string]string{parent: "statefulset", role: "own", job.SuspendedAnnotation: "true"},
		},
		"l-0": {
			owner:       metav1.OwnerReference{Kind: "StatefulSet", Name: "l", UID: "u"},
			labels:      map[string]string{kueue.QueueNameLabel: "lq"},
			annotations: map[string]string{parent: "leaderworkerset.x-k8s.io/leaderworkerset", kueue.PodGroupServingAnnotation: "true", role: "own", job.SuspendedAnnotation: "true"},
		},
		"d-1-y": {
			owner:       metav1.OwnerReference{Kind: "ReplicaSet", Name: "d-1", UID: "v"},
			trusted:     true,
			labels:      map[string]string{kueue.QueueNameLabel: "default", kueue.PriorityClassLabel: "default"},
			annotations: map[string]string{role: "own"},
		},
	} {
		kinds := all.Descriptors()
		d := kinds[slices.IndexFunc(kinds, func(d *job.Descriptor) bool { return d.Framework == "pod" })]
		s := gateServer(d, reader.namespaces)
		s.descriptors, s.o.Jobs.VerifyOwners, s.o.Jobs.ManageAll = kinds, !tc.trusted, false
		s.o.Jobs.Kinds = job.Kinds{{Group: "apps", Version: "v1", Kind: "ReplicaSet"}: false}
		for _, k := range kinds {
			s.o.Jobs.Kinds[k.GVK] = true
		}
		s.gate = lookup.NewGate(s.o.Jobs, kinds, reader, reader)
		tc.owner.APIVersion, tc.owner.Controller = "apps/v1", new(true)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{tc.owner}, Annotations: map[string]string{role: "own"},
		}}
		req := &admission.Request{}
		req.Namespace, req.Operation = "ns", admissionv1.Create
		if err := s.defaultJob(d)(t.Context(), req, pod); err != nil {
			t.Fatal(err)
		}
		if job.PodIsGated(pod) == tc.trusted || cmp.Diff(tc.labels, pod.Labels, cmpopts.EquateEmpty()) != "" || cmp.Diff(tc.annotations, pod.Annotations) != "" {
			t.Errorf("%s: gates %v, labels %v, annotations %v", name, pod.Spec.SchedulingGates, pod.Labels, pod.Annotations)
		}
	}
}
