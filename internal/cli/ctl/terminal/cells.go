// Package terminal is a terminal as a page sees it: raw mode and its end, keys, and text in cells.
package terminal

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Printable keeps foreign text on one line, and away from control sequences of the terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)
}

// cellsOf is the number of cells of a printable character: two for wide ones, none for marks on the character before them.
func cellsOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Cells is the number of cells that printable text takes.
func Cells(text string) (n int) {
	for _, r := range text {
		n += cellsOf(r)
	}
	return n
}

// maxMarks is how many marks stay on one character: more of them would cover the lines above and below.
const maxMarks = 2

// plain makes text printable, without the marks on which terminals differ.
func plain(text string) string {
	marks := maxMarks // none at the beginning, where they would belong to the text before
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Variation_Selector, r):
			return -1 // makes the character before it wide in some terminals
		case cellsOf(r) > 0:
			marks = 0
		case marks == maxMarks:
			return -1
		default:
			marks++
		}
		return r
	}, Printable(text))
}

// Fit makes text printable and exactly as wide as so many cells: it is filled up with spaces, or cut with an ellipsis.
func Fit(text string, cells int) string {
	if cells <= 0 {
		return ""
	}
	text = plain(text)
	if n := Cells(text); n <= cells {
		return text + strings.Repeat(" ", cells-n)
	}
	n := 0
	for i, r := range text {
		if n+cellsOf(r) > cells-1 {
			return text[:i] + "…" + strings.Repeat(" ", cells-1-n)
		}
		n += cellsOf(r)
	}
	return text
}

// FitRight is Fit with the spaces at the left.
func FitRight(text string, cells int) string {
	text = plain(text)
	if n := Cells(text); n < cells {
		return strings.Repeat(" ", cells-n) + text
	}
	return Fit(text, cells)
}
