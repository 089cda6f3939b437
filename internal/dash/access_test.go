package dash

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/options"
)

// reviewer is access to a real API server that counts reviews of tokens.
type reviewer struct {
	*access
	*testing.T
	asked int
	down  bool
	time  time.Time
}

func newReviewer(t *testing.T, change func(*options.Dashboard)) *reviewer {
	t.Helper()
	r := &reviewer{T: t, time: time.Now()}
	cfg := rest.CopyConfig(embeddedtest.Config(t))
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return embeddedtest.RoundTrip(func(request *http.Request) (*http.Response, error) {
			if strings.HasSuffix(request.URL.Path, "/tokenreviews") {
				r.asked++
			}
			if r.down {
				return nil, errors.New("nobody answers")
			}
			return next.RoundTrip(request)
		})
	})
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o := options.DefaultDashboard()
	change(&o)
	if r.access, err = newAccess(cfg, cfg, httpClient, &o); err != nil {
		t.Fatal(err)
	}
	r.now = func() time.Time { return r.time }
	return r
}

// knows asks about a token, after some time.
func (r *reviewer) knows(token string, after, age time.Duration) error {
	r.Helper()
	r.time = r.time.Add(after)
	_, err := r.know(r.Context(), token, age)
	return err
}

func (r *reviewer) token(audiences ...string) string {
	r.Helper()
	c := embeddedtest.Client(r.T, "../../config/crd")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "reviewed-"}}
	if err := c.Create(r.Context(), account); err != nil {
		r.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: new(int64(3600))}}
	if err := c.SubResource("token").Create(r.Context(), account, request); err != nil {
		r.Fatal(err)
	}
	return request.Status.Token
}

// TestTokensAreKept: reviews of valid tokens are cached for 60 seconds and reviews of invalid ones for 5, unless a newer one is
// requested, and failures are not cached. spec: 70 §4.10.
func TestTokensAreKept(t *testing.T) {
	r := newReviewer(t, func(*options.Dashboard) {})
	good := r.token()
	for i, step := range []struct {
		token      string
		after, age time.Duration
		down       bool
		asked      int
		err        bool
	}{
		{good, 0, 0, false, 1, false},
		{good, 59 * time.Second, 0, false, 1, false},
		{good, 2 * time.Second, 0, false, 2, false},
		{good, 20 * time.Second, 15 * time.Second, false, 3, false},
		{good, 10 * time.Second, 15 * time.Second, false, 3, false},
		{good, 2 * time.Minute, 0, true, 4, true},
		{good, 0, 0, false, 5, false},
		{"bad", 0, 0, false, 6, true},
		{"bad", 4 * time.Second, 0, false, 6, true},
		{"bad", 2 * time.Second, 0, false, 7, true},
	} {
		r.down = step.down
		if err := r.knows(step.token, step.after, step.age); (err != nil) != step.err || errors.Is(err, errUnauthenticated) != (step.err && !step.down) || r.asked != step.asked {
			t.Errorf("step %d: %v, asked %d times, want %d", i, err, r.asked, step.asked)
		}
	}
	for i := range tokensKept + 10 {
		if err := r.knows(fmt.Sprint("bad ", i), 0, 0); !errors.Is(err, errUnauthenticated) {
			t.Fatal(err)
		}
	}
	if r.tokens.Len() != 1024 {
		t.Errorf("%d tokens are kept", r.tokens.Len())
	}
}

// TestAudiences: if audiences are configured, a token of another one is unknown.
func TestAudiences(t *testing.T) {
	r := newReviewer(t, func(o *options.Dashboard) { o.Audiences = []string{"boards", "screens"} })
	if err := r.knows(r.token("screens"), 0, 0); err != nil {
		t.Error(err)
	}
	for _, token := range []string{r.token(), r.token("another")} {
		if err := r.knows(token, 0, 0); !errors.Is(err, errUnauthenticated) {
			t.Errorf("a token of another audience: %v", err)
		}
	}
}
