package whatif

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/goldentest"
	"github.com/berth-project/berth/internal/sim"
	"github.com/berth-project/berth/internal/state"
)

func TestMain(m *testing.M) {
	os.Exit(embeddedtest.Main(m))
}

// noon is when all questions of these tests are asked.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// run runs the command.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newCommand(&command{version: "test", now: noon})
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	if stderr.Len() > 0 {
		t.Errorf("on the standard error: %s", &stderr)
	}
	return stdout.String(), err
}

// code is the exit code of an error.
func code(err error) int {
	if err == nil {
		return 0
	}
	if coded, is := errors.AsType[interface {
		error
		ExitCode() int
	}](err); is {
		return coded.ExitCode()
	}
	return 1
}

// copyFiles copies the files of testdata, and more files, to a new working directory.
func copyFiles(t *testing.T, more map[string]string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = string(text)
	}
	maps.Copy(all, more)
	t.Chdir(t.TempDir())
	for name, text := range all {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const stopped = `apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team-a}
spec: {clusterQueue: a, stopPolicy: HoldAndDrain}
`

const urgent = `apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: next, namespace: team-a, annotations: {berth.dev/expected-run-seconds: "1800"}}
spec:
  queueName: main
  priority: 1
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: urgent}
  podSets:
  - name: main
    count: 4
    template: {spec: {containers: [{name: c, image: i, resources: {requests: {nvidia.com/gpu: 1}}}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 200
`

// sooner is a running Workload of the cluster that ends sooner than was expected.
func sooner(t *testing.T) string {
	text, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "---\n") {
		if strings.Contains(document, "name: train-1") {
			return strings.Replace(document, "3600", "1800", 1)
		}
	}
	t.Fatal("there is no such Workload")
	return ""
}

// full is the cluster with nodes, of which none is free; and patient settings by which a workload waits for the place of a failed node.
func full(t *testing.T) string {
	text, err := os.ReadFile("testdata/nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "---\n")
	return strings.Join(slices.DeleteFunc(documents, func(d string) bool { return strings.Contains(d, "name: n3") }), "---\n")
}

const patient = "---\napiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfeatureGates: {TASFailedNodeReplacementFailFast: false}\n"

// TestScenes compares answers with files, one for each scene.
func TestScenes(t *testing.T) {
	golden, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	copyFiles(t, map[string]string{"stopped.yaml": stopped, "urgent.yaml": urgent, "sooner.yaml": sooner(t), "full.yaml": full(t), "patient.yaml": full(t) + patient})
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"submit":       {[]string{"--cluster", "cluster.yaml", "--submit", "job.yaml", "--queue", "main", "-n", "team-b", "--fail-on", "preemption,never"}, exitFound},
		"quota":        {[]string{"--cluster", "cluster.yaml", "--quota", "a=gpu:+8", "--fail-on", "preemption,wait,never"}, 0},
		"less":         {[]string{"--cluster", "cluster.yaml", "--quota", "a=gpu/nvidia.com/gpu:-4", "--quota", "b=gpu:=4", "--horizon", "3h"}, 0},
		"change":       {[]string{"--cluster", "cluster.yaml", "-f", "change.yaml", "--fail-on", "wait"}, exitFound},
		"stopped":      {[]string{"--cluster", "cluster.yaml", "-f", "stopped.yaml", "--fail-on", "never"}, exitFound},
		"urgent":       {[]string{"--cluster", "cluster.yaml", "-f", "urgent.yaml"}, 0},
		"sooner":       {[]string{"--cluster", "cluster.yaml", "-f", "sooner.yaml"}, 0},
		"deleted":      {[]string{"--cluster", "cluster.yaml", "--delete", "workload/team-a/train-1", "--delete", "cq/b"}, 0},
		"nothing":      {[]string{"--cluster", "cluster.yaml", "--quota", "b=cpu:+1"}, 0},
		"drain":        {[]string{"--cluster", "nodes.yaml", "--drain", "n2"}, 0},
		"drain-two":    {[]string{"--cluster", "nodes.yaml", "--drain", "n1", "--drain", "n2", "--run-time", "1h", "--fail-on", "never"}, exitFound},
		"drain-evicts": {[]string{"--cluster", "full.yaml", "--drain", "n2", "--fail-on", "preemption"}, exitFound},
		"drain-loses":  {[]string{"--cluster", "patient.yaml", "--drain", "n2", "--fail-on", "never"}, exitFound},
		"short":        {[]string{"--cluster", "cluster.yaml", "--horizon", "10m", "--quota", "a=gpu:+8", "--rows", "1", "-f", "change.yaml"}, 0},
		"quota.json":   {[]string{"--cluster", "cluster.yaml", "--quota", "a=gpu:+8", "-o", "json"}, 0},
		"nothing.yaml": {[]string{"--cluster", "nodes.yaml", "--quota", "a=gpu:+1", "-o", "yaml"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, tc.args...)
			if got := code(err); got != tc.code {
				t.Errorf("exit code %d, want %d: %v", got, tc.code, err)
			}
			text := "# berth whatif " + strings.Join(tc.args, " ") + "\n" + out
			if err != nil {
				text += "error: " + err.Error() + "\n"
			}
			goldentest.Check(t, filepath.Join(golden, name+".txt"), text)
		})
	}
}

