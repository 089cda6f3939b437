package inflight

import (
	"cmp"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/transport"
)

// BoundAnswers fails answers of more than most MiB before they are decoded, with an error that names the server. Watches are not bounded.
func BoundAnswers(most int64, server string) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return boundedAnswers{cmp.Or(next, http.DefaultTransport), most, server}
	}
}

type boundedAnswers struct {
	next   http.RoundTripper
	most   int64
	server string
}

// RoundTrip bounds the body of the answer.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") == "" {
		response.Body = &boundedBody{response.Body, b.most << 20, fmt.Errorf("the answer of %s has more than %d MiB", b.server, b.most)}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
	over error
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.over
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	return n, err
}
