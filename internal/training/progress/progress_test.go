package progress_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/progress"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// world is a namespace with the TrainJobs lark and wren, a pod of each, and the server, on a real API server.
type world struct {
	t         *testing.T
	ctx       context.Context
	c         client.Client
	namespace string
	server    *httptest.Server
	answered  []int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := embeddedtest.Config(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, trainerv1alpha1.AddToScheme, jobsetv1alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: t.Context(), c: c}
	w.install()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lab-"}}
	w.create(ns)
	w.namespace = ns.Name
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}})
	for _, name := range []string{"lark", "wren"} {
		w.pod(name+"-node-0-0", name, w.family(w.trainJob(name)))
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	w.must(err)
	tokens, err := progress.NewTokens(cfg, httpClient, c, c)
	w.must(err)
	w.server = httptest.NewServer(&progress.Server{
		Client: c, Verify: tokens, Log: logr.Discard(), Answered: func(code int) { w.answered = append(w.answered, code) },
	})
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(o client.Object) { w.t.Helper(); w.must(w.c.Create(w.ctx, o)) }

func (w *world) install() {
	w.t.Helper()
	for _, name := range []string{"trainer.kubeflow.org_trainjobs", "jobset.x-k8s.io_jobsets"} {
		raw, err := config.FS.ReadFile("crd/" + name + ".yaml")
		w.must(err)
		var crd apiextensionsv1.CustomResourceDefinition
		w.must(yaml.Unmarshal(raw, &crd))
		w.must(client.IgnoreAlreadyExists(w.c.Create(w.ctx, &crd)))
	}
	wait.Until(w.t, "the CRDs are served", func() error {
		return errors.Join(w.c.List(w.ctx, &trainerv1alpha1.TrainJobList{}), w.c.List(w.ctx, &jobsetv1alpha2.JobSetList{}))
	})
}

func (w *world) trainJob(name string) *trainerv1alpha1.TrainJob {
	w.t.Helper()
	out := &trainerv1alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       trainerv1alpha1.TrainJobSpec{RuntimeRef: trainerv1alpha1.RuntimeRef{Name: "any"}},
	}
	w.create(out)
	return out
}

// family creates the JobSet of a TrainJob and its Job, and returns the Job.
func (w *world) family(of *trainerv1alpha1.TrainJob) *batchv1.Job {
	w.t.Helper()
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "node", Image: "img:a"}}}}
	set := &jobsetv1alpha2.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: of.Name, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(of, trainerv1alpha1.GroupVersion.WithKind("TrainJob")),
		}},
		Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{
			Name: "node", Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
		}}},
	}
	w.create(set)
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: of.Name + "-node-0", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(set, jobsetv1alpha2.GroupVersion.WithKind("JobSet")),
		}},
		Spec: batchv1.JobSpec{Suspend: new(true), Template: template},
	}
	w.create(j)
	return j
}

// pod makes a pod with the label of a JobSet, which a Job owns if there is one.
func (w *world) pod(name, jobset string, of *batchv1.Job) {
	w.t.Helper()
	labels := map[string]string{"jobset.sigs.k8s.io/jobset-name": jobset}
	var owners []metav1.OwnerReference
	if of != nil {
		labels[batchv1.ControllerUidLabel] = string(of.UID)
		owners = append(owners, *metav1.NewControllerRef(of, batchv1.SchemeGroupVersion.WithKind("Job")))
	}
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels, OwnerReferences: owners},
		Spec:       corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "node", Image: "img:a"}}},
	})
}

// token is one that the kubelet would give a pod; "" is bound to none.
func (w *world) token(audience, pod string) string {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: new(int64(3600))}}
	if pod != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "default"}}
	w.must(w.c.SubResource("token").Create(w.ctx, account, request))
	return request.Status.Token
}

// of is the token of a TrainJob's own pod.
func (w *world) of(job string) string {
	return w.token(plan.StatusAudience(w.namespace, job), job+"-node-0-0")
}

// post reports and returns the code and what came.
func (w *world) post(job, authorization string, body io.Reader) (int, map[string]any) {
	w.t.Helper()
	return w.send(http.MethodPost, plan.StatusPath(w.namespace, job), authorization, body)
}

func (w *world) send(method, path, authorization string, body io.Reader) (int, map[string]any) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, method, w.server.URL+path, body)
	w.must(err)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	response, err := http.DefaultClient.Do(r)
	w.must(err)
	defer func() { _ = response.Body.Close() }()
	out := map[string]any{}
	w.must(json.NewDecoder(response.Body).Decode(&out))
	return response.StatusCode, out
}

func (w *world) job(name string) *trainerv1alpha1.TrainJob {
	w.t.Helper()
	var job trainerv1alpha1.TrainJob
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &job))
	return &job
}

