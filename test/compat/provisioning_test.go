package compat

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/check/plan/provisioning"
	"github.com/berth-project/berth/internal/embedded/autoscaler"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestProvisioning is the check that asks a cluster autoscaler for nodes, on a real API server that serves ProvisioningRequests only after
// the manager has started. The conditions of the requests are set by the test, or by the stand-in.
func TestProvisioning(t *testing.T) {
	counted := newSaboteur()
	m := running(t, "", through(counted.wrap))
	first := newWorld(t)
	early := first.provisioning("early", nil)
	first.checkIs(early, "Active=False/ProvisioningRequestsNotServed")
	first.create(autoscaler.CRD())
	first.checkIs(early, "Active=True/Active")
	scenes(t, map[string]func(*world){
		"20 §7.56 a failure is retried, the last one rejects": failsTwice,
		"20 §7.57 an expired booking": func(w *world) {
			wl := w.asks("a", limit(1))
			w.requestIs("a-nodes-1", plan.Accepted, plan.Provisioned)
			w.admits(wl)
			w.requestIs("a-nodes-1", plan.BookingExpired)
			w.keeps(wl, time.Second, admitted, "-Evicted")
			w.listed(wl, "nodes=Ready")
			other := w.workload("b", "q", "1")
			w.until(other, reserved)
			w.requestIs("b-nodes-1", plan.Accepted, plan.BookingExpired)
			w.until(other, "Evicted=True/AdmissionCheck")
			w.listed(other, "nodes=Pending retry 1")
		},
		"20 §7.58 pods without a managed resource": func(w *world) {
			wl := w.asks("a", func(c *kueue.ProvisioningRequestConfig) {
				c.Spec.ManagedResources = []corev1.ResourceName{"nvidia.com/gpu"}
			})
			w.admits(wl)
			w.listed(wl, "nodes=Ready")
			if got := w.requests(); len(got) > 0 {
				w.t.Errorf("there are requests: %v", got)
			}
		},
		"20 §4.18 revoked while it runs": func(w *world) {
			wl := w.asks("a", nil)
			w.requestIs("a-nodes-1", plan.Provisioned)
			w.admits(wl)
			w.requestIs("a-nodes-1", plan.CapacityRevoked)
			w.until(wl, "Evicted=True/DeactivatedDueToAdmissionCheck")
			w.gone("a-nodes-1")
		},
		"20 §4.18 the estimate is shown": func(w *world) {
			wl := w.asks("a", nil)
			w.setCondition("a-nodes-1", plan.Accepted, metav1.ConditionTrue, "yes")
			w.setCondition("a-nodes-1", plan.Provisioned, metav1.ConditionFalse, "in 5 minutes")
			wait.Until(w.t, "the message", func() error { return equal(w.checksOf(wl)[0].Message, "in 5 minutes") })
		},
		"20 §4.18.5 kept without a reservation, replaced when the configuration changes, deleted at the end": kept,
		"20 §4.18.4 what the pods get":                                                podsGet,
		"20 §5.2 events, and at most four writes":                                     func(w *world) { fourWrites(w, counted) },
		"20 §6.24 a name that is taken":                                               nameIsTaken,
		"20 §4.18 a wrong reference":                                                  badReference,
		"20 §4.23 the entry has its own manager":                                      ownManager,
		"20 §7.38 placed after the nodes are there":                                   func(w *world) { placedLater(w, func() {}) },
		"20 §4.18 random schedules with late, failing, revoked and expiring capacity": func(w *world) { randomly(w, pick(8, 40)) },
	})
	t.Run("20 §7.39 a restart while the placement is delayed", func(t *testing.T) {
		placedLater(newWorld(t), func() {
			if err := m.end(); err != nil {
				t.Fatal(err)
			}
			running(t, "")
		})
	})
	t.Run("20 §4.18 the CRD is replaced", func(t *testing.T) { crdReplaced(newWorld(t), early) })
}

