package dash

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/options"
)

func asIs(*Server) {}

// TestOneNamespace: a token with view on red only shows no Workload of blue on any path, and a page of another origin gets no content.
// spec: 70 §4.10, §7 example 60.
func TestOneNamespace(t *testing.T) {
	w := newWorld(t, asIs)
	w.queues()
	w.workload(w.red, "train", "")
	hidden := w.workload(w.blue, "secret", "")
	about(w, hidden)
	viewer := w.viewer()
	w.settled(w.red, w.blue)
	red := []string{w.red + "/train"}
	if got := names(map[string]any(w.dial(viewer, "/ws/workloads").document())); !slices.Equal(got, red) {
		t.Errorf("workloads: %v", got)
	}
	overview := w.dial(viewer, "/ws/workloads/dashboard").document()
	for key, want := range map[string][]string{"workloads": red, "queues": {w.red + "/main"}, "clusterQueues": {}, "flavors": {}} {
		if got := names(overview.at(key)); !slices.Equal(got, want) {
			t.Errorf("dashboard: %s are %v, want %v", key, got, want)
		}
	}
	for _, path := range []string{"/ws/workloads", "/ws/workloads?delta=true", "/ws/workloads/dashboard", "/ws/workloads/dashboard?namespace=" + w.blue, "/ws/local-queues", "/ws/namespaces"} {
		if text := string(w.dial(viewer, path).next()); strings.Contains(text, "secret") || strings.Contains(text, string(hidden.UID)) || strings.Contains(text, `"`+w.blue+`"`) {
			t.Errorf("%s shows what is in blue: %s", path, text)
		}
	}
	if got := names(map[string]any(w.dial(viewer, "/ws/namespaces").document())); !slices.Equal(got, []string{w.red}) {
		t.Errorf("namespaces: %v", got)
	}
	for _, path := range []string{
		"/ws/workload/" + w.blue + "/secret", "/ws/workload/" + w.blue + "/secret/events", "/ws/local-queue/" + w.blue + "/main",
		"/ws/local-queue/" + w.blue + "/main/workloads", "/ws/workload/" + w.blue + "/none", "/ws/cluster-queues", "/ws/cluster-queue/" + w.red,
		"/ws/cohorts", "/ws/cohort/" + w.red, "/ws/resource-flavors", "/ws/resource-flavor/" + w.red,
		"/ws/cluster-queue/" + w.red + "/timeline", "/ws/cluster-queue/" + w.red + "/usage", "/ws/usage", "/ws/workload/" + w.blue + "/secret/explanation",
	} {
		if code, why := w.dial(viewer, path).closed(); code != websocket.ClosePolicyViolation || !strings.Contains(why, "viewer may not") {
			t.Errorf("%s: closed with %d %q", path, code, why)
		}
	}
	for path, want := range map[string]int{
		"/api/workload/train?namespace=" + w.red: 200, "/api/workload/none?namespace=" + w.red: 404, "/api/workload/secret?namespace=" + w.blue: 403,
		"/api/workload/none?namespace=" + w.blue: 403, "/api/event/about?namespace=" + w.blue: 403, "/api/clusterqueue/" + w.red: 403, "/api/node/any": 403,
	} {
		if code, body, _ := w.get(viewer, path); code != want || strings.Contains(body, string(hidden.UID)) {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	for name, tc := range map[string]struct {
		token, origin string
		want          int
	}{
		"the origin in the list": {viewer, origin, 101}, "another origin": {viewer, "https://evil.example.org", 403}, "the same host": {viewer, "http://" + w.url, 403},
		"no token": {"", origin, 401}, "a token of nobody's": {"made.up.token", "", 401}, "no browser": {viewer, "", 101},
	} {
		header := http.Header{}
		if tc.origin != "" {
			header.Set("Origin", tc.origin)
		}
		conn, code, err := w.try(tc.token, "/ws/workloads", header)
		if code != tc.want {
			t.Errorf("%s: %d %v, want %d", name, code, err, tc.want)
		}
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// TestOpen: without authentication all callers see everything, except pages of other origins. spec: 70 §4.10.
func TestOpen(t *testing.T) {
	w := newWorld(t, func(s *Server) { s.options.AuthMode, s.access.disabled = options.AuthDisabled, true })
	w.queues()
	w.workload(w.red, "train", "")
	w.workload(w.blue, "secret", "")
	w.settled(w.red, w.blue)
	overview := w.dial("", "/ws/workloads/dashboard").document()
	if wrong := holdsNames(overview.at("workloads"), w.red+"/train", w.blue+"/secret") + holdsNames(overview.at("clusterQueues"), w.red); wrong != "" {
		t.Error(wrong)
	}
	if code, body, _ := w.get("", "/auth/status"); code != 200 || body != `{"authMode":"Disabled"}` {
		t.Errorf("/auth/status: %d %s", code, body)
	}
	if _, code, _ := w.try("", "/ws/workloads", http.Header{"Origin": {"https://evil.example.org"}}); code != 403 {
		t.Errorf("from a foreign page: %d", code)
	}
}

// about makes an event about a Workload.
func about(w *world, of *kueue.Workload) {
	w.Helper()
	w.create(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: of.Namespace, Name: "about"},
		InvolvedObject: corev1.ObjectReference{APIVersion: kueue.GroupVersion.String(), Kind: "Workload", Namespace: of.Namespace, Name: of.Name, UID: of.UID},
		Reason:         "Pending", Message: "too big", Type: corev1.EventTypeNormal,
	})
}

// settled waits until the cache has a Workload in each namespace.
func (w *world) settled(namespaces ...string) {
	w.Helper()
	wait.Until(w.TB, "the cache has all", func() error {
		for _, ns := range namespaces {
			var work kueue.WorkloadList
			var queues kueue.LocalQueueList
			if err := errors.Join(w.server.read(w.Context(), &work, ns), w.server.read(w.Context(), &queues, ns)); err != nil || len(work.Items)*len(queues.Items) == 0 {
				return fmt.Errorf("%s: %d workloads, %d queues, %w", ns, len(work.Items), len(queues.Items), err)
			}
		}
		return nil
	})
}

// TestEndpoints requests every endpoint. spec: 70 §4.10.
func TestEndpoints(t *testing.T) {
	w := newWorld(t, asIs)
	w.queues()
	train := w.workload(w.red, "train", "")
	w.workload(w.red, "wait", "")
	about(w, train)
	w.create(&corev1.Pod{ // a pod without any spec that counts
		ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: "worker", OwnerReferences: train.OwnerReferences},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "main", Image: "any"}}},
	}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.red}})
	setPreempted(w, train)
	admin := w.administrator()
	for path, check := range map[string]func(d document) string{
		"/ws/namespaces": func(d document) string { return holdsNames(d.at(), w.red, w.blue) },
		"/ws/workloads":  func(d document) string { return holdsNames(d.at(), w.red+"/train", w.red+"/wait") },
		"/ws/workloads?namespace=" + w.red + "&limit=1": func(d document) string { return isText(d.at("total"), 2.0) + holdsNames(d.at(), w.red+"/train") },
		"/ws/workloads/dashboard?namespace=" + w.red: func(d document) string {
			return holdsNames(d.at("flavors"), w.red) + holdsNames(d.at("clusterQueues"), w.red) + holdsNames(d.at("queues"), w.red+"/main") +
				holdsNames(d.at("workloads"), w.red+"/train", w.red+"/wait") + isText(d.at("workloads_by_uid", string(train.UID)), w.red+"/train") +
				isText(keysOf(d), "clusterQueues flavors queues summary workloads workloads_by_uid")
		},
		"/ws/workloads/dashboard?limit=1&namespace=" + w.red: func(d document) string {
			return holdsNames(d.at("workloads"), w.red+"/train") + isText(keysOf(d.at("workloads_by_uid").(map[string]any)), string(train.UID))
		},
		"/ws/workload/" + w.red + "/train": func(d document) string {
			return isText(d.at("kind"), "Workload") + isText(d.at("apiVersion"), "kueue.x-k8s.io/v1beta2") + isText(d.at("preemption", "preempted"), true) +
				isText(d.at("preemption", "reason"), "InClusterQueue") + isText(d.at("metadata", "managedFields"), nil) + isText(len(d.at("pods").([]any)), 1)
		},
		"/ws/workload/" + w.red + "/train/events":      func(d document) string { return holdsNames(d.at(), w.red+"/about") },
		"/ws/workload/" + w.red + "/none":              func(d document) string { return isText(keysOf(d), "error") },
		"/ws/local-queues":                             func(d document) string { return holdsNames(d.at(), w.red+"/main", w.blue+"/main") },
		"/ws/local-queue/" + w.red + "/main":           func(d document) string { return isText(d.at("spec", "clusterQueue"), w.red) },
		"/ws/local-queue/" + w.red + "/main/workloads": func(d document) string { return holdsNames(d.at(), w.red+"/train", w.red+"/wait") },
		"/ws/cluster-queues":                           func(d document) string { return holdsNames(d.at(), w.red) },
		"/ws/cluster-queue/" + w.red:                   func(d document) string { return holdsNames(d.at("localQueues"), w.red+"/main", w.blue+"/main") },
		"/ws/cohorts":                                  func(d document) string { return holdsNames(d.at(), w.red) },
		"/ws/cohort/" + w.red:                          func(d document) string { return holdsNames(d.at("clusterQueues"), w.red) },
		"/ws/resource-flavors":                         func(d document) string { return holdsNames(d.at(), w.red) },
		"/ws/resource-flavor/" + w.red:                 func(d document) string { return holdsNames(d.at("clusterQueues"), w.red) },
	} {
		wait.Until(w.TB, path, func() error {
			if wrong := check(w.dial(admin, path).document()); wrong != "" {
				return errors.New(wrong)
			}
			return nil
		})
	}
	for path, kind := range map[string]string{
		"workload/train?namespace=" + w.red: "Workload", "localqueue/main?namespace=" + w.red: "LocalQueue", "clusterqueue/" + w.red + "?": "ClusterQueue",
		"resourceflavor/" + w.red + "?": "ResourceFlavor", "event/about?namespace=" + w.red: "Event", "node/" + w.red + "?": "Node", "pod/worker?namespace=" + w.red: "Pod",
	} {
		for output, decode := range map[string]func([]byte, any) error{"": json.Unmarshal, "&output=yaml": func(b []byte, o any) error { return yaml.UnmarshalStrict(b, o) }} {
			code, body, header := w.get(admin, "/api/"+path+output)
			var got document
			if err := decode([]byte(body), &got); err != nil || code != 200 || got.at("kind") != kind || got.at("metadata", "managedFields") != nil {
				t.Errorf("%s: %d %s (%v)", path+output, code, body, err)
			}
			if yes := strings.Contains(header.Get("Content-Type"), "yaml"); yes != (output != "") {
				t.Errorf("%s is %s", path+output, header.Get("Content-Type"))
			}
		}
	}
	w.refusals(admin)
}

