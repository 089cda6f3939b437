package decide_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/ray"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// sentService is a RayService that runs on a worker, with the Workloads that it has here.
type sentService struct {
	t   *testing.T
	cfg *job.Config
	d   *job.Descriptor
	o   *job.Observed
}

func newSentService(t *testing.T, elastic bool) *sentService {
	t.Helper()
	const text = `
apiVersion: ray.io/v1
kind: RayService
metadata: {namespace: ns, name: llm, uid: u, generation: 1, labels: {kueue.x-k8s.io/queue-name: lq}, annotations: {}}
spec:
  managedBy: kueue.x-k8s.io/multikueue
  suspend: true
  rayClusterConfig:
    headGroupSpec: {template: {spec: {containers: [{name: h, image: one}]}}}
    workerGroupSpecs: [{groupName: w, replicas: 2, template: {spec: {containers: [{name: c, image: one}]}}}]`
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &sentService{
		t: t, cfg: &job.Config{FinishOrphans: true, ElasticJobs: true}, d: ray.Service(ray.Settings{Gating: true}),
		o: &job.Observed{Job: u, Verdict: job.Verdict{Mode: job.Managed}, Now: at(100)},
	}
	if elastic {
		u.SetAnnotations(map[string]string{kueue.ElasticJobAnnotation: "true"})
		s.d.Default(u, true, &job.Setting{Config: s.cfg})
	}
	return s
}

// next makes the next write, and returns its name.
func (s *sentService) next() string {
	s.t.Helper()
	a := decide.Next(s.cfg, s.d, s.o)
	switch a.Verb {
	case job.CreateWorkload:
		a.Workload.UID, a.Workload.CreationTimestamp = types.UID(a.Workload.Name), at(len(s.o.Workloads))
		s.o.Workloads = append(s.o.Workloads, a.Workload)
	case job.UpdateWorkload, job.WriteStatus:
		for i, w := range s.o.Workloads {
			if w.UID == a.Workload.UID {
				s.o.Workloads[i] = a.Workload
			}
		}
	case job.PatchJob:
		s.o.Job = a.Job
		return "patch service"
	default: // no write that affects this test
	}
	return describeAction(a)
}

func (s *sentService) is(want string) {
	s.t.Helper()
	if got := s.next(); !strings.HasPrefix(got, want) {
		s.t.Fatalf("got %s, want %s", got, want)
	}
}

// admit admits the newest Workload, and the copy that the worker has of it.
func (s *sentService) admit() {
	w := s.o.Workloads[len(s.o.Workloads)-1]
	a := &kueue.Admission{ClusterQueue: "cq"}
	for i := range w.Spec.PodSets {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{Name: w.Spec.PodSets[i].Name, Count: new(w.Spec.PodSets[i].Count)})
	}
	s.cfg.Lifecycle.Reserve(w, a, nil, at(10))
}

// mirrored applies the dispatcher's mirrored counts of the worker's clusters.
func (s *sentService) mirrored(text string) {
	annotations := s.o.Job.GetAnnotations()
	annotations["berth.dev/rayservice-clusters"] = text
	s.o.Job.SetAnnotations(annotations)
}

