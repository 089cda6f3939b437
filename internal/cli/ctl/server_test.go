package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

// TestCommands runs every command on a real API server: first without the API, then with it but no manager, whose statuses the test
// writes, then with a manager. spec: 70 §4.9, §7 examples 43 to 49.
func TestCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server")
	}
	w := newWorld(t)
	t.Run("not installed", func(t *testing.T) {
		(&world{T: t, kubeconfig: w.kubeconfig, cfg: w.cfg, c: w.c}).transcript("notinstalled", "list workloads", "list cq", "explain workload x", "top", "stop cq x", "create rf f", "version")
	})
	if _, err := envtest.InstallCRDs(w.cfg, envtest.CRDInstallOptions{MaxTime: wait.Patience, Paths: []string{"../../../config/crd"}}); err != nil {
		t.Fatal(err)
	}
	w.populate()
	for _, part := range []struct {
		name string
		test func(*world)
	}{
		{"lists", (*world).lists},
		{"pages", (*world).pages},
		{"formats", (*world).formats},
		{"errors", (*world).errors},
		{"explain", (*world).explain},
		{"top", (*world).top},
		{"page", (*world).page},
		{"switches", (*world).switches},
		{"creation", (*world).creation},
		{"completion", (*world).completion},
		{"deletion", (*world).deletion},
		{"version", (*world).versions},
		{"manager", (*world).manager},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(&world{T: t, kubeconfig: w.kubeconfig, cfg: w.cfg, c: w.c}) })
	}
}