// TestReports is 50 §7, 65: a report replaces the previous one, and changes no other field.
func TestReports(t *testing.T) {
	w := newWorld(t)
	bearer := "Bearer " + w.of("lark")
	report := `{"unknown": 1, "trainerStatus": {"progressPercentage": 40, "estimatedRemainingSeconds": 9, "metrics": [{"name": "loss", "value": "0.5"}], "lastUpdatedTime": "2026-01-02T03:04:05.678+02:00"}}`
	code, echoed := w.post("lark", bearer, strings.NewReader(report))
	want := map[string]any{"trainerStatus": map[string]any{
		"progressPercentage": 40.0, "estimatedRemainingSeconds": 9.0, "metrics": []any{map[string]any{"name": "loss", "value": "0.5"}},
		"lastUpdatedTime": "2026-01-02T01:04:05Z",
	}}
	if diff := cmp.Diff(want, echoed); code != 200 || diff != "" {
		t.Errorf("%d (-want +got):\n%s", code, diff)
	}
	got := w.job("lark").Status.TrainerStatus
	if got == nil || *got.ProgressPercentage != 40 || got.Metrics[0].Value != "0.5" || got.LastUpdatedTime.Unix() != 1767315845 {
		t.Fatalf("status %+v", got)
	}

	// A controller writes conditions at the same time: neither loses anything.
	stale := w.job("lark")
	next := stale.DeepCopy()
	next.Status.Conditions = []metav1.Condition{{Type: "Suspended", Status: "False", Reason: "Resumed", LastTransitionTime: metav1.Now()}}
	if code, _ := w.post("lark", bearer, strings.NewReader(`{"trainerStatus": {"lastUpdatedTime": "2026-01-02T03:04:06Z"}}`)); code != 200 {
		t.Errorf("second report: %d", code)
	}
	w.must(w.c.Status().Patch(w.ctx, next, client.MergeFrom(stale)))
	after := w.job("lark").Status
	if after.TrainerStatus == nil || after.TrainerStatus.ProgressPercentage != nil || after.TrainerStatus.Metrics != nil || len(after.Conditions) != 1 {
		t.Errorf("after a report without its other fields: %+v", after)
	}
	version := w.job("lark").ResourceVersion
	if code, echoed := w.post("lark", bearer, strings.NewReader(`{}`)); code != 200 || len(echoed) != 0 || w.job("lark").ResourceVersion != version {
		t.Errorf("an empty report: %d %v", code, echoed)
	}
	if w.job("wren").Status.TrainerStatus != nil {
		t.Error("another TrainJob was written")
	}
}

