package ctl

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// noManager is what a command says that computes its answer.
const noManager = "no manager answers: computed here from the objects of the API, read-only and without a manager's memory of past decisions\n"

// TestStandalone: on the same objects, commands say the same with a manager and after it has stopped, from the API alone.
func TestStandalone(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server")
	}
	w := newWorld(t)
	if _, err := envtest.InstallCRDs(w.cfg, envtest.CRDInstallOptions{MaxTime: wait.Patience, Paths: []string{"../../../config/crd"}}); err != nil {
		t.Fatal(err)
	}
	w.past()
	stop := w.manage()
	w.queued()
	lines := []string{
		"list workloads -A -o wide", "list workloads -A -o json", "list workloads -n red --status pending", "list cq -o wide", "list lq -A -o wide", "list cohorts",
		"top", "top cohort org", "top flavor", "top --topology", "top --topology dc --hosts -o yaml",
	}
	for name := range explained {
		lines = append(lines, "explain workload "+name+" -n red", "explain workload "+name+" -n red -o yaml", "explain workload "+name+" -n red -o json")
	}
	wait.Until(t, "the manager has evaluated all Workloads, has forecast their starts, and has written the statuses", w.evaluated)
	with := map[string]string{}
	for _, line := range lines {
		code, stdout, stderr := w.answered(time.Now, "", split(line)...)
		if code != 0 || stderr != "" {
			t.Errorf("with a manager: %s: %d %s", line, code, stderr)
		}
		with[line] = steady(stdout)
	}
	stop()
	for _, line := range lines {
		code, stdout, stderr := berthAt(t.Context(), time.Now, "", split(line)...)
		want := noManager
		if strings.HasPrefix(line, "list workloads -A -o json") {
			want = "" // it prints objects
		}
		if code != 0 || stderr != want {
			t.Errorf("without: %s: %d %s", line, code, stderr)
		}
		if diff := cmp.Diff(with[line], steady(stdout)); diff != "" {
			t.Errorf("%s: with a manager (-) and without (+):\n%s", line, diff)
		}
	}
	w.mallory()
	w.others()
}

// explained is a part of the explanation of each Workload.
var explained = map[string]string{
	"runs":      "red/runs in team (priority 0): admitted",
	"long":      "red/long in alone (priority 0): admitted",
	"gang":      "red/gang in placed (priority 0): admitted",
	"next":      "starts about",
	"after":     "1 job ahead",
	"huge":      "ExceedsMaxQuota",
	"small":     "2 jobs ahead",
	"last":      "starts about",
	"scattered": "TopologyPlacementFailed",
	"held":      "LocalQueue held is stopped",
	"lost":      "LocalQueue nowhere doesn't exist",
	"stopped":   "it is deactivated",
	"done":      "it is finished",
}

// evaluated checks the manager's answers.
func (w *world) evaluated() error {
	for name, part := range explained {
		code, stdout, stderr := berthAt(w.Context(), time.Now, "", "explain", "workload", name, "-n", "red")
		if code != 0 || stderr != "" || !strings.Contains(stdout, part) || strings.Contains(stdout, "forecast was made") {
			return fmt.Errorf("%s: %s%s", name, stdout, stderr)
		}
	}
	_, stdout, stderr := berthAt(w.Context(), time.Now, "", "top", "--no-headers")
	if at := strings.Join(strings.Fields(stdout), " "); !strings.Contains(at, "team f cpu") || !strings.Contains(at, "1 admitted, 4 pending") || !strings.Contains(at, "1 admitted, 1 pending") {
		return errors.New(stdout + stderr)
	}
	for _, name := range []string{"next", "huge", "last", "scattered"} {
		var o kueue.Workload
		if err := w.c.Get(w.Context(), client.ObjectKey{Namespace: "red", Name: name}, &o); err != nil || pendingBecause(&o) == "" {
			return fmt.Errorf("%s has no reason yet: %w", name, err)
		}
	}
	return nil
}

