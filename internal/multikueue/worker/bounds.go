package worker

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/transport"
)

// Bounds of the answers of a worker cluster: its administrator decides how many objects it has.
const (
	// maxAnswer is the largest answer to one request, in bytes. client-go bounds an event of a watch at 16 MiB.
	maxAnswer = 64 << 20
	pageSize  = 250
	maxKept   = 250_000
)

// boundAnswers fails answers larger than maxAnswer before they are decoded. Watches are not bounded.
func boundAnswers(next http.RoundTripper) http.RoundTripper { return boundedAnswers{next} }

type boundedAnswers struct{ next http.RoundTripper }

var _ transport.WrapperFunc = boundAnswers

// RoundTrip bounds the body of the answer.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") == "" {
		response.Body = &boundedBody{response.Body, maxAnswer}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("the worker's answer has more than %d MiB", maxAnswer>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	return n, err
}

func (s *Store) full() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects) >= maxKept
}

func (s *Store) tooMany() error {
	return fmt.Errorf("the worker has more than %d objects of kind %s with our origin: remove what does not belong there", maxKept, s.gvk.Kind)
}