// populate makes two teams in nested cohorts, a queue without a cohort, and Workloads in every state.
func (w *world) populate() {
	for _, ns := range []string{"team-a", "team-b"} {
		w.create(&corev1.Namespace{ObjectMeta: meta("", ns)})
	}
	up := []metav1.Condition{condition("Active", "True", "Ready", "Can admit new workloads")}
	w.create(
		&kueue.ResourceFlavor{ObjectMeta: meta("", "a100"), Spec: kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{"zone": "z1", "gpu": "a100"}, NodeTaints: []corev1.Taint{{Key: "gpu", Value: "a100", Effect: "NoSchedule"}},
		}},
		&kueue.ResourceFlavor{ObjectMeta: meta("", "spot")},
		&kueue.Cohort{ObjectMeta: meta("", "org"), Spec: kueue.CohortSpec{ResourceGroups: groupOf(quota("a100", "nvidia.com/gpu", "8"))}},
		&kueue.Cohort{ObjectMeta: meta("", "research"), Spec: kueue.CohortSpec{ParentName: "org"}},
		&kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{"team": "a"}},
			Spec: kueue.ClusterQueueSpec{
				CohortName: "research", NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: groupOf(quota("a100", "cpu", "64", "nvidia.com/gpu", "16")),
			},
			Status: kueue.ClusterQueueStatus{Conditions: up, PendingWorkloads: 77, ReservingWorkloads: 77, AdmittedWorkloads: 77}, // of a manager that is gone
		},
		&kueue.ClusterQueue{
			ObjectMeta: meta("", "team-b"), Spec: kueue.ClusterQueueSpec{CohortName: "research", ResourceGroups: groupOf(quota("a100", "nvidia.com/gpu", "16"))},
			Status: kueue.ClusterQueueStatus{Conditions: []metav1.Condition{condition("Active", "False", "FlavorNotFound", "Can't admit new workloads:\nno flavor \x1b[31mspot")}},
		},
		&kueue.ClusterQueue{ObjectMeta: meta("", "alone"), Spec: kueue.ClusterQueueSpec{StopPolicy: kueue.StopPolicyHold, ResourceGroups: groupOf(quota("spot", "cpu", "0"))}},
		&kueue.ClusterQueue{ObjectMeta: meta("", "implied"), Spec: kueue.ClusterQueueSpec{CohortName: "nameless"}},
		&kueue.LocalQueue{ObjectMeta: meta("team-a", "main"), Spec: kueue.LocalQueueSpec{ClusterQueue: "team-a"}, Status: kueue.LocalQueueStatus{Conditions: up, PendingWorkloads: 77}},
		&kueue.LocalQueue{ObjectMeta: meta("team-a", "night"), Spec: kueue.LocalQueueSpec{ClusterQueue: "alone", StopPolicy: kueue.StopPolicyHoldAndDrain}},
		&kueue.LocalQueue{ObjectMeta: meta("team-b", "main"), Spec: kueue.LocalQueueSpec{ClusterQueue: "team-b"}},
		&kueue.Topology{ObjectMeta: meta("", "racks"), Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: "kubernetes.io/hostname"}}}},
		&kueue.AdmissionCheck{ObjectMeta: meta("", "budget"), Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/budget"}, Status: kueue.AdmissionCheckStatus{Conditions: up}},
		&kueue.WorkloadPriorityClass{ObjectMeta: meta("", "high"), Value: 1000, Description: "for the hurried"},
	)
	train := job("team-a", "train", "main")
	w.create(train, job("team-a", "bare", ""), job("team-a", "stray", "main"), job("team-b", "train", "main"))
	waits := condition("QuotaReserved", "False", "WaitingForQuota", "pod set main: cpu in flavor a100: 1 more needed (1 requested, 0 available)")
	reserved := condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved")
	admitted := condition("Admitted", "True", "Admitted", "The workload is admitted")
	finished := condition("Finished", "True", "Succeeded", "Job finished")
	finished.LastTransitionTime = metav1.NewTime(finished.LastTransitionTime.Add(90 * time.Second))
	admission := &kueue.Admission{ClusterQueue: "team-a", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "a100"}, ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("12")}, Count: new(int32(1)),
	}}}
	labeled := owned(workload("team-a", "job-train", "main", waits), "batch/v1", "Job", "train", train.UID)
	labeled.Labels = map[string]string{kueue.JobUIDLabel: string(train.UID)}
	labeled.Spec.PodSets[0].Template.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}} // it fits
	checked := workload("team-a", "reserved", "main", reserved, condition("Admitted", "False", "UnsatisfiedAdmissionChecks", "checks are pending"))
	checked.Status.Admission = admission
	checked.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "budget", State: kueue.CheckStatePending, Message: "asking the boss", LastTransitionTime: admitted.LastTransitionTime}}
	runs := owned(workload("team-a", "runs", "main", reserved, admitted), "ray.io/v1", "RayCluster", "ray", "ray-uid")
	runs.Status.Admission = admission
	done := workload("team-a", "done", "main", reserved, admitted, finished)
	done.Status.Admission = admission
	evicted := owned(workload("team-a", "stopped", "night", condition("QuotaReserved", "False", "Pending", "The workload is deactivated"), condition("Evicted", "True", "Deactivated", "It was deactivated")),
		"batch/v1", "Job", "other", "other-uid")
	evicted.Spec.Active = new(false)
	long := owned(owned(workload("team-b", "long", "main"), "batch/v1", "CronJob", "one", "u1"), "apps/v1", "ControllerRevision", "two", "u2")
	lost := workload("team-b", "lost", "nowhere")
	w.create(labeled, checked, runs, done, evicted, long, lost)
	for _, name := range []string{"train-0", "train-1"} {
		w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, Labels: map[string]string{batchv1.JobNameLabel: "train", "index": name[6:]}}, Spec: podSpec()})
	}
}

func (w *world) lists() {
	w.transcript("lists",
		"list workloads -n team-a", "list kwl -A -o wide", "list workload -n team-a --status ADMITTED,finished", "list wl -A --status quotareserved --no-headers",
		"list workloads -A -c team-a --status all", "list workloads -A -q night", "list kueueworkloads -n team-a --for job/train", "list wl -A --for Jobs.Batch/train", "list wl --for job/none",
		"list workloads -A --field-selector status.admission.clusterQueue=team-a,metadata.name!=done",
		"list localqueues -n team-a", "list lq -A -o wide", "list lq -A -c team-b", "list clusterqueues", "list cq -o wide", "list cq --active=true", "list cq --active=false -l team!=a", "list cq -l team=a",
		"list resourceflavor", "list rf -o wide", "list cohorts", "list cohort --field-selector metadata.name=org", "list topologies", "list ac -o wide", "list wpc -o wide",
		"list lq", "list cq -l nobody=here", "list wl -A -q nobody", "list cq -l nobody=here -o name", "list lq -n tema-a",
	)
	// The table of pods is the API server's, with ages of now.
	_, stdout, _ := berth(w.Context(), "", "list", "po", "-n", "team-a", "--for", "job/train", "-l", "index=1")
	if head := strings.Fields(strings.Split(stdout, "\n")[0]); strings.Join(head, " ") != "NAME READY STATUS RESTARTS AGE" || strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, "train-1   0/1") {
		w.Errorf("pods with a label:\n%s", stdout)
	}
	_, stdout, _ = berth(w.Context(), "", "list", "pods", "-A", "--for", "job/train", "-o", "wide")
	if !strings.HasPrefix(stdout, "NAMESPACE") || !strings.Contains(stdout, "NOMINATED NODE") || strings.Count(stdout, "\nteam-a      train-") != 2 {
		w.Errorf("pods everywhere:\n%s", stdout)
	}
	w.transcript("pods", "list pods --for job/train -n team-a -o name", "list pods --for job/train -n team-b", "list pods --for job/none -n team-a", "list pods --for pod/train-0 -n team-a", "list pods --for namespace/team-a", "list pods")
}

