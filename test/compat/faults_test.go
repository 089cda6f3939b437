package compat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

// fault is the fate of a write.
type fault int

const (
	none fault = iota
	conflict
	serverError
	lost   // it is made, and its client gets no answer
	killed // likewise, and nothing that the manager does reaches the API server any more
)

func (f fault) String() string {
	return [...]string{"none", "a conflict", "a server error", "a lost response", "a kill"}[f]
}

// planned is the number of a world's write, from 1, and its fault.
type planned struct {
	at    int
	fault fault
}

// saboteur is a transport that interrupts writes. It counts the writes of each world separately, by the names in their paths, so that one
// manager can be interrupted in many worlds at the same time. Events and leases do not count.
type saboteur struct {
	mu     sync.Mutex
	plans  map[string]planned // by world
	counts map[string]int
	writes map[string][]write
	told   map[string]string // which write it was
	dead   bool

	underway sync.WaitGroup // requests that the API server has not answered, but for planned ones
}

// write is a request that changes something. It is refused if it was made from an object that has changed since.
type write struct {
	kind, manager string
	refused       bool
}

func newSaboteur() *saboteur {
	return &saboteur{plans: map[string]planned{}, counts: map[string]int{}, writes: map[string][]write{}, told: map[string]string{}}
}

func (s *saboteur) plan(world string, p planned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans[world], s.counts[world], s.writes[world], s.told[world] = p, 0, nil, ""
}

// result returns the kinds of the writes of a world, and the interrupted write.
func (s *saboteur) result(world string) (kinds []string, interrupted string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes[world] {
		kinds = append(kinds, w.kind)
	}
	return kinds, s.told[world]
}

// stored returns the writes of a world that were not refused.
func (s *saboteur) stored(world string) []write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.writes[world]), func(w write) bool { return w.refused })
}

// kill ends every effect of the manager. Writes that are on their way arrive before: a manager that begins at once, and not when a lease has ended,
// would decide without them.
func (s *saboteur) kill() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	s.underway.Wait()
}

// isDead reports whether a kill took place.
func (s *saboteur) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

var errDead = errors.New("the manager is dead")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (s *saboteur) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		switch s.next(r) {
		case conflict:
			return answered(r, http.StatusConflict, metav1.StatusReasonConflict), nil
		case serverError:
			return answered(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
		case lost, killed:
			response, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			_ = response.Body.Close()
			return nil, errors.New("the connection broke")
		default:
			if !s.begin() {
				return nil, errDead
			}
			defer s.underway.Done()
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusConflict {
				s.miss(r)
			}
			return response, err
		}
	})
}

// begin notes that a request is underway, unless the manager is dead.
func (s *saboteur) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dead {
		s.underway.Add(1)
	}
	return !s.dead
}

// next counts a request, and returns its fault.
func (s *saboteur) next(r *http.Request) fault {
	world := worldOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if world == "" || s.dead {
		return none
	}
	s.counts[world]++
	s.writes[world] = append(s.writes[world], writeOf(r))
	p, known := s.plans[world]
	if !known {
		p = s.plans["*"]
		s.counts["*"]++
	}
	if (known && s.counts[world] != p.at) || (!known && s.counts["*"] != p.at) {
		return none
	}
	s.told[world] = r.Method + " " + r.URL.Path
	s.dead = p.fault == killed
	return p.fault
}

// miss notes that the API server refused a write as a conflict.
func (s *saboteur) miss(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes[worldOf(r)]
	if i := slices.Index(writes, writeOf(r)); i >= 0 {
		writes[i].refused = true
	}
}

func writeOf(r *http.Request) write {
	return write{kind: embeddedtest.KindOfWrite(r), manager: r.URL.Query().Get("fieldManager")}
}

// worldOf returns the world that a request writes to, "" if it is no write.
func worldOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if r.Method == http.MethodGet || slices.Contains(parts, "events") || slices.Contains(parts, "leases") {
		return ""
	}
	for i, p := range parts {
		name, _, _ := strings.Cut(p, "-")
		if i > 1 && len(name) > 1 && name[0] == 'w' && strings.Trim(name[1:], "0123456789") == "" {
			return name
		}
	}
	return ""
}

// answered is the answer of an API server that refuses.
func answered(r *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "interrupted by the test",
	})
	if err != nil {
		panic(fmt.Sprintf("a status always marshals: %v", err))
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}
}
