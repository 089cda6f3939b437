package webhook

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// grantsFor is how long an answer of RBAC is believed, and maxGrants how many are kept (spec: 50 §4.13.2).
const (
	grantsFor = time.Minute
	maxGrants = 10_000
)

// grants remembers the answers of RBAC for a while.
type grants struct {
	mu    sync.Mutex
	known map[string]grant
}

type grant struct {
	allowed bool
	until   time.Time
}

// grantKey stands for a user, with all that RBAC looks at, and a manager.
func grantKey(user *authenticationv1.UserInfo, manager string) string {
	data, err := json.Marshal([]any{user, manager})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data) // a name may have megabytes before the schema is checked
	return string(sum[:])
}

func (g *grants) get(key string, now time.Time) (allowed, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.known[key]
	if !ok || now.After(known.until) || key == "" {
		return false, false
	}
	return known.allowed, true
}

func (g *grants) put(key string, allowed bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil || len(g.known) >= maxGrants {
		g.known = map[string]grant{}
	}
	g.known[key] = grant{allowed, now.Add(grantsFor)}
}
