package conversion

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// server is an API server that converts through Handler.
type server struct {
	dynamic.Interface
	crds     map[string]*apiextensionsv1.CustomResourceDefinition // by kind
	webhook  *httptest.Server
	reviews  atomic.Int64
	warnings struct {
		sync.Mutex
		seen map[string]bool
	}
}

func (s *server) HandleWarningHeader(_ int, _, text string) {
	s.warnings.Lock()
	defer s.warnings.Unlock()
	s.warnings.seen[text] = true
}

var crdResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{crds: map[string]*apiextensionsv1.CustomResourceDefinition{}}
	s.warnings.seen = map[string]bool{}
	cfg := rest.CopyConfig(embeddedtest.Config(t))
	cfg.WarningHandler = s
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Interface = client
	s.webhook = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.reviews.Add(1)
		if r.URL.Path != Path {
			http.NotFound(w, r)
			return
		}
		Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(s.webhook.Close)
	s.install(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.webhook.Certificate().Raw}), true)
	return s
}

// install applies the CRDs of the group and waits until every served version answers.
func (s *server) install(t *testing.T, ca []byte, served bool) {
	t.Helper()
	client := apiextensionsv1.WebhookClientConfig{URL: new(s.webhook.URL + Path), CABundle: ca}
	entries, err := config.FS.ReadDir("crd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), kueue.GroupName) {
			continue
		}
		raw, err := config.FS.ReadFile(path.Join("crd", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		manifest := &unstructured.Unstructured{Object: parsedYAML(t, raw)}
		if err := Configure(manifest, client, true, served); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resource(crdResource).Apply(t.Context(), manifest.GetName(), manifest, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := recode(manifest.Object, crd); err != nil {
			t.Fatal(err)
		}
		s.crds[crd.Spec.Names.Kind] = crd
	}
	for kind, crd := range s.crds {
		for _, v := range crd.Spec.Versions {
			wait.Until(t, fmt.Sprintf("%s of %s: served is %t", v.Name, kind, v.Served), wait.Is(func() bool {
				_, err := s.resource(kind, v.Name).List(t.Context(), metav1.ListOptions{Limit: 1})
				return (err == nil) == v.Served
			}))
		}
	}
}

func (s *server) resource(kind, version string) dynamic.ResourceInterface {
	crd := s.crds[kind]
	r := s.Resource(schema.GroupVersionResource{Group: kueue.GroupName, Version: version, Resource: crd.Spec.Names.Plural})
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		return r.Namespace("default")
	}
	return r
}

func (s *server) get(t *testing.T, kind, version, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := s.resource(kind, version).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get %s %s: %v", version, kind, err)
	}
	return o
}

