package terminal

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Key is a key: its character, or one of the names below.
type Key string

// Keys without a character.
const (
	Up        Key = "up"
	Down      Key = "down"
	Left      Key = "left"
	Right     Key = "right"
	PageUp    Key = "page up"
	PageDown  Key = "page down"
	Home      Key = "home"
	End       Key = "end"
	Enter     Key = "enter"
	Esc       Key = "esc"
	Backspace Key = "backspace"
	CtrlC     Key = "ctrl+c"
	CtrlL     Key = "ctrl+l"
	CtrlU     Key = "ctrl+u"
	CtrlZ     Key = "ctrl+z"
)

var controls = map[byte]Key{
	'\r': Enter, '\n': Enter, 0x7f: Backspace, 0x08: Backspace, 0x03: CtrlC, 0x0c: CtrlL, 0x15: CtrlU, 0x1a: CtrlZ,
}

var finals = map[byte]Key{'A': Up, 'B': Down, 'C': Right, 'D': Left, 'H': Home, 'F': End, 'M': Enter}

var numbered = map[string]Key{"1": Home, "7": Home, "4": End, "8": End, "5": PageUp, "6": PageDown}

// Decoder makes keys of the bytes that a terminal sends. Its zero value is ready.
type Decoder struct{ rest []byte }

// Decode returns the keys in the data, and keeps an incomplete key for the next call.
func (d *Decoder) Decode(data []byte) (keys []Key) {
	d.rest = append(d.rest, data...)
	for len(d.rest) > 0 {
		key, n := decode(d.rest)
		if n == 0 {
			return keys
		}
		d.rest = d.rest[n:]
		if key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// Incomplete reports whether there is the beginning of a key. Only time tells the key Esc from that of another key.
func (d *Decoder) Incomplete() bool { return len(d.rest) > 0 }

// Flush takes an incomplete key for what there is of it, when no more has come.
func (d *Decoder) Flush() (keys []Key) {
	if len(d.rest) > 0 && d.rest[0] == 0x1b {
		keys = []Key{Esc}
	}
	d.rest = nil
	return keys
}

// maxSequence bounds control sequences: a longer one is no key.
const maxSequence = 32

// decode returns the first key, "" for bytes without a meaning, and its length: 0 if it is incomplete.
func decode(b []byte) (Key, int) {
	switch {
	case b[0] == 0x1b:
		return decodeEscape(b)
	case b[0] < 0x20 || b[0] == 0x7f:
		return controls[b[0]], 1
	case !utf8.FullRune(b):
		return "", 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return "", n
	}
	return Key(b[:n]), n
}

func decodeEscape(b []byte) (Key, int) {
	switch {
	case len(b) == 1:
		return "", 0
	case b[1] == 'O' && len(b) == 2:
		return "", 0
	case b[1] == 'O':
		return finals[b[2]], 3
	case b[1] != '[':
		return Esc, 1
	}
	end := bytes.IndexFunc(b[2:], func(r rune) bool { return r >= 0x40 && r <= 0x7e })
	switch {
	case end < 0 && len(b) < maxSequence:
		return "", 0
	case end < 0:
		return "", len(b)
	}
	parameters, final := b[2:2+end], b[2+end]
	if final == '~' {
		first, _, _ := bytes.Cut(parameters, []byte(";"))
		return numbered[string(first)], end + 3
	}
	return finals[final], end + 3
}
