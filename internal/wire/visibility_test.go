package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// seen is an API server with a manager and users.
type seen struct {
	*testing.T
	admin *rest.Config
	c     client.Client
}

// manage runs a manager with only the installed access rules until the test ends, and returns the address of its visibility API.
func (s *seen) manage(groups string, installs bool) string {
	s.Helper()
	return s.manageWith(options.Default(), groups, installs)
}

func (s *seen) manageWith(o options.Options, groups string, installs bool) string {
	s.Helper()
	o.LeaderElection.Enabled = false
	o.Metrics.Address, o.Health.Address = "0", "0"
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(s.T)
	o.VisibilityAddress = "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(s.T))
	g, err := install.ParseGroups(groups)
	if err != nil {
		s.Fatal(err)
	}
	url := "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port)
	ctx, cancel := context.WithCancel(context.Background())
	if installs {
		if err := install.Apply(ctx, s.admin, install.Options{WebhookURL: url, Options: o, Groups: g}, io.Discard); err != nil {
			s.Fatal(err)
		}
	}
	account := rest.CopyConfig(s.admin)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + o.Namespace + ":kueue-controller-manager", Groups: []string{"system:serviceaccounts", "system:authenticated"},
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{REST: account, Options: o, Groups: g, WebhookURL: url, OnReady: func() { close(ready) }, Log: testr.New(s.T)})
	}()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
	wait.Ready(s.T, "the manager", ready, ended)
	return "https://" + o.VisibilityAddress
}

// as calls the API server as a user, "" for the administrator.
func (s *seen) as(user, method, path, accept string) (code int, body string) {
	s.Helper()
	cfg := rest.CopyConfig(s.admin)
	if user != "" {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	return s.call(cfg, method, s.admin.Host+path, accept)
}

func (s *seen) call(cfg *rest.Config, method, url, accept string) (code int, body string) {
	s.Helper()
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		s.Fatal(err)
	}
	request, err := http.NewRequestWithContext(s.Context(), method, url, nil)
	if err != nil {
		s.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := c.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// list returns "name clusterQueuePosition localQueuePosition" of every item.
func (s *seen) list(path string) []string {
	s.Helper()
	code, body := s.as("", http.MethodGet, path, "")
	var got visibilityv1beta2.PendingWorkloadsSummary
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK || got.Items == nil {
		s.Fatalf("GET %s: %d %s (%v)", path, code, body, err)
	}
	out := []string{}
	for _, i := range got.Items {
		out = append(out, fmt.Sprintf("%s %d %d", i.Name, i.PositionInClusterQueue, i.PositionInLocalQueue))
	}
	return out
}

func (s *seen) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := s.c.Create(s.Context(), o); err != nil {
			s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func clusterQueue(name, cpu string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
			Name: "f", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse(cpu)}},
		}}}},
	}}
}

func localQueue(namespace, name, queue string) *kueue.LocalQueue {
	return &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(queue)}}
}

func waiting(namespace, queue, name string, priority int32) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "example.org/v1", Kind: "Solver", Name: "of-" + name, UID: "owner", Controller: new(true), BlockOwnerDeletion: new(true),
		}}},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), Priority: &priority, PodSets: []kueue.PodSet{{
			Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
					Name: "main", Image: "any", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1500m")}},
				}},
			}},
		}}},
	}
}

const (
	v1beta2 = "/apis/visibility.kueue.x-k8s.io/v1beta2/"
	v1beta1 = "/apis/visibility.kueue.x-k8s.io/v1beta1/"
	ours    = "/apis/visibility.berth.dev/v1alpha1/"
)

