package reconcile

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// IsRefused reports whether the API server refused a write because of the content of the object: it is invalid, too large or
// unreadable, or an admission webhook or policy denied it. The same write is refused again. Errors that may pass with
// time are no refusals: a conflict, an exhausted quota, a webhook without an answer, a missing permission, and what
// ends with the pods of an earlier run.
func IsRefused(err error) bool {
	switch {
	case err == nil:
		return false
	case apierrors.IsInvalid(err):
		return !slices.ContainsFunc(whilePodsExist, func(part string) bool { return strings.Contains(err.Error(), part) })
	case apierrors.IsForbidden(err):
		return isDenied(err)
	}
	return apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// whilePodsExist are parts of the messages of 422 answers that pass once the pods of an earlier run are gone: the template of a Job cannot
// change before, and their volume claims exist until then.
var whilePodsExist = []string{"field is immutable", "is being deleted"}

// isDenied reports whether a webhook or a policy denied a request. The only sign of it is the beginning of the message: Kubernetes' own
// admission plugins, quota among them, and RBAC report that an object "is forbidden".
func isDenied(err error) bool {
	var status apierrors.APIStatus // no error itself, so AsType does not find it
	if !errors.As(err, &status) {
		return false
	}
	message := status.Status().Message
	return strings.HasPrefix(message, "admission webhook ") || strings.Contains(message, "ValidatingAdmissionPolicy ")
}

// Patience is how long a write must be refused to count as final, unless a test sets another duration. It outlasts webhooks
// that see an older state than the API server.
const Patience = 15 * time.Second

// forgetRefusal is how long after its last refusal an object is remembered. Retries are at most 30 s apart.
const forgetRefusal = 5 * time.Minute

// Refusals tells final refusals from others: a write is refused for good when all its attempts for some time were refused.
// A new process starts to count anew.
type Refusals struct {
	patience time.Duration
	now      func() time.Time

	mu   sync.Mutex
	seen map[types.UID]refusal
}

// refusal holds the times of the first and the last refusal of the writes about an object.
type refusal struct{ since, last time.Time }

// NewRefusals returns Refusals that become final after patience; 0 is Patience.
func NewRefusals(patience time.Duration, now func() time.Time) *Refusals {
	if patience == 0 {
		patience = Patience
	}
	return &Refusals{patience: patience, now: now, seen: map[types.UID]refusal{}}
}

// IsFinal notes the result of a write for an object, nil for success, and reports whether it is refused for good.
func (r *Refusals) IsFinal(of types.UID, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !IsRefused(err) {
		delete(r.seen, of)
		return false
	}
	now := r.now()
	for uid, s := range r.seen {
		if now.Sub(s.last) > forgetRefusal {
			delete(r.seen, uid)
		}
	}
	s, ok := r.seen[of]
	if !ok {
		s.since = now
	}
	s.last = now
	r.seen[of] = s
	return now.Sub(s.since) >= r.patience
}
