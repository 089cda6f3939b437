package topology

import (
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
)

// accountKey names what usage is counted for: a hostname for all flavors together, or a leaf of one flavor.
type accountKey struct {
	flavor string // "" is every flavor
	leaf   string // hostname, or joined path
}

// account is the usage of the placed pods of one leaf. Its amounts are in Space.used. It outlives the leaf while there
// is usage, so that this counts again when nodes, levels or flavors are back. spec: 20 §4.5.
type account struct {
	key    accountKey
	leaves []member // the leaves that it counts for, of any tree
	live   bool
}

// keyOf returns the key of a leaf. path is the values of levels, or of the hostname alone.
func (s *Space) keyOf(flavor string, levels, values []string) accountKey {
	if levels[len(levels)-1] == Hostname {
		host := values[len(values)-1]
		if s.gates.Overlapping {
			return accountKey{leaf: host}
		}
		return accountKey{flavor, host}
	}
	return accountKey{flavor, strings.Join(values, "/")}
}

// account returns the number of an account, a new one at its first use.
func (s *Space) account(key accountKey) int32 {
	if slot, ok := s.accountOf[key]; ok {
		return slot
	}
	slot := s.accounts.Put(account{key: key, live: true})
	s.accountOf[key] = slot
	s.used = extended(s.used, slot, s.stride)
	s.assumed = extended(s.assumed, slot, s.stride)
	return slot
}

// reserveAccounts makes room for more accounts.
func (s *Space) reserveAccounts(more int) {
	if len(s.accountOf) == 0 {
		s.accountOf = make(map[accountKey]int32, more)
	}
	s.accounts.All = slices.Grow(s.accounts.All, more)
	s.used, s.assumed = slices.Grow(s.used, more*s.stride), slices.Grow(s.assumed, more*s.stride)
}

func (s *Space) link(slot int32, t *tree, leaf int32) {
	a := &s.accounts.All[slot]
	a.leaves = append(a.leaves, member{t, leaf})
}

func (s *Space) unlink(slot int32, t *tree, leaf int32) {
	a := &s.accounts.All[slot]
	a.leaves = slices.DeleteFunc(a.leaves, func(m member) bool { return m.tree == t && m.leaf == leaf })
	if len(a.leaves) == 0 {
		s.idle = append(s.idle, slot)
	}
}

// dropIdle drops accounts without leaves and usage. It runs in edits alone: in a speculation, released usage returns.
func (s *Space) dropIdle() {
	for _, slot := range s.idle {
		a := &s.accounts.All[slot]
		if !a.live || len(a.leaves) > 0 || slices.ContainsFunc(row(s.used, slot, s.stride), func(n resource.Amount) bool { return n != 0 }) {
			continue
		}
		delete(s.accountOf, a.key)
		if len(s.former) > 0 {
			s.forgetHost(a.key.leaf)
		}
		s.accounts.Drop(slot)
	}
	s.idle = s.idle[:0]
}

func (s *Space) forgetHost(host string) {
	//berth:unordered deletes every entry of the host
	for name, h := range s.former {
		if h == host {
			delete(s.former, name)
		}
	}
}

// changed notes a change of the usage of an account in the journals of its trees.
func (s *Space) changed(slot int32, usage bool) {
	for _, m := range s.accounts.All[slot].leaves {
		m.tree.note(entryOf(m.tree.lowest(), m.leaf, usage))
	}
}
