package impair

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"vitrine"
	"vitrine/spec"
)

// The distributions of jitter.
const (
	Uniform = "uniform"
	Normal  = "normal"
)

// A Link is what happens to packets in one direction, in this order, as on a
// line: some are lost; the rest wait for their turn at the rate, in a queue with
// an end; then they travel for the delay.
type Link struct {
	Delay        time.Duration `yaml:"delay" json:"delay,omitempty"`                                                                     // Added to each packet.
	Jitter       time.Duration `yaml:"jitter" json:"jitter,omitempty"`                                                                   // uniform: the delay varies by at most this to both sides; normal: its standard deviation.
	Distribution string        `yaml:"distribution" json:"distribution,omitempty" jsonschema:"enum=uniform,enum=normal,default=uniform"` // Of the jitter.
	Table        string        `yaml:"table" json:"table,omitempty"`                                                                     // File of delays to draw from, which come on top of delay: one duration a line, or an HdrHistogram in nanoseconds.
	Loss         float64       `yaml:"loss" json:"loss,omitempty" jsonschema:"minimum=0,maximum=1"`                                      // Share of packets that is lost, each by itself.
	LossBursts   *Bursts       `yaml:"loss_bursts" json:"loss_bursts,omitempty"`                                                         // Loss in bursts, instead.
	Reorder      float64       `yaml:"reorder" json:"reorder,omitempty" jsonschema:"minimum=0,maximum=1"`                                // Share of packets that skip the delay and so overtake others; without it order is kept, whatever the jitter.
	Rate         Rate          `yaml:"rate" json:"rate,omitempty"`                                                                       // Bits of frames a second, such as 100mbit; frames count from the Ethernet header to the end of the data, without FCS.
	Queue        spec.Size     `yaml:"queue" json:"queue,omitempty"`                                                                     // Bytes that may wait for the rate, the packet under way among them; more are dropped at its tail. 50 ms of the rate unless said, and at least 15140.
	Bucket       spec.Size     `yaml:"bucket" json:"bucket,omitempty"`                                                                   // Bytes that may go at once after a pause; without it, each packet takes its time on the line.

	delays []int64 // the table's quantiles, nanoseconds: see readTable
}

// Bursts is the model of Gilbert and Elliott: a line that is good or bad, and
// may change with each packet. See G. Hasslinger, O. Hohlfeld, "The
// Gilbert-Elliott Model for Packet Loss in Real Time Services on the Internet",
// MMB 2008. In the long run Enter/(Enter+Leave) of the packets find it bad.
type Bursts struct {
	Enter float64 `yaml:"enter" json:"enter" jsonschema:"required,exclusiveMinimum=0,maximum=1"` // Probability that a packet finds the line gone bad.
	Leave float64 `yaml:"leave" json:"leave" jsonschema:"required,exclusiveMinimum=0,maximum=1"` // Probability that a packet finds it good again: 1/leave packets is how long a burst is.
	Good  float64 `yaml:"good" json:"good" jsonschema:"minimum=0,maximum=1,default=0"`           // Share that is lost while it is good.
	Bad   float64 `yaml:"bad" json:"bad" jsonschema:"minimum=0,maximum=1,default=1"`             // Share that is lost while it is bad; 1 unless said.
}

// Share is the share of packets that is lost in the long run.
func (b *Bursts) Share() float64 {
	bad := b.Enter / (b.Enter + b.Leave)
	return bad*b.bad() + (1-bad)*b.Good
}

func (b *Bursts) bad() float64 {
	if b.Bad == 0 {
		return 1
	}
	return b.Bad
}

// frameMost is the longest frame of an Ethernet MTU of 1500 bytes.
const frameMost = 1514

const (
	delayMost  = 10 * time.Second
	queueLeast = 10 * frameMost
	queueTime  = 50 * time.Millisecond
)

