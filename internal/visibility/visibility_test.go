package visibility

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// rules lists the allowed requests: "verb group/resource/subresource namespace/name", or "verb path".
type rules []string

func (r rules) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(r, "down") {
		return authorizer.DecisionNoOpinion, "", errors.New("no API server")
	}
	what := a.GetVerb() + " " + a.GetPath()
	if a.IsResourceRequest() {
		what = fmt.Sprintf("%s %s/%s/%s %s/%s", a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName())
	}
	if slices.Contains(r, what) || slices.Contains(r, "everything") {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule for " + what, nil
}

func access(r rules) Access {
	return Access{
		Authenticator: authenticator.RequestFunc(func(q *http.Request) (*authenticator.Response, bool, error) {
			name := q.Header.Get("X-Remote-User") + q.Header.Get("Authorization")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
		}),
		Authorizer: r,
	}
}

// world has one Workload, red/w in red/q, whose ClusterQueue is cq.
func world(r rules) *Server {
	st := state.New(state.Options{Options: cycle.Defaults()})
	st.Apply(state.SetNamespace{Name: "red", Labels: nil})
	st.Apply(state.SetQueue(state.Queue{Name: "cq", Namespaces: []workload.Term{{}}}))
	st.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: "red", Name: "q", Queue: "cq"}))
	st.Apply(state.SetWorkload(state.Workload{UID: "u", Namespace: "red", Name: "w", Version: 1, LocalQueue: "q", Priority: 1 << 40, Created: 1e9, Since: 1e9, Queueable: true}))
	var turn sync.Mutex
	return New(Server{
		Model: func() *state.Model {
			turn.Lock()
			defer turn.Unlock()
			return st.Publish()
		},
		Read: func(_ context.Context, f func(*state.State) any) (any, error) {
			turn.Lock()
			defer turn.Unlock()
			return f(st), nil
		},
		Workload: func(string, string) *kueue.Workload { return nil },
		Visit:    func(func(*kueue.Workload)) {},
		Ready:    func() error { return nil },
		Access:   access(r),
	})
}

func get(s *Server, path string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Authorization", "alice")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	out := httptest.NewRecorder()
	s.ServeHTTP(out, request)
	return out
}

const lines = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"

// Exactly the authorized requests are served, and refused callers learn nothing about objects.
func TestAccess(t *testing.T) {
	mine := "get visibility.kueue.x-k8s.io/localqueues/pendingworkloads red/q"
	own := "/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/red/localqueues/q/pendingworkloads"
	for name, tc := range map[string]struct {
		rules rules
		path  string
		code  int
		says  string
	}{
		"what a rule allows":        {rules{mine}, own, 200, `"name":"w"`},
		"another queue":             {rules{mine}, strings.Replace(own, "/q/", "/p/", 1), 403, `User \"alice\" cannot get resource \"localqueues/pendingworkloads\" in API group \"visibility.kueue.x-k8s.io\" in the namespace \"red\"`},
		"the ClusterQueue":          {rules{mine}, lines, 403, "at the cluster scope"},
		"one that does not exist":   {rules{mine}, strings.Replace(lines, "/cq/", "/none/", 1), 403, "Forbidden"},
		"discovery":                 {rules{"get /apis"}, "/apis", 200, "APIGroupList"},
		"discovery without a right": {nil, "/apis", 403, `cannot get path \"/apis\"`},
		"probes need no right":      {nil, "/healthz", 200, "ok"},
		"the API server is down":    {rules{"down"}, lines, 500, "could not be asked"},
		"nothing is there":          {rules{"everything"}, "/metrics", 404, "nothing is served at /metrics"},
		"another group":             {rules{"everything"}, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq", 404, "NotFound"},
		"another version":           {rules{"everything"}, strings.Replace(lines, "v1beta2", "v1", 1), 404, "NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			got := get(world(tc.rules), tc.path)
			if got.Code != tc.code || !strings.Contains(got.Body.String(), tc.says) {
				t.Errorf("%d %s\nwant %d with %s", got.Code, got.Body, tc.code, tc.says)
			}
		})
	}
	if got := get(world(rules{"everything"}), lines, "Authorization", ""); got.Code != 401 || !strings.Contains(got.Body.String(), `"reason":"Unauthorized"`) {
		t.Errorf("a stranger: %d %s", got.Code, got.Body)
	}
}

const explained = "/apis/visibility.berth.dev/v1alpha1/namespaces/red/workloads/w/explanation"

// known is a cache in which every Workload is red/w.
func known(string, string) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "w", UID: "u"}}
}

func TestUnavailable(t *testing.T) {
	s := world(rules{"everything"})
	s.Ready = func() error { return errors.New("not everything is known yet") }
	for path, want := range map[string]int{lines: 503, "/readyz": 503, "/livez": 200, "/apis": 200} {
		if got := get(s, path); got.Code != want {
			t.Errorf("%s before all is known: %d %s", path, got.Code, got.Body)
		}
	}
	s = world(rules{"everything"})
	s.Workload = known
	s.Read = func(context.Context, func(*state.State) any) (any, error) {
		return nil, context.DeadlineExceeded
	}
	if got := get(s, explained); got.Code != 503 || !strings.Contains(got.Body.String(), "the engine does not answer") {
		t.Errorf("without an engine: %d %s", got.Code, got.Body)
	}
}

