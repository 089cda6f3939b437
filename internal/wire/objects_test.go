package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// objectsConfig is the configuration of the tests of the queueing objects.
const objectsConfig = `
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]
resources:
  excludeResourcePrefixes: [free.example.com/]
  transformations:
  - {input: nvidia.com/mig-1g, strategy: Replace, outputs: {acc/slots: 1, acc/mem: 5Gi}}
  - {input: example.com/x, strategy: Retain, multiplyBy: cpu, outputs: {credits: 2}}
featureGates: {PriorityBoost: true}
`

// ownServer starts an API server that ends with the test, which is skipped where tests have to be short. Requests of its client are not limited.
func ownServer(t *testing.T) (*rest.Config, client.Client) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs an API server")
	}
	admin := embeddedtest.ConfigOf(t, embeddedtest.Start(t))
	c, err := client.New(admin, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return admin, c
}

// TestQueueingObjects runs the manager on a real API server: the objects of the queueing API have their effects, and a correct status.
func TestQueueingObjects(t *testing.T) {
	admin, c := ownServer(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(objectsConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	configured, err := options.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("configured", func(t *testing.T) {
		s := &seen{t, admin, c}
		s.manageWith(configured, "", true)
		s.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}})
		for name, test := range map[string]func(*seen){
			"10 §7.13 defaults of a LimitRange":                   (*seen).limitRangeDefaults,
			"10 §7.14 overhead of a RuntimeClass":                 (*seen).runtimeClass,
			"10 §4.4 a LimitRange comes and goes":                 (*seen).limitRangeChanges,
			"10 §4.5 step 3 requests above limits":                (*seen).misfits,
			"10 §7.11 §7.12 transformations":                      (*seen).transformations,
			"10 §2.6 §7.59 the value of a priority class":         (*seen).priorityClass,
			"10 §4.14 boosted priorities":                         (*seen).boost,
			"10 §4.13 Active of a ClusterQueue":                   (*seen).clusterQueueActive,
			"10 §6 #14 cohorts in a circle":                       (*seen).circle,
			"10 §4.13 Active of a LocalQueue":                     (*seen).localQueueActive,
			"10 §7.75 §6 #21 more flavors than 64":                (*seen).manyFlavors,
			"10 §2.2 figures of queues":                           (*seen).figures,
			"10 §7.54 a ClusterQueue is deleted":                  (*seen).deletedQueue,
			"10 §4.13 a deleted ClusterQueue without admitted":    (*seen).deletedIdleQueue,
			"10 §7.55 a ResourceFlavor is deleted":                (*seen).deletedFlavor,
			"10 §7.42 a namespace that a queue does not take":     (*seen).namespaceSelector,
			"10 §7.52 §7.69 a queue is held":                      (*seen).held,
			"10 §4.12 a LocalQueue is held":                       (*seen).heldLocal,
			"berth.dev/quota-from-nodes evicts nothing":           (*seen).quotaFromNodes,
			"20 §2.1 §7.1 §7.2 fair shares":                       (*seen).shares,
			"10 §4.1 a status is written once a second at most":   (*seen).coalesced,
			"design §8 warnings about what is not acted upon yet": (*seen).warnings,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // each has a namespace and queues of its own
				test(&seen{t, admin, c})
			})
		}
	})
	t.Run("20 §2.1 no shares without fair sharing", func(t *testing.T) {
		s := &seen{t, admin, c}
		s.manageWith(options.Default(), "", false)
		s.noShares()
	})
}

// space creates a namespace.
func (s *seen) space(name string, labels map[string]string) string {
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	return name
}

// room creates a namespace with a LocalQueue lq for a new ClusterQueue of the same name, and waits until it is active.
func (s *seen) room(name, cpu string, edit ...func(*kueue.ClusterQueueSpec)) {
	s.Helper()
	cq := clusterQueue(name, cpu)
	for _, e := range edit {
		e(&cq.Spec)
	}
	s.space(name, nil)
	s.create(cq, localQueue(name, "lq", name))
	wait.Until(s.T, "ClusterQueue "+name+" is active", func() error {
		return is(s.clusterQueue(name).Status.Conditions, kueue.ClusterQueueActive, metav1.ConditionTrue, kueue.ReasonReady)
	})
}

// work returns a Workload with one pod set in a room, whose pods have one container.
func work(room, name string, count int32, requests string, edit ...func(*kueue.Workload)) *kueue.Workload {
	w := waiting(room, "lq", name, 0)
	w.Spec.PodSets[0].Count = count
	w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests = amounts(requests)
	for _, e := range edit {
		e(w)
	}
	return w
}

// amounts reads "cpu=1 memory=2Gi".
func amounts(text string) corev1.ResourceList {
	var out corev1.ResourceList
	for field := range strings.FieldsSeq(text) {
		if name, q, ok := strings.Cut(field, "="); ok {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[corev1.ResourceName(name)] = resource.MustParse(q)
		}
	}
	return out
}

