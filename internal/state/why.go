package state

import (
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
)

// Notices returns the reasons of pending workloads that are known without a cycle, and leaves everything else for a later Step:
// for a manager whose admission is paused.
func (s *State) Notices() []cycle.Decision {
	if len(s.notices) == 0 {
		return nil
	}
	out := s.drainNotices()
	s.decided(out)
	return out
}

// waits reports whether the decision was to wait.
func (s *said) waits() bool {
	return s != nil && s.reason != "" && (s.verdict == trace.Waits || s.verdict == trace.Preempts)
}
