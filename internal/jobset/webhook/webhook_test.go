package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	jobsetcontroller "github.com/berth-project/berth/internal/jobset/controller"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/jobset/webhook"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/review/reviewtest"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// yard is an API server with the webhooks and the controllers of JobSets.
type yard struct {
	t         *testing.T
	c         client.Client
	namespace string
	mu        sync.Mutex
	warnings  []string
}

// HandleWarningHeader records the warnings of the API server.
func (y *yard) HandleWarningHeader(_ int, _, text string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.warnings = append(y.warnings, text)
}

func serveJobSets(t *testing.T, restConfig *rest.Config) *yard {
	t.Helper()
	embeddedtest.Quiet()
	scheme := runtime.NewScheme()
	y := &yard{t: t}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, jobsetv1alpha2.AddToScheme} {
		y.must(add(scheme))
	}
	mine := rest.CopyConfig(restConfig)
	mine.WarningHandler = y
	var err error
	y.c, err = client.New(mine, client.Options{Scheme: scheme})
	y.must(err)
	raw, err := config.FS.ReadFile("crd/jobset.x-k8s.io_jobsets.yaml")
	y.must(err)
	var crd apiextensionsv1.CustomResourceDefinition
	y.must(yaml.Unmarshal(raw, &crd))
	y.must(client.IgnoreAlreadyExists(y.c.Create(t.Context(), &crd)))
	wait.Until(y.t, "JobSets are served", func() error { return y.c.List(t.Context(), &jobsetv1alpha2.JobSetList{}) })

	server, url, ca := reviewtest.NewServer(t)
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, WebhookServer: server,
	})
	y.must(err)
	running, cancel := context.WithCancel(context.Background())
	pods, err := jobsetcontroller.NewPods(running, mgr)
	y.must(err)
	y.must(jobsetcontroller.Setup(mgr, jobsetcontroller.Options{Workers: 4, Pods: pods, Now: time.Now}))
	y.must(admission.SetupJobSets(mgr, webhook.Options{Leaders: jobsetcontroller.LeadersIn(pods)}))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	mutating, validating := admission.JobSetConfigurations(admission.Target{URL: url, CABundle: ca})
	t.Cleanup(func() {
		_ = y.c.Delete(context.WithoutCancel(t.Context()), mutating)
		_ = y.c.Delete(context.WithoutCancel(t.Context()), validating)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	y.must(y.c.Create(t.Context(), mutating))
	y.must(y.c.Create(t.Context(), validating))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "jobsets-"}}
	y.must(y.c.Create(t.Context(), ns))
	y.namespace = ns.Name
	wait.Until(y.t, "the webhooks answer", func() error {
		js := y.parse(small)
		if err := y.c.Create(t.Context(), js, client.DryRunAll); err != nil || js.Spec.Network == nil {
			return fmt.Errorf("%+v: %w", js.Spec, errors.Join(err))
		}
		bad := y.parse(strings.Replace(small, "name: ring", "name: 2fast", 1))
		if err := y.c.Create(t.Context(), bad, client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("not refused as invalid: %w", errors.Join(err))
		}
		return nil
	})
	return y
}

func (y *yard) must(err error) {
	y.t.Helper()
	if err != nil {
		y.t.Fatal(err)
	}
}

const small = `
metadata: {name: ring}
spec:
  replicatedJobs:
  - {name: oar, replicas: 2, template: {spec: {parallelism: 3, completions: 3, template: {metadata: {annotations: {berth.dev/run-seconds: "600"}}, spec: {containers: [{name: c, image: i}]}}}}}
`

func (y *yard) parse(manifest string) *jobsetv1alpha2.JobSet {
	y.t.Helper()
	js := &jobsetv1alpha2.JobSet{}
	y.must(yaml.UnmarshalStrict([]byte(manifest), js))
	js.Namespace = y.namespace
	return js
}

