package template

import (
	"fmt"
	"strings"
)

// maxProblems bounds how much a hopeless template can make the parser say.
const maxProblems = 20

// A Problem is one place of a template that cannot be used, and why.
type Problem struct {
	Line int
	Text string
}

// An Error lists everything that is wrong with a template, in order of its lines.
type Error struct {
	Path     string
	Problems []Problem
	// More counts the problems beyond the listed ones.
	More int
}

// Error has one line for each problem, in the form that editors can jump to.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d: %s", e.Path, p.Line, p.Text)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more", e.Path, e.More)
	}
	return b.String()
}