// refusals are wrong requests and open paths.
func (w *world) refusals(token string) {
	w.Helper()
	for path, want := range map[string]int{
		"/api/workload/train": 400, "/api/secret/any?namespace=" + w.red: 404, "/api/workload/train?output=xml&namespace=" + w.red: 400, "/ws/workloads?limit=x": 400, "/ws/workloads?order=age": 400, "/ws/workloads?state=Pending": 400,
		"/ws/workloads?offset=-1": 400, "/ws/workloads?delta=perhaps": 400, "/ws/workloads": 400 /* no WebSocket */, "/ws/none": 404, "/none": 404, "/api/cohort/none": 404,
		"/healthz": 200, "/": 200, "/login": 200, "/workload/a/b": 200, "/cluster-queue/a": 200, "/assets/berth.js": 200,
	} {
		if code, body, header := w.get(token, path); code != want {
			w.Errorf("%s: %d %.200s, want %d", path, code, body, want)
		} else if strings.Contains(header.Get("Content-Type"), "html") && !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") {
			w.Errorf("%s has the policy %q", path, header.Get("Content-Security-Policy"))
		}
	}
	for shown, want := range map[string]string{
		"": `{"authMode":"TokenReview"}`, "made-up": `{"authMode":"TokenReview","authenticated":false}`,
		token: `{"authMode":"TokenReview","authenticated":true,"user":"system:serviceaccount:` + w.red + `:admin"}`,
	} {
		if code, body, _ := w.get(shown, "/auth/status"); code != 200 || body != want {
			w.Errorf("/auth/status: %d %s, want %s", code, body, want)
		}
	}
	if code, _, header := w.get(token, "/api/cohort/none", "Origin", origin); code != 404 || header.Get("Access-Control-Allow-Origin") != origin {
		w.Errorf("from an allowed origin: %d %v", code, header)
	}
	if code, _, header := w.get("", "/auth/status", "Origin", "https://evil.example.org"); code != 200 || header.Get("Access-Control-Allow-Origin") != "" {
		w.Errorf("the status, from a foreign origin: %d %v", code, header)
	}
	if code, _, header := w.get(token, "/api/cohort/none", "Origin", "https://evil.example.org"); code != 403 || header.Get("Access-Control-Allow-Origin") != "" {
		w.Errorf("from a foreign origin: %d %v", code, header)
	}
}