// pages: a list in many pages is printed like one in a single page.
func (w *world) pages() {
	_, whole, _ := berth(w.Context(), "", "list", "wl", "-A", "-o", "wide")
	w.Setenv("KUEUECTL_LIST_REQUEST_LIMIT", "2")
	if _, paged, stderr := berth(w.Context(), "", "list", "wl", "-A", "-o", "wide"); paged != whole || stderr != noManager {
		w.Errorf("in pages:\n%s\nin one:\n%s\n%s", paged, whole, stderr)
	}
	w.Setenv("KUEUECTL_LIST_REQUEST_LIMIT", "1")
	if _, stdout, _ := berth(w.Context(), "", "list", "pods", "-n", "team-a", "--for", "job/train"); strings.Count(stdout, "NAME") != 1 || strings.Count(stdout, "\n") != 3 {
		w.Errorf("pods in pages:\n%s", stdout)
	}
	for _, wrong := range []string{"0", "-1", "x"} {
		w.Setenv("KUEUECTL_LIST_REQUEST_LIMIT", wrong)
		if code, _, stderr := berth(w.Context(), "", "list", "cq"); code != 2 || !strings.Contains(stderr, "KUEUECTL_LIST_REQUEST_LIMIT="+wrong+": must be a positive number") {
			w.Errorf("%s: %d %s", wrong, code, stderr)
		}
	}
}

func (w *world) formats() {
	file := filepath.Join(w.TempDir(), "template")
	if err := os.WriteFile(file, []byte("{.items[0].kind}"), 0o600); err != nil {
		w.Fatal(err)
	}
	w.transcript("formats",
		"list rf -o name", "list rf -o yaml --field-selector metadata.name=a100", "list cq -o jsonpath='{.items[*].metadata.name}'", "list cq -l team=a -o jsonpath-as-json='{.items[*].spec.cohortName}'",
		"list cq -o go-template='{{range .items}}{{.metadata.name}} {{end}}'", "list cq -o jsonpath", "list cq -o xml", "list cq -o go-template='{{'", "list cq -o jsonpath='{.items'",
	)
	if code, stdout, stderr := berth(w.Context(), "", "list", "wl", "-A", "-o", "jsonpath-file="+file); code != 0 || stdout != "Workload" {
		w.Errorf("%d %q %q", code, stdout, stderr)
	}
	if code, stdout, _ := berth(w.Context(), "", "list", "wl", "-n", "nobody", "-o", "json"); code != 0 || !strings.Contains(stdout, `"kind": "WorkloadList"`) || !strings.Contains(stdout, `"items": []`) {
		w.Errorf("an empty list: %d %s", code, stdout)
	}
	if _, stdout, _ := berth(w.Context(), "", "list", "rf", "-o", "json"); strings.Contains(stdout, "managedFields") {
		w.Error("managedFields are printed without having been asked for")
	}
	if _, stdout, _ := berth(w.Context(), "", "list", "rf", "-o", "json", "--show-managed-fields"); !strings.Contains(stdout, "managedFields") {
		w.Error("managedFields are not printed")
	}
}