// TestVisibility queries a real API server, which forwards to the manager. spec: 70 §2.4, §4.6, §7 examples 25, 37 to 42 and 61.
func TestVisibility(t *testing.T) {
	admin, c := ownServer(t)
	s := &seen{t, admin, c}
	o := options.Default()
	o.Resources.DeviceClassMappings = []configv1beta2.DeviceClassMapping{{Name: "gpus", DeviceClassNames: []corev1.ResourceName{"gpu"}}}
	s.manageWith(o, "", true)
	for _, ns := range []string{"red", "blue"} {
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	s.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}, clusterQueue("gpu-a", "3"), clusterQueue("shared", "0"),
		localQueue("red", "a", "gpu-a"), localQueue("red", "b", "gpu-a"), localQueue("red", "c", "gpu-a"),
		localQueue("red", "q", "never-made"), localQueue("red", "main", "shared"), localQueue("blue", "main", "shared"), localQueue("blue", "q", "shared"))
	for i := range 16 { // creation times are the same for a second: priorities keep the order
		wl := waiting("red", string(rune('a'+i%3)), fmt.Sprintf("%c%d", 'a'+i%3, i/3), int32(100-i))
		if s.create(wl); i > 0 {
			continue
		}
		wait.Until(t, "the first one is admitted, whichever LocalQueue the manager sees first", func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil || lifecycle.IsAdmitted(wl) {
				return err
			}
			return fmt.Errorf("%+v", wl.Status.Conditions)
		})
	}
	for i, ns := range []string{"red", "blue", "blue", "red"} {
		s.create(waiting(ns, "main", fmt.Sprint("s", i), int32(100-i)))
	}
	wait.Until(t, "the API server finds all groups", func() error {
		for _, path := range []string{v1beta2, v1beta1, ours} {
			if code, body := s.as("", http.MethodGet, strings.TrimSuffix(path, "/"), ""); code != http.StatusOK {
				return fmt.Errorf("%s: %d %s", path, code, body)
			}
		}
		return nil
	})
	wait.Until(t, "all but one wait", func() error {
		code, body := s.as("", http.MethodGet, v1beta2+"clusterqueues/gpu-a/pendingworkloads", "")
		if n := strings.Count(body, "positionInClusterQueue"); code != http.StatusOK || n != 15 {
			return fmt.Errorf("%d, %d items: %.300s", code, n, body)
		}
		code, body = s.as("", http.MethodGet, v1beta2+"clusterqueues/shared/pendingworkloads", "")
		if n := strings.Count(body, `"reason"`); code != http.StatusOK || n != 4 {
			return fmt.Errorf("%d, %d reasons: %.300s", code, n, body)
		}
		return nil
	})
	t.Run("pages", s.pages)
	t.Run("errors", s.errors)
	t.Run("users", s.users)
	t.Run("bodies", s.bodies)
	t.Run("explanation", s.explanations)
	t.Run("devices", s.devices)
	t.Run("discovery", s.discovery)
	t.Run("openapi", s.openAPI)
	t.Run("standby", s.standby)
}