// check finds what cannot be, and fills in the queue. where names the link in
// the error.
func (l *Link) check(where string) error {
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: where, Found: found, Want: want}
	}
	if l.Distribution == "" {
		l.Distribution = Uniform
	}
	shares := []float64{l.Loss, l.Reorder}
	if b := l.LossBursts; b != nil {
		shares = append(shares, b.Enter, b.Leave, b.Good, b.Bad)
	}
	for _, share := range shares {
		if math.IsNaN(share) || share < 0 || share > 1 {
			return bad(fmt.Sprintf("the share %g", share), "want 0 to 1")
		}
	}
	switch {
	case l.Delay < 0 || l.Delay > delayMost:
		return bad("delay: "+l.Delay.String(), "want 0 to "+delayMost.String())
	case l.Jitter < 0:
		return bad("jitter: "+l.Jitter.String(), "want 0 or more")
	case l.Distribution != Uniform && l.Distribution != Normal:
		return bad(fmt.Sprintf("distribution: %q", l.Distribution), "want "+Uniform+" or "+Normal)
	case l.Table != "" && l.Jitter > 0:
		return bad("both jitter and table", "name one of them")
	case l.Distribution == Uniform && l.Jitter > l.Delay:
		return bad(fmt.Sprintf("jitter: %s of a delay of %s", l.Jitter, l.Delay), "want at most the delay, for no packet arrives before it was sent")
	case l.Distribution == Normal && 3*l.Jitter > l.Delay:
		return bad(fmt.Sprintf("jitter: %s of a delay of %s", l.Jitter, l.Delay), "want at most a third of the delay, or the distribution would not be normal")
	case l.LossBursts != nil && l.Loss > 0:
		return bad("both loss and loss_bursts", "name one of them")
	case l.LossBursts != nil && (l.LossBursts.Enter == 0 || l.LossBursts.Leave == 0):
		return bad("loss_bursts without enter or leave", "want both above 0")
	case l.Reorder > 0 && l.Delay == 0 && l.Table == "":
		return bad("reorder without delay", "want a delay, for packets that skip it to overtake others")
	case l.Rate < 0 || math.IsNaN(float64(l.Rate)) || math.IsInf(float64(l.Rate), 0):
		return bad("rate: "+l.Rate.String(), "want bits a second such as 100mbit")
	case l.Rate == 0 && (l.Queue != 0 || l.Bucket != 0):
		return bad("queue or bucket without rate", "name a rate")
	case l.Rate > 0 && l.Queue != 0 && l.Queue < frameMost:
		return bad(fmt.Sprintf("queue: %d", l.Queue), fmt.Sprintf("want at least %d, or no full frame would pass", frameMost))
	case l.Bucket < 0:
		return bad(fmt.Sprintf("bucket: %d", l.Bucket), "want 0 or more")
	}
	if l.Rate > 0 && l.Queue == 0 {
		l.Queue = max(queueLeast, spec.Size(float64(l.Rate)/8*queueTime.Seconds()))
	}
	return nil
}

// A Rate is bits a second, as text: "100mbit".
type Rate float64

var ratePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(k|m|g)?bit$`)

// UnmarshalText reads a number with bit, kbit, mbit or gbit, by powers of 1000,
// as tc(8) writes rates.
func (r *Rate) UnmarshalText(text []byte) error {
	m := ratePattern.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("rate %q: want a number with bit, kbit, mbit or gbit a second, such as 100mbit", text)
	}
	number, err := strconv.ParseFloat(string(m[1]), 64)
	*r = Rate(number * map[string]float64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[string(m[2])])
	if err != nil || *r < 1000 || *r > 1e12 {
		return fmt.Errorf("rate %q: want 1kbit to 1000gbit a second", text)
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String writes the rate in the largest unit that leaves at least 1.
func (r Rate) String() string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}} {
		if float64(r) >= unit.size {
			return strconv.FormatFloat(float64(r)/unit.size, 'f', -1, 64) + unit.name
		}
	}
	return strconv.FormatFloat(float64(r), 'f', -1, 64) + "bit"
}

// String says what the link does, for logs and reports.
func (l Link) String() string {
	var says []string
	add := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	if l.Delay > 0 {
		add("delay %s", l.Delay)
	}
	if l.Jitter > 0 {
		add("jitter %s %s", l.Jitter, l.Distribution)
	}
	if l.Table != "" {
		add("delays of %s", l.Table)
	}
	if l.Loss > 0 {
		add("loss %g", l.Loss)
	}
	if l.LossBursts != nil {
		add("loss in bursts %g", l.LossBursts.Share())
	}
	if l.Reorder > 0 {
		add("reorder %g", l.Reorder)
	}
	if l.Rate > 0 {
		add("rate %s queue %d bytes", l.Rate, l.Queue)
	}
	if len(says) == 0 {
		return "nothing"
	}
	return strings.Join(says, ", ")
}