func holdsNames(list any, want ...string) string {
	got := names(list)
	for _, name := range want {
		if !slices.Contains(got, name) {
			return fmt.Sprintf("%s is not among %v; ", name, got)
		}
	}
	return ""
}

func isText(got, want any) string {
	if got != want {
		return fmt.Sprintf("got %v, want %v; ", got, want)
	}
	return ""
}

func keysOf(d document) string {
	return strings.Join(slices.Sorted(maps.Keys(d)), " ")
}

func setPreempted(w *world, of *kueue.Workload) {
	w.Helper()
	now := metav1.Now()
	of.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.ReasonPreempted, Message: "for another", LastTransitionTime: now},
		{Type: kueue.WorkloadPreempted, Status: metav1.ConditionTrue, Reason: "InClusterQueue", Message: "for another", LastTransitionTime: now},
	}
	w.must(w.c.Status().Update(w.Context(), of))
}

// TestPreemption: the preemption of a view follows the conditions.
func TestPreemption(t *testing.T) {
	is := func(kind, reason string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Reason: reason, Status: status}
	}
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		want       preemption
	}{
		"never":          {nil, preemption{}},
		"now":            {[]metav1.Condition{is("Preempted", "InCohortReclamation", "True"), is("Evicted", "Preempted", "True")}, preemption{true, "InCohortReclamation"}},
		"by an old hand": {[]metav1.Condition{is("Evicted", "Preempted", "True")}, preemption{true, "Preempted"}},
		"evicted":        {[]metav1.Condition{is("Evicted", "PodsReadyTimeout", "True")}, preemption{}},
		"has quota anew": {[]metav1.Condition{is("Preempted", "InClusterQueue", "False"), is("Evicted", "Preempted", "False")}, preemption{}},
	} {
		if got := preemptionOf(&kueue.Workload{Status: kueue.WorkloadStatus{Conditions: tc.conditions}}); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestPodsOfAnyKind: pods are found by their job, by its owners, by the JobSet in their labels, and by the Workload in their annotations.
// spec: 70 §6 row 16.
func TestPodsOfAnyKind(t *testing.T) {
	w := newWorld(t, asIs)
	deployment := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: "top"}}
	w.create(deployment)
	ref := func(o client.Object) []metav1.OwnerReference {
		gvk, _, err := scheme.Scheme.ObjectKinds(o)
		w.must(err)
		return []metav1.OwnerReference{{APIVersion: gvk[0].GroupVersion().String(), Kind: gvk[0].Kind, Name: o.GetName(), UID: o.GetUID()}}
	}
	between := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: "between", OwnerReferences: ref(deployment)}}
	w.create(between)
	below := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: "below", OwnerReferences: ref(between)},
		Spec:       corev1.ServiceSpec{ClusterIP: "None"},
	}
	w.create(below)
	pod := func(name string, owners []metav1.OwnerReference, labels, annotations map[string]string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: name, OwnerReferences: owners, Labels: labels, Annotations: annotations},
			Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "main", Image: "any"}}},
		}
		w.create(p)
		return p
	}
	pod("of-chain", ref(below), nil, nil)
	pod("of-set", nil, map[string]string{"jobset.sigs.k8s.io/jobset-uid": "set-uid", "jobset.sigs.k8s.io/jobset-name": "set"}, nil)
	pod("of-slice", ref(below), nil, map[string]string{kueue.WorkloadAnnotation: "slice"})
	alone := pod("alone", nil, nil, nil)
	pod("of-another", []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "between", UID: "an-old-one"}}, nil, nil)
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.blue, Name: "stray", Labels: map[string]string{"jobset.sigs.k8s.io/jobset-uid": "set-uid"}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "main", Image: "any"}}},
	})
	wait.Until(w.TB, "all pods are known", func() error {
		var all corev1.PodList
		if err := w.server.extra.List(t.Context(), &all, client.InNamespace(w.blue)); err != nil || len(all.Items) == 0 {
			return fmt.Errorf("%d, %w", len(all.Items), err)
		}
		return nil
	})
	w.workload(w.red, "chain", deployment.UID)
	w.workload(w.red, "set", "set-uid")
	w.workload(w.red, "slice", "")
	w.workload(w.red, "pod", alone.UID)
	token := w.administrator()
	all := w.dial(token, "/ws/workloads")
	for {
		text := string(all.next())
		if strings.Contains(text, `"stray"`) {
			t.Fatal("a pod of another namespace is taken for one of the set")
		}
		if strings.Contains(text, `"of-set"`) && strings.Contains(text, `"of-chain"`) {
			break
		}
	}
	for name, want := range map[string]string{"chain": "of-chain", "set": "of-set", "slice": "of-slice", "pod": "alone"} {
		conn := w.dial(token, "/ws/workload/"+w.red+"/"+name)
		for {
			d := conn.document()
			list, _ := d.at("pods").([]any)
			got := names(map[string]any{"items": list})
			if slices.Equal(got, []string{w.red + "/" + want}) {
				break
			}
			if len(got) > 0 {
				t.Fatalf("%s has the pods %v", name, got)
			}
		}
	}
}

