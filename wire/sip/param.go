package sip

import "bytes"

// CutElement splits the first element of a comma-separated list from the rest
// (RFC 3261 section 7.3.1). It ignores commas in quotes and in angle brackets.
func CutElement(list []byte) (first, rest []byte) {
	if bytes.IndexByte(list, ',') < 0 {
		return trim(list), nil
	}
	angled := false
	for i := 0; i < len(list); i++ {
		switch list[i] {
		case '"':
			i = skipQuoted(list, i) - 1
		case '<':
			angled = true
		case '>':
			angled = false
		case ',':
			if !angled {
				return trim(list[:i]), trim(list[i+1:])
			}
		}
	}
	return trim(list), nil
}

// hasToken reports whether a comma-separated list has the token. lower must be
// lower case.
func hasToken(list []byte, lower string) bool {
	for len(list) > 0 {
		var element []byte
		if element, list = CutElement(list); EqualFold(element, lower) {
			return true
		}
	}
	return false
}

// Unquote returns the text of a quoted-string (RFC 3261 section 25.1) with its
// escapes unchanged. It returns an unquoted value unchanged.
func Unquote(value []byte) []byte {
	if len(value) > 0 && value[0] == '"' {
		if end := skipQuoted(value, 0); end <= len(value) {
			return value[1 : end-1]
		}
	}
	return value
}

// CutParam splits the first parameter from the rest (generic-param, RFC 3261
// section 25.1). params begins with the semicolon before the parameter; rest
// begins with the next semicolon or is empty. value includes its quotes. It is
// never nil: without a value it is empty and points to the end of the name.
//
//	for rest := params; len(rest) > 0; {
//		name, value, rest = CutParam(rest)
func CutParam(params []byte) (name, value, rest []byte) {
	start := skipSpaces(params, 1)
	at := start
	for at < len(params) && !endsName[params[at]] {
		at++
	}
	name, value = params[start:at], params[at:at]
	at = skipSpaces(params, at)
	if at < len(params) && params[at] == '=' {
		start = skipSpaces(params, at+1)
		at = start
		if at < len(params) && params[at] == '"' {
			at = min(skipQuoted(params, at), len(params))
		}
		for at < len(params) && (!endsName[params[at]] || params[at] == '=') {
			at++
		}
		value = params[start:at]
	}
	for at < len(params) && params[at] != ';' { // skip spaces; the grammar allows nothing else here
		at++
	}
	return name, value, params[at:]
}

// endsName is the set of bytes that end a parameter's name. It is never written to.
var endsName = [256]bool{';': true, '=': true, ' ': true, '\t': true}

// Param returns a parameter of a header's value, such as Via's branch or To's
// tag. It skips parameters inside angle brackets, which belong to the address
// (RFC 3261 section 20). ok reports whether the parameter is there, even without
// a value. lower, its name, must be lower case.
func Param(value []byte, lower string) (param []byte, ok bool) {
	for rest := paramsOf(value); len(rest) > 0; {
		var name []byte
		if name, param, rest = CutParam(rest); EqualFold(name, lower) {
			return param, true
		}
	}
	return nil, false
}

// WithoutParams returns a header's value up to its parameters.
func WithoutParams(value []byte) []byte {
	return trim(value[:len(value)-len(paramsOf(value))])
}

// paramsOf returns a header's value from the first semicolon outside quotes and
// angle brackets, or nothing if there is none.
func paramsOf(value []byte) []byte {
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case ';':
			return value[i:]
		case '"':
			i = skipQuoted(value, i) - 1
		case '<':
			end := bytes.IndexByte(value[i:], '>')
			if end < 0 {
				return nil
			}
			i += end
		}
	}
	return nil
}
