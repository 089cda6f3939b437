package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-project/berth/controlplane/simnode"
	"github.com/berth-project/berth/controlplane/supervise"
)

// actEnv makes this test binary behave as berth-controlplane: it has the same main. The programs that it starts inherit it.
const actEnv = "BERTH_CONTROLPLANE_TEST_ACTS"

func TestMain(m *testing.M) {
	if os.Getenv(actEnv) != "" {
		os.Exit(run(os.Args))
	}
	os.Exit(m.Run())
}

// supervisor is a running "berth-controlplane up".
type supervisor struct {
	command *exec.Cmd
	stdin   io.Closer
	stderr  bytes.Buffer
	ready   struct {
		Ready              bool
		Kubeconfig, Server string
		PID                int
	}
}

// up starts a control plane in dir and waits until it is ready.
func up(t *testing.T, dir string, flags ...string) *supervisor {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a whole control plane; left out with -short")
	}
	s := &supervisor{command: act(t, append([]string{"up", "--dir", dir}, flags...)...)}
	s.command.Stderr = &s.stderr
	var err error
	if s.stdin, err = s.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.command.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.ready)
	}
	if err != nil || !s.ready.Ready {
		_ = s.command.Wait()
		t.Fatalf("not ready (%v): %s%s", err, line, s.stderr.String())
	}
	return s
}

func act(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self, args...)
	command.Env = append(os.Environ(), actEnv+"=1")
	return command
}

// wait returns the exit code, and fails the test if a process of the control plane still runs.
func (s *supervisor) wait(t *testing.T, children map[string]int) int {
	t.Helper()
	_ = s.command.Wait()
	for name, pid := range children {
		eventually(t, fmt.Sprintf("%s (pid %d) ends", name, pid), func() bool { return ended(pid) })
	}
	return s.command.ProcessState.ExitCode()
}

func (s *supervisor) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.ready.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return kubernetes.NewForConfigOrDie(config)
}

// children are the pids of the supervisor's programs, by name.
func (s *supervisor) children(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (command) state parent ...
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if fields[1] != strconv.Itoa(s.command.Process.Pid) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil {
			name, _, _ := strings.Cut(string(line), "\x00")
			found[name] = pid
		}
	}
	return found
}

// ended reports whether a process no longer runs. An orphan may stay in the process table until init reaps it.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

// eventually is wait.Until of the main module, which this one does not import.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func job(name string, annotations map[string]string, change ...func(*batchv1.Job)) *batchv1.Job {
	once := int32(0)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{BackoffLimit: &once}}
	job.Spec.Template.Annotations = annotations
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "none"}}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	for _, change := range change {
		change(job)
	}
	return job
}

