package options

import (
	"strings"

	"github.com/berth-project/berth/internal/options/strict"
)

// Error is an invalid configuration file or flag. It holds all problems, at least one.
type Error struct {
	Problems []Problem
}

// Problem is one mistake.
type Problem = strict.Problem

// Error returns one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// ExitCode is the exit code of a command that fails with this error: 2, bad usage or configuration.
func (e *Error) ExitCode() int { return 2 }

func fail(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &Error{Problems: problems}
}