// queued makes Workloads in all states, and the queues and nodes that they need.
func (w *world) queued() {
	all := &metav1.LabelSelector{}
	w.create(
		&kueue.ResourceFlavor{ObjectMeta: meta("", "f")},
		&kueue.Cohort{ObjectMeta: meta("", "org")},
		&kueue.ClusterQueue{ObjectMeta: meta("", "team"), Spec: kueue.ClusterQueueSpec{CohortName: "org", NamespaceSelector: all, ResourceGroups: groupOf(quota("f", "cpu", "2"))}},
		&kueue.ClusterQueue{ObjectMeta: meta("", "lender"), Spec: kueue.ClusterQueueSpec{CohortName: "org", NamespaceSelector: all, ResourceGroups: groupOf(quota("f", "cpu", "2"))}},
		&kueue.ClusterQueue{ObjectMeta: meta("", "alone"), Spec: kueue.ClusterQueueSpec{NamespaceSelector: all, ResourceGroups: groupOf(quota("f", "cpu", "1"))}},
		&kueue.Topology{ObjectMeta: meta("", "dc"), Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}}},
		&kueue.ResourceFlavor{ObjectMeta: meta("", "racks"), Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "dc"}, TopologyName: "dc"}},
		&kueue.ClusterQueue{ObjectMeta: meta("", "placed"), Spec: kueue.ClusterQueueSpec{NamespaceSelector: all, ResourceGroups: groupOf(quota("racks", "cpu", "100"))}},
	)
	for name, cq := range map[string]string{"main": "team", "alone": "alone", "placed": "placed", "held": "team"} {
		lq := &kueue.LocalQueue{ObjectMeta: meta("red", name), Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(cq)}}
		if name == "held" {
			lq.Spec.StopPolicy = kueue.StopPolicyHold
		}
		w.create(lq)
	}
	for i := range 4 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("host-", i)}}
		n.Labels = map[string]string{"pool": "dc", "rack": fmt.Sprint("r", i/2), corev1.LabelHostname: n.Name}
		w.create(n)
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("10")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := w.c.Status().Update(w.Context(), n); err != nil {
			w.Fatal(err)
		}
	}
	foreign := &corev1.Pod{ObjectMeta: meta("red", "foreign"), Spec: podSpec()}
	foreign.Spec.NodeName = "host-3"
	w.create(foreign)
	of := func(name, queue, cpu string, pods, priority int32) *kueue.Workload {
		one := workload("red", name, queue)
		one.Spec.Priority = &priority
		one.Spec.PodSets[0].Count = pods
		one.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu)
		return one
	}
	inRack := func(one *kueue.Workload) *kueue.Workload {
		rack := "rack"
		one.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: &rack}
		return one
	}
	expects := func(one *kueue.Workload) *kueue.Workload {
		one.Annotations = map[string]string{berthv1alpha1.ExpectedRunSecondsKey: "1800"}
		return one
	}
	w.create(expects(of("runs", "main", "4", 1, 0)), of("long", "alone", "1", 1, 0), inRack(of("gang", "placed", "1", 3, 0)))
	for _, name := range []string{"runs", "long", "gang"} {
		wait.Until(w.T, name+" is admitted", func() error {
			var o kueue.Workload
			if err := w.c.Get(w.Context(), client.ObjectKey{Namespace: "red", Name: name}, &o); err != nil {
				return err
			}
			if lifecycle.StateOf(&o) != lifecycle.StateAdmitted {
				return errors.New(lifecycle.StateOf(&o) + " " + pendingBecause(&o))
			}
			return nil
		})
	}
	w.create(expects(of("next", "main", "2", 1, 9)), expects(of("after", "main", "2", 1, 8)), of("small", "main", "1", 1, 7), of("huge", "main", "5", 1, 6),
		of("last", "alone", "1", 1, 0), inRack(of("scattered", "placed", "3", 3, 0)), of("held", "held", "1", 1, 0), of("lost", "nowhere", "1", 1, 0))
	stopped := of("stopped", "main", "1", 1, 0)
	stopped.Spec.Active = new(false)
	w.create(stopped)
}