// A Workload that is no longer in the cache is listed from the engine's data, and a new one of the same name does not add to it.
func TestItem(t *testing.T) {
	want := visibilityv1beta2.PendingWorkload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "w", CreationTimestamp: metav1.NewTime(time.Unix(1, 0))},
		Priority:   1<<31 - 1, LocalQueueName: "q",
	}
	s := world(rules{"everything"})
	other := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{UID: "other", OwnerReferences: []metav1.OwnerReference{{Name: "j"}}}}
	for name, cached := range map[string]*kueue.Workload{"gone": nil, "another one": other} {
		s.Workload = func(string, string) *kueue.Workload { return cached }
		var got visibilityv1beta2.PendingWorkloadsSummary
		if err := json.Unmarshal(get(s, lines).Body.Bytes(), &got); err != nil || len(got.Items) != 1 {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if diff := cmp.Diff(want, got.Items[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestFormats(t *testing.T) {
	s := world(rules{"everything"})
	for accept, want := range map[string]string{
		"": formatJSON, "*/*": formatJSON, "application/json": formatJSON, "application/yaml": formatYAML,
		"application/vnd.kubernetes.protobuf,application/json":     formatJSON,
		"application/json;as=Table;v=v1;g=meta.k8s.io, */*;q=0.1":  formatJSON,
		"application/json;as=Table;v=v1;g=meta.k8s.io":             "",
		"application/vnd.kubernetes.protobuf;type=x":               "",
		"application/json;q=0, application/yaml":                   formatYAML,
		"nonsense/, application/json;charset=utf-8, text/html;q=1": formatJSON,
	} {
		got := get(s, lines, "Accept", accept)
		if want == "" && got.Code != http.StatusNotAcceptable || want != "" && got.Header().Get("Content-Type") != want {
			t.Errorf("%q: %d %s", accept, got.Code, got.Header().Get("Content-Type"))
		}
	}
	if got := get(s, lines+"?pretty=1").Body.String(); !strings.Contains(got, "\n  \"items\": [\n") {
		t.Errorf("not pretty: %s", got)
	}
}

// Documents are sent once to callers that cache them.
func TestDocuments(t *testing.T) {
	s := world(rules{"everything"})
	for path, accept := range map[string]string{
		"/apis": aggregated + "," + formatJSON, "/apis/": "", "/apis/visibility.berth.dev/v1alpha1": formatJSON, "/openapi/v2": formatJSON,
		"/openapi/v3": "", "/openapi/v3/apis/visibility.kueue.x-k8s.io/v1beta1": "",
	} {
		first := get(s, path, "Accept", accept)
		tag := first.Header().Get("Etag")
		if first.Code != 200 || tag == "" || !json.Valid(first.Body.Bytes()) {
			t.Errorf("%s: %d %q %.100s", path, first.Code, tag, first.Body)
		}
		if again := get(s, path, "Accept", accept, "If-None-Match", tag); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	if got := get(s, "/apis", "Accept", aggregated); got.Header().Get("Content-Type") != aggregated || !strings.Contains(got.Body.String(), `"responseKind"`) {
		t.Errorf("aggregated discovery: %s %s", got.Header().Get("Content-Type"), got.Body)
	}
	if got := get(s, "/openapi/v3/apis/visibility.berth.dev/v1alpha1", "Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"); got.Code != http.StatusNotAcceptable {
		t.Errorf("as protobuf: %d", got.Code)
	}
}

// The schemas have the fields of the wire types, no more and no fewer.
func TestSchemas(t *testing.T) {
	fields := func(o object) (out []string) {
		for _, p := range o.properties {
			if p.text == "" {
				t.Errorf("%s has no description", p.name)
			}
			name := p.name
			if p.optional {
				name += ",omitempty"
			}
			out = append(out, name)
		}
		return out
	}
	for name, tc := range map[string]struct {
		group string
		of    any
	}{
		"PendingWorkloadsSummary": {"visibility.kueue.x-k8s.io", visibilityv1beta2.PendingWorkloadsSummary{}},
		"PendingWorkload":         {"visibility.kueue.x-k8s.io", visibilityv1beta2.PendingWorkload{}},
		"Explanation":             {"visibility.berth.dev", berthv1alpha1.Explanation{}},
		"FlavorChoice":            {"visibility.berth.dev", berthv1alpha1.FlavorChoice{}},
		"Shortfall":               {"visibility.berth.dev", berthv1alpha1.Shortfall{}},
		"Victim":                  {"visibility.berth.dev", berthv1alpha1.Victim{}},
		"TopologyUsage":           {"visibility.berth.dev", berthv1alpha1.TopologyUsage{}},
		"FlavorUsage":             {"visibility.berth.dev", berthv1alpha1.FlavorUsage{}},
		"NodeCounts":              {"visibility.berth.dev", berthv1alpha1.NodeCounts{}},
		"LevelUsage":              {"visibility.berth.dev", berthv1alpha1.LevelUsage{}},
		"ResourceUsage":           {"visibility.berth.dev", berthv1alpha1.ResourceUsage{}},
		"DomainUsage":             {"visibility.berth.dev", berthv1alpha1.DomainUsage{}},
		"ShapeUsage":              {"visibility.berth.dev", berthv1alpha1.ShapeUsage{}},
		"LargestGang":             {"visibility.berth.dev", berthv1alpha1.LargestGang{}},
	} {
		var want []string
		o := schemas[tc.group][name]
		for _, f := range reflect.VisibleFields(reflect.TypeOf(tc.of)) {
			tag := f.Tag.Get("json")
			if len(f.Index) == 1 && tag != ",inline" && (tag != "metadata,omitempty" || !o.top) {
				want = append(want, tag)
			}
		}
		if diff := cmp.Diff(want, fields(o)); diff != "" {
			t.Errorf("%s (-type +schema):\n%s", name, diff)
		}
	}
}

func TestNowhere(t *testing.T) {
	condition := func(kind, status, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: "so it is"}}
	}
	for want, w := range map[string]*kueue.Workload{
		"Succeeded: it is finished: so it is": {Status: kueue.WorkloadStatus{Conditions: condition(kueue.WorkloadFinished, "True", "Succeeded")}},
		": it is being deleted":               {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}},
		"Deactivated: it is deactivated; set spec.active to true to queue it again": {Spec: kueue.WorkloadSpec{Active: new(false)}},
		": the annotation kueue.x-k8s.io/admission-gated-by keeps it out: a/b":      {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kueue.x-k8s.io/admission-gated-by": "a/b"}}},
		"Misconfigured: so it is":                                      {Status: kueue.WorkloadStatus{Conditions: condition(kueue.WorkloadQuotaReserved, "False", "Misconfigured")}},
		"PodsReadyTimeout: it is not to be queued again yet: so it is": {Status: kueue.WorkloadStatus{Conditions: condition(kueue.WorkloadRequeued, "False", "PodsReadyTimeout")}},
		": the manager has not put it into a queue yet":                {},
	} {
		reason, message := nowhere(w, true)
		if got := reason + ": " + message; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestRequests(t *testing.T) {
	podSet := func(name string, count int32, cpu string) kueue.PodSet {
		return kueue.PodSet{Name: kueue.PodSetReference(name), Count: count, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": apiresource.MustParse(cpu)}},
		}}}}}
	}
	s := world(nil)
	got := s.requests(&kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{podSet("a", 1, "500m"), podSet("b", 3, "2")}}})
	if cpu := got["cpu"]; len(got) != 1 || cpu.String() != "6500m" {
		t.Errorf("requests %v", got)
	}
}

func TestObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		target Target
		kind   string
		host   string
		port   int64
		fails  bool
	}{
		"in a cluster":         {target: Target{Namespace: "ns", Port: 8082}, kind: "ClusterIP", port: 443},
		"on this machine":      {target: Target{Namespace: "ns", Host: "127.0.0.1", Port: 20001}, kind: "ExternalName", host: "127.0.0.1", port: 20001},
		"the same, in IPv6":    {target: Target{Namespace: "ns", Host: "::1", Port: 20001}, kind: "ExternalName", host: "localhost", port: 20001},
		"elsewhere, by name":   {target: Target{Namespace: "ns", Host: "berth.lan", Port: 8082}, kind: "ExternalName", host: "berth.lan", port: 8082},
		"elsewhere, in IPv6":   {target: Target{Namespace: "ns", Host: "2001:db8::1", Port: 8082}, fails: true},
		"with a known issuer":  {target: Target{Namespace: "ns", Port: 8082, CABundle: []byte("ca")}, kind: "ClusterIP", port: 443},
		"elsewhere, by number": {target: Target{Namespace: "ns", Host: "10.0.0.5", Port: 8082}, kind: "ExternalName", host: "10.0.0.5", port: 8082},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Objects(tc.target)
			if err != nil || tc.fails {
				if (err != nil) != tc.fails {
					t.Error(err)
				}
				return
			}
			var kinds []string
			for _, u := range objects {
				kinds = append(kinds, u.GetKind()+" "+u.GetName())
				spec, _ := u.Object["spec"].(map[string]any)
				switch u.GetKind() {
				case "Service":
					host, _ := spec["externalName"].(string)
					if spec["type"] != tc.kind || host != tc.host {
						t.Errorf("Service %v", spec)
					}
				case "APIService":
					service := spec["service"].(map[string]any)
					if service["port"] != tc.port || spec["insecureSkipTLSVerify"] != nil || (spec["caBundle"] != nil) != (tc.target.CABundle != nil) {
						t.Errorf("%s %v", u.GetName(), spec)
					}
				}
			}
			want := []string{
				"Service kueue-visibility-server", "RoleBinding kueue-visibility-server-auth-reader", "APIService v1beta2.visibility.kueue.x-k8s.io",
				"APIService v1beta1.visibility.kueue.x-k8s.io", "APIService v1alpha1.visibility.berth.dev",
			}
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}