// TestPages: pages of a list follow each other without gaps.
func TestPages(t *testing.T) {
	var entries []entry
	for i := range 7 {
		entries = append(entries, entry{fmt.Sprint(i), i})
	}
	for name, tc := range map[string]struct {
		limit, offset int
		want          string
	}{
		"all":      {-1, 0, `{"items":[0,1,2,3,4,5,6]}`},
		"first":    {3, 0, `{"items":[0,1,2],"total":7,"offset":0,"limit":3}`},
		"last":     {3, 6, `{"items":[6],"total":7,"offset":6,"limit":3}`},
		"past":     {3, 9, `{"items":[],"total":7,"offset":9,"limit":3}`},
		"none":     {0, 0, `{"items":[],"total":7,"offset":0,"limit":0}`},
		"rest":     {-1, 5, `{"items":[5,6],"total":7,"offset":5}`},
		"too many": {1 << 62, 6, `{"items":[6],"total":7,"offset":6,"limit":4611686018427387904}`},
	} {
		q := query{limit: tc.limit, offset: tc.offset}
		got, err := json.Marshal(q.page(entries))
		if diff := cmp.Diff(tc.want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestLimits: an address has 100 requests in a second, whatever others do, and probes are not counted. spec: 70 §4.10.
func TestLimits(t *testing.T) {
	s := &Server{options: options.Dashboard{AuthMode: options.AuthDisabled, Origins: []string{origin}}, hub: newHub(), limits: newLimits(), connections: newConnections(), turns: newTurns(), mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	s.mux.HandleFunc("GET /auth/status", s.authStatus)
	ask := func(path, address string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = address
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, r)
		if recorder.Code == http.StatusTooManyRequests && recorder.Header().Get("Retry-After") == "" {
			t.Fatal("it does not say when to come again")
		}
		return recorder.Code
	}
	now := time.Now()
	s.limits.now = func() time.Time { return now }
	answered := func(n int, address func(int) string) (good int) {
		for i := range n {
			if ask("/auth/status", address(i)) == http.StatusOK {
				good++
			}
		}
		return good
	}
	one := func(i int) string { return fmt.Sprint("192.0.2.1:", i+1) }
	if got := answered(1000, one); got != 100 {
		t.Errorf("%d of 1000 of one address were answered", got)
	}
	many := func(i int) string { return fmt.Sprintf("198.51.100.%d:1", i%200) }
	if got := answered(1000, many); got != 400 {
		t.Errorf("%d of 1000 of many addresses were answered, after 100", got)
	}
	now = now.Add(time.Second / 2)
	if got := answered(1000, one); got != 50 {
		t.Errorf("%d of one address were answered after half a second", got)
	}
	if got := answered(1000, many); got != 200 {
		t.Errorf("%d of many addresses were answered then", got)
	}
	other := func(i int) string { return fmt.Sprint("192.0.2.2:", i+1) }
	if got := answered(1000, other); got != 0 {
		t.Errorf("%d of another address were answered beyond the limit of all", got)
	}
	now = now.Add(time.Second / 5)
	if got := answered(1000, other); got != 100 {
		t.Errorf("%d of it were answered after a fifth of a second: refused ones took its turns", got)
	}
	if code := ask("/healthz", "192.0.2.1:1"); code != http.StatusOK {
		t.Errorf("a probe: %d", code)
	}
}

// TestOrigins: allowed origins. spec: 70 §4.10, §6 row 16.
func TestOrigins(t *testing.T) {
	proxied := httptest.NewRequest(http.MethodGet, "/api/cohort/any", nil)
	proxied.Header.Set("Sec-Fetch-Site", "same-origin")
	if !mayRead(&options.Dashboard{AuthMode: options.AuthTokenReview, Origins: []string{origin}}, proxied) {
		t.Error("our own page may not show its token to a proxy that changes the name of the host")
	}
	for name, tc := range map[string]struct {
		origins            []string
		host, origin, site string
		want               bool
	}{
		"no browser":                       {[]string{origin}, "10.0.0.1:8080", "", "", true},
		"listed":                           {[]string{origin}, "berth.example.org", origin, "cross-site", true},
		"not listed":                       {[]string{origin}, "berth.example.org", "https://evil.example.org", "cross-site", false},
		"listed, without a port":           {[]string{origin}, "berth.example.org", origin + ":8443", "", false},
		"null":                             {[]string{origin}, "berth.example.org", "null", "", false},
		"our page":                         {[]string{origin}, "berth.example.org", "", "same-origin", true},
		"our page under a foreign name":    {[]string{origin}, "evil.example.org", "", "same-origin", false},
		"an image of a foreign page":       {[]string{origin}, "berth.example.org", "", "cross-site", false},
		"typed":                            {[]string{origin}, "10.0.0.1:8080", "", "none", true},
		"local":                            {nil, "127.0.0.1:8080", "http://127.0.0.1:8080", "same-origin", true},
		"local by name":                    {nil, "localhost:8080", "", "same-origin", true},
		"another port of this machine":     {nil, "localhost:8080", "http://localhost:3000", "same-site", false},
		"this machine by a foreign name":   {nil, "evil.example.org:8080", "http://evil.example.org:8080", "same-origin", false},
		"the same, without Origin":         {nil, "evil.example.org:8080", "", "same-origin", false},
		"the same, of an old browser":      {nil, "evil.example.org:8080", "", "", false},
		"local, from a foreign page":       {nil, "127.0.0.1:8080", "https://evil.example.org", "cross-site", false},
		"local, from curl on this machine": {nil, "[::1]:8080", "", "", true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/ws/workloads", nil)
		r.Host = tc.host
		for key, value := range map[string]string{"Origin": tc.origin, "Sec-Fetch-Site": tc.site} {
			if value != "" {
				r.Header.Set(key, value)
			}
		}
		if got := mayRead(&options.Dashboard{AuthMode: options.AuthDisabled, Origins: tc.origins}, r); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
