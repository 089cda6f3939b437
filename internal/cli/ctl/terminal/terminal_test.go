package terminal

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// TestFit: text gets exactly its cells, whatever is in it.
func TestFit(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		cells int
		want  string
	}{
		"short":                    {"ab", 4, "ab  "},
		"exact":                    {"abcd", 4, "abcd"},
		"long":                     {"abcde", 4, "abc…"},
		"one cell":                 {"abcde", 1, "…"},
		"no cell":                  {"abcde", 0, ""},
		"wide":                     {"日本", 5, "日本 "},
		"wide, cut":                {"日本語", 5, "日本…"},
		"wide, cut in its middle":  {"日本語", 4, "日… "},
		"control characters":       {"a\x1b[2Jb\x07\u009b1m", 10, "a?[2Jb??1m"},
		"lines":                    {"a\nb\tc", 5, "a b c"},
		"marks":                    {"e\u0301e\u0301e", 3, "e\u0301e\u0301e"},
		"marks first":              {"\u0301a", 2, "a "},
		"too many marks":           {"e\u0301\u0301\u0301\u0301a", 2, "e\u0301\u0301a"},
		"right to left":            {"a\u202eb", 3, "a?b"},
		"joined, in two colors":    {"❤\ufe0f\u200dx", 3, "❤?x"},
		"bytes that are no letter": {"a\xffb", 3, "a\ufffdb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Fit(tc.text, tc.cells); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	if got := FitRight("12", 4) + "|" + FitRight("12345", 4); got != "  12|123…" {
		t.Errorf("at the right: %q", got)
	}
}

func TestFitAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, cells := rapid.StringN(0, 40, -1).Draw(t, "text"), rapid.IntRange(0, 30).Draw(t, "cells")
		for _, got := range []string{Fit(text, cells), FitRight(text, cells)} {
			if Cells(got) != cells {
				t.Fatalf("%q has %d cells", got, Cells(got))
			}
			if strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q is not printable", got)
			}
		}
	})
}

// TestKeys: keys are found in what a terminal sends, however it is cut into pieces.
func TestKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		sent string
		want []Key
	}{
		"characters":                 {"aé/?", []Key{"a", "é", "/", "?"}},
		"arrows":                     {"\x1b[A\x1b[B\x1bOC\x1bOD", []Key{Up, Down, Right, Left}},
		"pages":                      {"\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~\x1bOH", []Key{PageUp, PageDown, Home, End, Home, End, Home}},
		"with shift":                 {"\x1b[1;2A\x1b[5;2~", []Key{Up, PageUp}},
		"control":                    {"\r\n\x7f\x08\x03\x1a\x0c\x15", []Key{Enter, Enter, Backspace, Backspace, CtrlC, CtrlZ, CtrlL, CtrlU}},
		"no keys":                    {"\x01\x1b[200~\x1b[99Z\x00q", []Key{"q"}},
		"bytes that are no letter":   {"\xff\xfeq", []Key{"q"}},
		"escape, and another key":    {"\x1bq", []Key{Esc, "q"}},
		"a sequence without an end":  {"\x1b[" + strings.Repeat("1", 40) + "q", []Key{"1", "1", "1", "1", "1", "1", "1", "1", "1", "1", "q"}},
		"a wide character":           {"日", []Key{"日"}},
		"an invisible character":     {"\u200bq", []Key{"q"}},
		"an escape within an escape": {"\x1b\x1b[A", []Key{Esc, Up}},
	} {
		t.Run(name, func(t *testing.T) {
			var whole, pieces Decoder
			if name != "a sequence without an end" { // where it is cut depends on the pieces
				if got := whole.Decode([]byte(tc.sent)); !slices.Equal(got, tc.want) || whole.Incomplete() {
					t.Errorf("at once: %q, want %q", got, tc.want)
				}
			}
			var got []Key
			for i := range len(tc.sent) {
				got = append(got, pieces.Decode([]byte{tc.sent[i]})...)
			}
			if !slices.Equal(got, tc.want) || pieces.Incomplete() {
				t.Errorf("byte by byte: %q, want %q", got, tc.want)
			}
		})
	}
}

// TestEsc: a single Esc is one only when no more follows.
func TestEsc(t *testing.T) {
	var d Decoder
	if keys := d.Decode([]byte("\x1b")); len(keys) > 0 || !d.Incomplete() {
		t.Errorf("%q", keys)
	}
	if keys := d.Flush(); !slices.Equal(keys, []Key{Esc}) || d.Incomplete() {
		t.Errorf("%q", keys)
	}
	if keys := d.Flush(); len(keys) > 0 {
		t.Errorf("nothing was typed: %q", keys)
	}
}
