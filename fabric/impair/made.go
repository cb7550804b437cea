package impair

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Made has the counts of packets in one direction of an impaired link, as netem
// or the emulator counted them, and the lateness of the packets sent.
type Made struct {
	Instance string `json:"instance"` // whose link
	Way      string `json:"way"`      // Out or In
	By       string `json:"by"`       // Netem or Emulator
	Asked    Link   `json:"asked"`    // the configured link, this way
	Packets  int64  `json:"packets"`  // that arrived
	Sent     int64  `json:"sent"`     // of these
	Bytes    int64  `json:"bytes"`    // of frames sent, without FCS
	Lost     int64  `json:"lost"`     // by chance, as configured; netem also counts packets here that it had no room for

	// Only the emulator counts these.
	Dropped  int64 `json:"dropped"`        // at the tail of the queue
	Overtook int64 `json:"overtook"`       // skipped the delay
	Aside    int64 `json:"aside"`          // to or from hosts other than Link.Peers
	Missed   int64 `json:"missed"`         // the emulator had no room for them: it was too slow, or its CPU was busy
	Refused  int64 `json:"refused"`        // the kernel refused to send them
	Rate     Rate  `json:"rate,omitempty"` // from the first packet sent to the last
	Lateness Late  `json:"lateness"`       // of sending, after the time that the line decided
}

// Late describes the distribution of lateness.
type Late struct {
	Median time.Duration `json:"median"`
	P90    time.Duration `json:"p90"`
	P99    time.Duration `json:"p99"`
	P999   time.Duration `json:"p999"`
	Most   time.Duration `json:"most"`
}

// lateShare is how late the latest packet in a hundred may be, as a share of
// the delay.
const lateShare = 0.05

// isAsConfigured reports whether the link did what the config asks for, and no
// more.
func (m Made) isAsConfigured() bool {
	late := m.Asked.Delay > 0 && float64(m.Lateness.P99) > lateShare*float64(m.Asked.Delay)
	full := m.Asked.Loss == 0 && m.Lost > 0 // netem had no room
	return m.Missed == 0 && m.Refused == 0 && !late && !full
}

// quantiles returns the quantiles of a histogram of nanoseconds.
func quantiles(h *hdrhistogram.Histogram) Late {
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) }
	return Late{Median: at(50), P90: at(90), P99: at(99), P999: at(99.9), Most: time.Duration(h.Max())}
}

// maxLateness is the largest lateness that the histogram records, in nanoseconds.
// Larger values count as maxLateness.
const maxLateness = int64(time.Second)

func newLateness() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLateness, 3) }