// TestSentServiceUpgrades is the manager's part of spec 30 §4.10.3, Limitation 3, 3, 5 and 6.
func TestSentServiceUpgrades(t *testing.T) {
	const old = `{"cluster":"a","podSet":"head","count":1},{"cluster":"a","podSet":"w","count":2}`
	const expected = `{"cluster":"","podSet":"head","count":1},{"cluster":"","podSet":"w","count":2}`
	s := newSentService(t, true)
	s.is("create workload")
	s.admit()
	s.is("patch service") // it starts here, and its operator leaves it alone
	s.is("nothing")
	s.mirrored("[" + old + "]")
	s.is("nothing")
	s.mirrored("[" + old + "," + expected + "]") // an edit
	s.is("create workload")
	first, replacement := s.o.Workloads[0], s.o.Workloads[1]
	if replacement.Annotations[kueue.WorkloadSliceReplacementForAnnotation] != "ns/"+first.Name || replacement.Spec.PodSets[0].Count != 2 || replacement.Spec.PodSets[1].Count != 4 {
		t.Fatalf("the next slice: %v, %d and %d", replacement.Annotations, replacement.Spec.PodSets[0].Count, replacement.Spec.PodSets[1].Count)
	}
	s.is("nothing")
	s.mirrored("[" + old + "]") // the edit is taken back
	s.is("status: Finished=True/OutOfSync")
	s.is("update workload") // its finalizer
	s.is("nothing")
	s.mirrored("[" + old + "," + expected + "]")
	s.is("create workload")
	s.admit()
	s.is("status: Finished=True/WorkloadSliceReplaced")
	s.is("update workload")
	s.mirrored("[" + old + strings.ReplaceAll(","+old, `"a"`, `"b"`) + "]") // the worker makes the new cluster
	s.is("nothing")
	s.mirrored(strings.ReplaceAll("["+old+"]", `"a"`, `"b"`)) // and the old one is gone
	s.is("update workload: queue lq, finalizers 1, count 1")
	s.is("nothing")
}

// TestSentServiceStops: a service that is not elastic is stopped for an edit of its templates, and sent anew; that its status, which is the
// worker's, says still that it runs keeps nothing.
func TestSentServiceStops(t *testing.T) {
	s := newSentService(t, false)
	s.is("create workload")
	s.admit()
	s.is("patch service")
	s.is("nothing")
	u := view.Of(s.o.Job)
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	view.Maps(u.Object, "spec", "rayClusterConfig", "workerGroupSpecs")[0]["replicas"] = int64(3)
	s.is("patch service")
	if !s.d.IsSuspended(s.o.Job) {
		t.Fatal("it is not stopped")
	}
	s.is("update workload: queue lq, finalizers 0")
	s.is("delete workload")
	s.o.Workloads = nil
	s.is("create workload")
	if got := s.o.Workloads[0].Spec.PodSets[1].Count; got != 3 {
		t.Errorf("%d workers", got)
	}
}

// TestServiceOfAManager is the worker's part of Limitation 3, 4: a Workload without room for all that the service has is not out of sync.
func TestServiceOfAManager(t *testing.T) {
	for name, tc := range map[string]struct {
		remote bool
		want   string
	}{
		"made by a manager":    {true, "nothing"},
		"made by someone else": {false, "status: Finished=True/OutOfSync"},
	} {
		s := newSentService(t, true)
		view.Set(view.Of(s.o.Job).Object, nil, "spec", "managedBy")
		s.is("create workload")
		s.admit()
		s.is("patch service")
		w := s.o.Workloads[0]
		view.Of(s.o.Job).SetAnnotations(map[string]string{kueue.ElasticJobAnnotation: "true", kueue.PrebuiltWorkloadLabel: w.Name})
		if tc.remote {
			w.Labels[kueue.MultiKueueOriginLabel] = "hub"
			view.Of(s.o.Job).SetLabels(map[string]string{kueue.QueueNameLabel: "lq", kueue.MultiKueueOriginLabel: "hub"})
		}
		s.cfg.AnnotationIdentifiers = true
		s.o.Prebuilt = w
		workers := view.Maps(view.Of(s.o.Job).Object, "spec", "rayClusterConfig", "workerGroupSpecs")[0]
		workers["replicas"] = int64(5)
		view.Maps(workers, "template", "spec", "containers")[0]["resources"] = map[string]any{"requests": map[string]any{"cpu": "2"}}
		if got := s.next(); !strings.HasPrefix(got, tc.want) || lifecycle.IsFinished(s.o.Workloads[0]) == tc.remote {
			t.Errorf("%s: %s", name, got)
		}
	}
}