func (s *seen) pages(t *testing.T) {
	gpu, shared := v1beta2+"clusterqueues/gpu-a/pendingworkloads", v1beta2+"clusterqueues/shared/pendingworkloads"
	all := s.list(gpu)
	if len(all) != 15 {
		t.Fatalf("%d wait", len(all))
	}
	for path, want := range map[string][]string{
		// a0 is admitted: b0 c0 a1 b1 c1 a2 b2 c2 a3 … wait.
		gpu + "?offset=6&limit=3": {"b2 6 2", "c2 7 2", "a3 8 2"},
		gpu + "?limit=0":          all, gpu + "?limit=500000": all, gpu + "?offset=-5": all, gpu + "?limit=": all,
		gpu + "?limit=-1": {}, gpu + "?offset=15": {},
		shared: {"s0 0 0", "s1 1 0", "s2 2 1", "s3 3 1"},
		v1beta2 + "namespaces/blue/localqueues/main/pendingworkloads":                  {"s1 1 0", "s2 2 1"},
		v1beta2 + "namespaces/blue/localqueues/main/pendingworkloads?offset=1":         {"s2 2 1"},
		v1beta2 + "namespaces/red/localqueues/b/pendingworkloads?limit=2&offset=1":     {"b1 3 1", "b2 6 2"},
		v1beta2 + "namespaces/red/localqueues/q/pendingworkloads":                      {},
		v1beta2 + "namespaces/blue/localqueues/q/pendingworkloads":                     {},
		v1beta1 + "namespaces/blue/localqueues/main/pendingworkloads?offset=0&limit=1": {"s1 1 0"},
	} {
		if diff := cmp.Diff(want, s.list(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func (s *seen) errors(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		code         int
		says         string
	}{
		"limit is no number":    {"GET", "clusterqueues/gpu-a/pendingworkloads?limit=x", 400, `limit: \"x\" is not a whole number`},
		"offset is no number":   {"GET", "namespaces/red/localqueues/a/pendingworkloads?offset=1.5", 400, "offset"},
		"no such ClusterQueue":  {"GET", "clusterqueues/nowhere/pendingworkloads", 404, `clusterqueues.visibility.kueue.x-k8s.io \"nowhere\" not found`},
		"no such LocalQueue":    {"GET", "namespaces/red/localqueues/nowhere/pendingworkloads", 404, `localqueues.visibility.kueue.x-k8s.io \"nowhere\" not found`},
		"of another namespace":  {"GET", "namespaces/blue/localqueues/a/pendingworkloads", 404, `\"a\" not found`},
		"the parent":            {"GET", "clusterqueues/gpu-a", 405, "MethodNotAllowed"},
		"the parent in a space": {"GET", "namespaces/red/localqueues/a", 405, "MethodNotAllowed"},
		"the list of parents":   {"GET", "clusterqueues", 405, "MethodNotAllowed"},
		"a write":               {"POST", "clusterqueues/gpu-a/pendingworkloads", 405, "MethodNotAllowed"},
		"a delete":              {"DELETE", "clusterqueues/gpu-a/pendingworkloads", 405, "MethodNotAllowed"},
		"another subresource":   {"GET", "clusterqueues/gpu-a/status", 404, "NotFound"},
		"too deep":              {"GET", "clusterqueues/gpu-a/pendingworkloads/more", 404, "NotFound"},
		"the wrong scope":       {"GET", "namespaces/red/clusterqueues/gpu-a/pendingworkloads", 404, "NotFound"},
		"without its namespace": {"GET", "localqueues/a/pendingworkloads", 404, "NotFound"},
		"another resource":      {"GET", "cohorts/x/pendingworkloads", 404, "NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := s.as("", tc.method, v1beta2+tc.path, "")
			if code != tc.code || !strings.Contains(body, tc.says) || !strings.Contains(body, `"kind":"Status"`) {
				t.Errorf("%d %s\nwant %d with %s", code, body, tc.code, tc.says)
			}
		})
	}
}

// users: permissions are checked before any lookup. spec: 70 §7 examples 39 and 40.
func (s *seen) users(t *testing.T) {
	for _, installed := range []string{"kueue-pending-workloads-lq-viewer-role", "kueue-explanation-viewer-role"} {
		s.create(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "alice-" + installed}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: installed},
		})
	}
	wait.Until(t, "alice may read", func() error {
		for _, path := range []string{v1beta2 + "namespaces/red/localqueues/a/pendingworkloads", ours + "namespaces/red/workloads/b0/explanation"} {
			if code, body := s.as("alice", "GET", path, ""); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, body)
			}
		}
		return nil
	})
	for path, want := range map[string]int{
		v1beta1 + "namespaces/red/localqueues/q/pendingworkloads":       200,
		v1beta2 + "namespaces/red/localqueues/nowhere/pendingworkloads": 404,
		v1beta2 + "namespaces/blue/localqueues/q/pendingworkloads":      403,
		v1beta2 + "namespaces/blue/localqueues/none/pendingworkloads":   403,
		v1beta2 + "clusterqueues/gpu-a/pendingworkloads":                403,
		v1beta2 + "clusterqueues/nowhere/pendingworkloads":              403,
		v1beta2 + "clusterqueues/gpu-a":                                 403,
		ours + "namespaces/red/workloads/b0/explanation":                200,
		ours + "namespaces/blue/workloads/s1/explanation":               403,
		ours + "namespaces/blue/workloads/none/explanation":             403,
		strings.TrimSuffix(v1beta2, "/"):                                200,
	} {
		if code, body := s.as("alice", "GET", path, ""); code != want {
			t.Errorf("alice reads %s: %d %s, want %d", path, code, body, want)
		}
	}
}