const workloadHead = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata: {name: w, namespace: team-a}\nspec:\n  queueName: main\n"

const podSets = "  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}]\n"

// TestRefuses: what is wrong is an error of one line that names the file or the flag, the object and the field.
func TestRefuses(t *testing.T) {
	copyFiles(t, map[string]string{
		"empty.yaml": "", "class.yaml": "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: x}\nvalue: 1\n", "next.yaml": urgent[:strings.Index(urgent, "---")], "unknown.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n",
		"field.yaml":    "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: a}\nspec:\n  cohort: all\n",
		"old.yaml":      "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: a}\n",
		"settings.yaml": "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n", "bytes.yaml": "\x00\x01",
		"queue.yaml":     workloadHead + strings.Replace(podSets, "\n", "\n", 1),
		"nowhere.yaml":   strings.Replace(workloadHead, "queueName: main", "queueName: mian", 1) + podSets,
		"count.yaml":     workloadHead + strings.Replace(podSets, "count: 1", "count: -1", 1),
		"negative.yaml":  workloadHead + strings.Replace(podSets, "cpu: 1", "cpu: -1", 1),
		"expected.yaml":  strings.Replace(workloadHead, "namespace: team-a", `namespace: team-a, annotations: {berth.dev/expected-run-seconds: "1h"}`, 1) + podSets,
		"minimum.yaml":   strings.Replace(workloadHead, "namespace: team-a", `namespace: team-a, labels: {berth.dev/min-run-seconds: "0"}`, 1) + podSets,
		"job-queue.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: team-a}\nspec: {template: {spec: {}}}\n",
		"job-field.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: team-a}\nspec: {paralelism: 3}\n",
		"job-class.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\n  namespace: team-a\n  labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: urgnt}\nspec: {template: {spec: {}}}\n",
		"job-count.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\n  namespace: team-a\n  labels: {kueue.x-k8s.io/queue-name: main}\nspec: {parallelism: -2, template: {spec: {}}}\n",
		"job-old.yaml":   "apiVersion: batch/v1beta1\nkind: Job\nmetadata: {name: j}\n",
		"job-time.yaml":  "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\n  namespace: team-a\n  labels:\n    kueue.x-k8s.io/queue-name: main\n    berth.dev/expected-run-seconds: soon\nspec: {template: {spec: {}}}\n",
		"rest.yaml":      "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s, namespace: team-a, labels: {kueue.x-k8s.io/queue-name: main}}\n",
		"record.jsonl":   "x\n",
	})
	with := func(args ...string) []string { return append([]string{"--cluster", "cluster.yaml"}, args...) }
	for want, args := range map[string][]string{
		"whatif takes no argument: a file of changes is -f x":                                             {"x"},
		"no change is given: use -f, --quota, --submit, --drain or --delete":                              with(),
		"--live, --cluster and --record: give one of them":                                                with("--live", "-f", "x"),
		"--config x: is for a live cluster":                                                               with("--config", "x", "-f", "x"),
		"--queue q: is for what --submit adds":                                                            with("--queue", "q", "-f", "x"),
		"--horizon 0s: must be from 1s to a year":                                                         with("--horizon", "0", "-f", "x"),
		"--run-time -1h0m0s: must not be negative":                                                        with("--run-time", "-1h", "-f", "x"),
		"--grace 0s: must be 1s or more":                                                                  with("--grace", "0", "-f", "x"),
		"--rows 0: must be 1 or more":                                                                     with("--rows", "0", "-f", "x"),
		"-o xml: must be table, json or yaml":                                                             with("-o", "xml", "-f", "x"),
		"--fail-on all: must be preemption, wait, never":                                                  with("--fail-on", "all", "-f", "x"),
		"open x.yaml: no such file or directory":                                                          with("-f", "x.yaml"),
		"open y.yaml: no such file or directory":                                                          {"--cluster", "y.yaml", "-f", "x.yaml"},
		"there is no ClusterQueue: a what-if needs the queues":                                            {"--cluster", "unknown.yaml", "-f", "change.yaml"},
		"empty.yaml: has no object that matters to queues":                                                with("-f", "empty.yaml"),
		"unknown.yaml: has no object that matters to queues":                                              with("-f", "unknown.yaml"),
		"unknown.yaml:2: ConfigMap m: kind: it is no kind of jobs":                                        with("--submit", "unknown.yaml"),
		"bytes.yaml: the document that begins at line 1 is no YAML":                                       with("-f", "bytes.yaml"),
		"field.yaml:5: ClusterQueue a: spec.cohort: there is no such field":                               with("-f", "field.yaml"),
		"old.yaml:1: ClusterQueue a: apiVersion: write kueue.x-k8s.io/v1beta2":                            with("-f", "old.yaml"),
		"settings.yaml: kind: Configuration cannot be changed here":                                       with("-f", "settings.yaml"),
		"class.yaml: WorkloadPriorityClass x: only jobs and Workloads are submitted":                      with("--submit", "class.yaml"),
		"nowhere.yaml: Workload team-a/w: spec.queueName: there is no LocalQueue team-a/mian":             with("-f", "nowhere.yaml"),
		"count.yaml:6: Workload w: spec.podSets[0].count: ":                                               with("-f", "count.yaml"),
		"negative.yaml: Workload team-a/w: podSets[0] containers[0].resources.requests[cpu]: must not be": with("-f", "negative.yaml"),
		"expected.yaml: Workload team-a/w: metadata: annotations[berth.dev/expected-run-seconds]: \"1h\"": with("-f", "expected.yaml"),
		"minimum.yaml: Workload team-a/w: metadata: labels[berth.dev/min-run-seconds]: \"0\" must be":     with("-f", "minimum.yaml"),
		"job-queue.yaml:3: Job j: metadata.labels[kueue.x-k8s.io/queue-name]: it names no LocalQueue":     with("-f", "job-queue.yaml"),
		"job-queue.yaml:3: Job j: metadata.labels[kueue.x-k8s.io/queue-name]: there is no LocalQueue team-a/mian": with(
			"--submit", "job-queue.yaml", "--queue", "mian"),
		"job-field.yaml:1: Job j: strict decoding error: unknown field \"spec.paralelism\"":                        with("-f", "job-field.yaml"),
		"job-class.yaml:1: Job j: WorkloadPriorityClass \"urgnt\" does not exist":                                  with("-f", "job-class.yaml"),
		"job-count.yaml:7: Job j: spec: the number of pods of main must not be negative":                           with("-f", "job-count.yaml"),
		"job-old.yaml:1: Job j: apiVersion: write batch/v1, not batch/v1beta1":                                     with("-f", "job-old.yaml"),
		"job-time.yaml:6: Job j: metadata.labels[berth.dev/expected-run-seconds]: \"soon\" must be":                with("-f", "job-time.yaml"),
		"rest.yaml:2: StatefulSet s: kind: its pods depend on other objects":                                       with("-f", "rest.yaml"),
		"--quota a: must be QUEUE=[FLAVOR/]RESOURCE:AMOUNT":                                                        with("--quota", "a"),
		"--quota x=cpu:+1: there is no ClusterQueue x: did you mean \"a\"?":                                        with("--quota", "x=cpu:+1"),
		"--quota a=tpu:+1: ClusterQueue a has no quota of tpu: there are gpu/cpu, gpu/nvidia.com/gpu":              with("--quota", "a=tpu:+1"),
		"--quota a=cpu:1: the amount must begin with +, - or =":                                                    with("--quota", "a=cpu:1"),
		"--quota a=cpu:+x: x is no amount":                                                                         with("--quota", "a=cpu:+x"),
		"--quota a=cpu:--1: -1 is no amount":                                                                       with("--quota", "a=cpu:--1"),
		"--quota a=cpu:-81: the quota is 80: it would be below 0":                                                  with("--quota", "a=cpu:-81"),
		"--drain n9: there is no such node: there are none":                                                        with("--drain", "n9"),
		"--drain other: no flavor with a topology has the node, so its loss moves no quota: change quotas instead": {"--cluster", "nodes.yaml", "--drain", "other"},
		"--delete x: must be KIND/NAME":                                                                            with("--delete", "x"),
		"--delete pods/x: there is no Workload of a Pod default/x":                                                 with("--delete", "pods/x"),
		"--delete secret/x: must be a clusterqueue":                                                                with("--delete", "secret/x"),
		"--delete cq/n/x: a ClusterQueue has no namespace":                                                         with("--delete", "cq/n/x"),
		"--delete cq/x: there is no such ClusterQueue: did you mean \"a\"?":                                        with("--delete", "cq/x"),
		"--delete lq/x: there is no LocalQueue x in the namespace default":                                         with("--delete", "lq/x"),
		"--delete rf/gpu: ClusterQueue a has quota of it":                                                          with("--delete", "rf/gpu", "--delete", "cq/b"),
		"--delete workload/x: there is no Workload default/x":                                                      with("--delete", "workload/x"),
		"record.jsonl: line 1 is no snapshot":                                                                      {"--record", "record.jsonl", "--quota", "a=cpu:+1"},
		"open r.jsonl: no such file or directory":                                                                  {"--record", "r.jsonl", "--quota", "a=cpu:+1"},
		"next.yaml: Workload team-a/next: metadata.name: it exists already":                                        with("--submit", "next.yaml"),
	} {
		out, err := run(t, args...)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") || out != "" {
			t.Errorf("%q:\n%v%s\nwant %s", args, err, out, want)
		}
	}
}

