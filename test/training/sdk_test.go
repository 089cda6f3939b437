package training

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

const (
	jobsPath = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/lab/trainjobs"
	ancestor = "trainer.kubeflow.org/trainjob-ancestor-step"
)

// TestSDK makes the requests of the Kubeflow SDK, 0.4 to 0.5, as a user with the training role only, and reads the answers as it does
// (spec: 50 §4.12, §7.62 to 64).
func TestSDK(t *testing.T) {
	k := start(t)
	u := k.user("ann")

	public := u.get("/api/v1/namespaces/kubeflow-system/configmaps/kubeflow-trainer-public")
	if at(public, "data", "kubeflow_trainer_version") != "2.3.0" {
		t.Errorf("version %v", public["data"])
	}
	u.listRuntimes()

	// train(), with a name of its own and the options RuntimePatch, Labels and TrainerCommand.
	const name = "b0123456789a"
	job := object{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": object{"name": name, "labels": object{"team": "red"}},
		"spec": object{
			"runtimeRef": object{"name": "torch-distributed"},
			"trainer":    object{"numNodes": 3, "command": []string{"torchrun"}, "args": []string{"go.py"}, "numProcPerNode": 2},
			"runtimePatches": []any{object{"manager": "trainer.kubeflow.org/kubeflow-sdk", "trainingRuntimeSpec": object{"template": object{"spec": object{
				"replicatedJobs": []any{object{"name": "node", "template": object{"spec": object{"template": object{
					"metadata": object{"annotations": object{"berth.dev/run-seconds": "8"}}, "spec": object{"nodeSelector": object{"type": "kwok"}},
				}}}}},
			}}}}},
		},
	}
	status, made := u.send(http.MethodPost, jobsPath, job)
	if status != http.StatusCreated || at(made, "spec", "runtimeRef", "kind") != "ClusterTrainingRuntime" || at(made, "spec", "runtimeRef", "apiGroup") != "trainer.kubeflow.org" {
		t.Fatalf("created: %d %v", status, made)
	}
	if stamp, _ := at(made, "spec", "runtimePatches", 0, "time").(string); stamp == "" {
		t.Error("the patch has no time")
	}
	seen := u.watch(name, at(made, "metadata", "resourceVersion").(string))
	wait.Until(k.t, "the SDK says Running", func() error {
		if got := u.status(name); got != "Running" {
			return fmt.Errorf("it says %s", got)
		}
		return nil
	})
	if got, want := u.steps(name), []string{"node-0", "node-1", "node-2"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
	u.logs(name)
	wait.Until(k.t, "the SDK says Complete", func() error {
		if got := u.status(name); got != "Complete" {
			return fmt.Errorf("it says %s", got)
		}
		return nil
	})
	if last := <-seen; last != "Complete" {
		t.Errorf("the last condition that a watch saw is %q", last)
	}
	if items, _ := at(u.get(jobsPath), "items").([]any); len(items) != 1 || at(items[0], "metadata", "labels", "team") != "red" {
		t.Errorf("list_jobs: %v", items)
	}
	u.refusals(job)
	u.events()
	u.fails()

	if status, _ := u.send(http.MethodDelete, jobsPath+"/"+name, nil); status != http.StatusOK {
		t.Errorf("deleted: %d", status)
	}
	wait.Until(k.t, "its pods are gone", func() error {
		if items, _ := at(u.get(podsOf(name)), "items").([]any); len(items) > 0 {
			return fmt.Errorf("%d pods", len(items))
		}
		return nil
	})
}

// listRuntimes is list_runtimes: one malformed runtime breaks the whole list.
func (u *user) listRuntimes() {
	u.t.Helper()
	items, _ := at(u.get("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"), "items").([]any)
	for _, r := range items {
		name := at(r, "metadata", "name")
		if f, _ := at(r, "metadata", "labels", "trainer.kubeflow.org/framework").(string); f == "" || at(r, "spec", "mlPolicy") == nil {
			u.t.Errorf("runtime %v has framework %q and policy %v", name, f, at(r, "spec", "mlPolicy"))
		}
		image := ""
		jobs, _ := at(r, "spec", "template", "spec", "replicatedJobs").([]any)
		for _, j := range jobs {
			if at(j, "template", "metadata", "labels", ancestor) == nil || image != "" {
				continue
			}
			containers, _ := at(j, "template", "spec", "template", "spec", "containers").([]any)
			for _, c := range containers {
				if at(c, "name") == "node" {
					image, _ = at(c, "image").(string)
				}
			}
		}
		if image == "" {
			u.t.Errorf("runtime %v has no trainer with an image", name)
		}
		if got := u.get(fmt.Sprintf("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/%v", name)); at(got, "metadata", "name") != name {
			u.t.Errorf("get_runtime: %v", got)
		}
	}
	if len(items) != 8 {
		u.t.Errorf("%d runtimes", len(items))
	}
	u.get("/apis/trainer.kubeflow.org/v1alpha1/namespaces/lab/trainingruntimes")
}

func podsOf(job string) string {
	return "/api/v1/namespaces/lab/pods?labelSelector=" + url.QueryEscape("jobset.sigs.k8s.io/jobset-name="+job+
		",jobset.sigs.k8s.io/replicatedjob-name in (dataset-initializer,model-initializer,launcher,node)")
}

// steps are the steps of get_job: pods by the labels of JobSets and Jobs, with a container named as the step.
func (u *user) steps(name string) []string {
	u.t.Helper()
	u.get("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed") // it fails without
	items, _ := at(u.get(podsOf(name)), "items").([]any)
	var out []string
	for _, p := range items {
		job, _ := at(p, "metadata", "labels", "jobset.sigs.k8s.io/replicatedjob-name").(string)
		index, _ := at(p, "metadata", "labels", "batch.kubernetes.io/job-completion-index").(string)
		if at(p, "spec", "containers", 0, "name") != job || !slices.ContainsFunc(at(p, "spec", "containers", 0, "env").([]any), func(e any) bool {
			return at(e, "name") == "PET_NPROC_PER_NODE" && at(e, "value") == "2"
		}) {
			u.t.Errorf("containers of %s: %v", job, at(p, "spec", "containers"))
		}
		out = append(out, job+"-"+index)
	}
	slices.Sort(out)
	return out
}

// status is get_job's result of conditions and pods: any condition at all but the last ones hides Running.
func (u *user) status(name string) string {
	u.t.Helper()
	job := u.get(jobsPath + "/" + name)
	conditions, _ := at(job, "status", "conditions").([]any)
	for _, c := range conditions {
		if t, _ := at(c, "type").(string); at(c, "status") == "True" && (t == "Complete" || t == "Failed") {
			return t
		}
	}
	items, _ := at(u.get(podsOf(name)), "items").([]any)
	n := 0
	for _, p := range items {
		if phase := at(p, "status", "phase"); phase == "Running" || phase == "Succeeded" {
			n++
		}
	}
	if len(conditions) == 0 && n == 3 {
		return "Running"
	}
	return "Created"
}

// watch follows the job until it has a condition, and sends the type of that.
func (u *user) watch(name, version string) chan string {
	u.t.Helper()
	query := "?watch=1&fieldSelector=" + url.QueryEscape("metadata.name="+name) + "&resourceVersion=" + version
	request, err := http.NewRequestWithContext(u.ctx, http.MethodGet, u.admin.Host+jobsPath+query, nil)
	u.must(err)
	response, err := u.http.Do(request) //nolint:bodyclose // closed by who reads it
	u.must(err)
	seen := make(chan string, 1)
	go func() {
		defer func() { _ = response.Body.Close() }()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var event object
			if json.Unmarshal(lines.Bytes(), &event) != nil {
				continue
			}
			if c, ok := at(event, "object", "status", "conditions", 0, "type").(string); ok {
				seen <- c
				return
			}
		}
		seen <- "the watch ended"
	}()
	return seen
}

