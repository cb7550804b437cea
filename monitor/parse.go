package monitor

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

var (
	errNumber = errors.New("want a decimal number of at most 64 bits")
	errStat   = errors.New("no line for the CPUs")
	errNetDev = errors.New("not a table of network interfaces")
)

// parseNumber parses a file with one decimal number.
func parseNumber(data []byte) (uint64, error) {
	v, rest, ok := number(data)
	if !ok || len(bytes.TrimSpace(rest)) > 0 {
		return 0, errNumber
	}
	return v, nil
}

// parseField returns the number in the line that begins with key: "key 123" (cgroup files) or "key:
// 123 kB" (meminfo; the caller knows the unit).
func parseField(data []byte, key string) (uint64, error) {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, newline)
		data = rest
		if len(line) <= len(key) || string(line[:len(key)]) != key {
			continue
		}
		line = line[len(key):]
		if line[0] == ':' {
			line = line[1:]
		} else if line[0] != ' ' {
			continue
		}
		v, _, ok := number(line)
		if !ok {
			return 0, errNumber
		}
		return v, nil
	}
	return 0, fmt.Errorf("no field %s", key)
}

// parseStatm returns the resident pages, the second number of /proc/PID/statm.
func parseStatm(data []byte) (uint64, error) {
	_, rest, ok := number(data)
	if !ok {
		return 0, errNumber
	}
	v, _, ok := number(rest)
	if !ok {
		return 0, errNumber
	}
	return v, nil
}

// parseNetDev returns the received and sent bytes of all interfaces but lo, or of the interface
// only: the first and ninth number after the name (proc_net(5)). Counters wrap at 2^64.
func parseNetDev(data []byte, only string) (received, sent uint64, err error) {
	for range 2 { // the table's head
		_, rest, ok := bytes.Cut(data, newline)
		if !ok {
			return 0, 0, errNetDev
		}
		data = rest
	}
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, newline)
		data = rest
		colon := bytes.LastIndexByte(line, ':') // an alias has a colon in its name
		if colon < 0 || !whole {
			return 0, 0, errNetDev
		}
		name := bytes.TrimLeft(line[:colon], " ")
		line = line[colon+1:]
		for column := range 9 {
			v, after, ok := number(line)
			if !ok {
				return 0, 0, errNetDev
			}
			line = after
			if string(name) == "lo" || only != "" && string(name) != only {
				continue
			}
			switch column {
			case 0:
				received += v
			case 8:
				sent += v
			}
		}
	}
	return received, sent, nil
}

// ticks are the counters of one line of /proc/stat.
type ticks struct {
	busy, softirq, steal uint64
	seen                 bool
}

// parseStat parses the CPU lines at the start of /proc/stat (proc_stat(5)): all[0] is the total of
// all CPUs, and all[n+1] is CPU n. A CPU without a line is offline and not seen. Busy time is all
// time except idle, iowait and steal.
func parseStat(data []byte, all []ticks) error {
	for i := range all {
		all[i].seen = false
	}
	for len(data) > 3 && string(data[:3]) == "cpu" {
		line, rest, _ := bytes.Cut(data[3:], newline)
		data = rest
		index := 0
		if len(line) > 0 && line[0] != ' ' {
			n, after, ok := number(line)
			if !ok {
				return errStat
			}
			if n >= uint64(len(all)-1) {
				continue // this CPU came online after watching began
			}
			index, line = int(n)+1, after
		}
		var v [8]uint64 // user nice system idle iowait irq softirq steal
		for i := range v {
			var ok bool
			if v[i], line, ok = number(line); !ok {
				return errStat
			}
		}
		all[index] = ticks{busy: v[0] + v[1] + v[2] + v[5] + v[6], softirq: v[6], steal: v[7], seen: true}
	}
	if !all[0].seen {
		return errStat
	}
	return nil
}

// countCPUs returns the highest CPU number in /proc/stat plus one.
func countCPUs(data []byte) int {
	count := 0
	for len(data) > 3 && string(data[:3]) == "cpu" {
		if n, _, ok := number(data[3:]); ok && data[3] != ' ' && n < 1<<16 {
			count = max(count, int(n)+1)
		}
		_, data, _ = bytes.Cut(data, newline)
	}
	return count
}

var newline = []byte{'\n'}

// number skips blanks and parses a decimal number that fits 64 bits.
func number(data []byte) (v uint64, rest []byte, ok bool) {
	i := 0
	for i < len(data) && (data[i] == ' ' || data[i] == '\t') {
		i++
	}
	from := i
	for ; i < len(data) && '0' <= data[i] && data[i] <= '9'; i++ {
		digit := uint64(data[i] - '0')
		if v > (math.MaxUint64-digit)/10 {
			return 0, data, false
		}
		v = v*10 + digit
	}
	return v, data[i:], i > from
}
