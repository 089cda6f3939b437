package review

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// managersLimit is the manager's own limit, which fails every use.
type managersLimit struct{ flowcontrol.RateLimiter }

func (managersLimit) Wait(context.Context) error {
	return errors.New("the manager's own budget was used")
}

// apiServer holds its answers back while the test wants that.
type apiServer struct {
	*Live
	asked, now, most atomic.Int32 // requests for objects and reviews
	held             chan struct{}
	blanks           atomic.Int32 // MiB of them in a list
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{held: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
			return
		case "/apis":
			_, _ = fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"authorization.k8s.io","versions":[{"groupVersion":"authorization.k8s.io/v1","version":"v1"}]}]}`)
			return
		case "/api/v1":
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["get"]}]}`)
			return
		case "/apis/authorization.k8s.io/v1":
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"authorization.k8s.io/v1","resources":[{"name":"subjectaccessreviews","kind":"SubjectAccessReview","verbs":["create"]}]}`)
			return
		}
		s.asked.Add(1)
		now := s.now.Add(1)
		defer s.now.Add(-1)
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		select {
		case <-s.held:
		case <-r.Context().Done():
		}
		if strings.HasSuffix(r.URL.Path, "/configmaps") {
			_, _ = fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","items":[`)
			for range s.blanks.Load() {
				_, _ = fmt.Fprint(w, strings.Repeat(" ", 1<<20))
			}
			_, _ = fmt.Fprint(w, `]}`)
			return
		}
		if r.Method == http.MethodPost {
			_, _ = fmt.Fprint(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}`)
	}))
	t.Cleanup(server.Close)
	live, err := connectLive(&rest.Config{Host: server.URL, RateLimiter: managersLimit{}}, server.Client(), clientgoscheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	s.Live = live
	return s
}

var jobKind = batchv1.SchemeGroupVersion.WithKind("Job")

func forged(change func(*admissionv1.AdmissionRequest)) admission.Request {
	out := admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(jobKind), Operation: admissionv1.Create, Namespace: "red", Object: runtime.RawExtension{Raw: []byte("{}")},
	}
	if change != nil {
		change(&out)
	}
	return admission.Request{AdmissionRequest: out}
}

// asks is a webhook that reads n objects and asks for a permission.
func (s *apiServer) asks(n int) admission.Handler {
	return guarded(jobKind, admission.HandlerFunc(func(ctx context.Context, _ admission.Request) admission.Response {
		for range n {
			if err := s.Get(ctx, client.ObjectKey{Namespace: "red", Name: "c"}, &corev1.ConfigMap{}); err != nil {
				return failure(err)
			}
		}
		if err := s.Create(ctx, &authorizationv1.SubjectAccessReview{}); err != nil {
			return failure(err)
		}
		return admission.Allowed("")
	}))
}

// Implausible requests are refused before the API server is asked about anything.
func TestForgedReviewsAskNothing(t *testing.T) {
	s := newAPIServer(t)
	close(s.held)
	for name, tc := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		says   string
	}{
		"another kind":       {func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "Pod" }, "request.kind"},
		"no kind":            {func(r *admissionv1.AdmissionRequest) { r.Kind = metav1.GroupVersionKind{} }, "request.kind"},
		"a deletion":         {func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }, "request.operation"},
		"nothing":            {func(r *admissionv1.AdmissionRequest) { r.Operation = "" }, "request.operation"},
		"too large":          {func(r *admissionv1.AdmissionRequest) { r.Object.Raw = make([]byte, maxObject+1) }, "request.object"},
		"no old object":      {func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }, "request.oldObject"},
		"a namespace's path": {func(r *admissionv1.AdmissionRequest) { r.Namespace = "red/../blue" }, "request.namespace"},
	} {
		got := s.asks(1).Handle(t.Context(), forged(tc.change))
		if got.Allowed || got.Result.Code != http.StatusBadRequest || !strings.Contains(got.Result.Message, tc.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	path := func(r *admissionv1.AdmissionRequest) { r.Name = "../x" } // which the API server refuses, with the field
	if got := s.asks(1).Handle(t.Context(), forged(path)); !got.Allowed {
		t.Errorf("a name's path: %+v", got)
	}
	if n := s.asked.Load(); n != 0 {
		t.Errorf("the API server was asked %d times", n)
	}
	another := func(r *admissionv1.AdmissionRequest) { r.Kind.Version = "v1beta1" }
	if got := s.asks(1).Handle(t.Context(), forged(another)); !got.Allowed || s.asked.Load() != 2 {
		t.Errorf("a good one was answered with %+v after %d questions", got, s.asked.Load())
	}
}

// However many reviews come in, few of them ask the API server at once, none uses the manager's budget, and excess ones are refused with
// a retry time.
func TestLiveRequestsAreBounded(t *testing.T) {
	s := newAPIServer(t)
	const reviews = 2000
	answers := make(chan admission.Response, reviews)
	for i := range reviews {
		go func() {
			answers <- s.asks(1).Handle(t.Context(), forged(func(r *admissionv1.AdmissionRequest) { r.Namespace = fmt.Sprint("n", i%100) }))
		}()
	}
	refused := 0
	for range reviews - liveAtOnce - liveWaiting {
		if got := <-answers; got.Result.Code == http.StatusTooManyRequests && got.Result.Details.RetryAfterSeconds > 0 {
			refused++
		}
	}
	if refused != reviews-liveAtOnce-liveWaiting {
		t.Errorf("%d were told to come again, want %d", refused, reviews-liveAtOnce-liveWaiting)
	}
	close(s.held)
	for range liveAtOnce + liveWaiting {
		if got := <-answers; !got.Allowed {
			t.Errorf("one that waited: %+v", got.Result)
		}
	}
	if most := s.most.Load(); most > liveAtOnce {
		t.Errorf("%d requests at once", most)
	}
}

// A namespace with many reviews does not block another one.
func TestNamespacesShareLiveRequests(t *testing.T) {
	s := newAPIServer(t)
	var all sync.WaitGroup
	ask := func(namespace string) {
		if got := s.asks(0).Handle(t.Context(), forged(func(r *admissionv1.AdmissionRequest) { r.Namespace = namespace })); !got.Allowed {
			t.Errorf("%s: %+v", namespace, got.Result)
		}
	}
	begun := func(n int32) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%d requests", n), func() error {
			if now := s.now.Load(); now != n {
				return fmt.Errorf("%d", now)
			}
			return nil
		})
	}
	for range 3 * livePerNamespace {
		all.Go(func() { ask("red") })
	}
	begun(livePerNamespace)
	all.Go(func() { ask("blue") })
	begun(livePerNamespace + 1)
	close(s.held)
	all.Wait()
}

func TestOneReviewAsksLittle(t *testing.T) {
	s := newAPIServer(t)
	close(s.held)
	got := s.asks(livePerReview).Handle(t.Context(), forged(nil))
	if got.Allowed || got.Result.Code != http.StatusForbidden || int(s.asked.Load()) != livePerReview {
		t.Errorf("after %d questions %+v", s.asked.Load(), got.Result)
	}
}

// TestListsAreBounded: a namespace has one list at a time, two are read in all, and a larger answer than a page should be is given up.
func TestListsAreBounded(t *testing.T) {
	s := newAPIServer(t)
	lists := guarded(jobKind, admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		if err := s.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(req.Namespace)); err != nil {
			return failure(err)
		}
		return admission.Allowed("")
	}))
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if got := lists.Handle(t.Context(), forged(func(r *admissionv1.AdmissionRequest) { r.Namespace = fmt.Sprint("n", i%4) })); !got.Allowed {
				t.Errorf("%+v", got.Result)
			}
		})
	}
	wait.Until(t, "two lists", func() error {
		if now := s.now.Load(); now != 2 {
			return fmt.Errorf("%d", now)
		}
		return nil
	})
	close(s.held)
	all.Wait()
	if most := s.most.Load(); most != 2 {
		t.Errorf("%d lists at once", most)
	}
	s.blanks.Store(maxAnswer - 1)
	if got := lists.Handle(t.Context(), forged(nil)); !got.Allowed {
		t.Errorf("a large list: %+v", got.Result)
	}
	s.blanks.Store(maxAnswer)
	if got := lists.Handle(t.Context(), forged(nil)); got.Allowed || !strings.Contains(got.Result.Message, "more than 32 MiB") {
		t.Errorf("a larger list: %+v", got)
	}
}
