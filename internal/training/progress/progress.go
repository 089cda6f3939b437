// Package progress takes what training code reports of its progress, over HTTPS from the pods of TrainJobs, and writes it
// to their status. spec: 50 §4.8.
//
//	pod ── POST …/trainjobs/NAME/status, with a token for just that ──► size ─► token ─► pace ─► body ─► status, applied
//
// Whose token it is says the API server, in a review that is kept for a moment: it also knows whether the pod of the token
// still exists. A report replaces the one before it. Every replica serves.
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

// fieldOwner applies reports.
const fieldOwner = client.FieldOwner("trainer-status")

// maxBody is how many bytes a report may have.
const maxBody = 1 << 16

// Server answers reports.
type Server struct {
	// Client writes reports, without a cache.
	Client client.Client
	// Verify finds out who reports.
	Verify Verifier
	// Answered is told the status code of every answer.
	Answered func(code int)
	Log      logr.Logger
}

// HTTP serves it, with the limits of a connection (spec: 50 §4.8).
func (s *Server) HTTP() *http.Server {
	return &http.Server{Handler: s, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

// Verifier says who a token belongs to, if it lets its bearer report the progress of a TrainJob. The error of a token that
// does not is Forbidden.
type Verifier interface {
	Verify(ctx context.Context, token, namespace, name string) (reporter string, err error)
	// Paced reports whether the reporter has not reported too often.
	Paced(reporter string) bool
}

// report is the body of a request, and of its answer.
type report struct {
	TrainerStatus *trainerv1alpha1.TrainerStatus `json:"trainerStatus,omitempty"`
}

// ServeHTTP answers one request. An error is a bare metav1.Status.
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
	out, err := s.take(w, r, namespace, name)
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.answer(w, http.StatusOK, out)
}

// target reads the path of a report. Everything else is not found, whatever the method.
func target(r *http.Request) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis/"+trainerv1alpha1.GroupVersion.String()+"/namespaces/")
	parts := strings.Split(rest, "/")
	if !ok || r.Method != http.MethodPost || len(parts) != 4 || parts[1] != trainerv1alpha1.ResourceTrainJobs || parts[3] != "status" || parts[0] == "" || parts[2] == "" {
		return "", "", false
	}
	return parts[0], parts[2], true
}

// take checks a report, in the order of the specification, and writes it.
func (s *Server) take(w http.ResponseWriter, r *http.Request, namespace, name string) (*report, error) {
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
	if !s.Verify.Paced(reporter) {
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
	return &in, s.write(r.Context(), namespace, name, in.TrainerStatus)
}

// write applies a report to the status of a TrainJob, which must exist.
func (s *Server) write(ctx context.Context, namespace, name string, status *trainerv1alpha1.TrainerStatus) error {
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

// bearer takes the one credential out of the Authorization header. The scheme is of any case, and blanks are ignored.
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

// errForbidden is the answer to whoever may not report. It never says why.
var errForbidden = failure(http.StatusForbidden, metav1.StatusReasonForbidden, "Forbidden")

// failure is an error that is answered as it is.
func failure(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// refuse answers with an error. What is none of the caller's business is an internal error, and logged.
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