func (w *world) errors() {
	w.transcript("errors",
		"list", "list clusterqueus", "list cq team-a", "list cq --active=true,false", "list cq --field-selector bogus=1", "list cq -l a=b=c", "list wl --status running", "list wl --for train", "list wl --for jbo/train",
		"explain workload reserve -n team-a", "explain workload job-train -n tema-a", "explain job none -n team-a", "explain job", "explain job train more",
		"stop cq tem-a", "stop cq zzzzzzzz", "stop lq zzzzzzzz -n team-b", "stop cq", "stop cq team-a --dry-run=perhaps", "list cq --context nowhere", "top cq team-x", "top queues", "top --interval 0s", "top --hosts", "top -o json", "top --topology dc", "top --topology racks", "top --topology -o xml",
		"delete workload", "delete workload --all x", "delete workload -A x",
		"list cq --kubeconfig /nonexistent", "list cq -s https://127.0.0.1:1", "list cq --as nobody",
	)
	empty := filepath.Join(w.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		w.Fatal(err)
	}
	w.Setenv("KUBECONFIG", empty)
	if code, _, stderr := berth(w.Context(), "", "list", "cq"); code != 1 || stderr != "error: no API server is named in KUBECONFIG="+empty+": give --kubeconfig, or start one with berth up --detach\n" {
		w.Errorf("%d %s", code, stderr)
	}
	if code, stdout, stderr := berth(w.Context(), "", "list", "cq", "--kubeconfig", w.kubeconfig, "-o", "name"); code != 0 || !strings.Contains(stdout, "/team-a\n") {
		w.Errorf("with a flag: %d %s", code, stderr)
	}
}

// explain without a manager evaluates the Workloads.
func (w *world) explain() {
	w.transcript("explain",
		"explain workload job-train -n team-a", "explain job train -n team-a", "explain wl/reserved -n team-a", "explain workload runs -n team-a", "explain workload done -n team-a", "explain workload stopped -n team-a",
		"explain workload long -n team-b", "explain workload lost -n team-b", "explain job/bare -n team-a", "explain jobs.batch/stray -n team-a", "explain pod train-0 -n team-a", "explain job bare -n team-a -o yaml", "explain workload runs -n team-a -o yaml",
	)
}

func (w *world) top() {
	w.transcript("top", "top", "top -r nvidia.com/gpu --no-headers", "top clusterqueue team-b alone", "top cohorts", "top cohort research", "top flavor", "top flavors spot")
	lasts := 600 * time.Millisecond
	wait.Until(w.T, "--watch shows it again and again", func() error {
		lasts *= 2
		ctx, stop := context.WithTimeout(w.Context(), lasts)
		defer stop()
		code, stdout, stderr := berth(ctx, "", "top", "flavor", "--watch", "--interval", "100ms")
		if code != 0 || stderr != noManager || strings.Count(stdout, "a100   a100") < 3 || !strings.Contains(stdout, ", every 100ms\n\nNAME") {
			return fmt.Errorf("%d %s\n%s", code, stderr, stdout)
		}
		return nil
	})
}

func (w *world) switches() {
	w.transcript("switches",
		"stop workload job-train -n team-a --dry-run=client", "stop workload job-train -n team-a --dry-run=server", "list workloads -n team-a -o jsonpath='{.items[*].spec.active}'",
		"stop workload job-train -n team-a", "list workloads -n team-a --field-selector metadata.name=job-train -o jsonpath='{.items[*].spec.active}'",
		"resume kwl job-train -n team-a", "list workloads -n team-a --field-selector metadata.name=job-train -o jsonpath='{.items[*].spec.active}'",
		"stop clusterqueue team-a", "list cq -l team=a -o jsonpath='{.items[*].spec.stopPolicy}'", "stop cq team-a --keep-already-running", "list cq -l team=a -o jsonpath='{.items[*].spec.stopPolicy}'",
		"resume cq team-a --dry-run=server", "list cq -l team=a -o jsonpath='{.items[*].spec.stopPolicy}'", "resume cq team-a", "list cq -l team=a -o jsonpath='{.items[*].spec.stopPolicy}'",
		"stop lq main -n team-a --keep-already-running -o jsonpath='{.spec.stopPolicy}'", "stop lq main -n team-a -o name", "resume localqueue main -n team-a --dry-run client -o jsonpath='{.spec.stopPolicy}'", "resume localqueue main -n team-a", "list lq -A -o wide",
	)
}