// Acceptance 1, 5, 6, 12, 16, 35, 38, 41, 63, 70: defaults, and refusals as invalid of what the schema and the webhook check.
func TestJobSetWebhooks(t *testing.T) {
	y := serveJobSets(t, embeddedtest.Config(t))
	for change, want := range map[string]string{
		"suspend: true": "",
		"coordinator: {replicatedJob: oar, jobIndex: 2}":                                             "spec.coordinator.jobIndex",
		"managedBy: nodomain":                                                                        "spec.managedBy",
		"network: {subdomain: Row_1}":                                                                "spec.network.subdomain",
		"failurePolicy: {rules: [{action: RestartJob}]}":                                             "feature gate RestartJob",
		"failurePolicy: {restartStrategy: InPlaceRestart}":                                           "feature gate InPlaceRestart",
		"failurePolicy: {rules: [{action: FailJobSet, onJobFailureMessagePatterns: ['[']}]}":         "onJobFailureMessagePatterns",
		"failurePolicy: {rules: [{action: FailJobSet}, {action: RestartJobSet}]}":                    "",
		"volumeClaimPolicies: [{templates: [{metadata: {name: data}, spec: {}}]}]":                   "no container",
		"successPolicy: {operator: All, targetReplicatedJobs: [cox]}":                                "spec.successPolicy.targetReplicatedJobs[0]",
		"startupPolicy: {startupPolicyOrder: Backwards}":                                             "startupPolicyOrder",
		"volumeClaimPolicies: [{templates: [{metadata: {name: data, namespace: other}, spec: {}}]}]": "namespace",
	} {
		err := y.c.Create(t.Context(), y.parse(small+"  "+change+"\n"), client.DryRunAll)
		switch {
		case want == "" && err != nil, want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q as invalid", change, err, want)
		}
	}
	y.must(y.c.Create(t.Context(), y.parse(small)))
	get := func() *jobsetv1alpha2.JobSet {
		js := &jobsetv1alpha2.JobSet{}
		y.must(y.c.Get(t.Context(), client.ObjectKey{Namespace: y.namespace, Name: "ring"}, js))
		return js
	}
	js := get()
	if rj := js.Spec.ReplicatedJobs[0]; *rj.Template.Spec.CompletionMode != "Indexed" || rj.GroupName != "default" || !*js.Spec.Network.PublishNotReadyAddresses {
		t.Errorf("defaults %+v", js.Spec)
	}
	generation := js.Generation
	for range 3 { // server-side apply of the same again
		patch := fmt.Appendf(nil, `{"apiVersion":"jobset.x-k8s.io/v1alpha2","kind":"JobSet","metadata":{"name":"ring","namespace":%q},"spec":{"suspend":true}}`, y.namespace)
		y.must(y.c.Patch(t.Context(), get(), client.RawPatch(types.ApplyPatchType, patch), client.FieldOwner("me"), client.ForceOwnership))
	}
	if got := get().Generation; got != generation+1 {
		t.Errorf("generation %d after %d", got, generation)
	}
	for name, test := range map[string]struct {
		patch   string
		refused bool
	}{
		"image while suspended":      {`[{"op":"replace","path":"/spec/replicatedJobs/0/template/spec/template/spec/containers/0/image","value":"j"}]`, true},
		"managedBy later":            {`[{"op":"add","path":"/spec/managedBy","value":"acme.io/x"}]`, true},
		"replicas":                   {`[{"op":"replace","path":"/spec/replicatedJobs/0/replicas","value":3}]`, true},
		"success policy removed":     {`[{"op":"remove","path":"/spec/successPolicy"}]`, false},
		"selector and resume":        {`[{"op":"replace","path":"/spec/suspend","value":false},{"op":"add","path":"/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector","value":{"a":"1"}}]`, false},
		"bad failure policy appears": {`[{"op":"add","path":"/spec/failurePolicy","value":{"rules":[{"name":"a-b","action":"FailJobSet"}]}}]`, true},
		"claims appear":              {`[{"op":"add","path":"/spec/volumeClaimPolicies","value":[{"templates":[{"metadata":{"name":"data"},"spec":{}}]}]}]`, false},
	} {
		err := y.c.Patch(t.Context(), get(), client.RawPatch(types.JSONPatchType, []byte(test.patch)), client.DryRunAll)
		if apierrors.IsInvalid(err) != test.refused || !test.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	y.mu.Lock()
	y.warnings = nil
	y.mu.Unlock()
	noImage := strings.Replace(strings.Replace(small, ", image: i", "", 1), "name: ring", "name: other", 1)
	y.must(y.c.Create(t.Context(), y.parse(noImage), client.DryRunAll))
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.warnings) != 1 || !strings.Contains(y.warnings[0], "containers[0]") {
		t.Errorf("warnings %q", y.warnings)
	}
}

