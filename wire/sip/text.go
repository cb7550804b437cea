package sip

import "strings"

// EqualFold compares ASCII text without case, as RFC 3261 section 7.3.1 compares
// header names, parameter names and tokens. lower must be lower case.
func EqualFold(text []byte, lower string) bool {
	if string(text) == lower { // the usual case
		return true
	}
	if len(text) != len(lower) {
		return false
	}
	for i, c := range text {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// ParseNumber parses a number of at most 18 digits (1*DIGIT, RFC 3261 section
// 25.1).
func ParseNumber(text []byte) (uint64, bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	var n uint64
	for _, c := range text {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// isToken reports whether text is a token (RFC 3261 section 25.1).
func isToken(text []byte) bool {
	for _, c := range text {
		if !isTokenByte[c] {
			return false
		}
	}
	return len(text) > 0
}

// isTokenByte is the set of bytes allowed in a token. It is never written to.
var isTokenByte = func() (is [256]bool) {
	for c := range is {
		b := byte(c)
		is[c] = b|0x20 >= 'a' && b|0x20 <= 'z' || isDigit(b) || strings.IndexByte("-.!%*_+`'~", b) >= 0
	}
	return is
}()

func trim(text []byte) []byte {
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

func skipSpaces(text []byte, at int) int {
	for at < len(text) && isSpace(text[at]) {
		at++
	}
	return at
}

// skipQuoted returns the index after the quoted-string (RFC 3261 section 25.1)
// that begins at at. If the string does not close, the index is past the end of
// the text.
func skipQuoted(text []byte, at int) int {
	for at++; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(text) + 1
}
