package dash

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/gorilla/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/options"
)

func TestMain(m *testing.M) {
	embeddedtest.Quiet()
	os.Exit(embeddedtest.Main(m))
}

const origin = "https://berth.example.org"

// world is the namespaces red and blue, each with a queue and Workloads, on a real API server, and a dashboard.
type world struct {
	testing.TB
	c         client.WithWatch
	red, blue string // unique names, as tests share the server
	server    *Server
	url       string // of the dashboard, without its scheme
}

// newWorld starts a dashboard; change modifies it before the first request.
func newWorld(t testing.TB, change func(*Server)) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{TB: t, c: embeddedtest.Client(t, "../../config/crd", kueue.AddToScheme, apiextensionsv1.AddToScheme)}
	for _, name := range []*string{&w.red, &w.blue} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "dash-"}}
		w.create(ns)
		*name = ns.Name
	}
	mgr, err := ctrl.NewManager(embeddedtest.Config(t), ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	o := options.DefaultDashboard()
	o.Origins = []string{origin}
	w.server, err = Setup(ctx, mgr, o, Sources{Rates: &sharing.Rates{}}, testr.NewWithInterface(t, testr.Options{}))
	w.must(err)
	change(w.server)
	ended := make(chan error, 2)
	for _, run := range []func(context.Context) error{mgr.Start, w.server.Run} {
		go func() { ended <- run(ctx) }()
	}
	listener := httptest.NewUnstartedServer(nil)
	listener.Config = w.server.HTTP()
	listener.Start()
	t.Cleanup(func() {
		w.server.hub.end()
		listener.Close()
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
	if !w.server.Wait(ctx) {
		t.Fatal("the caches are not filled")
	}
	w.url = listener.Listener.Addr().String()
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		if err := w.c.Create(w.Context(), o); err != nil {
			w.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

// queues makes a flavor, a ClusterQueue in a cohort and a LocalQueue in both namespaces, all named like red.
func (w *world) queues() {
	w.Helper()
	w.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.red}}, &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: w.red},
		Spec: kueue.ClusterQueueSpec{
			CohortName: kueue.CohortReference(w.red), NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
				Name: kueue.ResourceFlavorReference(w.red), Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: quantity.MustParse("3")}},
			}}}},
		},
	})
	for _, ns := range []string{w.red, w.blue} {
		w.create(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(w.red)}})
	}
}

// workload makes one in the queue main, of an owner of that UID.
func (w *world) workload(namespace, name string, owner types.UID) *kueue.Workload {
	w.Helper()
	out := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "example.org/v1", Kind: "Solver", Name: "of-" + name, UID: "none",
		}}},
		Spec: kueue.WorkloadSpec{QueueName: "main", PodSets: []kueue.PodSet{{
			Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "any"}}}},
		}}},
	}
	if owner != "" {
		out.OwnerReferences[0].UID = owner
	}
	w.create(out)
	return out
}

// account makes a service account in red and a token of it.
func (w *world) account(name string) (token string) {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: name}}
	w.create(account)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	w.must(w.c.SubResource("token").Create(w.Context(), account, request))
	return request.Status.Token
}

func (w *world) subject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.red, Name: name}
}

// viewer is a token with view on red only.
func (w *world) viewer() string {
	w.Helper()
	token := w.account("viewer")
	read := []string{"get", "list", "watch"}
	w.create(
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: "view"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"workloads", "localqueues"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"pods", "events", "namespaces"}, Verbs: read},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.red, Name: "view"}, Subjects: []rbacv1.Subject{w.subject("viewer")},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "view"},
		})
	w.granted("viewer", w.red)
	return token
}

// administrator is a token that may read everything.
func (w *world) administrator() string {
	w.Helper()
	token := w.account("admin")
	w.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.red + "-admin"}, Subjects: []rbacv1.Subject{w.subject("admin")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	})
	w.granted("admin", "")
	return token
}

