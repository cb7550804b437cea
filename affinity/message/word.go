package message

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds on the names of messages.
const (
	maxWords = 1 << 14 // texts of a protocol, and codes of a protocol
	maxWord  = 256     // bytes of a name
)

// words interns the names of messages and their causes. Each protocol has tables of its own, so that
// the paths of a web server do not take the places of the names of SIP.
type words struct {
	texts   [protocols]map[string]string // by the text in the message
	numbers [protocols]map[uint64]string // by codes
	others  uint64                       // names and causes beyond the bounds
	scratch []byte
}

func (w *words) init() {
	for p := range protocols {
		w.texts[p], w.numbers[p] = map[string]string{}, map[uint64]string{}
	}
}

// other returns the name of all messages beyond the bounds.
func (w *words) other() string {
	w.others++
	return "(other)"
}

// intern returns the string of a text, without the control characters that a sender may have put
// there for the reader's terminal. Beyond the bounds it returns (other).
func (w *words) intern(p Protocol, text []byte) string {
	texts := w.texts[p]
	if word, ok := texts[string(text)]; ok {
		return word
	}
	if len(texts) >= maxWords || len(text) > maxWord {
		return w.other()
	}
	raw := string(text)
	word := strings.Map(printable, raw)
	texts[raw] = word
	return word
}

// printable returns ? for characters that cannot be printed, and for bytes that are not UTF-8.
func printable(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// number returns the word of a code. It calls create for a code that is not known yet. Beyond the
// bounds it returns (other).
func (w *words) number(p Protocol, code uint64, create func() string) string {
	numbers := w.numbers[p]
	if word, ok := numbers[code]; ok {
		return word
	}
	if len(numbers) >= maxWords {
		return w.other()
	}
	word := create()
	numbers[code] = word
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