// One control plane, from start to end: it can be used, runs Jobs as their annotations say, survives a restart with all its data, refuses
// a second one, and ends completely.
func TestUp(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "plane")
	began := time.Now()
	s := up(t, dir, "--nodes", "3", "--node-capacity", "cpu=4,nvidia.com/gpu=2")
	t.Logf("ready after %v", time.Since(began))
	client := s.client(t)

	t.Run("nodes", func(t *testing.T) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 3 {
			t.Fatalf("%d nodes (error %v), want 3", len(nodes.Items), err)
		}
		for _, node := range nodes.Items {
			if gpus := node.Status.Allocatable["nvidia.com/gpu"]; gpus.Value() != 2 || node.Labels[corev1.LabelHostname] != node.Name {
				t.Errorf("node %s has %v and labels %v", node.Name, node.Status.Allocatable, node.Labels)
			}
		}
	})
	t.Run("jobs", func(t *testing.T) { testJobs(t, client) })
	t.Run("deployment and deletion", func(t *testing.T) { testRunsForEver(t, client) })
	t.Run("a node of someone else", func(t *testing.T) { testForeignNode(t, client) })
	t.Run("second up", func(t *testing.T) {
		second, err := act(t, "up", "--dir", dir).CombinedOutput()
		want := fmt.Sprintf("pid %d, %s", s.command.Process.Pid, s.ready.Server)
		if err == nil || !strings.Contains(string(second), want) || strings.Count(string(second), "\n") != 1 {
			t.Errorf("second up: %v, %q; want a failure and one line with %q", err, second, want)
		}
		if _, err := client.Discovery().ServerVersion(); err != nil {
			t.Errorf("the first one no longer works: %v", err)
		}
	})

	children := s.children(t)
	if len(children) != 5 {
		t.Errorf("programs %v, want 5", children)
	}
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(t, children); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0; it said:\n%s", code, s.stderr.String())
	}

	again := up(t, dir, "--nodes", "1", "--node-capacity", "cpu=8")
	client = again.client(t)
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: simnode.Label})
	if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Status.Allocatable.Cpu().Value() != 8 {
		t.Errorf("after the restart: nodes %v (error %v), want one with 8 cpu", nodes.Items, err)
	}
	if _, err := client.BatchV1().Jobs("default").Get(ctx, "succeeds", metav1.GetOptions{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	runJob(t, client, job("after-restart", map[string]string{"berth.dev/run-seconds": "0"}), batchv1.JobComplete)
}

func testJobs(t *testing.T, client *kubernetes.Clientset) {
	t.Run("succeeds", func(t *testing.T) {
		runJob(t, client, job("succeeds", map[string]string{"berth.dev/run-seconds": "0.5"}, func(job *batchv1.Job) {
			three := int32(3)
			job.Spec.Completions, job.Spec.Parallelism = &three, &three
		}), batchv1.JobComplete)
	})
	t.Run("runs as long as it says", func(t *testing.T) {
		runJob(t, client, job("timed", map[string]string{"berth.dev/run-seconds": "2.5"}), batchv1.JobComplete)
		pod := onlyPod(t, client, "timed")
		// Timestamps have whole seconds.
		ran := pod.Status.ContainerStatuses[0].State.Terminated
		if took := ran.FinishedAt.Sub(ran.StartedAt.Time); took < 2*time.Second || took > 5*time.Second {
			t.Errorf("ran for %v, want 2.5 seconds", took)
		}
	})
	t.Run("fails", func(t *testing.T) {
		runJob(t, client, job("fails", map[string]string{"berth.dev/run-seconds": "0", "berth.dev/exit-code": "42"}), batchv1.JobFailed)
		pod := onlyPod(t, client, "fails")
		if end := pod.Status.ContainerStatuses[0].State.Terminated; pod.Status.Phase != corev1.PodFailed || end == nil || end.ExitCode != 42 {
			t.Errorf("the pod ended as %+v", pod.Status)
		}
	})
	t.Run("an unreadable annotation does not hold it up", func(t *testing.T) {
		runJob(t, client, job("unreadable", map[string]string{"berth.dev/run-seconds": "soon"}), batchv1.JobComplete)
	})
}

// runJob creates a Job and waits for the condition.
func runJob(t *testing.T, client *kubernetes.Clientset, job *batchv1.Job, want batchv1.JobConditionType) {
	t.Helper()
	ctx := context.Background()
	jobs := client.BatchV1().Jobs("default")
	if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("Job %s is %s", job.Name, want), func() bool {
		got, err := jobs.Get(ctx, job.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range got.Status.Conditions {
			if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
				if condition.Type != want {
					t.Fatalf("Job %s is %s (%s: %s), want %s", job.Name, condition.Type, condition.Reason, condition.Message, want)
				}
				return true
			}
		}
		return false
	})
}

func onlyPod(t *testing.T, client *kubernetes.Clientset, job string) corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods (error %v), want 1", len(pods.Items), err)
	}
	return pods.Items[0]
}