// crdReplaced deletes the CRD and with it a request, and creates it again before the condition of the check could be written.
func crdReplaced(w *world, early string) {
	var refusing atomic.Bool
	status := "/admissionchecks/" + w.own("nodes") + "/status"
	running(w.t, "", through(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if refusing.Load() && strings.HasSuffix(r.URL.Path, status) {
				return answered(r, http.StatusConflict, metav1.StatusReasonConflict), nil
			}
			return next.RoundTrip(r)
		})
	}))
	w.asks("a", nil)
	asked := w.request("a-nodes-1").UID
	refusing.Store(true)
	w.must(w.c.Delete(w.ctx(), autoscaler.CRD()))
	w.checkIs(early, "Active=False/ProvisioningRequestsNotServed")
	wait.Until(w.t, "the CRD is back", func() error { return w.c.Create(w.ctx(), autoscaler.CRD()) })
	w.checkIs(early, "Active=True/Active")
	refusing.Store(false)
	wait.Until(w.t, "what waits asks again", func() error {
		if again := w.request("a-nodes-1").UID; again == asked {
			return fmt.Errorf("request %s", again)
		}
		return nil
	})
}

func limit(n int32) func(*kueue.ProvisioningRequestConfig) {
	return func(c *kueue.ProvisioningRequestConfig) {
		c.Spec.RetryStrategy = &kueue.ProvisioningRequestRetryStrategy{BackoffLimitCount: &n, BackoffBaseSeconds: new(int32(1))}
	}
}

// provisioning makes an AdmissionCheck with its configuration, and returns its name.
func (w *world) provisioning(name string, tune func(*kueue.ProvisioningRequestConfig)) string {
	w.t.Helper()
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: w.own(name)}}
	config.Spec.ProvisioningClassName = autoscaler.Class
	if tune != nil {
		tune(config)
	}
	w.create(config, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.own(name)}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.ProvisioningRequestControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{
			APIGroup: kueue.GroupVersion.Group, Kind: "ProvisioningRequestConfig", Name: config.Name,
		},
	}})
	return config.Name
}

// asks makes a queue "q" whose check asks for nodes, and a Workload that holds its quota.
func (w *world) asks(name string, tune func(*kueue.ProvisioningRequestConfig), settings ...workloadSetting) *kueue.Workload {
	w.t.Helper()
	check := w.provisioning("nodes", tune)
	w.checkIs(check, "Active=True/Active")
	w.queue("q", "20", checked(every(check)...))
	wl := w.workload(name, "q", "1", settings...)
	w.until(wl, reserved)
	return wl
}

func (w *world) checkIs(name, want string) {
	w.t.Helper()
	wait.Until(w.t, "check "+name+" has "+want, func() error {
		return lacks(read(w, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}).Status.Conditions, want)
	})
}

// named is the whole name of a request, without the world in the middle.
func (w *world) named(name string) string {
	return strings.Replace(name, "-nodes-", "-"+w.own("nodes")+"-", 1)
}

func newRequest() *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(autoscaler.GroupVersionKind)
	return out
}

// request waits for a request.
func (w *world) request(name string) *plan.Request {
	w.t.Helper()
	out := newRequest()
	wait.Until(w.t, "request "+name, func() error {
		return w.c.Get(w.ctx(), client.ObjectKey{Namespace: w.name, Name: w.named(name)}, out)
	})
	r, err := plan.NewRequest(out)
	w.must(err)
	return r
}

