package flow

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"vitrine"
	"vitrine/document"
)

// The limits of a call-flow file. A real one has a few dozen messages.
const (
	maxFile     = 1 << 20 // bytes
	maxMessages = 2000
	maxBytes    = 1 << 30 // of one message
	maxCount    = 1 << 40
	maxName     = 40  // characters of a function's or type's name
	maxText     = 200 // characters of a message's name, a title or clauses
)

// The arrows between two functions.
const (
	waits  = "->"
	nobody = "~>"
)

// headers returns the words that begin a header line.
func headers() []string {
	return []string{"title", "type", "clause", "count", "outside", "database", "front-end"}
}

// Read reads a call-flow file.
func Read(path string) (*Transaction, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, &vitrine.BadInput{File: path, Found: "no such file", Want: "name a call-flow file"}
	case info.Size() > maxFile || !info.Mode().IsRegular():
		return nil, &vitrine.BadInput{File: path, Found: "not a regular file of at most 1 MiB", Want: "name a call-flow file: text with a message on each line"}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &vitrine.BadInput{File: path, Found: err.Error(), Want: "name a call-flow file that can be read"}
	}
	return Parse(path, text)
}

// Parse reads the text of a call-flow file. Errors are *vitrine.BadInput with path and
// line, and are reported together.
func Parse(path string, text []byte) (*Transaction, error) {
	p := parser{path: path, lines: map[string]int{}}
	p.t = &Transaction{Source: path, Text: string(text), Count: 1, Roles: map[string]Role{}}
	if !utf8.Valid(text) || len(text) > maxFile {
		p.bad(0, "not UTF-8 text of at most 1 MiB", "a call-flow file is text with a message on each line: MME -> S-GW: Create Session Request")
		return nil, p.errs.Join()
	}
	for i, line := range strings.Split(string(text), "\n") {
		p.line = i + 1
		line = withoutComment(line)
		p.column = 1 + len(line) - len(strings.TrimLeftFunc(line, unicode.IsSpace))
		if line = strings.TrimSpace(line); line != "" {
			p.read(line)
		}
		if p.errs.Len() >= 20 {
			break // further errors are likely of the same kind
		}
	}
	p.finish()
	if err := p.errs.Join(); err != nil {
		return nil, err
	}
	return p.t, nil
}

// withoutComment removes a comment. A comment starts with a # at the beginning of the line
// or after a space, so MO#1 has none.
func withoutComment(line string) string {
	after := ' '
	for i, r := range line {
		if r == '#' && unicode.IsSpace(after) {
			return line[:i]
		}
		after = r
	}
	return line
}

// A parser reads one file.
type parser struct {
	path         string
	line, column int
	t            *Transaction
	lines        map[string]int // the line of each header and of each role
	errs         document.Errors
}

func (p *parser) bad(line int, found, want string) {
	column := 0
	if line > 0 {
		column = p.column
	}
	p.errs.Add(&vitrine.BadInput{File: p.path, Line: line, Column: column, Found: found, Want: want})
}

// read reads one line, which is not empty.
func (p *parser) read(line string) {
	head, text, colon := strings.Cut(line, ":")
	head, text = strings.TrimSpace(head), strings.TrimSpace(text)
	for _, arrow := range []string{waits, nobody} {
		if from, to, found := strings.Cut(head, arrow); found {
			p.message(strings.TrimSpace(from), strings.TrimSpace(to), arrow, text)
			return
		}
	}
	if colon {
		p.header(head, text)
		return
	}
	p.bad(p.line, document.Quote(line)+" is no message", `want "FROM -> TO: NAME", such as "UE -> P-CSCF: REGISTER"; a comment begins with #`)
}