func (s *seen) bodies(t *testing.T) {
	_, newer := s.as("", "GET", v1beta2+"clusterqueues/shared/pendingworkloads", "")
	_, older := s.as("", "GET", v1beta1+"clusterqueues/shared/pendingworkloads", "")
	if strings.Replace(newer, `"apiVersion":"visibility.kueue.x-k8s.io/v1beta2"`, `"apiVersion":"visibility.kueue.x-k8s.io/v1beta1"`, 1) != older {
		t.Errorf("the versions differ:\n%s\n%s", newer, older)
	}
	var got visibilityv1beta2.PendingWorkloadsSummary
	if err := json.Unmarshal([]byte(newer), &got); err != nil || got.Kind != "PendingWorkloadsSummary" {
		t.Fatalf("%s: %v", newer, err)
	}
	var w kueue.Workload
	if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: "blue", Name: "s1"}, &w); err != nil {
		t.Fatal(err)
	}
	item := got.Items[1]
	if item.Message == "" {
		t.Error("it does not say why it waits")
	}
	if start := item.ExpectedStart; start == nil || start.Unknown == "" {
		t.Errorf("it starts at %+v, though it exceeds the quota", start)
	}
	item.Message, item.ExpectedStart = "", nil
	want := visibilityv1beta2.PendingWorkload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "blue", Name: "s1", CreationTimestamp: w.CreationTimestamp,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Solver", Name: "of-s1", UID: "owner"}},
		},
		Priority: 99, LocalQueueName: "main", PositionInClusterQueue: 1, Reason: "ExceedsMaxQuota",
		Requests: corev1.ResourceList{"cpu": resource.MustParse("3")},
	}
	if diff := cmp.Diff(want, item); diff != "" {
		t.Errorf("item (-want +got):\n%s", diff)
	}
	if code, body := s.as("", "GET", v1beta2+"clusterqueues/shared/pendingworkloads", "application/yaml"); code != 200 || !strings.Contains(body, "\nkind: PendingWorkloadsSummary") {
		t.Errorf("as YAML: %d %s", code, body)
	}
	if code, body := s.as("", "GET", v1beta2+"clusterqueues/shared/pendingworkloads", "application/json;as=Table;v=v1;g=meta.k8s.io, application/json"); code != 200 {
		t.Errorf("as a table or else JSON: %d %s", code, body)
	}
	if code, _ := s.as("", "GET", v1beta2+"clusterqueues/shared/pendingworkloads", "text/html"); code != http.StatusNotAcceptable {
		t.Errorf("as HTML: %d", code)
	}
}

func (s *seen) explanations(t *testing.T) {
	read := func(path string) (e berthv1alpha1.Explanation) {
		code, body := s.as("", "GET", ours+path, "")
		if err := json.Unmarshal([]byte(body), &e); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %s (%v)", path, code, body, err)
		}
		return e
	}
	runs := read("namespaces/red/workloads/a0/explanation")
	if runs.Verdict != "admitted" || len(runs.Flavors) != 1 || runs.Flavors[0].Amount.String() != "3" || runs.PositionInClusterQueue != nil {
		t.Errorf("a0 is %+v", runs)
	}
	waits := read("namespaces/blue/workloads/s2/explanation")
	if waits.Verdict != "waits" || waits.Reason != "ExceedsMaxQuota" || waits.ClusterQueue != "shared" || waits.LocalQueue != "main" ||
		waits.PositionInClusterQueue == nil || *waits.PositionInClusterQueue != 2 || waits.APIVersion != "visibility.berth.dev/v1alpha1" ||
		len(waits.Shortfalls) != 1 || waits.Shortfalls[0].Requested.String() != "3" || !strings.HasPrefix(waits.Text, "blue/s2 in shared (priority 98): waits") {
		t.Errorf("s2 is %+v", waits)
	}
	if code, body := s.as("", "GET", ours+"namespaces/red/workloads/none/explanation", ""); code != 404 || !strings.Contains(body, `workloads.visibility.berth.dev \"none\" not found`) {
		t.Errorf("one that does not exist: %d %s", code, body)
	}
	a4 := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "a4"}}
	embeddedtest.Edit(t, s.c, a4, func(w *kueue.Workload) { w.Spec.Active = new(false) })
	wait.Until(t, "it is out of line", func() error {
		if e := read("namespaces/red/workloads/a4/explanation"); e.Verdict == "waits" || !strings.Contains(e.Text, "deactivated") {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
}

// devices: an explanation names the devices that are short, and how many. spec: 20 §4.12.
func (s *seen) devices(t *testing.T) {
	q := clusterQueue("devices", "64")
	g := &q.Spec.ResourceGroups[0]
	g.CoveredResources = append(g.CoveredResources, "gpus")
	g.Flavors[0].Resources = append(g.Flavors[0].Resources, kueue.ResourceQuota{Name: "gpus", NominalQuota: resource.MustParse("4")})
	request := resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: 3}}
	selecting := *request.DeepCopy()
	selecting.Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "true"}}}
	s.create(q, localQueue("red", "devices", "devices"), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	for name, r := range map[string]resourcev1.DeviceRequest{"quota": request, "devices": selecting} {
		template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: name}}
		template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{r}
		w := waiting("red", "devices", "short-of-"+name, 0)
		w.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &name}}
		s.create(template, w)
	}
	for name, words := range map[string][]string{
		"short-of-quota":   {"waits", "gpus in flavor f: 6 requested, at most 4 can ever be had here"},
		"short-of-devices": {"in no queue", "request r of ResourceClaimTemplate devices selects 3 devices of DeviceClass gpu, and 0 of the known ones match"},
	} {
		wait.Until(t, name+" is explained", func() error {
			code, body := s.as("", "GET", ours+"namespaces/red/workloads/"+name+"/explanation", "")
			var e berthv1alpha1.Explanation
			if code != http.StatusOK {
				return fmt.Errorf("%d %s", code, body)
			}
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				return err
			}
			for _, word := range words {
				if !strings.Contains(e.Text, word) {
					return fmt.Errorf("no %q in %+v", word, e)
				}
			}
			return nil
		})
	}
}