func (w *world) requests() (names []string) {
	w.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(autoscaler.GroupVersionKind.GroupVersion().WithKind("ProvisioningRequestList"))
	w.must(w.c.List(w.ctx(), list, client.InNamespace(w.name)))
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

func (w *world) gone(request string) {
	w.t.Helper()
	wait.Until(w.t, request+" is gone", func() error {
		if got := w.requests(); slices.Contains(got, w.named(request)) {
			return fmt.Errorf("there are %v", got)
		}
		return nil
	})
}

// requestIs answers a request as an autoscaler does.
func (w *world) requestIs(name string, is ...string) {
	w.t.Helper()
	for _, condition := range is {
		w.setCondition(name, condition, metav1.ConditionTrue, "the autoscaler says so")
	}
}

func (w *world) setCondition(name, condition string, status metav1.ConditionStatus, message string) {
	w.t.Helper()
	wait.Until(w.t, name+" is "+condition, func() error {
		r := w.request(name)
		apimeta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: "Test", Message: message})
		now := newRequest()
		w.must(w.c.Get(w.ctx(), client.ObjectKey{Namespace: w.name, Name: r.Name}, now))
		now.SetResourceVersion(r.ResourceVersion)
		list := make([]any, 0, len(r.Status.Conditions))
		for _, c := range r.Status.Conditions {
			list = append(list, map[string]any{
				"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
				"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
			})
		}
		_ = unstructured.SetNestedSlice(now.Object, list, "status", "conditions")
		return w.c.Status().Update(w.ctx(), now)
	})
}

func failsTwice(w *world) {
	wl := w.asks("a", limit(1))
	w.requestIs("a-nodes-1", plan.Failed)
	w.until(wl, "Evicted=True/AdmissionCheck")
	w.listed(wl, "nodes=Pending retry 1")
	if got := w.checksOf(wl)[0].RequeueAfterSeconds; got == nil || *got != 1 {
		w.t.Errorf("requeueAfterSeconds %v", got)
	}
	w.gone("a-nodes-1")
	w.release(wl)
	w.until(wl, reserved)
	w.requestIs("a-nodes-2", plan.Failed)
	w.until(wl, "Evicted=True/DeactivatedDueToAdmissionCheck")
	w.tells(wl, "Warning AdmissionCheckRejected")
	w.gone("a-nodes-2")
}

func kept(w *world) {
	wl := w.asks("a", nil)
	first := w.request("a-nodes-1")
	q := &kueue.ClusterQueue{ObjectMeta: w.meta("q")}
	edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
	w.until(wl, "QuotaReserved=False/Suspended")
	wait.Stays(w.t, time.Second, "the request", func() error { return equal(w.request("a-nodes-1").UID, first.UID) })
	edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	w.until(wl, reserved)
	edit(w, &kueue.ProvisioningRequestConfig{ObjectMeta: w.meta("nodes")}, func(c *kueue.ProvisioningRequestConfig) {
		c.Spec.Parameters = map[string]kueue.ProvisioningRequestParameter{"zone": "b"}
	})
	wait.Until(w.t, "the request is replaced", func() error {
		if r := w.request("a-nodes-1"); r.UID == first.UID || r.Spec.Parameters["zone"] != "b" {
			return fmt.Errorf("%+v", r.Spec)
		}
		return nil
	})
	second := w.request("a-nodes-1")
	w.requestIs("a-nodes-1", plan.Provisioned)
	w.admits(wl)
	wait.Until(w.t, "the PodTemplate belongs to the request", func() error {
		template := &corev1.PodTemplate{}
		w.must(w.c.Get(w.ctx(), client.ObjectKey{Namespace: w.name, Name: plan.TemplateName(second.Name, "main")}, template))
		if owner := metav1.GetControllerOf(template); owner == nil || owner.UID != second.UID {
			return fmt.Errorf("it belongs to %+v", owner)
		}
		return nil
	})
	w.finish(wl)
	w.gone("a-nodes-1")
	w.listed(wl, "nodes=Ready")
}