func (w *world) creation() {
	w.transcript("creation",
		"create clusterqueue x --nominal-quota 'f1:cpu=4;memory=8Gi' --borrowing-limit 'f1:cpu=2;memory=0' --dry-run=client -o yaml",
		"create cq mixed --cohort c --nominal-quota 'f1:cpu=4;x.io/gpu=1,f2:x.io/gpu=2;cpu=500m;' --nominal-quota f3:x.io/gpu-mem=5 --lending-limit 'f4:x.io/gpu-mem=0' --queuing-strategy StrictFIFO "+
			"--namespace-selector a=b --reclaim-within-cohort Any --preemption-within-cluster-queue LowerPriority",
		"list cq --field-selector metadata.name=mixed -o yaml",
		"create cq mixed", "create cq Mixed", "create cq", "create cq y --queuing-strategy FIFO", "create cq y --nominal-quota 'f:cpu=1,memory=2Gi'",
		"create lq y -n team-a -c nope", "create lq y -n team-a -c nope -i", "create lq z -n team-a -c mixed --dry-run=server", "create lq z -n team-a -c mixd", "create lq z -n team-a", "create lq z -n team-x -c mixed",
		"create rf spots --node-labels a=b,c=d --node-taints k=v:NoSchedule,k:NoExecute --tolerations k=v:NoSchedule,k,:NoExecute -o yaml --dry-run=client", "create rf spots", "create rf more --node-taints k",
	)
}

func (w *world) completion() {
	for args, want := range map[string]string{
		"stop cq ":                           "implied mixed team-a team-b",
		"resume cq ":                         "alone",
		"stop workload -n team-a ":           "done job-train reserved runs",
		"resume wl -n team-a ":               "stopped",
		"delete workload -n team-a done ":    "job-train reserved runs stopped",
		"stop cq team-a ":                    "",
		"create lq x -c ":                    "alone implied mixed team-a team-b",
		"list wl --status ":                  "all pending quotareserved admitted finished",
		"top cohort ":                        "org research",
		"explain workload -n team-b ":        "long lost",
		"list cq -s https://127.0.0.1:1 -o ": "json yaml name wide",
		"stop cq -s https://127.0.0.1:1 ":    "",
		"list wl --context ":                 "berth",
	} {
		_, stdout, _ := berth(w.Context(), "", append([]string{cobraComplete}, append(strings.Fields(args), "")...)...)
		names, directive, _ := strings.Cut(stdout, ":")
		if got := strings.Join(strings.Fields(names), " "); got != want || !strings.HasPrefix(directive, "4") {
			w.Errorf("berth %s: %q %s, want %q", args, got, directive, want)
		}
	}
}

const cobraComplete = "__completeNoDesc"

func (w *world) deletion() {
	w.transcript("deletion",
		"n | delete workload job-train -n team-a", "delete workload job-train -n team-a", "delete workload job-train -n team-a --dry-run=server", "delete wl --all -n team-b --dry-run=client",
		"delete workload nobody lost -n team-b", "delete workload job-trian -n team-a", "delete workload runs -n team-a", "delete workload stopped -n team-a -y",
	)
	key := client.ObjectKey{Namespace: "team-a", Name: "train"}
	if err := w.c.Get(w.Context(), key, &batchv1.Job{}); err != nil {
		w.Fatalf("it was deleted without a yes: %v", err)
	}
	w.transcript("deletion-yes", "Y | delete workload job-train done -n team-a")
	if err := w.c.Get(w.Context(), key, &batchv1.Job{}); !apierrors.IsNotFound(err) {
		w.Errorf("the job is still there: %v", err)
	}
}

func (w *world) versions() {
	w.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "queues", Labels: map[string]string{"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy", Image: "proxy:2"}, {Name: "manager", Image: "example.com/berth:1"}}},
		}},
	})
	w.transcript("version", "version", "version --client", "version --as nobody", "version -s https://127.0.0.1:1", "version more")
}

// manager: with a manager, positions are known, and explanations are decision traces.
func (w *world) manager() {
	w.create(&rbacv1.ClusterRole{ObjectMeta: meta("", "reader"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta("", "eve"), Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		})
	stop := w.manage()
	w.create(&corev1.Namespace{ObjectMeta: meta("", "live")}, &kueue.ResourceFlavor{ObjectMeta: meta("", "f")},
		&kueue.ClusterQueue{ObjectMeta: meta("", "live"), Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: groupOf(quota("f", "cpu", "500m"))}},
		&kueue.LocalQueue{ObjectMeta: meta("live", "main"), Spec: kueue.LocalQueueSpec{ClusterQueue: "live"}})
	for i, name := range []string{"first", "second"} {
		one := workload("live", name, "main")
		one.Spec.Priority = new(int32(10 - i))
		w.create(one)
	}
	wait.Until(w.T, "what is pending is explained", func() error {
		_, stdout, stderr := berth(w.Context(), "", "explain", "workload", "second", "-n", "live")
		_, list, _ := berth(w.Context(), "", "list", "wl", "-n", "live", "--no-headers")
		_, conditions, _ := berth(w.Context(), "", "explain", "workload", "second", "-n", "live", "--as", "eve") // written a second later
		if strings.Contains(stdout, "[ExceedsMaxQuota]") && stderr == "" && strings.Contains(list, "PENDING   1") &&
			strings.Contains(conditions, "[ExceedsMaxQuota]") {
			return nil
		}
		return errors.New(stdout + stderr + list + conditions)
	})
	w.transcript("manager", "list wl -n live", "list wl -n live --as eve", "explain workload first -n live", "explain workload second -n live -o jsonpath='{.reason} {.positionInClusterQueue} {.shortfalls[0].requested}'", "explain workload second -n live --as eve")
	w.racks()
	stop()
	w.transcript("stopped", "top --topology dc", "explain workload first -n live", "list wl -n live --field-selector metadata.name=first")
}

