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

// A metric is one value read of a subject.
type metric int

const (
	cpu       metric = iota // CPU time, ns
	memory                  // bytes; a gauge, the others are counters
	rx                      // bytes
	tx                      // bytes
	throttled               // ns
	softirq                 // ns
	steal                   // ns
	metrics                 // number of metrics

	kept = throttled + 1 // number of the metrics that instances have
)

// names are the metrics' names in the column missing and in Use.Missing.
var names = [metrics]string{"cpu", "memory", "network", "network", "throttled", "softirq", "steal"}

// A total holds a subject's counters at one time. NaN means missing. A float64 holds 104 days of
// CPU time in nanoseconds exactly.
type total [metrics]float64

// A source reads some metrics of a subject.
type source interface {
	// read stores the source's metrics in t. An error is final: the metrics are missing from then
	// on, and only close is called.
	read(buf []byte, t *total) error
	provides() []metric
	close()
}

// A subject has rows of its own: an instance, the host, or one CPU.
type subject struct {
	label   []byte // ",sprout-1,sprout,", as in its rows
	sources []source

	at      time.Duration // time of the newest sample, since the start of watching
	total   total         // counters of the newest sample
	started bool          // an earlier row or sample exists to compute rates from
	lastAt  time.Duration // time of the newest row
	last    total

	why    [metrics]string // why a metric is missing; empty: not missing
	column []byte          // why, as a CSV cell; nil: outdated

	use    history
	killed int // processes killed for lack of memory: before Start; after Stop, since Start
}

func newSubject(name, component string) *subject {
	s := &subject{label: []byte("," + quote(name) + "," + quote(component) + ",")}
	for m := range metrics {
		s.total[m] = math.NaN()
	}
	return s
}

// quote returns a CSV cell.
func quote(cell string) string {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	// A write to a buffer cannot fail. The second cell is there because a single empty cell would
	// be quoted.
	_ = w.Write([]string{cell, ""})
	w.Flush()
	return strings.TrimSuffix(b.String(), ",\n")
}

func (s *subject) read(buf []byte) {
	s.sources = slices.DeleteFunc(s.sources, func(src source) bool {
		err := src.read(buf, &s.total)
		if err != nil {
			s.lose(err.Error(), src.provides()...)
			src.close()
		}
		return err != nil
	})
}

// lose marks metrics as missing for good.
func (s *subject) lose(why string, lost ...metric) {
	for _, m := range lost {
		s.total[m] = math.NaN()
		s.why[m] = why
	}
	s.column = nil
}

// end marks all remaining metrics as missing and closes the sources.
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

// appendCells appends the columns cpu to steal, each followed by a comma.
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

// appendNumber appends a value rounded to 1/denominator, which is 1 or 10,000. It appends nothing
// for NaN. It replaces strconv, which is many times slower for a fixed number of decimals. Besides
// reading the files, this is most of a sample's cost.
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

// missing returns the column with the reasons for empty cells. Adjacent metrics with the same
// reason share it: "softirq, steal: why".
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

// missedTicks adds the number of missed samples to the host's column.
func missedTicks(n int, column []byte) []byte {
	text := "samples: " + strconv.Itoa(n) + " missed before this one"
	if len(column) > 0 {
		records, err := csv.NewReader(bytes.NewReader(column)).Read()
		if err == nil {
			text += "; " + records[0]
		}
	}
	return []byte(quote(text))
}