// podsGet: annotations of the job become parameters; the pods get the annotations and the node selector.
func podsGet(w *world) {
	check := w.provisioning("nodes", func(c *kueue.ProvisioningRequestConfig) {
		c.Spec.Parameters = map[string]kueue.ProvisioningRequestParameter{"zone": "a", "size": "big"}
		c.Spec.PodSetUpdates = &kueue.ProvisioningRequestPodSetUpdates{NodeSelector: []kueue.ProvisioningRequestNodeSelectorUpdate{
			{Key: "example.com/group", ValueFromProvisioningClassDetail: autoscaler.GroupDetail},
		}}
	})
	w.checkIs(check, "Active=True/Active")
	w.queue("q", "4", checked(every(check)...))
	w.scales(&autoscaler.Autoscaler{})
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.name, Name: "job", Labels: map[string]string{kueue.QueueNameLabel: "q"},
			Annotations: map[string]string{"provreq.kueue.x-k8s.io/zone": "b"},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: podSpec("cpu", "2")}},
	}
	w.create(job)
	wl := w.workloadOf(job)
	r := w.request(wl.Name + "-nodes-1")
	if diff := cmp.Diff(map[string]string{"zone": "b", "size": "big"}, r.Spec.Parameters); diff != "" {
		w.t.Errorf("parameters (-want +got):\n%s", diff)
	}
	wait.Until(w.t, "the job starts", func() error { return equal(*read(w, job).Spec.Suspend, false) })
	pods := read(w, job).Spec.Template
	if pods.Annotations[plan.ConsumeAnnotation] != r.Name || pods.Annotations[plan.ClassAnnotation] != autoscaler.Class || pods.Spec.NodeSelector["example.com/group"] == "" {
		w.t.Errorf("annotations %v, node selector %v", pods.Annotations, pods.Spec.NodeSelector)
	}
	w.endJob(job)
	w.gone(wl.Name + "-nodes-1")
}

// fourWrites counts the writes of a Workload until its admission, beside the scheduler's own.
func fourWrites(w *world, counted *saboteur) {
	check := w.provisioning("nodes", nil)
	w.checkIs(check, "Active=True/Active")
	w.queue("q", "4", checked(every(check)...))
	stop := func(policy kueue.StopPolicy) {
		edit(w, w.localQueue("q", ""), func(q *kueue.LocalQueue) { q.Spec.StopPolicy = policy })
	}
	stop(kueue.StopPolicyHold)
	wl := w.until(w.workload("a", "q", "1"), "QuotaReserved=False/Suspended") // that it waits is written before it gets quota
	w.until(wl, "Admitted=False")
	counted.plan(w.name, planned{})
	stop(kueue.StopPolicyNone)
	w.requestIs("a-nodes-1", plan.Accepted, plan.Provisioned)
	w.admits(wl)
	var own []write
	for _, one := range counted.stored(w.name) {
		kind, ofScheduler := one.kind, one.manager == "kueue-admission" // which also writes why a Workload waits
		if !ofScheduler && (strings.Contains(kind, "podtemplates") || strings.Contains(kind, "provisioningrequests") || strings.Contains(kind, "workloads")) {
			own = append(own, one)
		}
	}
	w.t.Logf("writes: %v", own)
	if len(own) > 4 || len(own) < 2 {
		w.t.Errorf("%d writes beside the scheduler's, want 2 to 4: %v\nin the end: %+v", len(own), own, read(w, wl).Status)
	}
	w.tells(wl, "Normal QuotaReserved", "Normal ProvisioningRequestCreated", "Normal AdmissionCheckUpdated", "Normal Admitted")
}

func nameIsTaken(w *world) {
	check := w.provisioning("nodes", nil)
	w.checkIs(check, "Active=True/Active")
	w.queue("q", "4", checked(every(check)...))
	foreign := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: plan.TemplateName(w.named("a-nodes-1"), "main")},
		Template:   corev1.PodTemplateSpec{Spec: podSpec("cpu", "1")},
	}
	foreign.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	w.create(foreign)
	wl := w.workload("a", "q", "1")
	w.until(wl, reserved)
	w.tells(wl, "Warning FailedCreate")
	w.must(w.c.Delete(w.ctx(), foreign))
	w.requestIs("a-nodes-1", plan.Provisioned)
	w.admits(wl)
}

