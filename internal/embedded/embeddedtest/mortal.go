package embeddedtest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

var errKilled = errors.New("the manager is dead")

// Mortal kills a manager at one of its writes, not counting events: that write is made without an answer, and later ones fail.
type Mortal struct {
	Dies    int // number of the fatal write; 0: never
	mu      sync.Mutex
	writes  []string // the kind of each
	dead    bool
	revived sync.Once
}

// Wrap is for rest.Config.Wrap.
func (m *Mortal) Wrap(next http.RoundTripper) http.RoundTripper {
	return RoundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return next.RoundTrip(r)
		}
		last, dead := m.record(r)
		if dead {
			return nil, errKilled
		}
		response, err := next.RoundTrip(r)
		if last && err == nil {
			_ = response.Body.Close()
			return nil, errKilled
		}
		return response, err
	})
}

// record counts a write, and reports whether it is the last one, or the manager is dead already.
func (m *Mortal) record(r *http.Request) (last, dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead || strings.Contains(r.URL.Path, "/events") {
		return false, m.dead
	}
	m.writes = append(m.writes, KindOfWrite(r))
	m.dead = len(m.writes) == m.Dies
	return m.dead, false
}

// KindOfWrite returns the method, the resource and the subresource of a write, such as "PATCH workloads/status".
func KindOfWrite(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return r.Method
	}
	kind := r.Method + " " + parts[0]
	if len(parts) > 2 {
		kind += "/" + parts[2]
	}
	return kind
}

// made returns the kinds of the writes until now.
func (m *Mortal) made() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.writes)
}

// isDead reports whether the manager was killed.
func (m *Mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// Revive calls start on its first call after the manager was killed.
func (m *Mortal) Revive(start func()) {
	if m.isDead() {
		m.revived.Do(start)
	}
}

// AtEveryWrite runs live once undisturbed, and then as parallel tests with a manager that is killed at one of its writes: at one of each
// kind (method, resource and subresource), which the seed draws, and with -long at each. Each run needs a namespace, and a manager confined
// to it (Only). An undisturbed life of fewer writes than least fails, because it did not do its work.
func AtEveryWrite(t *testing.T, least int, live func(*testing.T, *Mortal)) {
	t.Helper()
	whole := &Mortal{}
	if !t.Run("undisturbed", func(t *testing.T) { live(t, whole) }) {
		return
	}
	writes := whole.made()
	if len(writes) < least {
		t.Fatalf("only %d writes in a whole life: the test lost its way", len(writes))
	}
	for _, at := range SampleWrites(t, writes) {
		t.Run(fmt.Sprintf("killed at write %d, %s", at, writes[at-1]), func(t *testing.T) {
			t.Parallel()
			live(t, &Mortal{Dies: at})
		})
	}
}

// SampleWrites returns the numbers, from 1, of the writes to interrupt in a life whose writes have the given kinds: all with -long,
// otherwise one of each kind, drawn from Random.
func SampleWrites(t *testing.T, kinds []string) []int {
	t.Helper()
	random := Random(t)
	seen, drawn := map[string]int{}, map[string]int{}
	var all, sample []int
	for i, kind := range kinds {
		all = append(all, i+1)
		if seen[kind]++; random.IntN(seen[kind]) == 0 { // each of a kind is as likely
			drawn[kind] = i + 1
		}
	}
	if *long {
		return all
	}
	for _, at := range all {
		if drawn[kinds[at-1]] == at {
			sample = append(sample, at)
		}
	}
	return sample
}