// racks: the nodes of a topology, as the manager counts them.
func (w *world) racks() {
	w.create(
		&kueue.Topology{ObjectMeta: meta("", "dc"), Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}}},
		&kueue.Topology{ObjectMeta: meta("", "idle"), Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}}}},
		&kueue.ResourceFlavor{ObjectMeta: meta("", "placed"), Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "dc"}, TopologyName: "dc"}},
		&kueue.ClusterQueue{ObjectMeta: meta("", "placed"), Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: groupOf(quota("placed", "cpu", "100"))}},
		&kueue.LocalQueue{ObjectMeta: meta("live", "placed"), Spec: kueue.LocalQueueSpec{ClusterQueue: "placed"}})
	for i := range 3 {
		name := fmt.Sprint("host-", i)
		n := &corev1.Node{ObjectMeta: meta("", name)}
		n.Labels = map[string]string{"pool": "dc", "rack": fmt.Sprint("r", i/2), corev1.LabelHostname: name}
		w.create(n)
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("10")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := w.c.Status().Update(w.Context(), n); err != nil {
			w.Fatal(err)
		}
	}
	w.create(workload("live", "gang", "placed"))
	wait.Until(w.T, "the manager counts three nodes and has placed the gang", func() error {
		_, stdout, stderr := berth(w.Context(), "", "top", "--topology", "dc", "-o", "jsonpath={.flavors[0].nodes.counted} {.flavors[0].shapes[0].running}")
		if stdout != "3 1" {
			return errors.New(stdout + stderr)
		}
		return nil
	})
	w.transcript("topology", "top --topology", "top --topology dc idle --hosts --no-headers", "top --topology dc -r cpu", "top --topology dc -o yaml", "top --topology dc --as eve")
}

// manage runs a manager until it is stopped, or the test ends.
func (w *world) manage() (stop func()) {
	port := func() int { return embeddedtest.FreePort(w) }
	o := options.Default()
	o.LeaderElection.Enabled, o.Metrics.Address, o.Health.Address = false, "0", "0"
	o.Webhook.Host, o.Webhook.Port, o.VisibilityAddress = "127.0.0.1", port(), fmt.Sprint("127.0.0.1:", port())
	groups, err := install.ParseGroups("")
	if err != nil {
		w.Fatal(err)
	}
	url := fmt.Sprint("https://127.0.0.1:", o.Webhook.Port)
	ctx, cancel := context.WithCancel(context.Background())
	if err := install.Apply(ctx, w.cfg, install.Options{WebhookURL: url, Options: o, Groups: groups}, io.Discard); err != nil {
		w.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- wire.Run(ctx, wire.Config{REST: w.cfg, Options: o, Groups: groups, WebhookURL: url, OnReady: func() { close(ready) }, Log: testr.New(w.T)})
	}()
	w.managed = true
	stop = sync.OnceFunc(func() {
		w.managed = false
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	wait.Ready(w.T, "the manager", ready, ended)
	return stop
}

// A slow server is reported, and a limit ends the wait.
func TestSlowServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	code, _, stderr := berth(t.Context(), "", "list", "cq", "-s", server.URL, "--request-timeout", "2500ms")
	if code != 1 || !strings.HasPrefix(stderr, "still waiting for "+server.URL+" to answer (2s)\n") || !strings.Contains(stderr, "did not answer within --request-timeout") {
		t.Errorf("%d %s", code, stderr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if code, _, stderr := berth(ctx, "", "list", "cq", "-s", server.URL); code != 1 || stderr != "error: interrupted\n" {
		t.Errorf("%d %s", code, stderr)
	}
}