// A pod with restartPolicy Always runs past the default time, and deleting it takes no time.
func testRunsForEver(t *testing.T, client *kubernetes.Clientset) {
	ctx := context.Background()
	pods := client.CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "server"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	phase := func() corev1.PodPhase {
		got, err := pods.Get(ctx, "server", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Phase
	}
	eventually(t, "the pod runs", func() bool { return phase() == corev1.PodRunning })
	time.Sleep(3 * time.Second)
	if got := phase(); got != corev1.PodRunning {
		t.Errorf("the pod is %s, want it to run for ever", got)
	}
	began := time.Now()
	if err := pods.Delete(ctx, "server", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is gone", func() bool {
		_, err := pods.Get(ctx, "server", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("deleting took %v: the grace period of 30s was waited for", took)
	}
}

func testForeignNode(t *testing.T, client *kubernetes.Clientset) {
	ctx := context.Background()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"rack": "r1"}}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	runJob(t, client, job("on-mine", nil, func(job *batchv1.Job) {
		job.Spec.Template.Spec.NodeSelector = map[string]string{"rack": "r1"}
	}), batchv1.JobComplete)
}

// When a program ends unexpectedly, all are stopped and the error names it.
func TestChildDies(t *testing.T) {
	s := up(t, t.TempDir(), "--no-nodes")
	children := s.children(t)
	if err := syscall.Kill(children[supervise.Scheduler], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(t, children); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	want := "error: kube-scheduler died (signal: killed); everything was stopped. The end of "
	if !strings.Contains(s.stderr.String(), want) {
		t.Errorf("it said:\n%s\nwant %q in it", s.stderr.String(), want)
	}
}

// However the supervisor ends, no program is left running.
func TestNothingIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*supervisor) error
		code int
	}{
		"killed":          {func(s *supervisor) error { return s.command.Process.Kill() }, -1},
		"stdin is closed": {func(s *supervisor) error { return s.stdin.Close() }, 0},
		"interrupted":     {func(s *supervisor) error { return s.command.Process.Signal(os.Interrupt) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := up(t, t.TempDir(), "--bare", "--exit-with-stdin")
			children := s.children(t)
			if len(children) != 2 {
				t.Errorf("programs %v, want etcd and kube-apiserver", children)
			}
			if err := tc.end(s); err != nil {
				t.Fatal(err)
			}
			if code := s.wait(t, children); code != tc.code {
				t.Errorf("exit code %d, want %d; it said:\n%s", code, tc.code, s.stderr.String())
			}
		})
	}
}

// Without controllers a pod can still be created: it does not wait for a service account.
func TestBarePods(t *testing.T) {
	s := up(t, t.TempDir(), "--bare")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	if _, err := s.client(t).CoreV1().Pods("default").Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// A link to the binary with the name of a program is that program.
func TestLinks(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"etcd": "etcd Version: 3.7", "kube-apiserver": "Kubernetes v"} {
		t.Run(name, func(t *testing.T) {
			link := filepath.Join(t.TempDir(), name)
			if err := os.Symlink(self, link); err != nil {
				t.Fatal(err)
			}
			command := exec.Command(link, "--version")
			command.Env = append(os.Environ(), actEnv+"=1")
			output, err := command.CombinedOutput()
			if err != nil || !strings.Contains(string(output), want) {
				t.Errorf("%s --version: %v, %q; want %q in it", name, err, output, want)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"version":         {[]string{"--version"}, 0, "berth-controlplane/1 kubernetes v1.37.1\n"},
		"help":            {[]string{"--help"}, 0, "KUBEBUILDER_ASSETS"},
		"nothing":         {nil, 2, "Usage:"},
		"unknown program": {[]string{"kubelet"}, 2, `unknown program "kubelet"`},
		"first argument":  {[]string{"etcd", "--version"}, 0, "etcd Version: 3.7"},
	} {
		t.Run(name, func(t *testing.T) {
			command := act(t, tc.args...)
			output, _ := command.CombinedOutput()
			if code := command.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(output), tc.want) {
				t.Errorf("exit code %d, output %q; want %d and %q", code, output, tc.code, tc.want)
			}
		})
	}
}
