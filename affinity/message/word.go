package message

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds on the names of messages.
const (
	maxWords = 1 << 14 // names
	maxWord  = 256     // bytes of a name
)

// words interns the names of messages and their causes.
type words struct {
	texts   map[string]string // by the text in the message
	numbers map[uint64]string // by protocol and codes
	scratch []byte
}

func (w *words) init() { w.texts, w.numbers = map[string]string{}, map[uint64]string{} }

// intern returns the string of a text, without the control characters that a sender may have put
// there for the reader's terminal. Beyond the bounds it returns (other).
func (w *words) intern(text []byte) string {
	if word, ok := w.texts[string(text)]; ok {
		return word
	}
	if len(w.texts) >= maxWords || len(text) > maxWord {
		return "(other)"
	}
	raw := string(text)
	word := strings.Map(printable, raw)
	w.texts[raw] = word
	return word
}

// printable returns ? for characters that cannot be printed, and for bytes that are not UTF-8.
func printable(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// number returns the word of a code. It calls create for a code that is not known yet.
func (w *words) number(p Protocol, code uint64, create func() string) string {
	key := uint64(p)<<56 | code
	if word, ok := w.numbers[key]; ok {
		return word
	}
	word := create()
	if len(w.numbers) < maxWords {
		w.numbers[key] = word
	}
	return word
}

// capitals turns a lower-case name with hyphens into the spelling of its specification.
func capitals(name string) string {
	b := []byte(name)
	start := 0
	for i := 0; i <= len(b); i++ {
		if i < len(b) && b[i] != '-' {
			continue
		}
		switch word := string(b[start:i]); word {
		case "ue", "nas", "s1", "pdn", "mme", "enb", "guti", "esm", "emm", "eps", "pgw", "sgw", "cs", "isr", "pfcp", "ran":
			for j := start; j < i; j++ {
				b[j] -= 'a' - 'A'
			}
		default:
			if len(word) > 0 && word[0] >= 'a' && word[0] <= 'z' {
				b[start] -= 'a' - 'A'
			}
		}
		if i < len(b) {
			b[i] = ' '
		}
		start = i + 1
	}
	return string(b)
}