// refusals have the status codes that the SDK tells apart.
func (u *user) refusals(job object) {
	u.t.Helper()
	change := func(name string, patches ...any) object {
		return object{"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": object{"name": name}, "spec": object{
			"runtimeRef": object{"name": "torch-distributed"}, "runtimePatches": patches,
		}}
	}
	entry := object{"manager": "trainer.kubeflow.org/kubeflow-sdk"}
	env := object{"manager": "trainer.kubeflow.org/kubeflow-sdk", "trainingRuntimeSpec": object{"template": object{"spec": object{"replicatedJobs": []any{
		object{"name": "node", "template": object{"spec": object{"template": object{"spec": object{"containers": []any{
			object{"name": "node", "env": []any{object{"name": "A", "value": "1"}}},
		}}}}}},
	}}}}}
	for name, tc := range map[string]struct {
		body object
		want int
	}{
		"two options RuntimePatch": {change("twice", entry, entry), http.StatusUnprocessableEntity},
		"env of the trainer":       {change("env", env), http.StatusForbidden},
		"a name that is too long":  {change(strings.Repeat("a", 64)), http.StatusUnprocessableEntity},
		"no runtime of that name": {
			object{"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": object{"name": "none"}, "spec": object{"runtimeRef": object{"name": "none"}}}, http.StatusForbidden,
		},
	} {
		if status, body := u.send(http.MethodPost, jobsPath, tc.body); status != tc.want {
			u.t.Errorf("%s: %d %v, want %d", name, status, body["message"], tc.want)
		}
	}
}