// TestRecord: the answer from a flight record is that from the objects, as far as a record has them.
func TestRecord(t *testing.T) {
	copyFiles(t, nil)
	text, err := os.ReadFile("cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := offline.Read("cluster.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	c := &command{now: noon}
	b, err := c.newBase(w, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.State.Record(1)
	b.State.Apply(state.SetNamespace{Name: "team-d"})
	from, events := b.State.Publish().Record().Contents()
	var record bytes.Buffer
	if err := sim.WriteRecord(&record, from, append(events, state.Step{Now: b.Begin, Hash: state.Hash(nil)})); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("flight.jsonl", record.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	change := []string{"-f", "change.yaml", "--quota", "b=gpu:+1", "--submit", "job.yaml", "--queue", "main", "-n", "team-b", "--delete", "workload/team-a/next", "-o", "json"}
	answer := func(source ...string) (r struct{ Workloads []map[string]any }) {
		out, err := run(t, append(source, change...)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain := strings.NewReplacer("berth.dev/expected-run-seconds", "x", "maximumExecutionTimeSeconds: 10800", "active: true").Replace(string(text))
	if err := os.WriteFile("plain.yaml", []byte(plain), 0o600); err != nil {
		t.Fatal(err)
	}
	recorded, live := answer("--record", "flight.jsonl"), answer("--cluster", "plain.yaml")
	if diff := cmp.Diff(live, recorded); diff != "" || len(recorded.Workloads) < 3 {
		t.Errorf("from objects (-), from a record (+):\n%s", diff)
	}
	for want, args := range map[string][]string{
		"cluster.yaml: ResourceFlavor gpu: a flight record cannot be changed by this kind": {"-f", "cluster.yaml"},
		"--delete job/x: a flight record does not have the jobs of Workloads":              {"--delete", "job/x"},
	} {
		if _, err := run(t, append([]string{"--record", "flight.jsonl"}, args...)...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestLive: a cluster without a manager gives the same answer as its objects in a file, and nothing is written to it.
func TestLive(t *testing.T) {
	kubeconfig := embeddedtest.Start(t)
	cfg := embeddedtest.ConfigOf(t, kubeconfig)
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{MaxTime: wait.Patience, Paths: []string{"../../../config/crd"}}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: offline.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	copyFiles(t, nil)
	text, err := os.ReadFile("cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := offline.Read("cluster.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"team-a", "team-b"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range offline.All[client.Object](w) {
		status, has := o.DeepCopyObject().(*kueue.Workload)
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if has && status.Status.Admission != nil {
			status.UID, status.ResourceVersion = o.GetUID(), o.GetResourceVersion()
			if err := c.Status().Update(t.Context(), status); err != nil {
				t.Fatal(err)
			}
		}
	}
	versions := func() (out []string) {
		var list kueue.WorkloadList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			out = append(out, list.Items[i].Name+" "+list.Items[i].ResourceVersion)
		}
		return append(out, list.ResourceVersion)
	}
	before := versions()
	for _, change := range [][]string{{"-f", "change.yaml"}, {"--quota", "a=gpu:+8"}, {"--submit", "job.yaml", "--queue", "main", "-n", "team-b"}} {
		live, err := run(t, append([]string{"--kubeconfig", kubeconfig}, change...)...)
		if err != nil {
			t.Fatal(err)
		}
		file, err := run(t, append([]string{"--cluster", "cluster.yaml"}, change...)...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(file, "\n"), strings.Split(live, "\n")); diff != "" {
			t.Errorf("%q: from a file (-), from the cluster (+):\n%s", change, diff)
		}
	}
	if after := versions(); !cmp.Equal(before[:len(before)-1], after[:len(after)-1]) {
		t.Errorf("a question has written: %v, %v", before, after)
	}
}