// TestRefusals: every answer of spec 50 §4.8 that is no success, and the order in which things are looked at.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lab-"}}
	w.create(other)
	w.pod("stranger", "", nil)
	w.pod("labelled", "lark", nil)
	path := plan.StatusPath(w.namespace, "lark")
	audience := plan.StatusAudience(w.namespace, "lark")
	own := "Bearer " + w.of("lark")
	const fine = `{"trainerStatus": {"lastUpdatedTime": "2026-01-02T03:04:05Z"}}`
	metrics := make([]string, 257)
	for i := range metrics {
		metrics[i] = fmt.Sprintf(`{"name": "m%d", "value": "1"}`, i)
	}
	ghost := w.trainJob("ghost")
	w.pod("ghost-node-0-0", "ghost", w.family(ghost))
	w.must(w.c.Delete(w.ctx, ghost))
	unsized := func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) } // so that the length is not known
	for name, tt := range map[string]struct {
		method, path, token string
		body                io.Reader
		code                int
		reason, message     string
	}{
		"no token":                     {body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"not a bearer":                 {token: "Basic x", body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"two credentials":              {token: own + " more", body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"rubbish":                      {token: "Bearer rubbish", body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"token for another TrainJob":   {token: "Bearer " + w.of("wren"), body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"token for the API server":     {token: "Bearer " + w.token("https://kubernetes.default.svc", "lark-node-0-0"), body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"token of no pod":              {token: "Bearer " + w.token(audience, ""), body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"token of another pod":         {token: "Bearer " + w.token(audience, "stranger"), body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"token of a pod with a label":  {token: "Bearer " + w.token(audience, "labelled"), body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"token of another job's pod":   {token: "Bearer " + w.token(audience, "wren-node-0-0"), body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"token of another namespace":   {path: plan.StatusPath(other.Name, "lark"), token: "Bearer " + w.token(plan.StatusAudience(other.Name, "lark"), "lark-node-0-0"), body: strings.NewReader(fine), code: 403, reason: "Forbidden"},
		"scheme of any case, blanks":   {token: "  bEaReR   " + strings.TrimPrefix(own, "Bearer ") + "  ", body: strings.NewReader(fine), code: 200},
		"too long, before the token":   {token: "", body: strings.NewReader(strings.Repeat(" ", 70<<10)), code: 413, reason: "RequestEntityTooLarge"},
		"too long without a length":    {token: own, body: unsized(fine + strings.Repeat(" ", 70<<10)), code: 422, reason: "Invalid"},
		"no JSON":                      {token: own, body: strings.NewReader("{"), code: 422, reason: "Invalid"},
		"nothing at all":               {token: own, body: strings.NewReader(""), code: 422, reason: "Invalid"},
		"the wrong type":               {token: own, body: strings.NewReader(`{"trainerStatus": {"progressPercentage": "x"}}`), code: 422, reason: "Invalid"},
		"no lastUpdatedTime":           {token: own, body: strings.NewReader(`{"trainerStatus": {"progressPercentage": 1}}`), code: 422, reason: "Invalid", message: `"lark"`},
		"more than all":                {token: own, body: strings.NewReader(`{"trainerStatus": {"progressPercentage": 101, "lastUpdatedTime": "2026-01-02T03:04:05Z"}}`), code: 422, reason: "Invalid", message: "progressPercentage"},
		"too many metrics":             {token: own, body: strings.NewReader(`{"trainerStatus": {"metrics": [` + strings.Join(metrics, ",") + `], "lastUpdatedTime": "2026-01-02T03:04:05Z"}}`), code: 422, reason: "Invalid", message: "metrics"},
		"another method":               {method: http.MethodGet, token: own, code: 404, reason: "NotFound"},
		"another method, put":          {method: http.MethodPut, token: own, body: strings.NewReader(fine), code: 404, reason: "NotFound"},
		"another route":                {path: "/healthz", token: own, body: strings.NewReader(fine), code: 404, reason: "NotFound"},
		"below the route":              {path: path + "/more", token: own, body: strings.NewReader(fine), code: 404, reason: "NotFound"},
		"a TrainJob that has gone":     {path: plan.StatusPath(w.namespace, "ghost"), token: "Bearer " + w.of("ghost"), body: strings.NewReader(fine), code: 404, reason: "NotFound", message: "Train job not found"},
		"a token before a broken body": {token: "Bearer rubbish", body: strings.NewReader("{"), code: 403, reason: "Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.answered)
			at, method := tt.path, tt.method
			if at == "" {
				at = path
			}
			if method == "" {
				method = http.MethodPost
			}
			code, out := w.send(method, at, tt.token, tt.body)
			message, _ := out["message"].(string)
			if code != tt.code || !strings.Contains(message, tt.message) {
				t.Fatalf("%d %v, want %d %s", code, out, tt.code, tt.message)
			}
			if len(w.answered) != before+1 || w.answered[before] != code {
				t.Errorf("counted %v", w.answered[before:])
			}
			if code == 200 {
				return
			}
			if out["reason"] != tt.reason || out["status"] != "Failure" || out["code"] != float64(code) || message == "" {
				t.Errorf("answer %v", out)
			}
			for _, key := range []string{"kind", "apiVersion", "details"} {
				if _, ok := out[key]; ok {
					t.Errorf("the answer has %s: %v", key, out)
				}
			}
		})
	}
}

// TestNameAgain: a pod of a deleted TrainJob does not report for a later one of its name, also right after a report of its own.
func TestNameAgain(t *testing.T) {
	w := newWorld(t)
	bearer := "Bearer " + w.of("lark")
	post := func() int {
		code, _ := w.post("lark", bearer, strings.NewReader(`{"trainerStatus": {"progressPercentage": 99, "lastUpdatedTime": "2026-01-02T03:04:05Z"}}`))
		return code
	}
	if code := post(); code != 200 {
		t.Fatalf("its own report: %d", code)
	}
	w.must(w.c.Delete(w.ctx, w.job("lark")))
	w.trainJob("lark")
	if code := post(); code != 403 {
		t.Errorf("a report for another TrainJob: %d", code)
	}
	if got := w.job("lark").Status.TrainerStatus; got != nil {
		t.Errorf("it is written: %+v", got)
	}
}

// A pod that reports too often has to wait; other pods do not.
func TestPace(t *testing.T) {
	w := newWorld(t)
	lark, wren := "Bearer "+w.of("lark"), "Bearer "+w.of("wren")
	codes := map[int]int{}
	for range 30 {
		code, _ := w.post("lark", lark, strings.NewReader(`{}`))
		codes[code]++
	}
	if codes[200] < 10 || codes[200] > 20 || codes[200]+codes[429] != 30 {
		t.Errorf("codes %v", codes)
	}
	if code, _ := w.post("wren", wren, strings.NewReader(`{}`)); code != 200 {
		t.Errorf("another TrainJob's report: %d", code)
	}
}

// broken is a verifier that always fails.
type broken struct{}

func (broken) Verify(_ context.Context, token, _, _ string) (string, error) {
	if token == "panic" {
		panic("at once")
	}
	return "", errors.New("a secret of the manager")
}

func (broken) Allow(string) bool { return true }

// TestInternalErrors: what goes wrong in the manager is a 500 that says nothing of it, and the server goes on.
func TestInternalErrors(t *testing.T) {
	s := &progress.Server{Verify: broken{}, Log: logr.Discard(), Answered: func(int) {}}
	for _, token := range []string{"panic", "fail"} {
		r := httptest.NewRequest(http.MethodPost, plan.StatusPath("lab", "lark"), strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 500 || !strings.Contains(w.Body.String(), `"reason":"InternalError"`) || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %d %s", token, w.Code, w.Body)
		}
	}
}