func (p *parser) message(from, to, arrow, name string) {
	m := Message{From: from, To: to, Async: arrow == nobody}
	for _, function := range []string{from, to} {
		if !isName(function) {
			p.badName("function", function)
			return
		}
	}
	if from == to {
		p.bad(p.line, from+" sends a message to itself", "want two functions: work inside a function is no message")
		return
	}
	if before, size, found := strings.Cut(name, "["); found {
		text, closed := strings.CutSuffix(size, "]")
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " B"))
		if !closed || err != nil || n < 1 || n > maxBytes {
			p.bad(p.line, document.Quote("["+size)+" is no size", `want the message's bytes at the end of the line, such as "[240 B]"`)
			return
		}
		name, m.Bytes = strings.TrimSpace(before), n
	}
	if !p.printable("the message's name", name) {
		return
	}
	m.Name = name
	if len(p.t.Messages) == maxMessages {
		p.bad(p.line, fmt.Sprintf("more than %d messages", maxMessages), "a transaction has some dozens: write one network event a file")
		return
	}
	p.t.Messages = append(p.t.Messages, m)
}

func (p *parser) header(word, text string) {
	if !slices.Contains(headers(), word) {
		p.bad(p.line, document.Word(word)+" begins no line", document.Choose(word, headers())+`; a message is "FROM -> TO: NAME"`)
		return
	}
	if role := Role(word); role == Outside || role == Database || role == FrontEnd {
		p.roles(role, text)
		return
	}
	if line, again := p.lines[word+":"]; again {
		p.bad(p.line, word+" again", fmt.Sprintf("it is already given on line %d", line))
		return
	}
	p.lines[word+":"] = p.line
	if !p.printable(word, text) {
		return
	}
	switch word {
	case "title":
		p.t.Title = text
	case "clause":
		p.t.Clauses = text
	case "type":
		if !isName(text) {
			p.badName("type", text)
			return
		}
		p.t.Type = text
	case "count":
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxCount {
			p.bad(p.line, "count is "+document.Quote(text), "want how often this happens, for example in an hour: a whole number from 1")
			return
		}
		p.t.Count = n
	}
}

// roles reads the functions of one role.
func (p *parser) roles(role Role, text string) {
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if !isName(name) {
			p.badName("function", name)
			continue
		}
		if line, again := p.lines[name]; again {
			p.bad(p.line, name+" again", fmt.Sprintf("it has its role from line %d", line))
			continue
		}
		p.lines[name] = p.line
		p.t.Roles[name] = role
	}
}

// finish checks the complete file.
func (p *parser) finish() {
	p.column = 1
	if p.errs.Len() > 0 {
		return
	}
	if len(p.t.Messages) == 0 {
		p.bad(0, "no message", `want a line for each message: "FROM -> TO: NAME"`)
		return
	}
	if !slices.ContainsFunc(p.t.Messages, func(m Message) bool { return !m.Async }) {
		p.bad(0, "every message is asynchronous", `want "->" for messages that others wait for: the transaction ends with the last of them`)
	}
	functions := p.t.Functions()
	for name := range p.t.Roles {
		if !slices.Contains(functions, name) {
			p.bad(p.lines[name], name+" takes part in no message", document.Choose(name, functions))
		}
	}
	if p.t.Type == "" {
		p.t.Type = typeOf(p.path)
		if p.t.Type == "" {
			p.bad(0, "no type", `want a line that names the network event: "type: ATTACH"`)
		}
	}
}

// typeOf derives the name of a type from a file name, or returns "".
func typeOf(path string) string {
	base := filepath.Base(path)
	name := strings.ToUpper(strings.TrimSuffix(base, filepath.Ext(base)))
	if !isName(name) {
		return ""
	}
	return name
}

func (p *parser) badName(what, name string) {
	found := document.Quote(name) + " is no name of a " + what
	if name == "" {
		found = "the name of a " + what + " is empty"
	}
	p.bad(p.line, found, fmt.Sprintf("want at most %d letters, digits and any of -_./+", maxName))
}

// printable reports whether the text can be shown on one line.
func (p *parser) printable(what, text string) bool {
	switch {
	case text == "":
		p.bad(p.line, what+" is empty", "want a few words after the colon")
	case utf8.RuneCountInString(text) > maxText:
		p.bad(p.line, what+" is "+document.Quote(text), fmt.Sprintf("want at most %d characters", maxText))
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		p.bad(p.line, what+" is "+document.Quote(text), "want characters that can be printed")
	default:
		return true
	}
	return false
}

// isName reports whether the text names a function or a type.
func isName(text string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+"
	return text != "" && len(text) <= maxName && strings.Trim(text, allowed) == ""
}
