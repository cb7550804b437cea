package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"vitrine"
)

// Limits of a file of MaxFile after alias expansion. A deployment of a hundred
// components stays far below them.
const (
	maxNodes = 100_000
	maxDepth = 64
)

// parse reads one YAML document of at most factor times MaxFile. JSON is a subset
// of YAML, apart from the escapes that jsonEscapes rewrites.
func parse(file string, raw []byte, what string, factor int) (Node, error) {
	whole := func(found, want string) error {
		return &vitrine.BadInput{File: file, Found: found, Want: want}
	}
	if len(raw) > factor*MaxFile {
		return Node{}, whole(fmt.Sprintf("larger than %d MiB", factor), what+" file has at most that; is it the right file?")
	}
	if at := invalidTextOffset(raw); at >= 0 {
		return Node{}, errorAtOffset(file, raw, at, "bytes that are no text", "want UTF-8 without control characters")
	}
	if json.Valid(raw) {
		raw = jsonEscapes(raw)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && isEmpty(&document) {
		return Node{}, whole("empty", "write "+what+", in YAML or JSON")
	}
	if err != nil {
		return Node{}, syntaxError(file, raw, err)
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		return Node{}, &vitrine.BadInput{File: file, Line: second.Line, Column: second.Column, Found: "a second document", Want: "want one document in a file"}
	case !errors.Is(err, io.EOF):
		return Node{}, syntaxError(file, raw, err)
	}
	r := resolver{file: file, most: factor * maxNodes}
	root := r.resolve(document.Content[0], 0)
	if err := join(r.errs); err != nil {
		return Node{}, err
	}
	return Node{file: file, node: root}, nil
}

// isEmpty reports whether the document has only comments.
func isEmpty(document *yaml.Node) bool {
	return len(document.Content) == 0 ||
		document.Content[0].Kind == yaml.ScalarNode && document.Content[0].ShortTag() == "!!null"
}

var jsonEscape = regexp.MustCompile(`\\(?:\\|/|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})`)

// jsonEscapes rewrites the two JSON escapes that YAML 1.1 does not have: \/ and
// surrogate pairs (RFC 8259, section 7).
func jsonEscapes(raw []byte) []byte {
	return jsonEscape.ReplaceAllFunc(raw, func(escape []byte) []byte {
		switch escape[1] {
		case '/':
			return []byte(`\x2f`)
		case '\\':
			return escape
		}
		high, _ := strconv.ParseUint(string(escape[2:6]), 16, 16) // the pattern ensures hexadecimal digits
		low, _ := strconv.ParseUint(string(escape[8:12]), 16, 16)
		return fmt.Appendf(nil, `\U%08x`, utf16.DecodeRune(rune(high), rune(low)))
	})
}

// invalidTextOffset returns the offset of the first byte that is not UTF-8, or of the first
// control character that YAML does not allow. It returns -1 if the text is valid.
func invalidTextOffset(raw []byte) int {
	for i := 0; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size < 2 || r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0x7f {
			return i
		}
		i += size
	}
	return -1
}

// errorAtOffset returns an error at a byte offset of the file.
func errorAtOffset(file string, raw []byte, offset int, found, want string) *vitrine.BadInput {
	before := raw[:offset]
	line := bytes.Count(before, []byte{'\n'}) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return &vitrine.BadInput{File: file, Line: line, Column: column, Found: found, Want: want}
}

