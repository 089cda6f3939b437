// Package progress is the HTTPS server to which training code in the pods of TrainJobs reports its progress. It writes reports
// to the status of the TrainJob (spec: 50 §4.8).
//
//	pod ── POST …/trainjobs/NAME/status, with a token for it ──► size ─► token ─► pace ─► body ─► status, applied
//
// The API server reviews tokens, also whether their pod still exists; its answers are cached for a short time. A report
// replaces the previous one. Every replica serves.
package progress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

const fieldOwner = client.FieldOwner("trainer-status")

const maxBody = 1 << 16

// Server handles reports.
type Server struct {
	// Client has no cache.
	Client client.Client
	Verify Verifier
	// Answered is called with the status code of every answer.
	Answered func(code int)
	Log      logr.Logger
}

// HTTP returns the server with its limits of connections (spec: 50 §4.8).
func (s *Server) HTTP() *http.Server {
	return &http.Server{Handler: s, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

// Verifier verifies that the bearer of a token may report the progress of a TrainJob, and returns who it is. Otherwise the error is
// Forbidden.
type Verifier interface {
	Verify(ctx context.Context, token, namespace, name string) (reporter string, err error)
	// Allow reports whether the reporter is within its rate limit.
	Allow(reporter string) bool
}

type report struct {
	TrainerStatus *trainerv1alpha1.TrainerStatus `json:"trainerStatus,omitempty"`
}

// ServeHTTP handles one request. An error is a bare metav1.Status.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error(fmt.Errorf("panic: %v", p), "A report of progress could not be answered", "stack", string(debug.Stack()))
			s.refuse(w, apierrors.NewInternalError(errors.New("the report could not be handled")))
		}
	}()
	namespace, name, ok := target(r)
	if !ok {
		s.refuse(w, failure(http.StatusNotFound, metav1.StatusReasonNotFound, "Not found"))
		return
	}
	out, err := s.acceptReport(w, r, namespace, name)
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.answer(w, http.StatusOK, out)
}

// target parses the path of a report. Every other path is not found, by any method.
func target(r *http.Request) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis/"+trainerv1alpha1.GroupVersion.String()+"/namespaces/")
	parts := strings.Split(rest, "/")
	if !ok || r.Method != http.MethodPost || len(parts) != 4 || parts[1] != trainerv1alpha1.ResourceTrainJobs || parts[3] != "status" || parts[0] == "" || parts[2] == "" {
		return "", "", false
	}
	return parts[0], parts[2], true
}

// acceptReport validates a report, in the order of the specification, and writes it.
func (s *Server) acceptReport(w http.ResponseWriter, r *http.Request, namespace, name string) (*report, error) {
	if r.ContentLength > maxBody {
		return nil, failure(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf("The report has more than %d bytes", maxBody))
	}
	token, ok := bearer(r.Header)
	if !ok {
		return nil, errForbidden
	}
	reporter, err := s.Verify.Verify(r.Context(), token, namespace, name)
	if err != nil {
		return nil, err
	}
	if !s.Verify.Allow(reporter) {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		return nil, failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "This pod reports too often; once in five seconds is enough")
	}
	var in report
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err != nil {
		return nil, failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "The report cannot be read: "+err.Error())
	}
	if in.TrainerStatus == nil {
		return &in, nil // nothing to change
	}
	return &in, s.applyReport(r.Context(), namespace, name, in.TrainerStatus)
}

// applyReport applies a report to the status of a TrainJob, which must exist.
func (s *Server) applyReport(ctx context.Context, namespace, name string, status *trainerv1alpha1.TrainerStatus) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"trainerStatus": fields}}}
	u.SetGroupVersionKind(trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob))
	u.SetNamespace(namespace)
	u.SetName(name)
	err = s.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err):
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, "Train job not found")
	case apierrors.IsInvalid(err):
		return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
	}
	return err
}

// bearer returns the only credential of the Authorization header. The scheme is case-insensitive, and blanks are ignored.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	words := strings.Fields(values[0])
	if len(words) != 2 || !strings.EqualFold(words[0], "Bearer") {
		return "", false
	}
	return words[1], true
}

// errForbidden does not tell the reason.
var errForbidden = failure(http.StatusForbidden, metav1.StatusReasonForbidden, "Forbidden")

func failure(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// refuse answers with an error. Errors other than a failure are logged, and answered as internal errors.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	known, ok := errors.AsType[*apierrors.StatusError](err)
	status := metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "The report could not be written",
	}
	if ok {
		switch e := known.ErrStatus; e.Code {
		case http.StatusForbidden, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests:
			status.Code, status.Reason, status.Message = e.Code, e.Reason, e.Message
		}
	}
	if status.Code == http.StatusInternalServerError {
		s.Log.Error(err, "A report of progress could not be written")
	}
	s.answer(w, int(status.Code), &status)
}

func (s *Server) answer(w http.ResponseWriter, code int, body any) {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(body); err != nil {
		s.Log.Error(err, "An answer could not be encoded")
		code = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // the caller is gone
	s.Answered(code)
}
