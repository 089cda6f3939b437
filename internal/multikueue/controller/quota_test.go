package controller_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/multikueue/controller"
)

// queueOf creates a ClusterQueue with a flavor for each quota of CPUs, and its LocalQueue.
func (s *server) queueOf(checks []string, cpus ...string) *kueue.ClusterQueue {
	s.t.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: kueue.ClusterQueueSpec{
		CohortName: "c", ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}}},
	}}
	for i, n := range cpus {
		cq.Spec.ResourceGroups[0].Flavors = append(cq.Spec.ResourceGroups[0].Flavors, kueue.FlavorQuotas{
			Name: kueue.ResourceFlavorReference(fmt.Sprint("f", i)), Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse(n)}},
		})
	}
	for _, check := range checks {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(check)}}}
	}
	s.must(s.Create(s.t.Context(), cq))
	s.must(s.Create(s.t.Context(), &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "team"}}))
	return cq
}

// TestQuotaAutomation is spec 40 §7.43.
func TestQuotaAutomation(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three API servers")
	}
	t.Parallel()
	const lost = 6 * time.Second
	hub, workers := newServer(t), map[string]*server{"w1": newServer(t), "w2": newServer(t)}
	hub.manage(func(o *controller.Options) {
		o.Quota = true
		o.Plan.WorkerLostTimeout = lost
	})
	ctx := t.Context()
	workers["w1"].queueOf(nil, "6", "7")
	far := workers["w2"].queueOf(nil, "8")
	automated := kueue.QuotaManagementAutomated
	for name, w := range workers {
		hub.must(hub.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"kubeconfig": w.kubeconfig()}}))
		hub.must(hub.Create(ctx, &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{
			ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: name, LocationType: kueue.LocationTypeSecret}},
		}}))
	}
	hub.must(hub.Create(ctx, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "mk"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "all"},
	}}))
	cq := hub.queueOf([]string{"mk"}, "1")
	shows := func(cpus, status, reason string) func() error {
		return func() error {
			if err := hub.Get(ctx, client.ObjectKeyFromObject(cq), cq); err != nil {
				return err
			}
			got := cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota
			c := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueQuotaAutomation)
			if got.String() != cpus || (c == nil) != (reason == "") || (c != nil && (string(c.Status) != status || c.Reason != reason)) {
				return fmt.Errorf("%s CPUs, %+v", got.String(), c)
			}
			return nil
		}
	}
	quota := func(cpus, status, reason string) {
		t.Helper()
		wait.Until(hub.t, fmt.Sprintf("%s CPUs, %s/%s", cpus, status, reason), shows(cpus, status, reason))
	}
	change := func(do func()) {
		t.Helper()
		embeddedtest.Edit(t, hub, cq, func(*kueue.ClusterQueue) { do() })
	}
	entrance := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "main"}}
	hub.must(hub.Delete(ctx, entrance.DeepCopy()))
	hub.must(hub.Create(ctx, entrance))                       // without a ClusterQueue
	quota("1", "False", kueue.ReasonUnsupportedConfiguration) // there is no MultiKueueConfig
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"w1", "w2"}}}
	hub.must(hub.Create(ctx, config))
	quota("1", "False", kueue.ReasonNotRequested)
	change(func() {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = new(resource.MustParse("3"))
	})
	config.Spec.QuotaManagement = &automated
	hub.must(hub.Update(ctx, config))
	quota("0", "True", kueue.ReasonQuotaAutomated)
	entrance.Spec.ClusterQueue = "team"
	hub.must(hub.Update(ctx, entrance))
	quota("21", "True", kueue.ReasonQuotaAutomated)
	if limit := cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit; limit == nil || limit.String() != "3" {
		t.Errorf("the borrowing limit is %v", limit)
	}
	far.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("10")
	hub.must(workers["w2"].Update(ctx, far))
	quota("23", "True", kueue.ReasonQuotaAutomated)

	change(func() {
		g := &cq.Spec.ResourceGroups[0]
		g.Flavors = append(g.Flavors, kueue.FlavorQuotas{Name: "second", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("5")}}})
	})
	quota("23", "False", kueue.ReasonUnsupportedConfiguration)
	change(func() { cq.Spec.ResourceGroups[0].Flavors = cq.Spec.ResourceGroups[0].Flavors[:1] })
	quota("23", "True", kueue.ReasonQuotaAutomated)

	began := time.Now()
	hub.must(hub.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w2"}}))
	quota("13", "True", kueue.ReasonQuotaAutomated)
	if took := time.Since(began); took < lost-time.Second {
		t.Errorf("the quota of a lost worker dropped out after %s", took)
	}
	hub.must(hub.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w1"}}))
	wait.Stays(hub.t, lost+2*time.Second, "the quota while no cluster is connected", shows("13", "True", kueue.ReasonQuotaAutomated))

	change(func() { cq.Spec.AdmissionChecksStrategy = nil })
	quota("13", "", "")
}

// TestRefusedQuota: a quota that was forbidden is tried again.
func TestRefusedQuota(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two API servers")
	}
	t.Parallel()
	hub, w1 := newServer(t), newServer(t)
	var allowed atomic.Bool
	hub.wrap = func(next http.RoundTripper) http.RoundTripper {
		return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/clusterqueues/team") && !allowed.Load() {
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a policy","reason":"Forbidden","code":403}`
				return &http.Response{StatusCode: http.StatusForbidden, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
			}
			return next.RoundTrip(r)
		})
	}
	ctx, automated := t.Context(), kueue.QuotaManagementAutomated
	w1.queueOf(nil, "6")
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w1"}, Data: map[string][]byte{"kubeconfig": w1.kubeconfig()}},
		&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "w1"}, Spec: kueue.MultiKueueClusterSpec{
			ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: "w1", LocationType: kueue.LocationTypeSecret}},
		}},
		&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"w1"}, QuotaManagement: &automated}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "mk"}, Spec: kueue.AdmissionCheckSpec{
			ControllerName: kueue.MultiKueueControllerName,
			Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "all"},
		}},
	} {
		hub.must(hub.Create(ctx, o))
	}
	cq := hub.queueOf([]string{"mk"}, "1")
	hub.manage(func(o *controller.Options) { o.Quota = true })
	has := func(cpus, reason string) func() error {
		return func() error {
			if err := hub.Get(ctx, client.ObjectKeyFromObject(cq), cq); err != nil {
				return err
			}
			got, c := cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota, apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueQuotaAutomation)
			if got.String() != cpus || c == nil || c.Reason != reason {
				return fmt.Errorf("it is %s, condition %+v", got.String(), c)
			}
			return nil
		}
	}
	wait.Until(hub.t, "the quota is refused", has("1", kueue.ReasonUnsupportedConfiguration))
	wait.Stays(hub.t, 3*time.Second, "no event is left", has("1", kueue.ReasonUnsupportedConfiguration))
	allowed.Store(true)
	wait.Until(hub.t, "the quota is that of the worker cluster", has("6", kueue.ReasonQuotaAutomated))
}