// Acceptance 1, 7: the stored form of a JobSet with containers alone, and zero replicas stay zero for every writer.
func TestJobSetDefaults(t *testing.T) {
	y := serveJobSets(t, embeddedtest.Config(t))
	js := &unstructured.Unstructured{}
	y.must(yaml.Unmarshal([]byte(`
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: least}
spec:
  replicatedJobs:
  - {name: coach, template: {spec: {template: {spec: {containers: [{name: c, image: i}]}}}}}
  - {name: oar, replicas: 0, template: {spec: {template: {spec: {containers: [{name: c, image: i}]}}}}}
`), &js.Object))
	js.SetNamespace(y.namespace)
	y.must(y.c.Create(t.Context(), js))
	var want jobsetv1alpha2.JobSetSpec
	y.must(yaml.UnmarshalStrict([]byte(`
network: {enableDNSHostnames: true, publishNotReadyAddresses: true}
successPolicy: {operator: All}
startupPolicy: {startupPolicyOrder: AnyOrder}
replicatedJobs:
- {name: coach, groupName: default, replicas: 1, template: {spec: {completionMode: Indexed, template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}}}
- {name: oar, groupName: default, replicas: 0, template: {spec: {completionMode: Indexed, template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}}}
`), &want))
	stored := &jobsetv1alpha2.JobSet{}
	wait.Until(y.t, "its status is written", func() error {
		y.must(y.c.Get(t.Context(), client.ObjectKeyFromObject(js), stored))
		if len(stored.Status.ReplicatedJobsStatus) != 2 {
			return fmt.Errorf("status %+v", stored.Status)
		}
		return nil
	})
	if diff := cmp.Diff(want, stored.Spec); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	// Templates that make no Job are taken, too (60 §3.2), unless the schema asks for more: it, and not the webhook, then says for what.
	for template, taken := range map[string]bool{
		"{spec: {template: {spec: {containers: []}}}}": true, "{spec: {template: {spec: {}}}}": false, "{spec: {}}": false, "{}": false,
	} {
		bare := &unstructured.Unstructured{}
		y.must(yaml.Unmarshal([]byte(`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: bare}, spec: {replicatedJobs: [{name: oar, template: `+template+`}]}}`), &bare.Object))
		bare.SetNamespace(y.namespace)
		err := y.c.Create(t.Context(), bare, client.DryRunAll)
		if taken && err != nil || !taken && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "containers: Required value")) {
			t.Errorf("template %s: %v", template, err)
		}
	}
	var jobs batchv1.JobList
	wait.Until(y.t, "it has the one Job", func() error {
		y.must(y.c.List(t.Context(), &jobs, client.InNamespace(y.namespace)))
		if len(jobs.Items) != 1 || jobs.Items[0].Name != "least-coach-0" {
			return fmt.Errorf("%d Jobs", len(jobs.Items))
		}
		return nil
	})
}

// Acceptance 62: an existing claim is used again if it is retained and has the values of its template.
func TestClaimsThatExist(t *testing.T) {
	y := serveJobSets(t, embeddedtest.Config(t))
	claim := &corev1.PersistentVolumeClaim{}
	y.must(yaml.UnmarshalStrict([]byte(`{metadata: {name: data-ring}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1024Mi}}}}`), claim))
	claim.Namespace = y.namespace
	y.must(y.c.Create(t.Context(), claim))
	for _, test := range []struct{ policy, size, want string }{
		{"Retain", "1Gi", ""},
		{"Retain", "2Gi", "spec.volumeClaimPolicies[0].templates[0].spec.resources.requests"},
		{"Delete", "1Gi", "spec.volumeClaimPolicies[0].retentionPolicy.whenDeleted"},
	} {
		js := y.parse(strings.Replace(small, "image: i}", "image: i, volumeMounts: [{name: data, mountPath: /data}]}", 1) +
			`  volumeClaimPolicies: [{retentionPolicy: {whenDeleted: ` + test.policy + `}, templates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: ` +
			test.size + `}}}}]}]` + "\n")
		err := y.c.Create(t.Context(), js, client.DryRunAll)
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s of %s: %v, want %q as invalid", test.policy, test.size, err, test.want)
		}
	}
	// A claim that is being deleted, as in use by pods, is no final refusal.
	claim.Finalizers = []string{"test.io/in-use"}
	y.must(y.c.Update(t.Context(), claim))
	y.must(y.c.Delete(t.Context(), claim))
	js := y.parse(strings.Replace(small, "image: i}", "image: i, volumeMounts: [{name: data, mountPath: /data}]}", 1) + "  volumeClaimPolicies: [{templates: [{metadata: {name: data}, spec: {}}]}]\n")
	if err := y.c.Create(t.Context(), js); !apierrors.IsInvalid(err) || reconcile.IsRefused(err) {
		t.Errorf("a claim that is being deleted: %v", err)
	}
	y.must(y.c.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))))
	// The claims of a JobSet would conflict with another JobSet of its name, which the name does already.
	const mounting = "image: i, volumeMounts: [{name: disk, mountPath: /data}]}"
	js = y.parse(strings.Replace(small, "image: i}", mounting, 1) +
		"  volumeClaimPolicies: [{templates: [{metadata: {name: disk}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}]\n")
	again := js.DeepCopy()
	y.must(y.c.Create(t.Context(), js))
	claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: "disk-" + js.Name}}
	claim.Spec = js.Spec.VolumeClaimPolicies[0].Templates[0].Spec
	y.must(y.c.Create(t.Context(), claim))
	if err := y.c.Create(t.Context(), again); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the name of a JobSet with a claim: %v, want AlreadyExists", err)
	}
}

