package resp

// A Command is the command of a request.
type Command struct {
	Name string // in lower case; empty for a command that is not known here

	spec
}

// maxName is the length of the longest name.
const maxName = 24

// Lookup returns the command of a name in any case.
func Lookup(name []byte) (Command, bool) {
	if len(name) > maxName {
		return Command{}, false
	}
	var lower [maxName]byte
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		lower[i] = c
	}
	c, ok := commands[string(lower[:len(name)])]
	return c, ok
}

// A Request tracks the arguments of one request after another.
type Request struct {
	Command Command // of the last argument

	from, to int64 // keys that an earlier argument announced
}

// Argument reports whether a value is a key. The caller passes every value that
// a Decoder of requests finds. The first argument, the command's name, sets
// Command. Argument does not find keys of inline commands.
func (r *Request) Argument(v *Value) (key bool) {
	if v.Type == Inline {
		*r = Request{}
		r.Command, _ = Lookup(v.Code())
		return false
	}
	if v.Depth != 1 {
		return false
	}
	if v.Index == 0 {
		*r = Request{}
		r.Command, _ = Lookup(v.Text)
		return false
	}
	s := r.Command.spec
	switch {
	case v.Index >= r.from && v.Index < r.to:
		return true
	case s.count > 0 && v.Index == s.count:
		if n, ok := parseSize(v.Text, maxCount); ok && n > 0 {
			r.from, r.to = v.Index+1, v.Index+1+n
		}
		return false
	case s.streams > 0 && r.to == 0 && v.Index >= s.streams && isStreams(v.Text):
		r.from = v.Index + 1
		r.to = r.from + (v.Of-r.from)/2
		return false
	case s.first == 0 || v.Index < s.first:
		return false
	}
	last := s.last
	if last < 0 {
		last += v.Of
	}
	return v.Index <= last && (v.Index-s.first)%s.step == 0
}

// isStreams reports whether an argument is the word STREAMS in any case.
func isStreams(text []byte) bool {
	const word = "streams"
	if len(text) != len(word) {
		return false
	}
	for i, c := range text {
		if c|0x20 != word[i] {
			return false
		}
	}
	return true
}
