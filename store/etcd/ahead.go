package etcd

import (
	"encoding/binary"
	"math"
)

// walkKeys is the number of keys that etcd may walk over for a page without a bound. For each page
// etcd walks over all keys of its range, so without a bound the time of a scan grows with the square
// of the number of keys.
const walkKeys = 16 << 10

// ahead guesses the end of the next page's range, so that the range has a few times as many
// keys as a page. It reads the eight octets after the common prefix of the last page's keys
// as a number, and assumes that keys are evenly spaced. A wrong guess costs further pages,
// but loses no key.
type ahead struct {
	prefix   string
	at, step uint64 // where the next page begins; the width of the last page
}

func word(s string) uint64 {
	var b [8]byte
	copy(b[:], s)
	return binary.BigEndian.Uint64(b[:])
}

// saw records the first and the last key of a page. The next page begins after the last
// key.
func (a *ahead) saw(first, last string) {
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	a.prefix, a.at = last[:n], word(last[n:])
	a.step = max(a.at-word(first[n:]), 1)
}

// end returns the end of the next page's range; ok is false if there is no guess, because
// the range would be all keys. The following page begins there, unless saw is called.
func (a *ahead) end() (end string, ok bool) {
	for a.step > (math.MaxUint64-a.at)/2 {
		if a.prefix == "" {
			return "", false
		}
		last := len(a.prefix) - 1
		a.at = uint64(a.prefix[last])<<56 | a.at>>8
		a.step = max(a.step>>8, 1)
		a.prefix = a.prefix[:last]
	}
	a.at += 2 * a.step
	return a.prefix + string(binary.BigEndian.AppendUint64(nil, a.at)), true
}

// bound returns the end of the next page's range, within [low, high).
func (a *ahead) bound(low, high string) string {
	if end, ok := a.end(); ok && low < end && end < high {
		return end
	}
	return high
}

// few records that the range had few keys, so that the next guess is larger.
func (a *ahead) few() {
	if a.step > math.MaxUint64/4 {
		a.step = math.MaxUint64
		return
	}
	a.step *= 4
}