// text is the inverse of amounts, sorted.
func text(list corev1.ResourceList) string {
	var out []string
	for name, q := range list {
		out = append(out, fmt.Sprintf("%s=%s", name, q.String()))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (s *seen) workload(room, name string) *kueue.Workload {
	s.Helper()
	return read(s, room, name, &kueue.Workload{})
}

func (s *seen) clusterQueue(name string) *kueue.ClusterQueue {
	s.Helper()
	return read(s, "", name, &kueue.ClusterQueue{})
}

func (s *seen) localQueue(room string) *kueue.LocalQueue {
	s.Helper()
	return read(s, room, "lq", &kueue.LocalQueue{})
}

func read[O client.Object](s *seen, namespace, name string, into O) O {
	s.Helper()
	if err := s.c.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		s.Fatal(err)
	}
	return into
}

// change edits an object, and retries after conflicts.
func change[O client.Object](s *seen, object O, edit func(O)) {
	s.Helper()
	embeddedtest.Edit(s, s.c, object, edit)
}

// changeStatus edits the status of an object.
func changeStatus[O client.Object](s *seen, object O, edit func(O)) {
	s.Helper()
	embeddedtest.EditStatus(s, s.c, object, edit)
}

func (s *seen) remove(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := s.c.Delete(s.Context(), o); err != nil {
			s.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
		}
	}
}

// gone waits until an object is deleted.
func (s *seen) gone(o client.Object) {
	s.Helper()
	wait.Until(s.T, fmt.Sprintf("%T %s is gone", o, o.GetName()), func() error {
		err := s.c.Get(s.Context(), client.ObjectKeyFromObject(o), o)
		if err == nil {
			return fmt.Errorf("deletion %v, finalizers %v", o.GetDeletionTimestamp(), o.GetFinalizers())
		}
		return client.IgnoreNotFound(err)
	})
}

// is checks a condition.
func is(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) error {
	c := apimeta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		return fmt.Errorf("condition %+v, want %s=%s because of %s", c, kind, status, reason)
	}
	return nil
}

// waits waits until a Workload is pending for a reason, with the words in its message.
func (s *seen) waits(room, name, reason string, words ...string) {
	s.Helper()
	wait.Until(s.T, fmt.Sprintf("%s/%s waits: %s", room, name, reason), s.waiting(room, name, reason, words...))
}

// keepsWaiting fails the test if a Workload stops waiting for a reason within a moment.
func (s *seen) keepsWaiting(room, name, reason string) {
	s.Helper()
	wait.Stays(s.T, moment, fmt.Sprintf("%s/%s waits: %s", room, name, reason), s.waiting(room, name, reason))
}

func (s *seen) waiting(room, name, reason string, words ...string) func() error {
	return func() error {
		conditions := s.workload(room, name).Status.Conditions
		if err := is(conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, reason); err != nil {
			return err
		}
		for _, w := range words {
			if c := apimeta.FindStatusCondition(conditions, kueue.WorkloadQuotaReserved); !strings.Contains(c.Message, w) {
				return fmt.Errorf("message %q has no %q", c.Message, w)
			}
		}
		return nil
	}
}

// runs waits until a Workload is admitted, and returns its usage.
func (s *seen) runs(room, name string) string {
	s.Helper()
	var usage string
	wait.Until(s.T, fmt.Sprintf("%s/%s is admitted", room, name), func() error {
		w := s.workload(room, name)
		if err := is(w.Status.Conditions, kueue.WorkloadAdmitted, metav1.ConditionTrue, kueue.ReasonAdmitted); err != nil {
			return fmt.Errorf("%w in %+v", err, w.Status.Conditions)
		}
		usage = text(w.Status.Admission.PodSetAssignments[0].ResourceUsage)
		return nil
	})
	return usage
}

// finish ends a Workload.
func (s *seen) finish(room, name string) {
	s.Helper()
	changeStatus(s, s.workload(room, name), func(w *kueue.Workload) {
		apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.ReasonSucceeded, Message: "it is done",
		})
	})
}

// warned collects warnings.
type warned struct{ texts []string }

func (w *warned) HandleWarningHeader(_ int, _ string, text string) { w.texts = append(w.texts, text) }

// warnings: setting an ignored field returns a warning. A Workload with claims of a missing template stays pending, and so does one that is to
// be placed where no flavor has a topology.
func (s *seen) warnings() {
	const room = "warnings"
	s.room(room, "4")
	told := &warned{}
	cfg := rest.CopyConfig(s.admin)
	cfg.WarningHandler = told
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	queue := clusterQueue("warnings-scoped", "1")
	queue.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "warnings-placed"}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"a": "b"}, TopologyName: "t",
	}}
	placed := work(room, "placed", 1, "cpu=1", func(w *kueue.Workload) {
		w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("rack")}
	})
	claims := work(room, "claims", 1, "cpu=1", func(w *kueue.Workload) {
		w.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
	})
	weighed := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: room, Name: "weighed"}, Spec: kueue.LocalQueueSpec{
		ClusterQueue: room, FairSharing: &kueue.FairSharing{Weight: new(resource.MustParse("2"))},
	}}
	for _, o := range []client.Object{queue, flavor, placed, claims, weighed} {
		if err := c.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
	want := []string{"spec.admissionScope has no effect:", "spec.fairSharing has no effect:"}
	if len(told.texts) != len(want) {
		s.Fatalf("warnings %q", told.texts)
	}
	for i, path := range want {
		if !strings.HasPrefix(told.texts[i], path) {
			s.Errorf("warning %q, want one about %s", told.texts[i], path)
		}
	}
	s.waits(room, "placed", kueue.ReasonNoMatchingFlavor, "has no topology")
	s.waits(room, "claims", kueue.ReasonMisconfigured, "resourceClaims")
}