var (
	yamlLine      = regexp.MustCompile(`^line ([0-9]+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxError converts the parser's error and finds its position. The parser names
// at most a line, and never the first line.
func syntaxError(file string, raw []byte, err error) error {
	const want = "mend the YAML or JSON here"
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		return errorAtOffset(file, raw, max(0, bytes.Index(raw, []byte("*"+m[1]))), text, want)
	}
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // digits only
		text = text[len(m[0]):]
	}
	return &vitrine.BadInput{File: file, Line: line, Column: 1, Found: text, Want: want}
}

// A resolver replaces aliases by their values, and rejects YAML that JSON cannot
// express. The result is a tree of mappings, lists and scalars.
type resolver struct {
	file  string
	most  int // limit of nodes
	nodes int
	open  []*yaml.Node // anchored nodes around the current node
	errs  []*vitrine.BadInput
	stop  bool
}

func (r *resolver) report(at *yaml.Node, found, want string) {
	r.errs = append(r.errs, &vitrine.BadInput{File: r.file, Line: at.Line, Column: at.Column, Found: found, Want: want})
}

// fatal reports an error and ends the walk, because the same error would repeat
// many times.
func (r *resolver) fatal(at *yaml.Node, found, want string) *yaml.Node {
	if !r.stop {
		r.report(at, found, want)
	}
	r.stop = true
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: at.Line, Column: at.Column}
}

func (r *resolver) resolve(n *yaml.Node, depth int) *yaml.Node {
	if r.nodes++; r.nodes > r.most {
		return r.fatal(n, fmt.Sprintf("more than %d values once aliases are followed", r.most), "use fewer aliases")
	}
	if depth > maxDepth {
		return r.fatal(n, fmt.Sprintf("nested deeper than %d levels", maxDepth), "no part of the file needs that")
	}
	if r.stop {
		return n
	}
	if n.Kind == yaml.AliasNode {
		for _, o := range r.open {
			if o == n.Alias {
				return r.fatal(n, Word("*"+n.Value)+" stands inside what it stands for", "write the value out")
			}
		}
		return r.resolve(n.Alias, depth)
	}
	if n.Anchor != "" {
		r.open = append(r.open, n)
		defer func() { r.open = r.open[:len(r.open)-1] }()
	}
	out := *n
	out.Anchor, out.Content = "", nil
	switch n.Kind {
	case yaml.ScalarNode:
		r.scalar(&out)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			out.Content = append(out.Content, r.resolve(item, depth+1))
		}
	case yaml.MappingNode:
		r.mapping(&out, n.Content, depth)
	}
	return &out
}

func (r *resolver) mapping(out *yaml.Node, content []*yaml.Node, depth int) {
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(content); i += 2 {
		key := content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			r.report(key, "a merge key (<<)", "write the fields out, or use an alias for the whole value")
			continue
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			r.report(key, describeValue(key)+" as a name", "want text; in quotes when it looks like a number")
			continue
		}
		if first := seen[key.Value]; first != nil {
			r.report(content[i], Word(key.Value)+" again", fmt.Sprintf("it is already given on line %d", first.Line))
			continue
		}
		seen[key.Value] = content[i]
		name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key.Value, Line: content[i].Line, Column: content[i].Column}
		out.Content = append(out.Content, name, r.resolve(content[i+1], depth+1))
	}
}

var leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]+$`)

func (r *resolver) scalar(n *yaml.Node) {
	switch n.ShortTag() {
	case "!!str", "!!bool", "!!null":
	case "!!timestamp": // JSON has no timestamps; we read them as text
		n.Tag = "!!str"
	case "!!int":
		if leadingZero.MatchString(n.Value) {
			r.report(n, n.Value, "a leading zero means base 8 to some readers: drop it, or quote it if it is text")
		}
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			r.report(n, n.Value, "want a finite number")
		}
	default:
		r.report(n, "the tag "+Word(n.Tag), "write the value without a tag")
		n.Tag = "!!str"
	}
}

// decodeValue decodes the node as encoding/json would, except that numbers keep their
// YAML type.
func decodeValue(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			v, err := decodeValue(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[n.Content[i].Value] = v
		}
		return m, nil
	case yaml.SequenceNode:
		s := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := decodeValue(item)
			if err != nil {
				return nil, err
			}
			s = append(s, v)
		}
		return s, nil
	}
	if n.ShortTag() == "!!str" {
		return n.Value, nil
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	return v, nil
}