func badReference(w *world) {
	check := w.provisioning("nodes", nil)
	w.checkIs(check, "Active=True/Active")
	q := w.queue("q", "4", checked(every(check)...))
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: w.meta("nodes")}
	wl := w.workload("a", "q", "1")
	w.request("a-nodes-1")
	w.must(w.c.Delete(w.ctx(), config))
	w.checkIs(check, "Active=False/BadParametersRef")
	wait.Until(w.t, "the queue is inactive", func() error { return lacks(read(w, q).Status.Conditions, "Active=False/AdmissionCheckInactive") })
	w.gone("a-nodes-1")
	wait.Until(w.t, "the message", func() error {
		if m := w.checksOf(wl)[0].Message; !strings.Contains(m, "not active") {
			return fmt.Errorf("%q", m)
		}
		return nil
	})
	w.create(&kueue.ProvisioningRequestConfig{ObjectMeta: w.meta("nodes"), Spec: kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: autoscaler.Class}})
	w.checkIs(check, "Active=True/Active")
	w.requestIs("a-nodes-1", plan.Provisioned)
	w.admits(wl)
}

// ownManager: the manager of the check owns its entry, and no other.
func ownManager(w *world) {
	nodes, other := w.provisioning("nodes", nil), w.check("other")
	w.checkIs(nodes, "Active=True/Active")
	w.queue("q", "4", checked(every(nodes, other)...))
	wl := w.workload("a", "q", "1")
	w.requestIs("a-nodes-1", plan.Provisioned)
	w.listed(wl, "nodes=Ready", "other=Pending")
	found := false
	for _, m := range read(w, wl).ManagedFields {
		if m.Manager != kueue.ProvisioningRequestControllerName {
			continue
		}
		found = true
		if text := m.FieldsV1.GetRawString(); !strings.Contains(text, nodes) || strings.Contains(text, other) || strings.Contains(text, "f:conditions") {
			w.t.Errorf("it owns %s", text)
		}
	}
	if !found {
		w.t.Error("it owns nothing")
	}
}

// scales runs a stand-in for the requests of the world until the test ends.
func (w *world) scales(a *autoscaler.Autoscaler) {
	a.Client, a.Namespace = w.c, w.name
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.Run(ctx)
	}()
	w.t.Cleanup(func() { stop(); <-ended })
}

// placedLater: quota first, then nodes, then places on these nodes. meanwhile is called when the nodes are there and take no pods yet.
func placedLater(w *world, meanwhile func()) {
	const host = corev1.LabelHostname
	topology := &kueue.Topology{ObjectMeta: w.meta("hosts"), Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: host}}}}
	w.create(topology)
	w.flavor("tas", func(f *kueue.ResourceFlavor) {
		f.Spec.TopologyName, f.Spec.NodeLabels = kueue.TopologyReference(topology.Name), map[string]string{"world": w.name}
	})
	check := w.provisioning("nodes", func(c *kueue.ProvisioningRequestConfig) {
		c.Spec.PodSetUpdates = &kueue.ProvisioningRequestPodSetUpdates{NodeSelector: []kueue.ProvisioningRequestNodeSelectorUpdate{
			{Key: autoscaler.GroupLabel, ValueFromProvisioningClassDetail: autoscaler.GroupDetail},
		}}
	})
	w.checkIs(check, "Active=True/Active")
	w.queue("q", "", quota(w.own("tas")+"=20"), checked(every(check)...))
	history := w.history("a")
	wl := w.workload("a", "q", "2", count(3), func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Unconstrained: new(true)}
	})
	got := w.until(wl, reserved, "Admitted=False/UnsatisfiedAdmissionChecks")
	if a := got.Status.Admission.PodSetAssignments[0]; a.DelayedTopologyRequest == nil || *a.DelayedTopologyRequest != kueue.DelayedTopologyRequestPending || a.TopologyAssignment != nil {
		w.t.Errorf("the assignment is %+v", a)
	}
	w.scales(&autoscaler.Autoscaler{
		MarkReady: true, NodeCapacity: corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("10")}, Labels: map[string]string{"world": w.name},
	})
	var nodes corev1.NodeList
	wait.Until(w.t, "two nodes", func() error {
		w.must(w.c.List(w.ctx(), &nodes, client.MatchingLabels{"world": w.name}))
		return equal(len(nodes.Items), 2)
	})
	meanwhile()
	for i := range nodes.Items { // as the node controller does
		edit(w, &nodes.Items[i], func(n *corev1.Node) { n.Spec.Taints = nil })
	}
	w.admits(wl)
	delayed := func(have []string) bool {
		return slices.Contains(have, "Admitted=False/PendingDelayedTopologyRequests")
	}
	if seen := history(); !slices.ContainsFunc(seen, delayed) {
		w.t.Errorf("it was not delayed: %q", seen)
	}
	a := read(w, wl).Status.Admission.PodSetAssignments[0]
	if a.TopologyAssignment == nil || *a.DelayedTopologyRequest != kueue.DelayedTopologyRequestReady {
		w.t.Errorf("the assignment is %+v", a)
	}
	w.finish(wl)
	wait.Until(w.t, "the nodes are gone", func() error {
		w.must(w.c.List(w.ctx(), &nodes, client.MatchingLabels{"world": w.name}))
		return equal(len(nodes.Items), 0)
	})
}

