package impair

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Made is what became of the packets of one direction of an impaired link: what
// was really done, by the count of whoever did it.
type Made struct {
	Instance string `json:"instance"` // whose link
	Way      string `json:"way"`      // Out or In
	By       string `json:"by"`       // Netem or Emulator
	Asked    Link   `json:"asked"`    //
	Packets  int64  `json:"packets"`  // that came
	Sent     int64  `json:"sent"`     // of these
	Bytes    int64  `json:"bytes"`    // of frames sent, without FCS
	Lost     int64  `json:"lost"`     // by chance, as asked; netem counts what it found no room for with them

	// The emulator's alone.
	Dropped  int64 `json:"dropped"`  // at the tail of the queue
	Overtook int64 `json:"overtook"` // skipped the delay
	Missed   int64 `json:"missed"`   // found no room in the emulator: it was too slow, or its CPU was taken
	Refused  int64 `json:"refused"`  // that the kernel did not take
	Rate     Rate  `json:"rate"`     // from the first packet sent to the last
	Lateness Late  `json:"lateness"` // of sending, after the time that was drawn
}

// Late is how much later than asked something was.
type Late struct {
	Median time.Duration `json:"median"`
	P90    time.Duration `json:"p90"`
	P99    time.Duration `json:"p99"`
	P999   time.Duration `json:"p999"`
	Most   time.Duration `json:"most"`
}

// lateShare is how late, as a share of the delay, one packet in a hundred may be.
const lateShare = 0.05

// asAsked says whether the link did what it was to do, and no more.
func (m Made) asAsked() bool {
	return m.Missed == 0 && m.Refused == 0 && (m.Asked.Delay == 0 || float64(m.Lateness.P99) <= lateShare*float64(m.Asked.Delay))
}

// quantiles reads Late from a histogram of nanoseconds.
func quantiles(h *hdrhistogram.Histogram) Late {
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) }
	return Late{Median: at(50), P90: at(90), P99: at(99), P999: at(99.9), Most: time.Duration(h.Max())}
}

// lateMost bounds what the histogram of lateness tells apart.
const lateMost = int64(time.Second)

func newLateness() *hdrhistogram.Histogram { return hdrhistogram.New(1, lateMost, 3) }
