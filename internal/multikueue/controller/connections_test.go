package controller_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	integration "github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/multikueue/controller"
	"github.com/berth-project/berth/internal/reconcile"
)

// door is a proxy between a hub and a worker cluster. Closed, it refuses connections and ends open ones.
type door struct {
	t      *testing.T
	at, to string
	mu     sync.Mutex
	opened []io.Closer
}

// door returns a closed one, and a kubeconfig that uses it.
func (s *server) door() (*door, []byte) {
	s.t.Helper()
	d := &door{t: s.t, at: "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(s.t))}
	file, err := clientcmd.Load(s.kubeconfig())
	s.must(err)
	for _, c := range file.Clusters {
		d.to = strings.TrimPrefix(c.Server, "https://")
		c.Server = "https://" + d.at
	}
	text, err := clientcmd.Write(*file)
	s.must(err)
	s.t.Cleanup(d.close)
	return d, text
}

func (d *door) open() {
	d.t.Helper()
	l, err := net.Listen("tcp", d.at)
	if err != nil {
		d.t.Fatal(err)
	}
	d.closes(l)
	pass := func(from, to net.Conn) {
		defer func() { _, _ = from.Close(), to.Close() }()
		for buffer := make([]byte, 32*1024); ; {
			n, err := from.Read(buffer)
			if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", d.to)
			if err != nil {
				_ = in.Close()
				continue
			}
			d.closes(in, out)
			go pass(in, out)
			go pass(out, in)
		}
	}()
}

func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.opened {
		_ = c.Close()
	}
	d.opened = nil
}

func (d *door) closes(c ...io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened = append(d.opened, c...)
}

func workload(name string) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       kueue.WorkloadSpec{QueueName: "q", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: podSpec()}}}},
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
}

func is(wl *kueue.Workload, condition string) {
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition, Message: condition})
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}
}

// reserved creates a suspended Job and its Workload, with a quota reservation and the pending check mk.
func (s *server) reserved(name string) *kueue.Workload {
	s.t.Helper()
	run := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       batchv1.JobSpec{Suspend: new(true), ManagedBy: new(kueue.MultiKueueControllerName), Template: corev1.PodTemplateSpec{Spec: podSpec()}},
	}
	s.must(s.Create(s.t.Context(), run))
	wl := workload(name)
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: run.UID, Controller: new(true)}}
	s.must(s.Create(s.t.Context(), wl))
	embeddedtest.EditStatus(s.t, s, wl, func(wl *kueue.Workload) {
		is(wl, kueue.WorkloadQuotaReserved)
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStatePending, LastTransitionTime: metav1.Now()}}
	})
	return wl
}

// sends creates the check mk for clusters with the given kubeconfigs.
func (s *server) sends(kubeconfigs map[string][]byte) {
	s.t.Helper()
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	for name, text := range kubeconfigs {
		config.Spec.Clusters = append(config.Spec.Clusters, name)
		s.must(s.Create(s.t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"kubeconfig": text},
		}))
		s.must(s.Create(s.t.Context(), &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{
			ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: name, LocationType: kueue.LocationTypeSecret}},
		}}))
	}
	s.must(s.Create(s.t.Context(), config))
	s.must(s.Create(s.t.Context(), &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "mk"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "all"},
	}}))
}

// has waits until an object exists.
func (s *server) has(o client.Object) {
	s.t.Helper()
	wait.Until(s.t, o.GetName()+" is there", func() error { return s.Get(s.t.Context(), client.ObjectKeyFromObject(o), o) })
}

// start unsuspends a Job.
func start(t *testing.T, s *server, run *batchv1.Job) {
	t.Helper()
	embeddedtest.Edit(t, s, run, func(run *batchv1.Job) { run.Spec.Suspend = new(false) })
}