// Acceptance 49, 52: a follower waits for a leader, for its node and for the node's domain, and is told for which; it never gets an empty
// node selector. One that is there stays when the node goes.
func TestLeaderWithoutADomain(t *testing.T) {
	y := serveJobSets(t, embeddedtest.Config(t))
	pod := func(index int) *corev1.Pod {
		p := &corev1.Pod{}
		p.Namespace, p.Name = y.namespace, fmt.Sprintf("ring-oar-0-%d-xxxxx", index)
		p.Labels = map[string]string{
			jobsetv1alpha2.JobSetNameKey: "ring", jobsetv1alpha2.ReplicatedJobNameKey: "oar", jobsetv1alpha2.JobIndexKey: "0",
			jobsetv1alpha2.JobKeyKey: plan.JobKey(y.namespace, "ring-oar-0"),
		}
		p.Annotations = map[string]string{
			jobsetv1alpha2.JobSetNameKey: "ring", jobsetv1alpha2.ExclusiveTopologyAnnotation: "rack", batchv1.JobCompletionIndexAnnotation: fmt.Sprint(index),
		}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "ring-oar-0", UID: "job", Controller: new(true)}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		return p
	}
	refused := func(why string) {
		t.Helper()
		wait.Until(y.t, "a follower is refused: "+why, func() error {
			err := y.c.Create(t.Context(), pod(1), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), why) {
				return fmt.Errorf("error %w", errors.Join(err))
			}
			return nil
		})
	}
	refused("follower pod node selector not set: the leader pod is not there yet")
	leader := pod(0)
	y.must(y.c.Create(t.Context(), leader))
	refused("follower pod node selector not set: the leader pod ring-oar-0-0-xxxxx is not scheduled yet")
	y.must(y.c.SubResource("binding").Create(t.Context(), leader, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "lost"}}))
	refused("node lost of the leader pod is gone")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}
	y.must(y.c.Create(t.Context(), node))
	refused("node lost of the leader pod has no label rack")
	y.must(y.c.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"rack":"r1"}}}`))))
	follower := pod(1)
	wait.Until(y.t, "the follower is let in", func() error { return y.c.Create(t.Context(), follower) })
	if follower.Spec.NodeSelector["rack"] != "r1" {
		t.Errorf("node selector %v", follower.Spec.NodeSelector)
	}
	y.must(y.c.Delete(t.Context(), node))
	y.must(y.c.Patch(t.Context(), leader, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`))))
	refused("node lost of the leader pod is gone")
	wait.Stays(t, 300*time.Millisecond, "the follower is left alone", func() error {
		err := y.c.Get(t.Context(), client.ObjectKeyFromObject(follower), follower)
		if err == nil && (follower.DeletionTimestamp != nil || len(follower.Status.Conditions) > 0) {
			err = fmt.Errorf("%+v", follower)
		}
		return err
	})
}