// events is get_job_events: core/v1 events with a first time. What is in the way of a TrainJob's JobSet makes one.
func (u *user) events() {
	u.t.Helper()
	u.create(&jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "taken"}, Spec: jobsetv1alpha2.JobSetSpec{Suspend: new(true)}})
	status, _ := u.send(http.MethodPost, jobsPath, object{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": object{"name": "taken"},
		"spec": object{"runtimeRef": object{"name": "torch-distributed"}},
	})
	if status != http.StatusCreated {
		u.t.Fatalf("created: %d", status)
	}
	wait.Until(u.t, "the SDK shows why nothing starts", func() error {
		items, _ := at(u.get("/api/v1/namespaces/lab/events"), "items").([]any)
		for _, e := range items {
			if at(e, "involvedObject", "kind") != "TrainJob" || at(e, "involvedObject", "name") != "taken" {
				continue
			}
			first, _ := at(e, "firstTimestamp").(string)
			if when, err := time.Parse(time.RFC3339, first); err != nil || time.Since(when) > time.Hour {
				return fmt.Errorf("firstTimestamp %q", first)
			}
			if at(e, "reason") == "TrainJobResourcesCreationFailed" && at(e, "type") == "Warning" {
				return nil
			}
		}
		return fmt.Errorf("%d events", len(items))
	})
}

// logs is get_job_logs: the pod of a step by its labels, the container by the step's name, line by line while it runs. Simulated
// nodes have no kubelet, so the test is that of all of them.
func (u *user) logs(name string) {
	u.t.Helper()
	more, asked := make(chan struct{}), make(chan string, 1)
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		_, _ = io.WriteString(w, "epoch 1\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "epoch 2\n")
	}))
	defer kubelet.Close()
	_, text, _ := net.SplitHostPort(kubelet.Listener.Addr().String())
	port, err := strconv.ParseInt(text, 10, 32)
	u.must(err)
	var nodes corev1.NodeList
	u.must(u.c.List(u.ctx, &nodes))
	for i := range nodes.Items {
		embeddedtest.EditStatus(u.t, u.c, &nodes.Items[i], func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
			n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
		})
	}
	items, _ := at(u.get(podsOf(name)), "items").([]any)
	i := slices.IndexFunc(items, func(p any) bool {
		return at(p, "metadata", "labels", "batch.kubernetes.io/job-completion-index") == "0"
	})
	pod, _ := at(items[i], "metadata", "name").(string)
	request, err := http.NewRequestWithContext(u.ctx, http.MethodGet, u.admin.Host+"/api/v1/namespaces/lab/pods/"+pod+"/log?container=node&follow=true", nil)
	u.must(err)
	response, err := u.http.Do(request)
	u.must(err)
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for _, want := range []string{"epoch 1", "epoch 2"} {
		if !lines.Scan() || lines.Text() != want {
			u.t.Fatalf("the log of node-0 says %d %q, want %q", response.StatusCode, lines.Text(), want)
		}
		if want == "epoch 1" {
			close(more) // it came before the container said more
		}
	}
	if path := <-asked; path != "/containerLogs/lab/"+pod+"/node" {
		u.t.Errorf("the kubelet was asked for %s", path)
	}
}

// fails is train() of a runtime of the user's namespace, which the SDK lists and can name no kind of, and a training that fails:
// wait_for_job_status raises once it reads so.
func (u *user) fails() {
	u.t.Helper()
	const own = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/lab/trainingruntimes"
	status, made := u.send(http.MethodPost, own, object{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
		"metadata": object{"name": "own", "labels": object{"trainer.kubeflow.org/framework": "torch"}},
		"spec": object{"mlPolicy": object{"numNodes": 1, "torch": object{}}, "template": object{"spec": object{"ttlSecondsAfterFinished": 1, "replicatedJobs": []any{object{
			"name": "node", "template": object{"metadata": object{"labels": object{ancestor: "trainer"}}, "spec": object{"backoffLimit": 0, "template": object{
				"metadata": object{"annotations": object{"berth.dev/run-seconds": "0", "berth.dev/exit-code": "1"}},
				"spec":     object{"containers": []any{object{"name": "node", "image": "mine"}}},
			}}},
		}}}}},
	})
	if status != http.StatusCreated {
		u.t.Fatalf("a runtime: %d %v", status, made["message"])
	}
	wait.Until(u.t, "a TrainJob of it is stored", func() error { // once the manager has seen the runtime
		status, made = u.send(http.MethodPost, jobsPath, object{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": object{"name": "c0123456789a"}, "spec": object{"runtimeRef": object{"name": "own"}},
		})
		if status != http.StatusCreated {
			return fmt.Errorf("%d %v", status, made["message"])
		}
		return nil
	})
	if kind := at(made, "spec", "runtimeRef", "kind"); kind != "TrainingRuntime" {
		u.t.Errorf("it uses a %v", kind)
	}
	wait.Until(u.t, "the SDK says Failed", func() error {
		if got := u.status("c0123456789a"); got != "Failed" {
			return fmt.Errorf("it says %s", got)
		}
		return nil
	})
	if reason := at(u.get(jobsPath+"/c0123456789a"), "status", "conditions", 0, "reason"); reason != "FailedJobs" {
		u.t.Errorf("the reason is %v", reason)
	}
	gone := func() error { // its JobSet, whose time is over, and it is not made again (spec: 50 §7.29)
		if err := u.c.Get(u.ctx, client.ObjectKey{Namespace: "lab", Name: "c0123456789a"}, &jobsetv1alpha2.JobSet{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	}
	wait.Until(u.t, "the JobSet is deleted", gone)
	wait.Stays(u.t, 2*time.Second, "the JobSet is deleted", gone)
}