// TestConnects is spec 40 §7.28, §7.29 and §7.72: a Workload with a reservation is dispatched once a worker cluster is connected, and counted
// even if the cluster is slow. Its job is created again if it is deleted there, and counts as inactive after an eviction once the cluster has
// been lost for long enough (§4.7). Orphans are only collected at an interval.
func TestConnects(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two API servers")
	}
	t.Parallel()
	hub, worker := newServer(t), newServer(t)
	ctx := t.Context()
	orphan := workload("orphan")
	orphan.Labels = map[string]string{kueue.MultiKueueOriginLabel: "hub"}
	worker.must(worker.Create(ctx, orphan))
	const lostTimeout = 5 * time.Second
	var dispatched atomic.Int32
	recorder := events.NewFakeRecorder(99)
	jobs := func(o *controller.Options) { o.Descriptors = []*job.Descriptor{integration.Descriptor()} }
	hub.manage(jobs, func(o *controller.Options) {
		o.Plan.WorkerLostTimeout = lostTimeout
		o.Dispatched = func(string, string) { dispatched.Add(1) }
		o.Events = reconcile.NewEvents(recorder, nil)
	})
	embeddedtest.SlowCreates(t, worker, schema.GroupResource{Group: kueue.GroupVersion.Group, Resource: "workloads"}, workload("try"), 3*time.Second) // longer than a call waits
	door1, text1 := worker.door()
	_, text2 := worker.door()
	hub.sends(map[string][]byte{"w1": text1, "w2": text2})
	for _, name := range []string{"w1", "w2"} {
		c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		hub.says(c, func() []metav1.Condition { return c.Status.Conditions }, "Active", "False/ClientConnectionFailed")
	}
	wl := hub.reserved("a")
	door1.open()
	there := workload("a")
	worker.has(there)
	wait.Until(hub.t, "it counts as sent", func() error {
		if n := dispatched.Load(); n != 1 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})

	embeddedtest.EditStatus(t, worker, there, func(there *kueue.Workload) {
		is(there, kueue.WorkloadQuotaReserved)
		is(there, kueue.WorkloadAdmitted)
	})
	run := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	worker.has(run)
	wait.Until(hub.t, "it is admitted", func() error {
		err := hub.Get(ctx, client.ObjectKeyFromObject(wl), wl)
		if err == nil && (wl.Status.ClusterName != "w1" || wl.Status.AdmissionChecks[0].State != kueue.CheckStateReady) {
			err = fmt.Errorf("it is on %q: %+v", wl.Status.ClusterName, wl.Status.AdmissionChecks)
		}
		return err
	})
	first := run.UID
	worker.must(worker.Delete(ctx, run, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	wait.Until(worker.t, "the job is there again", func() error {
		err := worker.Get(ctx, client.ObjectKeyFromObject(run), run)
		if err == nil && run.UID == first {
			err = errors.New("it has not gone")
		}
		return err
	})
	told := 0
	for after := time.After(3 * time.Second); ; {
		select {
		case e := <-recorder.Events:
			if strings.Contains(e, `Warning MultiKueue Job a was deleted on "w1", and is created there again`) {
				told++
			}
			continue
		case <-after:
		}
		break
	}
	if told != 1 {
		t.Errorf("%d events say that the job was created again", told)
	}
	if n := dispatched.Load(); n != 1 {
		t.Errorf("it counts as sent %d times", n)
	}

	local := &batchv1.Job{ObjectMeta: run.ObjectMeta}
	start(t, hub, local)
	start(t, worker, run)
	embeddedtest.EditStatus(t, worker, run, func(run *batchv1.Job) { run.Status.Active, run.Status.StartTime = 1, new(metav1.Now()) })
	active := func(want int32) {
		t.Helper()
		wait.Until(hub.t, fmt.Sprintf("the job has %d active pods", want), func() error {
			err := hub.Get(ctx, client.ObjectKeyFromObject(local), local)
			if err == nil && local.Status.Active != want {
				err = fmt.Errorf("it has %d", local.Status.Active)
			}
			return err
		})
	}
	active(1)
	embeddedtest.EditStatus(t, hub, wl, func(wl *kueue.Workload) {
		is(wl, kueue.WorkloadEvicted)
		wl.Status.ClusterName, wl.Status.AdmissionChecks[0].State = "", kueue.CheckStatePending
	})
	wait.Until(worker.t, "it is taken back", func() error {
		err := worker.Get(ctx, client.ObjectKeyFromObject(there), there)
		if err == nil && !apimeta.IsStatusConditionTrue(there.Status.Conditions, kueue.WorkloadDeactivationTarget) {
			err = fmt.Errorf("%+v", there.Status.Conditions)
		}
		return err
	})
	time.Sleep(lostTimeout + 2*time.Second) // until no delayed requeue is left
	lost := time.Now()
	door1.close()
	active(0)
	if took := time.Since(lost); took < lostTimeout {
		t.Errorf("it was given up %s after the loss", took)
	}
	door1.open()

	if err := worker.Get(ctx, client.ObjectKeyFromObject(orphan), orphan); err != nil {
		t.Errorf("an orphan was collected without an interval: %v", err)
	}
	hub.manage(jobs, func(o *controller.Options) { o.GCInterval = 200 * time.Millisecond })
	wait.Until(worker.t, "the orphan is collected", func() error {
		if err := worker.Get(ctx, client.ObjectKeyFromObject(orphan), orphan); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}
