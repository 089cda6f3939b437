package options

import (
	"strings"

	"github.com/berth-project/berth/internal/options/strict"
)

// Error is a mistake in what the user wrote: a configuration file or a flag.
// It holds every problem found, at least one.
type Error struct {
	Problems []Problem
}

// Problem is one mistake.
type Problem = strict.Problem

// Nearest is the word of a list that a misspelt one meant, or "".
func Nearest(name string, known []string) string { return strict.Nearest(name, known) }

// Error gives each problem a line of its own.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// ExitCode is the exit code of a command that fails for this error: 2, bad
// usage or configuration.
func (e *Error) ExitCode() int { return 2 }

// fail makes the error of some problems, or nil when there are none.
func fail(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &Error{Problems: problems}
}

// failOne makes the error of a single problem.
func failOne(p Problem) error { return fail([]Problem{p}) }
