package options

import (
	"fmt"
	"strings"
	"unicode"
)

// Error is a mistake in what the user wrote: a configuration file or a flag.
// It holds every problem found, at least one.
type Error struct {
	Problems []Problem
}

// Problem is one mistake.
type Problem struct {
	// Source is the file, or the flag, that holds the mistake.
	Source string
	// Line in the file, from 1; 0 when there is none to name.
	Line int
	// Field is the full path of the field, such as
	// integrations.frameworks[1]; empty when it is the whole file.
	Field string
	// Detail says what is wrong and what to do.
	Detail string
}

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

// String writes a problem on one line: file:line: field: detail.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Source)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Field != "" {
		fmt.Fprintf(&b, ": %s", p.Field)
	}
	fmt.Fprintf(&b, ": %s", p.Detail)
	return strings.Map(printable, b.String())
}

// printable keeps what is quoted from the file from breaking a line, or a
// terminal.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

// fail makes the error of some problems, or nil when there are none.
func fail(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &Error{Problems: problems}
}

// failOne makes the error of a single problem.
func failOne(p Problem) error { return fail([]Problem{p}) }