// granted waits until the API server uses a binding: the dashboard caches its answers.
func (w *world) granted(account, namespace string) {
	w.Helper()
	wait.Until(w.TB, "the binding counts", func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + w.red + ":" + account, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "kueue.x-k8s.io", Resource: "workloads", Verb: "list", Namespace: namespace,
			},
		}}
		if err := w.c.Create(w.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return errors.New("refused")
		}
		return nil
	})
}

// socket is a WebSocket to the dashboard.
type socket struct {
	*world
	*websocket.Conn
}

// dial opens a view as a browser does.
func (w *world) dial(token, path string) *socket {
	w.Helper()
	conn, code, err := w.try(token, path, nil)
	if err != nil {
		w.Fatalf("%s: %v: %d", path, err, code)
	}
	if conn.Subprotocol() != "kueueviz.v1" {
		w.Errorf("the subprotocol is %q", conn.Subprotocol())
	}
	w.Cleanup(func() { _ = conn.Close() })
	return &socket{w, conn}
}

// try dials and returns the status code of the answer; 0 without one.
func (w *world) try(token, path string, header http.Header) (conn *websocket.Conn, code int, err error) {
	dialer := &websocket.Dialer{Subprotocols: []string{"kueueviz.v1"}, HandshakeTimeout: wait.Patience}
	if token != "" {
		dialer.Subprotocols = append(dialer.Subprotocols, "kueueviz.auth."+base64.RawURLEncoding.EncodeToString([]byte(token)))
	}
	conn, response, err := dialer.DialContext(w.Context(), "ws://"+w.url+path, header)
	if response != nil {
		code = response.StatusCode
		_ = response.Body.Close()
	}
	return conn, code, err
}

// next returns the next message.
func (s *socket) next() []byte {
	s.Helper()
	_ = s.SetReadDeadline(time.Now().Add(wait.Patience))
	_, data, err := s.ReadMessage()
	if err != nil {
		s.Fatalf("no message: %v", err)
	}
	return data
}

// closed reads until the peer closes, and returns the close code.
func (s *socket) closed() (code int, why string) {
	s.Helper()
	_ = s.SetReadDeadline(time.Now().Add(wait.Patience))
	for {
		_, _, err := s.ReadMessage()
		if end, ok := errors.AsType[*websocket.CloseError](err); ok {
			return end.Code, end.Text
		}
		if err != nil {
			s.Fatal(err)
		}
	}
}

// document is a message, decoded.
type document map[string]any

func (s *socket) document() (out document) {
	s.Helper()
	data := s.next()
	if err := json.Unmarshal(data, &out); err != nil {
		s.Fatalf("%s: %v", data, err)
	}
	return out
}

// at follows keys of objects and returns what is there, nil for nothing.
func (d document) at(keys ...string) any {
	var at any = map[string]any(d)
	for _, key := range keys {
		within, _ := at.(map[string]any)
		at = within[key]
	}
	return at
}

// names returns the names of a list's items, with their namespaces.
func names(list any) []string {
	d, _ := list.(map[string]any)
	items, _ := d["items"].([]any)
	out := []string{}
	for _, item := range items {
		o, _ := item.(map[string]any)
		meta, _ := o["metadata"].(map[string]any)
		name := fmt.Sprint(meta["name"])
		if meta["namespace"] != nil {
			name = fmt.Sprint(meta["namespace"], "/", name)
		}
		out = append(out, name)
	}
	return out
}

// get is a request with a token, "" for none.
func (w *world) get(token, path string, header ...string) (code int, body string, _ http.Header) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+w.url+path, nil)
	w.must(err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	w.must(err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	w.must(err)
	return response.StatusCode, string(data), response.Header
}

// sleepy is a WebSocket whose reader sleeps, with buffers as small as possible.
func (w *world) sleepy(token, path string) net.Conn {
	w.Helper()
	conn, err := (&net.Dialer{}).DialContext(w.Context(), "tcp", w.url)
	w.must(err)
	w.Cleanup(func() { _ = conn.Close() })
	tcp, _ := conn.(*net.TCPConn)
	w.must(tcp.SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n", path, w.url, strings.TrimSpace(token))
	w.must(err)
	return conn
}