// Acceptance 49, 50, 53: with the real scheduler two Jobs of three pods get a rack each; pods of other JobSets do not pass
// through a webhook; followers that are bound to the rack that their leader left are removed and come back to it.
func TestExclusivePlacement(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a whole cluster")
	}
	restConfig := embeddedtest.ConfigOf(t, embeddedtest.Start(t, embeddedtest.Full))
	y := serveJobSets(t, restConfig)
	var nodes corev1.NodeList
	y.must(y.c.List(t.Context(), &nodes))
	racks := map[string]string{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		racks[n.Name] = fmt.Sprintf("r%d", i/2)
		y.must(y.c.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"rack":%q}}}`, racks[n.Name]))))
	}
	y.must(y.c.Create(t.Context(), y.parse(strings.Replace(small, "name: ring", `name: ring, annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}`, 1))))
	// placed returns the rack of each Job once all its pods run in one.
	placed := func() (map[string]string, []corev1.Pod, error) {
		var list corev1.PodList
		y.must(y.c.List(t.Context(), &list, client.InNamespace(y.namespace)))
		out, n := map[string]string{}, 0
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed {
				continue
			}
			job, rack := p.Labels[jobsetv1alpha2.JobIndexKey], racks[p.Spec.NodeName]
			if rack == "" || out[job] != "" && out[job] != rack {
				return nil, nil, fmt.Errorf("pod %s is in rack %q, Job %s in %q", p.Name, rack, job, out[job])
			}
			out[job] = rack
			n++
		}
		if n != 6 || out["0"] == out["1"] {
			return nil, nil, fmt.Errorf("%d pods, racks %v", n, out)
		}
		return out, list.Items, nil
	}
	var pods []corev1.Pod
	wait.Until(y.t, "each Job has a rack of its own", func() (err error) { _, pods, err = placed(); return err })
	for _, p := range pods {
		leader := plan.IsLeader(&p)
		if (p.Spec.Affinity != nil) != leader || (p.Spec.NodeSelector["rack"] != "") == leader {
			t.Errorf("pod %s: affinity %v, selector %v", p.Name, p.Spec.Affinity, p.Spec.NodeSelector)
		}
	}
	// The rack of the first Job changes its name under it: its followers name a rack that is no more.
	first := slices.IndexFunc(pods, func(p corev1.Pod) bool { return plan.IsLeader(&p) && p.Labels[jobsetv1alpha2.JobIndexKey] == "0" })
	old := racks[pods[first].Spec.NodeName]
	for i := range nodes.Items {
		if n := &nodes.Items[i]; racks[n.Name] == old {
			racks[n.Name] = "new"
			y.must(y.c.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"rack":"new"}}}`))))
		}
	}
	// A change of the leader triggers a check of its followers.
	y.must(y.c.Patch(t.Context(), &pods[first], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`))))
	wait.Until(y.t, "its followers are bound to the new name", func() error {
		_, now, err := placed()
		for _, p := range now {
			if p.Labels[jobsetv1alpha2.JobIndexKey] == "0" && p.DeletionTimestamp == nil && !plan.IsLeader(&p) && p.Spec.NodeSelector["rack"] != "new" {
				return fmt.Errorf("pod %s has %v", p.Name, p.Spec.NodeSelector)
			}
		}
		return err
	})
	var now corev1.PodList
	y.must(y.c.List(t.Context(), &now, client.InNamespace(y.namespace)))
	same := 0
	for _, p := range now.Items {
		if slices.ContainsFunc(pods, func(q corev1.Pod) bool { return q.UID == p.UID }) {
			same++
		}
	}
	if same != 4 { // the leaders and the followers of the other Job
		t.Errorf("%d pods stayed, want 4", same)
	}
}

// No webhook is called for pods without exclusive placement.
func TestPodsWithoutPlacement(t *testing.T) {
	y := serveJobSets(t, embeddedtest.Config(t))
	mutating, validating := admission.JobSetConfigurations(admission.Target{URL: "https://127.0.0.1:1"}) // without a listener
	m, v := mutating.DeepCopy(), validating.DeepCopy()
	m.Webhooks, v.Webhooks = m.Webhooks[1:], v.Webhooks[1:]
	m.Name, v.Name = "dead-mutating", "dead-validating"
	y.must(y.c.Create(t.Context(), m))
	y.must(y.c.Create(t.Context(), v))
	t.Cleanup(func() {
		_ = y.c.Delete(context.WithoutCancel(t.Context()), m)
		_ = y.c.Delete(context.WithoutCancel(t.Context()), v)
	})
	pod := func(name string, annotations map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: y.namespace, Annotations: annotations}}
		p.Labels = map[string]string{jobsetv1alpha2.JobSetNameKey: "ring"}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		return p
	}
	exclusive := map[string]string{jobsetv1alpha2.JobSetNameKey: "ring", jobsetv1alpha2.ExclusiveTopologyAnnotation: "rack"}
	wait.Until(y.t, "an exclusive pod waits for the webhook", func() error {
		if err := y.c.Create(t.Context(), pod("exclusive", exclusive), client.DryRunAll); err == nil {
			return fmt.Errorf("it was created")
		}
		return nil
	})
	y.must(y.c.Create(t.Context(), pod("plain", map[string]string{jobsetv1alpha2.JobSetNameKey: "ring"})))
	exclusive[jobsetv1alpha2.NodeSelectorStrategyAnnotation] = ""
	y.must(y.c.Create(t.Context(), pod("strategy", exclusive)))
}
