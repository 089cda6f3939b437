package reconcile

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UnansweredPause is the longest pause before a write without an answer is repeated. It is short because the decision gets older.
const UnansweredPause = time.Second

// Unanswered remembers a write about an object that had no clear answer. It can have succeeded, and can still succeed while the object has the
// version that it was made from. The zero value is none. The write is repeated on the newest version, as the API server has it, until it is
// known what came of it.
type Unanswered struct {
	version string // of the object that the write was made from, "" for none
	ended   bool   // it cannot succeed any more
}

// Note notes the outcome of a write on a version of the object, which is that of the write without an answer if there is one, and returns its error.
func (u *Unanswered) Note(on client.Object, err error) error {
	var status apierrors.APIStatus // no error itself, so AsType does not find it
	code := int32(0)
	if errors.As(err, &status) {
		code = status.Status().Code
	}
	refused := code/100 == 4 // nothing was written
	switch {
	case err == nil, apierrors.IsConflict(err):
	case u.version != "":
		u.ended = u.ended || refused
	case !refused:
		u.version, u.ended = on.GetResourceVersion(), code == http.StatusInternalServerError && apierrors.IsInternalError(err)
	}
	return err
}

// Newest returns where to read the object before the write: past the cache after a write without an answer.
func (u *Unanswered) Newest(cache, live client.Reader) client.Reader {
	if u.Exists() {
		return live
	}
	return cache
}

// Settled forgets the write, whose outcome is known, and returns an error.
func (u *Unanswered) Settled(err error) error {
	*u = Unanswered{}
	return err
}

// Exists reports whether there is a write whose outcome is not known.
func (u *Unanswered) Exists() bool { return u.version != "" }

// Failed reports whether such a write has not succeeded, and will not, if the newest version of the object is without its effect.
func (u *Unanswered) Failed(newest client.Object) bool {
	return u.version != "" && (u.ended || newest.GetResourceVersion() != u.version)
}
