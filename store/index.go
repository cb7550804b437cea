package store

// PrefixEnd returns the first string after all strings that begin with prefix; "" if there is none.
func PrefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return string(end[:i+1])
		}
	}
	return ""
}

// Ranges returns the parts of an index that match, each a half-open range [first, second) of keys.
// The index has one entry for each tag of a record: base, the tag's value, NUL, the record's name.
// base ends with a NUL.
func (m *Match) Ranges(base string) [][2]string {
	end := base[:len(base)-1] + "\x01"
	at, after := base+m.Value+"\x00", base+m.Value+"\x01"
	switch m.Op {
	case Equal:
		return [][2]string{{at, after}}
	case NotEqual:
		return [][2]string{{base, at}, {after, end}}
	case Greater:
		return [][2]string{{after, end}}
	case GreaterOrEqual:
		return [][2]string{{at, end}}
	case Less:
		return [][2]string{{base, at}}
	default:
		return [][2]string{{base, after}}
	}
}
