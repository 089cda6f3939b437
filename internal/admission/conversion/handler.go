package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// Path is where the webhook listens.
const Path = "/convert"

// Handler answers the ConversionReviews of the API server.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	both := texts.Get().(*review)
	defer both.free()
	body := &both.question
	body.Reset()
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, err.Error(), status)
		return
	}
	both.answer.Reset()
	both.answer.Grow(body.Len() + envelope)
	text, ok := fast(both.answer.AvailableBuffer(), body.Bytes())
	if !ok {
		var err error
		if text, err = decode(body.Bytes()); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(text); err != nil {
		panic(http.ErrAbortHandler) // half of it is out: the caller has to notice
	}
}

// envelope is an upper bound for an answer without its objects, in bytes.
const envelope = 256

// maxBody is the largest review, in bytes. An API server stores objects of at most 1.5 MiB, and sends them one by one.
const maxBody = 16 << 20

// review is the memory of one review.
type review struct{ question, answer bytes.Buffer }

// texts reuses the memory of reviews: every write causes one.
var texts = sync.Pool{New: func() any { return new(review) }}

// maxPooled is the largest buffer that is kept for the next review, in bytes. Few reviews are larger.
const maxPooled = 256 << 10

// free returns the memory of a review to the pool, unless it is large.
func (r *review) free() {
	if max(r.question.Cap(), r.answer.Cap()) <= maxPooled {
		texts.Put(r)
	}
}

// decode answers any ConversionReview.
func decode(body []byte) ([]byte, error) {
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		return nil, errors.New("want a ConversionReview of apiextensions.k8s.io/v1 with a request")
	}
	review.Response = answer(review.Request)
	review.Request = nil
	return json.Marshal(&review)
}

// answer converts every object of a request, or none.
func answer(request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{UID: request.UID, ConvertedObjects: make([]runtime.RawExtension, len(request.Objects))}
	to, err := schema.ParseGroupVersion(request.DesiredAPIVersion)
	for i := 0; i < len(request.Objects) && err == nil; i++ {
		response.ConvertedObjects[i].Raw, err = convertRaw(request.Objects[i].Raw, to)
	}
	response.Result.Status = metav1.StatusSuccess
	if err != nil {
		response.ConvertedObjects = nil
		response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}
	}
	return response
}

func convertRaw(raw []byte, to schema.GroupVersion) ([]byte, error) {
	pieces := opaque(raw)
	var o object
	if err := kjson.UnmarshalCaseSensitivePreserveInts(blank(raw, pieces), &o); err != nil {
		return nil, err
	}
	if err := Convert(o, to); err != nil {
		metadata := at(o, "metadata")
		return nil, fmt.Errorf("%v %v/%v: %w", o["kind"], metadata["namespace"], metadata["name"], err)
	}
	putBack(o, raw, pieces)
	return json.Marshal(o)
}

// recode converts a value into another one of the same JSON.
func recode(from, into any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}
