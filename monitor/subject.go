package monitor

import (
	"bytes"
	"encoding/csv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A metric is one thing read of a subject.
type metric int

const (
	cpu       metric = iota // CPU time, ns
	memory                  // bytes: a gauge, the others are counters
	rx                      // bytes
	tx                      // bytes
	throttled               // ns
	softirq                 // ns
	steal                   // ns
	metrics                 // how many there are

	kept = throttled + 1 // metrics of an instance
)

// names are the metrics' names in column missing and in Use.Missing.
var names = [metrics]string{"cpu", "memory", "network", "network", "throttled", "softirq", "steal"}

// A total holds a subject's counters at one time; NaN is missing. A float64
// holds 104 days of CPU time to the nanosecond.
type total [metrics]float64

// A source reads some metrics of a subject.
type source interface {
	// read puts the metrics that it tells into t. An error is final: the metrics
	// are missing from then on, and only close is called.
	read(buf []byte, t *total) error
	tells() []metric
	close()
}

// A subject is what has rows of its own: an instance, the host, one CPU.
type subject struct {
	label   []byte // ",sprout-1,sprout," as in its rows
	sources []source

	at      time.Duration // of the newest sample, since the start of watching
	total   total         // the newest sample
	started bool          // there is a row to take rates from
	lastAt  time.Duration // the newest row
	last    total

	why    [metrics]string // why a metric is missing; empty: it is there
	column []byte          // why as CSV; nil: to be written anew

	use history
}

func newSubject(name, component string) *subject {
	s := &subject{label: []byte("," + quote(name) + "," + quote(component) + ",")}
	for m := range metrics {
		s.total[m] = math.NaN()
	}
	return s
}

// quote writes one CSV cell.
func quote(cell string) string {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	// A buffer takes every write; an empty cell alone in a row would be quoted.
	_ = w.Write([]string{cell, ""})
	w.Flush()
	return strings.TrimSuffix(b.String(), ",\n")
}

func (s *subject) read(buf []byte) {
	s.sources = slices.DeleteFunc(s.sources, func(src source) bool {
		err := src.read(buf, &s.total)
		if err != nil {
			s.lose(err.Error(), src.tells()...)
			src.close()
		}
		return err != nil
	})
}

// lose makes metrics missing for good.
func (s *subject) lose(why string, lost ...metric) {
	for _, m := range lost {
		s.total[m] = math.NaN()
		s.why[m] = why
	}
	s.column = nil
}

// end makes everything missing that was not already.
func (s *subject) end(why string) {
	for m := range metrics {
		if s.why[m] == "" {
			s.lose(why, m)
		}
	}
	s.close()
}

func (s *subject) close() {
	for _, src := range s.sources {
		src.close()
	}
	s.sources = nil
}

// appendCells writes the columns cpu to steal, each with its comma.
func (s *subject) appendCells(b []byte) []byte {
	ns := float64(s.at - s.lastAt)
	for m := range metrics {
		value := s.total[m]
		switch m {
		case memory:
			b = appendNumber(b, value, 1)
		case rx, tx:
			b = appendNumber(b, (value-s.last[m])*float64(time.Second)/ns, 1)
		default:
			b = appendNumber(b, (value-s.last[m])/ns, 10_000)
		}
		b = append(b, ',')
	}
	return b
}

// appendNumber writes a value to the nearest 1/denominator, 1 or 10,000, and
// nothing for NaN. strconv takes many times as long for a fixed number of
// decimals, and this is most of what a sample costs beside reading the files.
func appendNumber(b []byte, value float64, denominator int64) []byte {
	if math.IsNaN(value) {
		return b
	}
	if value < 0 {
		b = append(b, '-')
		value = -value
	}
	n := int64(value*float64(denominator) + 0.5)
	b = strconv.AppendInt(b, n/denominator, 10)
	if denominator == 1 {
		return b
	}
	n %= denominator
	return append(b, '.', digit(n/1000), digit(n/100), digit(n/10), digit(n))
}

func digit(n int64) byte { return byte('0' + n%10) }

// missing is the column that says why cells are empty. Metrics that lie next to
// each other and miss for the same reason share it: "softirq, steal: why".
func (s *subject) missing() []byte {
	if s.column != nil {
		return s.column
	}
	var b strings.Builder
	for m := metric(0); m < metrics; m++ {
		if s.why[m] == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(names[m])
		for m+1 < metrics && s.why[m+1] == s.why[m] {
			m++
			if names[m] != names[m-1] {
				b.WriteString(", " + names[m])
			}
		}
		b.WriteString(": " + s.why[m])
	}
	s.column = append([]byte{}, quote(b.String())...)
	return s.column
}

// missedTicks adds to the host's column that samples were not taken.
func missedTicks(n int, column []byte) []byte {
	text := "samples: " + strconv.Itoa(n) + " due before this one and not taken"
	if len(column) > 0 {
		records, err := csv.NewReader(bytes.NewReader(column)).Read()
		if err == nil {
			text += "; " + records[0]
		}
	}
	return []byte(quote(text))
}