// randomly takes Workloads through a stand-in that is late, fails, revokes and lets bookings expire, and holds each end against the model.
func randomly(w *world, n int) {
	random := embeddedtest.Random(w.t)
	const retries = 2
	check := w.provisioning("nodes", limit(retries))
	w.checkIs(check, "Active=True/Active")
	w.queue("q", "5", checked(every(check)...)) // not all at once
	w.scales(&autoscaler.Autoscaler{})
	ends := map[string]string{}
	var list []*kueue.Workload
	for i := range n {
		name := "w" + strconv.Itoa(i)
		failures := random.IntN(retries + 2)
		asked := map[string]string{
			autoscaler.Delay: fmt.Sprint(time.Duration(random.IntN(500)) * time.Millisecond), autoscaler.Failures: strconv.Itoa(failures),
		}
		ends[name] = "runs"
		switch random.IntN(3) {
		case 0:
			asked[autoscaler.RevokeAfter], ends[name] = "1s", "inactive"
		case 1:
			asked[autoscaler.ExpireAfter] = "2s"
		}
		if failures > retries {
			ends[name] = "inactive"
		}
		list = append(list, w.workload(name, "q", "1", func(wl *kueue.Workload) {
			wl.Annotations = map[string]string{}
			for key, value := range asked {
				wl.Annotations[kueue.ProvisioningRequestParameterPrefix+key] = value
			}
		}))
	}
	settled := map[string]string{}
	wait.Until(w.t, "every Workload ends as asked", func() error {
		for _, wl := range list {
			if settled[wl.Name] != "" {
				continue
			}
			now := read(w, wl)
			is := func(c string) bool { return apimeta.IsStatusConditionTrue(now.Status.Conditions, c) }
			switch {
			case is(kueue.WorkloadEvicted) && is(kueue.WorkloadQuotaReserved):
				w.release(wl)
			case now.Spec.Active != nil && !*now.Spec.Active && is(kueue.WorkloadEvicted):
				settled[wl.Name] = "inactive"
			case is(kueue.WorkloadAdmitted) && ends[wl.Name] == "runs":
				settled[wl.Name] = "runs"
				w.finish(wl) // makes room
			}
		}
		if !maps.Equal(settled, ends) {
			return fmt.Errorf("ended: %v of %v", settled, ends)
		}
		return nil
	})
	wait.Until(w.t, "no request is left", func() error { return equal(len(w.requests()), 0) })
	for _, wl := range list {
		if got := read(w, wl).Status.AdmissionChecks; len(got) == 1 && got[0].RetryCount != nil && *got[0].RetryCount > retries {
			w.t.Errorf("%s was retried %d times", wl.Name, *got[0].RetryCount)
		}
	}
}