// create stores an object, and its status if it has one.
func (s *server) create(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	r := s.resource(o.GetKind(), o.GroupVersionKind().Version)
	got, err := r.Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s: %v", o.GetKind(), err)
	}
	status, ok := o.Object["status"]
	if !ok {
		return got
	}
	patch, err := json.Marshal(object{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	if got, err = r.Patch(t.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatalf("write status of %s: %v", o.GetKind(), err)
	}
	return got
}

func parsedYAML(t *testing.T, raw []byte) object {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// fullObjects has every kind with every field of v1beta2.
func fullObjects(t *testing.T, prefix string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile("../../../api/kueue/v1beta2/testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := parsedYAML(t, slices.Concat([]byte("items:\n"), raw))
	var out []*unstructured.Unstructured
	for i, o := range items(list, "items") {
		u := &unstructured.Unstructured{Object: o}
		u.SetAPIVersion(kueue.GroupVersion.String())
		u.SetName(fmt.Sprintf("%s-%d", prefix, i))
		out = append(out, u)
	}
	return out
}

// content is an object without what the server adds to it.
func content(u *unstructured.Unstructured) object {
	o := u.DeepCopy().Object
	for _, field := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "name", "namespace"} {
		delete(at(o, "metadata"), field)
	}
	return o
}

func TestServer(t *testing.T) {
	s := newServer(t)
	t.Run("rules", s.testRules)
	t.Run("every kind, read, changed and written by an old client", s.testReadModifyWrite)
	t.Run("every kind, created by an old client", s.testCreate)
	t.Run("status written by an old client", s.testStatus)
	t.Run("a forged annotation is refused", s.testForged)
	t.Run("applies in both versions", s.testApply)
	t.Run("reviews without an old client", s.testReviews)
	t.Run("warnings", s.testWarnings)
	t.Run("without the webhook", s.testDown)
	t.Run("nobody converts", s.testUnserved)
}

func (s *server) testReadModifyWrite(t *testing.T) {
	for _, o := range fullObjects(t, "rmw") {
		t.Run(o.GetKind(), func(t *testing.T) {
			stored := s.create(t, o)
			old := s.get(t, o.GetKind(), "v1beta1", o.GetName())
			old.SetLabels(map[string]string{"touched": "yes"})
			if _, err := s.resource(o.GetKind(), "v1beta1").Update(t.Context(), old, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			stored.SetLabels(map[string]string{"touched": "yes"})
			if diff := cmp.Diff(content(stored), content(s.get(t, o.GetKind(), "v1beta2", o.GetName()))); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

// testCreate creates copies of v1beta1 objects, including kept fields of the spec. A new object has no status yet, so no field of the
// status is kept.
func (s *server) testCreate(t *testing.T) {
	for _, o := range fullObjects(t, "old") {
		t.Run(o.GetKind(), func(t *testing.T) {
			convert(t, o.Object, kueuev1beta1.GroupVersion)
			s.create(t, o)
			if annotations := o.GetAnnotations(); annotations != nil {
				kept := parsedYAML(t, []byte(annotations[KeptAnnotation]))
				delete(kept, "status")
				if err := putKept(o.Object, kept); err != nil {
					t.Fatal(err)
				}
			}
			convert(t, o.Object, kueue.GroupVersion)
			if diff := cmp.Diff(content(o), content(s.get(t, o.GetKind(), "v1beta2", o.GetName()))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func (s *server) testStatus(t *testing.T) {
	var workload *unstructured.Unstructured
	for _, o := range fullObjects(t, "status") {
		if o.GetKind() == "Workload" {
			workload = o
		}
	}
	stored := s.create(t, workload)
	old := s.get(t, "Workload", "v1beta1", workload.GetName())
	at(old.Object, "status")["accumulatedPastExexcutionTimeSeconds"] = int64(99)
	old, err := s.resource("Workload", "v1beta1").UpdateStatus(t.Context(), old, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at(stored.Object, "status")["accumulatedPastExecutionTimeSeconds"] = int64(99)
	// and a reserved one can be stopped by a client that does not know the other fields (spec: 10 §2.7)
	at(old.Object, "spec")["active"] = true
	delete(at(old.Object, "metadata"), "annotations")
	delete(at(old.Object, "spec"), "priorityClassName")
	if _, err := s.resource("Workload", "v1beta1").Update(t.Context(), old, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content(stored), content(s.get(t, "Workload", "v1beta2", workload.GetName()))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func (s *server) testForged(t *testing.T) {
	o := &unstructured.Unstructured{Object: parsed(t, kueuev1beta1.GroupVersion, `{kind: MultiKueueConfig, spec: {clusters: [a]}}`)}
	o.SetName("forged")
	o.SetAnnotations(map[string]string{KeptAnnotation: `{"spec":{"quotaManagement":"Magic"}}`})
	_, err := s.resource("MultiKueueConfig", "v1beta1").Create(t.Context(), o, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `quotaManagement is "Magic"`) {
		t.Errorf("error %v", err)
	}
}

// testApply applies one object from two sides, each in its version. Neither side becomes the owner of fields that the other applied, and
// conflicts arise only over fields that both set.
func (s *server) testApply(t *testing.T) {
	const name = "applied"
	apply := func(version, manager, text string) error {
		v := schema.GroupVersion{Group: kueue.GroupName, Version: version}
		u := &unstructured.Unstructured{Object: parsed(t, v, text)}
		u.SetName(name)
		_, err := s.resource("ClusterQueue", version).Apply(t.Context(), name, u, metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	quota := `
kind: ClusterQueue
spec:
	resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 4000m}]}]}]
	concurrentAdmissionPolicy: {migration: {mode: RetainFirstAdmission}}`
	cohort := `{kind: ClusterQueue, spec: {cohort: c, flavorFungibility: {whenCanBorrow: Borrow}}}`
	for range 2 { // the second time nothing changes
		must(apply("v1beta2", "new", quota))
		must(apply("v1beta1", "old", cohort))
	}
	before := s.get(t, "ClusterQueue", "v1beta2", name)
	// a client of v1beta1 that does not use apply
	old := s.get(t, "ClusterQueue", "v1beta1", name)
	at(old.Object, "spec")["stopPolicy"] = "Hold"
	_, err := s.resource("ClusterQueue", "v1beta1").Update(t.Context(), old, metav1.UpdateOptions{FieldManager: "editor"})
	must(err)
	after := s.get(t, "ClusterQueue", "v1beta2", name)
	at(before.Object, "spec")["stopPolicy"] = "Hold"
	if diff := cmp.Diff(content(before), content(after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantOwned := map[string]string{
		"new":    `{"f:spec":{"f:concurrentAdmissionPolicy":{"f:migration":{"f:mode":{}}},"f:resourceGroups":{}}}`,
		"old":    `{"f:spec":{"f:cohort":{},"f:flavorFungibility":{"f:whenCanBorrow":{}}}}`,
		"editor": `{"f:spec":{"f:stopPolicy":{}}}`,
	}
	if diff := cmp.Diff(wantOwned, owned(after)); diff != "" {
		t.Errorf("owned fields (-want +got):\n%s", diff)
	}
	must(apply("v1beta2", "new", quota))
	must(apply("v1beta1", "old", cohort))
	// fields that one side no longer applies are removed, in both versions
	must(apply("v1beta1", "old", `{kind: ClusterQueue, spec: {flavorFungibility: {whenCanBorrow: Borrow}}}`))
	if at(s.get(t, "ClusterQueue", "v1beta2", name).Object, "spec")["cohortName"] != nil {
		t.Error("the cohort is still there")
	}
	// and a field of the other side is a conflict, named in the version of the client that causes it
	err = apply("v1beta1", "old", `{kind: ClusterQueue, spec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 5}]}]}]}}`)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), ".spec.resourceGroups") {
		t.Errorf("error %v, want a conflict", err)
	}
	must(apply("v1beta2", "new", `{kind: ClusterQueue, spec: {resourceGroups: []}}`))
	if at(s.get(t, "ClusterQueue", "v1beta1", name).Object, "metadata", "annotations") != nil {
		t.Error("the policy is still kept")
	}
}

func owned(u *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	for _, entry := range u.GetManagedFields() {
		out[entry.Manager] = entry.FieldsV1.GetRawString()
	}
	return out
}

// testReviews limits the cost of conversion without clients of v1beta1 to one review for each write: the API server keeps a cache of each
// version.
func (s *server) testReviews(t *testing.T) {
	const writes = 50
	u := &unstructured.Unstructured{Object: parsed(t, kueue.GroupVersion, `{kind: Cohort, spec: {}}`)}
	u.SetName("counted")
	s.create(t, u)
	reviews := func() int { return int(s.reviews.Load()) }
	before := wait.Quiet(t, time.Second, reviews)
	for i := range writes {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, i)
		if _, err := s.resource("Cohort", "v1beta2").Patch(t.Context(), "counted", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := wait.Quiet(t, time.Second, reviews) - before; n > writes { // they come after the writes
		t.Errorf("%d reviews for %d writes", n, writes)
	}
}

func (s *server) testWarnings(t *testing.T) {
	s.warnings.Lock()
	defer s.warnings.Unlock()
	for kind := range s.crds {
		want := fmt.Sprintf("kueue.x-k8s.io/v1beta1 %s is deprecated: use kueue.x-k8s.io/v1beta2", kind)
		if warned := s.warnings.seen[want]; warned == (kind == "MultiKueueConfig") { // alone not deprecated
			t.Errorf("%s: warned %t", kind, warned)
		}
	}
}

// testDown stops the webhook: v1beta2 works without it.
func (s *server) testDown(t *testing.T) {
	for _, o := range fullObjects(t, "down") {
		s.create(t, o)
	}
	s.webhook.Close()
	for kind := range s.crds {
		if list, err := s.resource(kind, "v1beta2").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) == 0 {
			t.Errorf("v1beta2 of %s: %v", kind, err)
		}
		_, converts := kinds[kind]
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		_, err := s.resource(kind, "v1beta1").Update(ctx, s.asOld(t, kind), metav1.UpdateOptions{})
		cancel()
		if (err != nil) != converts {
			t.Errorf("writing v1beta1 of %s: %v", kind, err)
		}
	}
}

// asOld is any object of the kind, converted here.
func (s *server) asOld(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	list, err := s.resource(kind, "v1beta2").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("%d of %s: %v", len(list.Items), kind, err)
	}
	o := &list.Items[0]
	convert(t, o.Object, kueuev1beta1.GroupVersion)
	o.SetLabels(map[string]string{"down": "yes"})
	return o
}

// testUnserved installs without a webhook after a manager has added its authority to one: v1beta1 is served only for kinds that need no
// conversion.
func (s *server) testUnserved(t *testing.T) {
	for _, name := range CRDs() {
		crd, err := s.Resource(crdResource).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		client := at(crd.Object, "spec", "conversion", "webhook", "clientConfig")
		ca, _ := client["caBundle"].(string)
		client["caBundle"] = base64.StdEncoding.EncodeToString([]byte("\n" + string(mustDecode(t, ca))))
		if _, err := s.Resource(crdResource).Update(t.Context(), crd, metav1.UpdateOptions{FieldManager: "manager"}); err != nil {
			t.Fatal(err)
		}
	}
	s.install(t, nil, false)
	for kind, crd := range s.crds {
		_, converts := kinds[kind]
		served := slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == "v1beta1" && v.Served })
		if served == converts {
			t.Errorf("v1beta1 of %s is served: %t", kind, served)
		}
	}
}

func mustDecode(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestHandlerRefuses(t *testing.T) {
	for _, body := range []string{"", "{}", `{"request": 1}`} {
		w := httptest.NewRecorder()
		Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body)))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(
		`{"request":{"uid":"u","desiredAPIVersion":"kueue.x-k8s.io/v1","objects":[{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Cohort","metadata":{"name":"c"}}]}}`)))
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	if r := review.Response; r == nil || r.UID != "u" || r.Result.Status != metav1.StatusFailure || len(r.ConvertedObjects) != 0 ||
		!strings.Contains(r.Result.Message, "cannot be converted to kueue.x-k8s.io/v1") {
		t.Errorf("%+v", r)
	}
}