// past makes three Workloads that ran for ten minutes each.
func (w *world) past() {
	w.create(&corev1.Namespace{ObjectMeta: meta("", "red")})
	for _, name := range []string{"done", "done-2", "done-3"} {
		ended := condition("Finished", "True", "Succeeded", "Job finished")
		ended.LastTransitionTime = metav1.NewTime(ended.LastTransitionTime.Add(10 * time.Minute))
		done := workload("red", name, "main", condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved"), ended)
		done.Status.Admission = &kueue.Admission{ClusterQueue: "team", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}
		w.create(done)
	}
}

// mallory may list nothing but Workloads, and trudy all objects of queueing: a note names the missing lists.
func (w *world) mallory() {
	w.create(
		&rbacv1.ClusterRole{ObjectMeta: meta("", "workloads-only"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"workloads"}, Verbs: []string{"get", "list"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta("", "mallory"), Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "workloads-only"},
		},
		&rbacv1.ClusterRole{ObjectMeta: meta("", "queues-only"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta("", "trudy"), Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "trudy"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "queues-only"},
		},
	)
	wait.Until(w.T, "an answer without the right to list queues is derived from conditions", func() error {
		code, stdout, stderr := berth(w.Context(), "", "explain", "workload", "next", "-n", "red", "--as", "mallory")
		if code != 0 || !strings.HasPrefix(stderr, "No manager answers, and nothing can be computed here (list ") || !strings.Contains(stdout, "waits for quota since") {
			return fmt.Errorf("%d %s%s", code, stdout, stderr)
		}
		return nil
	})
	wait.Until(w.T, "lists of Kubernetes that may not be read are left out", func() error {
		code, stdout, stderr := berth(w.Context(), "", "explain", "workload", "next", "-n", "red", "--as", "trudy")
		if code != 0 || !strings.HasPrefix(stderr, noManager+"left out: list NamespaceList: ") || !strings.Contains(stdout, "WaitingForQuota") {
			return fmt.Errorf("%d %s%s", code, stdout, stderr)
		}
		return nil
	})
}

// others: the visibility API may be another manager's, which knows nothing of starts; and a failing API server gives no empty answer.
func (w *world) others() {
	another := w.before(func(o http.ResponseWriter, r *http.Request) bool {
		is := strings.HasPrefix(r.URL.Path, "/apis/visibility.kueue.x-k8s.io/")
		if is {
			o.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(o, `{"kind":"PendingWorkloadsSummary","apiVersion":"visibility.kueue.x-k8s.io/v1beta2","items":[{"metadata":{"name":"next","namespace":"red"},"positionInLocalQueue":77}]}`)
		}
		return is
	})
	code, stdout, stderr := berthAt(w.Context(), time.Now, "", "list", "wl", "-n", "red", "-q", "main", "-s", another, "--field-selector", "metadata.name=next", "--no-headers")
	if code != 0 || stderr != noManager || !strings.Contains(steady(stdout), "PENDING 0 ~") {
		w.Errorf("with the visibility API of another manager: %d %s%s", code, stdout, stderr)
	}
	failing := w.before(func(o http.ResponseWriter, r *http.Request) bool {
		is := strings.HasSuffix(r.URL.Path, "/v1beta2/resourceflavors")
		if is {
			http.Error(o, "etcdserver: no leader", http.StatusInternalServerError)
		}
		return is
	})
	for _, line := range []string{"list wl -n red", "explain workload next -n red", "top", "top --topology dc", "list cq", "list lq -n red", "list cohort"} {
		if code, stdout, stderr := berth(w.Context(), "", append(split(line), "-s", failing)...); code != 1 || stdout != "" || !strings.Contains(stderr, "error: list ResourceFlavorList: ") {
			w.Errorf("with a failing API server: %s: %d %s%s", line, code, stdout, stderr)
		}
	}
}

// before serves the API server at another address, but for requests that other answers.
func (w *world) before(other func(http.ResponseWriter, *http.Request) bool) (address string) {
	target, err := url.Parse(w.cfg.Host)
	if err != nil {
		w.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	if proxy.Transport, err = rest.TransportFor(w.cfg); err != nil {
		w.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(o http.ResponseWriter, r *http.Request) {
		if !other(o, r) {
			proxy.ServeHTTP(o, r)
		}
	}))
	w.Cleanup(server.Close)
	return server.URL
}

// unsteady is what differs between two answers about the same objects: ages, versions of lists, and forecasts, which draw run times at random.
var unsteady = regexp.MustCompile(`\b\d+m\d+s\b|\b\d+s\b|\b([A-Z][a-z]{2} \d+ )?\d\d:\d\d\b|\d{4}-\d\d-\d\dT[0-9:]+Z|"resourceVersion": "\d+"| +`)

func steady(text string) string { return unsteady.ReplaceAllString(text, " ") }