func (s *seen) discovery(t *testing.T) {
	for path, want := range map[string]string{
		"/apis/visibility.kueue.x-k8s.io": `"preferredVersion":{"groupVersion":"visibility.kueue.x-k8s.io/v1beta2","version":"v1beta2"}`,
		"/apis/visibility.berth.dev":      `"groupVersion":"visibility.berth.dev/v1alpha1"`,
		strings.TrimSuffix(v1beta1, "/"):  `{"name":"localqueues/pendingworkloads","singularName":"","namespaced":true,"kind":"PendingWorkloadsSummary","verbs":["get"]}`,
	} {
		if code, body := s.as("", "GET", path, ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	d, err := discovery.NewDiscoveryClientForConfig(s.admin) // it asks for the aggregated document
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "all that is served is discovered", func() error {
		_, lists, err := d.ServerGroupsAndResources()
		if err != nil {
			return err
		}
		found := map[string][]string{}
		for _, l := range lists {
			if strings.HasPrefix(l.GroupVersion, "visibility.") {
				for _, r := range l.APIResources {
					found[l.GroupVersion] = append(found[l.GroupVersion], r.Name)
				}
			}
		}
		queues := []string{"clusterqueues", "clusterqueues/pendingworkloads", "localqueues", "localqueues/pendingworkloads"}
		want := map[string][]string{
			"visibility.kueue.x-k8s.io/v1beta2": queues, "visibility.kueue.x-k8s.io/v1beta1": queues,
			"visibility.berth.dev/v1alpha1": {"workloads", "workloads/explanation", "topologies", "topologies/usage", "queueactivities"},
		}
		if diff := cmp.Diff(want, found); diff != "" {
			return fmt.Errorf("-want +got: %s", diff)
		}
		return nil
	})
}

// openAPI: every reference of the API server's document resolves, also with ours added. spec: 70 §4.6.
func (s *seen) openAPI(t *testing.T) {
	wait.Until(t, "our paths are in OpenAPI v2", func() error {
		_, body := s.as("", "GET", "/openapi/v2", "application/json")
		var doc struct{ Paths map[string]json.RawMessage }
		if err := json.Unmarshal([]byte(body), &doc); err != nil {
			return err
		}
		for _, path := range []string{v1beta2, v1beta1} {
			if doc.Paths[path+"namespaces/{namespace}/localqueues/{name}/pendingworkloads"] == nil {
				return fmt.Errorf("no %s", path)
			}
		}
		if doc.Paths[ours+"namespaces/{namespace}/workloads/{name}/explanation"] == nil {
			return fmt.Errorf("no %s", ours)
		}
		resolve(t, body)
		return nil
	})
	wait.Until(t, "our documents are in OpenAPI v3", func() error {
		_, list := s.as("", "GET", "/openapi/v3", "")
		for _, path := range []string{v1beta2, v1beta1, ours} {
			if !strings.Contains(list, strings.Trim(path, "/")) {
				return fmt.Errorf("no %s in %s", path, list)
			}
			code, body := s.as("", "GET", "/openapi/v3"+strings.TrimSuffix(path, "/"), "application/json")
			if code != http.StatusOK || !strings.Contains(body, "Kueue visibility-server") {
				t.Fatalf("%s: %d %s", path, code, body)
			}
			resolve(t, body)
		}
		return nil
	})
}

// resolve follows every internal reference of a document.
func resolve(t *testing.T, body string) {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	refs := regexp.MustCompile(`"\$ref":"([^"]*)"`).FindAllStringSubmatch(body, -1)
	for _, ref := range refs {
		at := any(doc)
		for step := range strings.SplitSeq(strings.TrimPrefix(ref[1], "#/"), "/") {
			within, _ := at.(map[string]any)
			at = within[step]
		}
		if at == nil {
			t.Errorf("%s does not resolve", ref[1])
		}
	}
	if len(refs) == 0 {
		t.Error("there are no references")
	}
}

// expectedStart is the part of an answer that each replica forecasts by itself.
var expectedStart = regexp.MustCompile(`,"expectedStart":\{[^}]*\}`)

// standby: a standby replica answers the same to every caller with a token, except for forecasts. spec: 70 §7 example 25.
func (s *seen) standby(t *testing.T) {
	other := &seen{t, s.admin, s.c}
	address := other.manage("queues", false)
	direct := rest.CopyConfig(s.admin)
	direct.TLSClientConfig = rest.TLSClientConfig{Insecure: true} // its certificate is for the name of the Service
	for _, path := range []string{"clusterqueues/gpu-a/pendingworkloads", "namespaces/blue/localqueues/main/pendingworkloads"} {
		_, leader := s.as("", "GET", v1beta2+path, "")
		code, body := s.call(direct, "GET", address+v1beta2+path, "")
		leader, body = expectedStart.ReplaceAllString(leader, ""), expectedStart.ReplaceAllString(body, "")
		if diff := cmp.Diff(slices.Collect(strings.SplitSeq(leader, "{")), slices.Collect(strings.SplitSeq(body, "{"))); diff != "" || code != http.StatusOK {
			t.Errorf("%s: %d (-leader +standby):\n%s", path, code, diff)
		}
	}
	code, body := s.call(direct, "GET", address+ours+"namespaces/blue/workloads/s2/explanation", "")
	if code != http.StatusOK || !strings.Contains(body, `"reason":"ExceedsMaxQuota"`) || !strings.Contains(body, `"requested":"3"`) {
		t.Errorf("an explanation of the standby: %d %s", code, body)
	}
	nobody := rest.AnonymousClientConfig(direct)
	if code, _ := s.call(nobody, "GET", address+v1beta2+"clusterqueues/gpu-a/pendingworkloads", ""); code != http.StatusForbidden {
		t.Errorf("without a token: %d", code)
	}
	nobody.BearerToken = "made up"
	if code, _ := s.call(nobody, "GET", address+v1beta2+"clusterqueues/gpu-a/pendingworkloads", ""); code != http.StatusUnauthorized {
		t.Errorf("with a token of nobody's: %d", code)
	}
	if code, body := s.call(nobody, "GET", address+"/healthz", ""); code != http.StatusUnauthorized {
		t.Errorf("healthz with a token of nobody's: %d %s", code, body)
	}
	forged := rest.AnonymousClientConfig(direct)
	forged.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("X-Remote-User", "mallory")
			r.Header.Set("X-Remote-Group", "system:masters")
			return next.RoundTrip(r)
		})
	})
	if code, body := s.call(forged, "GET", address+v1beta2+"clusterqueues/gpu-a/pendingworkloads", ""); code != http.StatusForbidden || !strings.Contains(body, "system:anonymous") {
		t.Errorf("with headers that only the API server may set: %d %s", code, body)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
